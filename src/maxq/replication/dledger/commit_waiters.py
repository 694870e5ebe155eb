"""Who waits until what he appended is committed (pendingAppendResponsesByTerm of DLedger's pusher, without its gaps:
every waiter hears exactly once).

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
    """Told SUCCESS, WAIT_QUORUM_ACK_TIMEOUT or why it cannot be known any more."""

    def __init__(self) -> None:
        self._waiting: deque[_Waiter] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, key: int, deadline_ms: int, done: Done) -> None:
        """`done` is called once: when `key` is committed, after `deadline_ms` (monotonic), or by `fail`."""
        waiting = self._waiting
        waiter = _Waiter(key, deadline_ms, done)
        if waiting and waiting[-1].key > key:
            insort(waiting, waiter, key=_KEY)
        else:
            waiting.append(waiter)

    def committed(self, key: int) -> None:
        """Everything up to `key` is committed."""
        waiting = self._waiting
        while waiting and waiting[0].key <= key:
            waiting.popleft().done(DLedgerResponseCode.SUCCESS)

    def fail(self, code: DLedgerResponseCode) -> None:
        """Nobody will learn here whether his entry is committed; it may be."""
        waiting, self._waiting = self._waiting, deque()
        for waiter in waiting:
            waiter.done(code)

    def expire(self, now_ms: int) -> None:
        """Who has waited too long hears so; his entry may still be committed."""
        late = [waiter for waiter in self._waiting if waiter.deadline_ms <= now_ms]
        if late:
            self._waiting = deque(waiter for waiter in self._waiting if waiter.deadline_ms > now_ms)
            for waiter in late:
                waiter.done(DLedgerResponseCode.WAIT_QUORUM_ACK_TIMEOUT)

    def next_deadline_ms(self) -> int | None:
        """When `expire` has something to do; None: nobody waits."""
        return min((waiter.deadline_ms for waiter in self._waiting), default=None)
