"""File systems that pyarrow.fs opens (`s3://…`, `hdfs://…`), as read-only disks."""

from collections.abc import Sequence
from pathlib import Path, PurePath, PurePosixPath

from pyarrow import fs

from maxq.errors import ConfigError
from maxq.runtime.files.system import SystemDisk
from maxq.runtime.interfaces import Disk, DiskLock, DiskUsage, FileInfo, MappedRegion


def open_uri(uri: str) -> tuple[Disk, PurePath]:
    """Return the disk and the folder of a URI.

    Raises:
        ConfigError: pyarrow.fs does not know it.
    """
    try:
        filesystem, inner = fs.FileSystem.from_uri(uri)
    except (OSError, ValueError) as error:
        raise ConfigError(f"path {uri!r} cannot be opened: {error}") from None
    if isinstance(filesystem, fs.LocalFileSystem):
        return SystemDisk(), Path(inner)
    return ArrowDisk(filesystem), PurePosixPath(inner)


class _Bytes(MappedRegion):
    """A file that was read as a whole, used like a mapping."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @property
    def view(self) -> memoryview:
        return memoryview(self._data)

    def flush(self, start: int, end: int) -> None:
        raise _read_only()

    def write(self, position: int, data: memoryview) -> None:
        raise _read_only()

    def write_again(self, start: int, end: int) -> None:
        raise _read_only()

    def allocate(self, start: int, end: int) -> None:
        raise _read_only()

    def close(self) -> None:
        self._data = b""


class ArrowDisk:
    """The reading half of Disk on a file system of Arrow. A mapping is the whole file, read."""

    def __init__(self, filesystem: fs.FileSystem) -> None:
        self._filesystem = filesystem

    def map(self, path: PurePath, size: int, *, read_only: bool = False) -> MappedRegion:
        if not read_only:
            raise _read_only()
        return _Bytes(self.read(path))

    def read(self, path: PurePath) -> bytes:
        with self._filesystem.open_input_file(str(path)) as file:
            return bytes(file.read())

    def exists(self, path: PurePath) -> bool:
        return bool(self._filesystem.get_file_info(str(path)).type != fs.FileType.NotFound)

    def stat(self, path: PurePath) -> FileInfo:
        found = self._filesystem.get_file_info(str(path))
        if found.type == fs.FileType.NotFound:
            raise FileNotFoundError(str(path))
        return _info(found)

    def list(self, path: PurePath) -> Sequence[FileInfo]:
        selector = fs.FileSelector(str(path), allow_not_found=True)
        return sorted(map(_info, self._filesystem.get_file_info(selector)), key=lambda entry: entry.name)

    def is_locked(self, path: PurePath) -> bool:
        return False  # locks do not work on such a file system

    def ring(self, size: int, window: int) -> memoryview:
        raise _read_only()

    def write(self, path: PurePath, data: bytes) -> None:
        raise _read_only()

    def replace(self, path: PurePath, data: bytes, *, private: bool = False) -> None:
        raise _read_only()

    def replace_with(self, path: PurePath, data: bytes, *, spare: PurePath) -> None:
        raise _read_only()

    def rename(self, source: PurePath, target: PurePath) -> None:
        raise _read_only()

    def delete(self, path: PurePath) -> None:
        raise _read_only()

    def delete_tree(self, path: PurePath) -> None:
        raise _read_only()

    def make_dirs(self, path: PurePath) -> None:
        raise _read_only()

    def usage(self, path: PurePath) -> DiskUsage:
        raise _read_only()

    def lock(self, path: PurePath, content: bytes, *, with_folder: bool = False) -> DiskLock:
        raise _read_only()


def _info(found: fs.FileInfo) -> FileInfo:
    return FileInfo(
        name=found.base_name,
        size=found.size or 0,
        is_dir=found.type == fs.FileType.Directory,
        modified_ms=(found.mtime_ns or 0) // 1_000_000,
    )


def _read_only() -> PermissionError:
    return PermissionError("store directories are only read here")
