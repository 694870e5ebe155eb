"""`checkpoint`: how far the log was durable and committed (DLedgerMmapFileStore.persistCheckPoint).

endIndex and committedIndex are Java's; it reads only the second. The others are ours:

    beginIndex, beginPosition   the first entry, if it does not begin its file: after a reset
    amnesiacUntil               see Ledger.amnesiac_until

It has room on a full disk (text_file.py): retention takes no file whose entries it does not call durable.
"""

import threading
from pathlib import PurePath

from maxq.lazy_dataclass import dataclass
from maxq.runtime.interfaces import Disk
from maxq.store.dledger.text_file import TextFile, number


@dataclass(frozen=True, slots=True)
class LedgerCheckpoint:
    """The numbers of the checkpoint; -1 means none. The entry `end_index` and all entries before it are durable."""

    end_index: int = -1
    committed_index: int = -1
    begin_index: int = -1
    begin_position: int = -1
    amnesiac_until: int = -1


class LedgerCheckpointFile:
    """Reads and writes the file. Saves are numbered on the loop's thread: an older one that ends late on the executor
    does not overwrite a newer one."""

    def __init__(self, disk: Disk, folder: PurePath) -> None:
        self._file = TextFile(disk, folder / "checkpoint", frozenset(("endIndex", "committedIndex")))
        self._lock = threading.Lock()
        self._numbered = self._written = 0

    def load(self) -> tuple[LedgerCheckpoint | None, list[str]]:
        """Return the last stored checkpoint (None if no file can be read), and one line for each fault found."""
        found = self._file.load()
        if found.values is None:
            return None, found.faults
        checkpoint = decode_checkpoint(found.values)
        if checkpoint is None:
            found.faults.append(f"{self._file.path}: a value is no number: {found.values}")
        return checkpoint, found.faults

    def number(self) -> int:
        """Returns the number of the next save, which may then run on the executor."""
        self._numbered += 1
        return self._numbered

    def is_newest(self, number: int) -> bool:
        """Return whether the file has the content of save `number`."""
        return self._written == number

    def save(self, checkpoint: LedgerCheckpoint, number: int | None = None) -> None:
        """Make the checkpoint durable, unless a newer one is. Blocks.

        Raises:
            OSError: it may be durable or not.
        """
        values = {"committedIndex": str(checkpoint.committed_index), "endIndex": str(checkpoint.end_index)}
        if checkpoint.begin_index >= 0:
            values |= {"beginIndex": str(checkpoint.begin_index), "beginPosition": str(checkpoint.begin_position)}
        if checkpoint.amnesiac_until >= 0:
            values["amnesiacUntil"] = str(checkpoint.amnesiac_until)
        number = self.number() if number is None else number
        with self._lock:
            if number > self._written:
                self._file.save(values)
                self._written = number

    def keep_room(self) -> None:
        """Allocate the block that a later `save` needs, if the disk has room. Blocks."""
        self._file.keep_room()


def decode_checkpoint(values: dict[str, str]) -> LedgerCheckpoint | None:
    """Returns the checkpoint; None if one of the values is not a number."""
    keys = ("endIndex", "committedIndex", "beginIndex", "beginPosition", "amnesiacUntil")
    numbers = [number(values, key) for key in keys]
    if any(found is None for found in numbers):
        return None
    end, committed, begin, position, amnesiac = (-1 if found is None else found for found in numbers)
    if (begin < 0) != (position < 0):
        return None
    return LedgerCheckpoint(end, committed, begin, position, amnesiac)
