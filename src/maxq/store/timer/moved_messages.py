"""MovedMessages: messages that lie in another slot of the wheel than their records say.

They could not be delivered when they were due, or go on in the wheel alone because this broker may not write. The other
brokers of the group have them in the slots of their records, which are over when this broker has passed them; so
checkpoints name them, and who takes over puts them into its own wheel.

A unit that was moved counts where it is named, and nowhere else: one that was written before a crash whose checkpoint
does not know of it, or before another broker took over and delivered it, is not delivered.
"""

from typing import Final

from maxq.protocol.body.timer_checkpoint import MovedMessage
from maxq.store.timer.timer_log import TimerUnit

#: Most messages that a checkpoint names: beyond, a slave that takes over counts some as delivered.
_MOST: Final = 10_000


class MovedMessages:
    """The messages of one broker's timer that lie in other slots of the wheel than their records say."""

    def __init__(self) -> None:
        self._slots: dict[int, MovedMessage] = {}
        self._keys: dict[tuple[int, str], int] = {}  # slot and key of a moved message → its physical offset
        self._is_known = False
        self._known_from = 0  # position in the timer log from which on moves are known

    def take(self, moved: tuple[MovedMessage, ...] | None, log_end: int) -> None:
        """Adopt the moved messages that a checkpoint lists. None means that a Java broker wrote the checkpoint: which
        units it delivered is unknown.

        Args:
            log_end: of the timer log, now.
        """
        self._is_known = moved is not None
        self._slots = {message.physical_offset: message for message in moved or ()}
        if moved is None:
            self._known_from = log_end

    def take_again(self, moved: tuple[MovedMessage, ...] | None) -> None:
        """Add the moved messages of a checkpoint that were delivered since, because those deliveries may be lost."""
        self._slots = {message.physical_offset: message for message in moved or ()} | self._slots

    def begin(self) -> None:
        """Begin to record moved messages."""
        self._is_known = True

    def all(self) -> tuple[MovedMessage, ...] | None:
        """Return the moved messages for a checkpoint."""
        return tuple(self._slots.values()) if self._is_known else None

    def has_room(self, physical_offset: int) -> bool:
        """Returns whether this message can be recorded, too."""
        return len(self._slots) < _MOST or physical_offset in self._slots

    def add(self, message: MovedMessage) -> None:
        """Note that the message was put into that slot."""
        self._slots[message.physical_offset] = message

    def slot_of(self, physical_offset: int) -> int | None:
        """Return the slot, in ms, of a message that was moved; None if it was not moved, or is no longer there."""
        message = self._slots.get(physical_offset)
        return None if message is None else message.slot_ms

    def note_key(self, slot_ms: int, key: str, physical_offset: int) -> None:
        """Note how a marker names a moved message, by the slot that its record says and by its key, for the clock may
        be set back, and the message be recalled then."""
        if len(self._keys) >= 2 * _MOST:
            self._keys = {key: offset for key, offset in self._keys.items() if offset in self._slots}
        self._keys[slot_ms, key] = physical_offset

    def recalled_slot(self, slot_ms: int, keys: list[str]) -> int | None:
        """Return the slot, in ms, of the moved message that a marker names; None if it names none."""
        slots = (self.slot_of(self._keys.get((slot_ms, key), -1)) for key in keys)
        return next((slot for slot in slots if slot is not None), None)

    def forget(self, physical_offset: int) -> None:
        """Forget a message that was delivered or no longer exists."""
        self._slots.pop(physical_offset, None)

    def counts(self, unit: TimerUnit) -> bool:
        """Returns whether this unit is to be delivered."""
        if not unit.is_moved or unit.position < self._known_from:
            return True
        named = self._slots.get(unit.physical_offset)
        return named is not None and named.slot_ms == unit.due_ms
