"""One seed, one story of a compacted topic: its store lives on a disk of which every call can fail and a bit flips now
and then, compacts, dies in some way and starts again; of every key the newest message is there.

The rules, after every start and at the end:

* what a reader gets is in the order of its places, each message as it was sent at that place;
* of every key the newest message that was durable is there, or a newer one; none, if that deletes its key;
* when the disk works again a compaction succeeds, and leaves each key once, but for what is being written; of a
  message whose copy was damaged there is a whole one, if the log has it.
"""

import asyncio
from dataclasses import replace
from pathlib import PurePath
from typing import Any, Final

from maxq.config.message_store_config import MessageStoreConfig
from maxq.errors import RemoteProtocolError, StoreRefusedError
from maxq.protocol.message.message import decode_records
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.context.store_context import StoreIdentity
from maxq.store.message_store import MessageStore
from maxq.store.queue.unit_scan_cy import DAMAGED_TAGS_CODE
from maxq.store.store_results import GetMessageStatus
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import PowerLoss, SimDisk
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld, run_simulation
from tests.simulation.disk_faults import FaultMix, nothing_fails

ENDINGS: Final = ("shutdown", "kill", "kill in operation", "moment", "operation", "operation", "start", "kill in start")
TOPIC: Final = "T"
KEYS: Final = 12
_FLUSHED_S: Final = 3.0  # by then what can be copied and synced is
_COMPACTED_S: Final = 6.0  # by then a compaction that was due has begun
_DAYS_MS: Final = 4 * 86_400_000  # after which files of the log expire
_STEP_MS: Final = 12 * 3_600_000  # a larger one would not be believed (trusted_time.py)
_HOST: Final = b"\x7f\0\0\1\0\0\x12\x34"


class CompactionStory:
    """Attributes:
    marks: what happened, for the campaign's statistics.
    history: the same in order, for whoever reads a failure.
    """

    def __init__(self, seed: int) -> None:
        self.rng = SimRng(seed)
        self.clock = SimClock()
        rng = self.rng.fork("disk")
        self.disk = SimDisk(rng, self.clock, write_back=rng.choice((0.0, 0.2, 0.6)), kill_keeps_cache=True)
        rng = self.rng.fork("settings")
        self.config = MessageStoreConfig(
            store_path_root_dir="/store",
            mapped_file_size_commit_log=rng.choice((16_384, 65_536)),
            mapped_file_size_consume_queue=400,
            max_hash_slot_num=20,
            max_index_num=100,
            max_message_size=4_096,
            compaction_mapped_file_size=rng.choice((2_000, 4_500)),
            compaction_cq_mapped_file_size=920,
            compaction_schedule_internal=rng.choice((1_000, 4_000)),
            flush_disk_type=rng.choice(("SYNC_FLUSH", "ASYNC_FLUSH")),
            flush_interval_commit_log=20,
            enabled_append_prop_crc=True,
            force_verify_prop_crc=True,
        )
        self.marks: set[str] = {self.config.flush_disk_type}
        self.history: list[str] = [self.config.flush_disk_type]
        self.sent: dict[int, tuple[str, bytes]] = {}  # queue offset → key, body
        self._ends: dict[int, int] = {}  # queue offset → physical end, of this life and what is not settled
        self._durable = -1  # largest queue offset that must be there
        self._store: MessageStore | None = None
        self._number = 0
        self._tried: set[tuple[str, bytes]] = set()
        self._flipped: set[int] = set()  # queue offsets of messages of whose copy a bit was changed
        self._damaged: set[int] = set()  # of those that a reader was given damaged

    def run(self) -> None:
        """Live, die, start again; in the last life the disk works."""
        for life in range(self.rng.between(2, 5)):
            self._live(life, self.rng.choice(ENDINGS))
        self._live(99, "to the end")

    # -- one life --

    def _live(self, life: int, ending: str) -> None:
        rng, disk = self.rng.fork(f"life {life}"), self.disk
        if "start" in ending:
            disk.cut_power_after(rng.below(60), process_only="kill" in ending)
        mix = FaultMix(rng.fork("faults"), rng.choice(((), ("commitlog", "checkpoint", "consumequeue", "index"))))
        if ending != "to the end" and rng.chance(0.8):
            disk.faults = mix
        try:
            run_simulation(lambda world: self._main(world, rng, ending), seed=rng.seed, disk=disk, clock=self.clock)
        except PowerLoss:
            self._note_death(disk)
        except (OSError, StoreRefusedError) as error:
            assert ending != "to the end", f"a disk that works is refused: {error}"
            self.marks.add("ended by an error of the disk")
            self.history.append(f"  ended by {error!r}")
            disk.kill_process()
            self._note_death(disk)
        self._store = None
        self.marks |= {f"ending: {ending}"} | {f"failed: {kind}" for kind in mix.seen}
        self.history.append(f"life {life} ended: {ending} {disk.lost_at}; faults {dict(mix.seen)}")
        self.disk = disk.boot()

    def _note_death(self, disk: SimDisk) -> None:
        if self._store is not None:
            flushed = self._store.flushed_offset
            self._durable = max([self._durable, *(at for at, end in self._ends.items() if end <= flushed)])

    async def _main(self, world: SimWorld, rng: SimRng, ending: str) -> None:
        store = MessageStore(
            self.config, disk=world.disk, clock=world.clock, broker=StoreIdentity(), memory_bytes=1 << 30,
            populate_ahead=0,
        )  # fmt: skip
        store.load()
        store.compaction.topics.add(TOPIC)
        store.start()
        self._settle(store)
        self._store = store
        self._judge(store)
        if self._number and rng.fork("copies").chance(0.5):
            await asyncio.sleep(_FLUSHED_S)  # what is copied now is judged before anything newer comes
            self._judge(store)
        if (bit := rng.fork("bit")).chance(0.15):
            self._flip_a_bit(store, bit)
        if "operation" in ending:
            world.disk.cut_power_after(rng.below(500), process_only="kill" in ending)
        expiries = rng.fork("expiries")
        for _ in range(rng.between(2, 12)):
            self._send(store, rng, rng.between(1, 25))
            await asyncio.sleep(rng.choice((0.1, 0.7, 1.5, 4.0)))
            if expiries.chance(0.3):
                await self._expire(store, expiries)
                bit = rng.fork(f"bit {self._number}")
                if bit.chance(0.2):
                    self._flip_a_bit(store, bit)
            self._judge(store)
        self.marks |= {"compacted"} if store.compaction.compactions else set()
        self.marks |= {"a queue waited"} if store.compaction.failures else set()
        if ending == "to the end":
            await self._finish(store)
        if ending in ("to the end", "shutdown"):
            await store.shutdown()
            if store.flusher.failure is None:
                self._durable = max([self._durable, *self._ends])
        elif "kill" in ending:
            world.disk.kill_process()
            raise PowerLoss
        else:
            world.disk.cut_power()
            raise PowerLoss

    def _flip_a_bit(self, store: MessageStore, rng: SimRng) -> None:
        """Damage the body of a message in a compacted queue."""
        log = store.compaction.current(TOPIC, 0)
        if log is None or log.is_replacing:
            return
        units = [(segment, unit) for segment in log._segments for unit in segment.units(0)]
        if not units:
            return
        segment, unit = rng.choice(units)
        record = segment.record(unit)
        assert record is not None
        body = decode_records(record)[0].body
        if body:
            self.disk.flip_bit(segment.log_path, unit.position + bytes(record).index(body), rng.below(8))
            self._flipped.add(unit.offset)
            self.history.append(f"a bit of the copy of message {unit.offset} flips")
            self.marks.add("a bit flipped")

    async def _expire(self, store: MessageStore, rng: SimRng) -> None:
        """Days pass, in which the disk works but for one sync perhaps, and files of the log are deleted: of what was in
        them there is nothing but the compacted copies."""
        began_at = store.min_physical_offset
        faults, self.disk.faults = self.disk.faults, nothing_fails
        fails = rng.chance(0.6)
        keys = KEYS
        if fails and rng.fork(f"rarely {began_at}").chance(0.5):
            # no compaction writes again what is copied meanwhile, and of most keys the newest message is there alone
            store.update_config(replace(store.config, compaction_schedule_internal=_DAYS_MS))
            await asyncio.sleep(_COMPACTED_S)
            keys = KEYS // 3
        if fails:
            self._send(store, rng, 20)
            self.disk.fail_flush("*compaction*")
            await asyncio.sleep(_FLUSHED_S)
            self._send(store, rng, 100, keys)
        await asyncio.sleep(_FLUSHED_S)
        for _ in range(_DAYS_MS // _STEP_MS):
            self.clock.jump_wall_ms(_STEP_MS)
            store.cleaner.request()
            await store.cleaner.clean()
        self.disk.faults = faults
        if store.min_physical_offset > began_at:
            self.marks.add("files of the log expired")
        if fails and rng.chance(0.5):
            self.disk.cut_power()
            raise PowerLoss

    def _settle(self, store: MessageStore) -> None:
        """What a loss of power took was never there; what is there now is durable from now on."""
        there = store.max_offset(TOPIC, 0)
        assert there > self._durable, f"{self._durable + 1} messages were durable, {there} are there"
        queue = store.queue(TOPIC, 0)
        first = 0 if queue is None else queue.min_offset(store.min_physical_offset)
        for at in sorted(self.sent):
            if at < first:
                continue  # the log has it no more
            unit = queue.unit(at) if queue is not None and at < there else None
            if unit is None or unit[2] == DAMAGED_TAGS_CODE:
                assert at > self._durable, f"message {at} was durable, and is lost"
                del self.sent[at]
        self._ends = {}
        self._durable = there - 1

    def _send(self, store: MessageStore, rng: SimRng, count: int, keys: int = KEYS) -> None:
        for _ in range(count):
            self._number += 1
            key = f"key-{rng.below(keys)}"
            body = b"" if rng.chance(0.05) else b"%d-%s" % (self._number, b"x" * rng.below(300))
            message = MessageExtBrokerInner(
                TOPIC, 0, body, {"KEYS": key}, born_timestamp=self.clock.wall_ms(), born_host=_HOST
            )
            self._tried.add((key, body))
            result = store.put_message(message)
            if result.ok:
                self.sent[result.queue_offset] = key, body
                self._ends[result.queue_offset] = result.end_offset

    # -- rules --

    def _kept(self, store: MessageStore) -> list[tuple[int, str, bytes]]:
        found: list[tuple[int, str, bytes]] = []
        self._damaged = set()
        offset = 0
        while True:
            result = store.get_message("g", TOPIC, 0, offset, 32, None)
            if result.status is not GetMessageStatus.FOUND:
                return found
            for buffer in result.buffers:
                try:
                    (record,) = decode_records(buffer, check_crc=True)
                except RemoteProtocolError:
                    self._damaged.add(decode_records(buffer)[0].queue_offset)
                else:
                    found.append((record.queue_offset, record.keys or "", record.body))
            assert result.next_begin_offset > offset
            offset = result.next_begin_offset

    def _judge(self, store: MessageStore) -> None:
        """What is not copied yet, for the disk refuses, does not count."""
        log = store.compaction.current(TOPIC, 0)
        end = 0 if log is None else log.next_offset
        kept = self._kept(store)
        assert self._damaged <= self._flipped, f"damaged: {self._damaged - self._flipped}"
        places = [at for at, _, _ in kept]
        assert places == sorted(set(places)), f"out of order: {places}"
        for at, key, body in kept:
            sent = self.sent.get(at)  # None: nobody was told, or the log has lost it since
            assert sent == (key, body) or (sent is None and (key, body) in self._tried), (
                f"message {at} was sent as {sent}, and is {key} {body!r}"
            )
        there = {key: at for at, key, _ in kept}
        position = -1 if log is None else log.position
        compacted = [key for at, key, _ in kept if at <= position]
        assert len(set(compacted)) == len(compacted), f"compacted up to {position}, and keys are there twice: {kept}"
        for key, (at, body) in self._newest(end).items():
            if at not in self._flipped:
                assert there.get(key, -1) >= at or not body, f"{key}: message {at} is lost, {there.get(key)} is there"

    def _newest(self, end: int) -> dict[str, tuple[int, bytes]]:
        """Of each key the newest message below this queue offset; not of one with a newer message if copies are being
        taken again: the older message may have given way to it before."""
        sent = sorted(self.sent.items())
        newest = {key: (at, body) for at, (key, body) in sent if at < end}
        later = {key for at, (key, _) in sent if at >= end} if self._flipped else set()
        return {key: found for key, found in newest.items() if key not in later}

    async def _finish(self, store: MessageStore) -> None:
        before = store.compaction.compactions
        for _ in range(3):  # one finds damaged copies, which are taken again before the next one
            await asyncio.sleep(2.0)
            await store.compaction.compact(TOPIC, 0)
        log = store.compaction.current(TOPIC, 0)
        assert not store.compaction.failures and log is not None and log.next_offset == store.max_offset(TOPIC, 0)
        self._judge(store)
        queue = store.queue(TOPIC, 0)
        first = 0 if queue is None else queue.min_offset(store.min_physical_offset)
        if store.compaction.compactions > before:
            assert not [at for at in self._damaged if first <= at <= log.position]


class CompactionSettingsStory(CompactionStory):
    """The same of a store whose settings change from one start to the next. With other sizes of the compacted files a
    start is refused, and names the settings."""

    def _live(self, life: int, ending: str) -> None:
        rng = self.rng.fork(f"other settings {life}")
        if rng.chance(0.3) and self.disk.paths("*compactionLog/*"):
            self._have_it_refused()
        if rng.chance(0.7):
            drawn: dict[str, Any] = {
                "compaction_schedule_internal": rng.choice((1_000, 4_000)),
                "flush_disk_type": rng.choice(("SYNC_FLUSH", "ASYNC_FLUSH")),
                "message_index_enable": rng.chance(0.6),
                "enable_consume_queue_ext": rng.chance(0.5),
                "mapped_file_size_consume_queue_ext": rng.choice((1024, 2048)),
            }
            self.config = replace(self.config, **drawn)
            self.history.append(f"other settings: {drawn}")
        super()._live(life, ending)

    def _have_it_refused(self) -> None:
        config = replace(self.config, compaction_mapped_file_size=9_500, compaction_cq_mapped_file_size=1_840)
        before = {path: self.disk.read(PurePath(path)) for path in self.disk.paths("*compaction*")}
        store = MessageStore(
            config, disk=self.disk, clock=self.clock, broker=StoreIdentity(), memory_bytes=1 << 30, populate_ahead=0
        )
        try:
            store.load()
        except StoreRefusedError as refusal:
            assert "compactionMappedFileSize" in str(refusal), f"the refusal does not name the setting: {refusal}"
            gone = [path for path, data in before.items() if any(data) and not self.disk.exists(PurePath(path))]
            self.history.append(f"refused: {refusal}; gone: {gone}")
            self.marks.add("refused: compactionMappedFileSize")
        else:  # no segment has both files
            store.close()
        self.disk = self.disk.boot()
