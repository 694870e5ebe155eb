"""From plain queues to queues of batches and back: the attribute queue.type is often known later than the messages.

A slave's log is ahead of its table of topics, and a topic may be deleted and made again with another type of queue.
What was dispatched before the type was known went into the other kind of queue and would be hidden by it. So its units
are copied. Dispatch goes on in the new kind, and the next queue offset is the same.

Units of batches can say whatever plain units say. The reverse holds for records with one message only: a topic that has
inner batches keeps its queues of batches, whatever its attribute says.
"""

from maxq.protocol.message.message_sys_flag import MessageSysFlag
from maxq.protocol.message.record_layout import sys_flag_of
from maxq.store.log.commit_log import CommitLog
from maxq.store.queue.batch_consume_queue import BatchConsumeQueue, BatchUnit
from maxq.store.queue.consume_queue import BLANK_UNIT_SIZE, CQ_STORE_UNIT_SIZE, ConsumeQueue
from maxq.store.queue.unit_scan_cy import DAMAGED_TAGS_CODE


def copy_to_batches(queue: ConsumeQueue, batch: BatchConsumeQueue, commit_log: CommitLog) -> None:
    """Give a queue of batches without units those of a plain queue, as far as the log has their records, and its
    numbering. Places of damaged messages become gaps.

    Raises:
        OSError: the disk has no room; the plain queue is as before.
    """
    for offset in range(queue.min_offset(commit_log.min_offset) if queue.files.files else 0, queue.max_offset):
        unit = queue.unit(offset)
        if unit is not None and unit[1] != BLANK_UNIT_SIZE and unit[2] != DAMAGED_TAGS_CODE:
            start, size, tags_code = queue.with_tags(unit)
            batch.append(BatchUnit(start, size, tags_code, max(0, commit_log.store_timestamp(start, size)), offset, 1))
    batch.number_on(queue.max_offset)
    batch.next_queue_offset = max(batch.next_queue_offset, queue.tail.next_queue_offset)
    batch.end_at_start = queue.end_at_start
    batch.tail.watched = batch.tail.watched or queue.tail.watched


def copy_to_plain(batch: BatchConsumeQueue, queue: ConsumeQueue, commit_log: CommitLog) -> None:
    """Give a plain queue without units those of a queue of batches, none of which `has_inner_batches`, as far as the
    log has their records, and its numbering. Gaps become places of damaged messages.

    Raises:
        OSError: the disk has no room; the queue of batches is as before.
    """
    last = None
    for unit in batch.units(batch.first_index):
        if unit.physical_offset >= commit_log.min_offset:
            if unit.base_offset != queue.max_offset or not queue.files.files:
                queue.roll(unit.base_offset, unit.physical_offset, unit.size)
            queue.append(unit.physical_offset, unit.size, unit.tags_code)
            last = unit
    if last is None:
        queue.tail.write_offset = batch.max_offset * CQ_STORE_UNIT_SIZE
    elif batch.numbered_to > queue.max_offset:
        queue.roll(batch.numbered_to, last.physical_offset, last.size)
    queue.tail.next_queue_offset = max(queue.max_offset, batch.next_queue_offset)
    queue.end_at_start = batch.end_at_start
    queue.tail.watched = queue.tail.watched or batch.tail.watched


def has_inner_batches(batch: BatchConsumeQueue, commit_log: CommitLog) -> bool:
    """Return whether a record of this queue is an inner batch, which plain queues cannot point to."""
    for unit in batch.units(batch.first_index):
        if unit.batch_size != 1:
            return True
        record = commit_log.record(unit.physical_offset)
        if record is not None and sys_flag_of(record) & MessageSysFlag.INNER_BATCH:
            return True
    return False
