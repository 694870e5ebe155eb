"""Reading a topic, whichever kind it is: plain queues and BatchCQ over the log, or the compacted log of its own."""

from collections.abc import Callable

from maxq.protocol.enums import BoundaryType
from maxq.store.compaction.compaction_store import CompactionStore
from maxq.store.log.commit_log import CommitLog
from maxq.store.queue.consume_queue import ConsumeQueue
from maxq.store.queue.consume_queue_store import ConsumeQueueStore
from maxq.store.queue.property_filter import PropertyFilter
from maxq.store.read.message_reader import MessageReader, TagFilter, tags_codes
from maxq.store.store_results import BulkRead, GetMessageResult, GetMessageStatus


class TopicReader:
    """Reads topics whether or not they are compacted (see the module). The methods are those of MessageStore."""

    def __init__(
        self, commit_log: CommitLog, queues: ConsumeQueueStore, compaction: CompactionStore, reader: MessageReader
    ) -> None:
        self._commit_log = commit_log
        self._queues = queues
        self._compaction = compaction
        self._reader = reader

    def get_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_nums: int,
        subscription: TagFilter | None,
        max_bytes: int,
        wanted: PropertyFilter | None,
        may_wait: bool,
        bulk: BulkRead | None,
    ) -> GetMessageResult:
        """Read messages of a queue, from the compacted log if the topic has one (see `MessageStore.get_message`)."""
        if topic not in self._compaction.topics:
            return self._reader.get_message(
                topic, queue_id, offset, max_nums, subscription, max_bytes, wanted, may_wait, bulk
            )
        kept = self._compaction.get_message(
            topic, queue_id, offset, max_nums, max_bytes, tags_codes(subscription), _test_of(wanted)
        )
        queue = self._queues.find(topic, queue_id)
        return kept if queue is None or kept.max_offset > offset else self._not_kept_yet(queue, offset, kept)

    def _not_kept_yet(self, queue: ConsumeQueue, offset: int, kept: GetMessageResult) -> GetMessageResult:
        """Return the answer for a reader at or behind the end of a compacted queue. The compacted queue may be far
        behind the ordinary one: a reader that is ahead of it waits and is not sent back."""
        result = self._reader.result_at(queue, offset)
        if result.status is GetMessageStatus.NO_MESSAGE_IN_QUEUE:
            return kept
        if result.status is not GetMessageStatus.OFFSET_OVERFLOW_BADLY:
            result.status, result.next_begin_offset = GetMessageStatus.OFFSET_OVERFLOW_ONE, offset
        result.min_offset = kept.min_offset
        return result

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the smallest queue offset that can be read (see `MessageStore.min_offset`)."""
        if topic in self._compaction.topics and (kept := self._compaction.current(topic, queue_id)) is not None:
            return kept.min_offset
        batch = self._queues.batch_queues.get((topic, queue_id))
        if batch is not None:
            return batch.min_offset(self._commit_log.min_offset)
        queue = self._queues.find(topic, queue_id)
        return -1 if queue is None else queue.min_offset(self._commit_log.min_offset)

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset of the next message (see `MessageStore.max_offset`)."""
        batch = self._queues.batch_queues.get((topic, queue_id))
        if batch is not None:
            return batch.max_offset
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    def taken_offset(self, topic: str, queue_id: int) -> int:
        """Do what `MessageStore.taken_offset` says."""
        batch = self._queues.batch_queues.get((topic, queue_id))
        queue = self._queues.find(topic, queue_id) if batch is None else batch
        return 0 if queue is None else queue.taken_offset

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int, boundary: BoundaryType) -> int:
        """Do what `MessageStore.offset_by_time` says."""
        if topic in self._compaction.topics and (kept := self._compaction.current(topic, queue_id)) is not None:
            return kept.offset_by_time(timestamp)
        return self._reader.offset_by_time(topic, queue_id, timestamp, boundary)

    def store_time_at(self, topic: str, queue_id: int, offset: int) -> int:
        """Do what `MessageStore.store_time_at` says."""
        if topic in self._compaction.topics and (kept := self._compaction.current(topic, queue_id)) is not None:
            return kept.store_time_at(offset)
        return self._reader.store_time_at(topic, queue_id, offset)


def _test_of(wanted: PropertyFilter | None) -> Callable[[memoryview], bool] | None:
    if wanted is None:
        return None
    predicate = wanted.predicate
    return lambda record: predicate.matches_record(record, 0, len(record))
