"""When a producer may be told that his message is safe: the disk's promise and the replicas' together
(CommitLog.handleDiskFlushAndHA). Per arrival, not per message.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from maxq.codes import ResponseCode
from maxq.store.message_store import MessageStore


class ReplicaAcks(Protocol):
    """What replication says about a put (HAService, GroupTransferService)."""

    def refusal(self) -> str | None:
        """Why nothing may be stored now (too few replicas in sync), with measured value, limit and remedy."""
        ...

    def when(self, end_offset: int, done: Callable[[bool], None]) -> bool:
        """Call `done(True)` when the replicas that are asked for have everything below `end_offset`, `done(False)`
        after slaveTimeout. False: they have, or nobody is asked for, and `done` is not called."""
        ...


class Acknowledgement:
    """One per broker. Without replicas only the disk counts."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._replicas: ReplicaAcks | None = None

    def set_replicas(self, replicas: ReplicaAcks) -> None:
        """From now on `replicas` are asked, too."""
        self._replicas = replicas

    def refusal(self) -> str | None:
        """The remark of an answer IN_SYNC_REPLICAS_NOT_ENOUGH (code 1); None: go on. Ask before anything is stored."""
        return None if self._replicas is None else self._replicas.refusal()

    def when(self, end_offset: int, done: Callable[[ResponseCode], None]) -> bool:
        """Tell `done` what a producer whose message ends at `end_offset` is told: SUCCESS, FLUSH_DISK_TIMEOUT or
        FLUSH_SLAVE_TIMEOUT, which wins over the disk's; the message is stored in any case.

        Returns:
            False: SUCCESS, now, and `done` is not called.
        """
        if self._replicas is None:
            return self._store.when_durable(
                end_offset, lambda flushed: done(ResponseCode.SUCCESS if flushed else ResponseCode.FLUSH_DISK_TIMEOUT)
            )
        both = _Both(done)
        if not self._store.when_durable(end_offset, both.on_flushed):
            both.flushed = True
        if not self._replicas.when(end_offset, both.on_copied):
            both.copied = True
        return both.flushed is None or both.copied is None

    def without_waiting(self) -> None:
        """A producer who waits for neither disk nor replicas (WAIT=false) is told now: what he sent outlives this
        process from here on, as with ASYNC_FLUSH."""
        self._store.settle()

    def outcome(self, end_offset: int) -> "asyncio.Future[ResponseCode] | None":
        """`when` for a coroutine: None for SUCCESS now, else a future."""
        future: asyncio.Future[ResponseCode] = asyncio.get_running_loop().create_future()

        def done(code: ResponseCode) -> None:
            if not future.done():
                future.set_result(code)

        return future if self.when(end_offset, done) else None


class _Both:
    """What disk and replicas have said of one wait; None: nothing yet."""

    __slots__ = ("_done", "copied", "flushed")

    def __init__(self, done: Callable[[ResponseCode], None]) -> None:
        self._done = done
        self.flushed: bool | None = None
        self.copied: bool | None = None

    def on_flushed(self, flushed: bool) -> None:
        self.flushed = flushed
        self._look()

    def on_copied(self, copied: bool) -> None:
        self.copied = copied
        self._look()

    def _look(self) -> None:
        if self.flushed is None or self.copied is None:
            return
        if not self.copied:
            self._done(ResponseCode.FLUSH_SLAVE_TIMEOUT)
        else:
            self._done(ResponseCode.SUCCESS if self.flushed else ResponseCode.FLUSH_DISK_TIMEOUT)
