"""The folder of an archive: the manifest's versions, the data files, and the runs that write them.

    topic=Orders/date=2026-11-21/<run>-0000.parquet     data, one topic and one day of storing (UTC) each
    _manifest/000000000012.jsonl                        the manifest; the highest number counts
    _runs/<run>.lock, _runs/<run>/                      a run that writes: locked while it lives, and its files so far
    _damaged/                                           files that were taken out because they are damaged

A data file counts when the manifest names it. A run writes below _runs, moves the files to their places and then makes
the manifest's next version. Making one fails if another run made it first; the change is then tried on that version.
Files that a killed run has left, in _runs or in their final places, are in no manifest: readers ignore them, and the
next run removes them.

On a local or mounted file system a version is made by linking, which only one can do, and a run is dead when its lock
is free. On others (`s3://…`, what pyarrow.fs opens) only one run may write at a time; it counts as dead after a day.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pyarrow import fs

from maxq.errors import ConfigError, PipelineError
from maxq.pipeline.archive.manifest import FileEntry, Manifest
from maxq.runtime.files.durable_files import DurableFiles
from maxq.runtime.files.system import SystemClock, SystemDiskLock, SystemRng

_MANIFESTS: Final = "_manifest"
_RUNS: Final = "_runs"
_DAMAGED: Final = "_damaged"
_KEPT_VERSIONS: Final = 3  # old manifests that are kept for readers that still use them
_DEAD_AFTER_MS: Final = 24 * 3600 * 1000  # age at which a run counts as dead where locks do not work
_ATTEMPTS: Final = 20


@dataclass(frozen=True)
class StagedFile:
    """A file that a run has written and that is not in its place yet. Paths are below the archive's folder."""

    path: str
    place: str


class ArchiveFolder:
    """The folder of one archive.

    Args:
        path: a folder, or a URI that pyarrow.fs opens.

    Raises:
        ConfigError: it can be none.
    """

    def __init__(self, path: str) -> None:
        if not path.strip():
            raise ConfigError(f"archive {path!r} names no folder; '.' is the current one")
        if "://" in path:
            try:
                self.filesystem, root = fs.FileSystem.from_uri(path)
            except (OSError, ValueError) as error:
                raise ConfigError(f"archive {path!r} cannot be opened: {error}") from None
        else:
            self.filesystem, root = fs.LocalFileSystem(), os.path.abspath(path)
        self.root = root.rstrip("/")
        self.is_local = isinstance(self.filesystem, fs.LocalFileSystem)
        #: what Spark reads and writes
        self.uri = f"file://{self.root}" if self.is_local else path.rstrip("/")
        self._clock = SystemClock()
        if self.filesystem.get_file_info(self.root).is_file:
            raise ConfigError(f"archive {path!r} is a file: name a folder, or a new one")

    def uri_of(self, path: str) -> str:
        """Return the URI of a file below the folder, for Spark, which does not decode percent signs."""
        return f"{self.uri}/{path}"

    # --- the manifest ------------------------------------------------------------------------------------------------

    def manifest(self) -> Manifest:
        """Return the newest version of the manifest; an empty one if there is none. Raises PipelineError if it is
        damaged."""
        for _ in range(_ATTEMPTS):
            numbers = self._versions()
            if not numbers:
                return Manifest()
            name = self._version_name(numbers[-1])
            try:
                with self.filesystem.open_input_stream(self._full(name)) as file:
                    return Manifest.decode(file.read(), numbers[-1], f"{self.root}/{name}")
            except FileNotFoundError:
                continue  # it was removed since it was listed, so there is a newer one
        raise PipelineError(f"the manifest of {self.root} changes faster than it can be read")

    def existing(self) -> Manifest:
        """Return the manifest as `manifest` does. Raises ConfigError if the folder has no archive."""
        found = self.manifest()
        if not found.number:
            raise ConfigError(f"{self.root} holds no archive: there is no {_MANIFESTS}; `archive run` makes one")
        return found

    def commit(self, change: Callable[[Manifest], Manifest]) -> Manifest:
        """Make the next version.

        Args:
            change: from the newest version to the next; called again if another run was faster.

        Returns:
            The version that counts now.
        """
        for _ in range(_ATTEMPTS):
            after = change(self.manifest())
            if self._create(self._version_name(after.number), after.encode()):
                for number in self._versions()[:-_KEPT_VERSIONS]:
                    self.delete(self._version_name(number))
                return after
        raise PipelineError(f"other runs change the manifest of {self.root} all the time; try again")

    def _versions(self) -> list[int]:
        names = [name.removesuffix(".jsonl") for name in self._names(_MANIFESTS) if name.endswith(".jsonl")]
        return sorted(int(name) for name in names if name.isdigit())

    def _version_name(self, number: int) -> str:
        return f"{_MANIFESTS}/{number:012d}.jsonl"

    def _create(self, name: str, data: bytes) -> bool:
        """Write a file as a whole; returns False if the name exists."""
        full = self._full(name)
        self._make_folder(os.path.dirname(full))
        if not self.is_local:
            if self.exists(name):
                return False
            with self.filesystem.open_output_stream(full) as file:
                file.write(data)
            return True
        temporary = Path(f"{full}.{SystemRng().bytes(6).hex()}.tmp")
        return DurableFiles().put_new(Path(full), data, temporary=temporary)

    # --- runs --------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def run(self) -> Iterator["ArchiveRun"]:
        """Start a run that writes; first it removes the remains of dead runs."""
        stamp = datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC)
        name = f"{stamp:%Y%m%dT%H%M%S}-{SystemRng().bytes(4).hex()}"
        lock = self._lock(name)
        run = ArchiveRun(self, name)
        try:
            run.removed = self.clean()
            yield run
        finally:
            self.delete_tree(run.staging)
            self.delete(_lock_name(name))
            if lock is not None:
                lock.release()

    def _lock(self, name: str) -> SystemDiskLock | None:
        path = self._full(_lock_name(name))
        self._make_folder(os.path.dirname(path))
        if not self.is_local:
            self._create(_lock_name(name), b"")
            return None
        while True:
            lock = SystemDiskLock(Path(path), name.encode())
            if os.path.exists(path):
                return lock
            lock.release()  # another run took this one for dead before it held the lock

    def _is_alive(self, run: str) -> bool:
        path = self._full(_lock_name(run))
        if self.is_local:
            return SystemDiskLock.is_held(Path(path))
        info = self.filesystem.get_file_info(path)
        age_ms = self._clock.wall_ms() - (info.mtime_ns or 0) // 1_000_000
        return bool(info.type != fs.FileType.NotFound and age_ms < _DEAD_AFTER_MS)

    def clean(self) -> list[str]:
        """Remove the remains of dead runs; returns their paths."""
        removed: list[str] = []
        runs = {name.removesuffix(".lock") for name in self._names(_RUNS)}
        dead = {run for run in runs if not self._is_alive(run)}
        for path in self.orphans():
            self.delete(path)
            removed.append(path)
        for run in sorted(dead):
            staging = f"{_RUNS}/{run}"
            removed += [path for path in self._files(staging) if not os.path.basename(path).startswith(("_", "."))]
            self.delete_tree(staging)
            self.delete(_lock_name(run))
        return removed

    def orphans(self) -> list[str]:
        """Return the data files of dead runs, which the manifest does not name."""
        # Files are listed first: one that a run places and commits meanwhile is then in the manifest, which is read
        # afterwards.
        there = self.data_files()
        alive: dict[str, bool] = {}
        for run in {_run_of(path) for path in there}:
            alive[run] = self._is_alive(run)
        named = {entry.path for entry in self.manifest().files}
        return [path for path in there if path not in named and not alive[_run_of(path)]]

    # --- files -------------------------------------------------------------------------------------------------------

    def take_out(self, paths: Iterable[str]) -> None:
        """Take missing and damaged files out of the manifest. Damaged ones are kept in a folder aside: if no broker has
        their messages any more, what can be read of them is all that there is.

        Raises:
            PipelineError: another run of the archive has changed these files meanwhile. The manifest and the files are
                left unchanged.
        """
        bad = sorted(paths)
        there = [path for path in bad if self.exists(path)]
        for path in there:
            self.move(path, f"{_DAMAGED}/{path}")
        try:
            self.commit(lambda manifest: manifest.changed([], bad))
        except PipelineError:
            for path in there:
                self.move(f"{_DAMAGED}/{path}", path)
            raise

    def data_files(self) -> list[str]:
        """Return every data file in its final place."""
        return [path for name in self._names("") if name.startswith("topic=") for path in self._files(name)]

    def exists(self, path: str) -> bool:
        """Return whether the archive has a file at `path`."""
        return bool(self.filesystem.get_file_info(self._full(path)).type != fs.FileType.NotFound)

    def delete(self, path: str) -> None:
        """Remove a file of the archive, if it exists."""
        with contextlib.suppress(FileNotFoundError):
            self.filesystem.delete_file(self._full(path))

    def delete_tree(self, path: str) -> None:
        """Remove a folder of the archive with all that is in it, if it exists."""
        with contextlib.suppress(FileNotFoundError):
            self.filesystem.delete_dir(self._full(path))

    def move(self, source: str, target: str) -> None:
        """Move a data file to its final place, durably where the file system supports that."""
        full = self._full(target)
        self._make_folder(os.path.dirname(full))
        if not self.is_local:
            self.filesystem.move(self._full(source), full)
            return
        files, staged = DurableFiles(), Path(self._full(source))
        files.sync(staged)
        files.rename(staged, Path(full))

    def _make_folder(self, full: str) -> None:
        """Make a folder, with those above it, durably where the file system supports that."""
        if self.is_local:
            DurableFiles().make_folders(Path(full))
        else:
            self.filesystem.create_dir(full, recursive=True)

    def _full(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    def _names(self, folder: str) -> list[str]:
        selector = fs.FileSelector(self._full(folder), allow_not_found=True)
        return sorted(info.base_name for info in self.filesystem.get_file_info(selector))

    def _files(self, folder: str) -> list[str]:
        """Return the paths of all files below a folder."""
        selector = fs.FileSelector(self._full(folder), allow_not_found=True, recursive=True)
        found = [info for info in self.filesystem.get_file_info(selector) if info.type == fs.FileType.File]
        return sorted(info.path[len(self.root) + 1 :] for info in found)


class ArchiveRun:
    """A run that writes. `removed` lists what it deleted of runs that had died."""

    def __init__(self, folder: ArchiveFolder, name: str) -> None:
        self.folder = folder
        self.name = name
        self.staging = f"{_RUNS}/{name}"
        self.removed: list[str] = []
        self._parts = 0
        self._placed = 0

    def new_part(self) -> str:
        """Return a new folder below `staging` for one write by Spark."""
        self._parts += 1
        return f"{self.staging}/{self._parts:04d}"

    def staged(self, part: str) -> list[StagedFile]:
        """Return the data files that were written into a part, with their future places."""
        found = []
        for path in self.folder._files(part):
            inner, name = os.path.split(path[len(part) + 1 :])
            if inner.startswith("topic=") and not name.startswith(("_", ".")):
                suffix = name.rpartition(".")[2]
                found.append(StagedFile(path, f"{inner}/{self.name}-{self._placed:04d}.{suffix}"))
                self._placed += 1
        return found

    def place(self, files: Iterable[StagedFile], entries: Iterable[FileEntry]) -> list[FileEntry]:
        """Move staged files to their places; their entries with these."""
        placed = []
        for file, entry in zip(files, entries, strict=True):
            assert entry.path == file.path, "an entry for each file, in their order"
            self.folder.move(file.path, file.place)
            placed.append(replace(entry, path=file.place))
        return placed

    def withdraw(self, entries: Iterable[FileEntry]) -> None:
        """Remove files that were placed and will not be committed."""
        for entry in entries:
            self.folder.delete(entry.path)


def _run_of(path: str) -> str:
    return os.path.basename(path).rpartition("-")[0]


def _lock_name(run: str) -> str:
    return f"{_RUNS}/{run}.lock"
