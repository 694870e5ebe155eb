"""The offline check beside a running broker: wherever that one stands, what it is about to finish is no fault, and what
is broken still is one."""

import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import PurePath

import pytest

from maxq.config.message_store_config import MessageStoreConfig
from maxq.protocol.message.message import Message, encode_batch
from maxq.runtime.interfaces import Clock, FileInfo
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.message_store import MessageStore
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import SimDisk
from maxq.testing.sim_region import SimMappedRegion
from maxq.testing.sim_rng import SimRng
from tests.short_form import seeds
from tests.simulation.store.store_world import HASH_SLOTS, INDEX_ENTRIES, LOG_FILE_SIZE, ROOT, check, new_store

CONFIG = MessageStoreConfig(
    store_path_root_dir=str(ROOT),
    mapped_file_size_commit_log=LOG_FILE_SIZE,
    mapped_file_size_consume_queue=20 * 20,
    max_hash_slot_num=HASH_SLOTS,
    max_index_num=INDEX_ENTRIES,
    flush_disk_type="ASYNC_FLUSH",
)


class InterruptedDisk(SimDisk):
    """Somebody else gets a turn at each operation: `at_write` where files come and go, `at_read` where one is looked
    at by the main thread."""

    at_write: Callable[[], None] | None = None
    at_read: Callable[[], None] | None = None

    def __init__(self, rng: SimRng, clock: Clock) -> None:
        super().__init__(rng, clock, write_back=0)
        self._operating = nullcontext()  # its threads take turns, also in the middle of an operation

    def _step(self, kind: str, path: str) -> None:
        super()._step(kind, path)
        if self.at_write is not None:
            self.at_write()

    def map(self, path: PurePath, size: int, *, read_only: bool = False) -> SimMappedRegion:
        if read_only:
            self._interrupt()
        return super().map(path, size, read_only=read_only)

    def list(self, path: PurePath) -> Sequence[FileInfo]:
        self._interrupt()
        return super().list(path)

    def _interrupt(self) -> None:
        if self.at_read is not None and threading.current_thread() is threading.main_thread():
            self.at_read()


class Broker:
    """Sends batches to random queues of a new store."""

    def __init__(self, seed: int) -> None:
        self.rng = SimRng(seed)
        self.clock = SimClock()
        self.disk = InterruptedDisk(self.rng, self.clock)
        self.store: MessageStore = new_store(CONFIG, self.disk, self.clock)
        self.store.load()

    def send(self) -> None:
        """Send one batch, which is in the log before its first message is dispatched."""
        topic, rng = f"T{self.rng.below(3)}", self.rng
        bodies = [rng.bytes(rng.below(300)) for _ in range(rng.between(1, 6))]
        batch = encode_batch([Message(topic, body, {"KEYS": f"k{rng.below(9)}", "TAGS": "t"}) for body in bodies])
        result = self.store.put_batch(
            MessageExtBrokerInner(topic, rng.below(3), batch, {}, born_host=b"\x7f\0\0\1\0\0\x12\x34")
        )
        assert result.ok, result.remark

    @property
    def log_end(self) -> tuple[PurePath, int]:
        """File and position behind the last record."""
        end = self.store.max_physical_offset
        start = end - end % LOG_FILE_SIZE
        return ROOT / "commitlog" / f"{start:020d}", end - start


@pytest.mark.parametrize("seed", seeds([0], range(5)))
def test_a_broker_held_up_while_it_makes_a_file_does_not_look_broken(seed: int) -> None:
    broker = Broker(seed)
    looks: list[list[str]] = []

    def look() -> None:
        report = check(broker.disk)
        assert not report.faults, report.lines()
        looks.append(report.notes)

    broker.disk.at_write = look
    for _ in range(60):
        broker.send()
    broker.disk.at_write = None
    notes = [note for look_notes in looks for note in look_notes]
    assert any(note.startswith("index: ") for note in notes), "it was never caught before its first index file"
    assert any("not there yet" in note for note in notes), "it was never caught before its first queue"
    assert not [note for note in check(broker.disk).notes if "yet" in note]


class Turns:
    """A broker in a thread of its own that stops at every file it makes, and goes on when `step` lets it."""

    def __init__(self, broker: Broker, batches: int) -> None:
        self._broker = broker
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, args=(batches,), daemon=True)
        broker.disk.at_write = self._stop
        self._thread.start()
        self._stopped.acquire()

    def step(self) -> None:
        """From one stop to the next."""
        if self._thread.is_alive():
            self._go.release()
            self._stopped.acquire()

    def finish(self) -> None:
        """Let it run to its end."""
        self._broker.disk.at_write = None
        self._go.release()
        self._thread.join()

    def _run(self, batches: int) -> None:
        for _ in range(batches):
            self._broker.send()
        self._stopped.release()

    def _stop(self) -> None:
        self._stopped.release()
        self._go.acquire()


@pytest.mark.parametrize("seed", seeds(range(6), range(40)))
def test_a_broker_that_writes_while_the_check_reads_does_not_look_broken(seed: int) -> None:
    broker = Broker(seed)
    for _ in range(broker.rng.choice((0, 0, 0, 1, 30))):
        broker.send()
    turns, rng, pace = Turns(broker, 40), SimRng(seed), SimRng(seed).choice((0.1, 0.3, 0.8))

    def write() -> None:
        if rng.chance(pace):
            turns.step()

    broker.disk.at_read = write
    try:
        for _ in range(4):
            report = check(broker.disk)
            assert not report.faults, report.lines()
    finally:
        broker.disk.at_read = None
        turns.finish()
    assert not [note for note in check(broker.disk).notes if "yet" in note]


def test_half_a_record_is_no_fault_while_the_broker_runs_and_a_torn_tail_when_it_is_dead() -> None:
    broker = Broker(1)
    for _ in range(5):
        broker.send()
    path, position = broker.log_end
    region = broker.disk.map(path, LOG_FILE_SIZE)
    region.view[position : position + 60] = region.view[0:60]
    report = check(broker.disk)
    assert not report.faults
    note = "the running broker has not finished this record yet"
    assert f"commitlog/{path.name}: byte {position}: {note}" in report.notes
    broker.store._life.lock.release()  # killed
    fault = check(broker.disk).faults[0]
    assert (fault.file, fault.position) == (f"commitlog/{path.name}", position)
    assert fault.what.startswith("torn tail")


def test_half_a_unit_is_no_fault_if_the_second_look_finds_it_whole() -> None:
    broker, reads = Broker(2), 0
    for _ in range(5):
        broker.send()
    path = sorted(broker.disk.paths(str(ROOT / "consumequeue/*")))[0]
    view = broker.disk.map(PurePath(path), 400).view
    whole = bytes(view[0:20])

    def finish() -> None:
        nonlocal reads
        reads += 1
        if reads == reads_of_a_look + 1:
            view[0:20] = whole

    reads_of_a_look = -2
    broker.disk.at_read = finish
    assert not check(broker.disk).faults
    reads_of_a_look, reads = reads, 0
    view[8:20] = bytes(12)
    assert not check(broker.disk).faults
    assert reads > reads_of_a_look
    view[8:20] = bytes(12)
    assert [fault.file for fault in check(broker.disk).faults] == [path.removeprefix(f"{ROOT}/")]


@pytest.mark.parametrize("lost", ["index", "consumequeue"])
def test_what_is_gone_below_a_running_broker_is_a_fault(lost: str) -> None:
    broker = Broker(3)
    for _ in range(20):
        broker.send()
    broker.disk.delete_tree(ROOT / lost)
    assert {fault.file.split("/")[0] for fault in check(broker.disk).faults} == {lost}


def test_a_changed_bit_below_a_running_broker_is_a_fault_where_it_is() -> None:
    broker = Broker(4)
    for _ in range(20):
        broker.send()
    for path, position in (("commitlog/00000000000000000000", 100), ("consumequeue/T0/0/00000000000000000000", 7)):
        flip = broker.disk.flip_bit(ROOT / path, position, 3)
        faults = check(broker.disk).faults
        places = [(fault.file, fault.position) for fault in faults]
        # The log's fault is named by its record, a queue's by its unit.
        assert (path, position // 20 * 20 if path.startswith("consumequeue") else 0) in places, f"{flip}: {faults}"
        broker.disk.flip_bit(ROOT / path, position, 3)
