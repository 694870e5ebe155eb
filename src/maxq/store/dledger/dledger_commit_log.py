"""The CommitLog whose records are DLedger entries (DLedgerCommitLog.java, MmapFileList.java).

The data files of DLedger are the log's files: an entry's `pos` and a record's physical offset count the same bytes, and
the record lies 48 bytes behind the start of its entry. A broker that ran without DLedger before keeps its old files
(a mixed log): the last one was closed with a BLANK record, the first data file begins where it ends
(`divided_offset`), and what lies below is read as it always was.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PurePath

from maxq.runtime.interfaces import Disk, FileInfo
from maxq.store.context.store_context import StoreContext
from maxq.store.dledger.entries_cy import ANY_INDEX, scan_entries
from maxq.store.files.file_allocator import FileAllocator
from maxq.store.files.mapped_file import MappedFile, clear
from maxq.store.files.mapped_file_queue import MappedFileQueue, is_offset_name
from maxq.store.log.commit_log import END_FILE_MIN_BLANK_LENGTH, CommitLog
from maxq.store.recovery.log_scanner import LogScanner

log = logging.getLogger(__name__)

ENTRY_HEADER_SIZE = 48
#: An entry never touches the last 8 bytes of a file (MmapFileList.MIN_BLANK_LEN).
MIN_BLANK_LENGTH = 8
_ENTRY_MAGIC = b"\0\0\0\x01"
_BLANK_MAGIC = b"\xcb\xd4\x31\x94"


class MixedFileQueue(MappedFileQueue):
    """The files of two folders as one sequence.

    Attributes:
        divided_offset: files that begin below it are in the old folder.
    """

    __slots__ = ("_old", "divided_offset")

    def __init__(self, disk: Disk, data: PurePath, old: PurePath | None, file_size: int) -> None:
        super().__init__(disk, data, "", file_size)
        self._old = None if old is None else MappedFileQueue(disk, old, "", file_size)
        self.divided_offset = 0

    def path_of(self, name: str) -> PurePath:
        if self._old is not None and int(name) < self.divided_offset:
            return self._old.path_of(name)
        return super().path_of(name)

    def prepend(self, files: list[MappedFile]) -> None:
        """Put the files of the old folder, which ends where the first data file begins, in front."""
        self.files[:0] = files

    @property
    def old(self) -> MappedFileQueue | None:
        """Return the files of the log that was written before DLedger; None if there are none."""
        return self._old


class DLedgerCommitLog(CommitLog):
    """The files of a DLedger log, and its writing end, which puts a header in front of every record.

    Attributes:
        before_room: called before the current file, or the memory in front of it, is left: what was appended there gets
            its index units.
        begin_position: where the first entry is, if not at the start of its file; -1 else.
    """

    def __init__(self, context: StoreContext, allocator: FileAllocator, old_folder: PurePath | None) -> None:
        """`old_folder` is the folder of a CommitLog without DLedger; None: there is none."""
        super().__init__(context, allocator)
        self.files: MixedFileQueue = MixedFileQueue(
            context.disk, context.commit_log_folder, old_folder, context.config.mapped_file_size_commit_log
        )
        self.tail.head = ENTRY_HEADER_SIZE
        self.before_room: Callable[[], None] = _nothing
        self.begin_position = -1

    # --- files ---

    def load_files(self, durable_index: int | None, begin_position: int) -> None:
        """List the files of both folders. The first time with DLedger, the old log is closed.

        Args:
            durable_index: the last entry that is known to have been durable; None: nobody knows.
            begin_position: where the log begins, if that is known; -1 else.

        Raises:
            StoreRefusedError: a file has the wrong size, or one is missing between others.
        """
        self._drop_unused_front(list(self._context.disk.list(self.files.folder)))
        if durable_index is not None:
            self._drop_behind_gap(durable_index, begin_position)
        self.load()
        old = self.files.old
        if old is None:
            return
        entries = [entry for entry in self._context.disk.list(old.folder) if is_offset_name(entry.name)]
        if not entries:
            return
        first = self.files.first
        self.files.divided_offset = self._close_old(old, entries) if first is None else first.file_from_offset
        if first is not None:
            held = [entry for entry in entries if int(entry.name) < first.file_from_offset]
            old.load(held, setting="mappedFileSizeCommitLog")
        self.files.prepend([self._of_old(file) for file in old.files])

    def _drop_behind_gap(self, durable_index: int, begin_position: int) -> None:
        """Delete files behind a gap. A loss of power may keep a file that was never flushed and lose the one before it,
        or its length. Files are flushed in order, so nothing behind such a gap was durable. If its entries are known
        to have been durable, a file was removed by hand, and `load` refuses to continue."""
        disk, folder = self._context.disk, self.files.folder
        size = self.files.file_size
        entries = [entry for entry in disk.list(folder) if is_offset_name(entry.name)]
        whole = 0
        if entries and self._is_remnant(entries[0], durable_index, begin_position):
            whole = -1
        while 0 <= whole < len(entries) and entries[whole].size == size:
            if whole and int(entries[whole].name) != int(entries[whole - 1].name) + size:
                break
            whole += 1
        whole = max(whole, 0)
        for entry in entries[whole:]:
            if entry.size == size:
                if 0 <= self._first_index_in(entry) <= durable_index:
                    return
            elif entry.size:
                return
        for entry in reversed(entries[whole:]):
            disk.delete(folder / entry.name)
            log.warning(
                "%s follows a file that was lost in a power failure, and was never flushed: deleted", entry.name
            )

    def _first_index_in(self, entry: FileInfo) -> int:
        """Return the index of the file's first entry; -1 if there is none, or if its header did not become durable as a
        whole: it is not at the place that it states, or calls itself entry 0 although the log does not begin there."""
        region = self._context.disk.map(self.files.folder / entry.name, entry.size, read_only=True)
        size = min(max(ENTRY_HEADER_SIZE, int.from_bytes(region.view[4:8], "big")), entry.size)
        begin = int(entry.name)
        after, index, _, _ = scan_entries(region.view, 0, size, begin, ANY_INDEX, 0, False)
        region.close()
        return index if after and (index or not begin) else -1

    def _is_remnant(self, first: FileInfo, durable_index: int, begin_position: int) -> bool:
        """Return whether the first file is the rest of a longer sequence that a loss of power took: it is not the log's
        beginning, and nothing in it or before it is known to have been durable. Retention deletes files at the
        beginning as well, but only committed ones."""
        old = self.files.old
        if old is not None and any(is_offset_name(entry.name) for entry in self._context.disk.list(old.folder)):
            return False
        if int(first.name) <= max(begin_position, 0) or first.size != self.files.file_size:
            return False
        region = self._context.disk.map(self.files.folder / first.name, first.size, read_only=True)
        head = bytes(region.view[:16])
        region.close()
        return head[:4] != _ENTRY_MAGIC or int.from_bytes(head[8:], "big") > durable_index + 1

    def _of_old(self, file: MappedFile) -> MappedFile:
        """Return the same file as a MappedFile that finds its path through this queue."""
        return MappedFile(
            self._context.disk, self.files, file.file_from_offset, file.file_size, position=file.file_size
        )

    def _close_old(self, old: MappedFileQueue, entries: list[FileInfo]) -> int:
        """End the old log with a BLANK record. Returns where the first data file begins."""
        old.load(entries, setting="mappedFileSizeCommitLog")
        reader = CommitLog(self._context, self._allocator)
        reader.files = old
        end = LogScanner(reader, check_crc=True, check_prop_crc=False).run(max(0, len(old.files) - 3)).end_offset
        for file in old.truncate(end):
            log.info("%s was made in advance and not used: deleted", file.path)
        last = old.last
        if last is None:
            return 0
        position = end - last.file_from_offset
        if position < last.file_size:
            clear(last.region, position, last.file_size)
            last.region.allocate(position, last.file_size)
            blank = (last.file_size - position).to_bytes(4, "big") + _BLANK_MAGIC
            last.view[position : position + len(blank)] = blank[: last.file_size - position]
            last.region.flush(position, last.file_size)
        log.info("the log without DLedger ends at %d; the first DLedger file begins at %d", end, last.end_offset)
        return last.end_offset

    @property
    def divided_offset(self) -> int:
        """Physical offset of the first data file; below it lies the log that was written before DLedger."""
        return self.files.divided_offset

    @property
    def data_files(self) -> list[MappedFile]:
        """The files that hold DLedger entries, oldest first."""
        return [file for file in self.files.files if file.file_from_offset >= self.files.divided_offset]

    @property
    def min_offset(self) -> int:
        """Start of the oldest file, or of the first entry in it."""
        return max(super().min_offset, self.begin_position)

    def record_offset(self, offset: int) -> int:
        """Returns the physical offset of the record whose entry begins at `offset`."""
        return offset + ENTRY_HEADER_SIZE if offset >= self.files.divided_offset else offset

    def entry_offset(self, physical_offset: int) -> int:
        """Returns where the entry begins that holds the record at `physical_offset`."""
        return physical_offset - ENTRY_HEADER_SIZE if physical_offset >= self.files.divided_offset else physical_offset

    @contextmanager
    def without_first(self) -> Iterator[MappedFile]:
        """Take the oldest file off the log while the caller deletes it; an OSError of the caller puts it back."""
        before, self.begin_position = self.begin_position, -1
        try:
            with super().without_first() as first:
                yield first
        except OSError:
            if self.files.first is first:
                self.begin_position = before
            raise

    # --- the end ---

    def next_position(self, size: int) -> int:
        """Return where an entry of `size` bytes must go: behind the last one, or in the next file if it does not
        fit."""
        end, current = self.max_offset, self.current
        if current is None or current.end_offset - end >= size + MIN_BLANK_LENGTH:
            return end
        return current.end_offset

    def may_continue_at(self, position: int) -> bool:
        """Return whether the next entry may begin at `position`. It may also begin at the start of the next file
        although it would fit into the current one, because a leader that found filler behind its last entry
        continued there."""
        current = self.current
        return position == self.max_offset or (current is not None and position == current.end_offset)

    @property
    def must_roll(self) -> bool:
        """Returns whether `make_room` would begin a new file."""
        reserve = self._reserve
        return reserve is not None and reserve.is_whole and self.tail.file_size >= reserve.end

    def make_room(self, size: int = 0) -> None:
        """Make room for an entry of `size` bytes as CommitLog.make_room does, after what `before_room` prepares."""
        self.before_room()
        super().make_room(size)

    def find_room(self, size: int = 0) -> None:
        """Find room for an entry as CommitLog.find_room does, but begin no new file: the next entry may be another
        leader's and fit into this one."""
        self.before_room()
        size += self.tail.head + MIN_BLANK_LENGTH
        if self._reserve is not None and not self._reserve.is_whole:
            super().make_room(size)
        elif self._left < size:
            self._back_next(size)

    def secure(self, size: int) -> None:
        """Make sure that blocks for the next entries, `size` bytes, are allocated: in this file and, if they do not all
        fit, in the next. No file is begun.

        Raises:
            OSError: there is no room on the disk.
        """
        size += MIN_BLANK_LENGTH
        reserve = self._reserve
        if reserve is not None:
            while not reserve.is_whole and reserve.end - self.tail.wrote_position < size:
                reserve.more(size)
            self._write_within(reserve)
        if self._left < size:
            self._back_next(size)

    @property
    def _left(self) -> int:
        """Return the bytes of the current file behind the last entry."""
        return 0 if self.current is None else self.current.end_offset - self.max_offset

    def _back_next(self, size: int) -> None:
        """Allocate `size` bytes in the next file before that file is begun."""
        offset = self.max_offset if self.current is None else self.current.end_offset
        region = self._allocator.take(offset) or self._context.disk.map(
            self.files.folder / f"{offset:020d}", self.files.file_size
        )
        try:
            region.allocate(0, min(size, self.files.file_size))
        finally:
            self._allocator.give_back(offset, region)

    def make_room_for(self, position: int, size: int) -> None:
        """Move the writing end to `position`, a result of `next_position`, with room for `size` bytes.

        Raises:
            OSError: there is no room on the disk.
        """
        while self.current is None or self.max_offset != position:
            self.make_room(size)
        while self.tail.file_size - self.tail.wrote_position < size:
            self.make_room(size)

    def cut(self, offset: int) -> None:
        """Cut the log at `offset`, which is the end of an entry or the start of a file; everything behind it is zeroed
        durably. Blocks. Flushes under way keep their mappings."""
        end = self.max_offset
        self.write_buffered()
        while self.files.files and self.files.files[-1].file_from_offset >= offset:
            self._drop_last()
        self._recent = None
        last = self.files.last
        if last is not None and last.file_from_offset <= offset < last.end_offset:
            position = offset - last.file_from_offset
            clear(last.region, position, min(last.file_size, max(position, end - last.file_from_offset)))
        flushed = min(self.flushed_offset, offset)
        self.open_at(offset)
        self.flushed_offset = flushed

    def begin_at(self, position: int) -> None:
        """Remove all entries; the next one goes to `position`. A log written before DLedger that does not end there is
        deleted, too. Blocks."""
        self.write_buffered()
        size = self.files.file_size
        start = position - position % size
        while self.files.files and (
            self.files.files[-1].file_from_offset >= self.divided_offset or self.files.files[-1].end_offset != start
        ):
            self._drop_last()
        self._recent = None
        if not self.files.files:
            self.files.divided_offset = min(self.files.divided_offset, start)
        self.begin_position = -1
        if start != position:
            self.files.create(start)
            self.begin_position = position
        self.open_at(position)

    def _drop_last(self) -> None:
        file = self.files.files.pop()
        if self._context.disk.exists(file.path):
            self._context.disk.delete(file.path)

    def entry_room(self) -> int:
        """Size of the longest entry that a file takes, in bytes."""
        return self.files.file_size - END_FILE_MIN_BLANK_LENGTH


def _nothing() -> None:
    """Does nothing: a log without index has no units to write."""
