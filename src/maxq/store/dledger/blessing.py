"""The operator's command for a member that has lost entries which no other member can give back (S10).

A member that lost durable entries, or its vote, takes part in no election until a leader's log has what it lost. When a
majority of the group is in that state there is no such leader, and never will be. An operator must then decide that the
remaining entries are the log. This module reports the remaining entries, and carries out the decision; the caller
(cli/commands/dledger_blessing.py) checks whether it is allowed, because that depends on the other members.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import PurePath

from maxq.errors import StoreRefusedError
from maxq.protocol.dledger.ledger import HardState
from maxq.runtime.interfaces import Disk
from maxq.store.dledger.ledger_checkpoint import LedgerCheckpoint, LedgerCheckpointFile
from maxq.store.dledger.ledger_index import UNIT, UNIT_SIZE
from maxq.store.dledger.term_file import TermFile
from maxq.store.files.mapped_file_queue import is_offset_name


@dataclass(frozen=True, slots=True)
class Remains:
    """State of a stopped member, read from its small files.

    Attributes:
        end_index, end_term: of its last entry; -1: none.
        term: as stored; -1 if the file is lost, and the vote with it.
        lost_until: it knows that it had entries up to here and lost some of them; -1: none.
    """

    end_index: int
    end_term: int
    term: int
    lost_until: int

    @property
    def is_amnesiac(self) -> bool:
        """Returns whether the member would take no part in elections, because it may have forgotten entries that it
        acknowledged."""
        return self.lost_until >= 0 or (self.term < self.end_term)


class StoppedMember:
    """The files, in `<base>/dledger-<self_id>`, of a member that does not run."""

    def __init__(self, disk: Disk, base: PurePath, self_id: str) -> None:
        self._disk = disk
        self._base = base
        self.folder = base / f"dledger-{self_id}"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the files, so that no process can start on them inside the context.

        Raises:
            StoreRefusedError: somebody runs on them.
        """
        with ExitStack() as held:
            for path in (self._base / "lock", self.folder / "lock"):  # locks of a broker and of a bare member
                if not self._disk.exists(path):
                    continue
                try:
                    held.callback(self._disk.lock(path, b"lock").release)
                except BlockingIOError:
                    raise StoreRefusedError(f"{path} is locked: the member runs. Stop it first") from None
            yield

    def remains(self) -> Remains:
        """Read the state of the stopped member.

        Raises:
            StoreRefusedError: no member's files, or none that was started since it lost what it lost.
        """
        checkpoint = self._checkpoint()
        found = TermFile(self._disk, self.folder).load().state
        end = checkpoint.end_index
        return Remains(
            end, self._term_of(end) if end >= 0 else -1, -1 if found is None else found.term, checkpoint.amnesiac_until
        )

    def bless(self, term: int) -> None:
        """Declare the member complete in `term`, in which it has not voted. Blocks.

        Args:
            term: later than any that it can have voted in.
        """
        checkpoint = self._checkpoint()
        committed = min(checkpoint.committed_index, checkpoint.end_index)
        TermFile(self._disk, self.folder).save(HardState(term))
        LedgerCheckpointFile(self._disk, self.folder).save(
            replace(checkpoint, committed_index=committed, amnesiac_until=-1)
        )

    def _checkpoint(self) -> LedgerCheckpoint:
        checkpoint, faults = LedgerCheckpointFile(self._disk, self.folder).load()
        if checkpoint is None:
            why = "; ".join(faults) or "there is no checkpoint"
            raise StoreRefusedError(f"{self.folder}: {why}. Start the member once, and stop it")
        return checkpoint

    def _term_of(self, index: int) -> int:
        """Returns the term of an entry, read from its index unit."""
        folder, place = self.folder / "index", index * UNIT_SIZE
        for entry in self._disk.list(folder):
            if is_offset_name(entry.name) and 0 <= place - int(entry.name) <= entry.size - UNIT_SIZE:
                region = self._disk.map(folder / entry.name, entry.size, read_only=True)
                magic, _, _, own, term = UNIT.unpack_from(region.view, place - int(entry.name))
                region.close()
                if magic == 1 and own == index:
                    return int(term)
        raise StoreRefusedError(
            f"{folder} lacks the index unit of entry {index}. Start the member once, which writes the missing units, "
            "and stop it"
        )
