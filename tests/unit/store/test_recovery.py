"""Recovery: nothing in the log may stay invisible, nothing good behind damage is lost, stale bytes stay dead."""

import json
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from maxq.errors import StoreRefusedError
from maxq.store.message_store import MessageStore
from maxq.store.recovery import RecoveryReport
from maxq.store.unit_scan_cy import DAMAGED_TAGS_CODE
from tests.unit.store import naive
from tests.unit.store.stores import TestClock, message, new_store, opened, small_config

Damage = Callable[[Path], None]


def fill(root: Path, count: int = 400, *, clean: bool = True, start: int = 0) -> list[int]:
    """Store messages over several files and queues; returns their physical offsets."""
    clock = TestClock()
    store = opened(small_config(root), clock)
    offsets = []
    for number in range(start, start + count):
        clock.now_ms += 7
        body = b"body %d " % number + b"." * (number * 37 % 900)
        tags = {"TAGS": f"Tag{number % 3}"} if number % 4 else {}
        result = store.put_message(
            message(f"T{number % 2}", number % 3, body, KEYS=f"k{number} g{number % 5}", UNIQ_KEY=f"U{number}", **tags)
        )
        assert result.ok, result.remark
        offsets.append(result.physical_offset)
    close(store, clean=clean)
    return offsets


def close(store: MessageStore, *, clean: bool = True) -> None:
    """Shut down, or let go as a killed process does: what is in the page cache stays, nothing more is written."""
    if clean:
        store.close()
    else:
        store._life.lock.release()


def reopened(root: Path) -> tuple[MessageStore, RecoveryReport]:
    store = new_store(small_config(root))
    return store, store.load()


def assert_whole(root: Path) -> None:
    """After a clean close: queues and index on disk are what a fresh look at the log gives."""
    records, _ = naive.java_reads(root)
    assert naive.queues_on_disk(root) == naive.queues_of(records)
    assert naive.index_on_disk(root) == naive.index_files_of(records, 100, 200)


def snapshot(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_clean_exit_leaves_nothing_to_do(tmp_path: Path) -> None:
    fill(tmp_path)
    store, report = reopened(tmp_path)
    assert report.clean_exit
    assert report.dispatched_records == 0
    assert report.rebuild_reasons == []
    store.close()
    assert_whole(tmp_path)


def test_queues_and_index_are_whole_after_a_kill(tmp_path: Path) -> None:
    fill(tmp_path, clean=False)
    store, report = reopened(tmp_path)
    assert not report.clean_exit
    store.close()
    assert_whole(tmp_path)


def test_the_next_message_gets_the_next_offset_after_every_kind_of_exit(tmp_path: Path) -> None:
    fill(tmp_path, 90)
    fill(tmp_path, 90, start=90, clean=False)
    fill(tmp_path, 90, start=180)
    records, _ = naive.java_reads(tmp_path)
    assert len(records) == 270
    for units in naive.queues_of(records).values():
        assert sorted(units) == list(range(len(units)))
    assert_whole(tmp_path)


def delete_queues(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")


def delete_one_queue(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "T1" / "2")


def delete_one_topic(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "T0")


def delete_first_queue_file(root: Path) -> None:
    naive.files(root / "consumequeue" / "T0" / "0")[0].unlink()


def delete_last_queue_file(root: Path) -> None:
    naive.files(root / "consumequeue" / "T0" / "0")[-1].unlink()


def shorten_queue_file(root: Path) -> None:
    path = naive.files(root / "consumequeue" / "T0" / "0")[-1]
    path.write_bytes(path.read_bytes()[:133])


def empty_queue_file(root: Path) -> None:
    naive.files(root / "consumequeue" / "T0" / "0")[-1].write_bytes(b"")


def zero_queue_file(root: Path) -> None:
    naive.files(root / "consumequeue" / "T0" / "0")[-1].write_bytes(bytes(400))


def rubbish_in_queue(root: Path) -> None:
    naive.files(root / "consumequeue" / "T0" / "0")[-1].write_bytes(bytes(i * 97 & 0xFF for i in range(400)))


def queue_longer_than_log(root: Path) -> None:
    folder = root / "consumequeue" / "T0" / "0"
    last = naive.files(folder)[-1]
    data = bytearray(last.read_bytes())
    for i in range(0, 400, 20):
        if struct.unpack_from(">i", data, i + 8)[0] == 0:
            struct.pack_into(">qiq", data, i, (1 << 30) + i, 300, 0)
    last.write_bytes(bytes(data))
    (folder / f"{int(last.name) + 400:020d}").write_bytes(struct.pack(">qiq", 1 << 31, 300, 0) * 20)


def delete_index(root: Path) -> None:
    shutil.rmtree(root / "index")


def delete_last_index_file(root: Path) -> None:
    naive.files(root / "index")[-1].unlink()


def rubbish_in_index(root: Path) -> None:
    path = naive.files(root / "index")[0]
    path.write_bytes(b"\xff" * 40 + path.read_bytes()[40:])


def shorten_index_file(root: Path) -> None:
    path = naive.files(root / "index")[-1]
    path.write_bytes(path.read_bytes()[:77])


def delete_checkpoint(root: Path) -> None:
    (root / "checkpoint").unlink(missing_ok=True)


def rubbish_in_checkpoint(root: Path) -> None:
    (root / "checkpoint").write_bytes(b"\xee" * 4096)


def checkpoint_of_the_future(root: Path) -> None:
    (root / "checkpoint").write_bytes(struct.pack(">qqq", 1 << 60, 1 << 60, 1 << 60) + bytes(4096 - 24))


def shorten_checkpoint(root: Path) -> None:
    (root / "checkpoint").write_bytes(b"123")


def delete_inventory(root: Path) -> None:
    (root / "inventory.json").unlink(missing_ok=True)


def rubbish_in_inventory(root: Path) -> None:
    (root / "inventory.json").write_bytes(b'{"version":1,"queues":[')


def empty_inventory(root: Path) -> None:
    (root / "inventory.json").write_bytes(b"")


def everything_but_the_log(root: Path) -> None:
    delete_queues(root)
    delete_index(root)
    delete_checkpoint(root)
    delete_inventory(root)


def queues_and_index_but_checkpoint_kept(root: Path) -> None:
    delete_queues(root)
    delete_index(root)
    delete_inventory(root)


DAMAGES: list[Damage] = [
    delete_queues, delete_one_queue, delete_one_topic, delete_first_queue_file, delete_last_queue_file,
    shorten_queue_file, empty_queue_file, zero_queue_file, rubbish_in_queue, queue_longer_than_log, delete_index,
    delete_last_index_file, rubbish_in_index, shorten_index_file, delete_checkpoint, rubbish_in_checkpoint,
    checkpoint_of_the_future, shorten_checkpoint, delete_inventory, rubbish_in_inventory, empty_inventory,
    everything_but_the_log, queues_and_index_but_checkpoint_kept,
]  # fmt: skip


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_what_queues_and_index_lack_comes_back_from_the_log(tmp_path: Path, damage: Damage, clean: bool) -> None:
    fill(tmp_path, 300, clean=True)
    fill(tmp_path, 100, clean=clean, start=300)
    damage(tmp_path)
    store, _ = reopened(tmp_path)
    store.close()
    assert_whole(tmp_path)


def test_a_second_start_after_a_repair_finds_nothing_to_do(tmp_path: Path) -> None:
    fill(tmp_path, clean=False)
    everything_but_the_log(tmp_path)
    reopened(tmp_path)[0].close()
    store, report = reopened(tmp_path)
    assert report.dispatched_records == 0
    assert report.faults == []
    store.close()


# --- the log itself ---


def last_file(root: Path) -> Path:
    return next(path for path in reversed(naive.files(root / "commitlog")) if any(path.read_bytes()[:8]))


def overwrite(root: Path, physical_offset: int, data: bytes) -> None:
    size = 65_536
    path = root / "commitlog" / f"{physical_offset - physical_offset % size:020d}"
    with path.open("r+b") as file:
        file.seek(physical_offset % size)
        file.write(data)


def test_a_torn_tail_is_cut_and_named(tmp_path: Path) -> None:
    offsets = fill(tmp_path, clean=False)
    overwrite(tmp_path, offsets[-1] + 60, bytes(2000))
    store, report = reopened(tmp_path)
    assert report.end_offset == offsets[-1]
    assert report.cut_bytes > 0
    assert report.damages == []
    store.close()
    assert len(naive.java_reads(tmp_path)[0]) == len(offsets) - 1
    assert_whole(tmp_path)


def test_whole_records_behind_a_torn_one_do_not_come_back(tmp_path: Path) -> None:
    """The log grows again over a cut: when it ends exactly where an old record begins, that record stays dead."""
    store = opened(small_config(tmp_path))
    offsets = [store.put_message(message(body=b"%04d" % number * 50)).physical_offset for number in range(20)]
    close(store, clean=False)
    overwrite(tmp_path, offsets[10], b"\0" * 8)
    for offset in offsets[11:]:  # as if the torn write were the last one: nothing good behind it but its own kind
        overwrite(tmp_path, offset + 28, struct.pack(">q", offset))
    for offset in offsets[11:-1]:
        overwrite(tmp_path, offset + 100, b"!")
    store, report = reopened(tmp_path)
    assert report.end_offset == offsets[-1] + (offsets[1] - offsets[0])  # the last one is good: damage in the middle
    close(store)


def test_stale_records_behind_the_end_stay_dead(tmp_path: Path) -> None:
    store = opened(small_config(tmp_path))
    offsets = [store.put_message(message(body=b"%04d" % number * 50)).physical_offset for number in range(20)]
    store.close()
    size = offsets[1] - offsets[0]
    path = last_file(tmp_path)
    data = path.read_bytes()
    tail = data[offsets[10] : offsets[19] + size]
    overwrite(tmp_path, offsets[10], bytes(len(tail)))
    shutil.rmtree(tmp_path / "consumequeue")
    (tmp_path / "inventory.json").unlink()
    store, report = reopened(tmp_path)
    assert report.end_offset == offsets[10]
    # a stale record appears behind the end, as an unflushed page would
    overwrite(tmp_path, offsets[11], tail[size : 2 * size])
    assert store.put_message(message(body=b"new!" * 50)).physical_offset == offsets[10]
    assert store.max_offset("T", 0) == 11
    store.close()


def flip_body(root: Path, offset: int) -> None:
    overwrite(root, offset + 91, b"\x99")


def flip_magic(root: Path, offset: int) -> None:
    overwrite(root, offset + 4, b"\x00")


def flip_size(root: Path, offset: int) -> None:
    overwrite(root, offset, b"\x11\x22")


def flip_own_offset(root: Path, offset: int) -> None:
    overwrite(root, offset + 28, struct.pack(">q", 12345))


def wipe_record(root: Path, offset: int) -> None:
    overwrite(root, offset, bytes(91))


FLIPS: list[Callable[[Path, int], None]] = [flip_body, flip_magic, flip_size, flip_own_offset, wipe_record]


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("flip", FLIPS, ids=lambda flip: flip.__name__)
def test_damage_in_the_middle_loses_one_message_and_moves_no_offset(
    tmp_path: Path, flip: Callable[[Path, int], None], clean: bool
) -> None:
    offsets = fill(tmp_path, clean=clean)
    records, _ = naive.java_reads(tmp_path)
    before = naive.queues_of(records)
    victim = records[-40]
    flip(tmp_path, victim.physical_offset)
    store, report = reopened(tmp_path)
    assert [(d.physical_offset, d.size) for d in report.damages] == [(victim.physical_offset, victim.size)]
    assert str(victim.physical_offset) in str(report.damages[0])
    assert store.max_physical_offset == records[-1].physical_offset + records[-1].size
    assert (tmp_path / "damaged" / f"{victim.physical_offset:020d}").stat().st_size == victim.size
    for (topic, queue_id), units in before.items():
        assert store.max_offset(topic, queue_id) == len(units)
        assert got(store, topic, queue_id) == [unit[0] for unit in units.values() if unit[0] != victim.physical_offset]
    assert len(offsets) == len(records)
    store.close()


def got(store: MessageStore, topic: str, queue_id: int) -> list[int]:
    """Physical offsets of everything a consumer of the queue gets."""
    found: list[int] = []
    offset = 0
    while offset < store.max_offset(topic, queue_id):
        result = store.get_message("g", topic, queue_id, offset, 32, None)
        assert result.next_begin_offset > offset
        for buffer in result.buffers:
            position = 0
            while position < len(buffer):
                found.append(struct.unpack_from(">q", buffer, position + 28)[0])
                position += struct.unpack_from(">i", buffer, position)[0]
        offset = result.next_begin_offset
    return found


@pytest.mark.parametrize("flip", FLIPS, ids=lambda flip: flip.__name__)
def test_a_java_broker_reads_on_over_sealed_damage(tmp_path: Path, flip: Callable[[Path, int], None]) -> None:
    fill(tmp_path, clean=False)
    records, end = naive.java_reads(tmp_path)
    flip(tmp_path, records[-40].physical_offset)
    reopened(tmp_path)[0].close()
    after, java_end = naive.java_reads(tmp_path)
    assert java_end == end
    kept = [record.physical_offset for record in after if record.sys_flag & 0xC == 0]
    assert kept == [record.physical_offset for record in records if record != records[-40]]
    for units in naive.queues_on_disk(tmp_path).values():  # every unit points to a whole record, in order
        places = {record.physical_offset: record.size for record in after}
        assert all(places[unit[0]] == unit[1] for unit in units.values())
        physical = [unit[0] for unit in units.values()]
        assert physical == sorted(physical)


@pytest.mark.parametrize("flip", FLIPS, ids=lambda flip: flip.__name__)
def test_places_of_damaged_messages_survive_a_rebuild_from_the_log(
    tmp_path: Path, flip: Callable[[Path, int], None]
) -> None:
    fill(tmp_path, clean=False)
    records, _ = naive.java_reads(tmp_path)
    flip(tmp_path, records[-40].physical_offset)
    reopened(tmp_path)[0].close()
    before = naive.queues_on_disk(tmp_path)
    everything_but_the_log(tmp_path)
    store, report = reopened(tmp_path)
    assert report.damages == []
    store.close()
    assert naive.queues_on_disk(tmp_path) == before


@pytest.mark.parametrize("flip", [flip_body, flip_magic], ids=lambda flip: flip.__name__)
def test_the_offset_of_a_queues_last_message_is_not_given_again_when_it_is_damaged(
    tmp_path: Path, flip: Callable[[Path, int], None]
) -> None:
    store = opened(small_config(tmp_path))
    for _ in range(3):
        last = store.put_message(message("A"))
    store.put_message(message("B"))
    close(store, clean=False)
    flip(tmp_path, last.physical_offset)
    store, _ = reopened(tmp_path)
    assert store.max_offset("A", 0) == 3
    unit = store.queues.open("A", 0).unit(2)
    assert unit is not None
    assert unit[2] == DAMAGED_TAGS_CODE
    assert store.put_message(message("A")).queue_offset == 3
    assert len(got(store, "A", 0)) == 3
    store.close()


def test_a_hole_to_the_end_of_a_file_is_damage_when_the_next_file_has_records(tmp_path: Path) -> None:
    fill(tmp_path, clean=False)
    records, end = naive.java_reads(tmp_path)
    border = naive.files(tmp_path / "commitlog")[-2].name
    lost = [record for record in records if int(border) - 9000 < record.physical_offset < int(border)]
    if not lost:
        lost = [record for record in records if int(border) + 50_000 < record.physical_offset < int(border) + 65_536]
    start = lost[0].physical_offset
    overwrite(tmp_path, start, bytes(65_536 - start % 65_536))
    store, report = reopened(tmp_path)
    assert report.end_offset == end
    assert report.damages[0].end_offset % 65_536 == 0
    store.close()
    assert naive.java_reads(tmp_path)[1] == end


def test_damage_in_a_file_that_recovery_does_not_scan_is_found_by_a_rebuild(tmp_path: Path) -> None:
    fill(tmp_path, 600)
    records, end = naive.java_reads(tmp_path)
    flip_magic(tmp_path, records[5].physical_offset)
    delete_queues(tmp_path)
    store, report = reopened(tmp_path)
    assert report.end_offset == end
    assert [damage.physical_offset for damage in report.damages] == [records[5].physical_offset]
    assert sum(len(got(store, topic, q)) for topic in ("T0", "T1") for q in range(3)) == len(records) - 1
    store.close()


# --- header fields, which no CRC covers ---


def fields_of(root: Path) -> list[tuple[int, str, int, int]]:
    return [(r.physical_offset, r.topic, r.queue_id, r.queue_offset) for r in naive.java_reads(root)[0]]


@pytest.mark.parametrize("everything", [False, True], ids=["from-the-inventory", "from-the-log"])
@pytest.mark.parametrize("which", [3, -30, -1], ids=["first-of-its-queue", "middle", "last"])
@pytest.mark.parametrize("wrong", [0, 1, 4, 40, 90_000, 2**40, 2**60, -1, -(2**62)])
def test_a_wrong_queue_offset_field_is_set_right_and_named(
    tmp_path: Path, wrong: int, which: int, everything: bool
) -> None:
    fill(tmp_path, 300, clean=not everything)
    before = fields_of(tmp_path)
    victim = before[which]
    if wrong == victim[3]:
        wrong += 7
    overwrite(tmp_path, victim[0] + 20, struct.pack(">q", wrong))
    if everything:
        everything_but_the_log(tmp_path)
    else:
        (tmp_path / "inventory.json").unlink()
    store, report = reopened(tmp_path)
    named = [fault for fault in report.faults if f"physical offset {victim[0]})" in fault]
    store.close()
    assert named
    assert fields_of(tmp_path) == before
    assert_whole(tmp_path)


def test_a_record_with_a_foreign_queue_id_moves_no_offset(tmp_path: Path) -> None:
    fill(tmp_path, 300)
    before = naive.queues_of(naive.java_reads(tmp_path)[0])
    victim = naive.java_reads(tmp_path)[0][-100]
    overwrite(tmp_path, victim.physical_offset + 12, struct.pack(">i", (victim.queue_id + 1) % 3))
    everything_but_the_log(tmp_path)
    store, report = reopened(tmp_path)
    assert any("not of this queue" in fault for fault in report.faults)
    for (topic, queue_id), units in before.items():
        wanted = [unit[0] for unit in units.values() if unit[0] != victim.physical_offset]
        assert got(store, topic, queue_id) == wanted
        assert store.max_offset(topic, queue_id) == len(units)
    store.close()


# --- files that stand in the way ---


def test_a_log_file_of_another_size_is_refused_by_name_size_and_setting(tmp_path: Path) -> None:
    fill(tmp_path)
    path = naive.files(tmp_path / "commitlog")[0]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StoreRefusedError, match=r"0{20} has 65535 bytes, but mappedFileSizeCommitLog is 65536"):
        reopened(tmp_path)


def test_a_gap_between_log_files_is_refused_if_there_is_something_behind_it(tmp_path: Path) -> None:
    fill(tmp_path)
    naive.files(tmp_path / "commitlog")[1].unlink()
    with pytest.raises(StoreRefusedError, match="00000000000000065536"):
        reopened(tmp_path)


def test_a_file_made_ahead_behind_a_gap_is_dropped(tmp_path: Path) -> None:
    offsets = fill(tmp_path, clean=False)
    last = int(last_file(tmp_path).name)
    (tmp_path / "commitlog" / f"{last + 2 * 65_536:020d}").write_bytes(bytes(65_536))
    store, report = reopened(tmp_path)
    assert report.end_offset > offsets[-1]
    store.close()
    assert [int(path.name) for path in naive.files(tmp_path / "commitlog")][-1] == last


def test_an_empty_last_log_file_is_dropped(tmp_path: Path) -> None:
    fill(tmp_path, clean=False)
    last = int(last_file(tmp_path).name)
    (tmp_path / "commitlog" / f"{last + 65_536:020d}").write_bytes(b"")
    store, _ = reopened(tmp_path)
    store.close()
    assert_whole(tmp_path)


def test_queue_files_that_all_have_another_size_are_a_wrong_setting(tmp_path: Path) -> None:
    fill(tmp_path)
    with pytest.raises(StoreRefusedError, match="mappedFileSizeConsumeQueue is 800"):
        new_store(small_config(tmp_path, mapped_file_size_consume_queue=800)).load()


def test_a_second_broker_on_the_store_is_refused(tmp_path: Path) -> None:
    store = opened(small_config(tmp_path))
    program = (
        "import sys; from tests.unit.store.stores import *\n"
        "try: opened(small_config(Path(sys.argv[1])))\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    import subprocess
    import sys

    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"StoreRefusedError {tmp_path}/lock is locked: another broker")
    store.close()


@pytest.mark.parametrize("folder", ["consumequeue", "consumequeue_rocksdb"])
def test_a_store_with_queues_in_rocksdb_is_refused(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "CURRENT").write_text("MANIFEST-000005\n")
    with pytest.raises(StoreRefusedError, match="RocksDB"):
        reopened(tmp_path)
    assert not (tmp_path / "abort").exists()


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreRefusedError, match="cannot be used"):
        reopened(tmp_path / "file" / "store")


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Path]:
    fill(tmp_path)
    yield tmp_path


def test_the_abort_file_is_there_while_open_and_gone_after_a_clean_exit(filled: Path) -> None:
    store, _ = reopened(filled)
    assert (filled / "abort").exists()
    store.close()
    assert not (filled / "abort").exists()


def test_a_lost_log_takes_its_queues_with_it(filled: Path) -> None:
    shutil.rmtree(filled / "commitlog")
    store, _ = reopened(filled)
    assert store.max_offset("T0", 0) == 0
    assert store.put_message(message("T0")).queue_offset == 0
    store.close()


def test_java_ran_in_between_and_lost_units_they_come_back(tmp_path: Path) -> None:
    """A Java broker appends, exits cleanly and does not know the inventory: what it dispatched is looked at again."""
    fill(tmp_path, 100)
    inventory = (tmp_path / "inventory.json").read_bytes()
    fill(tmp_path, 100, start=100)
    (tmp_path / "inventory.json").write_bytes(inventory)
    zero_queue_file(tmp_path)
    store, report = reopened(tmp_path)
    assert report.clean_exit
    store.close()
    assert_whole(tmp_path)


def test_offsets_of_a_queue_whose_messages_were_all_cleaned_away_go_on(tmp_path: Path) -> None:
    store = opened(small_config(tmp_path))
    for _ in range(5):
        store.put_message(message("Old"))
    while store.commit_log.min_offset == 0:
        store.put_message(message("New", body=bytes(8000)))
        if len(store.commit_log.files.files) == 3:
            store.commit_log.forget_first().destroy()
    store.close()
    shutil.rmtree(tmp_path / "consumequeue")
    store, _ = reopened(tmp_path)
    assert (store.min_offset("Old", 0), store.max_offset("Old", 0)) == (5, 5)
    assert store.put_message(message("Old")).queue_offset == 5
    store.close()
    store, _ = reopened(tmp_path)
    assert (store.min_offset("Old", 0), store.max_offset("Old", 0)) == (5, 6)
    store.close()


def test_the_inventory_names_every_queue(filled: Path) -> None:
    inventory = json.loads((filled / "inventory.json").read_bytes())
    assert {topic: sorted(map(int, bounds)) for topic, bounds in inventory["queues"].items()} == {
        "T0": [0, 1, 2],
        "T1": [0, 1, 2],
    }
