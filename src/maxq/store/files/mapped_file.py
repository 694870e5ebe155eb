"""One fixed-size file of a queue of files, mapped on first use (DefaultMappedFile.java)."""

from pathlib import PurePath
from typing import Final, Protocol

from maxq.errors import StoreRefusedError
from maxq.runtime.interfaces import Disk, MappedRegion

OS_PAGE_SIZE = 4096

#: Bytes that are loaded together.
AT_ONCE: Final = 8 << 20
#: Zeros are compared and written in pieces of this size.
_ZEROS = bytes(1 << 20)


def offset_to_file_name(offset: int) -> str:
    """Start offset in bytes → 20 digits (UtilAll.offset2FileName)."""
    return f"{offset:020d}"


class Folder(Protocol):
    """The folder of a file. Paths are made on demand, because a store may have 100,000 files and use few of them."""

    def path_of(self, name: str) -> PurePath: ...


class PageNotes:
    """The notes of page_cache_probe.py about a file's pages.

    Attributes:
        seen_ms: by position of a stretch: when all of it was in memory (monotonic).
        asked_ms: by position of a chunk: when it was read ahead of its readers, or found there.
        failed: positions of chunks that the disk could not read as a whole.
    """

    __slots__ = ("asked_ms", "failed", "seen_ms")

    def __init__(self) -> None:
        self.asked_ms: dict[int, int] = {}
        self.failed: set[int] = set()
        self.seen_ms: dict[int, int] = {}


class MappedFile:
    """A file whose name is its start offset.

    `wrote_position` and `flushed_position` are bytes from the file's start, 0 <= flushed <= wrote <= size. The region
    is mapped when somebody first asks for it and may be given up and mapped again: what was written stays in the
    page cache. `mapped` is the view while it is mapped, else None. Readers hold slices of the view; those outlive
    `release` and `destroy`.
    """

    __slots__ = (
        "_disk", "_pages", "_queue", "_region", "file_from_offset", "file_size", "flushed_position", "mapped",
        "wrote_position",
    )  # fmt: skip

    def __init__(
        self,
        disk: Disk,
        queue: Folder,
        file_from_offset: int,
        file_size: int,
        *,
        position: int = 0,
        region: MappedRegion | None = None,
    ) -> None:
        self._disk = disk
        self._queue = queue
        self._region = region
        self._pages: PageNotes | None = None  # made when first needed: few files are read far behind their end
        self.mapped: memoryview | None = None if region is None else region.view
        self.file_from_offset = file_from_offset
        self.file_size = file_size
        self.wrote_position = position
        self.flushed_position = position

    @property
    def path(self) -> PurePath:
        return self._queue.path_of(offset_to_file_name(self.file_from_offset))

    @property
    def end_offset(self) -> int:
        """First offset behind the file."""
        return self.file_from_offset + self.file_size

    @property
    def is_full(self) -> bool:
        return self.wrote_position >= self.file_size

    @property
    def is_mapped(self) -> bool:
        return self._region is not None

    @property
    def region(self) -> MappedRegion:
        """Return the mapping, which is made now if there is none.

        Raises:
            OSError: the disk refuses.
            ValueError: the file has another length than it should.
        """
        region = self._region
        if region is None:
            region = self._region = self._disk.map(self.path, self.file_size)
            self.mapped = region.view
        return region

    @property
    def view(self) -> memoryview:
        """All bytes of the file, writable."""
        return self.region.view

    @property
    def pages(self) -> PageNotes:
        """Return what is known of the file's pages in memory."""
        if self._pages is None:
            self._pages = PageNotes()
        return self._pages

    def flush(self) -> None:
        """Make all bytes of the file that were written durable. Blocks."""
        end = self.wrote_position
        if end > self.flushed_position:
            self.region_to_flush().flush(self.flushed_position, end)
            self.flushed_position = end

    def region_to_flush(self) -> MappedRegion:
        """Return the mapping, or a new one for a flush alone. Never creates a file, because a flushing thread may come
        after the queue was deleted.

        Raises:
            FileNotFoundError: nobody has mapped the file, and it is gone.
            OSError: the disk refuses.
        """
        region = self._region
        return self._disk.map(self.path, self.file_size, read_only=True) if region is None else region

    def modified_ms(self) -> int:
        """Return the file's modification time in ms since 1970; 0 if the file was removed meanwhile. Also tries to
        allocate space that the file lacks. Blocks."""
        try:
            return self._disk.stat(self.path).modified_ms
        except FileNotFoundError:
            return 0

    def release(self) -> None:
        """Release the mapping; the next use maps the file again. A mapping that a thread is flushing ends with that
        thread."""
        self._region = self.mapped = self._pages = None

    def destroy(self) -> None:
        """Delete the file. Slices that readers hold stay valid until they drop them. Blocks."""
        self.release()
        if self._disk.exists(self.path):
            self._disk.delete(self.path)


def holds_data(region: MappedRegion, start: int, end: int) -> bool:
    """Returns whether any byte of [start, end) is not zero."""
    view = region.view
    page = min(-(-start // OS_PAGE_SIZE) * OS_PAGE_SIZE, end)
    if not _ZEROS.startswith(bytes(view[start:page])):
        return True
    return any(
        not _ZEROS.startswith(bytes(view[piece : min(piece + len(_ZEROS), stop)]))
        for begin, stop in region.data_ranges(page, end)
        for piece in range(begin, stop, len(_ZEROS))
    )


def clear(region: MappedRegion, start: int, end: int) -> None:
    """Make bytes [start, end) zero and durable in the cheapest way. Blocks.

    A hole is punched where the file system can; else only pieces that are not zero already are written, so that a
    sparse file stays sparse.
    """
    view = region.view
    page = min(-(-start // OS_PAGE_SIZE) * OS_PAGE_SIZE, end)
    if bytes(view[start:page]).strip(b"\0"):  # a hole is not written: on a full disk that would fail
        view[start:page] = bytes(page - start)
    if page < end and not region.discard(page, end):
        for begin, stop in region.data_ranges(page, end):
            for piece in range(begin, stop, len(_ZEROS)):
                zeros = _ZEROS[: stop - piece]
                if bytes(view[piece : piece + len(zeros)]) != zeros:
                    view[piece : piece + len(zeros)] = zeros
    region.flush(start, end)


def bring_in(file: MappedFile, most: int | None = None) -> None:
    """Load the file, or its first `most` bytes, in large steps: all of it will be looked at, and a touch of a page that
    the device cannot read would end the process (SIGBUS) without a word.

    Raises:
        StoreRefusedError: the device cannot read a part of it.
    """
    for begin, stop in file.region.data_ranges(0, min(most or file.file_size, file.file_size)):
        for position in range(begin, stop, AT_ONCE):
            end = min(position + AT_ONCE, stop)
            try:
                file.region.bring_in(position, end)
            except OSError as error:
                raise StoreRefusedError(
                    f"{file.path}: the device cannot read all of bytes {position} to {end} ({error}). Copy the file "
                    "with a tool that leaves zeros where it can read nothing (ddrescue), put "
                    "the copy in its place, and start again: the start then names what is lost, and keeps the rest. "
                    "Where another broker has a copy of the log, as a slave has of its master's, take the file from "
                    "there instead."
                ) from error
