"""TimerMessageStore: the state of the timer of one store, and its rules (TimerMessageStore.java).

A message with a delivery time lies in the topic `rmq_sys_wheel_timer`, queue 0. **Enqueue** reads that queue and puts
each message into the slot of the wheel when it is due, with one unit of the timer log. **Dequeue** goes through the
slots as time goes on. Both are driven from outside (broker/timer); nothing here waits or reads a clock by itself, but
for `now_ms`.

Times are ms since 1970; that of a slot is a multiple of the precision, and its messages are delivered when the slot is
over. Rules:

* Everything due before `read_time_ms` was delivered; slots that were delivered are cleared. When something comes that
  is due later than now and before the read time (the clock was set back), the read time goes back to it.
* Slots that another broker delivered (Java's wheel, the master's of a slave) are not cleared, but known to be over
  (DeliveredSlots).
* What is due beyond the roll window is put into a slot within it (roll_window.py), from which its record is put into
  the topic again.
* A checkpoint (`freeze`, `write`, `thaw`) is one moment's state: read time, queue offset, timer log, wheel. It is
  written when the CommitLog is durable up to that moment, so nothing counts as delivered whose copy a power loss takes.
  Copies of what was delivered after it lie behind `dedupe_position` in the CommitLog, where the next start finds them
  (delivered_copies.py).
"""

import logging
from pathlib import PurePath
from typing import Final

from maxq.errors import StoreRefusedError
from maxq.lazy_dataclass import dataclass
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.body.timer_checkpoint import MovedMessage, TimerCheckpoint
from maxq.protocol.message.java_hash import java_hash
from maxq.runtime.interfaces import Clock, Disk
from maxq.store.message_store import MessageStore
from maxq.store.timer.delivered_copies import first_position
from maxq.store.timer.moved_messages import MovedMessages
from maxq.store.timer.roll_window import precision_of, roll_window_ms, slot_within
from maxq.store.timer.timer_checkpoint_file import FILE_NAME as CHECKPOINT_NAME
from maxq.store.timer.timer_checkpoint_file import TimerCheckpointFile
from maxq.store.timer.timer_log import LONGEST_WAIT_MS, MAGIC_DEFAULT, MAGIC_DELETE, MAGIC_MOVED, TimerLog, TimerUnit
from maxq.store.timer.timer_metrics import FILE_NAME as METRICS_NAME
from maxq.store.timer.timer_metrics import TimerMetrics
from maxq.store.timer.timer_record import TIMER_TOPIC, TimerRecord, message_key, recalled_keys
from maxq.store.timer.timer_recovery import TimerRecovery
from maxq.store.timer.timer_topic import TimerTopic
from maxq.store.timer.timer_wheel import EMPTY, SLOTS, Slot, TimerWheel

log = logging.getLogger(__name__)

WHEEL_NAME: Final = "timerwheel"

_HOUR_MS: Final = 3_600_000


_MOST_PAIRS: Final = 15


class DeliveredSlots:
    """How far another broker has delivered the messages of this wheel.

    The wheel of a Java broker, or of a slave, keeps slots that were delivered as they were. They are recognised by
    pairs of a time and a position in the timer log: in slots before the one, units before the other are over. There
    may be several pairs: the next master's clock can be behind the last one's, and what it still has to deliver is not
    over.
    """

    def __init__(self) -> None:
        self._pairs: list[tuple[int, int]] = []  # (time, position) with falling times and rising positions

    def add(self, before_ms: int, position: int) -> None:
        """Note that the units before `position` (bytes in the timer log) in slots before `before_ms` are finished."""
        later = [pair for pair in self._pairs if pair[0] > before_ms][-_MOST_PAIRS:]
        self._pairs = [*later, (before_ms, position)]

    def all(self) -> tuple[tuple[int, int], ...]:
        """Return the pairs (time in ms, position in the timer log), latest time first. `add` with each of them in this
        order makes an equal object."""
        return tuple(self._pairs)

    def position_of(self, slot_ms: int) -> int:
        """Returns the position in the timer log before which the units of this slot are finished."""
        return max((position for before_ms, position in self._pairs if slot_ms < before_ms), default=0)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A snapshot of the state, to be written to the disk.

    Attributes:
        log_end: the CommitLog must be durable up to here first.
        unit_end: the timer log's end.
    """

    log_end: int
    unit_end: int
    pages: dict[int, bytearray]
    values: TimerCheckpoint
    dedupe_position: int
    delivered: tuple[tuple[int, int], ...]


class TimerMessageStore:
    """The timer of one store. Call `load` first.

    Attributes:
        read_time_ms: everything due before was delivered.
        topic: reader of the messages to put into the wheel.
        pending: messages in the wheel; recalled ones do not count.
        master_queue_offset: how far the master of this slave has filled its wheel.
        dedupe_position: physical offset behind which the copies of deliveries since the last checkpoint lie; None:
            nobody knows.
        told_position: the same, as the broker said whose checkpoint was adopted last; −1: it did not.
        saved: the newest checkpoint on the disk.
        moved: messages in other slots than their own.
        is_refused: the disk refused the last unit.
    """

    def __init__(self, store: MessageStore, *, disk: Disk, clock: Clock) -> None:
        self._store = store
        self._disk = disk
        self._clock = clock
        root = PurePath(store.config.store_path_root_dir)
        self.precision_ms = precision_of(store.config)
        self.log = TimerLog(disk, root, store.config.mapped_file_size_timer_log)
        self.metrics = TimerMetrics(disk, root / "config" / METRICS_NAME)
        self._file = TimerCheckpointFile(disk, root / "config" / CHECKPOINT_NAME)
        self._wheel_path = root / WHEEL_NAME
        self.wheel: TimerWheel
        self.read_time_ms = 0
        self.topic = TimerTopic(store)
        self.pending = 0
        self.master_queue_offset = 0
        self.dedupe_position: int | None = None
        self.told_position = -1
        self.saved = TimerCheckpoint()
        self.moved = MovedMessages()
        self.is_refused = False
        self._version = DataVersion()
        self._passed = (0, 0)  # queue offset and time below which another broker has delivered
        self._delivered_slots = DeliveredSlots()
        self._stuck: set[int] = set()  # physical offsets of stuck messages that were logged
        self._open_ms: int | None = None
        # window of the wheel that this one follows, as its broker reported it; 0: this broker's own
        self._told_window_ms = 0
        self._told_precision_ms = 0  # precision of that wheel
        self._is_window_missed = False  # it was logged that the other broker does not report its window
        self._latest_ms = 0  # the read time that had been reached before it was set back

    # --- life ---

    def load(self) -> None:
        """Restore the timer's position from the files that exist. Blocks; the store must be loaded.

        Raises:
            StoreRefusedError: a file has a wrong size, or no file of the timer log may be missing but one is, or the
                precision has changed while messages wait.
            OSError: the disk refuses.
        """
        self.metrics.load()
        recovery = TimerRecovery(
            self._disk,
            self._wheel_path,
            self.log,
            self._file,
            self.precision_ms,
            self._store.max_physical_offset,
            self._has_record,
        )
        found = recovery.run()
        self.wheel = found.wheel
        self.pending = found.pending
        self.read_time_ms = self.floor(found.read_time_ms)
        self.topic.in_wheel = found.enqueued
        self.saved = self._file.checkpoint
        self._version = self.saved.data_version.copy()
        self.dedupe_position = self._file.dedupe_position
        if self.dedupe_position is None:  # from the checkpoint's time: `_skip_to` moves the read time on
            self.dedupe_position = first_position(self._store, found.read_time_ms)
        self._latest_ms = max(self.saved.latest_ms, self.floor(found.read_time_ms))
        # before its first checkpoint this timer has passed over nothing, whoever wrote the units
        self.moved.take(() if self._file.is_new else self.saved.moved, self.log.max_offset)
        self.master_queue_offset = self.saved.master_timer_queue_offset
        self._told_window_ms = self.saved.window_ms
        for pair in found.delivered:
            self._delivered_slots.add(*pair)
        self._go_on_reading(min(self.saved.last_timer_queue_offset, self.master_queue_offset))
        if self.wheel.precision_ms != self.precision_ms:
            self._change_precision(is_empty=found.earliest_ms is None)
        elif self._file.is_new and self._file.precision_ms is None:
            self._write_precision()
        self._skip_to(found.earliest_ms)
        log.info(
            "timer: %d messages wait; everything before %d is delivered; the topic is read up to %d of %d",
            self.pending, self.read_time_ms, self.topic.queue_offset, self.topic.max_queue_offset,
        )  # fmt: skip

    def _change_precision(self, *, is_empty: bool) -> None:
        """Make a new wheel with the precision of the settings, which is possible only while no message waits, because
        messages and the markers that recall them name slots of the old precision.

        Raises:
            StoreRefusedError: a message waits, in the wheel or in the topic.
        """
        before, waiting = self.wheel.precision_ms, self.topic.taken_queue_offset - self.topic.queue_offset
        if not is_empty or waiting > 0:
            self.release()
            raise StoreRefusedError(
                f"timerPrecisionMs is {self.precision_ms}, but messages with a delivery time wait that were sent while "
                f"it was {before}: they would come early or late, and could not be recalled. Set timerPrecisionMs to "
                f"{before}, and change it when nothing waits."
            )
        log.info("timerPrecisionMs was %d and is %d: a new wheel is begun", before, self.precision_ms)
        self.wheel.release()
        self._disk.delete(self._wheel_path)
        self.wheel = TimerWheel(self._disk, self._wheel_path, self.precision_ms)
        self.saved.last_timer_log_flush_pos = self.log.max_offset
        self._write_precision()

    def _write_precision(self) -> None:
        """Write down the wheel's precision before anything is put into it: units of the log do not say it."""
        assert self.dedupe_position is not None, "it is known once the timer's files are"
        self._file.save(self.saved, self.dedupe_position, self.precision_ms)

    def _go_on_reading(self, queue_offset: int) -> None:
        """Continue reading the topic at the checkpoint's offset. Everything that the checkpoint depends on was
        committed, but a DLedger member does not know at its start that its newest entries are, and hides them: none
        of them is read again."""
        if self._store.ledger is not None and self._file.dedupe_position is not None:
            self.topic.queue_offset = queue_offset
        else:  # the queue offset of a Java broker may count messages that its log has lost
            self.topic.read_from(queue_offset)
        self._pass_over_own()

    def _has_record(self, unit: TimerUnit) -> bool:
        """Return whether the log has, had or will have the record of a unit: retention has deleted older ones, and the
        commit of a DLedger group brings newer ones."""
        if unit.physical_offset < self._store.min_physical_offset:
            return True
        if self._store.ledger is not None and unit.physical_offset >= self._store.max_physical_offset:
            return True
        record = self._store.select_one_message(unit.physical_offset)
        return record is not None and len(record) == unit.size

    def _skip_to(self, earliest_ms: int | None) -> None:
        """Skip the empty slots up to the first waiting message, however long the broker was down. Units of the topic
        that were not read yet may belong to the skipped slots, unless they are older than the wheel."""
        now = self.write_time_ms
        first = now if earliest_ms is None else min(now, earliest_ms)
        if self.topic.queue_offset < self.topic.max_queue_offset:
            first = min(first, now - SLOTS * self.precision_ms)
        self.read_time_ms = max(self.read_time_ms, first)

    def release(self) -> None:
        """Unmap wheel and log without writing what changed."""
        self.wheel.release()
        self.log.release()

    # --- time ---

    def floor(self, time_ms: int) -> int:
        return time_ms // self.precision_ms * self.precision_ms

    def slot_of(self, out_ms: int) -> int:
        """Return the slot, in ms, of what says that it is due at `out_ms`. A broker with another timerPrecisionMs wrote
        a time that is not a multiple of this one's; a time before 1970 is in the wheel's first slot."""
        return max(self.floor(out_ms), self.precision_ms)

    @property
    def write_time_ms(self) -> int:
        """The slot of the present time, in ms; all slots before it are finished."""
        return self.floor(self._clock.wall_ms())

    # --- enqueue ---

    def is_past(self, out_ms: int) -> bool:
        """Return whether this time has passed and its slot holds messages due one lap later. The message is then
        delivered at once.

        All else that comes late goes into its slot, and the read time goes back to it: the marker that recalls it may
        be the next message of the topic."""
        due = self.slot_of(out_ms)
        return due < min(self.write_time_ms, self.read_time_ms) and self._live(due) is None

    def may_have_delivered(self, deliver_ms: int) -> bool:
        """Return whether messages with this delivery time, which is still to come, may have been delivered: the clock
        was set back since, before this start or after it."""
        due = self.floor(deliver_ms - 1)
        return due < max(self.read_time_ms, self._latest_ms) or due == self._open_ms

    def note_delivered(self, out_ms: int) -> None:
        """Note that a message that was due at this time has been delivered, though the last checkpoint says nothing of
        it."""
        self._latest_ms = max(self._latest_ms, self.slot_of(out_ms) + self.precision_ms)

    def was_passed(self, record: TimerRecord) -> bool:
        """Return whether the broker that this one took over from had read this due message before it wrote its last
        checkpoint. The message was then delivered or moved."""
        return record.message.queue_offset < self._passed[0] and record.out_ms < self._passed[1]

    def put(self, record: TimerRecord, *, beside: bool = False) -> bool:
        """Put a message into the wheel, into the same slot as on every broker of the group; a marker that recalls a
        moved message into the slot of that.

        Args:
            beside: where its slot holds messages of a later lap, put into the wheel while the clock was ahead, it goes
                into the next free slot, which only this broker knows.

        Returns:
            False: its slot is taken by the other lap, which the wheel has not passed yet, or the disk refuses; try
            again later.
        """
        if self._recalled_slot(record) is not None:
            return self.move(record, 0)
        due, magic = self._slot_for(self.slot_of(record.out_ms), self._roll_base(record))
        if due == self._open_ms:
            due += self.precision_ms
        if beside and self._live(due) is None and self.wheel.at_index(self.wheel.slot_index(due)).time_ms > due:
            return self._put_moved(record, due, magic)
        return self._put_unit(record, due, magic)

    def move(self, record: TimerRecord, not_before_ms: int) -> bool:
        """Put a message into a slot of its own, of the present time or later, that only this broker knows; a message
        that is due already does not roll. Returns False as `put` does."""
        due, magic = self.floor(not_before_ms), MAGIC_DEFAULT
        own = self.slot_of(record.out_ms)
        if due < own:
            due, magic = self._slot_for(own, self.write_time_ms)
        recalled = self._recalled_slot(record)
        if recalled is not None:
            due, magic = recalled, MAGIC_DEFAULT
        return self._put_moved(record, due, magic)

    def _put_moved(self, record: TimerRecord, due: int, magic: int) -> bool:
        """Put a message into this slot, or the next one that is free, and note that it is there."""
        while due == self._open_ms or self._live(due) is None:
            due += self.precision_ms
        if not self.moved.has_room(record.physical_offset):
            log.error("too many timer messages wait for another try: no slave learns of that at physical offset %d",
                      record.physical_offset)  # fmt: skip
            return self._put_unit(record, due, magic)
        if not self._put_unit(record, due, magic | MAGIC_MOVED):
            return False
        self.moved.add(MovedMessage(record.physical_offset, record.size, due))
        if magic == MAGIC_DEFAULT:
            self._note_moved(record)
        return True

    def _note_moved(self, record: TimerRecord) -> None:
        """Note how a marker would name a message that was moved and does not go round."""
        if record.delete_key is None:
            self.moved.note_key(self.slot_of(record.out_ms), message_key(record), record.physical_offset)

    def _recalled_slot(self, record: TimerRecord) -> int | None:
        """Return the slot of the moved message that a marker recalls; None if it recalls none, or is not a marker. A
        message in the open slot is being delivered, or moved back to its own slot."""
        if record.delete_key is None:
            return None
        slot_ms = self.moved.recalled_slot(self.slot_of(record.out_ms), recalled_keys(record))
        return None if slot_ms == self._open_ms else slot_ms

    def _put_unit(self, record: TimerRecord, due: int, magic: int) -> bool:
        now = self.write_time_ms
        if record.delete_key is not None:
            magic |= MAGIC_DELETE
        slot = self._live(due)
        if slot is None:
            self._say_stuck(record)
            return False
        wait_ms = due - now if abs(due - now) <= LONGEST_WAIT_MS else 0  # clocks may differ by years
        unit = TimerUnit(
            0, slot.last_position, magic, due - wait_ms, wait_ms, record.physical_offset, record.size,
            java_hash(record.real_topic),
        )  # fmt: skip
        try:
            position = self.log.append(unit)
        except OSError as error:
            if not self.is_refused:
                log.error(
                    "the timer log cannot be written, nothing is delivered: %s; free space or repair the disk", error
                )
            self.is_refused = True
            return False
        self.is_refused = False
        count = -1 if record.delete_key is not None else 1
        first = position if slot is EMPTY else slot.first_position
        self.wheel.put(Slot(due, first, position, slot.num + count))
        self.pending += count
        self._latest_ms = max(self._latest_ms, self.read_time_ms)
        self.read_time_ms = min(self.read_time_ms, due)
        self._stuck.discard(record.physical_offset)
        return True

    def _roll_base(self, record: TimerRecord) -> int:
        """Return the time from which the slot of a rolling message is computed. It is the same on all brokers of the
        group, no matter when each reads the message: if its slot differed on a slave, a broker that takes over in
        between would lose the message or put it into the topic twice. A message that was stored while the clock was
        ahead must not be beyond the wheel."""
        now, stored = self.write_time_ms, self.floor(record.message.store_timestamp)
        return stored if stored <= now + _HOUR_MS else now

    def _slot_for(self, due_ms: int, now_ms: int) -> tuple[int, int]:
        slot_ms, magic = slot_within(self._window_ms, self.precision_ms, due_ms=due_ms, now_ms=now_ms)
        return self.floor(slot_ms), magic

    @property
    def _window_ms(self) -> int:
        """Return the roll window: that of the broker whose wheel this one follows, or its own."""
        return self._told_window_ms or roll_window_ms(self._store.config)

    def is_done_elsewhere(self, record: TimerRecord) -> bool:
        """Return whether the broker whose wheel this one follows, and has read this message, has delivered it or put it
        round, because its slot has passed there."""
        if record.out_ms < self.read_time_ms:
            return True
        if not self._told_window_ms:  # a wheel that follows another may have the message in another slot
            return False
        return self._slot_for(self.slot_of(record.out_ms), self._roll_base(record))[0] < self.read_time_ms

    def _live(self, due: int) -> Slot | None:
        """Return the slot of `due`, EMPTY if it holds nothing; None if messages of another lap still wait there."""
        slot = self.wheel.at_index(self.wheel.slot_index(due))
        if slot.time_ms <= 0 or self._is_over(slot):
            return EMPTY
        if slot.time_ms != due:
            return None if slot.time_ms >= self.read_time_ms else EMPTY
        return slot

    def _is_over(self, slot: Slot) -> bool:
        return slot.last_position < 0 or slot.last_position < self._delivered_slots.position_of(slot.time_ms)

    def _say_stuck(self, record: TimerRecord) -> None:
        if record.physical_offset not in self._stuck:
            self._stuck.add(record.physical_offset)
            log.warning(
                "the timer message at physical offset %d waits: its slot still has messages due %d slots before, and "
                "the timer is at %d", record.physical_offset, SLOTS, self.read_time_ms,
            )  # fmt: skip

    def slot_count(self, due_ms: int) -> int:
        """Returns how many messages wait in the slot of `due_ms`."""
        return self.live_slot(due_ms).num

    def live_slot(self, time_ms: int) -> Slot:
        """Return the slot of a time; EMPTY if no message waits in it."""
        slot = self.wheel.get(self.floor(time_ms))
        return EMPTY if slot is EMPTY or self._is_over(slot) else slot

    def needs_record(self, physical_offset: int, size: int, slot_ms: int) -> bool:
        """Return whether retention must keep the record of a message that waits in this slot. One that has gone from
        slot to slot until fileReservedTime after it was due may never be storable, and must not keep the log. A clock
        that jumps ahead is not believed (trusted_time.py)."""
        if physical_offset < self._store.min_physical_offset:
            return False
        out_ms = self.topic.out_ms_at(physical_offset, size)
        tried_until_ms = min(slot_ms, self._store.time.now_ms())
        return out_ms is None or tried_until_ms - out_ms <= self._store.config.file_reserved_time * _HOUR_MS

    def waits(self, unit: TimerUnit) -> bool:
        """Return whether the message of this unit is still to be delivered, or put round, from its slot."""
        return self.live_slot(unit.due_ms).last_position >= unit.position and self.moved.counts(unit)

    # --- dequeue ---

    def next_slot(self, most: int) -> Slot | None:
        """Move the read time over at most `most` empty slots and return the first slot that has passed and holds
        messages; None if the read time has reached the present, or after `most` slots."""
        now, spent = self.write_time_ms, 0
        if self._is_laps_behind(now) and self.wheel.is_searched(self.read_time_ms):
            self._skip_laps(now, most)
            return None
        while spent < most:
            if self.read_time_ms >= now:
                return None
            slot = self.wheel.get(self.read_time_ms)
            if slot is not EMPTY and not self._is_over(slot):
                return slot
            following, taken = self.wheel.next_time(self.read_time_ms)
            self.read_time_ms = min(following, now)
            spent += taken
        if self._is_laps_behind(now):
            self._skip_laps(now, most)
        return None

    def _is_laps_behind(self, now: int) -> bool:
        """Return whether the wheel's read time is at least a lap behind `now`, so that the next message may be far
        ahead."""
        return now - self.read_time_ms > SLOTS * self.precision_ms

    def _skip_laps(self, now: int, most: int) -> None:
        """Move the read time to the next slot with messages, once repeated calls have examined `most` slots each
        without finding one."""
        earliest = self.wheel.earliest(self.read_time_ms, most)
        if earliest is not None:
            self.read_time_ms = min(earliest, now)

    def open(self, slot: Slot) -> list[TimerUnit]:
        """Open a slot and return its units, oldest first. No unit is added to it until `finish` or `close`."""
        self._open_ms = slot.time_ms
        return self.units_of(slot)

    def close(self) -> None:
        """Close the open slot, which was not delivered to its end."""
        self._open_ms = None

    def units_of(self, slot: Slot) -> list[TimerUnit]:
        """The units of a slot, oldest first."""
        units: list[TimerUnit] = []
        floor = self._delivered_slots.position_of(slot.time_ms)
        position = slot.last_position
        while position >= floor:
            unit = self.log.read(position)
            if unit is None or self.floor(unit.due_ms) != slot.time_ms or unit.previous >= position:
                return self._search_units(slot, position)
            units.append(unit)
            position = unit.previous
        units.reverse()
        return units

    def _search_units(self, slot: Slot, position: int) -> list[TimerUnit]:
        """Find the units of a slot whose chain is broken by reading every unit that may belong to it."""
        log.error("the timer log is damaged at position %d: the units of slot %d are searched", position, slot.time_ms)
        start = self.log.unit_position(max(slot.first_position, 0))
        return [
            unit
            for unit in self.log.units(start)
            if unit.position <= slot.last_position and self.floor(unit.due_ms) == slot.time_ms
        ]

    def finish(self, slot: Slot) -> None:
        """Close the open slot after all its messages were delivered or put into another slot."""
        self._open_ms = None
        self.pending -= slot.num
        self.wheel.clear(slot.time_ms)
        if slot.time_ms == self.read_time_ms:
            self.read_time_ms += self.precision_ms

    # --- a slave, and what it becomes ---

    def adopt(self, checkpoint: TimerCheckpoint) -> None:
        """Adopt the progress of another broker of the group: its master, or the slave that acted for it."""
        self._latest_ms = max(self._latest_ms, self.read_time_ms, checkpoint.latest_ms)
        self.read_time_ms = self.floor(checkpoint.last_read_time_ms)
        self.master_queue_offset = checkpoint.master_timer_queue_offset
        self._version = checkpoint.data_version.copy()
        self._passed = (self.master_queue_offset, self.read_time_ms)
        self._delivered_slots.add(self.read_time_ms, self.log.max_offset)
        self.dedupe_position, self.told_position = None, checkpoint.dedupe_position
        self.moved.take(checkpoint.moved, self.log.max_offset)
        self._told_window_ms = checkpoint.window_ms
        if not checkpoint.window_ms and not self._is_window_missed:
            self._is_window_missed = True
            log.warning(
                "the broker that delivers timer messages, a Java broker or an older one, does not say how far ahead it "
                "puts them into its wheel. timerRollWindowSlot and fileReservedTime must be the same here and there: "
                "else messages due later than that may be lost, or come twice, when this one takes over"
            )
        if checkpoint.precision_ms not in (0, self._told_precision_ms, self.precision_ms):
            log.error(
                "timerPrecisionMs is %d here, and %d at the broker that delivers: when this one takes over, messages "
                "that were sent with a delay, and not with a time, may come early by the difference, and recalls of "
                "them may miss; set both alike",
                self.precision_ms,
                checkpoint.precision_ms,
            )
        self._told_precision_ms = checkpoint.precision_ms

    def take_over(self) -> None:
        """Begin to dequeue on this broker: read the messages that the previous broker had not read, except those in
        this wheel."""
        self._told_window_ms = 0
        before = self.topic.queue_offset
        self.topic.read_from(min(before, self.master_queue_offset))
        is_told = self._passed[1] > 0
        if self.topic.queue_offset < before or (is_told and self.topic.in_wheel):
            self._pass_over_own()
        self.moved.begin()

    def _pass_over_own(self) -> None:
        """Note the messages of this wheel that will be read from the topic again, so that they are not put into it
        twice. Those in slots that another broker has passed are in it no longer: that one may not have had them."""
        queue = self._store.queue(TIMER_TOPIC, 0)
        unit = None if queue is None else queue.unit(self.topic.queue_offset)
        units = self.log.units_of_records(self._store.max_physical_offset if unit is None else unit[0])
        own = [one for one in units if not one.is_moved]
        passed = {one.position for one in own if self._is_passed(one)}
        self.topic.in_wheel -= {one.physical_offset for one in own if one.position in passed}
        self.topic.in_wheel |= {
            one.physical_offset for one in own
            if one.position not in passed and self.live_slot(one.due_ms).last_position >= one.position
            and self._has_record(one)
        }  # fmt: skip

    def _is_passed(self, unit: TimerUnit) -> bool:
        """Return whether the broker whose progress was adopted, since the start, has passed the slot of this unit."""
        slot_ms = self.floor(unit.due_ms)
        return slot_ms < self._passed[1] and unit.position < self._delivered_slots.position_of(slot_ms)

    def moved_records(self) -> list[tuple[TimerRecord, bool]]:
        """Return the records of messages that this broker or its predecessor had moved, and whether each is in this
        wheel."""
        found = []
        for physical_offset, size, slot_ms in self.moved.all() or ():
            units = [unit for unit in self.units_of(self.live_slot(slot_ms)) if unit.physical_offset == physical_offset]
            record = self.topic.record_at(physical_offset, size)
            if record is None:
                self.moved.forget(physical_offset)
                continue
            if units and not units[-1].rolls:
                self._note_moved(record)
            found.append((record, bool(units)))
        return found

    # --- checkpoint ---

    def freeze(self, dedupe_position: int, *, dequeues: bool) -> Checkpoint:
        """Take a snapshot of the timer's state. Call `write` when the CommitLog is durable up to its `log_end`, and
        then `thaw`."""
        if dequeues:
            self.master_queue_offset = self.topic.queue_offset
        before = self.saved
        if dequeues and (before.last_read_time_ms, before.last_timer_queue_offset) != (
            self.read_time_ms,
            self.topic.queue_offset,
        ):
            self._version.next_version(self._clock.wall_ms())
        values = TimerCheckpoint(
            self.read_time_ms,
            self.log.max_offset,
            min(self.topic.queue_offset, self.master_queue_offset),
            self.master_queue_offset,
            self._version.copy(),
            self.moved.all(),
            self._store.max_physical_offset,
            dedupe_position,
            self._window_ms,
            self.precision_ms,
            max(self._latest_ms, self.read_time_ms),
        )
        return Checkpoint(
            self._store.max_physical_offset, self.log.max_offset, self.wheel.freeze(), values, dedupe_position,
            self._delivered_slots.all(),
        )  # fmt: skip

    def write(self, checkpoint: Checkpoint) -> None:
        """Make the snapshot durable: timer log, the names of moved messages, wheel, checkpoint, in this order. Blocks;
        runs in another thread. Raises OSError if the disk refuses."""
        self.log.flush(checkpoint.unit_end)
        self._file.name_moved(checkpoint.values.moved)
        self.wheel.write(checkpoint.pages)
        self._file.save(checkpoint.values, checkpoint.dedupe_position, self.precision_ms, checkpoint.delivered)

    def thaw(self, checkpoint: Checkpoint, *, written: bool) -> None:
        """End a checkpoint after `write` has returned or failed."""
        self.wheel.thaw(written=written)
        if written:
            self.saved = checkpoint.values
            self.dedupe_position = checkpoint.dedupe_position
