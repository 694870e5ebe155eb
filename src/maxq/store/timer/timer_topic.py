"""TimerTopic: the queue in which messages wait that have a delivery time, and how far it has been read.

Source:
    store/timer/TimerMessageStore.java enqueue, getMessageByCommitOffset.
"""

import logging

from maxq.errors import RemoteProtocolError
from maxq.protocol.message.message import decode_record
from maxq.store.message_store import MessageStore
from maxq.store.queue.consume_queue import BLANK_UNIT_SIZE
from maxq.store.queue.unit_scan_cy import DAMAGED_TAGS_CODE
from maxq.store.timer.timer_record import TIMER_TOPIC, TimerRecord, timer_record

log = logging.getLogger(__name__)


class TimerTopic:
    """Reads `rmq_sys_wheel_timer`, queue 0.

    Attributes:
        queue_offset: up to here its messages are in the wheel, or delivered; of a DLedger group, also those that cannot
            be read yet.
        in_wheel: physical offsets of messages behind `queue_offset` that are in the wheel already.
    """

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.queue_offset = 0
        self.in_wheel: set[int] = set()

    @property
    def max_queue_offset(self) -> int:
        """Return the queue offset behind the last readable message."""
        return self._store.max_offset(TIMER_TOPIC, 0)

    @property
    def taken_queue_offset(self) -> int:
        """Return the queue offset behind the last stored message, readable or not."""
        queue = self._store.queue(TIMER_TOPIC, 0)
        return 0 if queue is None else queue.taken_offset

    @property
    def unread(self) -> int:
        """Return the number of readable messages that were not read yet."""
        return max(self.max_queue_offset - self.queue_offset, 0)

    def next_record(self) -> TimerRecord | None:
        """Return the next message of the topic that is not in the wheel yet; None if there is none. Call `advance` when
        the message has been handled. A message that cannot be read is skipped and logged."""
        queue = self._store.queue(TIMER_TOPIC, 0)
        if queue is None:
            return None
        low = self._store.min_offset(TIMER_TOPIC, 0)
        if self.queue_offset < low:
            log.error("timer messages %d to %d were cleaned away before they were read", self.queue_offset, low - 1)
            self.queue_offset = low
        while self.queue_offset < queue.max_offset:
            record = self.unread_record(self.queue_offset)
            if record is not None:
                return record
            self.queue_offset += 1
        return None

    def unread_record(self, queue_offset: int) -> TimerRecord | None:
        """Return the message at a queue offset; None if it is in the wheel already, or if it cannot be read."""
        queue = self._store.queue(TIMER_TOPIC, 0)
        try:
            unit = None if queue is None else queue.unit(queue_offset)
        except OSError as error:
            log.error("unit %d of the queue of timer messages cannot be read: %s: its message is lost",
                      queue_offset, error)  # fmt: skip
            return None
        if unit is None or unit[1] == BLANK_UNIT_SIZE or unit[2] == DAMAGED_TAGS_CODE or unit[0] in self.in_wheel:
            return None
        return self.record_at(unit[0], unit[1])

    def advance(self) -> None:
        """Note that the message from `next_record` is in the wheel, or delivered."""
        self.queue_offset += 1

    def is_unread(self, record: TimerRecord) -> bool:
        """Returns whether the message is not in the wheel yet."""
        return record.message.queue_offset >= self.queue_offset and record.physical_offset not in self.in_wheel

    def record_at(self, physical_offset: int, size: int) -> TimerRecord | None:
        """Return the timer message whose record is at that position; None, with a line in the log, if there is none."""
        try:
            view = self._store.select_one_message(physical_offset)
        except OSError as error:
            log.error("the timer message at physical offset %d cannot be read, and is lost: %s", physical_offset, error)
            return None
        if view is None or len(view) != size:
            log.error("no record of %d bytes is at physical offset %d: a timer message is lost", size, physical_offset)
            return None
        try:
            record = timer_record(decode_record(view), physical_offset)
        except RemoteProtocolError as error:
            log.error("the timer message at physical offset %d cannot be read: %s", physical_offset, error)
            return None
        if record is None:
            log.error("the record at physical offset %d is no timer message", physical_offset)
        return record

    def out_ms_at(self, physical_offset: int, size: int) -> int | None:
        """Return TIMER_OUT_MS (wall-clock time in ms) of the timer message at a physical offset; None if its record
        cannot be read now."""
        try:
            view = self._store.select_one_message(physical_offset)
            if view is None or len(view) != size:
                return None
            record = timer_record(decode_record(view), physical_offset)
        except (OSError, RemoteProtocolError):
            return None
        return None if record is None else record.out_ms

    def read_from(self, queue_offset: int) -> None:
        """Continue reading at this queue offset, or at the nearest end of the queue."""
        low = max(self._store.min_offset(TIMER_TOPIC, 0), 0)
        self.queue_offset = min(max(queue_offset, low), self.max_queue_offset)
