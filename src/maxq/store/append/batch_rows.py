"""A batch on its way through the compiled append (log_rows_cy), whole or in parts: no Python object a message."""

from array import array
from bisect import bisect_right

from maxq.protocol.frame.batches_cy import record_places
from maxq.protocol.frame.send_rows import (
    F_BATCH,
    R_BODY,
    R_BODY_SIZE,
    R_BORN_TIMESTAMP,
    R_FLAGS,
    R_PHYSICAL_OFFSET,
    R_QUEUE_ID,
    R_QUEUE_OFFSET,
    R_RECONSUME_TIMES,
    R_SYS_FLAG,
    R_TOPIC_SIZE,
    ROW_WIDTH,
)
from maxq.protocol.message.record_layout import BATCH_RECORD_SIZE, FIXED_SIZE
from maxq.store.append.log_rows_cy import append_rows
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.log.commit_log import END_FILE_MIN_BLANK_LENGTH
from maxq.store.log.log_cy import LogTail
from maxq.store.log.tails_cy import TopicWriteState


class BatchRows:
    """The messages of one batch, of which the first `done` have been stored.

    Attributes:
        count: messages of the batch.
        size: bytes of log that all of them take, with the headers of their DLedger entries.
        places: physical offset of each record that is stored.
        queue_offset: of the first one.
    """

    def __init__(self, message: MessageExtBrokerInner, count: int, head: int, store_host: bytes) -> None:
        """
        Args:
            message: its body is that of the batch, which `batch_count` found whole.
            head: bytes in front of each record (LogTail.head).
        """
        topic = message.topic.encode()
        self.count = count
        self._body, self._topic_size = message.body, len(topic)
        self._source = bytearray(topic + message.body)
        # bytes that a record has more in the log than in the batch's body
        self._more = head + FIXED_SIZE - BATCH_RECORD_SIZE
        self._more += len(message.born_host) + len(store_host) + len(topic)
        self._starts = record_places(message.body, count, 0, 0)
        self._starts.append(len(message.body))
        self.size = len(message.body) + count * self._more
        self._born_host, self._store_host, self._sys_flag = message.born_host, store_host, message.sys_flag
        row = self._row = array("q", bytes(8 * ROW_WIDTH))
        row[R_FLAGS], row[R_TOPIC_SIZE], row[R_QUEUE_ID] = F_BATCH, len(topic), message.queue_id
        row[R_BORN_TIMESTAMP], row[R_RECONSUME_TIMES] = message.born_timestamp, message.reconsume_times
        self.places = array("q")
        self.queue_offset = -1

    @property
    def done(self) -> int:
        """Return how many messages have been stored."""
        return len(self.places)

    @property
    def next_size(self) -> int:
        """Return the bytes of log that the next record takes."""
        return self._size_up_to(self.done + 1)

    def _size_up_to(self, stop: int) -> int:
        """Return the bytes of log that the records from the next one up to, but not including, record `stop` take."""
        return self._starts[stop] - self._starts[self.done] + (stop - self.done) * self._more

    def fitting(self, room: int) -> int:
        """Return how many of the next records fit into `room` bytes of a file, whose last 8 bytes stay free for the
        BLANK record."""
        following = range(self.done + 1, self.count + 1)
        return bisect_right(following, room - END_FILE_MIN_BLANK_LENGTH, key=self._size_up_to)

    def append(self, tail: LogTail, topics: dict[bytes, TopicWriteState], now_ms: int, count: int) -> bool:
        """Store the next `count` records, all of them or none.

        Returns:
            False: there is no room for them (`LogTail.full`), or the topic takes no fast-path sends.
        """
        first, stop = self.done, self.done + count
        start, end = self._starts[first], self._starts[stop]
        row = self._row
        row[R_SYS_FLAG], row[R_BODY], row[R_BODY_SIZE] = self._sys_flag, self._topic_size + start, end - start
        if not append_rows(
            tail, self._source, bytearray(1), row, 0, 1, topics, self._born_host, self._store_host, now_ms, b"",
            end - start,
        ):  # fmt: skip
            return False
        if not first:
            self.queue_offset = row[R_QUEUE_OFFSET]
        self.places += record_places(
            memoryview(self._body)[start:end], count, row[R_PHYSICAL_OFFSET], self._more
        )  # fmt: skip
        return True
