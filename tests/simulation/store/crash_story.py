"""One seed, one story: a store lives, dies in some way, has a bit flipped perhaps, starts again; and nothing is lost.

The rules that hold after every start, whatever happened before:

* what was acknowledged and durable is there: same place in the log, same place in its queue, same body;
* every queue holds exactly the messages that the log has for it, and the index every key (the offline check, which is
  an implementation of its own, finds nothing wrong);
* queues and index equal a rebuild from nothing but the log;
* through the store's own reads every message is seen, once, in its queue; durable ones are found by key;
* a topic that was deleted stays deleted: what is shown of it was sent later, and its queue offsets begin at 0;
* a settings file holds a version that was written, not older than the last write that returned;
* the store starts, or says which file is wrong and what to do.
"""

import asyncio
import zlib
from typing import ClassVar, Final

from maxq.errors import StoreRefusedError
from maxq.protocol.message.message import decode_records
from maxq.store.message_store import MessageStore
from maxq.store.recovery.recovery_report import RecoveryReport
from maxq.store.store_results import GetMessageStatus
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import PowerLoss, SimDisk
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld, run_simulation
from tests.simulation.store.bit_flips import Flip, flip_some_bit
from tests.simulation.store.ledger import Deleted, Ledger
from tests.simulation.store.store_world import (
    ROOT,
    check,
    deletions_on_disk,
    made_of_the_log,
    messages_on_disk,
    new_store,
    rebuilt,
    store_config,
    store_files,
    unit_bytes,
)
from tests.simulation.store.workload import QUEUES, SETTINGS, TOPICS, Workload

#: Clocks of stories are never set back by more, all in all.
CLOCK_SET_BACK_MS: Final = 60_000
ENDINGS: Final = ("shutdown", "kill", "moment", "operation", "operation", "recovery", "clean-up")


class CrashStory:
    """Attributes:
    marks: what happened, for the campaign's statistics: a rule that is never put to the test proves nothing.
    history: the same in order, for whoever reads a failure.
    """

    WORKLOAD: ClassVar[type[Workload]] = Workload

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = SimRng(seed)
        self.clock = SimClock()
        self.disk = self._new_disk()
        self.config = store_config(self.rng.fork("config"))
        self.ledger = Ledger()
        self.marks: set[str] = {self.config.flush_disk_type}
        self.history: list[str] = [str(self.config.flush_disk_type)]
        self._flip: Flip | None = None
        self._fresh_start = False
        self._store: MessageStore | None = None

    def _new_disk(self) -> SimDisk:
        rng = self.rng.fork("disk")
        return SimDisk(rng, self.clock, write_back=rng.choice((0.0, 0.2, 0.6)))

    def run(self) -> None:
        """Live, die, start again; the last start is checked and ended cleanly."""
        for life in range(self.rng.between(1, 3)):
            self._live(life, self.rng.choice(ENDINGS))
            if self._flip is None and self.rng.chance(0.4):
                self._flip_a_bit()
        self._live(99, "shutdown")
        self._check_after_shutdown()

    # -- one life --

    def _live(self, life: int, ending: str) -> None:
        rng = self.rng.fork(f"life {life}")
        disk = self.disk
        if ending == "recovery":  # power goes again while the store recovers
            disk.cut_power_after(rng.below(40))
        try:
            run_simulation(
                lambda world: self._main(world, rng, ending),
                seed=rng.seed,
                disk=disk,
                clock=self.clock,
                time_limit_s=3600,
            )
        except PowerLoss:
            self._note_power_loss()
        self.marks.add(f"ending: {ending}")
        self.history.append(f"life {life} ended: {ending} {disk.lost_at}")
        self._store = None
        if self._fresh_start:
            self._fresh_start = False
            self.ledger = Ledger()
            self.disk = self._new_disk()
        else:
            self.disk = disk.boot()

    async def _main(self, world: SimWorld, rng: SimRng, ending: str) -> None:
        store = new_store(self.config, world.disk, world.clock)
        report = self._load(store)
        if report is None:
            return
        self.history += [f"  start: {line}" for line in report.lines()]
        if not self._verify(store, report):
            self._fresh_start = True
            return
        store.start()
        self._store = store
        if ending == "operation":
            world.disk.cut_power_after(rng.below(400))
        workload = self.WORKLOAD(store, world, rng.fork("workload"), self.ledger, self.marks)
        await workload.run(rng.between(5, 2500))
        self.ledger.expire(store.min_physical_offset)
        if ending == "shutdown":
            await store.shutdown()
            if store.flusher.failure is None:
                self.ledger.all_durable()
        elif ending == "kill":
            self._note_kill(store)
        elif ending == "clean-up":
            for _ in range(5):  # more at a time would not be believed
                world.clock.jump_wall_ms(10 * 3_600_000)
                store.time.now_ms()
            store.cleaner.request()
            world.disk.cut_power_after(rng.below(20))
            await store.cleaner.clean()
            await asyncio.sleep(1)
            world.disk.cut_power()
        else:
            world.disk.cut_power()

    def _note_kill(self, store: MessageStore) -> None:
        if not store.flusher.is_sync:  # with SYNC_FLUSH: what was acknowledged, as ever
            self.ledger.all_durable()

    def _note_power_loss(self) -> None:
        store = self._store
        if store is not None:  # set once it had started: what it says during recovery says nothing about the disk
            self.ledger.expire(store.min_physical_offset)
            if store.flusher.failure is None:
                self.ledger.flushed_up_to(store.flushed_offset)
        if self.disk.lost_at:
            self.marks.add("power lost in: " + _kind_of_place(self.disk.lost_at))

    def _load(self, store: MessageStore) -> RecoveryReport | None:
        try:
            return store.load()
        except StoreRefusedError as error:
            raise AssertionError(f"the store does not start: {error}; flip: {self._flip}") from error

    # -- rules --

    def _verify(self, store: MessageStore, report: RecoveryReport) -> bool:
        """False: this store has seen enough, the story goes on with a new one."""
        on_disk = messages_on_disk(self.disk)
        flip, self._flip = self._flip, None
        if flip is not None:
            named = self._judge_flip(flip, report)
            if flip.loosens or not named:
                self._settle_for(on_disk)
                return False
        self._verify_deletions(store)
        if not self._verify_ledger(store, on_disk):
            self.marks.add("survivor with torn properties")
            return False
        self._verify_check()
        self._verify_queues(store, on_disk)
        self._verify_keys(store)
        self._verify_settings()
        if self.rng.chance(0.3):
            self._verify_rebuild()
        return True

    def _verify_ledger(self, store: MessageStore, on_disk: dict[int, dict[str, object]]) -> bool:
        """False if a message that was never durable came back with torn parts that no check sum covers."""
        self.ledger.expire(store.min_physical_offset)
        for sent in self.ledger.durable():
            found = on_disk.get(sent.physical_offset)
            assert found is not None, f"lost: {sent}; the log ends at {store.max_physical_offset}"
            assert not sent.differs_from(found), f"{sent} became {found}"
        mangled = False
        for at, sent in list(self.ledger.messages.items()):
            found = on_disk.get(at)
            if found is None:
                self.ledger.forget(at)  # never durable: nobody's loss, and its place may be given again
            elif sent.differs_from(found):
                mangled = True
            else:
                sent.durable = True  # it survived a start, so it is in the log for good
        return not mangled

    def _verify_deletions(self, store: MessageStore) -> None:
        """A durable deletion is known, one that is not in the log is not."""
        in_log, low = deletions_on_disk(self.disk), store.min_physical_offset
        for row in list(self.ledger.deletions):
            known = store.incarnation(row.topic)
            if row.durable:
                assert known >= row.physical_offset, f"forgotten: {row}, {known} is known"
                assert row.physical_offset < low or in_log.get(row.topic, -1) >= row.physical_offset, f"lost: {row}"
            elif known < row.physical_offset:
                self.ledger.deletions.remove(row)  # its place may be given again
                self.ledger.undone.append(row)
            else:
                row.durable = True
        end = store.max_physical_offset
        self.ledger.undone = [row for row in self.ledger.undone if row.physical_offset < end]
        for topic, at in in_log.items():
            if not any(row.topic == topic and row.physical_offset == at for row in self.ledger.deletions):
                self.ledger.deletions.append(Deleted(topic, at, at, durable=True))  # the power went within the call
        for topic in TOPICS:
            last = max((row.physical_offset for row in self.ledger.deletions if row.topic == topic), default=0)
            assert store.incarnation(topic) == last, f"{topic} was deleted at {last}, the store says otherwise"

    def _verify_check(self) -> None:
        found = check(self.disk, self.config)
        assert not found.faults, "\n".join(["the offline check finds:", *found.lines()])
        late = [note for note in found.notes if "yet" in note]
        assert not late, f"not everything is dispatched after the start: {late}"

    def _verify_queues(self, store: MessageStore, on_disk: dict[int, dict[str, object]]) -> None:
        """Reading a queue from its first to its last offset gives the log's messages of that queue, in order. If a
        deletion was lost, but messages that came behind it are there, it may begin with the first of those: only what
        they say of their places tells that the topic was deleted."""
        wanted: dict[tuple[object, object], list[int]] = {}
        for at in sorted(on_disk):
            if store.is_gone(str(on_disk[at]["topic"]), at):
                continue
            wanted.setdefault((on_disk[at]["topic"], on_disk[at]["queueId"]), []).append(at)
        for topic in TOPICS:
            for queue_id in range(QUEUES):
                seen, there = read_queue(store, topic, queue_id), wanted.get((topic, queue_id), [])
                lost = [row.physical_offset for row in self.ledger.undone if row.topic == topic]
                for behind in [[at for at in there if at > deletion] for deletion in lost]:
                    if seen == behind:
                        self.marks.add("a deletion was lost, and seen by what came behind it")
                        there = behind
                assert seen == there, f"{topic}/{queue_id} reads {seen}, the log has {there}"

    def _verify_keys(self, store: MessageStore) -> None:
        durable = self.ledger.durable()
        for sent in [self.rng.choice(durable) for _ in range(5)] if durable else []:
            is_gone = store.is_gone(sent.topic, sent.physical_offset)
            for key, since_ms in ((sent.key, 0), (f"U{sent.key}", sent.store_timestamp - CLOCK_SET_BACK_MS)):
                result = store.query_message(sent.topic, key, 64, since_ms, 1 << 60)
                places = [message.physical_offset for buffer in result.buffers for message in decode_records(buffer)]
                assert (sent.physical_offset in places) != is_gone, f"{sent}: by its key {key} there is {places}"

    def _verify_settings(self) -> None:
        ledger = self.ledger
        content = self.disk.read(SETTINGS) if self.disk.exists(SETTINGS) else None
        if content is None:
            assert ledger.settings_durable < 0, "the settings file is gone"
        else:
            assert content in ledger.settings, f"the settings file is torn: {content!r}"
            assert ledger.settings.index(content) >= ledger.settings_durable, "the settings file is an old one"

    def _verify_rebuild(self) -> None:
        self.marks.add("compared with a rebuild")
        fresh = made_of_the_log(self.disk, self.config, self.clock)
        assert unit_bytes(self.disk) == unit_bytes(fresh), "queues differ from a rebuild"

    def _check_after_shutdown(self) -> None:
        if self.disk.exists(ROOT / "abort"):
            return  # it could not end cleanly, and said so
        self._verify_check()

    # -- bit flips --

    def _flip_a_bit(self) -> None:
        on_disk = messages_on_disk(self.disk)
        sound = not check(self.disk).faults  # after a loss of power much is wrong until the next start
        flip = flip_some_bit(self.disk, self.rng, on_disk)
        if flip is None:
            return
        self._flip = flip
        self.history.append(f"flip {flip}")
        self.marks.add(f"flipped: {flip.kind}")
        if flip.physical_offset >= 0 and not (flip.needs_rebuild and sound):  # that puts it right
            self.ledger.forget(flip.physical_offset)
        if flip.check_names is not None and sound:
            faults = check(self.disk).faults
            named = [fault for fault in faults if fault.file == flip.file and flip.check_names(fault.position)]
            assert named, f"{flip} is not named by the check: {[str(fault) for fault in faults]}"
        if flip.needs_rebuild:
            # Queues and index of a cleanly ended store are not read whole at start; the check has found it, and
            # `maxq store recover --rebuild` repairs it, for the log has the facts.
            self.disk = rebuilt(self.disk, self.config, self.clock)
            self._flip = None

    def _judge_flip(self, flip: Flip, report: RecoveryReport) -> bool:
        """False: the damage lies where this start did not look; it stays until somebody checks the store."""
        if flip.damages_record and report.min_offset <= flip.physical_offset < report.end_offset:
            named = [str(damage) for damage in report.damages]
            found = any(d.physical_offset <= flip.physical_offset < d.end_offset for d in report.damages)
            # a start that lost its power may have filled it already
            filled = store_files(self.disk).filled_ranges()
            found = found or any(start <= flip.physical_offset < end for start, end in filled)
            # only the last three files, or those that the checkpoint does not speak for, are read at start
            assert found or flip.physical_offset < report.checked_from, f"{flip} is not among the damages {named}"
            self.marks.add("damage named at start" if found else "damage left to the check")
            return found
        return True

    def _settle_for(self, on_disk: dict[int, dict[str, object]]) -> None:
        """A changed bit that no check sum covers changed what a record says about itself. Nothing but the bodies that
        are there can be held against the store; the story goes on with a new ledger."""
        for sent in self.ledger.durable():
            found = on_disk.get(sent.physical_offset)
            assert found is not None, f"lost: {sent}"


def read_queue(store: MessageStore, topic: str, queue_id: int) -> list[int]:
    """Physical offsets of everything a consumer that starts at the beginning gets."""
    offset, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    seen: list[int] = []
    while 0 <= offset < end:
        result = store.get_message("group", topic, queue_id, offset, 32, None)
        assert result.next_begin_offset > offset, f"{topic}/{queue_id}: no way past {offset}: {result.status}"
        if result.status is GetMessageStatus.FOUND:
            for buffer in result.buffers:
                for message in decode_records(buffer):
                    assert (message.topic, message.queue_id) == (topic, queue_id)
                    assert message.body_crc == zlib.crc32(message.body) & 0x7FFFFFFF, f"{topic}/{queue_id}: body"
                    seen.append(message.physical_offset)
        offset = result.next_begin_offset
    return seen


def _kind_of_place(lost_at: str) -> str:
    """`flush store/commitlog/000…` → `flush commitlog`."""
    operation, _, path = lost_at.partition(" ")
    parts = path.split("/")
    return f"{operation} {parts[1] if len(parts) > 1 else path}"
