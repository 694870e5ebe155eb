"""When a producer may be told that its message is safe: the disk's promise and the replicas' together
(CommitLog.handleDiskFlushAndHA). Per arrival, not per message.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from maxq.broker.stats.stage_times import Stage, StageSample
from maxq.codes import ResponseCode
from maxq.store.durability.flush import CommitLogFlusher

#: Codes with which the message is stored and stays, whether or not disk and replicas have confirmed it. With any other
#: code it may still be lost.
STAYS = frozenset(
    (ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT,
     ResponseCode.SLAVE_NOT_AVAILABLE)
)  # fmt: skip

_STORED = (
    "{} is stored, but disk or replicas did not have it in time (flushDiskType, brokerRole, slaveTimeout): after a "
    "crash {}; look at why-slow and at the replicas"
)
_NOBODY_KNOWS = "it is unknown whether {} is stored: the group has not committed it in time, or has another leader now"


def remark_of(code: ResponseCode, what: str, otherwise: str) -> str:
    """Return the remark of an answer with a `code` of `Acknowledgement.when` that is not SUCCESS.

    Args:
        what: the stored object, with its article: "the ack".
        otherwise: the consequence of its loss: "the message may come again".
    """
    return _STORED.format(what, otherwise) if code in STAYS else f"{_NOBODY_KNOWS.format(what)}; if not, {otherwise}"


class ReplicaAcks(Protocol):
    """Interface to replication for what a put must wait for (HAService, GroupTransferService)."""

    def refusal(self) -> str | None:
        """Return why nothing may be stored now (too few replicas in sync), with measured value, limit and remedy; None
        if messages may be stored."""
        ...

    def asks(self) -> bool:
        """Return whether a send may have to wait for replicas now, so that `when` must be called."""
        ...

    def when(self, end_offset: int, done: Callable[[bool], None]) -> bool:
        """Call `done(True)` when the required replicas have everything below `end_offset`, or `done(False)` after
        slaveTimeout. Returns False without a call of `done` if they have it already, or if no replica is
        required."""
        ...


class Acknowledgement:
    """Waits for the disk and the replicas before a send of this broker is answered. Without replicas only the disk
    counts."""

    refusal_code = ResponseCode.SYSTEM_ERROR  # code of the answer that `refusal` gives

    def __init__(self, flusher: CommitLogFlusher) -> None:
        self._flusher = flusher
        self._replicas: ReplicaAcks | None = None

    def set_replicas(self, replicas: ReplicaAcks) -> None:
        """Make sends wait for `replicas`, too, from now on."""
        self._replicas = replicas

    def refusal(self) -> str | None:
        """Return the remark of an answer with `refusal_code` (IN_SYNC_REPLICAS_NOT_ENOUGH); None if messages may be
        stored. Ask before anything is stored."""
        return None if self._replicas is None else self._replicas.refusal()

    def may_wait(self) -> bool:
        """Return whether `when` may have to wait at all."""
        return self._flusher.waits_for_disk or (self._replicas is not None and self._replicas.asks())

    def when(self, end_offset: int, done: Callable[[ResponseCode], None], sample: StageSample | None = None) -> bool:
        """Call `done` with the result of a send whose message ends at `end_offset`: SUCCESS, FLUSH_DISK_TIMEOUT or
        FLUSH_SLAVE_TIMEOUT; the latter wins over the disk's. The message is stored in each case. `sample` gets the
        times of disk and replicas.

        Returns:
            False: SUCCESS, now, and `done` is not called.
        """
        if self._replicas is None and sample is None:
            return self._flusher.when_durable(
                end_offset, lambda flushed: done(ResponseCode.SUCCESS if flushed else ResponseCode.FLUSH_DISK_TIMEOUT)
            )
        both = _DiskAndReplicaWait(done, sample)
        if not self._flusher.when_durable(end_offset, both.on_flushed):
            both.flushed = True
        if self._replicas is None or not self._replicas.when(end_offset, both.on_copied):
            both.copied = True
        return both.flushed is None or both.copied is None

    def without_waiting(self) -> None:
        """Acknowledge at once a send that waits for neither disk nor replicas (WAIT=false): from here on the message
        survives a crash of this process, as with ASYNC_FLUSH."""
        self._flusher.write_buffered()

    def outcome(self, end_offset: int) -> "asyncio.Future[ResponseCode] | None":
        """Do what `when` does, for a coroutine: return None for an immediate SUCCESS, else a future."""
        future: asyncio.Future[ResponseCode] = asyncio.get_running_loop().create_future()

        def done(code: ResponseCode) -> None:
            if not future.done():
                future.set_result(code)

        return future if self.when(end_offset, done) else None


class _DiskAndReplicaWait:
    """The answers of disk and replicas to one wait; None while an answer is missing."""

    __slots__ = ("_done", "_sample", "copied", "flushed")

    def __init__(self, done: Callable[[ResponseCode], None], sample: StageSample | None) -> None:
        self._done = done
        self._sample = sample
        self.flushed: bool | None = None
        self.copied: bool | None = None

    def on_flushed(self, flushed: bool) -> None:
        self.flushed = flushed
        if self._sample is not None:
            self._sample.heard(Stage.FLUSH)
        self._finish_if_both()

    def on_copied(self, copied: bool) -> None:
        self.copied = copied
        if self._sample is not None:
            self._sample.heard(Stage.REPLICATE)
        self._finish_if_both()

    def _finish_if_both(self) -> None:
        if self.flushed is None or self.copied is None:
            return
        if not self.copied:
            self._done(ResponseCode.FLUSH_SLAVE_TIMEOUT)
        else:
            self._done(ResponseCode.SUCCESS if self.flushed else ResponseCode.FLUSH_DISK_TIMEOUT)
