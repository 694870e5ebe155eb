"""All messages of all topics in one sequence of files (CommitLog.java).

Records are written by `LogTail` (log_cy.py); this module owns the files below it: which one is written, when the next
one comes, reading by physical offset, and what is durable.
"""

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from maxq.protocol.message.record_layout import MESSAGE_MAGICS, MIN_RECORD_SIZE, store_timestamp_of
from maxq.runtime.interfaces import FileInfo, MappedRegion, SyncFailedError
from maxq.store.context.store_context import StoreContext
from maxq.store.files.block_reserve import BlockReserve
from maxq.store.files.file_allocator import FileAllocator
from maxq.store.files.mapped_file import MappedFile, holds_data
from maxq.store.files.mapped_file_queue import MappedFileQueue, is_offset_name
from maxq.store.log.log_cy import LogTail
from maxq.store.log.record_cy import renew_prop_crc
from maxq.store.log.write_buffer import LogWriteBuffer

#: A record never touches the last 8 bytes of a file: BLANK needs them.
END_FILE_MIN_BLANK_LENGTH = 8
#: Blocks are allocated so many bytes at a time.
_BLOCKS_STEP = 64 << 20

#: So far behind the end what this process wrote is in memory; what lies further back is asked for.
_WRITTEN_LATELY = 64 << 20
#: Is asked for at once: who reads on from a record finds the next ones there.
_ASKED_AT_ONCE = 64 << 10

_SIZE_AND_MAGIC = struct.Struct(">iI")
_LONG = struct.Struct(">q")
_QUEUE_OFFSET_AT = 20


class CommitLog:
    """The files and the writing end.

    Offsets are physical: bytes from the start of the log's life. `flushed_offset` <= `max_offset`; everything below
    it is durable. The newest records are not in the mapped file before `write_buffered`.

    Attributes:
        tail_view: what the newest records were written to: the current file, or the memory in front of it.
        found_end: where the log ended when it was opened: what lies before was not written by this process, and may be
            on the disk alone.
        on_sync_failed: called, on the loop's thread, when a sync of a file of the log failed that the flusher has not
            asked for; it covered what the flusher relies on.
    """

    def __init__(self, context: StoreContext, allocator: FileAllocator) -> None:
        self._context = context
        self._allocator = allocator
        self._reserve: BlockReserve | None = None
        self.files = MappedFileQueue(
            context.disk, context.commit_log_folder, "", context.config.mapped_file_size_commit_log
        )
        self.tail = LogTail()
        self.tail_view = memoryview(b"")
        self._write_buffer: LogWriteBuffer | None = None
        self.flushed_offset = 0
        self.found_end = 0
        self._in_memory: tuple[MappedFile, int] | None = None  # the part of a file that was asked for last
        self._current: MappedFile | None = None
        self.on_sync_failed: Callable[[SyncFailedError], None] = lambda error: None
        self._recent: MappedFile | None = None  # file of the last read: the next read is most often in the same one

    def load(self) -> None:
        """List the files.

        Raises:
            StoreRefusedError: a file has the wrong size, or one is missing between others.
        """
        entries = list(self._context.disk.list(self.files.folder))
        self._drop_made_ahead(entries)
        self.files.load(entries, setting="mappedFileSizeCommitLog")

    def _drop_made_ahead(self, entries: list[FileInfo]) -> None:
        """Delete files, made ahead of need, behind a gap or a file without bytes: after a loss of power the next file
        but one may be whole, and the next not. Nothing was written to them."""
        self._drop_unused_front(entries)
        numbered = [entry for entry in entries if is_offset_name(entry.name)]
        while len(numbered) > 1:
            before, last = numbered[-2:]
            if before.size and int(last.name) == int(before.name) + self.files.file_size:
                return
            if last.size and last.size != self.files.file_size:
                return  # a wrong file size in the settings makes all files appear to lie behind gaps
            numbered.pop()
            path = self.files.folder / last.name
            if last.size:
                region = self._context.disk.map(path, last.size, read_only=True)
                unused = not any(region.view[:MIN_RECORD_SIZE])
                region.close()
                if not unused:
                    return
            self._context.disk.delete(path)
            entries.remove(last)

    def _drop_unused_front(self, entries: list[FileInfo]) -> None:
        """Delete empty files before a gap: they were made ahead of a log that then began anew elsewhere."""
        numbered, size = [entry for entry in entries if is_offset_name(entry.name)], self.files.file_size
        gaps = [at for at in range(1, len(numbered)) if int(numbered[at].name) != int(numbered[at - 1].name) + size]
        front = numbered[: gaps[-1]] if gaps else []
        if front and all(map(self._is_unused, front)) and not self._is_unused(numbered[gaps[-1]]):
            for entry in reversed(front):
                self._context.disk.delete(self.files.folder / entry.name)
                entries.remove(entry)

    def _is_unused(self, entry: FileInfo) -> bool:
        if entry.size != self.files.file_size:
            return not entry.size
        region = self._context.disk.map(self.files.folder / entry.name, entry.size, read_only=True)
        is_unused = not holds_data(region, 0, entry.size)
        region.close()
        return is_unused

    @property
    def min_offset(self) -> int:
        """Physical offset at which the oldest file begins; 0 for an empty log."""
        return self.files.min_offset

    @property
    def max_offset(self) -> int:
        """Physical offset of the next byte that is written."""
        return self.tail.file_from_offset + self.tail.wrote_position

    @property
    def current(self) -> MappedFile | None:
        """Return the file that is being written."""
        return self._current

    def open_at(self, offset: int) -> None:
        """Cut the log at `offset`, the end that recovery found: later files are deleted. The bytes behind `offset` in
        its file must be zero already. Appends continue there. A log that begins there, because retention has deleted
        what was before, keeps its file: a log without files would be a lost one for the next start."""
        begins_there = bool(self.files.files) and self.files.min_offset == offset > 0
        self.files.truncate(offset + 1 if begins_there else offset)
        self._recent = self._in_memory = None
        self.found_end = offset
        last = self.files.last
        if begins_there and last is not None:
            last.wrote_position = last.flushed_position = 0
        self.flushed_offset = offset
        self._current = last
        self._reserve = None
        if last is None or offset >= last.end_offset:
            self._detach(offset)
        else:
            self._attach(last, offset - last.file_from_offset)
            self._write_within(self._reserve_of(last.region, offset - last.file_from_offset))

    def buffer_appends(self, is_buffered: bool) -> None:
        """Make the records of future appends in memory and write them a group at a time. Without this call the log is a
        copy: a slave writes received bytes at once."""
        if is_buffered == (self._write_buffer is not None):
            return
        self.write_buffered()
        self._write_buffer = LogWriteBuffer(self._context.disk, self.files.file_size) if is_buffered else None
        if self._current is not None and self._current.file_from_offset == self.tail.file_from_offset:
            self._attach(self._current, self.tail.wrote_position)
            assert self._reserve is not None, "what is written has blocks"
            self._write_within(self._reserve)

    def _attach(self, file: MappedFile, position: int) -> None:
        """Direct appends to `position` of `file` from now on."""
        if self._write_buffer is None:
            self.tail_view = file.view
        else:
            self._write_buffer.attach(file.region, position)
            self.tail_view = self._write_buffer.view
        self.tail.attach(self.tail_view, file.file_from_offset, file.file_size, position)

    def _detach(self, offset: int) -> None:
        """Detach the writing end: the next record, at `offset`, needs another file."""
        if self._write_buffer is not None:
            self._write_buffer.attach(None, 0)
        self.tail_view = memoryview(b"")
        self.tail.attach(None, offset, 0, 0)

    def make_room(self, size: int = 0) -> None:
        """Make room for a record of `size` bytes that does not fit: allocate more blocks of the current file, `size`
        bytes or a step; if all are allocated, close the file with a BLANK record and begin the next one. So at most
        two calls make room for `size` bytes.

        Raises:
            OSError: there is no room on the disk, or the file could not be created; the log is as before.
        """
        if self._write_buffer is not None and self._room_in_memory(self._write_buffer, size):
            return
        if self._reserve is not None and not self._reserve.is_whole:
            self._reserve.more(size + END_FILE_MIN_BLANK_LENGTH)
            self._write_within(self._reserve)
            return
        self._roll(size)

    def find_room(self, size: int) -> None:
        """Check whether the disk, which had no room for `size` bytes, has it now.

        Raises:
            OSError: no.
        """
        self.make_room(size)

    def _room_in_memory(self, buffer: LogWriteBuffer, size: int) -> bool:
        """Return whether the ring in memory has room for `size` bytes (0: for any more), if memory limits the writing
        end."""
        if self._reserve is None or self.tail.file_size >= self._reserve.end:
            return False
        was_empty = buffer.written == self.tail.wrote_position
        self.write_buffered()
        buffer.make_room(size + END_FILE_MIN_BLANK_LENGTH, larger=was_empty)
        self.tail_view = buffer.view
        self.tail.attach(self.tail_view, self.tail.file_from_offset, self.files.file_size, self.tail.wrote_position)
        self._write_within(self._reserve)
        return size + END_FILE_MIN_BLANK_LENGTH <= self.tail.file_size - self.tail.wrote_position

    def _roll(self, size: int) -> None:
        current = self._current
        offset = self.max_offset if current is None else current.end_offset
        region = self._allocator.take(offset) or self._context.disk.map(
            self.files.folder / f"{offset:020d}", self.files.file_size
        )
        reserve = self._reserve_of(region, 0)
        try:
            reserve.more(size + END_FILE_MIN_BLANK_LENGTH)
        except OSError:
            self._allocator.give_back(offset, region)
            raise
        if current is not None and current.file_from_offset == self.tail.file_from_offset:
            position = self.tail.wrote_position
            self.tail.close_file()
            # only the head of the BLANK record is written; the rest of the file stays as it is
            if self._write_buffer is not None:
                self._write_buffer.write_out(min(position + END_FILE_MIN_BLANK_LENGTH, current.file_size))
            current.wrote_position = current.file_size
        file = self.files.create(offset, region)
        self._current = file
        self._attach(file, 0)
        self._write_within(reserve)
        self._allocator.prepare(offset + file.file_size, offset + 2 * file.file_size)

    def _reserve_of(self, region: MappedRegion, position: int) -> BlockReserve:
        size = self.files.file_size
        return BlockReserve(self._context.jobs, region, position, size, _BLOCKS_STEP, self._on_more_blocks)

    def _on_more_blocks(self, reserve: BlockReserve) -> None:
        if reserve is self._reserve:
            self._write_within(reserve)

    def _write_within(self, reserve: BlockReserve) -> None:
        """Limit the writing end to the allocated blocks of the file, or to the room in memory."""
        self._reserve = reserve
        buffer = self._write_buffer
        self.tail.file_size = reserve.end if buffer is None else min(reserve.end, buffer.limit)

    def prepare_ahead(self) -> None:
        """Allocate blocks ahead of the writer. Cheap when there is nothing to do."""
        if self._reserve is not None:
            self._reserve.move_to(self.tail.wrote_position)

    def create_ahead(self) -> None:
        """Start to create the files that the writer needs next."""
        current = self._current
        if current is not None:
            self._allocator.prepare(current.end_offset, current.end_offset + current.file_size)
            self.prepare_ahead()

    def release_tail(self) -> None:
        """Write what is in the write buffer into the file, and stop writing, at shutdown."""
        self.write_buffered()
        self._reserve = None
        self._detach(self.max_offset)
        self._current = None

    def newest_from(self, offset: int) -> memoryview | None:
        """Return the memory into which the records from physical offset `offset` on were written, as `tail_view` does,
        if it still holds all of them. The mapped file has them as well, but its pages may have to be mapped
        first."""
        position = offset - self.tail.file_from_offset
        buffer = self._write_buffer
        is_here = position >= 0 if buffer is None else buffer.has(position, self.tail.wrote_position)
        return self.tail_view if is_here else None

    def file_at(self, offset: int) -> MappedFile | None:
        """Return the file that holds physical offset `offset`."""
        recent = self._recent
        if recent is not None and 0 <= offset - recent.file_from_offset < recent.file_size and recent.is_mapped:
            return recent
        self._recent = self.files.find(offset)
        return self._recent

    def bytes_from(self, offset: int, limit: int) -> memoryview | None:
        """Return at most `limit` bytes from physical offset `offset` on, within one file; None if there are none.

        Raises:
            OSError: the device cannot read them.
        """
        file = self.file_at(offset)
        end = self.max_offset
        if file is None or offset >= end:
            return None
        position = offset - file.file_from_offset
        stop = min(position + limit, file.file_size, end - file.file_from_offset)
        self.write_buffered(file.file_from_offset + stop)
        self._bring_in(file, position, stop)
        return file.view[position:stop]

    @contextmanager
    def without_first(self) -> Iterator[MappedFile]:
        """Do what `MappedFileQueue.without_first` says."""
        self._recent = self._in_memory = None
        with self.files.without_first() as first:
            yield first

    def get(self, offset: int, size: int) -> memoryview | None:
        """Return bytes [offset, offset + size) as a slice of the mapped file; None unless they are in one file of the
        log.

        Raises:
            OSError: the device cannot read them. All methods that read records through this one raise it, too.
        """
        file = self.file_at(offset)
        if file is None or offset < 0 or size <= 0 or offset + size > self.max_offset:
            return None
        position = offset - file.file_from_offset
        if position + size > file.file_size:
            return None
        self.write_buffered(offset + size)
        self._bring_in(file, position, position + size)
        return file.view[position : position + size]

    def _bring_in(self, file: MappedFile, start: int, end: int) -> None:
        """Load bytes [start, end) of `file` if they may be on the disk alone: if the device cannot read a page, a touch
        of it ends the process (SIGBUS).

        Raises:
            OSError: the device cannot read them.
        """
        offset = file.file_from_offset + start
        if offset >= self.found_end and self.max_offset - offset <= _WRITTEN_LATELY:
            return
        first = start - start % _ASKED_AT_ONCE
        known = self._in_memory
        if known is not None and known[0] is file and known[1] == first and end <= first + _ASKED_AT_ONCE:
            return
        region = file.region
        if region.is_resident(first, min(first + _ASKED_AT_ONCE, file.file_size)):
            self._in_memory = file, first
        region.bring_in(start, end)

    def record_size(self, offset: int) -> int:
        """TOTALSIZE of the record at `offset`; 0 if there is none."""
        head = self.get(offset, 8)
        if head is None:
            return 0
        size, magic = _SIZE_AND_MAGIC.unpack(head)
        return int(size) if magic in MESSAGE_MAGICS and size >= MIN_RECORD_SIZE else 0

    def record(self, offset: int) -> memoryview | None:
        """The whole record at `offset`; None if there is none."""
        size = self.record_size(offset)
        return self.get(offset, size) if size else None

    def store_timestamp(self, offset: int, size: int = MIN_RECORD_SIZE) -> int:
        """STORETIMESTAMP of the record at `offset`; -1 if there is none (CommitLog.pickupStoreTimestamp)."""
        head = self.get(offset, max(size, MIN_RECORD_SIZE))
        if head is None or _SIZE_AND_MAGIC.unpack_from(head)[1] not in MESSAGE_MAGICS:
            return -1
        return store_timestamp_of(head)

    def mend_queue_offset(self, physical_offset: int, queue_offset: int) -> None:
        """Correct the QUEUEOFFSET field of a damaged record, durably. Blocks.

        Raises:
            OSError: the device refuses; the record is as it was. After a failed sync the system would show the next
                start a field that is not on the disk, and nobody would correct it again.
        """
        file = self.files.find(physical_offset)
        assert file is not None, f"no file holds physical offset {physical_offset}"
        start = physical_offset - file.file_from_offset
        end = start + self.record_size(physical_offset)
        file.region.allocate(start, end)
        record = file.view[start:end]
        before = bytes(record)
        _LONG.pack_into(record, _QUEUE_OFFSET_AT, queue_offset)
        renew_prop_crc(record)
        try:
            self.sync(file, start, end)
        except OSError:
            record[:] = before
            raise

    def sync(self, file: MappedFile, start: int, end: int) -> None:
        """Make bytes [start, end) of a file of the log durable, for a caller other than the flusher. Blocks; runs on
        the loop's thread, or before a loop runs.

        Raises:
            SyncFailedError: the device refuses. The flusher has heard of it: the same sync was one of its bytes.
        """
        try:
            file.region.flush(start, end)
        except SyncFailedError as error:
            self.on_sync_failed(error)
            raise

    def record_offset(self, offset: int) -> int:
        """Returns the physical offset of the record at `offset`; in a DLedger log `offset` is that of the record's
        entry."""
        return offset

    def entry_offset(self, physical_offset: int) -> int:
        """Return the start of the record at `physical_offset` or, in a DLedger log, of its entry."""
        return physical_offset

    def next_file_offset(self, offset: int) -> int:
        """Start of the file behind the one that holds `offset` (CommitLog.rollNextFile)."""
        size = self.files.file_size
        return offset + size - offset % size

    def ranges(self, start: int, end: int) -> Iterator[tuple[MappedFile, int, int]]:
        """Return the pieces of [start, end) by file: (file, first position, position behind the last)."""
        while start < end:
            file = self.files.find(start)
            if file is None:
                return
            stop = min(end, file.end_offset)
            yield file, start - file.file_from_offset, stop - file.file_from_offset
            start = stop

    def flush_ranges(self) -> tuple[int, list[tuple[MappedFile, int, int]]]:
        """Return the offset up to which a flush makes the log durable now, and the pieces to flush by file."""
        self.write_buffered()
        end = self.max_offset
        return end, list(self.ranges(self.flushed_offset, end))

    def write_buffered(self, end: int | None = None) -> None:
        """Write everything below physical offset `end`, or everything, into the mapped files.

        Raises:
            OSError: the device refuses.
        """
        tail = self.tail
        if self._current is None or self._current.file_from_offset != tail.file_from_offset:
            return
        buffer = self._write_buffer
        if buffer is not None and (end is None or end > tail.file_from_offset + buffer.written):
            buffer.write_out(tail.wrote_position)
            if self._reserve is not None:
                self._write_within(self._reserve)
        if end is None:
            self._current.wrote_position = tail.wrote_position

    def put(self, position: int, data: memoryview) -> None:
        """Put a master's bytes into the current file, behind the log's end; `accept` makes them part of the log.

        Raises:
            OSError: the device refuses.
        """
        assert self._current is not None, "make_room attached a file"
        self._current.region.write(position, data)

    def accept(self, count: int) -> None:
        """Extend the log by the next `count` bytes, which `put` has written."""
        self.tail.wrote_position += count
        if self._write_buffer is not None:
            self._write_buffer.skip(self.tail.wrote_position)
