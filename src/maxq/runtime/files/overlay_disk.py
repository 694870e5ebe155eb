"""A disk on top of another folder that it never changes: what is written goes to a folder of its own.

For rehearsals: recovery runs on a store in place, terabytes of it if need be, and the store stays as it is. Large
files are mapped copy-on-write (only pages that change take memory), small ones are copied when first mapped for
writing, holes staying holes. Flushes and syncs are real for copies and pointless, hence left out, for the rest.
"""

import contextlib
import mmap
import os
from collections.abc import Sequence
from pathlib import Path, PurePath

from maxq.runtime.files.durable_files import write_all
from maxq.runtime.files.file_holes import HoledMemory, data_ranges, holes_take_room
from maxq.runtime.files.system import SystemDisk
from maxq.runtime.interfaces import DiskLock, DiskUsage, FileInfo, MappedRegion

#: Files at least this long are mapped copy-on-write instead of being copied.
_PRIVATE_FROM = 64 << 20
_COPY_STEP = 1 << 20


class PrivateRegion(MappedRegion):
    """A copy-on-write mapping of a whole file. It is kept as long as the disk, because what was written to it is
    nowhere else."""

    def __init__(self, path: Path, size: int) -> None:
        self._file = open(path, "rb")  # noqa: SIM115 (as long as the mapping)
        length = os.fstat(self._file.fileno()).st_size
        if length != size:
            raise ValueError(f"{path}: {length} bytes, expected {size}")
        fd = self._file.fileno()
        if holes_take_room(fd, size):
            self._view = memoryview(HoledMemory(fd, size).memory)
        else:
            self._view = memoryview(mmap.mmap(fd, size, access=mmap.ACCESS_COPY))
        self._written: list[tuple[int, int]] = []

    @property
    def view(self) -> memoryview:
        return self._view

    def flush(self, start: int, end: int) -> None:
        pass

    def write(self, position: int, data: memoryview) -> None:
        self._view[position : position + len(data)] = data
        self._written.append((position, position + len(data)))

    def write_again(self, start: int, end: int) -> None:
        pass

    def data_ranges(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of [start, end) that are not holes of the file, or were given to `write`."""
        written = [(max(start, begin), min(end, stop)) for begin, stop in self._written if begin < end and stop > start]
        found: list[tuple[int, int]] = []
        for begin, stop in sorted([*data_ranges(self._file.fileno(), start, end), *written]):
            if found and begin <= found[-1][1]:
                found[-1] = found[-1][0], max(found[-1][1], stop)
            else:
                found.append((begin, stop))
        return found

    def allocate(self, start: int, end: int) -> None:
        pass  # changed pages take memory, no blocks

    def close(self) -> None:
        pass


class OverlayDisk:
    """The files of `lower`, with changes kept in `upper`.

    Paths are those of the lower folder; a path outside it is refused for writing with PermissionError.

    Args:
        lower: the folder that must not change.
        upper: an empty folder for what changes; the caller removes it.
        also: further folders that must not change, outside of `lower`.
        private_from: files of at least this many bytes are mapped copy-on-write.
    """

    def __init__(
        self, lower: PurePath, upper: PurePath, *, also: Sequence[PurePath] = (), private_from: int = _PRIVATE_FROM
    ) -> None:
        self._lower = Path(lower)
        self._upper = Path(upper)
        self._places = {self._lower: self._upper} | {Path(at): self._upper / f".{n}" for n, at in enumerate(also)}
        self._private_from = private_from
        self._disk = SystemDisk()
        self._gone: set[Path] = set()  # files of the lower folder that were deleted here
        self._private: dict[Path, PrivateRegion] = {}

    # -- where things are --

    def _above(self, path: PurePath) -> Path:
        """Return the place of a path in the upper folder."""
        for lower, upper in self._places.items():
            if Path(path).is_relative_to(lower):
                return upper / Path(path).relative_to(lower)
        raise PermissionError(f"{path} is outside {self._lower}: a rehearsal changes nothing there")

    def _is_covered(self, path: PurePath) -> bool:
        return any(Path(path).is_relative_to(lower) for lower in self._places)

    def _is_gone(self, path: PurePath) -> bool:
        return any(folder in self._gone for folder in (Path(path), *Path(path).parents))

    def _real(self, path: PurePath) -> Path:
        """Return the path of the present content; a path without a file if the file was deleted."""
        if not self._is_covered(path):
            return Path(path)
        above = self._above(path)
        return above if above.exists() or self._is_gone(path) else Path(path)

    def _forget(self, path: PurePath) -> None:
        """Hide the lower folder's files at and below a path."""
        self._gone.add(Path(path))
        self._private = {known: region for known, region in self._private.items() if not known.is_relative_to(path)}

    # -- Disk --

    def map(self, path: PurePath, size: int, *, read_only: bool = False) -> MappedRegion:
        key = Path(path)
        if key in self._private:
            return self._private[key]
        real = self._real(path)
        if read_only or not self._is_covered(key):
            return self._disk.map(real, size, read_only=True)
        above = self._above(path)
        if real != above and real.exists():
            if real.stat().st_size >= max(1, self._private_from):
                self._private[key] = PrivateRegion(real, size)
                return self._private[key]
            _copy_sparse(real, above)
        return self._disk.map(above, size)

    def ring(self, size: int, window: int) -> memoryview:
        return self._disk.ring(size, window)

    def read(self, path: PurePath) -> bytes:
        if Path(path) in self._private:
            return bytes(self._private[Path(path)].view)
        return self._disk.read(self._real(path))

    def write(self, path: PurePath, data: bytes) -> None:
        self._disk.write(self._above(path), data)

    def replace(self, path: PurePath, data: bytes, *, private: bool = False) -> None:
        self._disk.replace(self._above(path), data, private=private)

    def replace_with(self, path: PurePath, data: bytes, *, spare: PurePath) -> None:
        self.replace(path, data)

    def rename(self, source: PurePath, target: PurePath) -> None:
        above = self._above(source)
        if self._real(source).is_dir():
            for entry in self.list(source):
                self.rename(source / entry.name, target / entry.name)
            self.delete_tree(source)
            return
        if Path(source) in self._private:
            self._disk.write(above, self.read(source))
        elif self._real(source) != above:
            _copy_sparse(self._real(source), above)
        self._above(target).parent.mkdir(parents=True, exist_ok=True)
        self._disk.rename(above, self._above(target))
        self._forget(source)

    def delete(self, path: PurePath) -> None:
        above = self._above(path)
        if not self._real(path).exists():
            raise FileNotFoundError(2, "No such file or directory", str(path))
        with contextlib.suppress(FileNotFoundError):
            self._disk.delete(above)
        self._forget(path)

    def delete_tree(self, path: PurePath) -> None:
        self._disk.delete_tree(self._above(path))
        self._forget(path)

    def make_dirs(self, path: PurePath) -> None:
        self._disk.make_dirs(self._above(path))

    def exists(self, path: PurePath) -> bool:
        return self._real(path).exists()

    def stat(self, path: PurePath) -> FileInfo:
        return self._disk.stat(self._real(path))

    def list(self, path: PurePath) -> Sequence[FileInfo]:
        if not self._is_covered(path):
            return self._disk.list(path)
        below = [] if self._is_gone(path) else self._disk.list(path)
        found = {entry.name: entry for entry in below if Path(path) / entry.name not in self._gone}
        found |= {entry.name: entry for entry in self._disk.list(self._above(path))}
        return sorted(found.values(), key=lambda entry: entry.name)

    def usage(self, path: PurePath) -> DiskUsage:
        return self._disk.usage(path)

    def lock(self, path: PurePath, content: bytes, *, with_folder: bool = False) -> DiskLock:
        return self._disk.lock(self._above(path), content, with_folder=with_folder)

    def is_locked(self, path: PurePath) -> bool:
        return self._disk.is_locked(self._above(path))  # whoever runs on the original does not write here


def _copy_sparse(source: Path, target: Path) -> None:
    """Copy a file; holes of the source stay holes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(source, "rb") as reading, open(target, "wb") as writing:
        size = os.fstat(reading.fileno()).st_size
        writing.truncate(size)
        at = 0
        while at < size:
            try:
                at = os.lseek(reading.fileno(), at, os.SEEK_DATA)
            except OSError:
                break  # only a hole is left
            end = os.lseek(reading.fileno(), at, os.SEEK_HOLE)
            while at < end:
                data = os.pread(reading.fileno(), min(_COPY_STEP, end - at), at)
                if not data:
                    return
                write_all(writing.fileno(), memoryview(data), at)
                at += len(data)
