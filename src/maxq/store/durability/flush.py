"""When bytes become durable (CommitLog's GroupCommitService and FlushRealTimeService, FlushConsumeQueueService).

SYNC_FLUSH is a group commit: what arrives in one turn of the loop is a group, and while one fdatasync is in flight
everything that arrives joins the next. After each one `on_durable` dispatches what became durable, then the waiting
senders are answered. ASYNC_FLUSH flushes every flushIntervalCommitLog once enough pages wait, and thoroughly every
flushCommitLogThoroughInterval.

A failed fdatasync is final: the kernel may have dropped the pages it could not write, so a later success would prove
nothing. The store then refuses writes, says why, and nobody who waited is told that its message is safe.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from maxq.errors import StoreFailedError
from maxq.runtime.blocking import FLUSHES
from maxq.store.context.running_flags import NOT_WRITABLE
from maxq.store.context.store_context import StoreContext
from maxq.store.durability.store_checkpoint import StoreCheckpoint
from maxq.store.files.mapped_file import OS_PAGE_SIZE, MappedFile
from maxq.store.log.commit_log import CommitLog

log = logging.getLogger(__name__)

_NOWHERE = 1 << 62
_LATE_STEP = 32 << 20  # bytes that a slave that catches up appends between two flushes
_SMALL = 16 << 10  # bytes of a group up to which the event loop may sync it itself
_MODEST = 1 << 20  # bytes of a group up to which it is synced without a thread
_LARGE_PAGE = 2 << 20  # largest page of the page cache in bytes

Piece = tuple[MappedFile, int, int]  # bytes [start, end) of a file
Pieces = list[Piece]


class _Waiter(NamedTuple):
    end_offset: int
    deadline_ms: int
    done: Callable[[bool], None]


class CommitLogFlusher:
    """Makes the CommitLog durable.

    Attributes:
        appended_timestamp: store time of the newest record in the log; the store sets it.
        failure: what a failed flush said; None as long as all went well.
    """

    def __init__(
        self, context: StoreContext, commit_log: CommitLog, checkpoint: StoreCheckpoint, on_durable: Callable[[], None]
    ) -> None:
        """`on_durable` is called with SYNC_FLUSH, and for a DLedger log, after each flush: before those who wait for it
        are told."""
        self._context = context
        self._commit_log = commit_log
        commit_log.on_sync_failed = self.fail
        self._checkpoint = checkpoint
        self._on_durable = on_durable
        self._waiters: deque[_Waiter] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._begin: asyncio.Handle | None = None  # the call that starts the next group commit
        self._in_flight: asyncio.Future[None] | None = None
        self._after: Callable[[], None] | None = None  # called once when the commit in flight ends
        self._cut_at = _NOWHERE  # physical offset at which the log was cut while a flush was in flight
        self._last_thorough_ms = 0
        self._is_late = False
        self.appended_timestamp = 0
        self.failure: str | None = None

    @property
    def is_sync(self) -> bool:
        """Whether appends are flushed at once. For a DLedger log it is always true, because members tell each other
        which entries are durable."""
        config = self._context.config
        return config.flush_disk_type == "SYNC_FLUSH" or config.enable_dleger_commit_log

    @property
    def waits_for_disk(self) -> bool:
        """Whether `when_durable` may have to wait (SYNC_FLUSH) or report a failed disk."""
        return self.is_sync or self.failure is not None

    def write_buffered(self) -> bool:
        """Write everything that is appended to the files: it then survives the end of the process, but not a loss of
        power. Returns False if the device refuses."""
        try:
            self._commit_log.write_buffered(self._commit_log.max_offset)
        except OSError as error:
            self.fail(error)
            return False
        return True

    # --- SYNC_FLUSH ---

    def when_durable(self, end_offset: int, done: Callable[[bool], None]) -> bool:
        """Call `done(True)` when everything below `end_offset` is durable, `done(False)` after syncFlushTimeout or a
        failed flush; never before this returns.

        Returns:
            False: nothing to wait for (ASYNC_FLUSH, or durable already), and `done` is not called.
        """
        if self._context.is_dledger or self._commit_log.flushed_offset >= end_offset:
            return False
        if self.failure is not None:
            asyncio.get_running_loop().call_soon(done, False)
            return True
        if not self.is_sync:
            return False
        deadline = self._context.clock.monotonic_ms() + self._context.config.sync_flush_timeout
        self._waiters.append(_Waiter(end_offset, deadline, done))
        if self._timer is None:
            timeout = self._context.config.sync_flush_timeout / 1000
            self._timer = asyncio.get_running_loop().call_later(timeout, self._expire)
        return True

    def joins_next(self, then: Callable[[], None]) -> bool:
        """Return whether a group commit is in flight, so that a record appended now waits for the next one anyway. If
        so, `then` is called after the waiters of that commit were told. Only one callback is kept: a later call
        replaces it."""
        if self._in_flight is None or not self.is_sync or self._context.is_dledger or self.failure is not None:
            return False
        self._after = then
        return True

    def commit_soon(self) -> None:
        """Begin a group commit for the appended records: at the end of this turn of the loop, or after the commit in
        flight; at once if no loop runs."""
        if self._begin is not None or self._in_flight is not None:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.commit()
        else:
            self._begin = loop.call_soon(self.commit)

    def commit(self) -> None:
        """Start a group commit unless one is in flight; inline if no loop runs."""
        if self._begin is not None:
            self._begin.cancel()
            self._begin = None
        if self._in_flight is not None or self.failure is not None:
            return
        try:
            end, pieces = self._commit_log.flush_ranges()
        except OSError as error:
            self.fail(error)
            return
        if not pieces:
            return
        timestamp, self._cut_at = self.appended_timestamp, _NOWHERE
        forget = self._is_late
        if len(pieces) == 1 and not forget and self._commit_without_thread(pieces[0], end, timestamp):
            return
        self._in_flight = self._context.jobs.start(lambda: flush_pieces(pieces, forget=forget), FLUSHES)
        if self._in_flight is None:
            flush_pieces(pieces, forget=forget)
            self._flushed(end, timestamp)
            return
        self._in_flight.add_done_callback(lambda future: self._job_ended(future, end, timestamp))

    def _commit_without_thread(self, piece: Piece, end: int, timestamp: int) -> bool:
        """Run a group commit without a thread: on the loop if the group is small and the disk fast, otherwise by
        io_uring in the kernel. A thread costs nine futex calls and a turn of the loop for each group, a third of
        SYNC_FLUSH (benches/README.md). Returns False if neither is possible at the moment. The loop does not block
        if no sender waits (ASYNC_FLUSH), nor in a DLedger leader, because its followers' disks may be faster. The
        kernel's worker runs on the loop's processor, where the periodic writes of ASYNC_FLUSH would keep it busy; a
        thread finds another processor."""
        file, start, flushed = piece
        size = flushed - start
        job = self._context.jobs.begin() if size <= _MODEST else None
        if job is None:
            return False

        def done(error: OSError | None) -> None:
            if error is None:
                file.flushed_position = max(file.flushed_position, flushed)
            try:
                self._committed(error, end, timestamp)
            finally:
                self._context.jobs.end(job)

        try:
            may_wait = size <= _SMALL and self.is_sync and not self._context.is_leading
            is_done = may_wait and file.region.flush_at_once()
        except OSError as error:
            done(error)
            return True
        if is_done:
            done(None)
        elif file.region.flush_soon(done):
            self._in_flight = job
        else:
            self._context.jobs.end(job)
            return False
        return True

    def _job_ended(self, future: "asyncio.Future[None]", end: int, timestamp: int) -> None:
        if future.cancelled():
            self._in_flight = None
        else:
            self._committed(future.exception(), end, timestamp)

    def _committed(self, error: BaseException | None, end: int, timestamp: int) -> None:
        self._in_flight = None
        if error is not None:
            self.fail(error)
            return
        end = min(end, self._cut_at)
        self._flushed(end, timestamp)
        if self._after is not None:
            after, self._after = self._after, None
            after()
        if self._commit_log.max_offset > end and self.is_sync:
            self.commit_soon()

    def _flushed(self, end: int, timestamp: int) -> None:
        self._commit_log.flushed_offset = max(self._commit_log.flushed_offset, end)
        self._checkpoint.flushed_offset = self._commit_log.flushed_offset
        if self.is_sync:
            self._checkpoint.physic_msg_timestamp = max(self._checkpoint.physic_msg_timestamp, timestamp)
            self._on_durable()
        waiters = self._waiters
        while waiters and waiters[0].end_offset <= end:
            waiters.popleft().done(True)

    def copied(self, *, is_late: bool) -> None:
        """Note what a slave has appended. While the slave catches up (`is_late`), its data is flushed in steps and then
        dropped from the page cache, so that the next step reuses the pages. Fresh pages cost up to ten times as much
        as the write to the device (benches/README.md, Catching up)."""
        self._is_late = is_late
        if is_late and self._commit_log.max_offset - self._commit_log.flushed_offset >= _LATE_STEP:
            self.commit()

    def truncated(self, offset: int) -> None:
        """Note that the log was cut at `offset`: the result of a flush in flight does not hold for the bytes that will
        be written there."""
        self._cut_at = min(self._cut_at, offset)
        self._checkpoint.flushed_offset = min(self._checkpoint.flushed_offset, offset)

    def fail(self, error: BaseException) -> None:
        """Refuse all further appends, because appended records may never become durable."""
        self.failure = (
            f"flushing {self._commit_log.files.folder} failed: {error}. Nothing is taken any more, for what was not "
            "flushed may be lost; repair the disk and start again"
        )
        log.error(self.failure)
        self._context.flags.set(NOT_WRITABLE, self.failure)
        self._answer_all(False)

    def _expire(self) -> None:
        self._timer = None
        now = self._context.clock.monotonic_ms()
        waiters = self._waiters
        while waiters and waiters[0].deadline_ms <= now:
            waiters.popleft().done(False)
        if waiters:
            delay = max(1, waiters[0].deadline_ms - now) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay, self._expire)

    def _answer_all(self, outcome: bool) -> None:
        while self._waiters:
            self._waiters.popleft().done(outcome)

    # --- ASYNC_FLUSH, and the safety net below SYNC_FLUSH ---

    async def run(self) -> None:
        """Flush at intervals until cancelled (FlushRealTimeService).

        Raises:
            StoreFailedError: a flush failed, this one or a group commit.
        """
        self._last_thorough_ms = self._context.clock.monotonic_ms()
        while True:
            await asyncio.sleep(self._context.config.flush_interval_commit_log / 1000)
            await self.flush_some()
            if self.failure is not None:
                raise StoreFailedError(self.failure)

    async def flush_some(self) -> None:
        """Flush the log if enough was written or enough time has passed; ASYNC_FLUSH calls this at intervals."""
        config = self._context.config
        now = self._context.clock.monotonic_ms()
        thorough = now - self._last_thorough_ms >= config.flush_commit_log_thorough_interval
        waiting = self._commit_log.max_offset // OS_PAGE_SIZE - self._commit_log.flushed_offset // OS_PAGE_SIZE
        if self.failure is None and (thorough or waiting >= config.flush_commit_log_least_pages):
            timestamp = self.appended_timestamp
            await self.flush_all()
            if thorough:
                self._last_thorough_ms = now
                self._checkpoint.physic_msg_timestamp = max(self._checkpoint.physic_msg_timestamp, timestamp)

    async def flush_all(self) -> None:
        """Wait until everything that is in the log now is durable, or flushing has failed."""
        end = self._commit_log.max_offset
        while self._commit_log.flushed_offset < end and self.failure is None:
            self.commit()
            in_flight = self._in_flight
            if in_flight is None:
                return
            await asyncio.wait([in_flight])
            await asyncio.sleep(0)  # lets the future's callback, `_committed`, run

    def flush_inline(self) -> None:
        """Make everything durable now. Blocks; for a store without a loop."""
        end, pieces = self._commit_log.flush_ranges()
        flush_pieces(pieces)
        self._flushed(end, self.appended_timestamp)

    def close(self) -> None:
        """Tell the remaining waiters whether their records are durable, or that this is unknown."""
        if self._begin is not None:
            self._begin.cancel()
            self._begin = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        flushed = self._commit_log.flushed_offset
        while self._waiters:
            waiter = self._waiters.popleft()
            waiter.done(waiter.end_offset <= flushed)


def flush_pieces(pieces: Pieces, *, forget: bool = False) -> None:
    """Make parts of files durable. Blocks.

    Args:
        forget: they may leave memory then.

    Raises:
        FileNotFoundError: a file is gone.
        OSError: the disk refuses.
    """
    for file, start, end in pieces:
        region = file.region_to_flush()
        region.flush(start, end)
        file.flushed_position = max(file.flushed_position, end)
        if forget:
            # includes a large page that the previous step could not drop as a whole
            region.forget(max(0, start - _LARGE_PAGE), end)
