"""DLedger's own files against each other: entries, index units, checkpoint, term."""

from pathlib import PurePath
from typing import Final

from maxq.runtime.interfaces import MappedRegion
from maxq.store.dledger.entries_cy import ANY_INDEX, STOP_BAD, STOP_BAD_CRC, STOP_ZERO, find_entry, scan_entries
from maxq.store.dledger.ledger_checkpoint import LedgerCheckpointFile
from maxq.store.dledger.ledger_index import UNIT, UNIT_SIZE
from maxq.store.dledger.term_file import TermFile
from maxq.store.files.mapped_file import holds_data
from maxq.store.tools.store_files import DataFile, Fault, StoreFiles

_REMEDY: Final = "this member gets it from the others when its store is emptied; nothing is lost while they have it"
_MOST: Final = 100


class LedgerCheck:
    """Checks the ledger. After `run`, `faults`, `notes` and `committed_position` are set: nothing behind that position
    is known to be committed. In a store without DLedger everything is committed."""

    def __init__(self, files: StoreFiles) -> None:
        self._files = files
        self._ends: dict[int, int] = {}  # index of an entry → position behind it
        self._wanted = -1
        self.faults: list[Fault] = []
        self.notes: list[str] = []
        self.committed_position = 1 << 62

    def run(self) -> None:
        """Read every file of the DLedger log once, and note its faults."""
        folder = self._files.dledger_folder
        if not self._files.dledger or folder is None:
            return
        checkpoint, faults = LedgerCheckpointFile(self._files.disk, folder).load()
        term = TermFile(self._files.disk, folder).load()
        for name, what in [("checkpoint", fault) for fault in faults] + [("currterm", fault) for fault in term.faults]:
            self._fault(folder / name, 0, what, "the other copy is taken at the next start")
        if term.state is None:
            self._fault(folder / "currterm", 0, "no term that can be read", "the member starts without its vote")
        self._wanted = -1 if checkpoint is None else checkpoint.committed_index
        last, newest_term = self._entries()
        if checkpoint is not None and last < max(checkpoint.end_index, checkpoint.committed_index):
            known = max(checkpoint.end_index, checkpoint.committed_index)
            self._fault(folder / "checkpoint", 0, f"it knows entry {known}, the log ends with {last}", _REMEDY)
        if checkpoint is not None and checkpoint.amnesiac_until >= 0:
            self.notes.append(f"this member has lost entries up to {checkpoint.amnesiac_until} and gives no votes")
        if term.state is not None and term.state.term < newest_term:
            self._fault(folder / "currterm", 0, f"term {term.state.term}, the log has {newest_term}", _REMEDY)
        self.committed_position = max(self._ends.get(self._wanted, 0), self._dispatched(), self._files.divided_offset)

    def _dispatched(self) -> int:
        inventory = self._files.inventory()
        return 0 if inventory is None else inventory.dispatched_offset

    def _entries(self) -> tuple[int, int]:
        """Check the entries of the log. Returns index and term of the last one."""
        index, term = ANY_INDEX, 0
        files = [file for file in self._files.log if self._files.holds_entries(file)]
        for number, file in enumerate(files):
            region = self._files.disk.map(file.path, file.size, read_only=True)
            try:
                index, term, goes_on = self._file(file, region, index, term)
            finally:
                region.close()
            if not goes_on and not any(self._has_entries(later, index) for later in files[number + 1 :]):
                break
            index = index if goes_on else ANY_INDEX
        return max(index, -1), term

    def _has_entries(self, file: DataFile, index: int) -> bool:
        """Return whether a file has an entry behind entry `index`."""
        region = self._files.disk.map(file.path, file.size, read_only=True)
        try:
            is_empty = not holds_data(region, 0, file.size)
            return not is_empty and find_entry(region.view, 0, file.size, file.from_offset, index)[0] >= 0
        finally:
            region.close()

    def _file(self, file: DataFile, region: MappedRegion, index: int, term: int) -> tuple[int, int, bool]:
        view, position = region.view, 0
        while True:
            begun = position
            position, index, term, stop = scan_entries(view, position, len(view), file.from_offset, index, term, True)
            self._units(file, view, begun, position)
            if stop not in (STOP_BAD, STOP_BAD_CRC, STOP_ZERO):
                return index, term, True
            found = -1
            if stop != STOP_ZERO or holds_data(region, position, len(view)):  # zeros may be damage if data follows
                found, _ = find_entry(view, position + 1, len(view), file.from_offset, index)
            if found < 0:
                if stop != STOP_ZERO and index != ANY_INDEX and not self._files.is_live:
                    self._fault(file.path, position, "this entry does not follow the one before it", _REMEDY)
                return index, term, False
            if index != ANY_INDEX:
                self._fault(file.path, position, f"bytes up to {found} are no entry; good ones follow", _REMEDY)
            position, index = found, ANY_INDEX

    def _units(self, file: DataFile, view: memoryview, start: int, end: int) -> None:
        """Compare the index units of the entries in view[start:end]."""
        folder = self._files.dledger_folder
        assert folder is not None, "there are entries"
        sizes = {entry.name: entry.size for entry in self._files.disk.list(folder / "index")}
        size = next(iter(sizes.values()), 0)
        if not size and not self.notes:
            self.notes.append(f"{self._files.name(folder / 'index')}: no units; a start writes them again")
        opened: dict[str, memoryview] = {}
        while start < end:
            length, own = int.from_bytes(view[start + 4 : start + 8], "big"), bytes(view[start + 8 : start + 24])
            index = int.from_bytes(own[:8], "big")
            if index == self._wanted:
                self._ends[index] = file.from_offset + start + length
            name = f"{index * UNIT_SIZE // size * size:020d}" if size else ""
            start += length
            if not size:
                continue
            if name in sizes and name not in opened:
                opened[name] = self._files.disk.map(folder / "index" / name, size, read_only=True).view
            place = file.from_offset + start - length
            wanted = UNIT.pack(1, place, length, index, int.from_bytes(own[8:], "big"))
            at = index * UNIT_SIZE % size
            if name not in opened or opened[name][at : at + UNIT_SIZE] != wanted:
                where = f"{self._files.name(file.path)}, byte {place - file.from_offset}"
                what = f"the unit of entry {index} is not that of {where}"
                self._fault(folder / "index" / name, at, what, "a start writes it again")

    def _fault(self, path: PurePath, position: int, what: str, remedy: str) -> None:
        if len(self.faults) < _MOST:
            self.faults.append(Fault(self._files.name(path), position, what, remedy))
