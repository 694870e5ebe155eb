"""Where consumers keep how far they are: at the broker (clustering) or in a local file (broadcasting).

Both keep a table in memory that consumption updates and a timer persists. A frozen entry (after PULL_OFFSET_MOVED, or
a reset) takes no more updates from messages that are still being consumed; it thaws when the queue is removed.

Source: apache/rocketmq client/consumer/store/{OffsetStore,RemoteBrokerOffsetStore,LocalFileOffsetStore,
ControllableOffset}.java.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import PurePath

from maxq.client.instance.broker_table import BrokerTarget
from maxq.client.instance.mq_client import MQClientInstance
from maxq.errors import BrokerError, ClientError, RemoteProtocolError, RemotingError
from maxq.protocol.json.json_body import JsonBody
from maxq.protocol.message.message_queue import MessageQueue
from maxq.runtime.interfaces import DiskLock, SmallFiles

log = logging.getLogger(__name__)


class _Offset:
    """One queue's offset. If it is frozen, only `freeze` changes it. `highest` is the largest value it had here."""

    __slots__ = ("frozen", "highest", "value")

    def __init__(self, value: int) -> None:
        self.value = self.highest = value
        self.frozen = False

    def move(self, value: int) -> None:
        self.value, self.highest = value, max(value, self.highest)


class OffsetStore(ABC):
    """The offsets of one consumer. All offsets are queue offsets; -1 means that nothing is stored."""

    def __init__(self) -> None:
        self._table: dict[MessageQueue, _Offset] = {}

    async def load(self) -> None:  # noqa: B027 - a store at the broker has nothing to load
        """Read the offsets that an earlier process stored. Call `close` at the end."""

    async def close(self) -> None:  # noqa: B027 - a store at the broker has nothing to close
        """Close the store: another consumer may use it afterwards."""

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        """Set the consumer's offset of a queue in memory."""
        entry = self._table.get(queue)
        if entry is None:
            self._table[queue] = _Offset(offset)
        elif not entry.frozen and (not increase_only or offset > entry.value):
            entry.move(offset)

    def update_and_freeze(self, queue: MessageQueue, offset: int) -> None:
        """Set the offset at which to continue, by order of the broker or a reset; results of earlier messages do not
        overwrite it."""
        entry = self._table.setdefault(queue, _Offset(offset))
        entry.move(offset)
        entry.frozen = True

    async def read(self, queue: MessageQueue) -> int:
        """Return the stored offset, -1 if there is none, and keep it in memory: this consumer goes on there.

        Raises:
            RemotingError, BrokerError, ClientError: the store could not be asked.
        """
        offset = await self._read_from_store(queue, goes_on=True)
        if offset >= 0:
            self.update(queue, offset, increase_only=False)
        return offset

    async def stored(self, queue: MessageQueue) -> int:
        """Return the stored offset, -1 if there is none. Memory is unchanged, and the store does not hear that this
        consumer goes on there. Raises as `read` does."""
        return await self._read_from_store(queue, goes_on=False)

    def highest(self, queue: MessageQueue) -> int:
        """Return the largest offset that this consumer has had of a queue since it got the queue, -1 if there was
        none."""
        entry = self._table.get(queue)
        return entry.highest if entry is not None else -1

    def in_memory(self, queue: MessageQueue) -> int:
        """Return the offset in memory, -1 if there is none."""
        entry = self._table.get(queue)
        return entry.value if entry is not None else -1

    def remove(self, queue: MessageQueue) -> None:
        """Forget a queue that this consumer has given up."""
        self._table.pop(queue, None)

    @abstractmethod
    async def begin(self, queue: MessageQueue, offset: int) -> int:
        """Store where a group begins with a queue of which it has no offset yet, before anything is read of it.

        Returns:
            Where the group begins: at `offset`, or where another member has begun meanwhile.

        Raises:
            RemotingError: it may not be stored.
        """

    def snapshot(self, topic: str | None = None) -> dict[MessageQueue, int]:
        """Return the offsets in memory, of one topic or all."""
        return {queue: entry.value for queue, entry in self._table.items() if topic is None or queue.topic == topic}

    @abstractmethod
    async def persist_all(self, queues: Collection[MessageQueue], *, certain: bool = False) -> None:
        """Store the offsets of these queues. Failures are logged; the timer retries.

        Args:
            certain: wait until they are stored, so that whoever gets the queues next finds them.
        """

    @abstractmethod
    async def persist(self, queue: MessageQueue, *, certain: bool = False) -> None:
        """Commit the offset of one queue to its broker, or store it in the local file if the group broadcasts."""

    @abstractmethod
    async def _read_from_store(self, queue: MessageQueue, *, goes_on: bool) -> int: ...


class RemoteBrokerOffsetStore(OffsetStore):
    """Offset store for clustering: the broker of each queue keeps the group's offset."""

    def __init__(self, instance: MQClientInstance, group: str) -> None:
        super().__init__()
        self._instance = instance
        self._group = group

    async def persist_all(self, queues: Collection[MessageQueue], *, certain: bool = False) -> None:
        wanted = set(queues)
        for queue in [queue for queue in self._table if queue not in wanted]:
            self.remove(queue)
        held = sorted(wanted & self._table.keys())
        await asyncio.gather(*(self.persist(queue, certain=certain) for queue in held))

    async def persist(self, queue: MessageQueue, *, certain: bool = False) -> None:
        entry = self._table.get(queue)
        if entry is None or entry.value < 0:
            return
        value = entry.value
        try:
            # Also if nothing has changed: a broker that crashed may have lost the last one-way commit. A member that
            # has not moved meanwhile does not set back what another member has committed.
            await self.commit(queue, value, oneway=not certain, if_ahead=value >= entry.highest)
        except (RemotingError, BrokerError, ClientError) as error:
            log.warning("offset %d of %s was not committed for group %s: %s", value, queue, self._group, error)

    async def begin(self, queue: MessageQueue, offset: int) -> int:
        begun = -1
        try:
            await self.commit(queue, offset, oneway=False, if_ahead=True, if_none=True)
            begun = await self._read_from_store(queue, goes_on=True)
        except (BrokerError, ClientError) as error:  # the timer tries again
            log.warning("offset %d of %s was not committed for group %s: %s", offset, queue, self._group, error)
        if begun < 0:
            begun = offset
        self.update(queue, begun, increase_only=False)
        return begun

    async def commit(
        self, queue: MessageQueue, offset: int, *, oneway: bool, if_ahead: bool, if_none: bool = False
    ) -> None:
        """Send one offset to the queue's broker: the master, or another of its group while that cannot be reached. A
        slave passes it on when its master is back (docs/explanation/python-client.md).

        Args:
            if_ahead: not if the group is further already.
            if_none: not if the group has an offset of the queue already.

        Raises:
            RemotingError, BrokerError, ClientError
        """
        update = self._instance.api.update_consumer_offset
        await self._instance.ask_group(
            queue,
            lambda broker: update(
                broker.address, self._group, queue, offset, oneway=oneway, if_ahead=if_ahead, if_none=if_none
            ),
            master_first=True,
        )

    async def _read_from_store(self, queue: MessageQueue, *, goes_on: bool) -> int:
        return await self._instance.ask_group(
            queue, lambda broker: self._query(broker, queue, goes_on=goes_on), master_first=True
        )

    async def _query(self, broker: BrokerTarget, queue: MessageQueue, *, goes_on: bool) -> int:
        offset = await self._instance.api.query_consumer_offset(broker.address, self._group, queue, goes_on=goes_on)
        if offset is None and broker.is_slave and self._instance.brokers.master(queue.broker_name) is not None:
            # It may not have heard of the group yet; starting where new groups start could pass over messages.
            raise ClientError(
                f"{broker.address}, a slave, knows no offset of group {self._group} for {queue}, and its master cannot "
                "be reached; the queue is taken when the master answers or leaves the name server"
            )
        return -1 if offset is None else offset


@dataclass
class OffsetSerializeWrapper(JsonBody):
    """Content of `offsets.json`: queue → offset, with object keys."""

    offset_table: dict[MessageQueue, int] = field(default_factory=dict)


class LocalFileOffsetStore(OffsetStore):
    """Offset store for broadcasting: every client keeps its own, in `<folder>/<client id>/<group>/offsets.json` and
    `.bak`. A lock file beside them keeps a second client out: each would continue at the other's offset, and miss
    messages."""

    def __init__(self, disk: SmallFiles, folder: PurePath, client_id: str, group: str) -> None:
        super().__init__()
        self._disk = disk
        self._path = folder / client_id / group / "offsets.json"
        self._backup = self._path.with_name("offsets.json.bak")
        self._stored: dict[MessageQueue, int] = {}
        self._lock: DiskLock | None = None
        self._turn = asyncio.Lock()  # held by one writer at a time
        self._writing: asyncio.Future[None] | None = None

    async def load(self) -> None:
        """Read the file, or its backup if the file is missing or damaged.

        Raises:
            ClientError: another consumer has them in use, or both are unreadable; names them and says what to do.
        """
        loop = asyncio.get_running_loop()
        self._lock = await loop.run_in_executor(None, self._take_lock)
        try:
            self._stored = await loop.run_in_executor(None, self._read_files)
        except BaseException:
            await self.close()
            raise
        self._table = {queue: _Offset(offset) for queue, offset in self._stored.items()}

    def _take_lock(self) -> DiskLock | None:
        try:
            self._disk.make_dirs(self._path.parent)
            return self._disk.lock(self._path.with_name("offsets.json.lock"), b"")
        except BlockingIOError:
            raise ClientError(
                f"another consumer of the group, here or in another process, keeps its offsets in {self._path}: give "
                "each member that broadcasts an instance_name of its own"
            ) from None
        except OSError as error:
            log.warning("nothing keeps other consumers from using the offsets in %s: %s", self._path, error)
            return None

    async def close(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            await asyncio.get_running_loop().run_in_executor(None, lock.release)

    def _read_files(self) -> dict[MessageQueue, int]:
        problems = []
        for path in (self._path, self._backup):
            try:
                return OffsetSerializeWrapper.decode(self._disk.read(path)).offset_table
            except FileNotFoundError:
                continue
            except (OSError, RemoteProtocolError) as error:
                problems.append(f"{path}: {error}")
        if problems:
            raise ClientError(
                f"offsets of the broadcasting consumer cannot be read ({'; '.join(problems)}); "
                "repair or delete the files"
            )
        return {}

    async def persist_all(self, queues: Collection[MessageQueue], *, certain: bool = False) -> None:
        wanted = set(queues)
        async with self._turn:
            fresh = {queue: entry.value for queue, entry in self._table.items() if queue in wanted and entry.value >= 0}
            merged = {**self._stored, **fresh}
            if merged != self._stored:
                await self._write(merged)

    async def persist(self, queue: MessageQueue, *, certain: bool = False) -> None:
        await self.persist_all([queue])

    async def begin(self, queue: MessageQueue, offset: int) -> int:
        self.update(queue, offset, increase_only=False)
        # together with other calls that begin now: the file is written once for all of them
        await self.persist_all(list(self._table))
        return offset

    async def _write(self, table: dict[MessageQueue, int]) -> None:
        data = OffsetSerializeWrapper(dict(sorted(table.items()))).encode_pretty()
        if self._writing is not None:  # a write of a call that was cancelled may still be running
            await asyncio.wait([self._writing])
        try:
            self._writing = asyncio.get_running_loop().run_in_executor(None, self._write_files, data)
            await asyncio.shield(self._writing)
            self._stored = table
        except OSError as error:
            log.warning("offsets were not written to %s: %s", self._path, error)

    def _write_files(self, data: bytes) -> None:
        if self._disk.exists(self._path):
            self._disk.replace(self._backup, self._disk.read(self._path))
        self._disk.replace(self._path, data)

    async def _read_from_store(self, queue: MessageQueue, *, goes_on: bool) -> int:
        return self._stored.get(queue, -1)
