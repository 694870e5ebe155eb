"""One seed, one story of a store, as in crash_story.py or ext_story.py, on a disk of which every call can fail: of the
log, the queues and their extensions, the index, the checkpoint, the inventory, a settings file.

A broker whose log failed to sync stops itself. The next process starts on the same machine, where it sees what a failed
sync has dropped, or after a loss of power; that may also come while it starts, or a moment after it. A start that the
disk refuses is tried again. The rules are those of crash_story.py; they are looked at while the disk works.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import ClassVar

from maxq.errors import StoreFailedError, StoreRefusedError
from maxq.store.message_store import MessageStore
from maxq.store.recovery.recovery_report import RecoveryReport
from maxq.testing.sim_disk import DiskFaults, PowerLoss, SimDisk
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld
from tests.simulation.disk_faults import FaultMix, SelfStop
from tests.simulation.store.crash_story import CrashStory
from tests.simulation.store.ext_story import ExtStory, bit_map_of
from tests.simulation.store.workload import Workload

_ERRORS = (OSError, StoreFailedError, StoreRefusedError)
_HEADER_BYTES = 40  # of an index file


class FaultyWorkload(Workload):
    """One in which a request that the disk refuses is answered with an error, and the next one comes."""

    async def _send(self, rng: SimRng) -> None:
        await self._again(super()._send, rng)

    async def _read(self, rng: SimRng) -> None:
        await self._again(super()._read, rng)

    async def _clean(self, rng: SimRng) -> None:
        await self._again(super()._clean, rng)

    async def _delete_topics(self, rng: SimRng) -> None:
        await self._again(super()._delete_topics, rng)

    async def _again(self, work: Callable[[SimRng], Awaitable[None]], rng: SimRng) -> None:
        while True:
            try:
                await work(rng)
            except _ERRORS:
                self._marks.add("a request was answered with an error")
                await asyncio.sleep(0.005)


class _FaultyLives(CrashStory):
    """See the module."""

    WORKLOAD: ClassVar[type[Workload]] = FaultyWorkload

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._faults: DiskFaults | None = None
        self._loses_power_next = False  # what the next start shows of a failed sync is not on the disk
        self._kept_to: int | None = None  # a killed process had given the system so much of the log
        self._heads = self.rng.fork("heads")

    def _new_disk(self) -> SimDisk:
        rng = self.rng.fork("disk")
        return SimDisk(rng, self.clock, write_back=rng.choice((0.0, 0.2, 0.6)), kill_keeps_cache=True)

    def _flip_a_bit(self) -> None:
        """Damage of files is crash_story.py's."""

    def _live(self, life: int, ending: str) -> None:
        if self._loses_power_next:
            self._loses_power_next = False
            self._faults = None
            super()._live(life + 1_000, "moment")
        rng = self.rng.fork(f"faults {life}")
        spared: tuple[str, ...] = rng.choice(((), (), ("commitlog", "checkpoint"), ("consumequeue", "index")))
        mix = FaultMix(rng, spared)
        self._faults = mix if life != 99 and rng.chance(0.85) else None
        super()._live(life, ending)
        self.marks |= {f"failed: {kind}" for kind in mix.seen}
        self.history.append(f"  faults: {dict(mix.seen)}")

    async def _main(self, world: SimWorld, rng: SimRng, ending: str) -> None:
        if self._faults is not None:
            world.disk.faults = self._faults
            sync = rng.fork("sync")
            if sync.chance(0.3):  # the call whose failure costs most
                world.loop.call_later(sync.uniform(0, 1), world.disk.fail_flush, "*commitlog/*")
        self._stop = SelfStop()
        life = asyncio.ensure_future(super()._main(world, rng, ending))
        stop = asyncio.ensure_future(self._stop.come())
        stops = rng.fork("stops").chance(0.8)
        try:
            await asyncio.wait({life, *([stop] if stops else [])}, return_when=asyncio.FIRST_COMPLETED)
            if not life.done():
                self.marks.add("stopped itself")
                raise OSError("the log has failed")
            await life
        except _ERRORS as error:
            told = self._store is not None and self._store.flusher.failure is not None  # a sync was made to fail
            assert told or self._faults is not None, f"a disk that works is refused: {error!r}"
            self.history.append(f"  ended by {error!r}")
            self.marks.add("ended by an error of the disk")
            if rng.chance(0.4):
                world.disk.cut_power()
            else:
                world.disk.kill_process()
                self._loses_power_next = rng.fork("next").chance(0.6)
            raise PowerLoss from error
        finally:
            for task in (life, stop):
                task.cancel()
        if ending == "kill" and not world.disk.is_dead:
            world.disk.kill_process()
            raise PowerLoss

    def _load(self, store: MessageStore) -> RecoveryReport | None:
        self._stop.watch(store)
        report = store.load()
        if self._kept_to is not None:
            self.ledger.flushed_up_to(self._kept_to)
            self._kept_to = None
        return report

    def _verify(self, store: MessageStore, report: RecoveryReport) -> bool:
        faults, self.disk.faults = self.disk.faults, lambda kind, path: 0
        verified = super()._verify(store, report)
        self.disk.faults = faults
        return verified

    def _note_kill(self, store: MessageStore) -> None:
        """What was written is in the system's memory: see _note_power_loss."""

    def _note_power_loss(self) -> None:
        store, disk = self._store, self.disk
        if disk.lost_process_only and store is not None and not store.flusher.is_sync:
            log = store.commit_log
            buffer = log._write_buffer
            self._kept_to = log.max_offset if buffer is None else log.tail.file_from_offset + buffer.written
        elif not disk.lost_process_only:
            self._kept_to = None
            self._tear_heads()
        super()._note_power_loss()

    def _tear_heads(self) -> None:
        """The header of an index file, which changes with every entry, is that of two moments at times."""
        if self._heads.chance(0.5) and self.disk.tear_heads("store/index/*", _HEADER_BYTES, self._heads):
            self.marks.add("header of an index file torn")


class FaultyCrashStory(_FaultyLives):
    """See the module."""


class FaultyExtStory(_FaultyLives, ExtStory):
    """See the module."""

    def _load(self, store: MessageStore) -> RecoveryReport | None:
        store.dispatch.bit_map_of = bit_map_of
        return super()._load(store)
