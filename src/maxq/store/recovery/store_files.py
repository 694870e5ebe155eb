"""Small files that guard a store: lock, abort; and the reasons for not starting on one."""

import contextlib
from collections.abc import Iterator
from pathlib import PurePath

from maxq.errors import StoreRefusedError
from maxq.runtime.interfaces import Disk, DiskLock
from maxq.store.context.store_context import StoreContext
from maxq.store.files.mapped_file import MappedFile, offset_to_file_name
from maxq.store.files.mapped_file_queue import is_offset_name
from maxq.store.files.store_inventory import INVENTORY_FILE, StoreInventory

_DEFAULT_MEMORY = 8 << 30
_MEMBER = "dledger-"  # prefix of a member's folder in the store; its id follows


class StoreLock:
    """The file `lock`, by which only one process at a time uses a store (exclusive lock of its first byte; content
    `lock`). A log that is not below the store's folder has one of its own, `.maxq/lock`: two brokers of different
    folders may be told to keep their logs in one."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._held: list[DiskLock] = []
        self._takers = 0

    def take(self) -> None:
        """Take the lock. A holder may take it again, and then has to release it as often.

        Raises:
            StoreRefusedError: another process holds it.
            OSError: the disk refuses.
        """
        if not self._takers:
            self._take_all()
        self._takers += 1

    def _take_all(self) -> None:
        root, log = self._context.root, self._context.commit_log_folder
        folders = [(root / "lock", "runs on this store", "storePathRootDir")]
        if root not in log.parents:
            setting = "storePathDLedgerCommitLog" if self._context.is_dledger else "storePathCommitLog"
            folders.append((log / ".maxq" / "lock", "has its log in this folder", setting))
        try:
            for path, what, setting in folders:
                self._take(path, what, setting)
        except BaseException:
            self._release_all()
            raise

    def _take(self, path: PurePath, what: str, setting: str) -> None:
        try:
            self._held.append(self._context.disk.lock(path, b"lock", with_folder=True))
        except BlockingIOError:
            raise StoreRefusedError(
                f"{path} is locked: another broker {what}. Stop it, or set {setting} to another folder."
            ) from None

    def release(self) -> None:
        """Release the lock, so that another process can open the store."""
        self._takers = max(0, self._takers - 1)
        if not self._takers:
            self._release_all()

    def _release_all(self) -> None:
        while self._held:
            self._held.pop().release()


class AbortFile:
    """The file `abort`, which exists while a broker runs: found at a start, it means that the last exit was not
    clean."""

    def __init__(self, context: StoreContext) -> None:
        self._disk = context.disk
        self.path = context.root / "abort"

    def exists(self) -> bool:
        """Returns whether the file exists: the last exit was not clean, or a broker runs."""
        return self._disk.exists(self.path)

    def create(self) -> None:
        """Create the file: a broker runs from now on. It is durable on return."""
        if not self.exists():
            self._disk.write(self.path, b"maxq")

    def remove(self) -> None:
        """Delete the abort file, which says that the store was not shut down cleanly."""
        if self.exists():
            self._disk.delete(self.path)


def refuse_foreign_store(context: StoreContext) -> None:
    """Stores whose queues are in RocksDB cannot be read here, and must not be rebuilt in silence.

    Raises:
        StoreRefusedError: such a store.
    """
    for folder in ("consumequeue", "consumequeue_rocksdb"):
        path = context.root / folder / "CURRENT"
        if context.disk.exists(path):
            raise StoreRefusedError(
                f"{path} is there: the ConsumeQueues of this store are in RocksDB (storeType=defaultRocksDB), "
                "which MaxQ does "
                f"not read. Let the Java broker write files (rocksdbCQDoubleWriteEnable), or move {path.parent} away: "
                "the queues are then rebuilt from the log."
            )
    if "," in context.config.store_path_commit_log:
        raise StoreRefusedError(
            f"storePathCommitLog={context.config.store_path_commit_log}: MaxQ has one folder for the log, and would "
            "not read the others. Move all its files into one folder, and set storePathCommitLog to that."
        )


def refuse_other_log(context: StoreContext) -> None:
    """Refuse to start beside the entries of a DLedger member that these settings do not name: as without
    enableDLegerCommitLog, or with another dLegerSelfId. Its messages would be missing, and others would get their
    places in queues.

    Raises:
        StoreRefusedError: the folder has logs of members, but not of the one that the settings name.
    """
    members = [
        entry.name for entry in context.disk.list(context.root)
        if entry.is_dir and entry.name.startswith(_MEMBER) and _has_entries(context.disk, context.root / entry.name)
    ]  # fmt: skip
    own = context.dledger_folder.name if context.is_dledger else ""
    if not members or own in members:
        return
    name = members[0].removeprefix(_MEMBER)
    found = f"{context.root / members[0]} holds the log of member {name} of a DLedger group, but "
    if context.is_dledger:
        raise StoreRefusedError(
            f"{found}dLegerSelfId is {context.config.dleger_self_id}. Set dLegerSelfId={name}, or set storePathRootDir "
            f"to the folder of member {context.config.dleger_self_id}; to begin without that log, move it away."
        )
    raise StoreRefusedError(
        f"{found}enableDLegerCommitLog is false. Set enableDLegerCommitLog=true and dLegerSelfId={name}; to give its "
        "messages up, move that folder away."
    )


def _has_entries(disk: Disk, folder: PurePath) -> bool:
    """Returns whether a DLedger member's folder has data files, or, if those are elsewhere, index files."""
    return any(is_offset_name(entry.name) for name in ("data", "index") for entry in disk.list(folder / name))


def refuse_lost_log(context: StoreContext, last: MappedFile | None, inventory: StoreInventory | None) -> None:
    """Refuse to start if the log has no file although it had messages, or lacks its newest files. The start would take
    the store for a new one and delete the queues, when perhaps a disk is not mounted, or give the places of messages
    that are elsewhere to others.

    Args:
        last: the newest file of the log; None if it has none.
        inventory: None if there is none.

    Raises:
        StoreRefusedError: there were.
    """
    queues = context.consume_queue_folder
    if last is not None:
        if inventory is not None and inventory.dispatched_offset > last.end_offset:
            raise StoreRefusedError(
                f"{context.commit_log_folder} has no file {offset_to_file_name(last.end_offset)}, but the queues were "
                f"complete up to physical offset {inventory.dispatched_offset}. Bring the missing files back; to give "
                f"their messages up, delete {context.root / INVENTORY_FILE}."
            )
        return
    if inventory is not None and inventory.is_whole:
        if inventory.dispatched_offset == 0:
            return  # a loss of power has removed the first file, of which nothing was durable
        reason = f"its queues were complete up to physical offset {inventory.dispatched_offset}"
    elif any(_has_files(context.disk, queues / topic.name) for topic in context.disk.list(queues) if topic.is_dir):
        reason = f"{queues} has queues of messages"
    else:
        return
    raise StoreRefusedError(
        f"{context.commit_log_folder} has no file of the log, but {reason}. Mount the disk, bring the files back, or "
        f"set storePathCommitLog to where they are; to give these messages up, delete {queues} and "
        f"{context.root / INVENTORY_FILE}."
    )


def _has_files(disk: Disk, topic: PurePath) -> bool:
    return any(
        is_offset_name(entry.name)
        for queue in disk.list(topic)
        if queue.is_dir
        for entry in disk.list(topic / queue.name)
    )


@contextlib.contextmanager
def refusing(context: StoreContext) -> Iterator[None]:
    """Turn errors of the disk at start into a refusal that says what to do.

    Raises:
        StoreRefusedError: instead of PermissionError and other OSError.
    """
    try:
        yield
    except PermissionError as error:
        raise StoreRefusedError(
            f"a file of the store {context.root} cannot be read or written: {error}. Give this user permission to read "
            "and write it, or set storePathRootDir."
        ) from error
    except OSError as error:
        raise StoreRefusedError(
            f"the store {context.root} cannot be used: {error}. Mount it writable, free space, or set storePathRootDir."
        ) from error


def machine_memory(disk: Disk) -> int:
    """Return the physical memory in bytes, from /proc/meminfo; 8 GiB where there is none."""
    try:
        for line in disk.read(PurePath("/proc/meminfo")).decode().splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return _DEFAULT_MEMORY
