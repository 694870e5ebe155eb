"""StoreScheduleQueue: the queue of one delay level in the store, as DelayLevelQueue sees it."""

from maxq.broker.schedule_message.delay_levels import queue_id_of
from maxq.broker.tables.topic.topic_validator import SCHEDULE_TOPIC
from maxq.protocol.message.message import decode_record
from maxq.store.dispatch.record_units import unit_code
from maxq.store.message_store import MessageStore
from maxq.store.queue.consume_queue import BLANK_UNIT_SIZE, UNIT
from maxq.store.queue.consume_queue_ext import is_ext_address
from maxq.store.queue.unit_scan_cy import DAMAGED_TAGS_CODE


class StoreScheduleQueue:
    """Reads the queue of SCHEDULE_TOPIC_XXXX in which the messages of one delay level wait."""

    def __init__(self, store: MessageStore, level: int) -> None:
        self._store = store
        self._queue_id = queue_id_of(level)

    @property
    def min_offset(self) -> int:
        """Return the smallest queue offset whose message is still in the log; 0 for a queue without messages."""
        return max(0, self._store.min_offset(SCHEDULE_TOPIC, self._queue_id))

    @property
    def max_offset(self) -> int:
        return self._store.max_offset(SCHEDULE_TOPIC, self._queue_id)

    @property
    def taken_offset(self) -> int:
        """Return `max_offset` plus the number of stored messages that cannot be read yet."""
        queue = self._store.queue(SCHEDULE_TOPIC, self._queue_id)
        return 0 if queue is None else queue.taken_offset

    def unit(self, offset: int) -> tuple[int, int, int] | None:
        """Return (physical offset, size, tags code) of a unit; None where the queue has none."""
        units = self._store.queue_units(SCHEDULE_TOPIC, self._queue_id, offset, 1)
        return self._with_due_time(units[0]) if units and units[0][2] != DAMAGED_TAGS_CODE else None

    def units(self, offset: int, most: int) -> list[tuple[int, int, int] | None]:
        """Implements `ScheduleQueue.units`."""
        queue = self._store.queue(SCHEDULE_TOPIC, self._queue_id)
        found = None if queue is None else queue.some_units_from(offset, most)
        if queue is None or found is None:
            return [None]
        units = UNIT.iter_unpack(found)
        return [None if unit[1] == BLANK_UNIT_SIZE or unit[2] == DAMAGED_TAGS_CODE
                else self._with_due_time(queue.with_tags(unit)) for unit in units]  # fmt: skip

    def _with_due_time(self, unit: tuple[int, int, int]) -> tuple[int, int, int]:
        """Return the unit with the time at which its message is due, taken from the message if the unit has the address
        of an extension unit that cannot be read, for example since enableConsumeQueueExt was switched off."""
        record = self._store.select_one_message(unit[0]) if is_ext_address(unit[2]) else None
        if record is None:
            return unit
        return unit[0], unit[1], unit_code(decode_record(record), self._store.dispatch.dispatcher.delay_table)

    def corrected(self, offset: int, end: int) -> int:
        """Return `offset`, moved into the queue if it lies outside (correctDelayOffset).

        Args:
            end: where the queue ended before this broker took messages itself. The queue may have grown since: with its
                end of now, what has come would count as delivered under an offset that is too large.
        """
        return min(max(offset, self.min_offset), max(end, self.min_offset))
