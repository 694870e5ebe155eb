"""`currterm`: the file with term and vote, which are durable before any other member is told of them (MemberState.java,
S3).

A group whose disks are all full must be able to elect a leader, for somebody must tell producers why nothing is taken,
and serve readers: a term has room on a full disk (text_file.py).
"""

from pathlib import PurePath
from typing import NamedTuple

from maxq.protocol.dledger.ledger import HardState
from maxq.runtime.interfaces import Disk
from maxq.store.dledger.text_file import TextFile, number

_TERM, _VOTE = "currTerm", "voteLeader"


class TermFound(NamedTuple):
    """Result of a load. `state` is None if the files cannot be read."""

    state: HardState | None
    is_missing: bool
    faults: list[str]


class TermFile:
    """The file `currterm` of a member: its term and vote."""

    def __init__(self, disk: Disk, folder: PurePath) -> None:
        self._file = TextFile(disk, folder / "currterm", frozenset((_TERM, _VOTE)))

    def load(self) -> TermFound:
        """Return the last stored state. In Java's file an empty voteLeader means that there was no vote."""
        found = self._file.load()
        if found.values is None:
            return TermFound(None, found.is_missing, found.faults)
        state = term_state(found.values)
        if state is None:
            found.faults.append(f"{self._file.path}: {_TERM}={found.values.get(_TERM)!r} is no term")
        return TermFound(state, False, found.faults)

    def save(self, state: HardState) -> None:
        """Make the state durable. Blocks; any thread, one at a time.

        Raises:
            OSError: it may be durable or not.
        """
        self._file.save({_VOTE: state.voted_for or "", _TERM: str(state.term)})

    def keep_room(self) -> None:
        """Allocate the block that a later `save` needs, if the disk has room. Blocks."""
        self._file.keep_room()


def term_state(values: dict[str, str]) -> HardState | None:
    """Returns the term and vote of the file's values; None if they name no term."""
    term = number(values, _TERM)
    return None if term is None or term < 0 else HardState(term, values.get(_VOTE) or None)
