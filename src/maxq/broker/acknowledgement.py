"""When a producer may be told that his message is safe: the disk's promise and the replicas' together
(CommitLog.handleDiskFlushAndHA). Per arrival, not per message.
"""

import asyncio
from typing import Protocol

from maxq.codes import ResponseCode
from maxq.store.message_store import MessageStore


class ReplicaAcks(Protocol):
    """What replication says about a put (HAService, GroupTransferService)."""

    def refusal(self) -> str | None:
        """Why nothing may be stored now (too few replicas in sync), with measured value, limit and remedy."""
        ...

    def wait(self, end_offset: int) -> "asyncio.Future[bool] | None":
        """Do the replicas that are asked for have everything below `end_offset`? None: yes, or nobody is asked for.
        Else a future: True, or False after slaveTimeout."""
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

    def outcome(self, end_offset: int) -> "asyncio.Future[ResponseCode] | None":
        """What a producer whose message ends at `end_offset` is told.

        Returns:
            None: SUCCESS, now. Else a future: SUCCESS, FLUSH_DISK_TIMEOUT or FLUSH_SLAVE_TIMEOUT, which wins over the
            disk's; the message is stored in any case.
        """
        flushed = self._store.durable(end_offset)
        copied = None if self._replicas is None else self._replicas.wait(end_offset)
        if flushed is None and copied is None:
            return None
        result: asyncio.Future[ResponseCode] = asyncio.get_running_loop().create_future()

        def look(_: "asyncio.Future[bool]") -> None:
            waits = (flushed is not None and not flushed.done()) or (copied is not None and not copied.done())
            if waits or result.done():
                return
            if not _is_true(copied):
                result.set_result(ResponseCode.FLUSH_SLAVE_TIMEOUT)
            else:
                result.set_result(ResponseCode.SUCCESS if _is_true(flushed) else ResponseCode.FLUSH_DISK_TIMEOUT)

        for part in (flushed, copied):
            if part is not None:
                part.add_done_callback(look)
        return result


def _is_true(part: "asyncio.Future[bool] | None") -> bool:
    return part is None or (not part.cancelled() and part.exception() is None and part.result())
