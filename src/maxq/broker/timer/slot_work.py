"""SlotWork: the messages of one slot on their way out, and which of them were recalled.

Markers come first, so that no message is delivered that one of them recalls. A marker names a message by its unique
key, or by `topic+unique key`, as older brokers write it; both are known here, whichever this broker writes. The topic
is the one that the marker was sent to: a client can recall only messages of topics to which it may send.

Source:
    store/timer/TimerMessageStore.java dequeue, TimerDequeueGetMessageService.
"""

from maxq.store.timer.timer_log import TimerUnit
from maxq.store.timer.timer_record import TimerRecord, delete_key, message_key, recalled_keys
from maxq.store.timer.timer_wheel import Slot


class SlotWork:
    """The work on one slot.

    Attributes:
        began_at: physical end of the CommitLog when it was opened; its copies lie behind.
        marker_offsets: physical offsets of its markers.
    """

    def __init__(self, slot: Slot, units: list[TimerUnit], began_at: int) -> None:
        self.slot = slot
        self.began_at = began_at
        markers = [unit for unit in units if unit.recalls and not unit.rolls]
        self._units = markers + [unit for unit in units if not unit.recalls or unit.rolls]
        self._next = 0
        self._markers: list[tuple[str, str]] = []  # topic, key as it is written
        self.marker_offsets: list[int] = []
        self._wanted: set[str] = set()
        self._met: set[str] = set()

    def next_unit(self) -> TimerUnit | None:
        """Return the next unit to handle; None when all are done."""
        return self._units[self._next] if self._next < len(self._units) else None

    def done(self) -> None:
        """Note that the unit which `next_unit` returned was handled."""
        self._next += 1

    def add_marker(self, record: TimerRecord) -> None:
        """Note that `record` recalls a message of this slot."""
        self._markers.append((record.real_topic, record.delete_key or ""))
        self.marker_offsets.append(record.physical_offset)
        self._wanted.update(recalled_keys(record))

    def is_recalled(self, record: TimerRecord) -> bool:
        """Return whether the message was recalled and must not be delivered."""
        key = message_key(record)
        if key not in self._wanted:
            return False
        self._met.add(key)
        return True

    def idle_markers(self) -> list[str]:
        """Return the topics of markers that recalled nothing, one entry for each marker."""
        return [
            topic for topic, key in self._markers if key not in self._met and delete_key(topic, key) not in self._met
        ]
