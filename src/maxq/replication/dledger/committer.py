"""Committer: tells the store which entries are committed (readers then see them), then the listeners, then the waiters.

A leader does so at once. On a follower only readers wait for it, while the leader waits for the answer to the push that
carried the commit index. So a follower does it when the flush of this turn has begun or ended.
"""

import asyncio
from collections.abc import Callable

from maxq.errors import MaxQError
from maxq.protocol.dledger.ledger import Ledger
from maxq.replication.dledger.commit_waiters import CommitWaiters


class Committer:
    """Carries out the commits of one member.

    Attributes:
        waiters: who waits for what.
    """

    def __init__(self, store: Ledger, fail: Callable[[BaseException], None]) -> None:
        """`fail(error)` is called when a deferred commit meets an error after which the store cannot be used."""
        self.waiters = CommitWaiters()
        self._store = store
        self._fail = fail
        self._listeners: list[Callable[[int], None]] = []
        self._due = -1  # committed index that has not been reported yet; -1: none

    def add_listener(self, listener: Callable[[int], None]) -> None:
        """Add a listener, called as `listener(index)` when everything up to `index` is committed and readers of the
        store see it."""
        self._listeners.append(listener)

    def at_once(self, index: int) -> None:
        """Commit everything up to `index`, and tell the listeners and those who wait for it."""
        self._due = -1
        self._store.commit(index)
        for listener in self._listeners:
            listener(index)
        self.waiters.committed(self._store.committed_position)

    def soon(self, index: int) -> None:
        """Commit everything up to `index` in the next turn of the event loop."""
        if self._due < 0:
            asyncio.get_running_loop().call_soon(self._tell)
        self._due = index

    def finish(self) -> None:
        """Carry out a commit that `soon` has deferred, before an operation that depends on it."""
        if self._due >= 0:
            self.at_once(self._due)

    def _tell(self) -> None:
        try:
            self.finish()
        except (MaxQError, OSError) as error:
            self._fail(error)
