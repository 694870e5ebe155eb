"""One broker's store with its replication, on a machine of its own."""

import contextlib
import hashlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Final

from maxq.broker.processors.acknowledgement import Acknowledgement
from maxq.config import BrokerSettings
from maxq.config.message_store_config import MessageStoreConfig
from maxq.errors import MaxQError
from maxq.protocol.message.message import decode_records
from maxq.replication.ha.full_copy import FullCopy
from maxq.replication.ha.ha_service import HAService
from maxq.replication.ha.log_fetch import fetch_log
from maxq.replication.ha.log_maintenance import LogMaintenance
from maxq.store.context.store_context import StoreIdentity
from maxq.store.message_store import MessageStore
from maxq.store.store_results import GetMessageStatus
from maxq.testing.sim_disk import PowerLoss
from maxq.testing.sim_loop import SimLoop
from maxq.testing.sim_machine import MachineDiedError, SimMachine
from maxq.testing.sim_rng import SimRng
from tests.simulation.disk_faults import FaultMix, nothing_fails
from tests.simulation.ha.ha_ledger import HaSent
from tests.simulation.store.store_world import ROOT

HA_PORT: Final = 10912
_BODY_AT: Final = 88  # in a record whose hosts are IPv4


@dataclass(frozen=True, slots=True)
class Image:
    """A log's bytes, from its first one on."""

    start: int = 0
    data: bytes = b""

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    def range(self, start: int, end: int) -> bytes:
        """Bytes [start, end), as far as they are there."""
        return self.data[max(0, start - self.start) : max(0, end - self.start)]

    def has(self, start: int, data: bytes) -> bool:
        return self.start <= start and self.range(start, start + len(data)) == data

    def difference(self, other: "Image") -> int | None:
        """The first offset, of those that both have, where they differ."""
        low, high = max(self.start, other.start), min(self.end, other.end)
        if low >= high:
            return None
        mine, theirs = self.range(low, high), other.range(low, high)
        if mine == theirs:
            return None
        return low + next(n for n, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a != b)


class HaNode:
    """A store and its HAService; dies and comes back.

    Attributes:
        image: of the log when the last life ended; `durable_end`: what was flushed then.
        filled: ranges that the last start or one before it found damaged, here or on a master before, and filled.
        began_at: the log's first byte when it got its first record; None before. The log begins later only where
            clean-up has deleted files.
        frozen_end: the end of a log that the master's does not continue any more (the master lost its own end); it must
            not grow. None: they join.
        compared_end: up to here this log was found equal to the master's.
        failed: what this life's services have said to have failed.
        changed: ranges of the log in which a bit has changed in memory; nobody knows whether they are right again.
        fails_repairs: the next sync of its log fails once something was fetched again.
        heard: the types of topics of which this node has heard, topic → is it of BatchCQ?; they outlive a process.
        disk_faults: what fails on its disk, in this life and in those that begin now; None: nothing.
    """

    def __init__(
        self,
        loop: SimLoop,
        name: str,
        address: str,
        rng: SimRng,
        config: MessageStoreConfig,
        master_min_offset: Callable[[], Awaitable[int | None]],
        *,
        fails: bool = False,
    ) -> None:
        """`fails`: its disk fails at times, and the system keeps what a failed sync has dropped in its cache."""
        self._master_min_offset = master_min_offset
        self.name = name
        self.number = int(name[-1])
        self.machine = SimMachine(loop, address, rng, write_back=rng.choice((0.0, 0.2, 0.6)), kill_keeps_cache=fails)
        self.config = config
        self.store: MessageStore | None = None
        self.ha: HAService | None = None
        self.acknowledgement: Acknowledgement | None = None
        self.care: LogMaintenance | None = None
        self.image = Image()
        self.durable_end = 0
        self.filled: list[tuple[int, int]] = []
        self.began_at: int | None = None
        self.frozen_end: int | None = None
        self.compared_end = 0
        self.changed: list[tuple[int, int]] = []
        self.fails_repairs = False
        self.disk_faults: FaultMix | None = None
        self.heard: dict[str, bool] = {}
        self.failed: list[str] = []
        self.power_lost_at_start = -1  # disk operations after which the power goes in the next start; -1: it stays

    def __str__(self) -> str:
        return self.name

    @property
    def is_up(self) -> bool:
        return self.machine.is_up and self.store is not None

    @property
    def is_slave(self) -> bool:
        return self.config.broker_role == "SLAVE"

    @property
    def root(self) -> PurePath:
        return ROOT

    @property
    def ha_address(self) -> str:
        return f"{self.machine.address}:{HA_PORT}"

    # -- life --

    async def start(self, master_address: str) -> list[str]:
        """Boot, recover, replicate. Returns what recovery said.

        Raises:
            MachineDiedError: the power went while it started.
            OSError, MaxQError: its disk refuses the start. No process is left.
        """
        self.note_end()
        self.store = None
        self.failed = []
        self.machine.boot()
        self.machine.disk.faults = self.disk_faults or nothing_fails
        operations, self.power_lost_at_start = self.power_lost_at_start, -1
        self.machine.disk.cut_power_after(operations)
        try:
            return await self.machine.call(lambda: self._start(master_address))
        except (OSError, MaxQError):
            self.machine.kill()
            raise

    async def _start(self, master_address: str) -> list[str]:
        machine = self.machine
        identity = StoreIdentity(broker_id=self.number - 1)
        store = MessageStore(self.config, disk=machine.disk, clock=machine.clock, broker=identity, memory_bytes=1 << 30)
        store.set_service_failed(self._service_failed)
        store.queues.is_batch_topic = lambda topic: self.heard.get(topic)
        report = store.load()
        self.filled = store.filled_ranges.ranges()
        store.start()
        settings = BrokerSettings(store=self.config)
        copy = FullCopy(lambda: self.config.ha_full_copy, self._master_min_offset)
        self.ha = HAService(settings, store, machine.clock, first_offset=copy)
        self.ha.set_service_failed(self._service_failed)
        self.acknowledgement = Acknowledgement(store.flusher)
        self.acknowledgement.set_replicas(self.ha)
        self.care = LogMaintenance(
            store, machine.clock, config=lambda: self.config, master_address=lambda: master_address, fetch=self._fetch
        )
        self.ha.set_joined_listener(self.care.master_connected)
        self.ha.set_offer_listener(self.care.offered)
        self.care.start()
        await self.ha.start("0.0.0.0", HA_PORT)
        if self.is_slave:
            self.ha.update_master_ha_address(master_address)
        self.store = store
        return report.lines()

    async def _fetch(self, address: str, start: int, end: int) -> bytes:
        data = await fetch_log(address, start, end)
        if self.fails_repairs:
            self.fails_repairs = False
            self.machine.disk.fail_flush("*commitlog/*")
        return data

    async def scrub(self) -> bool:
        """One pass over the whole log, which fetches again from the master what is damaged, without the long wait
        before (LogRepair), which is for masters of Java's. Is all of it right now?"""
        care = self.care
        assert care is not None, f"{self} runs"
        before, self.config = self.config, replace(self.config, scrub_enable=True, slave_timeout=20)
        try:
            return not await self.machine.call(care.scrub.check_all)
        finally:
            self.config = before

    def _place_of(self, sent: HaSent) -> tuple[str, int]:
        """Path and position of a message."""
        size = self.config.mapped_file_size_commit_log
        number, position = divmod(sent.physical_offset, size)
        return f"{self.root}/commitlog/{number * size:020d}", position

    def change_a_bit(self, sent: HaSent, rng: SimRng) -> None:
        """Of a message's body, in the system's memory of the log."""
        path, position = self._place_of(sent)
        at = position + _BODY_AT + rng.below(sent.body_size)
        self.machine.disk.flip_bit(path, at, rng.below(8), in_memory=True)
        self.changed.append((sent.physical_offset, sent.physical_offset + len(sent.record)))

    def is_on_platters(self, sent: HaSent) -> bool:
        """Does the disk itself have a message?"""
        path, position = self._place_of(sent)
        return self.machine.disk.on_platters(path)[position : position + len(sent.record)] == sent.record

    async def stop(self) -> None:
        """A clean end."""
        with contextlib.suppress(MachineDiedError):
            await self.machine.call(self._stop)
            self.machine.kill()

    async def _stop(self) -> None:
        assert self.ha is not None and self.store is not None and self.care is not None, "it runs"
        await self.ha.shutdown()
        await self.care.shutdown()
        self.note_end()
        store, self.store = self.store, None
        await store.shutdown()
        if store.flusher.failure is None:
            self.durable_end = self.image.end

    def note_end(self) -> None:
        """The last life is over: remember what its log was, and what of it was durable."""
        if self.store is not None:
            self.image = self.live_image()
            self.filled = self.store.filled_ranges.ranges()
            self.durable_end = self.store.flushed_offset

    def has_left_behind_end(self) -> bool:
        """Are there bytes behind a slave's log, though its master is not in the middle of a record? A start would take
        them for records."""
        assert self.store is not None, "it is up"
        log, replica = self.store.commit_log, self.store._life.replica
        current, tail = log.current, log.tail
        if replica is None or replica._pending or current is None or current.file_from_offset != tail.file_from_offset:
            return False
        return any(current.view[tail.wrote_position :])

    def lost_since(self, time_ms: int) -> bool:
        """Has this node perhaps lost something that it had written by then?"""
        return any(at >= time_ms for at in self.machine.data_lost_ms)

    def lose_disk(self) -> None:
        """Everything is lost."""
        self.machine.lose_disk()
        self.store = None
        self.image, self.durable_end, self.filled, self.frozen_end = Image(), 0, [], None
        self.changed = []
        self.began_at = None
        self.heard = {}

    def hear(self, types: dict[str, bool]) -> None:
        """Take over the master's table of topics."""
        self.heard = dict(types)
        if self.is_up and self.store is not None:
            for topic in types:
                self.store.queues.take_kind(topic)

    def let_disk_fail(self, mix: FaultMix | None) -> None:
        """From now on, until another word; None: it works."""
        self.disk_faults = mix
        self.machine.disk.faults = mix or nothing_fails

    @property
    def has_failed(self) -> bool:
        """Did its log fail to sync, or has one of its services ended? Such a broker stops itself."""
        return self.store is not None and (self.store.flusher.failure is not None or bool(self.failed))

    def _service_failed(self, service: str, error: BaseException) -> None:
        self.failed.append(f"{service}: {error}")

    # -- looking --

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """What rules ask of the store within this block does not fail."""
        disk = self.machine.disk
        faults, disk.faults = disk.faults, nothing_fails
        try:
            yield
        finally:
            disk.faults = faults

    def bytes_at(self, offset: int, size: int) -> bytes:
        """Of the live log, as far as they are there, within one file; of a dead process as they were."""
        if self.store is None:
            return self.image.range(offset, offset + size)
        with self.watched():
            return bytes(self.store.log_bytes(offset, size) or b"")

    def has(self, sent: HaSent) -> bool:
        """Are the message's bytes in this log?"""
        return self.bytes_at(sent.physical_offset, len(sent.record)) == sent.record

    def note_beginning(self) -> None:
        """Where the log begins, once it has begun."""
        store = self.store
        if store is not None and store.max_physical_offset == store.min_physical_offset:
            self.began_at = None
        elif store is not None and self.began_at is None:
            self.began_at = store.min_physical_offset

    def fillers(self) -> list[tuple[int, int]]:
        """Where a filler stands in the log now; a slave fetches the true bytes again, if its master has them."""
        return [*self.changed, *(self.filled if self.store is None else self.store.filled_ranges.still_filled())]

    def live_image(self, start: int = 0) -> Image:
        """The log as it is, from `start` on; of a dead process as it was."""
        store = self.store
        if store is None:
            return self.image
        end = store.max_physical_offset
        start = min(max(start, store.min_physical_offset), end)
        parts = []
        at = start
        with self.watched(), contextlib.suppress(PowerLoss):  # what a dead process had not yet written is nowhere
            while at < end and (piece := store.log_bytes(at, end - at)) is not None:
                parts.append(bytes(piece))
                at += len(piece)
        return Image(start, b"".join(parts))

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The first place of this queue that is still there."""
        assert self.store is not None, f"{self} is up"
        return self.store.min_offset(topic, queue_id)

    def queue(self, topic: str, queue_id: int) -> dict[int, str]:
        """Everything a reader gets from this queue: body by queue offset (as MD5)."""
        assert self.store is not None, f"{self} is up"
        from_offset, end = self.store.min_offset(topic, queue_id), self.store.max_offset(topic, queue_id)
        return read_queue(self.store, topic, queue_id, from_offset, end)


def read_queue(store: MessageStore, topic: str, queue_id: int, offset: int, end: int) -> dict[int, str]:
    """Bodies (as MD5) by queue offset."""
    seen: dict[int, str] = {}
    while 0 <= offset < end:
        result = store.get_message("group", topic, queue_id, offset, 32, None)
        assert result.next_begin_offset > offset, f"{topic}/{queue_id}: no way past {offset}: {result.status}"
        if result.status is GetMessageStatus.FOUND:
            for buffer in result.buffers:
                for message in decode_records(buffer):
                    assert message.queue_offset not in seen, f"{topic}/{queue_id}: {message.queue_offset} comes twice"
                    seen[message.queue_offset] = hashlib.md5(message.body).hexdigest()
        offset = result.next_begin_offset
    return seen
