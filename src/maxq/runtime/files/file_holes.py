"""Where a file has no data, and how to read over such places.

When a hole of a tmpfs file is read through a mapping, the kernel allocates a page for it: without free memory the
reader is killed (SIGBUS), and otherwise mere reading uses up memory. So such a file is mapped only where it has data;
the addresses between are untouched memory. No other file system does that.

A writer's file is mapped so when there is less room than it has holes: a broker that was killed on a full disk reads
its files when it starts there again. Writers allocate blocks before they write, and what has blocks is mapped.
"""

import ctypes
import errno
import mmap
import os

_PROTECTION = mmap.PROT_READ | mmap.PROT_WRITE
_FIXED = 0x10  # MAP_FIXED
_NO_RESERVE = 0x4000  # MAP_NORESERVE
_FAILED = ctypes.c_void_p(-1).value
_TMPFS = 0x01021994  # f_type, the first word of struct statfs
_STATFS_WORDS = 32  # more words than struct statfs has
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]


def data_ranges(fd: int, start: int, end: int) -> list[tuple[int, int]]:
    """Return the parts of bytes [start, end) of an open file that are not holes; everything where the file system
    cannot tell."""
    ranges: list[tuple[int, int]] = []
    while start < end:
        try:
            begin = os.lseek(fd, start, os.SEEK_DATA)
            start = os.lseek(fd, begin, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # no data behind start
                break
            return [*ranges, (start, end)]
        if begin < end:
            ranges.append((begin, min(start, end)))
    return ranges


def holes_take_room(fd: int, size: int) -> bool:
    """Return whether an open file of `size` bytes has holes that would be filled by reading them through a mapping."""
    facts = (ctypes.c_long * _STATFS_WORDS)()
    if _libc.fstatfs(fd, facts) or facts[0] != _TMPFS:
        return False
    return sum(stop - begin for begin, stop in data_ranges(fd, 0, size)) < size


def holes_lack_room(fd: int, size: int) -> bool:
    """Return whether an open file of `size` bytes has more holes that reading would fill than its file system has room
    for."""
    if not holes_take_room(fd, size):
        return False
    facts = os.fstatvfs(fd)
    data = sum(stop - begin for begin, stop in data_ranges(fd, 0, size))
    return facts.f_bavail * facts.f_frsize < size - data


class HoledMemory:
    """The bytes of an open file, mapped where it has data.

    Attributes:
        memory: the bytes, zeros in holes; mapped for as long as somebody holds it. Writes stay in this memory, unless
            it is `shared`: then they go to the file, and a write to a hole ends the process. Blocks come first.
    """

    def __init__(self, fd: int, size: int, *, shared: bool = False) -> None:
        """`fd` stays open for `catch_up`.

        Raises:
            OSError: the kernel gives no more mappings (vm.max_map_count), each stretch of data needs one.
        """
        self._fd = fd
        self._kind = mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
        self.memory = mmap.mmap(-1, size, flags=flags, prot=_PROTECTION)
        if shared:
            _libc.mprotect(ctypes.addressof(ctypes.c_char.from_buffer(self.memory)), size, mmap.PROT_READ)
        self._holes = [(0, size)]
        self.catch_up()

    def catch_up(self) -> None:
        """Show in `memory` what was written into holes of the file since. Earlier writes to `memory` there are lost."""
        left: list[tuple[int, int]] = []
        for start, end in self._holes:
            for begin, stop in data_ranges(self._fd, start, end):
                self._show(begin, stop)
                if start < begin:
                    left.append((start, begin))
                start = stop
            if start < end:
                left.append((start, end))
        self._holes = left

    def has_blocks(self, begin: int, stop: int) -> None:
        """Note that pages [begin, stop), which the file system still calls a hole, have blocks now: they may be
        written."""
        left: list[tuple[int, int]] = []
        for start, end in self._holes:
            first, last = max(start, begin), min(end, stop)
            if first >= last:
                left.append((start, end))
                continue
            self._show(first, last)
            left += [part for part in ((start, first), (last, end)) if part[0] < part[1]]
        self._holes = left

    def _show(self, begin: int, stop: int) -> None:
        here = ctypes.addressof(ctypes.c_char.from_buffer(self.memory, begin))
        flags = self._kind | _FIXED | _NO_RESERVE
        if _libc.mmap(here, stop - begin, _PROTECTION, flags, self._fd, begin) == _FAILED:
            code = ctypes.get_errno()
            raise OSError(code, f"bytes {begin} to {stop} of a file with holes are not mapped: {os.strerror(code)}")
