"""One seed, one story of a store, as in crash_story.py or ext_story.py, on a disk of which every call can fail: of the
log, the queues and their extensions, the index, the checkpoint, the inventory, a settings file.

A broker whose log failed to sync stops itself. The next process starts on the same machine, where it sees what a failed
sync has dropped, or after a loss of power; that may also come while it starts, or a moment after it. A start that the
disk refuses is tried again. Some stores lose their power when retention has just deleted all but the newest file of the
log, of which nothing was durable; the start that finds such a log, which begins where it ends, is killed before it
writes a message, and there is another. The rules are those of crash_story.py; they are looked at while the disk works.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import ClassVar

from maxq.errors import StoreFailedError, StoreRefusedError
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.message_store import MessageStore
from maxq.store.recovery.recovery_report import RecoveryReport
from maxq.testing.sim_disk import DiskFaults, PowerLoss, SimDisk
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld
from tests.simulation.disk_faults import FaultMix, SelfStop
from tests.simulation.store.crash_story import CrashStory
from tests.simulation.store.ext_story import ExtStory, bit_map_of
from tests.simulation.store.store_world import new_store
from tests.simulation.store.workload import TOPICS, Workload

_ERRORS = (OSError, StoreFailedError, StoreRefusedError)
_HEADER_BYTES = 40  # of an index file
_AT_A_BOUNDARY = ("boundary", "emptied")  # endings of two lives, one after the other


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
        self._begins_at_end = False  # a start was killed whose log begins where it ends

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
        began_at_end = self._begins_at_end
        if life == 99 and self.rng.fork("emptied").chance(0.1):
            for number, kind in enumerate(_AT_A_BOUNDARY):
                super()._live(97 + number, kind)
        super()._live(life, ending)
        if self._begins_at_end and not began_at_end:
            self._faults = None
            super()._live(life + 2_000, ending)
        self.marks |= {f"failed: {kind}" for kind in mix.seen}
        self.history.append(f"  faults: {dict(mix.seen)}")

    async def _main(self, world: SimWorld, rng: SimRng, ending: str) -> None:
        if ending in _AT_A_BOUNDARY:
            await self._at_a_boundary(world, ending)
            return
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

    async def _at_a_boundary(self, world: SimWorld, ending: str) -> None:
        """A life at a boundary of two files of the log. "boundary": the older one is whole when the power goes, and
        nothing is durable of the newer one. "emptied": before that, retention deletes all but the newer one."""
        self._stop = SelfStop()
        store = new_store(self.config, world.disk, world.clock)
        report = self._load(store)
        assert report is not None
        if not self._verify(store, report):
            self._fresh_start = True
            return
        store.start()
        self._store = store
        size = store.config.mapped_file_size_commit_log
        last = (store.max_physical_offset - 1) // size
        while store.max_physical_offset // size <= last or not store.max_physical_offset % size:
            assert store.put_message(MessageExtBrokerInner(TOPICS[0], 0, bytes(700))).ok
        world.disk.fail_flush(f"*commitlog/{(last + 1) * size:020d}", 1_000)
        if ending == "boundary":
            await asyncio.sleep(store.config.flush_commit_log_thorough_interval / 1000 + 1)
        for _ in range(20 if ending == "emptied" else 0):
            world.clock.jump_wall_ms(10 * 3_600_000)  # more at a time would not be believed
            store.time.now_ms()
            store.cleaner.request()
            await store.cleaner.clean()
        world.disk.cut_power()

    def _load(self, store: MessageStore) -> RecoveryReport | None:
        self._stop.watch(store)
        report = store.load()
        if self._kept_to is not None:
            self.ledger.flushed_up_to(self._kept_to)
            self._kept_to = None
        if 0 < report.min_offset == report.end_offset and not self._begins_at_end:
            self._begins_at_end = True
            self.marks.add("killed at the start of a log that begins where it ends")
            self.disk.kill_process()
            raise PowerLoss
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
