"""ConfigManager: a table that is one small file under config/, with its predecessor beside it as `<name>.bak`.

Writing: the file becomes the .bak, then the new content appears under the name. Each step is atomic and durable, so
that one of the two files is intact after a loss of power at any moment. Reading: a file that is empty or unreadable is
put aside, and the .bak is used, as it is if the file is missing. If neither file exists, the table is empty (a new
broker). If files exist and none is readable, the start is refused, because an empty table would silently lose offsets
or topics; only a table that may be lost (MAY_BE_LOST) starts empty.

Source:
    common/ConfigManager.java (load, loadBak, persist), MixAll.string2File.
"""

import logging
from abc import ABC, abstractmethod
from pathlib import PurePath
from typing import ClassVar

from maxq.errors import MaxQError, StoreRefusedError
from maxq.runtime.interfaces import Disk

log = logging.getLogger(__name__)


class ConfigManager(ABC):
    """A table that is stored in one file below `config`; subclasses encode and decode it.

    Attributes:
        MAY_BE_LOST: the broker fills the table again by itself, or only counts in it. A `decode` that fails leaves it
            empty then.
        is_new: the last `load` found neither the file nor its .bak.
    """

    MAY_BE_LOST: ClassVar[bool] = False

    def __init__(self, disk: Disk, path: PurePath) -> None:
        self._disk = disk
        self._file = path
        self._backup = path.with_name(path.name + ".bak")
        self.is_new = False

    @abstractmethod
    def encode(self) -> bytes:
        """Returns the whole table as the bytes of its file."""

    @abstractmethod
    def decode(self, data: bytes) -> None:
        """Replace the table by a file's content. Raises MaxQError or ValueError if it cannot be read; the table may be
        half-filled then, and is filled anew from the .bak."""

    def persist(self) -> None:
        """Write the table; blocks until it is durable. Raises OSError if the disk refuses; the file then keeps its old
        content."""
        data = self.encode()
        if self._disk.exists(self._file):
            self._disk.rename(self._file, self._backup)
        self._disk.replace(self._file, data)

    def load(self) -> None:
        """Fill the table from the file or its .bak; leave it empty if there is neither.

        Raises:
            StoreRefusedError: one of them is there, and none can be read; or the disk does not let this user read one.
        """
        problem = self._take(self._file)
        if problem is None:
            return
        backup_problem = self._take(self._backup)
        self.is_new = problem == backup_problem == ""
        if backup_problem is None:
            if problem:
                log.error("%s %s: it is renamed to .broken, and %s is used", self._file, problem, self._backup.name)
                self._disk.rename(self._file, self._file.with_name(self._file.name + ".broken"))
        elif (problem or backup_problem) and self.MAY_BE_LOST:
            log.warning("neither %s nor %s can be read: the table starts empty", self._file, self._backup.name)
        elif problem or backup_problem:
            raise StoreRefusedError(
                f"{self._file} {problem or 'is missing'}, and {self._backup.name} {backup_problem or 'is missing'}. "
                "Restore one of them from a copy or from another broker; delete both only if this table may start "
                "empty."
            )

    def _take(self, path: PurePath) -> str | None:
        """Load one file. Returns None on success, "" if the file does not exist, otherwise what is wrong with it."""
        try:
            data = self._disk.read(path)
        except FileNotFoundError:
            return ""
        except OSError as error:
            if self.MAY_BE_LOST:
                return f"is not readable ({error.strerror})"
            raise StoreRefusedError(
                f"{path} cannot be read: {error.strerror}. Give this user permission to read and write it, or restore "
                "it from a copy."
            ) from error
        if not data.strip(b" \t\r\n\0"):
            return "is empty"
        try:
            self.decode(data)
        except (MaxQError, ValueError) as error:
            return f"is not readable ({error})"
        return None
