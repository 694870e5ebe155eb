"""Reading: by queue offset, by time, by key (DefaultMessageStore.getMessage, getOffsetInQueueByTime, queryMessage)."""

import logging
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection
from itertools import islice
from typing import NamedTuple, Protocol

from maxq.protocol.enums import BoundaryType
from maxq.protocol.message.message_sys_flag import is_rolled_back
from maxq.protocol.message.record_layout import sys_flag_of
from maxq.store.context.store_context import StoreContext
from maxq.store.files.page_cache_probe import CHUNK, STRETCH, UNITS_AT_END, PageCacheProbe
from maxq.store.index.index_service import IndexService, index_key
from maxq.store.log.commit_log import CommitLog
from maxq.store.log.deletions import Deletions
from maxq.store.log.log_search import next_record
from maxq.store.log.record_cy import check_chain, cut
from maxq.store.queue.batch_consume_queue import BatchConsumeQueue
from maxq.store.queue.consume_queue import BLANK_UNIT_SIZE, CQ_STORE_UNIT_SIZE, UNIT, ConsumeQueue
from maxq.store.queue.consume_queue_store import ConsumeQueueStore
from maxq.store.queue.property_filter import PropertyFilter, SelectedUnits, UnitSelector, UnitView, with_tags
from maxq.store.queue.unit_scan_cy import UnitScan, collect, lost_units
from maxq.store.read.gather_cy import gather
from maxq.store.store_results import (
    OMIT_RECORDS,
    BulkRead,
    ColdPart,
    GetMessageResult,
    GetMessageStatus,
    QueryMessageResult,
)

log = logging.getLogger(__name__)

_MAX_PULL_BYTES = 128 << 20
_MIN_PULL_BYTES = 100
_SMALL_GAP = 64 * 1024
_UNITS_LOOKED_AT = 16 * 1024  # bytes of a queue; a pull with a filter examines no more
# most ranges of the log in one bulk answer: asking whether one is in memory takes the event loop some µs
_MOST_PARTS = 5_000


class TagFilter(Protocol):
    """The part of a subscription that the store needs (SubscriptionData)."""

    @property
    def sub_string(self) -> str: ...
    @property
    def code_set(self) -> Collection[int]: ...
    @property
    def expression_type(self) -> str: ...


class _Pull(NamedTuple):
    """The limits of one pull; the fields are the arguments of MessageStore.get_message."""

    max_nums: int
    max_bytes: int
    may_wait: bool
    bulk: BulkRead | None


class _Taken(NamedTuple):
    """What one pull takes.

    Attributes:
        cold: parts of the records that must be read from the disk.
        chunk: the part of the log around them, if it is being read already: the caller waits for it and asks again.
    """

    scan: UnitScan
    cold: list[ColdPart]
    chunk: ColdPart | None = None


class MessageReader:
    """Serves all reads of one store.

    Attributes:
        memory_bytes: physical memory of the machine; messages further back than accessMessageInMemoryMaxRatio percent
            of it count as being on disk.
        damaged_units: number of queue units found that do not point to their record.
        may_lack_messages: messages that readers had before this start may be gone, by a loss of power, or because this
            was the slave of a master that had more: who asks for what lies behind a queue's end goes on where the queue
            ended at the start, for all that came since is new to it. So does a reader of a topic that was deleted and
            made again, because it has read messages of the deleted topic.
    """

    def __init__(
        self,
        context: StoreContext,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        index: IndexService,
        deletions: Deletions,
        page_cache: PageCacheProbe,
        memory_bytes: int,
    ) -> None:
        self._context = context
        self._commit_log = commit_log
        self._queues = queues
        self._index = index
        self._deletions = deletions
        self._page_cache = page_cache
        self.memory_bytes = memory_bytes
        self.damaged_units = 0
        self.may_lack_messages = False
        self._selector = UnitSelector(commit_log, self._not_in_memory, context.clock)

    # --- by queue offset ---

    def get_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_nums: int,
        subscription: TagFilter | None,
        max_bytes: int,
        wanted: PropertyFilter | None = None,
        may_wait: bool = False,
        bulk: BulkRead | None = None,
    ) -> GetMessageResult:
        """Read messages of a queue (see `MessageStore.get_message`).

        Raises:
            OSError: the device cannot read them.
        """
        batch = self._queues.batch_queues.get((topic, queue_id))
        if batch is not None:
            result = self.result_at(batch, offset)
            if result.status is GetMessageStatus.FOUND:
                self._collect_batch(batch, offset, max_nums, max_bytes, result)
            return result
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return GetMessageResult(
                GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, next_begin_offset=self._corrected(offset, 0)
            )
        result = self.result_at(queue, offset)
        if result.status is GetMessageStatus.FOUND:
            pull = _Pull(max_nums, max_bytes, may_wait, bulk)
            self._collect(queue, offset, subscription, wanted, pull, result)
        return result

    def result_at(self, queue: ConsumeQueue | BatchConsumeQueue, offset: int) -> GetMessageResult:
        """Returns a result without messages: FOUND if `offset` lies in the queue, else the reason and the offset to
        continue from."""
        low, high = queue.min_offset(self._commit_log.min_offset), queue.max_offset
        result = GetMessageResult(GetMessageStatus.FOUND, next_begin_offset=offset, min_offset=low, max_offset=high)
        # another member has shown the message, and dispatch here waits for the disk
        if high < offset <= queue.taken_offset:
            result.status = GetMessageStatus.OFFSET_OVERFLOW_ONE
        elif high == 0:
            result.status = GetMessageStatus.NO_MESSAGE_IN_QUEUE
            result.next_begin_offset = self._corrected(offset, 0)
        elif offset < low:
            result.status = GetMessageStatus.OFFSET_TOO_SMALL
            result.next_begin_offset = self._corrected(offset, low)
        elif offset == high:
            result.status = GetMessageStatus.OFFSET_OVERFLOW_ONE
        elif offset > high:
            result.status = GetMessageStatus.OFFSET_OVERFLOW_BADLY
            is_of_before = self.may_lack_messages or self._deletions.at(queue.topic) > 0
            end = max(low, queue.end_at_start) if is_of_before else high
            result.next_begin_offset = self._corrected(offset, end)
        return result

    def _corrected(self, old: int, new: int) -> int:
        config = self._context.config
        return old if config.broker_role == "SLAVE" and not config.offset_check_in_slave else new

    def _collect(
        self,
        queue: ConsumeQueue,
        offset: int,
        subscription: TagFilter | None,
        wanted: PropertyFilter | None,
        pull: _Pull,
        result: GetMessageResult,
    ) -> None:
        found = queue.units_from(offset)
        if found is None:
            result.status = GetMessageStatus.OFFSET_FOUND_NULL
            result.next_begin_offset = self._corrected(offset, queue.next_file_index(offset))
            return
        config, units, bulk = self._context.config, UnitView(*found), pull.bulk
        if pull.may_wait and (part := self._cold_units(queue, offset, units)) is not None:
            result.status = GetMessageStatus.NO_MATCHED_MESSAGE
            result.cold, result.must_read_first = [part], True
            return
        max_physical = self._commit_log.max_offset
        in_memory = self.memory_bytes * config.access_message_in_memory_max_ratio // 100
        surely_from = max(max_physical - in_memory, self._commit_log.found_end)
        max_units = max(config.max_filter_message_size, pull.max_nums * CQ_STORE_UNIT_SIZE) // CQ_STORE_UNIT_SIZE
        if wanted is None:
            codes = tags_codes(subscription)
            if codes is not None and queue.ext is not None:
                units = with_tags(units, queue.ext, max_units)
            taken = self._take(units, offset, codes, pull, max_units, surely_from)
        else:
            units = units._replace(end=min(units.end, units.start + max_units * CQ_STORE_UNIT_SIZE))
            selected = self._selector.select(
                units,
                wanted,
                max(1, pull.max_nums if bulk else min(pull.max_nums, config.max_transfer_count_on_message_in_memory)),
                in_memory_from=surely_from,
                may_wait=pull.may_wait,
                ext=queue.ext,
            )
            if selected.cold:
                result.status = GetMessageStatus.NO_MATCHED_MESSAGE
                result.cold, result.must_read_first = selected.cold, True
                return
            hits = UnitView(memoryview(selected.units(units.view)), 0, len(selected.places) * CQ_STORE_UNIT_SIZE)
            taken = self._take(hits, 0, None, pull, max_units, surely_from)
            self._place(taken.scan, selected, units, offset)
            result.filtered_count = taken.scan.next_index - offset - taken.scan.message_count
        scan, result.cold, result.chunk = taken
        if result.cold and pull.may_wait:
            # the head of each record is looked at below, and a page that cannot be read would end the process
            result.status = GetMessageStatus.NO_MATCHED_MESSAGE
            result.must_read_first = True
            return
        for part in result.cold:
            part.region.load(part.start, part.end)
        if bulk is not None:
            end = units.start + (scan.next_index - offset) * CQ_STORE_UNIT_SIZE
            result.passed_over = lost_units(units.view, units.start, end, offset, self._commit_log.min_offset)
        buffers = self._cut(scan.ranges, max_physical) if bulk is None else self._gather(scan, max_physical, bulk)
        if buffers is None:
            self._collect_singly(queue, offset, scan, result)
        else:
            result.buffers = buffers
            result.message_count, result.total_bytes = scan.message_count, scan.total_bytes
        result.next_begin_offset = scan.next_index
        result.last_physical_offset = scan.last_physical_offset
        result.suggest_pulling_from_slave = max_physical - scan.last_physical_offset > in_memory
        if not result.buffers and not (result.message_count and bulk is not None and bulk.omit == OMIT_RECORDS):
            gone = scan.message_count > 0
            result.status = GetMessageStatus.MESSAGE_WAS_REMOVING if gone else GetMessageStatus.NO_MATCHED_MESSAGE

    def _take(
        self,
        units: UnitView,
        first_index: int,
        codes: list[int] | None,
        pull: _Pull,
        max_units: int,
        surely_from: int,
    ) -> _Taken:
        """Return the units that one pull takes, and what of their records must be read from the disk.

        RocketMQ takes all that lies further back than some bytes to be on the disk, and gives little of it at a time.
        The page cache knows better: what it has is given as generously as recent messages are.

        Args:
            surely_from: physical offset from which on records are in memory.
        """
        max_physical = self._commit_log.max_offset
        scan = self._scan(units, first_index, codes, pull, max_units, max_physical)
        if not scan.ranges or scan.ranges[0][0] >= surely_from:
            return _Taken(scan, [])
        if pull.bulk is not None:
            if pull.bulk.omit == OMIT_RECORDS:  # no bytes of the records are read
                return _Taken(scan, [])
            parts = _islands(scan.ranges)
            if len(parts) > _MOST_PARTS:
                fewer = pull._replace(max_nums=_MOST_PARTS)
                scan = self._scan(units, first_index, codes, fewer, max_units, max_physical)
                parts = _islands(scan.ranges)
            return _Taken(scan, self._not_in_memory(parts) if pull.may_wait else [])
        cold = self._not_in_memory(scan.ranges)
        if not cold:
            return _Taken(scan, [])
        if pull.may_wait and (chunk := self._coming(scan)) is not None:
            return _Taken(scan, cold, chunk)
        scan = self._scan(units, first_index, codes, pull, max_units, max_physical - surely_from)
        return _Taken(scan, self._not_in_memory(scan.ranges))

    def _cold_units(self, queue: ConsumeQueue, offset: int, units: UnitView) -> ColdPart | None:
        """Return the units from `offset` on as a part to be read from the disk, if they are not in memory."""
        file = queue.files.find(offset * CQ_STORE_UNIT_SIZE)
        end = min(units.end, units.start + _UNITS_LOOKED_AT)
        if file is None or units.start + UNITS_AT_END >= units.end or file.region.is_resident(units.start, end):
            return None
        return ColdPart(file.region, units.start - units.start % STRETCH, min(units.end, end - end % -STRETCH))

    def _coming(self, scan: UnitScan) -> ColdPart | None:
        """Have the surroundings of a pull's records read ahead of the next ones. Returns the chunks of log in which the
        records are if these are being read already, else None."""
        first, (last, size) = scan.ranges[0][0], scan.ranges[-1]
        file = self._commit_log.file_at(first)
        if file is None or last + size > file.end_offset:
            return None
        start, end = first - file.file_from_offset, last + size - file.file_from_offset
        written = self._commit_log.max_offset - file.file_from_offset
        is_coming = self._page_cache.is_coming(file, start, end)
        self._page_cache.read_on(file, start, end, scan.message_count, written)
        if not is_coming:
            return None
        return ColdPart(file.region, start - start % CHUNK, min(end - end % -CHUNK, file.file_size, written))

    def _scan(
        self, units: UnitView, first_index: int, codes: list[int] | None, pull: _Pull, max_units: int, in_memory: int
    ) -> UnitScan:
        """Return what one pull takes of these units if the last `in_memory` bytes of the log count as being in
        memory."""
        config, (max_nums, max_bytes, _, bulk) = self._context.config, pull
        if bulk is not None:
            most = bulk.max_bytes, max_nums, bulk.max_bytes, max_nums
        else:
            most = (
                config.max_transfer_bytes_on_message_in_memory,
                config.max_transfer_count_on_message_in_memory,
                config.max_transfer_bytes_on_message_in_disk,
                config.max_transfer_count_on_message_in_disk,
            )
        return collect(
            units.view, units.start, units.end, first_index, codes, max(max_nums, 1),
            max(_MIN_PULL_BYTES, min(max_bytes, _MAX_PULL_BYTES)), self._commit_log.max_offset, in_memory, most,
            self._commit_log.min_offset, max_units,
        )  # fmt: skip

    @staticmethod
    def _place(scan: UnitScan, selected: SelectedUnits, units: UnitView, offset: int) -> None:
        """Scan the matching units only, and report in offsets of the queue. Units that were not examined are left to
        the next pull."""
        taken = scan.next_index
        end = selected.places[taken] if taken < len(selected.places) else selected.end
        scan.next_index = offset + (end - units.start) // CQ_STORE_UNIT_SIZE
        if taken == len(selected.places) and end > units.start:
            scan.last_physical_offset = int(UNIT.unpack_from(units.view, end - CQ_STORE_UNIT_SIZE)[0])

    def _cut(self, ranges: list[tuple[int, int]], max_physical: int) -> list[memoryview] | None:
        """Returns the bytes of `ranges`; None if one of them does not hold whole records."""
        if not ranges:
            return []
        file = self._commit_log.file_at(ranges[0][0])
        if file is not None and ranges[-1][0] < file.end_offset:
            return cut(file.view, file.file_from_offset, max_physical, ranges)
        buffers: list[memoryview] = []
        for physical_offset, size in ranges:
            buffer = self._commit_log.get(physical_offset, size)
            if buffer is None or not check_chain(buffer, 0, size):
                return None
            buffers.append(buffer)
        return buffers

    def _gather(self, scan: UnitScan, max_physical: int, bulk: BulkRead) -> list[memoryview] | None:
        """Returns one piece with the parts of the records that `bulk` asks for; None if a range does not hold whole
        records."""
        if bulk.omit == OMIT_RECORDS or not scan.ranges:
            return []
        out, position, ranges = bytearray(scan.total_bytes), 0, scan.ranges
        while ranges:
            file = self._commit_log.file_at(ranges[0][0])
            if file is None:
                return None
            here = max(1, bisect_left(ranges, (file.end_offset, 0)))  # number of ranges in this file
            end_offset = min(file.end_offset, max_physical)
            position = gather(file.view, file.file_from_offset, end_offset, ranges[:here], out, position, bulk.omit)
            if position < 0:
                return None
            ranges = ranges[here:]
        return [memoryview(out)[:position]]

    def _not_in_memory(self, ranges: list[tuple[int, int]]) -> list[ColdPart]:
        """Return the parts of `ranges`, which lie far back in the log, that are not in memory."""
        parts = []
        for physical_offset, size in ranges:
            file = self._commit_log.file_at(physical_offset)
            if file is None:
                continue
            start = physical_offset - file.file_from_offset
            if not file.region.is_resident(start, start + size):
                parts.append(ColdPart(file.region, start, start + size))
        return parts

    def _collect_singly(self, queue: ConsumeQueue, offset: int, scan: UnitScan, result: GetMessageResult) -> None:
        """Take the units of the scan that point to a record, and report the others."""
        result.buffers.clear()
        ranges = scan.ranges
        for index in range(offset, scan.next_index):
            unit = queue.unit(index)
            if unit is None or not any(start <= unit[0] < start + size for start, size in ranges):
                continue
            if self._commit_log.record_size(unit[0]) == unit[1]:
                buffer = self._commit_log.get(unit[0], unit[1])
                assert buffer is not None, "a record of known size is in the log"
                result.buffers.append(buffer)
                result.message_count += 1
                result.total_bytes += unit[1]
            else:
                self.damaged_units += 1
                result.passed_over.append(index)
                log.error(
                    "%s: unit %d of queue %s-%d (%d bytes at physical offset %d) points to no record; it is skipped",
                    queue.files.folder, index, queue.topic, queue.queue_id, unit[1], unit[0],
                )  # fmt: skip

    def _collect_batch(
        self, queue: BatchConsumeQueue, offset: int, max_nums: int, max_bytes: int, result: GetMessageResult
    ) -> None:
        """Take whole batches from the one that holds `offset` on, and report units that point to no message."""
        config = self._context.config
        limit = min(max_bytes, config.max_transfer_bytes_on_message_in_memory)
        max_units = max(config.max_filter_message_size // CQ_STORE_UNIT_SIZE, max_nums)
        for unit in islice(queue.units(queue.find_index(offset)), max_units):
            full = result.message_count + unit.batch_size > max_nums or result.total_bytes + unit.size > limit
            if result.buffers and full:
                break
            record = self._commit_log.record(unit.physical_offset)
            result.next_begin_offset = unit.base_offset + unit.batch_size
            result.last_physical_offset = unit.physical_offset
            # a record that is marked as rolled back covers damage (damage.py)
            if record is not None and len(record) == unit.size and not is_rolled_back(sys_flag_of(record)):
                result.buffers.append(record)
                result.message_count += unit.batch_size
                result.total_bytes += unit.size
            elif unit.physical_offset >= self._commit_log.min_offset:
                self.damaged_units += 1
                result.passed_over += range(unit.base_offset, unit.base_offset + unit.batch_size)
                log.error(
                    "%s: the unit of messages %d to %d of queue %s-%d (%d bytes at physical offset %d) points to no "
                    "record; it is skipped",
                    queue.files.folder, unit.base_offset, unit.base_offset + unit.batch_size - 1, queue.topic,
                    queue.queue_id, unit.size, unit.physical_offset,
                )  # fmt: skip
        if not result.buffers:
            result.status = GetMessageStatus.MESSAGE_WAS_REMOVING

    # --- by time ---

    def store_time_at(self, topic: str, queue_id: int, offset: int) -> int:
        """Return the store time of message `offset`, ms; -1 if there is none."""
        batch = self._queues.batch_queues.get((topic, queue_id))
        if batch is not None:
            unit = batch.unit(batch.find_index(offset))
            return -1 if unit is None else unit.store_timestamp
        queue = self._queues.find(topic, queue_id)
        if queue is None or not 0 <= offset < queue.max_offset:
            return -1
        return self._time(queue, offset)

    def is_in_memory(self, topic: str, queue_id: int, offset: int) -> bool:
        """Return True if message `offset` exists and is near enough to the end of the log to count as being in memory
        (accessMessageInMemoryMaxRatio)."""
        batch = self._queues.batch_queues.get((topic, queue_id))
        if batch is not None:
            batch_unit = batch.unit(batch.find_index(offset)) if offset < batch.max_offset else None
            physical_offset = -1 if batch_unit is None else batch_unit.physical_offset
        else:
            units = self.units(topic, queue_id, offset, 1)
            physical_offset = units[0][0] if units else -1
        in_memory = self.memory_bytes * self._context.config.access_message_in_memory_max_ratio // 100
        return physical_offset >= 0 and self._commit_log.max_offset - physical_offset <= in_memory

    def units(self, topic: str, queue_id: int, offset: int, count: int) -> list[tuple[int, int, int]]:
        """Return units of a queue (see `MessageStore.queue_units`)."""
        queue = self._queues.find(topic, queue_id)
        if queue is None or offset < 0:
            return []
        found = (queue.unit(at) for at in range(offset, min(offset + count, queue.max_offset)))
        return [queue.with_tags(unit) for unit in found if unit is not None and unit[1] != BLANK_UNIT_SIZE]

    def _time(self, queue: ConsumeQueue, offset: int) -> int:
        unit = queue.unit(offset)
        if unit is None or unit[1] == BLANK_UNIT_SIZE or unit[1] <= 0:
            return -1
        return self._commit_log.store_timestamp(unit[0], unit[1]) or -1  # a damaged record may have zeros there

    def _next_readable(self, queue: ConsumeQueue, offset: int, end: int) -> int:
        """Return the first queue offset in (offset, end) whose record has a store time; `end` if none has one. `offset`
        is that of a damaged record: the log is searched for the next good one, so that a long damaged part costs as
        much as its bytes, and not a call for each of its records."""

        def place(index: int) -> int:
            """Return the physical offset of the next unit that has one."""
            units = (queue.unit(at) for at in range(index, end))
            return next((unit[0] for unit in units if unit is not None and 0 < unit[1] != BLANK_UNIT_SIZE), sys.maxsize)

        offset += 1
        while offset < end and self._time(queue, offset) <= 0:
            good = next_record(self._commit_log, place(offset), self._commit_log.max_offset)
            offset = bisect_left(range(end), good, offset + 1, end, key=place)
        return offset

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int, boundary: BoundaryType) -> int:
        """Do what `MessageStore.offset_by_time` says."""
        batch = self._queues.batch_queues.get((topic, queue_id))
        if batch is not None:
            return self._batch_offset_by_time(batch, timestamp, boundary)
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return 0
        low, high = queue.min_offset(self._commit_log.min_offset), queue.max_offset
        if low >= high:
            return high

        def time(offset: int) -> int:
            return self._time(queue, offset)

        def next_readable(offset: int, end: int) -> int:
            return self._next_readable(queue, offset, end)

        found = _place_by_time(low, high, time, next_readable, timestamp, boundary)
        return found if boundary is BoundaryType.LOWER else max(low, found - 1)

    def _batch_offset_by_time(self, queue: BatchConsumeQueue, timestamp: int, boundary: BoundaryType) -> int:
        def time(index: int) -> int:
            unit = queue.unit(index)
            return -1 if unit is None else unit.store_timestamp

        def next_readable(index: int, end: int) -> int:
            return next((at for at in range(index + 1, end) if time(at) > 0), end)

        first = queue.first_index
        found = _place_by_time(first, queue.count, time, next_readable, timestamp, boundary)
        unit = queue.unit(found - 1 if boundary is BoundaryType.UPPER and found > first else found)
        return queue.max_offset if unit is None else unit.base_offset

    # --- by key ---

    def query_message(
        self, topic: str, key: str, max_num: int, begin: int, end: int, index_type: str
    ) -> QueryMessageResult:
        """Do what `MessageStore.query_message` says."""
        result = QueryMessageResult()
        text = index_key(topic, f"T#{key}" if index_type == "T" else key)
        max_num = min(max_num, self._context.config.max_msgs_num_batch)
        last = end
        for _ in range(3):
            offsets, timestamp, physical_offset = self._index.query(text, max_num, begin, last)
            result.index_last_update_timestamp = timestamp
            result.index_last_update_physical_offset = physical_offset
            if not offsets:
                break
            offsets.sort()
            first_time = self._commit_log.store_timestamp(offsets[0])
            last = first_time if first_time >= 0 else last
            for offset in offsets:
                if self._deletions.is_gone(topic, offset):
                    continue
                record = self._commit_log.record(offset)
                # a record that covers damage is no message
                if record is not None and not is_rolled_back(sys_flag_of(record)):
                    result.buffers.append(record)
            if result.buffers or last < begin:
                break
        return result


def _place_by_time(
    low: int,
    high: int,
    time: Callable[[int], int],
    next_readable: Callable[[int, int], int],
    timestamp: int,
    boundary: BoundaryType,
) -> int:
    """Return the first index in [low, high) with a time of at least `timestamp`, or for UPPER a later time; `high` if
    there is none.

    An index whose record is damaged (its time is not above 0) has the time of the next one that can be read: it lies
    within what is found for LOWER. For UPPER, messages behind the last readable one count as stored at its time; for
    LOWER they count as later than any time. So both searches include them.

    Args:
        next_readable: returns for a damaged index and an end the first index between them that can be read, or the end.
    """
    runs: list[tuple[int, int]] = []  # runs of places of damaged messages: first index, index behind the last

    def readable(index: int) -> int:
        """Return the first index from `index` on that can be read; `high` if there is none. No part is gone over
        twice."""
        if time(index) > 0:
            return index
        later = min((run for run in runs if run[1] > index), default=(high, high))
        if later[0] <= index:
            return later[1]
        behind = next_readable(index, later[0])
        if behind == later[0]:
            behind = later[1]
        runs.append((index, behind))
        return behind

    behind_last, end = (high if time(high - 1) > 0 else low), high
    while behind_last < end:
        found = readable((behind_last + end) // 2)
        if found < high:
            behind_last = found + 1
        else:
            end = (behind_last + end) // 2
    bisect = bisect_right if boundary is BoundaryType.UPPER else bisect_left
    place = bisect(range(high), timestamp, low, behind_last, key=lambda index: time(readable(index)))
    return high if place == behind_last and boundary is BoundaryType.UPPER else place


def _islands(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return `ranges` with small gaps filled, so that fewer system calls find out whether they are in memory."""
    found: list[tuple[int, int]] = []
    for start, size in ranges:
        if found and 0 <= start - sum(found[-1]) <= _SMALL_GAP:
            found[-1] = found[-1][0], start + size - found[-1][0]
        else:
            found.append((start, size))
    return found


def tags_codes(subscription: TagFilter | None) -> list[int] | None:
    """Return the tag hashes of the subscription; None for every message."""
    if subscription is None or subscription.sub_string == "*" or subscription.expression_type not in ("TAG", "", None):
        return None
    return list(subscription.code_set) or None
