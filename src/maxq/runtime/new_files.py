"""Files that were made here and whose names a loss of power could still take.

A synced file is lost all the same while its folder does not hold its name durably. Which mapping of a file made it does
not matter: the one that is flushed may be another, when the file was made ahead on a thread, or given up and mapped
again. So a disk keeps one list for all of them.
"""

import os
from pathlib import Path, PurePath
from threading import Lock


class NewFiles:
    """By path, the folders that must be synced before the file's content is safe. Any thread may call."""

    def __init__(self) -> None:
        self._folders: dict[Path, tuple[Path, ...]] = {}
        self._making = Lock()

    def create(self, path: Path) -> int:
        """Open a file that was not there, for reading and writing; make the folders above it.

        Returns:
            Its descriptor. Another thread may have made it meanwhile.
        """
        with self._making:  # a file is on the list before anybody can see it
            self.add(path, *_make_folders(path.parent))
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def add(self, path: Path, *folders: Path) -> None:
        """`folders` got an entry because of this file."""
        self._folders[path] = (*self._folders.get(path, ()), *folders)

    def __contains__(self, path: Path) -> bool:
        return path in self._folders

    def settle(self, path: Path) -> None:
        """Make the file's name durable. Blocks.

        Raises:
            OSError: the device refuses; the file stays on the list.
        """
        folders = self._folders.get(path, ())
        for folder in dict.fromkeys(folders):
            sync_folder(folder)
        if self._folders.get(path) is folders:
            self._folders.pop(path, None)

    def forget(self, path: Path) -> None:
        """The file is gone, or has another name."""
        self._folders.pop(path, None)

    def forget_below(self, folder: Path) -> None:
        """All files in a folder are gone."""
        for path in [path for path in self._folders.copy() if path.is_relative_to(folder)]:
            self.forget(path)


def _make_folders(folder: Path) -> list[Path]:
    """Create it with those above it; the folders whose entries a new file in it adds to, the innermost first."""
    changed = [folder]
    while not changed[-1].exists():
        changed.append(changed[-1].parent)
    folder.mkdir(parents=True, exist_ok=True)
    return changed


def sync_folder(folder: PurePath) -> None:
    """Make the entries of a folder durable. Blocks."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
