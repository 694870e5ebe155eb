"""Which slot of the wheel a message goes into: its own, or one within the roll window, from which it goes round again.

Source:
    store/timer/TimerMessageStore.java (constructor, doEnqueue).
"""

from typing import Final

from maxq.config.message_store_config import MessageStoreConfig
from maxq.store.timer.timer_log import MAGIC_DEFAULT, MAGIC_ROLL
from maxq.store.timer.timer_wheel import SLOTS_PER_LAP

PRECISIONS: Final = (1000, 500, 200, 100)
_BLANK_SLOTS: Final = 60
_HOUR_MS: Final = 3_600_000


def precision_of(config: MessageStoreConfig) -> int:
    """Return timerPrecisionMs, rounded down to one of 100, 200, 500, 1000 ms."""
    for precision in PRECISIONS:
        if precision <= config.timer_precision_ms:
            return precision
    return PRECISIONS[-1]


def roll_window_ms(config: MessageStoreConfig) -> int:
    """Return how far ahead, in ms, a message in the wheel may be due: timerRollWindowSlot, and two thirds of
    fileReservedTime, because a record must be put into the log again before retention deletes it."""
    slots = config.timer_roll_window_slot
    if not 2 <= slots <= SLOTS_PER_LAP - _BLANK_SLOTS:
        slots = SLOTS_PER_LAP - _BLANK_SLOTS
    precision = precision_of(config)
    reserved_ms = max(config.file_reserved_time * _HOUR_MS * 2 // 3, 2 * precision)
    return min(slots * precision, reserved_ms // precision * precision)


def slot_within(window_ms: int, precision_ms: int, *, due_ms: int, now_ms: int) -> tuple[int, int]:
    """Return the slot for a message that is due at `due_ms`, and the magic of its unit: MAGIC_ROLL if the message must
    be put into the wheel again from there.

    Args:
        window_ms: as roll_window_ms gives it.
        due_ms, now_ms: slots; ms since 1970, multiples of the precision.
    """
    beyond = due_ms - now_ms - window_ms
    if beyond < 0:
        return due_ms, MAGIC_DEFAULT
    half = window_ms // precision_ms // 2 * precision_ms
    wait_ms = half if beyond < window_ms // 3 else window_ms  # leaves enough time for the next round, too
    return now_ms + wait_ms, MAGIC_DEFAULT | MAGIC_ROLL
