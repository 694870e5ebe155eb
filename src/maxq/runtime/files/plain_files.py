"""PlainFiles: the small files of a client where the system has no POSIX calls (Windows).

A replaced file is written out before it takes its name, as `durable_files.py` does it; a folder cannot be synced there.
"""

import os
from pathlib import Path, PurePath

from maxq.runtime.interfaces import FileInfo

_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)


class PlainFiles:
    """The disk operations that clients use (`runtime/interfaces.py`, SmallFiles)."""

    def read(self, path: PurePath) -> bytes:
        return Path(path).read_bytes()

    def replace(self, path: PurePath, data: bytes, *, private: bool = False) -> None:
        self.make_dirs(path.parent)
        temporary = Path(path.with_name(path.name + ".tmp"))
        with open(os.open(temporary, _FLAGS | os.O_TRUNC, 0o600 if private else 0o666), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)

    def make_dirs(self, path: PurePath) -> None:
        Path(path).mkdir(parents=True, exist_ok=True)

    def exists(self, path: PurePath) -> bool:
        return Path(path).exists()

    def stat(self, path: PurePath) -> FileInfo:
        found = Path(path)
        facts, is_dir = found.stat(), found.is_dir()
        return FileInfo(found.name, 0 if is_dir else facts.st_size, facts.st_mtime_ns // 1_000_000, is_dir)

    def lock(self, path: PurePath, content: bytes, *, with_folder: bool = False) -> "PlainLock":
        return PlainLock(path)


class PlainLock:
    """A lock on the first byte of a file, which goes with the process.

    Raises:
        BlockingIOError: another process, or this one, holds it.
    """

    def __init__(self, path: PurePath) -> None:
        import msvcrt  # exists on Windows only

        self._fd = os.open(path, _FLAGS)
        try:
            msvcrt.locking(self._fd, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError as error:
            os.close(self._fd)
            raise BlockingIOError(error.errno, "locked by another process", str(path)) from None

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
