"""Durable files: the one place that syncs, renames, truncates and removes them.

Everything that must outlive a loss of power goes through here: log, queues, index, checkpoints, timer, compaction,
ledger, pop files, tables, manifests. A test (tests/unit/repository/test_durable_calls.py) forbids these calls of the
system elsewhere. The rules that this module keeps, so that its users need not know them:

* **A failed sync is final for the file.** Linux marks the pages that it could not write as clean: readers continue to
  see them, the next sync succeeds without writing them, and a loss of power restores the bytes from before. So nothing
  that a failed sync covered is durable, and every later sync of that file is refused with `SyncFailedError`, whoever
  asks and through whichever descriptor, until the bytes have been written again (`SyncedFile.written_again`). So
  everybody who relies on the file gets the error, even if somebody else asked for the sync that failed. A file that is
  replaced as a whole is written anew each time, so a failed replacement may simply be tried again.
* **A restart cures nothing.** A process that is started again sees the same pages and knows nothing of the failure. So
  a start after an unclean end writes again what no checkpoint calls durable, before it syncs and believes it
  (`MappedRegion.write_again`).
* **A name is content of its folder.** A file that was made, renamed or removed is that durably when its folder was
  synced; a rename touches two folders, a file in new folders as many as were made.
* **A write may be partial.** It is gone on with; one that takes nothing is an error of the device.

What stops a broker: `SyncFailedError` of the log, the queues, the index, a checkpoint, the ledger or the timer log.
Other failures are only retried: a lack of room (`store/files/disk_room.py`), and a failure to replace a table, because
the old file is intact. A replacement of many files is noted first, done name by name, and forgotten last
(`store/compaction/replacement.py`); each of the three is one call of this module.
"""

import contextlib
import ctypes
import errno
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path, PurePath
from threading import Lock
from typing import BinaryIO, Final

from maxq.lazy_dataclass import dataclass
from maxq.runtime.files.kernel_sync import Done, KernelSync
from maxq.runtime.interfaces import SyncFailedError

#: The loop waits for the disk during one part in so many of the time,
_SHARE: Final = 3
#: or for so long, if it has not for some time.
_BURST_NS: Final = 2_000_000
#: After a sync that took longer, which a thread's cost is little beside,
_SLOW_NS: Final = 1_000_000
#: the loop does not wait for this disk for so many times as long.
_REST: Final = 30

_BLOCK_UNIT: Final = 512  # unit of st_blocks in bytes
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
# a system call of Linux, in glibc since 2.28
_renameat2: Final = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)


class DurableFiles:
    """The durable files of one disk. Any thread may call; everything blocks."""

    def __init__(self) -> None:
        self.syncs = LoopSyncs()
        self.new = _NewFiles()
        # (device, inode) of a file whose sync failed → a descriptor that keeps the inode number taken
        self._failed: dict[tuple[int, int], int] = {}

    # --- files that are written in place ---

    def open(self, path: Path, *, read_only: bool) -> "SyncedFile":
        """Open a file that is mapped; if it is missing and not to be read only, make it and the folders above it.

        Raises:
            OSError: it is missing, or the system refuses.
        """
        try:  # usually the file exists; its folders are checked only if it does not
            fd = os.open(path, (os.O_RDONLY if read_only else os.O_RDWR) | os.O_CLOEXEC)
        except FileNotFoundError:
            if read_only:
                raise
            fd = self.new.create(path)
        return SyncedFile(self, path, fd)

    def sync(self, path: Path) -> None:
        """Make the content of a file durable that others have written. OSError if the device refuses."""
        file = SyncedFile(self, path, os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        try:
            file.sync()
        finally:
            file.close()

    # --- files that are written as a whole ---

    def write(self, path: Path, data: bytes) -> None:
        """Create or overwrite a file in place; not atomic."""
        folders = _make_folders(path.parent)
        _write_synced(path, data)
        _sync_folders(folders)

    def append(self, path: Path, data: bytes) -> None:
        """Append `data` to a file, which is made if it is missing. A failure may leave a part of it."""
        folders = [] if path.exists() else _make_folders(path.parent)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        try:
            write_all(fd, memoryview(data))
            os.fsync(fd)
        finally:
            os.close(fd)
        _sync_folders(folders)

    def cut(self, path: Path, size: int) -> None:
        """Truncate a file to `size` bytes, its length before a write that was not completed."""
        os.truncate(path, size)
        self.sync(path)

    def replace(self, path: Path, data: bytes, *, private: bool = False) -> None:
        """Replace a file atomically (see SmallFiles.replace)."""
        folders = _make_folders(path.parent)
        temporary = path.with_name(path.name + ".tmp")
        access = _access(path, private=private)
        if access is not None:
            temporary.unlink(missing_ok=True)  # a file left by a crash may be readable by everybody
        _write_synced(temporary, data, access)
        os.replace(temporary, path)
        _sync_folders(folders)

    @contextlib.contextmanager
    def replaced(self, path: Path) -> Iterator[BinaryIO]:
        """Open a file to write bytes that takes the name `path` when the block ends, durably and atomically. The file
        that had the name keeps its permissions and its owner, as in `replace`, and stays as it is if the block raises
        an error.

        Raises:
            OSError: the system refuses.
        """
        written = path.with_name(f"{path.name}.{os.urandom(6).hex()}.part")  # a name that no file of the user has
        access = _access(path, private=False)
        fd = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _mode(access))
        try:
            with os.fdopen(fd, "wb") as out:
                _give(fd, access)
                yield out
                out.flush()
                os.fsync(fd)
        except BaseException:
            written.unlink()
            raise
        self.rename(written, path)

    def replace_with(self, path: Path, data: bytes, *, spare: Path) -> None:
        """Replace the file `path` by `data`, durably, in the blocks of the file `spare`: it works on a full disk.

        Raises:
            OSError: ENOSPC if `data` is longer than the blocks of `spare`.
        """
        fd = os.open(spare, os.O_WRONLY | os.O_CLOEXEC)
        try:
            if len(data) > _BLOCK_UNIT * os.fstat(fd).st_blocks:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(spare))
            _give(fd, _access(path, private=False))
            write_all(fd, memoryview(data), 0)
            os.ftruncate(fd, len(data))
            os.fsync(fd)
        finally:
            os.close(fd)
        _exchange(spare, path)
        _sync_folders([path.parent, spare.parent])

    def put_new(self, path: Path, data: bytes, *, temporary: Path) -> bool:
        """Make a file with its whole content atomically, by way of `temporary` in the same folder, unless the name
        exists already.

        Returns:
            False: there is one.
        """
        self.write(temporary, data)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        finally:
            temporary.unlink()
        sync_folder(path.parent)
        return True

    # --- names ---

    def make_folders(self, folder: Path) -> None:
        """Make a folder and those above it, durably, if it is missing."""
        if not folder.exists():
            _sync_folders(_make_folders(folder))

    def add_name(self, source: Path, target: Path) -> None:
        """Give a file another name, or copy it on a file system without hard links."""
        try:
            os.link(source, target)
        except OSError:
            import shutil  # imported here: it is seldom needed and loads modules for all kinds of compressed files

            shutil.copyfile(source, target)
            self.sync(target)
        sync_folder(target.parent)

    def rename(self, source: Path, target: Path) -> None:
        """Give a file or folder another name, replacing what has that name. The folders of both are synced."""
        os.replace(source, target)
        _sync_folders([target.parent, source.parent])
        self.new.forget(source)
        self.new.forget_below(source)

    def delete(self, path: Path) -> None:
        """Delete a file (see Disk.delete)."""
        os.unlink(path)
        sync_folder(path.parent)
        self.new.forget(path)

    def delete_tree(self, path: Path) -> None:
        """Delete a folder with its content (see Disk.delete_tree)."""
        import shutil

        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)
            sync_folder(path.parent)
        self.new.forget_below(path)

    # --- used by SyncedFile ---

    def has_failed(self, key: tuple[int, int]) -> bool:
        """Returns whether a sync of this file failed and the file was not written again since."""
        return key in self._failed

    def failed(self, key: tuple[int, int], path: Path) -> None:
        """Note that a sync of this file failed."""
        if key not in self._failed:
            fd = -1
            with contextlib.suppress(OSError):  # the file is gone, or no descriptor is free
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self._failed[key] = fd

    def forgive(self, key: tuple[int, int]) -> None:
        """Note that everything which a failed sync of this file covered was written again or is no longer needed."""
        fd = self._failed.pop(key, -1)
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        for key in list(getattr(self, "_failed", ())):
            self.forgive(key)


class SyncedFile:
    """One open file whose content is written in place, by `pwrite` or through a mapping.

    Attributes:
        fd: its descriptor; -1 after `close`.
        size: how long it was when it was opened, bytes.
    """

    def __init__(self, files: DurableFiles, path: Path, fd: int) -> None:
        facts = os.fstat(fd)
        self._files = files
        self._path = path
        self._key = (facts.st_dev, facts.st_ino)
        self._unnamed = path in files.new  # its name may not be durable in its folder
        self.fd = fd
        self.size = facts.st_size

    def set_size(self, size: int) -> None:
        """Set the file's length to `size` bytes; new bytes read as zeros."""
        os.ftruncate(self.fd, size)

    def sync(self) -> None:
        """Make everything that was written to the file durable, and its name if it is new. Blocks.

        Raises:
            SyncFailedError: the device refuses, or refused before; see the module.
            OSError: a folder could not be synced; that may be tried again.
        """
        self._check()
        try:
            os.fdatasync(self.fd)
        except OSError as error:
            raise self._failure(error) from error
        self._check()  # a sync of another thread may have failed meanwhile and received the error
        if self._unnamed:
            self._files.new.make_durable(self._path)
            self._unnamed = False

    def sync_at_once(self) -> bool:
        """Sync on the event loop if that should take only a moment. Returns False if nothing was done."""
        self._check()
        if self._unnamed:
            return False
        try:
            is_done = self._files.syncs.at_once(self.fd)
        except OSError as error:
            raise self._failure(error) from error
        self._check()
        return is_done

    def sync_soon(self, done: Done) -> bool:
        """Begin the same beside the running loop. `done` is called on it with None or a SyncFailedError, and never from
        within; the file may be closed meanwhile. Returns False if that is not possible now; nothing was begun."""
        if self._unnamed or self._files.has_failed(self._key):
            return False  # `sync` will raise the reason

        def ended(error: OSError | None) -> None:
            if error is not None:
                error = self._failure(error)
            elif self._files.has_failed(self._key):
                error = self._earlier_failure()
            done(error)

        return self._files.syncs.begin(self.fd, ended)

    def written_again(self) -> None:
        """Note that everything which a failed sync may have covered was written again since: the outcome of the next
        sync counts."""
        self._files.forgive(self._key)

    def close(self) -> None:
        """Close the descriptor without syncing."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        # Whoever embeds a broker may drop it without shutting it down; select() in the same process ends at 1024.
        if getattr(self, "fd", -1) >= 0:
            os.close(self.fd)

    def _check(self) -> None:
        if self._files.has_failed(self._key):
            raise self._earlier_failure()

    def _failure(self, error: OSError) -> SyncFailedError:
        self._files.failed(self._key, self._path)
        return SyncFailedError(error.errno, error.strerror, str(self._path))

    def _earlier_failure(self) -> SyncFailedError:
        what = f"{os.strerror(errno.EIO)}: a sync of this file has failed before, and what it covered may be lost"
        return SyncFailedError(errno.EIO, what, str(self._path))


# --- what all of them are made of ---


def sync_folder(folder: PurePath) -> None:
    """Make the entries of a folder durable. Blocks. OSError if the device refuses."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:  # some network file systems do not know this call
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(fd)


def write_all(fd: int, data: memoryview, position: int | None = None) -> None:
    """Write all of `data`, format 'B', at `position` of an open file, or where its writing stands.

    Raises:
        OSError: the device refuses; a part may be written.
    """
    done = 0
    while done < len(data):
        rest = data[done:]
        written = os.write(fd, rest) if position is None else os.pwrite(fd, rest, position + done)
        if written <= 0:
            raise OSError(errno.EIO, f"the device took nothing of {len(rest)} bytes")
        done += written


@dataclass(frozen=True, slots=True)
class _Access:
    """Access rights of a file: numbers of the user and of the group that own it, and permission bits."""

    user: int
    group: int
    mode: int


def _access(path: Path, *, private: bool) -> _Access | None:
    """Return who may use the file that `path` is written anew as: who may use the present one, or else the one that was
    renamed to its .bak, or whose .bak it is. A private file is open to its owner alone, who is the folder's if it is
    new. None: it is a new file like any other."""
    other = path.with_suffix("") if path.suffix == ".bak" else path.with_name(path.name + ".bak")
    for before in (path, other):
        with contextlib.suppress(FileNotFoundError):
            facts = os.stat(before)
            return _Access(facts.st_uid, facts.st_gid, 0o600 if private else stat.S_IMODE(facts.st_mode))
    if not private:
        return None
    facts = os.stat(path.parent)
    return _Access(facts.st_uid, facts.st_gid, 0o600)


def _mode(access: _Access | None) -> int:
    """Return the permission bits with which a file is made that `_give` gives to others."""
    return 0o666 if access is None else 0o600


def _give(fd: int, access: _Access | None) -> None:
    """Give an open file to its users, as far as the file system knows them and this process may do that."""
    if access is None:
        return
    for user in (access.user, -1):  # only root gives files away, but others may give them to their groups
        with contextlib.suppress(OSError):
            os.fchown(fd, user, access.group)
            break
    is_same_group = os.fstat(fd).st_gid == access.group
    with contextlib.suppress(OSError):
        os.fchmod(fd, access.mode & (0o7777 if is_same_group else ~stat.S_IRWXG & 0o7777))


def _write_synced(path: Path, data: bytes, access: _Access | None = None) -> None:
    """Make the file with these bytes, open to those whom `access` names. An OSError names it."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _mode(access))
    try:
        _give(fd, access)
        write_all(fd, memoryview(data))
        os.fsync(fd)
    except OSError as error:
        error.filename = error.filename or str(path)
        raise
    finally:
        os.close(fd)


def _exchange(first: Path, second: Path) -> None:
    """Exchange the names of two files atomically. On a file system that cannot do that, the first takes the second's
    name atomically, and the second gets the first's by way of a third name. If a file has only one name there, the
    second is deleted. If the second file does not exist, the first is renamed to it."""
    names = os.fsencode(first), os.fsencode(second)
    if _renameat2 is not None and _renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
        return
    number = errno.ENOSYS if _renameat2 is None else ctypes.get_errno()
    if number == errno.ENOENT:  # there is no second file yet
        os.replace(first, second)
        return
    if number not in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        raise OSError(number, os.strerror(number), str(first), None, str(second))
    third = second.with_name(second.name + ".old")
    third.unlink(missing_ok=True)  # left by a crash in between
    with contextlib.suppress(OSError):
        os.link(second, third)
    os.replace(first, second)
    with contextlib.suppress(FileNotFoundError):
        os.replace(third, first)


def _make_folders(folder: Path) -> list[Path]:
    """Create it with those above it; returns the folders whose entries a new file in it adds to, the innermost
    first."""
    changed = [folder]
    while not changed[-1].exists():
        changed.append(changed[-1].parent)
    folder.mkdir(parents=True, exist_ok=True)
    return changed


def _sync_folders(folders: list[Path]) -> None:
    for folder in dict.fromkeys(folders):
        sync_folder(folder)


class _NewFiles:
    """Files that were made here and whose names a loss of power could still take.

    Which mapping of a file made it does not matter: the one that is flushed may be another, when the file was made
    ahead on a thread, or given up and mapped again. So all threads share one table: path of a new file → folders that
    must be synced before its content is safe.
    """

    def __init__(self) -> None:
        self._folders: dict[Path, tuple[Path, ...]] = {}
        self._making = Lock()

    def create(self, path: Path) -> int:
        """Open a file that was not there, for reading and writing; make the folders above it.

        Returns:
            Its descriptor. Another thread may have made it meanwhile.
        """
        with self._making:  # a file is listed before any other thread can see it
            self._folders[path] = (*self._folders.get(path, ()), *_make_folders(path.parent))
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def __contains__(self, path: Path) -> bool:
        return path in self._folders

    def make_durable(self, path: Path) -> None:
        """Make the file's name durable. Blocks.

        Raises:
            OSError: the device refuses; the file stays on the list.
        """
        folders = self._folders.get(path, ())
        try:
            _sync_folders(list(folders))
        except FileNotFoundError:
            if path.exists():
                raise
            # The file, or a folder above it, was deleted or renamed meanwhile.
        if self._folders.get(path) is folders:
            self._folders.pop(path, None)

    def forget(self, path: Path) -> None:
        """Forget a file that was deleted, or has another name."""
        self._folders.pop(path, None)

    def forget_below(self, folder: Path) -> None:
        """Forget all new files in a folder that was deleted."""
        for path in [path for path in self._folders.copy() if path.is_relative_to(folder)]:
            self.forget(path)


class LoopSyncs:
    """Syncs a disk for code that runs on a loop: at once if that takes a moment, else by the kernel beside the loop.

    A quick disk syncs a page in 0.2 ms. A thread would double that time: it has to wake up, the interpreter lock is
    passed twice, and the event loop takes further turns. But a loop that waits for the disk does nothing else, so it
    does that for a part of the time only, and not while the disk is slow.
    """

    def __init__(self) -> None:
        self._kernel = KernelSync()
        self._debt_ns = 0  # time the loop has waited that must still be earned
        self._looked_ns = 0
        self._not_before_ns = 0

    def at_once(self, fd: int) -> bool:
        """Run fdatasync here and now, if that should take a moment. Returns False, and does nothing, if it would take
        longer.

        Raises:
            OSError: the device refuses.
        """
        began = time.monotonic_ns()
        if began < self._not_before_ns:
            return False
        debt = self._debt_ns = max(0, self._debt_ns - (began - self._looked_ns) // _SHARE)
        self._looked_ns = began
        if debt > _BURST_NS:
            return False
        os.fdatasync(fd)
        ended = time.monotonic_ns()
        self._debt_ns += ended - began
        if ended - began > _SLOW_NS:
            self._not_before_ns = ended + _REST * (ended - began)
        return True

    def begin(self, fd: int, done: Done) -> bool:
        """Implements `KernelSync.begin`."""
        return self._kernel.begin(fd, done)
