"""Replacement: segments of a queue give way to what compaction made of them, all at once, whatever fails or crashes.

The new segments are written beside the old ones, in a folder of their own, `compacting-<position>`, and made durable.
Then one file says that they count, `compaction/replacing-<topic>-<queue id>.json`: it names the folder and the check
sums of its files. From that moment this process, or the next start, brings the replacement to its end before another
one begins: files are renamed, old ones deleted, the file goes. (Java renames file by file, and refuses to load when
that was interrupted.)

Each step may be done again, and is when a later one failed: one that raised may have happened all the same.
"""

import json
import zlib
from pathlib import PurePath
from typing import Final

from maxq.errors import StoreRefusedError
from maxq.lazy_dataclass import dataclass
from maxq.runtime.interfaces import Disk
from maxq.store.files.mapped_file import offset_to_file_name

_COMPACTING: Final = "compacting"
_PREFIX: Final = "replacing-"
_SUFFIX: Final = ".json"


@dataclass(frozen=True, slots=True)
class QueueFolders:
    """The folders of one compacted queue; `root` is the store's `compaction` folder."""

    root: PurePath
    topic: str
    queue_id: int

    @property
    def name(self) -> str:
        """Name of the queue in position-checkpoint."""
        return f"{self.topic}_{self.queue_id}"

    @property
    def log(self) -> PurePath:
        return self.root / "compactionLog" / self.topic / str(self.queue_id)

    @property
    def units(self) -> PurePath:
        return self.root / "compactionCq" / self.topic / str(self.queue_id)

    @property
    def replacing(self) -> PurePath:
        return self.root / f"{_PREFIX}{self.topic}-{self.queue_id}{_SUFFIX}"

    def delete_uncommitted(self, disk: Disk) -> None:
        """Delete what was written for replacements that were not committed. Blocks."""
        for folder in (self.log, self.units):
            for entry in disk.list(folder):
                if entry.is_dir and entry.name.startswith(_COMPACTING):
                    disk.delete_tree(folder / entry.name)


def folder_of(position: int) -> str:
    """Returns the name of the folder of a replacement's new segments."""
    return f"{_COMPACTING}-{position}"


@dataclass(frozen=True, slots=True)
class Replacement:
    """Description of one replacement of segments.

    Attributes:
        old: bases of the segments that go.
        new: of those in the new folder: base, CRC-32 of the log file, CRC-32 of the file of units.
        position: message offset up to which the new segments are compacted.
    """

    folders: QueueFolders
    old: tuple[int, ...]
    new: tuple[tuple[int, int, int], ...]
    position: int

    @classmethod
    def of_written(
        cls, disk: Disk, folders: QueueFolders, old: tuple[int, ...], new: tuple[int, ...], position: int
    ) -> "Replacement":
        """Returns the replacement made of new segments that are durable in their folder. Blocks."""
        files = [(folder / folder_of(position), base) for base in new for folder in (folders.log, folders.units)]
        sums = [_crc(disk, folder / offset_to_file_name(base)) for folder, base in files]
        return cls(folders, old, tuple(zip(new, sums[0::2], sums[1::2], strict=True)), position)

    def commit(self, disk: Disk) -> None:
        """Commit the replacement: from here on the new segments are valid. Blocks."""
        body = json.dumps({"old": self.old, "new": self.new, "position": self.position})
        disk.replace(self.folders.replacing, json.dumps({"crc": zlib.crc32(body.encode()), "body": body}).encode())

    def finish(self, disk: Disk) -> None:
        """Bring the files to where they belong. Blocks.

        Raises:
            StoreRefusedError: a new segment is not as it was written; none of the old ones was touched for it.
            OSError: the disk refuses.
        """
        moves = [move for number, folder in enumerate((self.folders.log, self.folders.units), start=1)
                 for move in self._moves(disk, folder, number)]  # fmt: skip
        bases = [base for base, _, _ in self.new]
        for folder in (self.folders.log, self.folders.units):
            for base in self.old:
                path = folder / offset_to_file_name(base)
                if base not in bases and disk.exists(path):
                    disk.delete(path)
        for made, target in moves:
            disk.rename(made, target)
        for folder in (self.folders.log, self.folders.units):
            disk.delete_tree(folder / folder_of(self.position))

    def _moves(self, disk: Disk, folder: PurePath, number: int) -> list[tuple[PurePath, PurePath]]:
        """Returns the complete segments of a folder that are to be renamed."""
        moves = []
        for sums in self.new:
            name = offset_to_file_name(sums[0])
            made, target = folder / folder_of(self.position) / name, folder / name
            is_made = disk.exists(made)
            if not (is_made or disk.exists(target)) or _crc(disk, made if is_made else target) != sums[number]:
                raise StoreRefusedError(
                    f"{made} is missing or not as it was written, and {self.folders.replacing} says that it counts: "
                    f"restore {self.folders.log} and {self.folders.units} from a copy, or stop the broker and delete "
                    "these three: the topic then has the messages that the commit log still has"
                )
            if is_made:
                moves.append((made, target))
        return moves

    def forget(self, disk: Disk) -> None:
        """Remove the note of a replacement that is complete and whose position is stored. Blocks."""
        if disk.exists(self.folders.replacing):
            disk.delete(self.folders.replacing)


def committed(disk: Disk, folders: QueueFolders) -> Replacement | None:
    """Returns the committed replacement that a crash interrupted, if there is one. Blocks. Raises StoreRefusedError if
    its file is damaged."""
    try:
        text = disk.read(folders.replacing)
    except FileNotFoundError:
        return None
    try:
        note = json.loads(text)
        body = json.loads(note["body"])
        if zlib.crc32(note["body"].encode()) == note["crc"]:
            new = tuple((int(base), int(log), int(units)) for base, log, units in body["new"])
            return Replacement(folders, tuple(map(int, body["old"])), new, int(body["position"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise StoreRefusedError(
        f"{folders.replacing} cannot be read: restore it from a copy, or delete it together with {folders.log} and "
        f"{folders.units}: the topic then has the messages that the commit log still has"
    )


def _crc(disk: Disk, path: PurePath) -> int:
    region = disk.map(path, disk.stat(path).size, read_only=True)
    try:
        return zlib.crc32(region.view)
    finally:
        region.close()
