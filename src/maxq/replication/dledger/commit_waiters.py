"""Waiters for the commit of entries that they appended (pendingAppendResponsesByTerm of DLedger's pusher, without its
gaps: every waiter is told exactly once).

Sans-IO: a key is the position in the log behind an entry; keys come nearly always in order.
"""

from bisect import insort
from collections import deque
from collections.abc import Callable
from operator import attrgetter
from typing import Final, NamedTuple

from maxq.protocol.dledger.dledger_messages import DLedgerResponseCode

Done = Callable[[DLedgerResponseCode], None]


class _Waiter(NamedTuple):
    key: int
    deadline_ms: int
    done: Done


_KEY: Final = attrgetter("key")


class CommitWaiters:
    """Callers that wait for commits. Each is told SUCCESS, WAIT_QUORUM_ACK_TIMEOUT, or why the outcome can no longer
    be known."""

    def __init__(self) -> None:
        self._waiting: deque[_Waiter] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, key: int, deadline_ms: int, done: Done) -> None:
        """Wait for a commit. `done` is called once: when `key` is committed, after `deadline_ms` (monotonic), or by
        `fail`."""
        waiting = self._waiting
        waiter = _Waiter(key, deadline_ms, done)
        if waiting and waiting[-1].key > key:
            insort(waiting, waiter, key=_KEY)
        else:
            waiting.append(waiter)

    def committed(self, key: int) -> None:
        """Answer the waiters up to `key`, which is committed."""
        waiting = self._waiting
        while waiting and waiting[0].key <= key:
            waiting.popleft().done(DLedgerResponseCode.SUCCESS)

    def fail(self, code: DLedgerResponseCode) -> None:
        """Answer all waiters that the outcome can no longer be known here; their entries may still be committed."""
        waiting, self._waiting = self._waiting, deque()
        for waiter in waiting:
            waiter.done(code)

    def expire(self, now_ms: int) -> None:
        """Answer those that have waited too long; their entries may still be committed."""
        late = [waiter for waiter in self._waiting if waiter.deadline_ms <= now_ms]
        if late:
            self._waiting = deque(waiter for waiter in self._waiting if waiter.deadline_ms > now_ms)
            for waiter in late:
                waiter.done(DLedgerResponseCode.WAIT_QUORUM_ACK_TIMEOUT)

    def next_deadline_ms(self) -> int | None:
        """Return the time of the next deadline, in ms; None if there is no waiter."""
        return min((waiter.deadline_ms for waiter in self._waiting), default=None)
