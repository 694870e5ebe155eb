"""Interfaces of the outside world for store, broker, name server and client: clock, disk and random numbers.

The real ones are in `system.py`; the simulated ones in `maxq.testing`. The network is the running asyncio loop.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Protocol

from maxq.lazy_dataclass import dataclass


class Clock(Protocol):
    """Two kinds of time that must not be mixed."""

    def wall_ms(self) -> int:
        """Return milliseconds since 1970: store and born timestamps. May jump either way."""
        ...

    def monotonic_ms(self) -> int:
        """Return milliseconds from an arbitrary start: timeouts and durations. Never goes back."""
        ...

    def monotonic_ns(self) -> int:
        """Return nanoseconds from an arbitrary start, for latency statistics."""
        ...


class Rng(Protocol):
    """A source of random numbers."""

    def below(self, bound: int) -> int:
        """Return a uniform integer in [0, bound)."""
        ...

    def bytes(self, count: int) -> bytes:
        """Return `count` random bytes."""
        ...


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One directory entry. `size` is in bytes, 0 for a directory; `modified_ms` is wall time."""

    name: str
    size: int
    modified_ms: int
    is_dir: bool


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Bytes of a partition: all, taken, and free to this process."""

    total: int
    used: int
    free: int


class SyncFailedError(OSError):
    """A sync failed, now or before: nothing that it covered is durable, though the system shows it and a later sync
    might succeed. It is final until the bytes have been written again (`MappedRegion.write_again`)."""


class MappedRegion(ABC):
    """One file of fixed size in memory: of CommitLog, ConsumeQueue, IndexFile, checkpoint.

    `flush` blocks (fdatasync of a range) and is called through `loop.run_in_executor` by whoever runs on a loop. After
    `close` the view must not be used through this object; slices that readers still hold stay valid until they drop
    them (an unlinked file lives as long as its mapping). Methods that are not abstract are those that a file system may
    lack.
    """

    @property
    @abstractmethod
    def view(self) -> memoryview:
        """Return the bytes (format 'B'), as long as the file; writable unless the file was mapped read-only."""

    @abstractmethod
    def flush(self, start: int, end: int) -> None:
        """Make bytes [start, end) durable before returning, and the file's directory entry if it is new.

        Raises:
            SyncFailedError: the device refuses, or has refused a sync of this file before, through whichever mapping.
            OSError: a folder could not be synced; that may be tried again.
        """

    @abstractmethod
    def write(self, position: int, data: memoryview) -> None:
        """Write bytes to the place that `view` shows, as an assignment to it would, without a page fault for every
        page. Raises OSError if the device refuses."""

    @abstractmethod
    def write_again(self, start: int, end: int) -> None:
        """Write bytes [start, end), as `view` shows them, to the device again at the next flush: the caller does not
        know whether a sync of them failed once, here or in an earlier process, and knows that the rest of the file
        is durable. This forgives a failed sync. Holes stay holes. No other caller may write there meanwhile. Blocks.
        Raises OSError if the device refuses."""

    def populate(self, start: int, end: int) -> None:
        """Back [start, end) with real pages ahead of use. A hint; blocks."""

    def forget(self, start: int, end: int) -> None:
        """Release the memory of [start, end), which is durable and will not be read soon. A hint; blocks."""

    @abstractmethod
    def allocate(self, start: int, end: int) -> None:
        """Allocate blocks of the file system for [start, end), so that writing there cannot fail for lack of room;
        contents stay as they are. OSError (ENOSPC, EDQUOT) if there is no room. Milliseconds at most."""

    def discard(self, start: int, end: int) -> bool:
        """Release the blocks of whole pages [start, end), which then read as zeros. Returns False if the file system
        cannot."""
        return False

    def data_ranges(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of [start, end) that may hold data: holes of a sparse file are left out."""
        return [(start, end)]

    def load(self, start: int, end: int) -> None:
        """Bring [start, end) into memory and keep the interpreter free meanwhile: a fault would hold up every thread.
        Blocks.

        Raises:
            OSError: the device cannot read it; a touch would end the process (SIGBUS).
        """

    def is_resident(self, start: int, end: int) -> bool:
        """Return True if all of [start, end) is in memory; False also if that is unknown."""
        return False

    def bring_in(self, start: int, end: int) -> None:
        """Load [start, end) unless it is in memory. For a touch of a few bytes that may lie on the disk alone, by a
        caller that would wait for them anyway. Blocks.

        Raises:
            OSError: the device cannot read them; a touch would end the process.
        """
        if not self.is_resident(start, end):
            self.load(start, end)

    def touch_by_page(self) -> None:
        """Make the first access to a page load that page alone, for a writer of small parts of an empty file: a hint.
        By default the kernel reads ahead, and zeroes as much of a fresh file: 16 MiB in one fault where the device
        reads 8 MiB ahead."""

    def flush_at_once(self) -> bool:
        """Make everything written durable at once, if that should take only a moment. Returns False, without an
        attempt, otherwise: use `flush_soon` or `flush`. Raises OSError if the device refuses."""
        return False

    def flush_soon(self, done: Callable[[OSError | None], None]) -> bool:
        """Begin to make everything written durable. `done` is called on the running loop when it is, with None, or with
        the device's refusal, and never from within. Returns False if that is not possible now: use `flush`."""
        return False

    @abstractmethod
    def close(self) -> None:
        """Release the mapping without flushing."""


class DiskLock(Protocol):
    """An exclusive advisory lock on a file; the kernel drops it when the process dies."""

    def release(self) -> None: ...


class SmallFiles(Protocol):
    """The disk operations that clients use: files that are read and replaced as a whole. All methods block."""

    def read(self, path: PurePath) -> bytes:
        """Return the whole file; raises FileNotFoundError if it does not exist."""
        ...

    def replace(self, path: PurePath, data: bytes, *, private: bool = False) -> None:
        """Replace a file atomically and durably: temporary file, sync, rename over `path`, sync of the folder. Call it
        for one path once at a time: the temporary name is fixed, so that what a crash leaves behind is overwritten.
        A file that is replaced keeps its permissions, and its owner if this user may give files away; a missing file
        takes those of the one that was renamed to its .bak, and a new .bak those of its file. `private`: only the
        file's owner may read it: the owner before, or the folder's owner if it is new; the user who runs this if that
        one may not give files away."""
        ...

    def make_dirs(self, path: PurePath) -> None: ...

    def exists(self, path: PurePath) -> bool: ...

    def stat(self, path: PurePath) -> FileInfo:
        """Return facts about a file; raises FileNotFoundError if it does not exist."""
        ...

    def lock(self, path: PurePath, content: bytes, *, with_folder: bool = False) -> DiskLock:
        """Create the file with `content` and lock byte 0; BlockingIOError if another process holds it. With
        `with_folder` the lock also holds if its file was deleted since."""
        ...


class Disk(SmallFiles, Protocol):
    """Files. All methods block; paths are absolute or relative to the working directory. Errors are OSError."""

    def map(self, path: PurePath, size: int, *, read_only: bool = False) -> MappedRegion:
        """Map the whole file. Missing (and not read_only): created sparse, zero-filled, `size` bytes, with the
        folders above it. A file of another length: ValueError naming path, length and `size`; nothing changes."""
        ...

    def ring(self, size: int, window: int) -> memoryview:
        """Return `window` bytes of zeros (a multiple of `size`) of which each is the same as the one `size` bytes
        further: a writer that goes through a file of that length needs no more memory than `size`."""
        ...

    def write(self, path: PurePath, data: bytes) -> None:
        """Create or overwrite in place; durable on return (file and folder), not atomic."""
        ...

    def replace_with(self, path: PurePath, data: bytes, *, spare: PurePath) -> None:
        """Replace a file in the blocks of the file `spare`, which gets those of the old one for the next time: this
        works on a full disk. Where names cannot be exchanged, `spare` is deleted by it."""
        ...

    def rename(self, source: PurePath, target: PurePath) -> None:
        """Give a file or a folder, with all below it, another name: atomic, and durable on return."""
        ...

    def delete(self, path: PurePath) -> None:
        """Delete a file, durably: it does not come back after a loss of power. Raises FileNotFoundError if it does not
        exist. Mappings of it stay usable."""
        ...

    def delete_tree(self, path: PurePath) -> None:
        """Delete a folder and everything below, durably; does nothing if it does not exist. Not atomic."""
        ...

    def list(self, path: PurePath) -> Sequence[FileInfo]:
        """Return the entries sorted by name; empty if the folder is missing."""
        ...

    def usage(self, path: PurePath) -> DiskUsage:
        """Returns the usage of the partition that holds `path` (or its nearest existing parent)."""
        ...

    def is_locked(self, path: PurePath) -> bool:
        """Return whether a living process, this one or another, holds the lock. Changes nothing."""
        ...
