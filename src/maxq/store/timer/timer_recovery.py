"""TimerRecovery: where the timer was, when its broker ended or died (TimerMessageStore.recover).

The checkpoint names a position of the timer log up to which log and wheel were durable together. Units behind it are
put into the wheel again, which harms none that is there already. One of them that is due before the checkpoint's read
time was put there after the clock had been set back: the read time goes back to it again. Where the wheel points
behind the end of the timer log (a Java broker's may, after a power loss), its slots are taken from the log instead.
Without a wheel all of it is built from the log. The wheel has the precision that the checkpoint says, whatever the
settings say now.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import field
from pathlib import PurePath
from typing import Final

from maxq.lazy_dataclass import dataclass
from maxq.runtime.interfaces import Disk
from maxq.store.timer.roll_window import PRECISIONS
from maxq.store.timer.timer_checkpoint_file import TimerCheckpointFile
from maxq.store.timer.timer_log import UNIT_SIZE, TimerLog, TimerUnit
from maxq.store.timer.timer_wheel import EMPTY, Slot, TimerWheel

log = logging.getLogger(__name__)

#: A Java broker may have put as many units into the log as were not in its checkpoint's queue offset yet.
_STEP_BACK: Final = 64 * UNIT_SIZE


@dataclass(slots=True)
class Recovered:
    """The outcome of a recovery.

    Attributes:
        read_time_ms: everything due before was delivered.
        delivered: pairs: slots before this time whose last unit lies before this position of the timer log were
            delivered.
        earliest_ms: the first slot that holds something; None if none does.
        latest_ms: the last one.
        pending: messages in the wheel.
        enqueued: physical offsets of messages that are in the wheel, though the checkpoint's queue offset may say that
            they were not read yet. One that was only moved since does not count there (moved_messages.py).
    """

    wheel: TimerWheel
    read_time_ms: int
    delivered: tuple[tuple[int, int], ...]
    earliest_ms: int | None = None
    latest_ms: int = 0
    pending: int = 0
    enqueued: set[int] = field(default_factory=set)

    def is_over(self, time_ms: int, position: int) -> bool:
        """Returns whether a slot of this time, whose last unit lies at this position, was delivered."""
        return position < 0 or any(time_ms < before_ms and position < end for before_ms, end in self.delivered)


class TimerRecovery:
    """One recovery of the files of a timer after a start: the wheel, the timer log and the checkpoint. Call `run`
    once."""

    def __init__(
        self,
        disk: Disk,
        wheel_path: PurePath,
        timer_log: TimerLog,
        file: TimerCheckpointFile,
        precision_ms: int,
        log_end: int,
        is_whole: Callable[[TimerUnit], bool] = lambda unit: True,
    ) -> None:
        """`precision_ms` is that of a new wheel. `log_end` is the physical end of the CommitLog. `is_whole(unit)` tells
        whether the unit's record is in the log; if not, a loss of power has torn the unit, and its message is read from
        the topic again."""
        self._disk = disk
        self._wheel_path = wheel_path
        self._log = timer_log
        self._file = file
        self._precision_ms = precision_ms
        self._log_end = log_end
        self._is_whole = is_whole

    def run(self) -> Recovered:
        """Load all three files and repair them. Blocks."""
        self._file.load()
        self._log.load()
        flushed = self._adopt_snapshot()
        is_own = self._file.dedupe_position is not None
        if not is_own:
            flushed -= _STEP_BACK
        start = self._log.unit_position(flushed) if flushed <= self._log.max_offset else self._log.min_offset
        units = list(filter(self._is_whole, self._log.recover(start, self._log_end)))
        wheel = TimerWheel(self._disk, self._wheel_path, self._file.precision_ms or self._precision_of_wheel())
        read_time_ms = self._file.checkpoint.last_read_time_ms
        newest = (read_time_ms, flushed if is_own else self._log.max_offset)
        found = Recovered(wheel, read_time_ms, (*self._file.delivered, newest))
        later = [unit.due_ms for unit in units if not found.is_over(unit.due_ms, unit.position)]
        found.read_time_ms = min([read_time_ms, *later])
        found.enqueued = {unit.physical_offset for unit in units if not unit.is_moved}
        broken_from = self._count(found)
        if wheel.is_new:
            units = list(self._log.units(self._log.min_offset))
        elif broken_from < start:
            units = list(self._log.units(self._log.unit_position(broken_from)))
        self._apply(found, units)
        return found

    def _precision_of_wheel(self) -> int:
        """Return the precision of a wheel whose checkpoint does not say it, because a Java broker wrote that: what a
        unit of the log and the number of its slot say."""
        if not self._disk.exists(self._wheel_path) or not self._disk.stat(self._wheel_path).size:
            return self._precision_ms
        # opened with precision 1, so that its times are the numbers of the slots
        wheel = TimerWheel(self._disk, self._wheel_path, 1, read_only=True)
        try:
            for _, slot in wheel.taken(1):
                unit = self._log.read(slot.last_position)
                if unit is not None and unit.due_ms % slot.time_ms == 0 and unit.due_ms // slot.time_ms in PRECISIONS:
                    return unit.due_ms // slot.time_ms
        finally:
            wheel.release()
        return self._precision_ms

    def _adopt_snapshot(self) -> int:
        """Adopt the wheel that a Java broker with timerWheelSnapshotFlush keeps in `timerwheel.<position of the timer
        log>`; the newest one takes the wheel's place. Returns the position up to which the wheel holds the timer
        log."""
        flushed = self._file.checkpoint.last_timer_log_flush_pos
        prefix = f"{self._wheel_path.name}."
        numbers = [
            int(entry.name[len(prefix) :])
            for entry in self._disk.list(self._wheel_path.parent)
            if entry.name.startswith(prefix) and entry.name[len(prefix) :].isdigit()
        ]
        if not numbers:
            return flushed
        newest = max(numbers)
        if newest >= flushed:
            log.info("the timer wheel is restored from %s%d", prefix, newest)
            self._disk.rename(self._wheel_path.with_name(f"{prefix}{newest}"), self._wheel_path)
            numbers.remove(newest)
            flushed = newest
        for number in numbers:
            self._disk.delete(self._wheel_path.with_name(f"{prefix}{number}"))
        return flushed

    def _count(self, found: Recovered) -> int:
        """Count the waiting messages. Slots that point behind the end of the timer log are cleared.

        Returns:
            The smallest first position of such a slot, or the end of the timer log.
        """
        end = broken_from = self._log.max_offset
        broken: list[int] = []
        for index, slot in found.wheel.taken(found.read_time_ms):
            if found.is_over(slot.time_ms, slot.last_position):
                continue
            if slot.last_position >= end or slot.last_position < self._log.min_offset:
                broken.append(index)
                if slot.first_position >= 0:
                    broken_from = min(broken_from, slot.first_position)
            else:
                self._add(found, slot.time_ms, slot.num)
        for index in broken:
            found.wheel.clear_index(index)
        if broken:
            log.warning(
                "%d slots of the timer wheel point outside of the timer log, [%d, %d): they are read from the log",
                len(broken),
                self._log.min_offset,
                end,
            )
        return broken_from

    def _apply(self, found: Recovered, units: Iterable[TimerUnit]) -> None:
        for unit in units:
            due_ms = unit.due_ms // found.wheel.precision_ms * found.wheel.precision_ms
            if found.is_over(due_ms, unit.position):
                continue
            slot = found.wheel.get(due_ms)
            if slot.last_position >= unit.position:
                continue
            count = -1 if unit.recalls else 1
            first = unit.position if slot is EMPTY else slot.first_position
            found.wheel.put(Slot(due_ms, first, unit.position, slot.num + count))
            self._add(found, due_ms, count)

    @staticmethod
    def _add(found: Recovered, time_ms: int, count: int) -> None:
        found.pending += count
        found.latest_ms = max(found.latest_ms, time_ms)
        if found.earliest_ms is None or time_ms < found.earliest_ms:
            found.earliest_ms = time_ms
