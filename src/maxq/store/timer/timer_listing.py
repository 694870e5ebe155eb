"""TimerListing: what the wheel holds, a page at a time and within a budget.

It works on a running timer as well as on files that nobody uses (offline_timer.py). A page ends after so many messages,
or so many slots, units and bytes looked at; its cursor (`slot:position in the timer log`) says where the next one
begins. Within a slot the newest message comes first, as the units are chained.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from maxq.errors import RemoteProtocolError
from maxq.lazy_dataclass import dataclass
from maxq.protocol.message import message_const as const
from maxq.store.timer.timer_log import TimerLog, TimerUnit
from maxq.store.timer.timer_record import TimerRecord
from maxq.store.timer.timer_wheel import Slot, TimerWheel

#: Most slots that are read for one page; an empty stretch of the wheel costs some milliseconds a page.
SLOT_BUDGET: Final = 3_000
#: Most units that are read for one page, some 20 µs each with their messages.
UNIT_BUDGET: Final = 400
#: Bytes of messages after which a page ends; messages are copied, and the one that passes this limit still belongs to
#: the page.
BYTE_BUDGET: Final = 4 << 20

WAITING, ROLLING, MARKER, LATE, LOST, UNREAD = "WAITING", "ROLLING", "MARKER", "LATE", "LOST", "UNREAD"


@dataclass(frozen=True, slots=True)
class TimerEntry:
    """One unit of the timer log and its message.

    Attributes:
        slot_ms: its slot; it is delivered when that is over.
        due_ms: when it is delivered, ms since 1970: of one that rolls, when it goes round again.
        state: WAITING; ROLLING, it goes round again, for it is due later than the wheel reaches; MARKER, it recalls
            another message; LATE; LOST, its record is gone; UNREAD, it is in the topic and not in the wheel yet.
        unit: of an UNREAD one only what the record says; its position is −1.
        record: None if it is lost.
    """

    slot_ms: int
    due_ms: int
    state: str
    unit: TimerUnit
    record: TimerRecord | None

    def to_json(self, why: str = "") -> dict[str, Any]:
        """Return the entry as a JSON object; `why` names the reason of its delay."""
        record, unit = self.record, self.unit
        found: dict[str, Any] = {
            "state": self.state,
            "dueMs": self.due_ms,
            "slotMs": self.slot_ms,
            "physicalOffset": unit.physical_offset,
            "size": unit.size,
            "timerLogPosition": unit.position,
            "enqueuedMs": unit.write_time_ms,
        }
        if record is not None:
            properties = record.message.properties
            found |= {
                "topic": record.real_topic,
                "queueId": int(properties.get(const.PROPERTY_REAL_QUEUE_ID, "0")),
                "msgId": record.unique_key,
                "timerQueueOffset": record.message.queue_offset,
                "storedMs": record.message.store_timestamp,
                "outMs": record.out_ms,
                "rolls": record.rolls,
            }
            if record.delete_key is not None:
                found["recalls"] = record.delete_key
        if why:
            found["why"] = why
        return found


@dataclass(frozen=True, slots=True)
class TimerPage:
    """A page of a listing. `next` is the cursor of the next page; empty if there is none."""

    entries: list[TimerEntry]
    next: str


class TimerListing:
    """Lists what waits in a timer without changing anything."""

    def __init__(
        self,
        wheel: TimerWheel,
        timer_log: TimerLog,
        record_at: Callable[[int, int], TimerRecord | None],
        live_slot: Callable[[int], Slot],
        counts: Callable[[TimerUnit], bool],
    ) -> None:
        """
        Args:
            record_at: the message at a physical offset with a size.
            live_slot: the slot of a time, EMPTY if what it holds is over.
            counts: is this unit of a live slot to be delivered?
        """
        self._wheel = wheel
        self._log = timer_log
        self._record_at = record_at
        self._live_slot = live_slot
        self._counts = counts

    def page(
        self, begin_ms: int, end_ms: int, now_ms: int, *, topic: str = "", limit: int = 100, cursor: str = ""
    ) -> TimerPage:
        """Return the messages due in slots from `begin_ms` up to, not including, `end_ms`.

        Args:
            topic: of this real topic only.
            cursor: `next` of the page before; empty: begin.

        Raises:
            RemoteProtocolError: the cursor is invalid.
        """
        precision = self._wheel.precision_ms
        time_ms, position = self._cursor(cursor) if cursor else (begin_ms // precision * precision, -1)
        entries: list[TimerEntry] = []
        slots, units, size = SLOT_BUDGET, UNIT_BUDGET, BYTE_BUDGET
        while time_ms < end_ms:
            if slots <= 0:
                return TimerPage(entries, f"{time_ms}:-1")
            slots -= 1
            if position < 0:
                position = self._live_slot(time_ms).last_position
            while position >= 0:
                if units <= 0 or size <= 0 or len(entries) >= limit:
                    return TimerPage(entries, f"{time_ms}:{position}")
                units -= 1
                unit = self._log.read(position)
                if unit is None or unit.due_ms // precision * precision != time_ms:
                    break
                if self._counts(unit):
                    size -= unit.size
                    entry = self._entry(unit, now_ms)
                    if not topic or (entry.record is not None and entry.record.real_topic == topic):
                        entries.append(entry)
                position = unit.previous if unit.previous < position else -1
            position = -1
            time_ms += precision
        return TimerPage(entries, "")

    def entries_at(self, positions: Iterable[int], now_ms: int) -> list[TimerEntry]:
        """Return those units at these positions whose messages still wait."""
        units = (self._log.read(position) for position in positions)
        return [
            self._entry(unit, now_ms)
            for unit in units
            if unit is not None and self._live_slot(unit.due_ms).last_position >= unit.position and self._counts(unit)
        ]

    def unread_entry(self, record: TimerRecord) -> TimerEntry:
        """Return the entry of a message that is not in the wheel yet."""
        stored_ms = record.message.store_timestamp
        unit = TimerUnit(-1, -1, 0, stored_ms, record.out_ms - stored_ms, record.physical_offset, record.size, 0)
        return TimerEntry(record.out_ms, record.out_ms + self._wheel.precision_ms, UNREAD, unit, record)

    def _entry(self, unit: TimerUnit, now_ms: int) -> TimerEntry:
        record = self._record_at(unit.physical_offset, unit.size)
        due_ms = unit.due_ms + self._wheel.precision_ms
        state = WAITING
        if record is None:
            state = LOST
        elif due_ms <= now_ms:
            state = LATE
        elif unit.rolls:
            state = ROLLING
        elif record.delete_key is not None:
            state = MARKER
        return TimerEntry(unit.due_ms, due_ms, state, unit, record)

    def _cursor(self, text: str) -> tuple[int, int]:
        time_text, _, position_text = text.partition(":")
        try:
            time_ms, position = int(time_text), int(position_text)
        except ValueError:
            raise RemoteProtocolError(f"{text!r} is no cursor of a list of timer messages") from None
        return time_ms // self._wheel.precision_ms * self._wheel.precision_ms, position
