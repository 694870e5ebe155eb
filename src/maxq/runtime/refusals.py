"""Refusals: one form for every "not now" that a server says, and their counts.

A remark names the cause (a word in brackets, which clients and dashboards can go by), what was measured, the limit with
the setting it comes from, and what to do:

    [OVERLOAD]system busy, start flow control for a while: 10001 send requests wait for the disk, the limit is 10000
    (sendThreadPoolQueueCapacity); retry later or elsewhere

`explain` writes it. Servers pass every answer to `Refusals.heard`, which counts by the word in brackets: every refusal
in this form is counted, whichever part of the server gave it. Once an interval `report` logs each cause that had new
ones, with the newest remark.
"""

import logging
import re
from dataclasses import field
from enum import StrEnum
from typing import Final

from maxq.lazy_dataclass import dataclass

log = logging.getLogger(__name__)


class Cause(StrEnum):
    """Why a request is refused. The first four words are RocketMQ's."""

    TIMEOUT_CLEAN_QUEUE = "TIMEOUT_CLEAN_QUEUE"  # waited too long behind other requests
    PCBUSY_CLEAN_QUEUE = "PCBUSY_CLEAN_QUEUE"  # an append took too long
    REJECTREQUEST = "REJECTREQUEST"  # a slave that may not be read
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = "LMQ_CONSUME_QUEUE_NUM_EXCEEDED"  # too many light queues
    OVERLOAD = "OVERLOAD"  # too much of one kind is unfinished
    DISK_FULL = "DISK_FULL"  # above the warning level
    DISK_NO_ROOM = "DISK_NO_ROOM"  # blocks for the next records cannot be had
    DISK_FAILED = "DISK_FAILED"  # a write or flush failed
    FENCED = "FENCED"  # this broker may not write for its group
    NOT_MASTER = "NOT_MASTER"  # a slave takes no messages
    NOT_SURE = "NOT_SURE"  # perhaps another broker is the group's active one by now
    REPLICAS = "REPLICAS"  # too few copies in sync
    TOO_EARLY = "TOO_EARLY"  # before startAcceptSendRequestTimeStamp
    QUOTA = "QUOTA"  # a topic, group or user is above its quota
    CONSUMER_BEHIND = "CONSUMER_BEHIND"  # a group was shut out for lagging
    UNREAD_ANSWERS = "UNREAD_ANSWERS"  # a client does not read: disconnected
    NO_BROKER = "NO_BROKER"  # a name server that no broker has registered with yet
    CONNECTIONS = "CONNECTIONS"  # one more would take what files need: disconnected


_CAUSE: Final = re.compile(r"\[([A-Z_]+)\]")
_CAUSES: Final = frozenset(str(cause) for cause in Cause)


def explain(cause: Cause, what: str, *, limit: str, remedy: str) -> str:
    """Make the remark of a refusal.

    Args:
        what: what is wrong and the measured value, such as "system busy: 12 sends wait".
        limit: value, and in brackets the setting it comes from.
        remedy: what the reader can do.
    """
    return f"[{cause}]{what}, the limit is {limit}; {remedy}"


def cause_of(remark: str) -> str | None:
    """Return the cause that a remark names; None if it is not a refusal in this form."""
    for found in _CAUSE.finditer(remark):
        if found[1] in _CAUSES:
            return found[1]
    return None


@dataclass(slots=True)
class Refusals:
    """Counts refused requests, by cause.

    Attributes:
        oneway_dropped: of these, requests that nobody is told about.
    """

    by_cause: dict[str, int] = field(default_factory=dict)
    oneway_dropped: int = 0
    _reported: dict[str, int] = field(default_factory=dict)
    _newest: dict[str, str] = field(default_factory=dict)

    def count(self, cause: str, remark: str, *, oneway: bool = False) -> None:
        """Count a request that was refused with this remark."""
        self.by_cause[cause] = self.by_cause.get(cause, 0) + 1
        self._newest[cause] = remark
        if oneway:
            self.oneway_dropped += 1

    def heard(self, remark: str | None, *, oneway: bool) -> None:
        """Count a request whose answer was no success, if it is a refusal."""
        cause = None if not remark else cause_of(remark)
        if remark and cause is not None:
            self.count(cause, remark, oneway=oneway)

    @property
    def total(self) -> int:
        return sum(self.by_cause.values())

    def report(self) -> None:
        """Log the refusals since the last report, a line a cause; called every second."""
        if self.by_cause == self._reported:
            return
        for cause, total in self.by_cause.items():
            new = total - self._reported.get(cause, 0)
            if new:
                log.warning(
                    "refused %d requests with [%s] (%d since start, %d one-way requests among all dropped), the "
                    "newest: %s", new, cause, total, self.oneway_dropped, self._newest.get(cause, ""),
                )  # fmt: skip
        self._reported = dict(self.by_cause)
