"""What a store directory holds, found by looking: files, their start offsets and sizes.

A directory tells nothing about the settings of its broker, so sizes are read from the files themselves; `StoreSettings`
(from a broker.conf, if there is one at hand) says what cannot be seen.
"""

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import PurePath
from typing import Final

from maxq.config.properties import parse_properties
from maxq.errors import ConfigError, StoreError
from maxq.runtime.interfaces import Disk, FileInfo
from maxq.store.files.store_inventory import INVENTORY_FILE, StoreInventory, decode_inventory
from maxq.store.log.deletions import FILE_NAME, decode_table
from maxq.store.recovery.filled_ranges_file import FILLED_RANGES_FILE, decode_ranges

#: Settings that name folders of the log; storePathCommitLog may name several.
_LOG_FOLDERS: Final = ("storePathCommitLog", "storePathDLedgerCommitLog")
#: Value of messageDelayLevel unless it was changed.
DEFAULT_DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault: its place, its description, and its remedy."""

    file: str
    position: int  # byte in the file
    what: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.file}: byte {self.position}: {self.what}" + (f" ({self.remedy})" if self.remedy else "")


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a sequence, whose name is its start offset in bytes."""

    path: PurePath
    from_offset: int
    size: int


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Settings of the broker that the files do not show; defaults are RocketMQ's."""

    log_folders: tuple[PurePath, ...] = ()  # empty: <root>/commitlog
    hash_slots: int = 0  # slots of an index file; 0: inferred from the files
    index_entries: int = 0
    index_enabled: bool = True
    delay_levels_ms: tuple[int, ...] = ()  # delay_levels_ms[0] is level 1
    properties: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_properties(cls, text: bytes | str, *, source: str = "broker.conf") -> "StoreSettings":
        """Read the settings of a broker.conf.

        Raises:
            ConfigError: a value that is not a number where one is needed; names source, key and value.
        """
        found = parse_properties(text, source=source)
        folders = found.get("storePathCommitLog", "")
        return cls(
            log_folders=tuple(PurePath(part) for part in folders.split(",") if part),
            hash_slots=_number(found, "maxHashSlotNum", source),
            index_entries=_number(found, "maxIndexNum", source),
            index_enabled=found.get("messageIndexEnable", "true").lower() == "true",
            delay_levels_ms=parse_delay_levels(found.get("messageDelayLevel", DEFAULT_DELAY_LEVELS), source=source),
            properties=found,
        )

    def of_store(self, root: PurePath) -> "StoreSettings":
        """Return these settings with the log's folders as those of the store in `root`.

        If broker.conf names another folder (storePathRootDir), `root` is a copy, and a folder of the log within
        storePathRootDir stands for the same one within `root`.

        Raises:
            ConfigError: `root` is a copy, and the log of the original is outside of storePathRootDir.
        """
        moved = dict(self.properties)
        for name in _LOG_FOLDERS:
            if moved.get(name):
                moved[name] = ",".join(
                    str(self._folder_of(part, name, root)) for part in moved[name].split(",") if part
                )
        if moved == self.properties:
            return self
        moved["storePathRootDir"] = str(root)
        folders = tuple(PurePath(part) for part in moved.get("storePathCommitLog", "").split(",") if part)
        return replace(self, log_folders=folders, properties=moved)

    def _folder_of(self, folder: str, setting: str, root: PurePath) -> PurePath:
        place = _absolute(folder)
        original = self.properties.get("storePathRootDir", "")
        for known in (str(root), original):
            if known and place.is_relative_to(_absolute(known)):
                return root / place.relative_to(_absolute(known))
        if original and _absolute(original) != _absolute(str(root)):
            raise ConfigError(
                f"broker.conf is for the store {original} and has its log elsewhere ({setting}={folder}), so it does"
                f" not say where the log of {root} is; give a file whose storePathRootDir is {root}, with the"
                f" {setting} that belongs to it"
            )
        return PurePath(folder)


def _absolute(path: str) -> PurePath:
    return PurePath(os.path.abspath(path))


def _number(found: Mapping[str, str], key: str, source: str) -> int:
    text = found.get(key, "0")
    if not text.isdecimal():
        raise ConfigError(f"{source}: {key}={text} is not a number; give a count of 1 or more")
    return int(text)


def parse_delay_levels(text: str, *, source: str = "messageDelayLevel") -> tuple[int, ...]:
    """`1s 5s 10m …` → milliseconds, level 1 first."""
    levels = []
    for part in text.split():
        if part[-1] not in _UNIT_MS or not part[:-1].isdecimal():
            raise ConfigError(f"{source}: delay level {part!r} is not a number with s, m, h or d behind it")
        levels.append(int(part[:-1]) * _UNIT_MS[part[-1]])
    return tuple(levels)


class StoreFiles:
    """The files of one store directory at one moment.

    Attributes:
        log: CommitLog files by start offset.
        dledger: True if the log is a DLedger one (`dledger-<id>/data`): entries with 48-byte heads. A mixed log has
            files of before DLedger below `divided_offset`.
        dledger_folder: `dledger-<id>`; None if there is none.
        queues, batch_queues, ext_queues: files by (topic, queue id), by start offset.
        index: IndexFiles in order of their names, oldest first.
        faults: names and sizes that cannot be right.
    """

    def __init__(
        self,
        disk: Disk,
        root: PurePath,
        settings: StoreSettings | None = None,
        *,
        hash_slots: int = 0,
        index_entries: int = 0,
    ) -> None:
        self.disk = disk
        self.root = root
        found = settings or StoreSettings.from_properties("")
        self.settings = replace(
            found.of_store(root),
            hash_slots=hash_slots or found.hash_slots,
            index_entries=index_entries or found.index_entries,
        )
        self.faults: list[Fault] = []
        self.dledger = False
        self.dledger_folder: PurePath | None = None
        self.divided_offset = 0
        self.log = self._find_log()
        self.queues = self._find_queues("consumequeue", 20)
        self.batch_queues = self._find_queues("batchconsumequeue", 46)
        self.ext_queues = self._find_queues("consumequeue_ext", 0)
        self.index = self._find_index()

    @property
    def outer_log_folders(self) -> list[PurePath]:
        """Folders of the log that are outside of the store's folder."""
        named = [part for name in _LOG_FOLDERS for part in self.settings.properties.get(name, "").split(",") if part]
        return [PurePath(part) for part in named if not PurePath(part).is_relative_to(self.root)]

    @property
    def exists(self) -> bool:
        """Returns whether the folder looks like a store."""
        return bool(self.log or self.queues or self.batch_queues or self.disk.exists(self.root / "checkpoint"))

    @property
    def has_abort(self) -> bool:
        """Return whether the `abort` file exists: the broker runs, or its last exit was not clean."""
        return self.disk.exists(self.root / "abort")

    @property
    def is_live(self) -> bool:
        """Return whether a broker, MaxQ's or Java's, runs on the store at this moment: it holds the lock."""
        return self.disk.is_locked(self.root / "lock")

    def look_again(self) -> "StoreFiles":
        """Return a new listing of the store's files, which a running broker may have changed."""
        return StoreFiles(self.disk, self.root, self.settings)

    def name(self, path: PurePath) -> str:
        """Return the path as faults show it: relative to the root if it lies below it."""
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)

    def filled_ranges(self) -> list[tuple[int, int]]:
        """Return the [start, end) physical offsets of damage that a start has filled, here (the bytes are kept below
        `damaged`) or on the master that this log is a copy of."""
        entries = [entry for entry in self.disk.list(self.root / "damaged") if entry.name.isdecimal()]
        own = {(int(entry.name), int(entry.name) + entry.size) for entry in entries}
        path = self.root / FILLED_RANGES_FILE
        return sorted(own | (decode_ranges(self.disk.read(path)) if self.disk.exists(path) else set()))

    def inventory(self) -> StoreInventory | None:
        """Return the store's inventory of its queues; None if it has none."""
        path = self.root / INVENTORY_FILE
        return decode_inventory(self.disk.read(path)) if self.disk.exists(path) else None

    def deletions(self) -> dict[str, int]:
        """Return topic → physical offset of the record that deleted it last, according to the file.

        Raises:
            StoreError: it cannot be read.
        """
        path = self.root / FILE_NAME
        try:
            return decode_table(self.disk.read(path))
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise StoreError(
                f"{path} cannot be read: {error}; messages of deleted topics would be shown. Start the store's broker "
                "on it once: it writes the file again from the log. Delete the file to have the log alone believed"
            ) from None

    def log_file_at(self, physical_offset: int) -> DataFile | None:
        """Return the file that holds a physical offset."""
        for file in self.log:
            if file.from_offset <= physical_offset < file.from_offset + file.size:
                return file
        return None

    def refresh_log(self) -> None:
        """List the log files again, because a broker may have begun a new one meanwhile."""
        known = len(self.faults)
        self.log = self._find_log()
        del self.faults[known:]

    # -- finding --

    def _find_log(self) -> list[DataFile]:
        entries: list[tuple[PurePath, FileInfo]] = []
        for folder in self.settings.log_folders or (self.root / "commitlog",):
            entries += [(folder / entry.name, entry) for entry in self.disk.list(folder)]
        data = self._dledger_files()
        names = sorted(entry.name for _, entry in data if entry.name.isdecimal())
        if names:
            self.dledger, self.divided_offset = True, int(names[0])
            entries = [(path, entry) for path, entry in entries if entry.name < names[0]]
        return self._sequence(entries + data)

    def _dledger_files(self) -> list[tuple[PurePath, FileInfo]]:
        for entry in self.disk.list(self.root):
            if entry.is_dir and entry.name.startswith("dledger-"):
                self.dledger_folder = self.root / entry.name
                own = self.settings.properties.get("storePathDLedgerCommitLog", "")
                folder = PurePath(own) if own else self.dledger_folder / "data"
                return [(folder / found.name, found) for found in self.disk.list(folder)]
        return []

    def holds_entries(self, file: DataFile) -> bool:
        """Returns whether it is a data file of DLedger."""
        return self.dledger and file.from_offset >= self.divided_offset

    def _find_queues(self, folder_name: str, unit_size: int) -> dict[tuple[str, int], list[DataFile]]:
        queues = {}
        for topic in self.disk.list(self.root / folder_name):
            for queue in self.disk.list(self.root / folder_name / topic.name) if topic.is_dir else []:
                if queue.is_dir and queue.name.isdecimal():
                    folder = self.root / folder_name / topic.name / queue.name
                    entries = [(folder / entry.name, entry) for entry in self.disk.list(folder)]
                    queues[topic.name, int(queue.name)] = self._sequence(entries, unit_size)
        return queues

    def _find_index(self) -> list[DataFile]:
        entries = [(self.root / "index" / entry.name, entry) for entry in self.disk.list(self.root / "index")]
        files = []
        for path, entry in entries:
            if not entry.is_dir and entry.name.isdecimal():
                files.append(DataFile(path, int(entry.name), entry.size))
        if files and files[-1].size == 0:
            files.pop()  # as in `_sequence`
        return files

    def _sequence(self, entries: list[tuple[PurePath, FileInfo]], unit_size: int = 1) -> list[DataFile]:
        """Return the files that are named by their start offset, and report irregular ones as faults.

        Args:
            unit_size: bytes of which a file has a multiple; 0: files may have different sizes, and gaps between them.
        """
        files = []
        for path, entry in sorted(entries, key=lambda item: item[1].name):
            if entry.is_dir:
                continue
            if not (entry.name.isdecimal() and len(entry.name) == 20):
                self._fault(path, "not a file of this sequence: the name is not 20 digits", "move it away")
                continue
            files.append(DataFile(path, int(entry.name), entry.size))
        if files and files[-1].size == 0:
            files.pop()  # created just before a loss of power; brokers delete such a file at the start
        if not unit_size:
            return files
        usual = Counter(file.size for file in files).most_common(1)[0][0] if files else 0
        kept = [file for file in files if self._size_is_right(file, usual, unit_size)]
        for before, after in pairwise(kept):
            end = before.from_offset + before.size
            if end != after.from_offset:
                what = f"starts at offset {after.from_offset}, the file before it ends at {end}"
                self._fault(after.path, what, "restore the files between from a backup or replica")
        return kept

    def _size_is_right(self, file: DataFile, usual: int, unit_size: int) -> bool:
        if file.size != usual or file.size % unit_size:
            self._fault(
                file.path,
                f"{file.size} bytes long, the other files of this folder have {usual}",
                "a broker refuses to start on it: restore the file, or move it away if it is a ConsumeQueue file",
            )
            return False
        return True

    def _fault(self, path: PurePath, what: str, remedy: str) -> None:
        self.faults.append(Fault(self.name(path), 0, what, remedy))
