"""How far the log went at some time, and whether what lay before can still be lost.

Services of a group's active broker note how far they are (delays delivered, transactions ended), on the disk and for
their slaves. Such a note must not know more than the log that outlives this broker: what it calls done would never be
done. Without DLedger that is what is durable here. In a DLedger group only committed entries of the same leadership
count: entries of a deposed leader may be lost, with other entries in their places.
"""

import asyncio
from typing import Final, NamedTuple

from maxq.store.dledger.message_ledger import MessageLedger
from maxq.store.durability.flush import CommitLogFlusher
from maxq.store.log.commit_log import CommitLog

NOT_LEADING: Final = -1
_LOOK_SECONDS: Final = 0.005
_LOOKS: Final = 200


class LogMark(NamedTuple):
    """The end of a log at some time.

    Attributes:
        end: physical offset behind the last record, visible or not; of a DLedger log, index of the last entry.
        term: of the leadership that wrote there; 0 without DLedger; NOT_LEADING: this member did not lead.
    """

    end: int
    term: int


class LogMarks:
    """Makes and judges the marks of one store's log."""

    def __init__(self, commit_log: CommitLog, flusher: CommitLogFlusher, ledger: MessageLedger | None) -> None:
        self._log = commit_log
        self._flusher = flusher
        self._ledger = ledger

    def mark(self) -> LogMark:
        """Return a mark of the log's end at this moment, for `is_final`."""
        if self._ledger is None:
            return LogMark(self._log.max_offset, 0)
        return LogMark(self._log.tail.next_index - 1, self._ledger.leading_term)

    def is_final(self, mark: LogMark) -> bool:
        """Return whether no record stored before `mark` can be lost any more. For a mark of a leadership that has ended
        this stays as it is."""
        if self._ledger is None:
            return self._log.flushed_offset >= mark.end
        return NOT_LEADING != mark.term == self._ledger.leading_term and self._ledger.committed_index >= mark.end

    async def make_final(self, mark: LogMark) -> bool:
        """Wait until `mark` is final, about a second at most. Returns False if it is not, or can never be."""
        if self._ledger is None:
            if not self.is_final(mark):
                await self._flusher.flush_all()
        else:
            for _ in range(_LOOKS):
                if self.is_final(mark) or mark.term != self._ledger.leading_term:
                    break
                await asyncio.sleep(_LOOK_SECONDS)
        return self.is_final(mark)
