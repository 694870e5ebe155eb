"""AppendPropagation: the way of what was appended to the log, to slaves, disk, queues and readers.

Every append ends in `appended`: slaves hear of it, then it is dispatched at once with ASYNC_FLUSH, when it is durable
with SYNC_FLUSH, when it is committed in a DLedger log.

Source:
    store/DefaultMessageStore.java (ReputMessageService), store/CommitLog.java (handleDiskFlushAndHA).
"""

import asyncio
from collections.abc import Callable

from maxq.store.context.store_context import StoreContext
from maxq.store.dispatch.dispatcher import DispatchService
from maxq.store.dledger.message_ledger import MessageLedger
from maxq.store.durability.flush import CommitLogFlusher
from maxq.store.index.index_service import IndexService
from maxq.store.log.commit_log import CommitLog

#: Bytes of log between two checks of what must be ready ahead: a small part of what is ready.
_PREPARE_STEP = 16 << 10


class AppendPropagation:
    """Passes on what was appended; see the module's text.

    Attributes:
        listeners: each is called, in this order, after each append to the log, before dispatch.
    """

    def __init__(
        self,
        context: StoreContext,
        commit_log: CommitLog,
        flusher: CommitLogFlusher,
        dispatch: DispatchService,
        index: IndexService,
        ledger: MessageLedger | None,
    ) -> None:
        """`ledger` is this member's log with enableDLegerCommitLog, None without."""
        self._context = context
        self._commit_log = commit_log
        self._flusher = flusher
        self._dispatch = dispatch
        self._index = index
        self._ledger = ledger
        self.listeners: list[Callable[[], None]] = []
        self._prepared_at = -_PREPARE_STEP  # physical offset of the last check
        self._is_dispatching = False  # dispatch continues in the next turn of the event loop

    def appended(self) -> None:
        """Propagate an append: push it to slaves, schedule the flush, and dispatch it to queues."""
        flusher = self._flusher
        # With ASYNC_FLUSH senders are answered at once, so the records must be in the system's memory and survive this
        # process.
        if not flusher.is_sync and not flusher.write_buffered():
            return
        end = self._commit_log.max_offset
        for tell in self.listeners:
            tell()
        if self._ledger is not None:
            self._ledger.appended()
        elif flusher.is_sync:
            flusher.commit_soon()
        elif not self._is_dispatching:
            self._dispatch.run(end, in_turns=True)
        if not 0 <= end - self._prepared_at < _PREPARE_STEP:
            self._prepared_at = end
            self._commit_log.prepare_ahead()
            self._index.prepare_ahead()

    def dispatch_all(self) -> None:
        """Dispatch whatever readers may see by now; a member of a DLedger group first takes up what it appended."""
        if self._ledger is not None:
            self._ledger.appended()
        self.dispatch_visible()

    def dispatch_visible(self) -> None:
        """Dispatch all records that readers may see, in this turn of the loop."""
        self._dispatch.run(self._visible_end)

    @property
    def _visible_end(self) -> int:
        """Return the physical offset below which readers may see everything."""
        if self._ledger is not None:
            return self._ledger.committed_position
        return self._commit_log.flushed_offset if self._flusher.is_sync else self._commit_log.max_offset

    def dispatch_later(self) -> None:
        """Dispatch the rest in later turns of the loop; at once if no loop runs."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._dispatch.run(self._visible_end)
            return
        if not self._is_dispatching:
            self._is_dispatching = True
            loop.call_soon(self._dispatch_rest)

    def _dispatch_rest(self) -> None:
        self._is_dispatching = False
        if not self._context.jobs.is_closed:  # otherwise the shutdown dispatches the rest
            self._dispatch.run(self._visible_end, in_turns=True)
