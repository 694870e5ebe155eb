"""ConsumerOrderInfoManager: queues that groups pop in order.

Of each queue one delivery is remembered: which messages were given out, when, to which attempt, and which of them are
acknowledged. While one of them is open and invisible, nobody gets anything from the queue but the attempt that has
them already (its answer may have been lost). The file is Java's, and written every ten seconds; what changed since is
in the journal of pop consumption.

Source:
    broker/offset/ConsumerOrderInfoManager.java (5.5: QueueLevelConsumerManager).
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from pathlib import PurePath
from typing import Any, Final

from maxq.broker.tables.persistent_manager import PersistentManager, object_member
from maxq.errors import RemoteProtocolError
from maxq.lazy_dataclass import dataclass
from maxq.protocol.message.pop_extra_info import queue_offset_key, retry_mark
from maxq.runtime.interfaces import Clock, Disk

log = logging.getLogger(__name__)

FILE_NAME: Final = "consumerOrderInfo.json"
NO_COMMIT: Final = -2
ILLEGAL: Final = -1
LATEST_MS: Final = (1 << 63) - 1
"""The latest time that Java's file and a client's answer can have."""
_KEPT_MS: Final = 24 * 3_600_000


@dataclass(slots=True)
class OrderInfo:
    """The last delivery of one queue. Times are in ms.

    Attributes:
        offsets: queue offsets of the messages, ascending.
        next_visible: by queue offset, where a consumer changed it.
        counts: by queue offset, how often it was given out before; only those above 0.
        committed: bit i: the i-th is acknowledged.
    """

    attempt_id: str | None
    pop_time: int
    invisible_time: int
    offsets: list[int]
    last_consume_time: int
    committed: int = 0
    next_visible: dict[int, int] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)

    def is_open(self, index: int) -> bool:
        return not self.committed >> index & 1

    def visible_again(self, offset: int) -> int:
        return self.next_visible.get(offset, self.pop_time + self.invisible_time)

    def blocked_until(self, now_ms: int) -> int:
        """Return when the first message that is still invisible becomes visible; 0 if none is invisible. If the clock
        was set far back since they were given out, all become visible one invisible time from now."""
        if self.pop_time - now_ms > self.invisible_time:
            soon_ms = now_ms + self.invisible_time
            self.next_visible |= {at: min(self.visible_again(at), soon_ms) for at in self.offsets}
        for index, offset in enumerate(self.offsets):
            if self.is_open(index) and now_ms < (visible_ms := self.visible_again(offset)):
                return visible_ms
        return 0

    def next_offset(self) -> int:
        """Return the offset of the first message that is not acknowledged, or the one behind the last."""
        for index, offset in enumerate(self.offsets):
            if self.is_open(index):
                return offset
        return self.offsets[-1] + 1

    def to_json(self) -> dict[str, Any]:
        """Return Java's form: offsets are the first one and distances from it."""
        first = self.offsets[0] if self.offsets else 0
        row: dict[str, Any] = {"a": self.attempt_id} if self.attempt_id is not None else {}
        row |= {
            "cm": self.committed, "i": self.invisible_time, "l": self.last_consume_time,
            "o": [first, *(offset - first for offset in self.offsets[1:])] if self.offsets else [],
            "oc": {str(offset): count for offset, count in self.counts.items()},
        }  # fmt: skip
        if self.next_visible:
            row["ot"] = {str(offset): time for offset, time in self.next_visible.items()}
        return row | {"popTime": self.pop_time}

    @classmethod
    def from_json(cls, value: Any) -> "OrderInfo":
        """Build one from its JSON form. Raises RemoteProtocolError for anything else."""
        if not isinstance(value, dict):
            raise RemoteProtocolError(f"an order info is a JSON object, not {type(value).__name__}")
        try:
            row = [_long(offset) for offset in value.get("o") or ()]
            return cls(
                value.get("a"),
                _long(value.get("popTime") or 0),
                _long(value.get("i") or 0),
                [*row[:1], *(_long(row[0] + distance) for distance in row[1:])],
                _long(value.get("l") or 0),
                int(value.get("cm") or 0),
                {_long(offset): _long(min(int(time), LATEST_MS)) for offset, time in (value.get("ot") or {}).items()},
                {_long(offset): _long(count) for offset, count in (value.get("oc") or {}).items()},
            )
        except (TypeError, ValueError, AttributeError, OverflowError):
            raise RemoteProtocolError(f"an order info cannot be {value!r:.200}") from None


class ConsumerOrderInfoManager(PersistentManager):
    """The last deliveries by topic, group and queue. Values are changed in place on the loop; a copy of them is
    written."""

    def __init__(
        self,
        disk: Disk,
        path: PurePath,
        *,
        clock: Clock,
        is_there: Callable[[str, str], int],
    ) -> None:
        """`is_there(topic, group)` returns how many queues the topic has, 0 if it or the group was deleted."""
        super().__init__(disk, path)
        self._clock = clock
        self._is_there = is_there
        self._table: dict[str, dict[int, OrderInfo]] = {}
        self.is_dirty = False

    def get(self, topic: str, group: str, queue_id: int) -> OrderInfo | None:
        table = self._table.get(f"{topic}@{group}")
        return None if table is None else table.get(queue_id)

    def rows(self) -> Iterator[tuple[str, str, int, OrderInfo]]:
        """Yield every delivery with its topic, group and queue id."""
        for name, queues in self._table.items():
            topic, _, group = name.partition("@")
            for queue_id, info in queues.items():
                yield topic, group, queue_id, info

    def delivered(
        self,
        topic: str,
        group: str,
        queue_id: int,
        *,
        attempt_id: str | None,
        pop_time: int,
        invisible_time: int,
        offsets: list[int],
    ) -> list[str]:
        """Note that messages are given out. Returns the entries of orderCountInfo."""
        info = OrderInfo(attempt_id, pop_time, invisible_time, offsets, self._clock.wall_ms())
        before = self.get(topic, group, queue_id)
        if before is not None:
            info.counts = _counts(before, info)
        self._table.setdefault(f"{topic}@{group}", {})[queue_id] = info
        self.is_dirty = True
        mark = retry_mark(topic)
        texts = [f"{mark} {queue_offset_key(queue_id, offset)} {count}" for offset, count in info.counts.items()]
        fewest = min(info.counts.values()) if len(info.counts) == len(offsets) else 0
        return [*texts, f"{mark} {queue_id} {fewest}"]

    def is_blocked(self, topic: str, group: str, queue_id: int, attempt_id: str | None, invisible_time: int) -> bool:
        """Return whether this attempt must wait for messages that were given out before."""
        info = self.get(topic, group, queue_id)
        if info is None or not info.offsets or (info.attempt_id is not None and info.attempt_id == attempt_id):
            return False
        if info.invisible_time <= 0:
            info.invisible_time = invisible_time
        return info.blocked_until(self._clock.wall_ms()) > 0

    def clear_block(self, topic: str, group: str, queue_id: int) -> None:
        """Lift the block of a queue, because an administrator sets where the group continues."""
        if self._table.get(f"{topic}@{group}", {}).pop(queue_id, None) is not None:
            self.is_dirty = True

    def commit_and_next(self, topic: str, group: str, queue_id: int, offset: int, pop_time: int, committed: int) -> int:
        """Acknowledge a message. Returns the offset to commit, NO_COMMIT for an ack of an earlier delivery, ILLEGAL for
        a message that was not given out. Of an unknown delivery only the first message behind `committed` is
        accepted, because whether the messages before a later one were acknowledged is unknown."""
        info = self.get(topic, group, queue_id)
        if info is None:
            return offset + 1 if offset == max(committed, 0) else NO_COMMIT
        if not info.offsets:
            return ILLEGAL
        if pop_time != info.pop_time:
            log.warning("%s@%s queue %d: ack of offset %d from a delivery before", topic, group, queue_id, offset)
            return NO_COMMIT
        if offset not in info.offsets:
            return ILLEGAL
        info.committed |= 1 << info.offsets.index(offset)
        self.is_dirty = True
        return info.next_offset()

    def change_visible_time(
        self, topic: str, group: str, queue_id: int, offset: int, pop_time: int, visible_ms: int
    ) -> bool:
        """Set when the message becomes visible. Returns False if it is not of the last delivery."""
        info = self.get(topic, group, queue_id)
        if info is None or info.pop_time != pop_time or offset not in info.offsets:
            return False
        info.next_visible[offset] = min(visible_ms, LATEST_MS)
        self.is_dirty = True
        return True

    def put(self, topic: str, group: str, queue_id: int, info: OrderInfo) -> None:
        """Set what was delivered of a queue to an ordered group, as a record of the pop journal says."""
        self._table.setdefault(f"{topic}@{group}", {})[queue_id] = info
        self.is_dirty = True

    def blocks(self) -> list[tuple[str, str, int, int]]:
        """Return (topic, group, queue id, until when) of the queues that are blocked now."""
        now_ms = self._clock.wall_ms()
        return [
            (*_split(key), queue_id, until_ms)
            for key, table in self._table.items()
            for queue_id, info in table.items()
            if (until_ms := info.blocked_until(now_ms))
        ]

    def not_beyond(self, max_offset: Callable[[str, int], int]) -> None:
        """Drop deliveries of messages behind the ends of their queues, `max_offset(topic, queue_id)`: a loss of power
        has taken them, and others will have their places."""
        gone = [
            (topic, group, queue_id)
            for topic, group, queue_id, info in self.rows()
            if info.offsets and info.offsets[-1] >= max_offset(topic, queue_id)
        ]
        for queue in gone:
            log.warning("%s@%s queue %d: the messages that were given out last are missing from this store", *queue)
            self.clear_block(*queue)

    # --- the file ----------------------------------------------------------------------------------------------------

    def clean(self, now_ms: int) -> None:
        """Remove deliveries of deleted topics and groups, and those without activity for a day."""
        oldest_ms = now_ms - _KEPT_MS
        for key, table in list(self._table.items()):
            queues = self._is_there(*_split(key))
            for queue_id, info in list(table.items()):
                if queue_id >= queues or info.last_consume_time < oldest_ms:
                    del table[queue_id]
                    self.is_dirty = True
            if not table:
                del self._table[key]

    def to_json(self) -> dict[str, Any]:
        return {
            "table": {
                key: {queue_id: info.to_json() for queue_id, info in list(table.items())}
                for key, table in list(self._table.items())
            }
        }

    def from_json(self, value: dict[str, Any]) -> None:
        self._table = {key: _queues(table) for key, table in object_member(value, "table").items() if "@" in key}


def _long(value: Any) -> int:
    """`value` as an integer of 64 bits.

    Raises:
        ValueError, TypeError, OverflowError: it is not a number, or does not fit.
    """
    number = int(value)
    if not -1 << 63 <= number < 1 << 63:
        raise ValueError(f"{number} has more than 64 bits")
    return number


def _queues(value: Any) -> dict[int, OrderInfo]:
    if not isinstance(value, Mapping):
        raise RemoteProtocolError("order infos of a topic and group are a JSON object")
    try:
        return {int(queue_id): OrderInfo.from_json(info) for queue_id, info in value.items()}
    except ValueError:
        raise RemoteProtocolError("order infos stand under queue ids") from None


def _split(key: str) -> tuple[str, str]:
    topic, _, group = key.partition("@")
    return topic, group


def _counts(before: OrderInfo, now: OrderInfo) -> dict[int, int]:
    """Return how often each message of `now` was given out before; a repeated request of the same attempt does not
    count."""
    if before.attempt_id is not None and before.attempt_id == now.attempt_id:
        return before.counts
    again = set(before.offsets)
    return {offset: before.counts.get(offset, 0) + 1 for offset in now.offsets if offset in again}
