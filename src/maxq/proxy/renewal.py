"""Receipts that are renewed: of messages whose consumer asked for it, for as long as it is there and has not answered.

The consumer keeps the handle that it got; `take` returns the present one for it. A consumer that has gone gives its
messages to others soon. Below: after how long a message comes again that was not consumed, by its group's policy.

Source:
    proxy/service/receipt/DefaultReceiptHandleManager.java, proxy/common/{ReceiptHandleGroup,RenewStrategyPolicy}.java,
    remoting/protocol/subscription/{CustomizedRetryPolicy,ExponentialRetryPolicy}.java.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from maxq.config.proxy_config import ProxyConfig
from maxq.errors import MaxQError
from maxq.lazy_dataclass import dataclass
from maxq.protocol.body.subscription import GroupRetryPolicy
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.grpc import messages as pb
from maxq.proxy.brokers import Brokers, NotKnownYet
from maxq.proxy.clients import Client
from maxq.proxy.handles import ReceiptHandle, ask_to_change, changed_handle, ignored
from maxq.proxy.statuses import CallRefusedError
from maxq.proxy.validation import duration
from maxq.runtime.interfaces import Clock

log: Final = logging.getLogger(__name__)

EXPONENTIAL: Final = "EXPONENTIAL"
_CUSTOMIZED_MS: Final = tuple(
    seconds * 1000
    for seconds in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
)
_INITIAL_MS: Final = 5_000
_MAX_MS: Final = 2 * 3_600_000
_MULTIPLIER: Final = 2
_LONGEST_MS: Final = 366 * 24 * 3_600_000

_MINUTE_MS: Final = 60_000
#: For how long a message is invisible after the first, second, … renewal.
_DELAYS_MS: Final = tuple(minutes * _MINUTE_MS for minutes in (1, 3, 5, 10, 30, 60))
_MOST_OF_CLIENT: Final = 65_536  # receipts; further ones are not renewed


@dataclass(slots=True)
class _Receipt:
    """One message that a consumer has and whose receipt is renewed."""

    topic: str
    group: str
    handle: ReceiptHandle
    since_ms: int
    attempts: int  # how often the message had been delivered before
    renewals: int = 0
    failures: int = 0  # in a row
    asked: asyncio.Future[None] | None = None  # done when the broker has answered; None: nothing is asked


class Renewal:
    """Renews receipts.

    Attributes:
        when_looked: functions that are called with the loop's time after each look.
    """

    def __init__(self, brokers: Brokers, config: Callable[[], ProxyConfig], clock: Clock) -> None:
        self._brokers = brokers
        self._config = config
        self._clock = clock
        self._of_client: dict[Client, dict[tuple[str, str], _Receipt]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.when_looked: list[Callable[[float], None]] = []

    def start(self) -> None:
        """Begin to look for receipts to renew."""
        period_s = self._config().renew_schedule_period_millis / 1000
        self._timer = asyncio.get_running_loop().call_later(period_s, self._look)

    def stop(self) -> None:
        """End, and let others have all messages soon."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for client in list(self._of_client):
            self.client_gone(client)

    def keep(self, client: Client, topic: str, group: str, handle: ReceiptHandle, attempts: int) -> None:
        """Renew the receipt of a message that a client is given now.

        Args:
            attempts: how often the message had been delivered before.
        """
        receipts = self._of_client.setdefault(client, {})
        if len(receipts) < _MOST_OF_CLIENT:
            receipts[group, str(handle)] = _Receipt(topic, group, handle, self._clock.wall_ms(), attempts)

    def wait_for(self, client: Client, group: str, handles: Iterable[str]) -> None:
        """Let a call wait that uses one of these handles while it is being renewed: its broker would not find the
        message by the old one.

        Raises:
            NotKnownYet: the call is to be served again.
        """
        receipts = self._of_client.get(client)
        if receipts is None:
            return
        for handle in handles:
            receipt = receipts.get((group, handle))
            if receipt is not None and receipt.asked is not None:
                raise NotKnownYet(asyncio.shield(receipt.asked))

    def take(self, client: Client, group: str, handle: str) -> str:
        """Return the present handle for the one that a client was given, and renew it no more."""
        receipts = self._of_client.get(client)
        receipt = None if receipts is None else receipts.pop((group, handle), None)
        if receipt is None:
            return handle
        if not receipts:
            del self._of_client[client]
        return str(receipt.handle)

    def give_back(self, client: Client, group: str, handle: str, invisible_ms: int) -> None:
        """Let others have a message soon that its client did not get. Nothing happens if it is no longer renewed,
        because the client has got it and answered."""
        receipts = self._of_client.get(client)
        receipt = None if receipts is None else receipts.get((group, handle))
        if receipt is not None:
            self._forget(client, (group, handle))
            self._hide(client, receipt, invisible_ms, ignored)

    def holds(self, client: Client) -> bool:
        """Return whether a client has messages whose receipts are renewed."""
        return client in self._of_client

    def client_gone(self, client: Client) -> None:
        """Let others have the messages of a client soon."""
        for receipt in self._of_client.pop(client, {}).values():
            self._hide(client, receipt, self._config().invisible_time_millis_when_clear, ignored)

    def _look(self) -> None:
        """Renew what would become visible soon."""
        self.start()
        config, now_ms = self._config(), self._clock.wall_ms()
        soon_ms = now_ms + config.renew_ahead_time_millis
        for client, receipts in list(self._of_client.items()):
            for key, receipt in list(receipts.items()):
                if receipt.handle.visible_again_ms <= soon_ms and receipt.asked is None:
                    try:
                        self._renew(client, key, receipt, now_ms, config)
                    except NotKnownYet:
                        continue  # the next look finds the group known
                    except Exception:
                        log.exception("the receipt of a message of %s was not renewed: %s", client, receipt.handle)
        now = asyncio.get_running_loop().time()
        for hears in self.when_looked:
            hears(now)

    def _renew(self, client: Client, key: tuple[str, str], receipt: _Receipt, now_ms: int, config: ProxyConfig) -> None:
        if receipt.failures >= config.max_renew_retry_times:
            log.warning("the receipt of a message of %s could not be renewed, given up: %s", client, receipt.handle)
            self._forget(client, key)
        elif now_ms - receipt.since_ms < config.renew_max_time_millis:
            receipt.asked = asyncio.get_running_loop().create_future()
            delay_ms = _DELAYS_MS[min(receipt.renewals, len(_DELAYS_MS) - 1)]
            self._hide(client, receipt, delay_ms, partial(self._renewed, client, key, receipt))
        else:
            group = self._brokers.group(receipt.group)
            self._forget(client, key)
            if group is not None:
                self._hide(client, receipt, retry_delay_ms(group.group_retry_policy, receipt.attempts), ignored)

    def _hide(
        self, client: Client, receipt: _Receipt, invisible_ms: int, on_reply: Callable[[RemotingCommand | None], None]
    ) -> None:
        try:
            ask_to_change(client, receipt.handle, receipt.topic, receipt.group, invisible_ms, on_reply)
        except (CallRefusedError, MaxQError) as error:
            log.warning("%s: %s", receipt.handle, error)
            on_reply(None)

    def _renewed(self, client: Client, key: tuple[str, str], receipt: _Receipt, reply: RemotingCommand | None) -> None:
        asked, receipt.asked = receipt.asked, None
        if asked is not None:
            asked.set_result(None)
        try:
            receipt.handle = changed_handle(receipt.handle, reply)
        except CallRefusedError as error:
            if reply is not None:
                log.warning("the receipt %s is renewed no more: %s", receipt.handle, error)
                self._forget(client, key)
            receipt.failures += 1
            return
        receipt.failures = 0
        receipt.renewals += 1

    def _forget(self, client: Client, key: tuple[str, str]) -> None:
        receipts = self._of_client.get(client)
        if receipts is not None:
            receipts.pop(key, None)
            if not receipts:
                del self._of_client[client]


# --- policies of groups -----------------------------------------------------------------------------------------------


def retry_delay_ms(policy: GroupRetryPolicy, attempts: int) -> int:
    """Return the delay, in ms, before a message that was delivered `attempts` times before comes again."""
    if policy.type == EXPONENTIAL:
        initial, longest, multiplier = _exponential(policy)
        return int(min(longest, initial * multiplier ** min(max(attempts, 0), 32)))
    delays = _customized(policy)
    return delays[min(max(attempts, 0) + 2, len(delays) - 1)]


def backoff_policy(policy: GroupRetryPolicy, attempts: int) -> pb.RetryPolicy:
    """Return a group's policy for gRPC clients, with the number of deliveries of a message."""
    if policy.type == EXPONENTIAL:
        initial, longest, multiplier = _exponential(policy)
        backoff = pb.ExponentialBackoff(initial=duration(initial), max=duration(longest), multiplier=multiplier)
        return pb.RetryPolicy(max_attempts=attempts, exponential_backoff=backoff)
    customized = pb.CustomizedBackoff(next=[duration(delay_ms) for delay_ms in _customized(policy)])
    return pb.RetryPolicy(max_attempts=attempts, customized_backoff=customized)


def _exponential(policy: GroupRetryPolicy) -> tuple[int, int, int]:
    given = policy.exponential_retry_policy or {}
    return (
        _number(given, "initial", _INITIAL_MS),
        _number(given, "max", _MAX_MS),
        _number(given, "multiplier", _MULTIPLIER),
    )


def _customized(policy: GroupRetryPolicy) -> tuple[int, ...]:
    given = (policy.customized_retry_policy or {}).get("next")
    if not isinstance(given, list) or not given or not all(type(delay) is int for delay in given):
        return _CUSTOMIZED_MS
    return tuple(min(max(0, delay), _LONGEST_MS) for delay in given)


def _number(given: Mapping[str, Any], name: str, default: int) -> int:
    value = given.get(name)
    return min(max(1, value), _LONGEST_MS) if type(value) is int else default
