"""The real clock, disk and chance. Only `main` functions import this module; it is for Linux."""

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import resource
import struct
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import ClassVar

from maxq.runtime.files.durable_files import DurableFiles, write_all
from maxq.runtime.files.file_holes import HoledMemory, data_ranges, holes_lack_room, holes_take_room
from maxq.runtime.files.kernel_sync import Done
from maxq.runtime.files.ring_memory import ring_memory
from maxq.runtime.interfaces import DiskUsage, FileInfo, MappedRegion
from maxq.runtime.system_clock import SystemClock, SystemRng

__all__ = ["SystemClock", "SystemDisk", "SystemDiskLock", "SystemMappedRegion", "SystemRng"]

_PAGE = mmap.PAGESIZE
_COPY_STEP = 1 << 20  # bytes
_POPULATE_READ = 22  # MADV_POPULATE_READ and …WRITE, Linux 5.14
_POPULATE_WRITE = 23
_HUGEPAGE = 14  # MADV_HUGEPAGE
_HUGE_PAGE = 2 << 20
_READ_AROUND_FROM = 64 << 20  # bytes: smaller files are touched here and there, larger ones read through
_libc = ctypes.CDLL(None, use_errno=True)  # mmap.madvise keeps the interpreter lock; a call through ctypes lets it go
_FLOCK = struct.Struct("hhqqi4x")  # struct flock: type, whence, start, length, pid
_UNREADABLE = (errno.EFAULT, 133)  # errors of populating a page whose access would raise SIGBUS; 133 is EHWPOISON
# a PyDLL, which keeps the interpreter lock: the call takes only 3 to 10 µs for 256 KiB
_mincore = ctypes.PyDLL(None).mincore
_mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
_MOST_PAGES = 4096  # most pages of one call
# descriptors that mappings leave to sockets, and to the syncs that mappings need before they can be unmapped
_KEPT_DESCRIPTORS = 256
_REMOVE = 9  # MADV_REMOVE: punches a hole into the file below a shared mapping


class SystemMappedRegion(MappedRegion):
    """One file of the disk that is mapped into memory, shared with other processes."""

    def __init__(self, path: Path, size: int, *, read_only: bool, files: DurableFiles) -> None:
        _check_descriptors(path)
        self._file = files.open(path, read_only=read_only)
        self._fd = self._file.fd
        try:
            length = self._file.size
            if length == 0 and not read_only:
                self._file.set_size(size)
            elif length != size:
                raise ValueError(f"{path}: {length} bytes, expected {size}")
            self._holed: HoledMemory | None = None
            if holes_take_room(self._fd, size) if read_only else holes_lack_room(self._fd, size):
                self._holed = HoledMemory(self._fd, size, shared=not read_only)
            access = mmap.ACCESS_READ if read_only else mmap.ACCESS_WRITE
            self._map = mmap.mmap(self._fd, size, access=access) if self._holed is None else self._holed.memory
        except BaseException:
            self._file.close()
            raise
        if size < _READ_AROUND_FROM:
            # a fault in a sparse file would otherwise zero the pages around it, up to megabytes for one queue unit
            self._map.madvise(mmap.MADV_RANDOM)
        else:
            # a log that is read through after a crash comes from the disk three times as fast with a larger read-ahead
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        self._view = memoryview(self._map).toreadonly() if read_only else memoryview(self._map)
        self._address: int | None = None
        if self._holed is None and not read_only:
            self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self._is_large = size >= _READ_AROUND_FROM
        self._is_writer = False  # pages are made ready for a writer that writes one after the other

    @property
    def view(self) -> memoryview:
        if self._holed is not None:
            self._holed.catch_up()
        return self._view

    def flush(self, start: int, end: int) -> None:
        if start < end:  # a sync writes the dirty pages of the mapping too, and covers the file's length
            self._file.sync()

    def flush_at_once(self) -> bool:
        return self._file.sync_at_once()

    def flush_soon(self, done: Done) -> bool:
        return self._file.sync_soon(done)

    def write(self, position: int, data: memoryview) -> None:
        write_all(self._fd, data, position)
        if self._holed is not None:
            self._holed.catch_up()

    def write_again(self, start: int, end: int) -> None:
        first, last = start - start % _PAGE, min(len(self._view), -(-end // _PAGE) * _PAGE)
        for begin, stop in self.data_ranges(first, last):
            for position in range(begin, stop, _COPY_STEP):
                end = min(position + _COPY_STEP, stop)
                self.bring_in(position, end)  # refuses what a touch would end the process for
                self.write(position, memoryview(bytes(self._view[position:end])))
        self._file.written_again()

    def populate(self, start: int, end: int) -> None:
        # On ext4, a KiB of fresh pages costs 3.2 µs touched one by one, 0.2 µs populated 4 MiB at a time if blocks
        # were allocated before, 64 MiB at a time, and 0.15 µs if they come 2 MiB at a time as one huge page.
        first = start - start % _PAGE
        last = min(len(self._view), end)
        if self._is_large and not self._is_writer:
            self._is_writer = True
            self._expect_writer()
        if first < last:
            _advise(self._view, first, last, _POPULATE_WRITE)
        if self._is_writer and last == len(self._view):
            self._map.madvise(mmap.MADV_NORMAL)  # the writer has all pages it needs; later readers may read ahead

    def forget(self, start: int, end: int) -> None:
        # Mapped pages cannot leave the page cache, so the mapping drops them first. Whoever reads them later has them
        # read from the device again.
        first, last = -(-start // _PAGE) * _PAGE, end - end % _PAGE
        if first < last:
            _advise(self._view, first, last, mmap.MADV_DONTNEED)
            os.posix_fadvise(self._fd, first, last - first, os.POSIX_FADV_DONTNEED)

    def is_resident(self, start: int, end: int) -> bool:
        """Return whether all of [start, end) is in the page cache. The kernel is only asked: `preadv` with RWF_NOWAIT
        would make the caller start reading the missing pages, megabytes of them, and copy the others. False of a
        read-only mapping, and of one with holes."""
        if end > len(self._view) or self._address is None:
            return False
        position = start - start % _PAGE
        while position < end:
            pages = min(-(-(end - position) // _PAGE), _MOST_PAGES)
            there = ctypes.create_string_buffer(pages)
            if _mincore(self._address + position, pages * _PAGE, there) or b"\0" in there.raw:
                return False
            position += pages * _PAGE
        return True

    def load(self, start: int, end: int) -> None:
        first = start - start % _PAGE
        last = min(len(self._view), end)
        if first >= last or self._view.readonly:
            return
        os.posix_fadvise(self._fd, first, last - first, os.POSIX_FADV_WILLNEED)
        if _advise(self._view, first, last, _POPULATE_READ) in _UNREADABLE:
            raise OSError(errno.EIO, f"the device cannot read all of bytes {first} to {last}")

    def touch_by_page(self) -> None:
        self._map.madvise(mmap.MADV_RANDOM)

    def _expect_writer(self) -> None:
        """Set up the mapping so that a page fault of the writer does not read ahead: with the read-ahead of some
        machines (8 MiB) the kernel zeroed 16 MiB of the sparse file in one fault of the loop, 50 ms. Huge pages
        bound it to 2 MiB and are cheaper."""
        with contextlib.suppress(OSError):  # kernels without huge pages read ahead
            self._map.madvise(_HUGEPAGE)
            self._map.madvise(mmap.MADV_RANDOM)

    def allocate(self, start: int, end: int) -> None:
        first = start - start % _PAGE
        at_once = _HUGE_PAGE if self._is_large else _PAGE  # a fault brings so much, and all of it must have blocks
        end = min(len(self._view), -(-end // at_once) * at_once)
        if first < end:
            os.posix_fallocate(self._fd, first, end - first)
            if self._holed is not None:
                self._holed.has_blocks(first, min(-(-end // _PAGE) * _PAGE, len(self._map)))

    def discard(self, start: int, end: int) -> bool:
        if self._holed is not None:
            return False  # the next access to a hole of the mapping would fill it
        try:
            self._map.madvise(_REMOVE, start, end - start)
        except (OSError, ValueError):
            return False
        return True

    def data_ranges(self, start: int, end: int) -> list[tuple[int, int]]:
        return data_ranges(self._fd, start, end)

    def close(self) -> None:
        if self._fd < 0:
            return
        self._file.close()
        self._fd = -1
        self._holed = None
        self._view = memoryview(b"")
        with contextlib.suppress(BufferError):  # readers hold slices: the mapping ends with the last of them
            self._map.close()


def _advise(view: memoryview, first: int, last: int, advice: int) -> int:
    """Advise the kernel about bytes [first, last) of a mapping, without holding the interpreter; returns the error
    number, or 0.

    The mapping cannot go while the kernel works: another thread that closes the file would have it unmapped, and the
    advice would reach whatever lies at these addresses by then.
    """
    here = ctypes.c_char.from_buffer(view, first)  # this object counts as a reader of the mapping while it exists
    failed = _libc.madvise(ctypes.byref(here), ctypes.c_size_t(last - first), advice) != 0
    return ctypes.get_errno() if failed else 0


def _check_descriptors(path: Path) -> None:
    """Check that descriptors are left. The system hands out the lowest free number, so a high one means that few are
    left.

    Raises:
        OSError: EMFILE, before anything was made. Mapped files can still be made durable, and then unmapped.
    """
    descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.close(descriptor)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit != resource.RLIM_INFINITY and descriptor >= limit - min(_KEPT_DESCRIPTORS, limit // 4):
        raise OSError(
            errno.EMFILE,
            f"{descriptor} files and connections are open, the limit of the process is {limit} and some are kept for "
            "others; raise the limit (ulimit -n, LimitNOFILE)",
            str(path),
        )


class SystemDiskLock:
    """A POSIX record lock on byte 0, as Java's FileChannel.tryLock takes it.

    Such locks belong to the process: a second one from this process would be granted, and closing any descriptor of
    the file drops them all. So the process keeps its own list. Another process that finds the file deleted would make
    and lock a new one: with its folder locked, too, by flock(2), it is refused.
    """

    _held: ClassVar[set[tuple[int, int]]] = set()

    def __init__(self, path: Path, content: bytes, *, with_folder: bool = False) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            facts = path.stat()
            if (facts.st_dev, facts.st_ino) in self._held:
                raise BlockingIOError(errno.EAGAIN, "locked by this process already", str(path))
        self._folder_fd = _locked_folder(path.parent, fcntl.LOCK_EX) if with_folder else -1
        self._fd = -1
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            write_all(self._fd, memoryview(content), 0)
        except BaseException:
            self._close()
            raise
        facts = os.fstat(self._fd)
        self._key = (facts.st_dev, facts.st_ino)
        self._held.add(self._key)

    def release(self) -> None:
        if self._fd >= 0:
            self._close()
            self._held.discard(self._key)

    def _close(self) -> None:
        if self._folder_fd >= 0:
            fcntl.flock(self._folder_fd, fcntl.LOCK_UN)  # for a process that was forked meanwhile, too
        for fd in (self._folder_fd, self._fd):
            if fd >= 0:
                os.close(fd)
        self._folder_fd = self._fd = -1

    @classmethod
    def is_held(cls, path: Path) -> bool:
        """Return whether this process, or another living one, holds the lock."""
        try:
            facts = path.stat()
            if (facts.st_dev, facts.st_ino) in cls._held:
                return True
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return _is_folder_locked(path.parent)
        try:
            wish = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 1, 0)
            return bool(_FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, wish))[0] != fcntl.F_UNLCK)
        finally:
            os.close(fd)


def _locked_folder(folder: Path, how: int) -> int:
    """Lock a folder with flock(2), exclusively or shared.

    Returns:
        A descriptor that holds the lock; -1 on a file system on which folders cannot be locked, such as NFS.

    Raises:
        BlockingIOError: another process, or this one, holds it.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise
    except OSError:
        os.close(fd)
        return -1
    return fd


def _is_folder_locked(folder: Path) -> bool:
    try:
        fd = _locked_folder(folder, fcntl.LOCK_SH)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    if fd >= 0:
        os.close(fd)
    return False


class SystemDisk:
    """The disk of the machine, by its file system."""

    def __init__(self) -> None:
        self._files = DurableFiles()

    def map(self, path: PurePath, size: int, *, read_only: bool = False) -> SystemMappedRegion:
        return SystemMappedRegion(Path(path), size, read_only=read_only, files=self._files)

    def ring(self, size: int, window: int) -> memoryview:
        return ring_memory(size, window)

    def read(self, path: PurePath) -> bytes:
        return Path(path).read_bytes()

    def write(self, path: PurePath, data: bytes) -> None:
        self._files.write(Path(path), data)

    def replace(self, path: PurePath, data: bytes, *, private: bool = False) -> None:
        self._files.replace(Path(path), data, private=private)

    def replace_with(self, path: PurePath, data: bytes, *, spare: PurePath) -> None:
        self._files.replace_with(Path(path), data, spare=Path(spare))

    def rename(self, source: PurePath, target: PurePath) -> None:
        self._files.rename(Path(source), Path(target))

    def delete(self, path: PurePath) -> None:
        self._files.delete(Path(path))

    def delete_tree(self, path: PurePath) -> None:
        self._files.delete_tree(Path(path))

    def make_dirs(self, path: PurePath) -> None:
        Path(path).mkdir(parents=True, exist_ok=True)

    def exists(self, path: PurePath) -> bool:
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            # every other error does not mean that the file is missing
            return False
        return True

    def stat(self, path: PurePath) -> FileInfo:
        found = Path(path)
        facts = found.stat()
        is_dir = found.is_dir()
        return FileInfo(found.name, 0 if is_dir else facts.st_size, facts.st_mtime_ns // 1_000_000, is_dir)

    def list(self, path: PurePath) -> Sequence[FileInfo]:
        try:
            with os.scandir(path) as entries:
                found = []
                for entry in entries:
                    try:
                        facts = entry.stat()
                    except FileNotFoundError:
                        # the file was deleted meanwhile, or is a dangling link; other files exist
                        continue
                    is_dir = entry.is_dir()
                    size = 0 if is_dir else facts.st_size
                    found.append(FileInfo(entry.name, size, facts.st_mtime_ns // 1_000_000, is_dir))
        except FileNotFoundError:
            return []
        return sorted(found, key=lambda entry: entry.name)

    def usage(self, path: PurePath) -> DiskUsage:
        folder = Path(path)
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        facts = os.statvfs(folder)
        block = facts.f_frsize
        used = (facts.f_blocks - facts.f_bfree) * block
        return DiskUsage(facts.f_blocks * block, used, facts.f_bavail * block)

    def lock(self, path: PurePath, content: bytes, *, with_folder: bool = False) -> SystemDiskLock:
        return SystemDiskLock(Path(path), content, with_folder=with_folder)

    def is_locked(self, path: PurePath) -> bool:
        return SystemDiskLock.is_held(Path(path))
