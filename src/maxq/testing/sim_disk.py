"""A disk that can lose its power, flip bits, fill up, turn read-only and fail to sync.

Every file has a **live** content, which the process sees, and a **durable** one, which is what the platters hold. The
same goes for the directory: creations, deletions, renames and lengths wait in a journal until something is synced,
and a power loss keeps a random prefix of what waits, as journaling file systems do. With `metadata_in_order` off only
what POSIX promises holds: a sync makes the one file or folder durable, and a crash keeps any subset of the rest.

A power loss keeps what was flushed. Of the rest it keeps a random part: page by page (4096 bytes) nothing, all, or
sector by sector (512 bytes) old, new, or torn within the sector at a drawn byte. Between operations the simulated
kernel may write pages back on its own, so that a file can also hold a mixture of several earlier moments.

`flush` of a region also makes the file's own directory entries durable, as `SystemDisk` does.

A sync that fails (`fail_flush`) is what it is on Linux: the kernel takes the pages that it could not write for clean
ones. Readers continue to see these bytes, in this process and in later ones on this machine. No later sync writes them
unless they were written again, and a loss of power restores the earlier bytes. The process itself is refused every
later sync of the file (`SyncFailedError`), as `SystemDisk` refuses it; the next process knows nothing of it.

Power can be cut from outside (`cut_power`) or after a number of disk operations (`cut_power_after`): then the
operation in which the countdown ends raises `PowerLoss`, half done. From there on every call raises `PowerLoss`; the
process is dead. `boot` returns the survivors as a disk for the next process.

Any call can be told to fail (`faults`). A call that does several things (`replace`: write, sync, rename, sync of the
folder) fails before one of them, and the ones before it are done; a write may have put a part of its bytes.

A store on a real loop makes files ahead on threads; every operation is a whole one for those.
"""

import errno
import fnmatch
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import wraps
from pathlib import PurePath
from threading import RLock
from typing import Concatenate, ParamSpec, TypeVar

from maxq.runtime.interfaces import Clock, DiskUsage, FileInfo, SyncFailedError
from maxq.testing.sim_directory import SimDirectory, parent
from maxq.testing.sim_file import PAGE, SimFile
from maxq.testing.sim_region import SimDiskLock, SimMappedRegion
from maxq.testing.sim_rng import SimRng

#: The errno with which one step of a call fails, 0 for none, from what it does and the path it does it to: read, list,
#: usage, make_dirs, open, create, write, replace, rename, delete, lock, put (bytes of a region), allocate, flush.
DiskFaults = Callable[[str, str], int]

P = ParamSpec("P")
T = TypeVar("T")


class PowerLoss(SystemExit):
    """The machine has lost its power at this point.

    A SystemExit because asyncio hands only that and KeyboardInterrupt through callbacks and tasks to whoever runs the
    loop, and because nothing in the code under test may catch it.
    """


def _alone(method: Callable[Concatenate["SimDisk", P], T]) -> Callable[Concatenate["SimDisk", P], T]:
    """Make one operation run at a time, whichever thread calls it."""

    @wraps(method)
    def whole(self: "SimDisk", /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._operating:
            return method(self, *args, **kwargs)

    return whole


@dataclass(frozen=True, slots=True)
class BitFlip:
    """One bit of a file that the simulator has changed."""

    path: str
    position: int  # byte in the file
    bit: int

    def __str__(self) -> str:
        return f"{self.path}: byte {self.position} bit {self.bit}"


class SimDisk:
    """Files in memory behind the interface `Disk`.

    Args:
        rng: what a crash keeps, and when the kernel writes back.
        clock: modification times.
        total_bytes: size of the partition; a file counts with its full length.
        sparse: instead, a mapped file counts with the pages that were allocated, as on a real disk; `unbacked` tells
            what was written elsewhere, which kills a real process when the disk is full.
        write_back: probability per operation that some dirty pages reach the platters on their own.
        metadata_in_order: False lets a crash keep any subset of the waiting directory changes.
        kill_keeps_cache: what a killed process had not flushed is in the system's memory, and no safer than before: the
            next process sees it, a loss of power may take it. Else it counts as flushed, but for what a failed sync
            dropped.
    """

    def __init__(
        self,
        rng: SimRng,
        clock: Clock,
        *,
        total_bytes: int = 1 << 34,
        write_back: float = 0.2,
        metadata_in_order: bool = True,
        sparse: bool = False,
        kill_keeps_cache: bool = False,
    ) -> None:
        self.rng = rng
        self.clock = clock
        self.total_bytes = total_bytes
        self.other_bytes = 0  # taken by somebody else on the same partition
        self.read_only = False
        self.operations = 0  # number of changing steps so far, on the scale of cut_power_after
        self.faults: DiskFaults = lambda kind, path: 0
        self.lost_at = ""  # operation and path at which cut_power_after cut the power
        self._write_back = write_back
        self._sparse = sparse
        self._kill_keeps_cache = kill_keeps_cache
        self._directory = SimDirectory(in_order=metadata_in_order)
        self._files = self._directory.live
        self._folders: set[str] = {"/", "."}
        self._locks: set[str] = set()
        self._failing_flushes: list[tuple[str, int]] = []  # (pattern, how often still)
        self._countdown = -1
        self._countdown_kills = False
        self.lost_process_only = False  # the disk's use was ended by a kill, and not by a loss of power
        self._survivors: dict[str, SimFile] | None = None
        self._kept: SimDirectory | None = None  # after a kill: the state that the system still has in memory
        self._operating: AbstractContextManager[object] = RLock()

    # -- failures to order --

    def cut_power_after(self, operations: int, *, process_only: bool = False) -> None:
        """Cut the power after `operations` more mutating steps; with `process_only` only the process is killed there,
        and the system keeps everything written."""
        self._countdown = operations
        self._countdown_kills = process_only

    def cut_power(self) -> None:
        """Cut the power now, and draw what survives. The call itself does not raise; the next operation does."""
        if self._survivors is None:
            self._survivors = self._draw_survivors()
            self._locks.clear()

    def kill_process(self) -> None:
        """Kill the process now; the system lives on. The call itself does not raise; the next operation does."""
        self.lost_process_only = True
        self._locks.clear()
        if self._kill_keeps_cache:
            self._kept = self._directory.copy()
        else:
            self._survivors = self._all_live()

    @property
    def is_dead(self) -> bool:
        return self._survivors is not None or self._kept is not None

    def boot(self) -> "SimDisk":
        """Return the disk after the power came back; without a power loss, what a killed process leaves (all live
        bytes)."""
        successor = SimDisk(
            self.rng.fork("boot"),
            self.clock,
            total_bytes=self.total_bytes,
            write_back=self._write_back,
            metadata_in_order=self._directory.in_order,
            sparse=self._sparse,
            kill_keeps_cache=self._kill_keeps_cache,
        )
        successor._folders = set(self._folders)
        if self._survivors is None and self._kill_keeps_cache:
            successor._directory = self._kept or self._directory.copy()
            successor._files = successor._directory.live
            return successor
        survivors = self._all_live() if self._survivors is None else self._survivors
        for path, inode in survivors.items():
            inode.allocated = inode.used_pages() if self._sparse else None
            successor._directory.put(path, inode)
        return successor

    def _all_live(self) -> dict[str, SimFile]:
        return {path: inode.written_back() for path, inode in self._files.items()}

    def tear_heads(self, pattern: str, most: int, rng: SimRng) -> int:
        """Make files whose path matches lose, in a loss of power, only the unsynced changes to their first bytes, at
        most `most`; all other writes to them survive.

        Returns:
            How many files are torn so; those of which nothing was missing there are as they were.
        """
        assert self._survivors is not None, "the power is gone"
        torn = 0
        for path, survivor in sorted(self._survivors.items()):
            inode = self._files.get(path)
            if inode is None or inode.lost_pages or not fnmatch.fnmatch(path, pattern):
                continue
            if len(survivor.live) != len(inode.live) or inode.live[:most] == inode.durable[:most]:
                continue
            cut = rng.between(1, most)
            content = bytearray(inode.durable[:cut].ljust(cut, b"\0") + inode.live[cut:])
            self._survivors[path] = SimFile(content, bytearray(content), inode.modified_ms)
            torn += 1
        return torn

    def fail_flush(self, pattern: str, times: int = 1) -> None:
        """Make the next `times` syncs of files whose path matches the pattern fail with EIO.

        As on Linux the kernel then forgets that the pages were dirty: a later sync succeeds and does not write them,
        unless they were modified again.
        """
        self._failing_flushes.append((pattern, times))

    def flip_bit(self, path: str | PurePath, position: int, bit: int, *, in_memory: bool = False) -> BitFlip:
        """Change one bit, in what the process sees and, unless it is `in_memory` alone, on the platters."""
        inode = self._files[_key(path)]
        inode.live[position] ^= 1 << bit
        if position < len(inode.durable) and not in_memory:
            inode.durable[position] ^= 1 << bit
        return BitFlip(_key(path), position, bit)

    def on_platters(self, path: str | PurePath) -> bytes:
        """Return the bytes of a file that a loss of power leaves."""
        return bytes(self._files[_key(path)].durable)

    def paths(self, pattern: str = "*") -> list[str]:
        """Return all files whose path matches, sorted."""
        return sorted(path for path in self._files if fnmatch.fnmatch(path, pattern))

    def put(self, path: str | PurePath, data: bytes) -> None:
        """Add a durable file that counts as having always existed; for setting up tests."""
        inode = SimFile(bytearray(data), bytearray(data), self.clock.wall_ms())
        self._directory.put(_key(path), inode)
        self._add_folders(parent(_key(path)))

    # -- Disk --

    @_alone
    def map(self, path: PurePath, size: int, *, read_only: bool = False) -> SimMappedRegion:
        key = _key(path)
        self.check_alive()
        inode = self._files.get(key)
        if not read_only:
            self._check_writable(key)
        if inode is None or (not inode.live and not read_only):
            if read_only:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), key)
            self._step("create", key)
            inode = self._create(key, size, sparse=self._sparse)
        else:
            self._fail("open", key)
        if len(inode.live) != size:
            raise ValueError(f"{path}: {len(inode.live)} bytes, expected {size}")
        return SimMappedRegion(self, key, inode, read_only=read_only)

    def ring(self, size: int, window: int) -> memoryview:
        return memoryview(bytearray(window))

    @_alone
    def read(self, path: PurePath) -> bytes:
        self.check_alive()
        key = _key(path)
        inode = self._inode(key)
        self._fail("read", key)
        return bytes(inode.live)

    @_alone
    def write(self, path: PurePath, data: bytes) -> None:
        key = _key(path)
        self._step("write", key)
        self._check_writable(key)
        self._check_space(key, len(data))
        inode = self._files.get(key)
        if inode is None:
            inode = self._create(key, 0)
        self._step("write", key)
        self._set_content(key, inode, b"")
        self._step("write", key)
        self._set_content(key, self._files[key], data)
        self._step("write", key)
        self._sync_whole(key)
        self._step("write", key)
        self._directory.sync_folder(parent(key))

    @_alone
    def replace(self, path: PurePath, data: bytes, *, private: bool = False) -> None:
        key = _key(path)
        temporary = key + ".tmp"
        self._step("replace", key)
        self._check_writable(key)
        self._check_space(temporary, len(data))
        self._create(temporary, 0)
        self._set_content(temporary, self._files[temporary], data)
        self._step("replace", key)
        self._sync_whole(temporary)
        self._step("replace", key)
        self._directory.rename(temporary, key)
        self._step("replace", key)
        self._directory.sync_folder(parent(key))

    @_alone
    def replace_with(self, path: PurePath, data: bytes, *, spare: PurePath) -> None:
        key, other = _key(path), _key(spare)
        self._step("replace", key)
        self._check_writable(key)
        self._set_content(other, self._inode(other), data)
        self._step("replace", key)
        self._sync_whole(other)
        self._step("replace", key)
        self._directory.swap(other, key)
        self._step("replace", key)
        self._directory.sync_folder(parent(key))

    @_alone
    def rename(self, source: PurePath, target: PurePath) -> None:
        old, new = _key(source), _key(target)
        self._step("rename", old)
        self._check_writable(old)
        if old in self._folders:
            self._rename_folder(old, new)
            return
        self._inode(old)
        self._directory.rename(old, new)
        self._step("rename", old)
        self._directory.sync_folder(parent(new))

    def _rename_folder(self, old: str, new: str) -> None:
        below = [key for key in self._files if key.startswith(old + "/")]
        for key in below:
            self._directory.rename(key, new + key[len(old) :])
        moved = {folder for folder in self._folders if folder == old or folder.startswith(old + "/")}
        self._folders = (self._folders - moved) | {new + folder[len(old) :] for folder in moved}
        self._step("rename", old)
        for folder in sorted({parent(key) for key in below}):
            self._directory.sync_folder(folder)

    @_alone
    def delete(self, path: PurePath) -> None:
        key = _key(path)
        self._step("delete", key)
        self._check_writable(key)
        self._inode(key)
        self._directory.unlink(key)
        self._step("delete", key)
        self._directory.sync_folder(parent(key))

    @_alone
    def delete_tree(self, path: PurePath) -> None:
        prefix = _key(path)
        self._step("delete", prefix)
        self._check_writable(prefix)
        for key in [key for key in self._files if key.startswith(prefix + "/")]:
            self._step("delete", key)
            self._directory.unlink(key)
            self._directory.sync_folder(parent(key))
        self._folders = {folder for folder in self._folders if folder != prefix and not folder.startswith(prefix + "/")}

    @_alone
    def make_dirs(self, path: PurePath) -> None:
        self.check_alive()
        if _key(path) not in self._folders:
            self._check_writable(_key(path))
            self._fail("make_dirs", _key(path))
            self._add_folders(_key(path))

    @_alone
    def exists(self, path: PurePath) -> bool:
        self.check_alive()
        return _key(path) in self._files or _key(path) in self._folders

    @_alone
    def stat(self, path: PurePath) -> FileInfo:
        self.check_alive()
        key = _key(path)
        if key in self._folders:
            return FileInfo(_name(key), 0, 0, True)
        return self._info(key)

    @_alone
    def list(self, path: PurePath) -> Sequence[FileInfo]:
        self.check_alive()
        folder = _key(path)
        self._fail("list", folder)
        files = [self._info(key) for key in self._files if parent(key) == folder]
        below = [key for key in self._folders if key != folder and parent(key) == folder]
        folders = [FileInfo(_name(key), 0, 0, True) for key in below]
        return sorted(files + folders, key=lambda entry: entry.name)

    @_alone
    def usage(self, path: PurePath) -> DiskUsage:
        self.check_alive()
        self._fail("usage", _key(path))
        used = min(self.total_bytes, self._used())
        return DiskUsage(self.total_bytes, used, self.total_bytes - used)

    @_alone
    def lock(self, path: PurePath, content: bytes, *, with_folder: bool = False) -> SimDiskLock:
        key = _key(path)
        self._step("lock", key)
        self._check_writable(key)
        if key in self._locks:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), key)
        if key not in self._files:
            self._create(key, 0)
        self._set_content(key, self._files[key], content)
        self._locks.add(key)
        return SimDiskLock(self, key)

    def is_locked(self, path: PurePath) -> bool:
        self.check_alive()
        return _key(path) in self._locks

    # -- used by regions and locks --

    @_alone
    def unlock(self, path: str) -> None:
        self._locks.discard(path)

    @_alone
    def flush_inode(self, path: str, inode: SimFile, start: int, end: int) -> None:
        """Run fdatasync of a range, with the file's length and its directory entries."""
        self._step("flush", path)
        if inode.sync_failed:
            raise SyncFailedError(errno.EIO, f"{os.strerror(errno.EIO)}: a sync of this file has failed before", path)
        if self.read_only:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        pages = range(start // PAGE, -(-end // PAGE))
        self._sync_may_fail(path, inode)
        inode.make_length_durable()
        for page in pages:
            inode.store_page(page)
        self._directory.sync_file(inode)
        inode.modified_ms = self.clock.wall_ms()
        self._step("flush", path)

    @_alone
    def write_again_inode(self, inode: SimFile, start: int, end: int) -> None:
        """Make pages of a mapped file dirty again."""
        self.check_alive()
        inode.modified(start, end)
        inode.sync_failed = False

    @_alone
    def put_bytes(self, path: str, inode: SimFile, position: int, data: memoryview) -> None:
        """Write to a mapped file by a call; one that fails may have put a part."""
        self.check_alive()
        number = self.faults("put", path)
        if number:
            data = data[: self.rng.below(len(data) + 1)]
        inode.live[position : position + len(data)] = data
        inode.modified(position, position + len(data))
        if number:
            raise OSError(number, os.strerror(number), path)

    @_alone
    def allocate_inode(self, path: str, inode: SimFile, start: int, end: int) -> None:
        """Allocate blocks for a range of a mapped file."""
        self.check_alive()
        self._fail("allocate", path)
        if inode.allocated is None:
            return
        missing = set(range(start // PAGE, -(-end // PAGE))) - inode.allocated
        self._check_space(path, len(missing) * PAGE)
        inode.allocated |= missing

    def unbacked(self) -> Sequence[tuple[str, int]]:
        """Return (path, page) of what was written to a mapped file where it has no blocks; for a sparse disk."""
        return [
            (path, page)
            for path, inode in self._files.items()
            if inode.allocated is not None
            for page in sorted(inode.used_pages() - inode.allocated)
        ]

    def check_alive(self) -> None:
        """Raise PowerLoss if the power of the machine is cut."""
        if self.is_dead:
            raise PowerLoss("power is off")

    # -- steps and checks --

    def _step(self, kind: str, path: str) -> None:
        """Cut the power or write back, by chance, between two mutating steps."""
        self.check_alive()
        self.operations += 1
        if self._write_back and self.rng.chance(self._write_back):
            self._write_back_some()
        if self._countdown >= 0:
            self._countdown -= 1
            if self._countdown < 0:
                self.lost_at = f"{kind} {path}"
                if self._countdown_kills:
                    self.kill_process()
                else:
                    self.cut_power()
                raise PowerLoss("power lost")
        if kind != "flush":  # whether a flush may fail is decided by _sync_may_fail
            self._fail(kind, path)

    def _fail(self, kind: str, path: str) -> None:
        number = self.faults(kind, path)
        if number:
            raise OSError(number, os.strerror(number), path)

    def _check_writable(self, key: str) -> None:
        if self.read_only:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), key)

    def _used(self) -> int:
        return self.other_bytes + sum(inode.blocks_bytes for inode in self._files.values())

    def _check_space(self, key: str, size: int) -> None:
        if self._used() + size > self.total_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), key)

    def _sync_may_fail(self, path: str, inode: SimFile) -> None:
        """Fail a sync by chance. All dirty pages of the file are then lost, not only the part that was to be synced."""
        number = self._flush_error(path)
        if number:
            for page in inode.dirty_pages():
                inode.lose_page(page)
            inode.sync_failed = True
            raise SyncFailedError(number, os.strerror(number), path)

    def _flush_error(self, path: str) -> int:
        for place, (pattern, times) in enumerate(self._failing_flushes):
            if times > 0 and fnmatch.fnmatch(path, pattern):
                self._failing_flushes[place] = (pattern, times - 1)
                return errno.EIO
        return self.faults("flush", path)

    def _inode(self, key: str) -> SimFile:
        inode = self._files.get(key)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), key)
        return inode

    def _info(self, key: str) -> FileInfo:
        inode = self._inode(key)
        return FileInfo(_name(key), len(inode.live), inode.modified_ms, False)

    # -- live changes --

    def _add_folders(self, folder: str) -> None:
        """Note that this folder and all folders above it exist."""
        while folder not in self._folders:
            self._folders.add(folder)
            folder = parent(folder)

    def _create(self, key: str, size: int, *, sparse: bool = False) -> SimFile:
        self._check_space(key, 0 if sparse else size)
        self._add_folders(parent(key))
        inode = SimFile(bytearray(size), bytearray(), self.clock.wall_ms())
        inode.allocated = set() if sparse else None
        self._directory.create(key, inode)
        return inode

    def _set_content(self, key: str, inode: SimFile, data: bytes) -> None:
        if len(inode.live) == len(data):
            inode.live[:] = data  # in place, because mappings refer to it
        else:
            changed = SimFile(bytearray(data), inode.durable, self.clock.wall_ms())
            self._directory.exchange(key, inode, changed)
        self._files[key].modified_ms = self.clock.wall_ms()

    # -- durability --

    def _sync_whole(self, key: str) -> None:
        inode = self._files[key]
        self._sync_may_fail(key, inode)
        inode.make_durable()

    def _write_back_some(self) -> None:
        """Write back some dirty pages of one file, as the kernel does by itself."""
        if not self._files:
            return
        inode = self._files[self.rng.choice(list(self._files))]
        if len(inode.durable) != len(inode.live):
            return  # the file's length is not in the journal yet
        for page in inode.dirty_pages():
            if self.rng.chance(0.5):
                inode.store_page(page)

    # -- the crash --

    def _draw_survivors(self) -> dict[str, SimFile]:
        names = self._directory.after_crash(self.rng)
        torn: dict[int, bytearray] = {}
        survivors = {}
        for path, inode in names.items():
            if id(inode) not in torn:
                torn[id(inode)] = inode.torn(self.rng, length_in_journal=self._directory.in_order)
            content = torn[id(inode)]
            survivors[path] = SimFile(content, bytearray(content), inode.modified_ms)
        return survivors


def _key(path: str | PurePath) -> str:
    return str(path if isinstance(path, PurePath) else PurePath(path))


def _name(key: str) -> str:
    return key.rpartition("/")[2]
