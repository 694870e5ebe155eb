"""Restores queue units and index entries of messages in ranges that a start had filled as damaged and that have their
true bytes again.

When a start fills damage in the log, the places of its messages in their queues become placeholders (physical offset
and size of the filler, or of the next good message; DAMAGED_TAGS_CODE), which readers pass over. When the records are
back, so are their units. Their keys are indexed behind those of later messages. (A crash before that index file is
full takes these entries away, and the start finds the messages in the log only if it builds that part anew.)
"""

import logging
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from maxq.protocol.message.message import MessageExt, decode_record
from maxq.protocol.message.message_sys_flag import is_queued, is_rolled_back
from maxq.protocol.message.record_layout import MAGIC_BLANK, MESSAGE_MAGICS, size_of, sys_flag_of
from maxq.runtime.turns import Turns
from maxq.store.dispatch.record_units import index_keys, light_places, unit_code
from maxq.store.index.index_service import IndexService
from maxq.store.log import record_cy
from maxq.store.log.commit_log import CommitLog
from maxq.store.log.deletions import Deletions
from maxq.store.queue.consume_queue import ConsumeQueue
from maxq.store.queue.consume_queue_store import ConsumeQueueStore, may_name_queues
from maxq.store.queue.unit_scan_cy import DAMAGED_TAGS_CODE
from maxq.store.recovery.damage_names import is_filler

log = logging.getLogger(__name__)

_ROWS: Final = 4096


def restore_places(
    commit_log: CommitLog,
    queues: ConsumeQueueStore,
    deletions: Deletions,
    delays_ms: list[int],
    physical_offset: int,
    size: int,
    most_missing: int,
    came_back: Callable[[str, int, int], None],
) -> int:
    """Write the units of the records in [physical_offset, physical_offset + size) in place of placeholders, or at the
    end of their queues, where no later message has made a placeholder for them yet. Records of topics that were
    deleted since get none.

    Args:
        delays_ms: of delay level 1, 2, …
        most_missing: most messages that can be missing at the end of a queue; a record that implies more is ignored.
        came_back: called with topic, queue id and queue offset of each.

    Returns:
        How many were written.

    Raises:
        OSError: there is no room for a unit. No other message gets the places that were not written.
    """
    written = 0
    restored: list[tuple[ConsumeQueue, int, tuple[int, int, int]]] = []
    for offset, message in _messages(commit_log, physical_offset, size):
        unit = (offset, message.store_size, unit_code(message, delays_ms))
        for topic, queue_id, queue_offset in _places(message):
            if queues.topic_write_state(topic).has_batch_queues or deletions.is_gone(topic, offset):
                continue
            queue = queues.open(topic, queue_id)
            if queue_offset - queue.max_offset <= most_missing:
                restored.append((queue, queue_offset, unit))
    for queue, queue_offset, _ in restored:
        queue.tail.next_queue_offset = max(queue.tail.next_queue_offset, queue_offset + 1)
    for queue, queue_offset, unit in restored:
        known = queue.unit(queue_offset)
        if known is not None and known[2] == DAMAGED_TAGS_CODE:
            queue.put_unit(queue_offset, unit)
        elif queue_offset >= queue.max_offset:
            queue.roll(queue_offset, unit[0], unit[1])
            queue.append(*unit)
        else:
            continue
        came_back(queue.topic, queue.queue_id, queue_offset)
        written += 1
    return written


def restore_keys(commit_log: CommitLog, index: IndexService, tags_too: bool, physical_offset: int, size: int) -> None:
    """Add index entries for the records in [physical_offset, physical_offset + size) that have none. If the disk has no
    room for an index file, the rest cannot be found by their keys, which is logged.

    Args:
        tags_too: indexTagEnable.
    """
    present = index.records_within(physical_offset, physical_offset + size)
    for offset, message in _messages(commit_log, physical_offset, size):
        keys = index_keys(message, tags_too)
        if keys and not is_rolled_back(message.sys_flag) and offset not in present:
            try:
                index.put_restored_keys(message.topic, keys, offset, message.store_timestamp)
            except OSError as error:
                log.error("messages restored from physical offset %d on are not in the index: %s", offset, error)
                return


def _messages(commit_log: CommitLog, physical_offset: int, size: int) -> Iterator[tuple[int, MessageExt]]:
    """Return the records of a range, each with its position."""
    end = physical_offset + size
    while physical_offset < end:
        record = commit_log.record(physical_offset)
        if record is None:
            return  # the BLANK at the end of a file
        yield physical_offset, decode_record(record)
        physical_offset += len(record)


def why_not_restored(queues: ConsumeQueueStore, deletions: Deletions, physical_offset: int, data: bytes) -> str:
    """Return why a master may not put records that its start had filled back to `physical_offset`; empty if it may. It
    may only if their queue offsets are free: an offset that another message has got since belongs to that one.

    Args:
        data: bytes of whole records; other bytes are skipped.

    Returns:
        Why not; empty if nothing is against it.
    """
    ends: dict[tuple[str, int], int] = {}
    position = 0
    while int.from_bytes(data[position + 4 : position + 8], "big") in MESSAGE_MAGICS:
        size = size_of(data, position)
        message = decode_record(memoryview(data)[position : position + size])
        for topic, queue_id, queue_offset in _places(message):
            if deletions.is_gone(topic, physical_offset + position):
                continue
            if queues.topic_write_state(topic).has_batch_queues:
                return f"{topic} is a topic of batches, whose places are not kept"
            queue = queues.open(topic, queue_id)
            end = ends.get((topic, queue_id), queue.max_offset)
            unit = queue.unit(queue_offset)
            is_kept = unit is not None and (
                unit[2] == DAMAGED_TAGS_CODE or unit[:2] == (physical_offset + position, size)
            )
            is_next = queue_offset >= end and queue.tail.next_queue_offset <= end
            if not (is_kept or is_next):
                return f"place {queue_offset} of {topic}-{queue_id} was given to another message since"
            ends[topic, queue_id] = max(end, queue_offset + 1)
        position += size
    return ""


async def hold_last_places(
    commit_log: CommitLog, queues: ConsumeQueueStore, deletions: Deletions, ranges: Sequence[tuple[int, int]]
) -> bool:
    """Return whether these (start, end) of the log hold the last message of a queue. A log that lost them may have
    given its place to another message; the places of all others lie before one that it knows of.
    """
    turns = Turns()
    for start, end in ranges:
        position = start
        while position < end:
            record = commit_log.record(position)
            if record is None:
                break  # the BLANK at the end of a file
            message = decode_record(record)
            del record  # a reference would keep the file mapped during the pause
            if _is_last_of_queue(queues, deletions, position, message):
                return True
            position += message.store_size
            await turns.rest()
    return False


def _is_last_of_queue(queues: ConsumeQueueStore, deletions: Deletions, offset: int, message: MessageExt) -> bool:
    for topic, queue_id, _ in _places(message):
        if deletions.is_gone(topic, offset):
            continue
        if queues.topic_write_state(topic).has_batch_queues:
            return True
        queue = queues.open(topic, queue_id)
        last = queue.unit(queue.max_offset - 1)
        if last is None or last[0] <= offset:
            return True
    return False


def good_prefix(data: memoryview, physical_offset: int) -> tuple[int, int]:
    """Return how many bytes from the front of `data`, the log from `physical_offset` on, are whole good records, and
    the reason why no more, a STOP_ code."""
    rows = array("q", bytes(8 * record_cy.SCAN_WIDTH * _ROWS))
    position, why = 0, record_cy.STOP_ROWS_FULL
    while why == record_cy.STOP_ROWS_FULL:
        _, position, why = record_cy.scan(data, position, len(data), physical_offset, rows)
    return position, why


def is_restored(commit_log: CommitLog, physical_offset: int, size: int) -> bool:
    """Return whether [physical_offset, physical_offset + size), which was filled once, holds records: no filler, and no
    partly written restoration after a loss of power."""
    data = commit_log.get(physical_offset, size)
    if data is None:
        return False
    good, why = good_prefix(data, physical_offset)
    is_whole = good == size or (why == record_cy.STOP_BLANK and size_of(data, good) == size - good)
    return is_whole and not is_filled(commit_log, physical_offset, size)


def has_message(commit_log: CommitLog, physical_offset: int, size: int) -> bool:
    """Returns whether a whole good record of this size is there, and is not a filler."""
    data = commit_log.get(physical_offset, size)
    return (
        data is not None
        and good_prefix(data, physical_offset)[0] == size == size_of(data, 0)
        and not is_rolled_back(sys_flag_of(data))
    )


def is_filled(commit_log: CommitLog, physical_offset: int, size: int) -> bool:
    """Returns whether a filler (damage.py) lies in [physical_offset, physical_offset + size)."""
    record = commit_log.record(physical_offset)
    if record is None:
        blank = commit_log.get(physical_offset, 8)
        return blank is not None and bytes(blank) == size.to_bytes(4, "big") + MAGIC_BLANK.to_bytes(4, "big")
    message = decode_record(record)
    is_one = is_rolled_back(message.sys_flag) and not message.topic
    is_one = is_one or is_filler(message.sys_flag, message.properties)
    return is_one and len(record) == size


def _places(message: MessageExt) -> Iterator[tuple[str, int, int]]:
    if not is_queued(message.sys_flag):
        return
    yield message.topic, message.queue_id, message.queue_offset
    if not may_name_queues(message.topic):
        return
    yield from light_places(message) or ()
