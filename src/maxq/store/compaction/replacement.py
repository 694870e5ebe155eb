"""Replacement: segments of a queue give way to what compaction made of them, all at once, whatever crashes.

The new segments are written beside the old ones, in folders `compacting`, and made durable. Then one file says that
they count, `compaction/replacing-<topic>-<queue id>.json`; from that moment the next start finishes what this one does
not: files are renamed, old ones deleted, the file goes. (Java renames file by file, and refuses to load when that was
interrupted.)
"""

import json
from pathlib import PurePath
from typing import Final

from maxq.lazy_dataclass import dataclass
from maxq.runtime.interfaces import Disk
from maxq.store.mapped_file import offset_to_file_name

COMPACTING: Final = "compacting"
_PREFIX: Final = "replacing-"
_SUFFIX: Final = ".json"


@dataclass(frozen=True, slots=True)
class QueueFolders:
    """Where one compacted queue is; `root` is the store's `compaction` folder."""

    root: PurePath
    topic: str
    queue_id: int

    @property
    def log(self) -> PurePath:
        return self.root / "compactionLog" / self.topic / str(self.queue_id)

    @property
    def units(self) -> PurePath:
        return self.root / "compactionCq" / self.topic / str(self.queue_id)

    @property
    def replacing(self) -> PurePath:
        return self.root / f"{_PREFIX}{self.topic}-{self.queue_id}{_SUFFIX}"


@dataclass(frozen=True, slots=True)
class Replacement:
    """One replacement.

    Attributes:
        old, new: bases of the segments that go, and of those in the folders `compacting`.
        position: message offset up to which the new segments are compacted.
    """

    folders: QueueFolders
    old: tuple[int, ...]
    new: tuple[int, ...]
    position: int

    def commit(self, disk: Disk) -> None:
        """From here on the new segments count. Blocks."""
        body = {"old": self.old, "new": self.new, "position": self.position}
        disk.replace(self.folders.replacing, json.dumps(body).encode())

    def finish(self, disk: Disk) -> None:
        """Bring the files to where they belong; may be done again. Blocks."""
        for folder in (self.folders.log, self.folders.units):
            for base in self.old:
                path = folder / offset_to_file_name(base)
                if base not in self.new and disk.exists(path):
                    disk.delete(path)
            for base in self.new:
                made = folder / COMPACTING / offset_to_file_name(base)
                if disk.exists(made):
                    disk.rename(made, folder / offset_to_file_name(base))
            disk.delete_tree(folder / COMPACTING)

    def forget(self, disk: Disk) -> None:
        """It is finished, and its position is stored. Blocks."""
        disk.delete(self.folders.replacing)


def committed(disk: Disk, folders: QueueFolders) -> Replacement | None:
    """The replacement that a crash interrupted, if there is one. Blocks."""
    try:
        body = json.loads(disk.read(folders.replacing))
    except FileNotFoundError:
        return None
    return Replacement(folders, tuple(body["old"]), tuple(body["new"]), body["position"])
