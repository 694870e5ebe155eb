"""Faults that the campaign found, each as a scene of its own."""

import asyncio

import pytest

from maxq.config.message_store_config import MessageStoreConfig
from maxq.errors import StoreRefusedError
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.message_store import MessageStore
from maxq.store.store_results import PutMessageStatus
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import PowerLoss, SimDisk
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld, run_simulation
from tests.durability import durable
from tests.simulation.store.crash_story import read_queue
from tests.simulation.store.store_world import (
    HASH_SLOTS,
    INDEX_ENTRIES,
    LOG_FILE_SIZE,
    ROOT,
    check,
    messages_on_disk,
    new_store,
    rebuilt,
)

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture
def clock() -> SimClock:
    return SimClock()


@pytest.fixture
def disk(clock: SimClock) -> SimDisk:
    return SimDisk(SimRng(1), clock, write_back=0)


def config(flush: str = "SYNC_FLUSH", **changes: int) -> MessageStoreConfig:
    return MessageStoreConfig(
        store_path_root_dir=str(ROOT),
        mapped_file_size_commit_log=LOG_FILE_SIZE,
        mapped_file_size_consume_queue=400,
        max_hash_slot_num=HASH_SLOTS,
        max_index_num=INDEX_ENTRIES,
        flush_disk_type=flush,
        **changes,
    )


def put(store: MessageStore, number: int, size: int = 200) -> int:
    """Physical offset of a new message."""
    result = store.put_message(
        MessageExtBrokerInner("T", 0, b"b" * size, {"KEYS": f"k{number}", "UNIQ_KEY": f"U{number}", "TAGS": "A"})
    )
    assert result.ok, result
    return result.physical_offset


def filled(disk: SimDisk, clock: SimClock, count: int = 60, size: int = 200) -> list[int]:
    """A cleanly closed store with `count` messages of one queue."""
    store = new_store(config(), disk, clock)
    store.load()
    places = [put(store, number, size) for number in range(count)]
    store.close()
    return places


def reopened(disk: SimDisk, clock: SimClock) -> MessageStore:
    store = new_store(config(), disk, clock)
    store.load()
    return store


def test_clean_shutdown_keeps_a_log_file_that_the_writer_made_itself(disk: SimDisk, clock: SimClock) -> None:
    """The executor came too late with the file, and at shutdown it was deleted as made ahead and not used."""

    async def main(world: SimWorld) -> list[int]:
        store = new_store(config(), disk, clock)
        store.load()
        store.start()
        places = [put(store, number, 1000) for number in range(40)]  # rolls over and over without a pause
        await asyncio.sleep(1)
        await store.shutdown()
        return places

    places = run_simulation(main, seed=1, disk=disk, clock=clock)
    assert set(places) <= set(messages_on_disk(disk))
    assert check(disk).faults == []


def test_index_that_reaches_past_the_log_is_built_anew(disk: SimDisk, clock: SimClock) -> None:
    """Its writing end remembered how far the destroyed files went, and took every record for indexed."""
    places = filled(disk, clock)
    last = places[-1]
    name = f"store/commitlog/{last - last % LOG_FILE_SIZE:020d}"
    content = bytearray(disk.read(ROOT.parent / name))
    content[last % LOG_FILE_SIZE :] = bytes(len(content) - last % LOG_FILE_SIZE)
    disk.put(name, bytes(content))
    disk.put(ROOT / "abort", b"1")
    store = reopened(disk, clock)
    assert check(disk).faults == []
    assert store.query_message("T", "k3", 10, 0, 1 << 60).buffers


def test_empty_index_file_is_not_believed_after_a_crash(disk: SimDisk, clock: SimClock) -> None:
    """A file that had just been made has no times yet; it passed for safe, and everything was indexed twice."""
    filled(disk, clock)
    disk.put(ROOT / "index" / "20991231235959999", bytes(40 + 4 * HASH_SLOTS + 20 * INDEX_ENTRIES))
    disk.put(ROOT / "abort", b"1")
    before = check(disk).index_entries
    reopened(disk, clock)
    report = check(disk)
    assert (report.faults, report.index_entries) == ([], before)


@pytest.mark.parametrize("victim", ["index", "consumequeue", "commitlog"])
def test_failing_flushes_are_final_and_end_in_recovery(victim: str, disk: SimDisk, clock: SimClock) -> None:
    acknowledged: list[int] = []

    async def main(world: SimWorld) -> None:
        store = new_store(config(), disk, clock)
        store.load()
        store.start()
        for number in range(200):
            result = store.put_message(MessageExtBrokerInner("T", 0, b"b" * 200, {"KEYS": f"k{number}"}))
            if result.ok and (future := durable(store, result.end_offset)) is not None and await future:
                acknowledged.append(result.physical_offset)
            if number == 30:
                disk.fail_flush(f"store/{victim}/*", times=1)
            await asyncio.sleep(0.05)
        if victim == "commitlog":
            refused = store.put_message(MessageExtBrokerInner("T", 0, b"x", {}))
            assert refused.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
            assert "Input/output error" in refused.remark
        await store.shutdown()

    run_simulation(main, seed=1, disk=disk, clock=clock)
    assert disk.exists(ROOT / "abort")
    disk.cut_power()
    after = disk.boot()
    store = reopened(after, clock)
    assert set(acknowledged) <= set(read_queue(store, "T", 0))
    assert check(after).faults == []


@pytest.mark.parametrize("position", [0, 3, 9, 17, 25, 33, 41, 48, 50])
def test_changed_checkpoint_is_not_believed(position: int, disk: SimDisk, clock: SimClock) -> None:
    places = filled(disk, clock)
    disk.put(ROOT / "abort", b"1")
    disk.flip_bit(ROOT / "checkpoint", position, 4)
    store = reopened(disk, clock)
    assert "CRC does not match" in "".join(store.report.faults)
    assert read_queue(store, "T", 0) == places
    assert check(disk).faults == []


@pytest.mark.parametrize("size", [*range(0, 60, 7), 100, 300])
def test_damage_of_any_size_is_sealed(size: int, disk: SimDisk, clock: SimClock) -> None:
    """Records too small for a filler with a topic get one without; the scanner refused that."""
    store = new_store(config(), disk, clock)
    store.load()
    places = []
    for _ in range(30):
        result = store.put_message(MessageExtBrokerInner("T", 0, b"b" * size, {}))
        places.append(result.physical_offset)
    store.close()
    disk.flip_bit(f"store/commitlog/{0:020d}", places[5] + 2, 3)
    disk.put(ROOT / "abort", b"1")
    store = reopened(disk, clock)
    assert [damage.physical_offset for damage in store.report.damages] == [places[5]]
    assert read_queue(store, "T", 0) == places[:5] + places[6:]
    assert store.max_offset("T", 0) == 30
    report = check(disk)
    assert (report.faults, report.damaged_ranges) == ([], 1)
    store.close()
    assert reopened(disk, clock).report.damages == []


def test_a_deletion_that_was_lost_leaves_a_store_without_faults(disk: SimDisk, clock: SimClock) -> None:
    """With ASYNC_FLUSH a loss of power may take the record that deletes a topic, and leave the first message of the
    one that was made again. It is read behind the older ones, and no repair is advised that would change nothing."""
    store = new_store(config("ASYNC_FLUSH"), disk, clock)
    store.load()
    places = [put(store, number) for number in range(8)]
    deleted = store.put_deletion(["T"])
    places.append(put(store, 8))
    assert store.max_offset("T", 0) == 1
    store.close()
    disk = disk.boot()
    log = bytearray(disk.read(ROOT / "commitlog" / f"{0:020d}"))
    log[deleted.physical_offset : deleted.end_offset] = bytes(deleted.size)
    disk.put(ROOT / "commitlog" / f"{0:020d}", bytes(log))
    disk.delete(ROOT / "deletions.json")
    disk.delete(ROOT / "inventory.json")
    disk.put(ROOT / "abort", b"1")
    for _ in range(2):
        store = reopened(disk, clock)
        assert read_queue(store, "T", 0) == places
        places.append(put(store, len(places)))
        store.close()
        report = check(disk)
        assert report.faults == []
        assert [note for note in report.notes if "says that it is the first" in note] == [
            f"queue T/0: the message at physical offset {places[8]} says that it is the first; it is kept at queue "
            "offset 8, behind those that were there"
        ]
    assert check(rebuilt(disk, config(), clock)).faults == []


@pytest.mark.parametrize("bit", [0, 1, 4, 8, 20, 40, 59, 61, 62, 63])
@pytest.mark.parametrize("number", [0, 3, 30])
def test_changed_queue_offset_is_set_right_in_a_rebuild(number: int, bit: int, disk: SimDisk, clock: SimClock) -> None:
    """No CRC covers it, but the other records of the queue tell."""
    places = filled(disk, clock)
    at = places[number]
    start = at - at % LOG_FILE_SIZE
    disk.flip_bit(f"store/commitlog/{start:020d}", at - start + 27 - bit // 8, bit % 8)
    assert check(disk).faults
    fresh = rebuilt(disk, config(), clock)
    store = reopened(fresh, clock)
    assert read_queue(store, "T", 0) == places
    assert put(store, 99) not in places
    assert store.max_offset("T", 0) in (len(places), len(places) + 1)  # SYNC_FLUSH: visible once it is durable
    assert check(fresh).faults == []


@pytest.mark.parametrize("bit", [7, 8, 20, 40, 62])
@pytest.mark.parametrize(("left", "wrong"), [(2, 1), (3, 0), (3, 1), (3, 2)])
def test_changed_queue_offset_behind_lost_messages_is_outvoted(
    left: int, wrong: int, bit: int, disk: SimDisk, clock: SimClock
) -> None:
    """Of a queue's beginning nothing is left; of two records that contradict each other the first was "corrected"."""
    places = filled(disk, clock, 5 + left)
    name = f"store/commitlog/{0:020d}"
    content = disk.read(ROOT.parent / name)
    disk.put(name, bytes(places[5]) + content[places[5] :])
    damaged = rebuilt(disk, config(), clock)  # fills it
    at = places[5 + wrong]
    damaged.flip_bit(name, at + 27 - bit // 8, bit % 8)
    fresh = rebuilt(damaged, config(), clock)
    store = reopened(fresh, clock)
    assert store.max_offset("T", 0) == 5 + left
    assert read_queue(store, "T", 0) == places[5:]
    assert [messages_on_disk(fresh)[place]["queueOffset"] for place in places[5:]] == [*range(5, 5 + left)]


@pytest.mark.parametrize("bit", [0, 1, 2, 3, 7, 8, 20, 40, 62, 63])
@pytest.mark.parametrize("lost", [4, 5])
def test_changed_queue_offset_of_the_only_record_is_set_right_by_the_queue_file(
    lost: int, bit: int, disk: SimDisk, clock: SimClock
) -> None:
    """No other record of the queue tells: the field was believed, and the queue's only message had another offset."""
    places = filled(disk, clock, lost + 1)
    name = f"store/commitlog/{0:020d}"
    content = disk.read(ROOT.parent / name)
    disk.put(name, bytes(places[lost]) + content[places[lost] :])
    damaged = rebuilt(disk, config(), clock)  # fills it
    damaged.flip_bit(name, places[lost] + 27 - bit // 8, bit % 8)
    fresh = rebuilt(damaged, config(), clock)
    store = reopened(fresh, clock)
    assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (lost, lost + 1)
    assert messages_on_disk(fresh)[places[lost]]["queueOffset"] == lost
    assert check(fresh).faults == []


@pytest.mark.parametrize("bit", [0, 3, 5, 6, 40, 62, 63])
def test_changed_queue_offset_of_the_only_record_that_was_not_cleaned_away(
    bit: int, disk: SimDisk, clock: SimClock
) -> None:
    """Bit 5 makes it 0, which would be the first message of a new queue."""
    places = filled(disk, clock, 33, 880)  # eight in a file
    assert places[32] % LOG_FILE_SIZE == 0
    for at in places[:32:8]:
        disk.delete(ROOT / "commitlog" / f"{at:020d}")
    disk.flip_bit(f"store/commitlog/{places[32]:020d}", 27 - bit // 8, bit % 8)
    fresh = rebuilt(disk, config(), clock)
    store = reopened(fresh, clock)
    assert store.max_offset("T", 0) == 33
    assert messages_on_disk(fresh)[places[32]]["queueOffset"] == 32


def test_power_loss_during_every_step_of_recovery(clock: SimClock) -> None:
    """Recovery can be interrupted anywhere, again and again."""
    first = SimDisk(SimRng(9), clock, write_back=0.3)
    places = filled(first, clock, 100)
    first.flip_bit(f"store/commitlog/{0:020d}", places[5] + 90, 3)
    first.put(ROOT / "abort", b"1")
    first.delete_tree(ROOT / "consumequeue")
    steps = 0
    while True:
        disk = first.boot()
        disk.cut_power_after(steps)
        try:
            reopened(disk, clock)
        except PowerLoss:
            disk = disk.boot()
            store = reopened(disk, clock)
            assert read_queue(store, "T", 0) == places[:5] + places[6:], f"power lost in {steps}"
            assert check(disk).faults == []
            steps += 1
        else:
            break
    assert steps > 20


def test_rebuild_equals_what_was_written_by_and_by(disk: SimDisk, clock: SimClock) -> None:
    filled(disk, clock, 200)
    fresh = rebuilt(disk, config(), clock)
    for path in disk.paths("store/consumequeue/*"):
        assert fresh.read(ROOT.parent / path) == disk.read(ROOT.parent / path)
    names = [disk.paths("store/index/*"), fresh.paths("store/index/*")]
    assert len(names[0]) == len(names[1]) > 5
    for old, new in zip(*names, strict=True):
        assert disk.read(ROOT.parent / old) == fresh.read(ROOT.parent / new)


def refusal(disk: SimDisk, clock: SimClock) -> str:
    with pytest.raises(StoreRefusedError) as refused:
        reopened(disk, clock)
    return str(refused.value)


def test_a_refusal_names_the_file_what_is_wrong_and_what_to_do(clock: SimClock) -> None:
    def scene() -> SimDisk:
        disk = SimDisk(SimRng(1), clock, write_back=0)
        filled(disk, clock, 100)
        return disk

    disk = scene()
    path = disk.paths("store/commitlog/*")[1]
    disk.put(path, disk.read(ROOT.parent / path)[:5000])
    said = refusal(disk, clock)
    assert path in said and "5000" in said and "8192" in said and "mappedFileSizeCommitLog" in said

    disk = scene()
    path = disk.paths("store/commitlog/*")[1]
    disk.delete(ROOT.parent / path)
    said = refusal(disk, clock)
    assert path.rpartition("/")[2] in said and "estore" in said

    disk = scene()
    disk.lock(ROOT / "lock", b"lock")
    assert "store/lock" in refusal(disk, clock) and "another broker" in refusal(disk, clock)

    disk = scene()
    disk.put(ROOT / "consumequeue" / "CURRENT", b"MANIFEST-1")
    assert "CURRENT" in refusal(disk, clock) and "RocksDB" in refusal(disk, clock)

    disk = scene()
    disk.read_only = True
    said = refusal(disk, clock)
    assert "store" in said and "Read-only file system" in said


@pytest.mark.parametrize("victim", ["commitlog", "consumequeue", "index", "checkpoint"])
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
@pytest.mark.parametrize("clean_before", [False, True])
def test_what_consumers_see_after_a_restart_without_reboot_is_there_after_a_loss_of_power(
    victim: str, flush: str, disk: SimDisk, clock: SimClock, *, clean_before: bool
) -> None:
    """A sync fails, the store ends, and the process is started again. The system shows it bytes that are not on the
    disk; what it gives to consumers then must be there for good."""
    if clean_before:
        filled(disk, clock, count=30)

    async def run(world: SimWorld) -> None:
        store = new_store(config(flush), disk, clock)
        store.load()
        store.start()
        await asyncio.sleep(70)  # checkpoint and inventory are written
        for number in range(100, 160):
            put(store, number)
        await store.flush()
        await asyncio.sleep(2)
        disk.fail_flush(f"store/{victim}*", times=1)
        for number in range(160, 200):
            store.put_message(MessageExtBrokerInner("T", 0, b"b" * 200, {"KEYS": f"k{number}", "TAGS": "A"}))
        await asyncio.sleep(70)
        await store.shutdown()

    run_simulation(run, seed=1, disk=disk, clock=clock)
    assert disk.exists(ROOT / "abort")
    again = disk.boot()

    async def read(world: SimWorld) -> None:
        store = new_store(config(flush), again, clock)
        store.load()
        store.start()
        await store.flush()
        await asyncio.sleep(70)
        seen.update(read_queue(store, "T", 0))

    seen: set[int] = set()
    run_simulation(read, seed=2, disk=again, clock=clock)
    again.cut_power()
    assert len(seen) >= 60
    after = again.boot()
    store = reopened(after, clock)
    assert seen <= set(read_queue(store, "T", 0))
    store.close()
    assert check(after).faults == []
