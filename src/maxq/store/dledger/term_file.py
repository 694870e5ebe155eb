"""`currterm`: term and vote, durable before anybody hears of them (MemberState.java, S3)."""

from pathlib import PurePath
from typing import NamedTuple

from maxq.runtime.interfaces import Disk
from maxq.store.dledger.interfaces import TermState
from maxq.store.dledger.text_file import TextFile, number

_TERM, _VOTE = "currTerm", "voteLeader"


class TermFound(NamedTuple):
    """What a load found: `state` is None if the files cannot be read."""

    state: TermState | None
    is_missing: bool
    faults: list[str]


class TermFile:
    """The file `currterm` of a member."""

    def __init__(self, disk: Disk, folder: PurePath) -> None:
        self._file = TextFile(disk, folder / "currterm", frozenset((_TERM, _VOTE)))

    def load(self) -> TermFound:
        """What was stored last; Java's file without a vote has an empty voteLeader."""
        found = self._file.load()
        if found.values is None:
            return TermFound(None, found.is_missing, found.faults)
        state = term_state(found.values)
        if state is None:
            found.faults.append(f"{self._file.path}: {_TERM}={found.values.get(_TERM)!r} is no term")
        return TermFound(state, False, found.faults)

    def save(self, state: TermState) -> None:
        """Make it durable. Blocks; any thread, one at a time.

        Raises:
            OSError: it may be durable or not.
        """
        self._file.save({_VOTE: state.voted_for or "", _TERM: str(state.term)})


def term_state(values: dict[str, str]) -> TermState | None:
    """None if there is no term in them."""
    term = number(values, _TERM)
    return None if term is None or term < 0 else TermState(term, values.get(_VOTE) or None)
