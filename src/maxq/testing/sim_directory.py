"""Which names a simulated disk has: those the process sees, those on the platters, and the changes between them.

Creations, deletions, renames and lengths wait in a journal until something is synced. A crash keeps a prefix of what
waits, as journaling file systems do, or, out of order, any subset of it: POSIX promises only what was synced.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from maxq.testing.sim_file import SimFile
from maxq.testing.sim_rng import SimRng


@dataclass(slots=True, eq=False)
class _Change:
    """A change of the directory that is not durable yet."""

    kind: str  # link, resize (from nothing to its full length), unlink, rename, swap
    path: str
    inode: SimFile
    target: str = ""


class SimDirectory:
    """The simulated directory; see the module's text.

    Attributes:
        in_order: a sync commits all that happened before it, too.
        live: what the process sees.
        durable: what is on the platters.
    """

    def __init__(self, *, in_order: bool) -> None:
        self.in_order = in_order
        self.live: dict[str, SimFile] = {}
        self.durable: dict[str, SimFile] = {}
        self._journal: list[_Change] = []

    def copy(self) -> "SimDirectory":
        """Returns a copy for another process, with files of its own that are as durable as these."""
        inodes = [*self.live.values(), *self.durable.values(), *(change.inode for change in self._journal)]
        copies = {id(inode): inode.copy() for inode in inodes}
        twin = SimDirectory(in_order=self.in_order)
        twin.live.update((path, copies[id(inode)]) for path, inode in self.live.items())
        twin.durable.update((path, copies[id(inode)]) for path, inode in self.durable.items())
        twin._journal = [replace(change, inode=copies[id(change.inode)]) for change in self._journal]
        return twin

    # -- changes --

    def put(self, path: str, inode: SimFile) -> None:
        """Add a file that counts as having always existed."""
        self.live[path] = self.durable[path] = inode

    def create(self, path: str, inode: SimFile) -> None:
        """Add a new file; its length, if it has one, is a change of its own."""
        self.live[path] = inode
        self._journal.append(_Change("link", path, inode))
        if inode.live:
            self._journal.append(_Change("resize", path, inode))

    def exchange(self, path: str, old: SimFile, new: SimFile) -> None:
        """Give the file at `path` another length, under all the names it had and has."""
        self.live[path] = new
        self._journal = [replace(change, inode=new) if change.inode is old else change for change in self._journal]
        for name, inode in self.durable.items():
            if inode is old:
                self.durable[name] = new

    def rename(self, source: str, target: str) -> None:
        """Rename a file."""
        inode = self.live.pop(source)
        self.live[target] = inode
        self._journal.append(_Change("rename", source, inode, target))

    def swap(self, source: str, target: str) -> None:
        """Exchange the names of two files."""
        inode = self.live[source]
        self.live[source], self.live[target] = self.live[target], inode
        self._journal.append(_Change("swap", source, inode, target))

    def unlink(self, path: str) -> None:
        """Remove the name of a file."""
        self._journal.append(_Change("unlink", path, self.live.pop(path)))

    # -- durability --

    def sync_folder(self, folder: str) -> None:
        """Make all changes of names in a folder durable."""
        self._commit(lambda change: folder in (parent(change.path), parent(change.target)))

    def sync_file(self, inode: SimFile) -> None:
        """Make all changes of a file's name durable."""
        self._commit(lambda change: change.inode is inode)

    def _commit(self, wanted: Callable[[_Change], bool]) -> None:
        # A journaling file system makes everything durable that happened before; POSIX promises that only for the same
        # paths.
        journal = self._journal
        changes = [(place, change) for place, change in enumerate(journal) if wanted(change)]
        if not changes:
            return
        end = changes[-1][0] + 1
        paths = {path for _, change in changes for path in (change.path, change.target) if path}
        kept = []
        for change in journal[:end]:
            if self.in_order or change.path in paths or change.target in paths:
                _apply(self.durable, change)
            else:
                kept.append(change)
        self._journal = kept + journal[end:]

    def after_crash(self, rng: SimRng) -> dict[str, SimFile]:
        """Return the names that a loss of power leaves, by chance; lengths that survived with them are durable."""
        names = dict(self.durable)
        if self.in_order:
            waiting = self._journal[: rng.below(len(self._journal) + 1)]
        else:
            waiting = [change for change in self._journal if rng.chance(0.5)]
        for change in waiting:
            _apply(names, change)
        return names


def _apply(names: dict[str, SimFile], change: _Change) -> None:
    if change.kind == "link":
        names[change.path] = change.inode
    elif change.kind == "resize":
        change.inode.make_length_durable()
    elif change.kind == "unlink":
        names.pop(change.path, None)
    elif change.kind == "swap":
        old = names.get(change.target)
        names.pop(change.path, None)
        names[change.target] = change.inode
        if old is not None:
            names[change.path] = old
    else:
        names.pop(change.path, None)
        names[change.target] = change.inode


def parent(key: str) -> str:
    """Return the folder of a path."""
    folder, slash, _ = key.rpartition("/")
    return folder or slash or ("." if key else "")
