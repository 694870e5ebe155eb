"""CompactionLog: one queue of a compaction topic, its segments from old to new.

It follows the queue's ordinary ConsumeQueue (`catch_up`): whatever has a place there and is not here yet is copied from
the CommitLog. So it is independent of the order of dispatch, and messages that it loses in a crash are copied again.
Compaction rewrites all segments but the one that is written: of each key the newest message stays. One with an empty
body, which deletes its key, stays until its record is gone from the log, so that readers who were away learn of it.

Source:
    store/kv/CompactionLog.java.
"""

import logging
from collections.abc import Callable, Collection, Iterator
from hashlib import md5
from typing import NamedTuple

from maxq.errors import RemoteProtocolError, StoreRefusedError
from maxq.lazy_dataclass import dataclass
from maxq.protocol.message.message import MessageExt, decode_record
from maxq.protocol.message.message_const import PROPERTY_KEYS
from maxq.store.compaction.replacement import QueueFolders, Replacement, committed, folder_of
from maxq.store.compaction.segment import UNIT_SIZE, CompactUnit, Segment, physical_offset_of
from maxq.store.context.store_context import StoreContext
from maxq.store.dispatch.record_units import tags_code
from maxq.store.files.mapped_file_queue import is_offset_name
from maxq.store.queue.consume_queue_ext import is_ext_address
from maxq.store.queue.property_filter import EXAMINE_NS
from maxq.store.store_results import GetMessageResult, GetMessageStatus

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SegmentSizes:
    """Sizes, in bytes, of a segment's log file and of its file of units."""

    log: int
    units: int

    @classmethod
    def of(cls, log_size: int, unit_size: int) -> "SegmentSizes":
        """Derive the sizes from compactionMappedFileSize and compactionCqMappedFileSize, rounded as Java does."""
        units = max(unit_size // UNIT_SIZE, 2) * UNIT_SIZE
        whole, rest = divmod(log_size, units)
        if whole < 5:
            return cls(units * 5, units)
        return cls(units * (whole if 0 < rest < units >> 1 else whole + 1), units)


class _Wanted(NamedTuple):
    tags_codes: Collection[int] | None
    test: Callable[[memoryview], bool] | None

    def may_be(self, code: int) -> bool:
        """Return whether a unit's tag is wanted. Copies of earlier versions may have the address of an extension unit
        in its place: the client looks."""
        return self.tags_codes is None or code in self.tags_codes or is_ext_address(code)


class Rewritten(NamedTuple):
    """Result of `rewrite`: the replacement for `begin`, and the queue offsets of damaged copies, which are not in
    it."""

    replacement: Replacement
    damaged: list[int]


@dataclass(slots=True)
class _Replacing:
    """A replacement of segments that has begun. `is_taken`: readers already use the new segments."""

    closed: list[Segment]
    replacement: Replacement
    is_taken: bool = False


class CompactionLog:
    """The log of one compacted queue.

    Attributes:
        position: message offset up to which the older segments hold each key once.
        next_offset: message offset of the ordinary queue that is copied next.
        durable_offset: no copy below this message offset is lost with the power; 0 until the first flush.
    """

    def __init__(self, context: StoreContext, folders: QueueFolders, position: int) -> None:
        self._context = context
        self.folders = folders
        self.position = position
        config = context.config
        self._sizes = SegmentSizes.of(config.compaction_mapped_file_size, config.compaction_cq_mapped_file_size)
        self._segments: list[Segment] = []
        self._unflushed: set[Segment] = set()
        self._replacing: _Replacing | None = None
        self.next_offset = 0
        self.durable_offset = 0

    # --- loading ---

    def load(self, *, clean_exit: bool, log_has_from: int) -> None:
        """Finish a replacement of segments that the last process began, and map the segments of the compacted topic.
        Blocks.

        Args:
            clean_exit: the last process ended in good order, so everything was flushed. Otherwise the segments that
                were not compacted yet are checked record by record. What lies behind the first copy that is not whole
                is removed, and is copied again.
            log_has_from: message offset from which on the log has the messages. Copies below it are not checked: they
                were durable before the log lost their messages, and if one was found damaged, those behind it could not
                be copied again. So those behind a segment that has lost its last units stay, too, if the log does not
                have the messages of these.

        Raises:
            StoreRefusedError: a file has another size than the settings say.
        """
        disk = self._context.disk
        interrupted = committed(disk, self.folders)
        if interrupted is not None:
            interrupted.commit(disk)  # after a kill, the file may be in the system's memory only
            interrupted.finish(disk)
            self.position = max(self.position, interrupted.position)
            interrupted.forget(disk)
        self.folders.delete_uncommitted(disk)
        is_whole = is_ended = True
        bases = self._bases()
        found: list[Segment] = []
        for base in bases:
            segment = self._existing(base)
            segment.load()
            if segment.count and not is_ended:
                is_whole, is_ended = is_whole and segment.first_offset <= log_has_from, True
            if not is_whole:  # what was cut before comes again, and then the messages of this segment, too
                segment.cut(0)
            elif not clean_exit and not (0 <= segment.last_offset <= self.position and segment.is_ended):
                is_whole = self._verify(segment, log_has_from)
                is_ended = segment.is_ended
            found.append(segment)
        self._keep_all(found)

    def _existing(self, base: int) -> Segment:
        try:
            return self._segment(base)
        except ValueError as error:
            raise StoreRefusedError(
                f"{error}; set compactionMappedFileSize and compactionCqMappedFileSize to what the store was written "
                "with, or restore the file from a copy"
            ) from None

    def _verify(self, segment: Segment, log_has_from: int) -> bool:
        before = segment.count
        segment.load(verify_from=log_has_from)
        self._unflushed.add(segment)
        if segment.count < before:
            log.warning(
                "%s: %d of %d messages are whole, the others are copied again", segment.log_path, segment.count, before
            )
        return segment.count == before

    def _keep_all(self, segments: list[Segment]) -> None:
        """Keep the segments that have messages, in their order, and delete the others, the last one first: then a crash
        never leaves a gap in front of a later segment. Files that cannot be deleted now have no messages: the next
        segment at their place takes them, or the next start deletes them."""
        self._segments = [segment for segment in segments if segment.count]
        self.next_offset = self._segments[-1].last_offset + 1 if self._segments else 0
        self.durable_offset = min(self.durable_offset, self.next_offset)
        self.position = min(self.position, self.next_offset - 1)  # messages that come again must be compacted again
        empty = [segment for segment in segments if not segment.count]
        self._unflushed.difference_update(empty)
        for segment in reversed(empty):
            self._drop(segment)

    def cut(self, offset: int) -> None:
        """Remove messages at or behind `offset`, whose originals in the log were lost in a crash. Blocks."""
        if self.next_offset <= offset:
            return
        log.warning(
            "%s-%d: messages from %d on are not in the log and are forgotten",
            self.folders.topic,
            self.folders.queue_id,
            offset,
        )
        self._cut_segments(offset)

    def _cut_segments(self, offset: int) -> None:
        """Remove messages at or behind `offset`, the last ones first: if the disk refuses, or a crash comes, no later
        message stays behind a gap."""
        try:
            for segment in reversed(self._segments):
                if segment.last_offset >= offset:
                    segment.cut(offset)
        finally:
            self._keep_all(self._segments)

    def copy_again(self, offset: int) -> None:
        """Copy the messages from `offset` on once more, because one that the log lacked was restored, or because a copy
        is damaged. No replacement may be under way. Blocks.

        Raises:
            OSError: the disk refuses. Copies that were removed come again all the same.
        """
        if self.next_offset > offset:
            self._cut_segments(offset)
            self.next_offset = offset

    def cut_copies_from(self, physical_offset: int) -> None:
        """Remove what was copied from this physical offset of the log or behind it, and everything after that.
        Blocks."""
        for segment in self._segments:
            for unit in segment.units(0) if segment.end_in_commit_log > physical_offset else ():
                record = segment.record(unit)
                if record is not None and physical_offset_of(record) >= physical_offset:
                    self.cut(unit.offset)
                    return

    def is_from_before(self, physical_offset: int, in_log: Callable[[int, int], memoryview | None]) -> bool:
        """Return whether all copies were taken from before this physical offset of the log. Copies that Java made have
        their place among the copies instead of the log's offset; if all copies are Java's, the result is False.
        `in_log` returns a number of the log's bytes from a physical offset on."""
        is_known = False
        for segment in self._segments:
            for unit in segment.units(0):
                record = segment.record(unit)
                if record is None:
                    continue
                taken_from = physical_offset_of(record)
                if taken_from == segment.base + unit.position and in_log(taken_from, len(record)) != record:
                    continue
                if taken_from >= physical_offset:
                    return False
                is_known = True
        return is_known

    def first_lost(self, original: Callable[[int], memoryview | None], low: int) -> int | None:
        """Return the message offset, at or above `low`, of the first message since the last compaction whose record in
        the log is missing or another one; None if all agree. `original` returns the log's record of a message
        offset."""
        for segment in self._segments:
            for unit in segment.units(segment.find(max(self.position + 1, low))):
                if original(unit.offset) != segment.record(unit):
                    return unit.offset
        return None

    def _bases(self) -> list[int]:
        """Returns the base offsets of the segments that have both files. A file without its twin was left by a crash
        while the segment was made."""
        disk = self._context.disk
        logs, units = (
            {entry.name for entry in disk.list(folder) if not entry.is_dir and is_offset_name(entry.name)}
            for folder in (self.folders.log, self.folders.units)
        )
        for name in sorted(logs ^ units):
            folder = self.folders.log if name in logs else self.folders.units
            log.warning("%s has no counterpart and is deleted", folder / name)
            disk.delete(folder / name)
        return sorted(int(name) for name in logs & units)

    def _segment(self, base: int, subfolder: str = "") -> Segment:
        folders, sizes = self.folders, self._sizes
        return Segment(
            self._context.disk, folders.log / subfolder, folders.units / subfolder, base, sizes.log, sizes.units
        )

    def _drop(self, segment: Segment) -> None:
        segment.release()
        for path in (segment.log_path, segment.unit_path):
            self._context.disk.delete(path)

    # --- writing ---

    def append(self, record: memoryview, queue_offset: int) -> None:
        """Copy the record at `next_offset` or behind it. A record without keys is skipped, because no later message
        could replace it; so is an unreadable one. The hash of its tag is taken from the record: its queue's unit may
        have the address of an extension unit there, which goes sooner than the copy.

        Raises:
            OSError: no room; the same record comes again.
        """
        message = self._decoded(record, queue_offset)
        if message is not None and message.properties.get(PROPERTY_KEYS):
            if len(record) > self._sizes.log - 8:
                log.error("a message of %d bytes of %s does not fit a segment", len(record), self.folders.topic)
            else:
                self._writable(len(record)).append(record, tags_code(message), message.store_timestamp)
        self.next_offset = queue_offset + 1

    def _decoded(self, record: memoryview, queue_offset: int, *, check_crc: bool = False) -> MessageExt | None:
        try:
            return decode_record(record, check_crc=check_crc)
        except RemoteProtocolError as error:
            log.error("%s-%d: message %d cannot be read and is left out: %s",
                      self.folders.topic, self.folders.queue_id, queue_offset, error)  # fmt: skip
            return None

    def _writable(self, size: int) -> Segment:
        last = self._segments[-1] if self._segments else None
        if last is not None and last.has_room(size):
            self._unflushed.add(last)
            return last
        if last is not None:
            last.close()
            self._unflushed.add(last)
        fresh = self._segment(0 if last is None else last.base + self._sizes.log)
        self._segments.append(fresh)
        self._unflushed.add(fresh)
        return fresh

    def take_unflushed(self) -> list[Segment]:
        """Returns the segments written since the last call, which the caller flushes."""
        segments = sorted(self._unflushed, key=lambda segment: segment.base)
        self._unflushed.clear()
        return segments

    def give_back_unflushed(self, segments: list[Segment]) -> None:
        """Take back segments that were handed out for a flush whose outcome is not known: the next call hands out again
        those that still exist."""
        self._unflushed.update(segment for segment in segments if segment in self._segments)

    # --- reading ---

    @property
    def min_offset(self) -> int:
        """Queue offset of the oldest message that is kept; `next_offset` if no message is kept."""
        return next((segment.first_offset for segment in self._segments if segment.count), self.next_offset)

    def get_message(
        self,
        offset: int,
        max_nums: int,
        max_bytes: int,
        tags_codes: Collection[int] | None,
        test: Callable[[memoryview], bool] | None = None,
    ) -> GetMessageResult:
        """Return messages kept at or behind a message offset. The rules are those of MessageStore.get_message, but an
        offset below the first kept message is valid: reading simply begins at that message.

        Args:
            tags_codes: hashes of the tags that are wanted; None: all.
            test: is this record wanted? None: it is.
        """
        high = self.next_offset
        result = GetMessageResult(
            GetMessageStatus.FOUND, next_begin_offset=offset, min_offset=self.min_offset, max_offset=high
        )
        if high == 0:
            result.status = GetMessageStatus.NO_MESSAGE_IN_QUEUE
            result.next_begin_offset = 0
        elif offset == high:
            result.status = GetMessageStatus.OFFSET_OVERFLOW_ONE
        elif offset > high:
            result.status = GetMessageStatus.OFFSET_OVERFLOW_BADLY
            result.next_begin_offset = high
        else:
            self._collect(offset, max_nums, max_bytes, _Wanted(tags_codes, test), result)
        return result

    def _collect(self, offset: int, max_nums: int, max_bytes: int, wanted: _Wanted, result: GetMessageResult) -> None:
        config = self._context.config
        max_bytes = min(max_bytes, config.max_transfer_bytes_on_message_in_memory)
        max_nums = max(1, min(max_nums, config.max_transfer_count_on_message_in_memory))
        result.next_begin_offset = self.next_offset  # unless the loop below stops earlier
        examined, clock = 0, self._context.clock
        began_ns = clock.monotonic_ns()
        for segment, unit in self._units_from(offset):
            if result.buffers and (result.message_count >= max_nums or result.total_bytes + unit.size > max_bytes):
                result.next_begin_offset = unit.offset
                break
            examined += 1
            is_late = wanted.test is not None and examined > 1 and clock.monotonic_ns() - began_ns > EXAMINE_NS
            if is_late or examined * UNIT_SIZE > config.max_filter_message_size:
                result.next_begin_offset = unit.offset
                break
            if not wanted.may_be(unit.tags_code):
                continue
            record = segment.record(unit)
            if record is None:
                log.error("%s: message %d is damaged and skipped", segment.log_path, unit.offset)
                continue
            if wanted.test is not None and not wanted.test(record):
                continue
            result.buffers.append(record)
            result.message_count += 1
            result.total_bytes += unit.size
        if not result.buffers:
            result.status = GetMessageStatus.NO_MATCHED_MESSAGE

    def _units_from(self, offset: int) -> Iterator[tuple[Segment, CompactUnit]]:
        for segment in self._segments:
            if segment.last_offset >= offset:
                for unit in segment.units(segment.find(offset)):
                    yield segment, unit

    def offset_by_time(self, timestamp: int) -> int:
        """Returns the queue offset of the first kept message that was stored at or after `timestamp`; `next_offset` if
        there is none."""
        for segment in self._segments:
            for unit in segment.units(segment.find_time(timestamp)):
                return unit.offset
        return self.next_offset

    def store_time_at(self, offset: int) -> int:
        """Store time in ms of the first message kept at or behind `offset`; -1 if there is none."""
        return next((unit.store_timestamp for _, unit in self._units_from(offset)), -1)

    # --- compaction ---

    @property
    def is_replacing(self) -> bool:
        """Whether a replacement has begun and is not complete: then call `finish`, `take_over` and `forget`, in this
        order."""
        return self._replacing is not None

    def plan(self, flushed: int) -> list[Segment]:
        """Return the segments to compact; an empty list if the closed segments hold nothing new.

        Args:
            flushed: the CommitLog is durable up to here. Were a message behind it lost, the older one of its key would
                count again: that must not have given way to it.
        """
        closed = [segment for segment in self._segments[:-1] if segment.end_in_commit_log <= flushed]
        closed = self._segments[: len(closed)]
        return closed if closed and closed[-1].last_offset > self.position else []

    def rewrite(self, closed: list[Segment], log_begins: int) -> Rewritten:
        """Write the remaining messages of closed segments to new files beside them, durably. Blocks; does not touch
        anything that the loop uses.

        Args:
            log_begins: physical offset; messages with an empty body stay while their records are in the log.
        """
        assert not self.is_replacing, "one replacement at a time: the last one's folder may count already"
        disk = self._context.disk
        self.folders.delete_uncommitted(disk)
        position = closed[-1].last_offset
        damaged: list[int] = []
        newest = self._newest(closed)
        made: list[Segment] = []
        for segment in closed:
            for unit in segment.units(0):
                record = segment.record(unit)
                message = None if record is None else self._decoded(record, unit.offset, check_crc=True)
                if record is None or message is None:
                    damaged.append(unit.offset)
                    continue
                is_needed = len(message.body) > 0 or physical_offset_of(record) >= log_begins
                if not is_needed or unit.offset < newest.get(_key(message), -1):
                    continue
                if not made or not made[-1].has_room(unit.size):
                    if made:
                        made[-1].close()
                    made.append(self._segment(len(made) * self._sizes.log, folder_of(position)))
                made[-1].append(record, unit.tags_code, unit.store_timestamp)
        for segment in made:
            segment.close()
            segment.flush()
            segment.release()
        old, new = tuple(segment.base for segment in closed), tuple(segment.base for segment in made)
        return Rewritten(Replacement.of_written(disk, self.folders, old, new, position), damaged)

    def _newest(self, closed: list[Segment]) -> dict[bytes, int]:
        """Returns, for each key of the segments that are not compacted yet, the newest queue offset."""
        newest: dict[bytes, int] = {}
        for segment in closed:
            for unit in segment.units(segment.find(self.position + 1)):
                record = segment.record(unit)
                message = None if record is None else self._decoded(record, unit.offset, check_crc=True)
                if message is not None:
                    newest[_key(message)] = unit.offset
        return newest

    def begin(self, closed: list[Segment], replacement: Replacement) -> None:
        """Begin to replace the closed segments by those that `rewrite` has made."""
        self._replacing = _Replacing(closed, replacement)

    def finish(self) -> list[Segment]:
        """Replace the old files by the new ones. Blocks; readers continue in the old ones. If it raises OSError, call
        it again.

        Returns:
            The new segments; none if `take_over` has them already.
        """
        replacing = self._replacing
        assert replacing is not None
        if replacing.is_taken:
            return []
        disk = self._context.disk
        replacing.replacement.commit(disk)
        replacing.replacement.finish(disk)
        fresh = [self._segment(base) for base, _, _ in replacing.replacement.new]
        for segment in fresh:
            segment.load()
        return fresh

    def take_over(self, fresh: list[Segment]) -> int:
        """Read the rewritten segments from now on. Returns the position to be stored before `forget`."""
        replacing = self._replacing
        assert replacing is not None
        if not replacing.is_taken:
            replacing.is_taken = True
            self._segments[: len(replacing.closed)] = fresh
            self._unflushed.difference_update(replacing.closed)
            self.position = replacing.replacement.position
            for segment in replacing.closed:
                segment.release()
        return replacing.replacement.position

    def forget(self) -> None:
        """Remove the traces of a completed replacement. Blocks. Call it again if it raises OSError."""
        assert self._replacing is not None
        self._replacing.replacement.forget(self._context.disk)
        self._replacing = None

    # --- the end ---

    def release(self) -> None:
        """Unmap the files of all segments."""
        for segment in self._segments:
            segment.release()
        self._segments.clear()

    def destroy(self) -> None:
        """Delete the files of all segments. Blocks."""
        self.release()
        disk = self._context.disk
        # first, because the record would apply to the files of a new topic of this name
        if disk.exists(self.folders.replacing):
            disk.delete(self.folders.replacing)
        for folder in (self.folders.log, self.folders.units):
            disk.delete_tree(folder)


def _key(message: MessageExt) -> bytes:
    """Returns a digest of the key: keys may be long, and there may be millions of them."""
    return md5(message.properties[PROPERTY_KEYS].encode(), usedforsecurity=False).digest()
