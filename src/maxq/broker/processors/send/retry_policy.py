"""How long a failed message waits: the retry policy of its group, where it has one.

A group's policy counts for messages that come back without a delay level. They are delayed by levels, so a policy's
time becomes the shortest level that is not shorter, or the longest there is. (A Java broker heeds the policy only in
its proxy; remoting consumers get level 3 + times whatever it says. A group without a policy gets that here, too.)

Source:
    remoting/protocol/subscription/{GroupRetryPolicy,CustomizedRetryPolicy,ExponentialRetryPolicy}.java.
"""

from collections.abc import Mapping
from typing import Any, Final

from maxq.protocol.body.subscription import GroupRetryPolicy
from maxq.protocol.json.json_body import read_int

_EXPONENTIAL: Final = "EXPONENTIAL"
_CUSTOMIZED: Final = "CUSTOMIZED"
_INITIAL_MS: Final = 5_000
_MOST_MS: Final = 2 * 3_600_000
_MULTIPLIER: Final = 2
_TIMES_MOST: Final = 32
_FIRST_TRY: Final = 2  # the first retry is the third of a customized table, as it is level 3


def next_delay_ms(policy: GroupRetryPolicy, reconsume_times: int) -> int | None:
    """Returns the delay in ms of a message that failed for the `reconsume_times + 1`-th time; None if the policy has
    no value for it."""
    try:
        if policy.type == _EXPONENTIAL and policy.exponential_retry_policy is not None:
            return _exponential(policy.exponential_retry_policy, reconsume_times)
        if policy.type == _CUSTOMIZED and policy.customized_retry_policy is not None:
            return _customized(policy.customized_retry_policy, reconsume_times)
    except (TypeError, ValueError):  # kept as sent, so it may be anything
        return None
    return None


def _exponential(policy: Mapping[str, Any], reconsume_times: int) -> int:
    initial = read_int(policy.get("initial", _INITIAL_MS))
    most = read_int(policy.get("max", _MOST_MS))
    multiplier = read_int(policy.get("multiplier", _MULTIPLIER))
    growth = int(multiplier ** min(max(reconsume_times, 0), _TIMES_MOST))
    return max(0, min(most, initial * growth))


def _customized(policy: Mapping[str, Any], reconsume_times: int) -> int | None:
    delays = policy.get("next")
    if not isinstance(delays, list) or not delays:
        return None
    return max(0, read_int(delays[min(max(reconsume_times, 0) + _FIRST_TRY, len(delays) - 1)]))
