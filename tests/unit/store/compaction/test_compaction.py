"""Compaction topics: of each key the newest message is kept, whatever crashes."""

import json
import os
import shutil
from pathlib import Path, PurePath
from typing import Any

import pytest

from maxq.config.message_store_config import MessageStoreConfig
from maxq.errors import StoreRefusedError
from maxq.protocol.message.message import decode_records
from maxq.store.compaction.compaction_log import CompactionLog, SegmentSizes
from maxq.store.compaction.compaction_store import CompactionStore
from maxq.store.compaction.segment import Segment
from maxq.store.log.tails_cy import jhash
from maxq.store.message_store import MessageStore
from maxq.store.queue.unit_scan_cy import DAMAGED_TAGS_CODE
from maxq.store.store_results import GetMessageStatus
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import SimDisk
from maxq.testing.sim_rng import SimRng
from tests.unit.store.stores import TestClock, delete_topics, message, new_store, opened, small_config

FOLDER = "compaction/compactionLog/T/0"


def config_at(root: Path, **changes: Any) -> MessageStoreConfig:
    values = {"compaction_mapped_file_size": 4_500, "compaction_cq_mapped_file_size": 920, **changes}
    return small_config(root, **values)


def compacting(root: Path, clock: TestClock | None = None, **changes: Any) -> MessageStore:
    store = opened(config_at(root, **changes), clock)
    store.compaction.topics.add("T")
    return store


def put(store: MessageStore, key: str, body: bytes, **properties: str) -> int:
    result = store.put_message(message(body=body, KEYS=key, **properties))
    assert result.ok, result.remark
    return result.queue_offset


def kept(store: MessageStore, offset: int = 0) -> list[tuple[int, str, bytes]]:
    """Everything a reader gets from `offset` on: (queue offset, key, body)."""
    found: list[tuple[int, str, bytes]] = []
    while True:
        result = store.get_message("g", "T", 0, offset, 32, None)
        if result.status is not GetMessageStatus.FOUND:
            assert result.next_begin_offset <= store.max_offset("T", 0)
            if result.next_begin_offset == offset:
                return found
        for record in (r for buffer in result.buffers for r in decode_records(buffer, check_crc=True)):
            found.append((record.queue_offset, record.keys or "", record.body))
        assert result.next_begin_offset > offset
        offset = result.next_begin_offset


async def compacted(store: MessageStore) -> bool:
    """Compact what can be compacted: what is durable in the log, but for the last segment."""
    await store.flush()
    store.compaction.current("T", 0)
    return await store.compaction.compact("T", 0)


def fill(store: MessageStore, rounds: int = 12, keys: int = 5) -> list[tuple[int, str, bytes]]:
    """Messages of `keys` keys, over and over; all of them as `kept` shows them."""
    sent = []
    for number in range(rounds):
        for key in range(keys):
            body = b"%d-%d-%s" % (key, number, b"x" * 100)
            sent.append((put(store, f"key-{key}", body), f"key-{key}", body))
    return sent


def newest(sent: list[tuple[int, str, bytes]]) -> list[tuple[int, str, bytes]]:
    return sorted({key: (offset, key, body) for offset, key, body in sent}.values())


def test_segment_sizes_are_javas() -> None:
    assert SegmentSizes.of(104_857_600, 10_485_760) == SegmentSizes(10_485_746 * 11 - 10_485_746, 10_485_746)
    assert SegmentSizes.of(4_500, 920) == SegmentSizes(4_600, 920)
    assert SegmentSizes.of(4_600, 920) == SegmentSizes(5_520, 920)
    assert SegmentSizes.of(10, 100) == SegmentSizes(460, 92)


def test_before_compaction_everything_is_read_in_order(tmp_path: Path) -> None:
    store = compacting(tmp_path)
    sent = fill(store)
    assert kept(store) == sent
    assert kept(store, 7) == sent[7:]
    names = sorted(path.name for path in (tmp_path / FOLDER).iterdir())
    assert len(names) > 2 and names[:2] == ["0" * 20, f"{4_600:020d}"]
    assert names == sorted(path.name for path in (tmp_path / "compaction/compactionCq/T/0").iterdir())
    store.close()


def test_the_place_of_a_damaged_message_which_shows_the_next_one_is_empty(tmp_path: Path) -> None:
    store = compacting(tmp_path)
    sent = fill(store, rounds=1)
    queue = store.queue("T", 0)
    assert queue is not None
    unit = queue.unit(4)
    assert unit is not None
    queue.append(unit[0], unit[1], DAMAGED_TAGS_CODE)
    assert kept(store) == sent
    store.close()


async def test_compaction_keeps_the_newest_of_each_key_and_what_is_being_written(tmp_path: Path) -> None:
    store = compacting(tmp_path)
    sent = fill(store)
    kept(store)
    (found,) = store.compaction._logs.values()
    active = found._segments[-1].first_offset
    assert await compacted(store)
    closed = [row for row in sent if row[0] < active]
    assert kept(store) == newest(closed) + sent[active:]
    assert not await compacted(store)  # nothing new
    assert store.min_offset("T", 0) == newest(closed)[0][0]
    assert store.max_offset("T", 0) == len(sent)
    store.close()


async def late_slave(
    tmp_path: Path, clock: TestClock, *, is_compacted: bool = True
) -> tuple[MessageStore, list[tuple[int, str, bytes]]]:
    """A slave whose log begins at its second file, and what its master has; the master stays open."""
    master = compacting(tmp_path / "master", mapped_file_size_commit_log=8_192)
    put(master, "only-old", b"x" * 100)
    fill(master)
    assert not is_compacted or await compacted(master)
    wanted = kept(master)
    shutil.copytree(tmp_path / "master", tmp_path / "slave")
    master.close()
    shutil.rmtree(tmp_path / "slave" / "compaction")
    for name in ("abort", "lock"):
        (tmp_path / "slave" / name).unlink(missing_ok=True)
    first, *_ = sorted((tmp_path / "slave" / "commitlog").iterdir())
    first.unlink()
    slave = compacting(tmp_path / "slave", clock, mapped_file_size_commit_log=8_192, broker_role="SLAVE")
    return slave, wanted


async def test_a_slave_takes_what_is_older_than_its_log_from_its_master(tmp_path: Path) -> None:
    slave, wanted = await late_slave(tmp_path, TestClock())
    ((topic, queue_id, begin, low),) = slave.compaction.lacking()
    assert (topic, queue_id, begin) == ("T", 0, 0) and low > 5
    assert kept(slave) == []  # nothing out of order
    master = compacting(tmp_path / "master", mapped_file_size_commit_log=8_192)
    while lacking := slave.compaction.lacking():
        result = master.get_message("g", "T", 0, lacking[0].next_offset, 4, None)
        slave.compaction.adopt(lacking[0], memoryview(b"".join(result.buffers)), result.next_begin_offset)
    found = kept(slave)
    assert [row for row in found if row[0] < low] == [row for row in wanted if row[0] < low]
    assert found[0][1] == "only-old"
    assert {row[0] for row in wanted} <= {row[0] for row in found}
    master.close()
    slave.close()


async def adopt_all(slave: MessageStore, tmp_path: Path) -> None:
    """Have the slave take from its master what it lacks."""
    master = compacting(tmp_path / "master", mapped_file_size_commit_log=8_192)
    while lacking := slave.compaction.lacking():
        result = master.get_message("g", "T", 0, lacking[0].next_offset, 4, None)
        slave.compaction.adopt(lacking[0], memoryview(b"".join(result.buffers)), result.next_begin_offset)
    master.close()


async def test_a_slave_asks_its_master_again_for_copies_that_were_lost_with_the_power(tmp_path: Path) -> None:
    clock = TestClock()
    slave, wanted = await late_slave(tmp_path, clock, is_compacted=False)
    low = slave.compaction.lacking()[0].low
    await adopt_all(slave, tmp_path)
    crash(slave)
    segment = slave.compaction._logs["T", 0]._segments[0]
    units = list(segment.units(0))
    for unit in units[2:4]:  # the page of units reached the disk, the page of these records did not
        segment._log.write(unit.position, memoryview(bytes(unit.size)))
    slave = compacting(tmp_path / "slave", clock, mapped_file_size_commit_log=8_192, broker_role="SLAVE")
    assert [queue.next_offset for queue in slave.compaction.lacking()] == [units[1].offset + 1]
    await adopt_all(slave, tmp_path)
    assert [row for row in kept(slave) if row[0] < low] == [row for row in wanted if row[0] < low]
    slave.close()


async def test_a_slave_whose_master_stays_away_goes_on_without_it(tmp_path: Path) -> None:
    clock = TestClock()
    slave, wanted = await late_slave(tmp_path, clock)
    assert slave.compaction.lacking() and kept(slave) == []
    clock.now_ms += 60_001
    assert not slave.compaction.lacking()
    assert kept(slave)[-1] == wanted[-1]
    slave.close()


async def test_readers_go_on_wherever_they_are_and_never_loop(tmp_path: Path) -> None:
    store = compacting(tmp_path)
    sent = fill(store)
    await compacted(store)
    everything = kept(store)
    for offset in range(len(sent) + 1):
        assert kept(store, offset) == [row for row in everything if row[0] >= offset]
    too_far = store.get_message("g", "T", 0, len(sent) + 5, 32, None)
    assert (too_far.status, too_far.next_begin_offset) == (GetMessageStatus.OFFSET_OVERFLOW_BADLY, len(sent))
    unknown = store.get_message("g", "T", 7, 0, 32, None)
    assert unknown.status is GetMessageStatus.NO_MATCHED_LOGIC_QUEUE
    store.close()


@pytest.mark.parametrize("is_compacted", [False, True])
async def test_a_message_that_the_log_has_again_is_shown_and_nobody_is_sent_back(
    tmp_path: Path, is_compacted: bool
) -> None:
    """A start has filled it, and the master has given it back (replication/ha/repair.py)."""
    store = compacting(tmp_path)
    sent = fill(store)
    queue = store.queue("T", 0)
    assert queue is not None
    unit = queue.unit(12)
    assert unit is not None
    offset, size, _ = unit
    store.close()
    path = tmp_path / "commitlog" / f"{0:020d}"
    good = path.read_bytes()
    path.write_bytes(good[: offset + 130] + bytes([good[offset + 130] ^ 8]) + good[offset + 131 :])
    shutil.rmtree(tmp_path / "compaction", ignore_errors=True)
    (tmp_path / "inventory.json").unlink()
    store = compacting(tmp_path)
    if is_compacted:
        await compacted(store)
    assert sent[12] not in kept(store)
    before = kept(store)
    store.commit_log.files.files[0].view[offset : offset + size] = good[offset : offset + size]
    assert store.restore_places(offset, size) == 1
    compaction, copied = store.compaction, CompactionStore.catch_up
    behind = [0]

    def slowly(self: CompactionStore, topic: str, queue_id: int, most: int = 1) -> bool:
        found = self._logs["T", 0]
        if found.next_offset < len(sent):
            behind[0] += 1
            waits = store.get_message("g", "T", 0, len(sent), 32, None)
            assert (waits.status, waits.next_begin_offset) == (GetMessageStatus.OFFSET_OVERFLOW_ONE, len(sent))
        return copied(self, topic, queue_id, 1)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(CompactionStore, "catch_up", slowly)
        await compaction._round()
    assert behind[0] > 40
    assert kept(store) == (sent if not is_compacted else [row for row in before if row[0] < 12] + sent[12:])
    await compacted(store)
    assert newest(kept(store)) == newest(sent)
    await store.shutdown()
    store = compacting(tmp_path)
    assert newest(kept(store)) == newest(sent)
    store.close()


async def test_an_empty_body_deletes_its_key_and_goes_with_its_record(tmp_path: Path) -> None:
    store_clock = TestClock()
    store = compacting(tmp_path, store_clock, delete_commit_log_files_interval=0)
    put(store, "gone", b"something")
    put(store, "gone", b"")
    fill(store, keys=2, rounds=30)
    assert await compacted(store)
    assert [row for row in kept(store) if row[1] == "gone"] == [(1, "gone", b"")]  # readers who were away learn of it
    await store.compaction._round()
    await expire_all(store, store_clock)
    assert store.min_physical_offset > 0
    fill(store, keys=2, rounds=30)
    assert await compacted(store)
    assert "gone" not in {key for _, key, _ in kept(store)}
    store.close()


async def test_a_slave_keeps_what_deletes_a_key_as_long_as_its_masters_log_has_it(tmp_path: Path) -> None:
    """It takes it from the master's compacted queue, and its own log begins later."""
    master = compacting(tmp_path / "master")
    put(master, "gone", b"something")
    put(master, "gone", b"")
    while master.commit_log.max_offset < 65_536:
        assert master.put_message(message("OTHER", body=bytes(8_000))).ok
    fill(master)
    await master.flush()
    wanted = kept(master)
    slave = compacting(tmp_path / "slave", broker_role="SLAVE")
    data = master.commit_log.get(65_536, master.commit_log.max_offset - 65_536)
    assert data is not None
    slave.append_from_master(65_536, data)
    await slave.flush()
    (queue,) = slave.compaction.lacking()
    result = master.get_message("g", "T", 0, 0, 32, None)
    slave.compaction.adopt(queue, memoryview(b"".join(result.buffers)), result.next_begin_offset)
    assert kept(slave) == wanted
    assert await compacted(slave)
    assert kept(slave)[0] == (1, "gone", b"")
    slave.compaction.master_log_begins = 65_536
    fill(master)
    end = slave.commit_log.max_offset
    more = master.commit_log.get(end, master.commit_log.max_offset - end)
    assert more is not None
    slave.append_from_master(end, more)
    assert await compacted(slave)
    assert "gone" not in {key for _, key, _ in kept(slave)}
    for store in (master, slave):
        store.close()


async def test_repeated_compaction_stays_right_and_small(tmp_path: Path) -> None:
    store = compacting(tmp_path)
    sent: list[tuple[int, str, bytes]] = []
    for _ in range(6):
        sent += fill(store, rounds=6)
        await compacted(store)
        rows = kept(store)
        assert rows[-5:] == sent[-5:]
        assert newest(rows) == newest(sent)
        assert len(rows) < 50
    assert len(list((tmp_path / FOLDER).iterdir())) <= 3
    store.close()


async def test_a_clean_restart_finds_everything_as_it_was(tmp_path: Path) -> None:
    store = compacting(tmp_path)
    fill(store)
    await compacted(store)
    rows = kept(store)
    store.close()
    positions = json.loads((tmp_path / "compaction/position-checkpoint").read_text())
    assert positions["queueOffsetMap"]["T_0"] > 0
    again = compacting(tmp_path)
    assert kept(again) == rows
    assert not await compacted(again)
    put(again, "key-0", b"after")
    assert kept(again) == [*rows, (len(rows) and rows[-1][0] + 1, "key-0", b"after")]
    again.close()


def crash(store: MessageStore) -> None:
    """Leave the files as a killed process does."""
    store._life.lock.release()


@pytest.mark.parametrize("wipe", [1, 150, 900, 3_800])
def test_after_a_crash_what_did_not_reach_the_disk_is_copied_again(tmp_path: Path, wipe: int) -> None:
    store = compacting(tmp_path)
    sent = fill(store)
    assert kept(store) == sent
    crash(store)
    last = sorted((tmp_path / FOLDER).iterdir())[-2]
    data = bytearray(last.read_bytes())
    data[-wipe - 700 : -700] = bytes(wipe)
    last.write_bytes(data)
    again = compacting(tmp_path)
    assert not again.report.clean_exit
    assert kept(again) == sent
    again.close()


def test_messages_the_log_has_lost_are_forgotten(tmp_path: Path) -> None:
    store = compacting(tmp_path)
    fill(store, rounds=2)
    kept(store)
    found = store.compaction.current("T", 0)
    assert found is not None
    for segment in found.take_unflushed():
        segment.flush()
    found.cut(4)
    assert [row[0] for row in kept(store)] == list(range(10))  # the log still has them
    found.cut(4)
    assert found.next_offset == 4
    store.close()


def test_copies_of_a_queue_that_the_log_has_lost_whole_are_forgotten(tmp_path: Path) -> None:
    store = compacting(tmp_path)
    fill(store, rounds=2)
    kept(store)
    crash(store)
    for name in ("commitlog", "consumequeue", "checkpoint", "index"):  # nothing of them was durable
        path = tmp_path / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    again = compacting(tmp_path)
    assert kept(again) == []
    sent = fill(again, rounds=1)
    assert kept(again) == sent
    again.close()


@pytest.mark.parametrize("ext", [True, False])
async def test_tags_and_property_tests_filter(tmp_path: Path, ext: bool) -> None:
    """Also where the queue's units have addresses of extension units in place of the tags."""
    store = compacting(tmp_path, enable_consume_queue_ext=ext, mapped_file_size_consume_queue_ext=1024)
    for number in range(6):
        put(store, f"k{number}", b"x", TAGS="a" if number % 2 else "b")

    class Tags:
        sub_string, expression_type, code_set = "a", "TAG", [jhash("a")]

    result = store.get_message("g", "T", 0, 0, 32, Tags())
    assert result.message_count == 3
    assert result.next_begin_offset == 6
    store.close()


async def test_times_are_those_of_what_is_kept(tmp_path: Path) -> None:
    clock = TestClock()
    store = compacting(tmp_path, clock)
    for number in range(100):
        clock.now_ms += 10
        put(store, f"k{number % 3}", b"y" * 100)
    start = 1_700_000_000_000
    assert store.offset_by_time("T", 0, start + 500) == 49
    await compacted(store)
    first = store.min_offset("T", 0)
    assert first > 0
    assert store.offset_by_time("T", 0, start) == first
    assert store.earliest_store_time("T", 0) == start + 10 * (first + 1)
    assert store.offset_by_time("T", 0, start + 100_000) == 100
    store.close()


async def test_the_topic_takes_its_compacted_files_with_it(tmp_path: Path) -> None:
    store = compacting(tmp_path)
    store.start()
    fill(store)
    await compacted(store)
    await delete_topics(store, "T")
    assert not (tmp_path / FOLDER).exists()
    assert "T" not in store.compaction.topics
    positions = json.loads((tmp_path / "compaction/position-checkpoint").read_text())
    assert positions == {"queueOffsetMap": {}, "incarnations": {"T_0": store.incarnation("T")}}
    await store.shutdown()


async def test_files_of_a_deleted_topic_that_cannot_be_deleted_keep_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = compacting(tmp_path)
    store.compaction.topics.add("U")
    store.start()
    fill(store)
    for number in range(40):
        store.put_message(message("U", 0, b"x", KEYS=f"k{number}"))
    for topic in ("T", "U"):
        store.compaction.catch_up(topic, 0)
    real, refused = CompactionLog.destroy, True

    def destroy(found: CompactionLog) -> None:
        if refused and found.folders.topic == "T":
            raise OSError(5, "no")
        real(found)

    monkeypatch.setattr(CompactionLog, "destroy", destroy)
    assert store.put_deletion(["T", "U"]).ok
    folder = tmp_path / "compaction" / "compactionLog"
    await store.compaction.delete_topics({"T", "U"})
    assert (folder / "T" / "0").exists() and not (folder / "U" / "0").exists()
    assert "T-0, whose compacted files are deleted later is skipped: [Errno 5] no" in caplog.text
    refused = False
    await store.compaction._round()
    assert not (folder / "T" / "0").exists()
    await store.shutdown()


async def test_a_new_topic_of_the_name_shows_nothing_of_the_deleted_one(tmp_path: Path) -> None:
    """Also when the process was killed before the compacted files of the deleted topic were gone."""
    store = compacting(tmp_path)
    store.start()
    fill(store)
    await compacted(store)
    assert store.put_deletion(["T"]).ok
    store.compaction.topics.add("T")
    put(store, "new", b"new")
    image = tmp_path.with_name(tmp_path.name + "-image")
    shutil.copytree(tmp_path, image)
    assert kept(store) == []
    await store.compaction.delete_topics({"T"})
    assert kept(store) == [(0, "new", b"new")]
    await store.shutdown()
    again = compacting(image)
    assert kept(again) == [(0, "new", b"new")]
    again.close()


async def test_compacted_messages_outlive_the_log_they_came_from(tmp_path: Path) -> None:
    clock = TestClock()
    store = compacting(tmp_path, clock, mapped_file_size_commit_log=8_192, max_message_size=1_024)
    store.start()
    put(store, "old", b"kept for ever")
    fill(store, rounds=30)
    await compacted(store)
    rows = kept(store)
    for _ in range(3):
        first = store.commit_log.files.first
        assert first is not None
        with store.commit_log.without_first():
            pass
        first.destroy()
    assert await store.cleaner.clean_expired_consume_queues() == 0
    assert kept(store) == rows
    assert rows[0] == (0, "old", b"kept for ever")
    await store.shutdown()
    again = compacting(tmp_path, clock, mapped_file_size_commit_log=8_192, max_message_size=1_024)
    assert kept(again) == rows
    again.close()


@pytest.mark.parametrize("lost", ["nothing", "the queue", "the inventory", "both"])
async def test_new_messages_come_behind_compacted_ones_that_alone_tell_how_far_the_queue_was_numbered(
    tmp_path: Path, lost: str
) -> None:
    """They would have the places of kept messages, which readers have passed, and the start after that would forget
    these."""
    clock = TestClock()
    settings = {"mapped_file_size_commit_log": 8_192, "max_message_size": 1_024}
    store = compacting(tmp_path, clock, **settings)
    sent = fill(store)
    await compacted(store)
    rows = kept(store)
    while store.commit_log.max_offset < 5 * 8_192:
        store.put_message(message("Other", body=bytes(1_000)))
    await store.flush()
    store.close()
    for file in sorted((tmp_path / "commitlog").iterdir())[:-2]:
        file.unlink()
    if lost in ("the queue", "both"):
        shutil.rmtree(tmp_path / "consumequeue" / "T")
    if lost in ("the inventory", "both"):
        (tmp_path / "inventory.json").unlink()
    store = compacting(tmp_path, clock, **settings)
    assert (kept(store), store.max_offset("T", 0)) == (rows, len(sent))
    assert put(store, "new", b"new") == len(sent)
    await store.flush()
    assert kept(store, len(sent)) == [(len(sent), "new", b"new")]
    store.close()
    store = compacting(tmp_path, clock, **settings)
    assert kept(store) == [*rows, (len(sent), "new", b"new")]
    store.close()


def test_a_record_that_is_damaged_is_passed_over(tmp_path: Path) -> None:
    store = compacting(tmp_path)
    fill(store, rounds=1)
    rows = kept(store)
    found = store.compaction.current("T", 0)
    assert found is not None
    segment = found._segments[0]
    unit = next(iter(segment.units(2)))
    segment._log.view[unit.position : unit.position + 4] = bytes(4)
    assert kept(store) == rows[:2] + rows[3:]
    store.close()


def test_records_keep_their_place_in_the_commit_log(tmp_path: Path) -> None:
    """A consumer that hands a message back names it by that."""
    store = compacting(tmp_path)
    put(store, "a", b"1")
    result = store.put_message(message(body=b"2", KEYS="b"))
    pulled = store.get_message("g", "T", 0, 1, 1, None)
    (record,) = decode_records(pulled.buffers[0])
    assert record.physical_offset == result.physical_offset
    store.close()


def test_a_segment_file_that_stands_alone_is_removed(tmp_path: Path) -> None:
    store = compacting(tmp_path)
    fill(store, rounds=1)
    rows = kept(store)
    store.close()
    alone = tmp_path / "compaction/compactionCq/T/0" / f"{4_600:020d}"
    alone.write_bytes(bytes(920))
    again = compacting(tmp_path)
    assert kept(again) == rows
    assert not alone.exists()
    again.close()


def test_files_of_another_size_are_refused_by_name(tmp_path: Path) -> None:
    store = compacting(tmp_path)
    fill(store, rounds=1)
    kept(store)
    store.close()
    with pytest.raises(StoreRefusedError, match=r"0{20}: .*expected 5520; set compactionMappedFileSize"):
        compacting(tmp_path, compaction_mapped_file_size=4_600)


def test_unreadable_positions_only_cost_work(tmp_path: Path) -> None:
    store = compacting(tmp_path)
    fill(store)
    rows = kept(store)
    store.close()
    (tmp_path / "compaction/position-checkpoint").write_text("{]")
    again = compacting(tmp_path)
    assert kept(again) == rows
    again.close()


def test_a_segment_takes_no_more_than_fits(tmp_path: Path) -> None:
    store = new_store(config_at(tmp_path))
    segment = Segment(store._context.disk, tmp_path / "l", tmp_path / "u", 0, 460, 92)
    assert segment.has_room(452) and not segment.has_room(453)
    segment.append(memoryview(bytearray(452)), 0, 0)
    assert not segment.has_room(1)  # the last unit closes the file
    segment.close()
    assert segment._log.view[452:460] == (8).to_bytes(4, "big") + 0xCBD43194.to_bytes(4, "big")
    segment.release()


@pytest.mark.parametrize("failing", ["/log/*", "/units/*"])
def test_what_a_failed_sync_of_a_segment_covered_is_durable_after_the_next_sync(failing: str) -> None:
    disk = SimDisk(SimRng(1), SimClock(), write_back=0.0)
    segment = Segment(disk, PurePath("/log"), PurePath("/units"), 0, 460, 92)
    segment.append(memoryview(b"x" * 300), 0, 0)
    disk.fail_flush(failing)
    with pytest.raises(OSError, match="Input/output error"):
        segment.flush()
    segment.flush()
    before = [disk.read(PurePath(path)) for path in disk.paths("*")]
    disk.cut_power()
    disk = disk.boot()
    assert [disk.read(PurePath(path)) for path in disk.paths("*")] == before
    assert any(content.startswith(b"x" * 300) for content in before)


async def test_segments_whose_flush_failed_are_flushed_by_the_next_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = compacting(tmp_path)
    fill(store, rounds=12)
    store.compaction.current("T", 0)
    tried: list[int] = []
    real = Segment.flush

    def flush(segment: Segment) -> None:
        tried.append(segment.base)
        if len(tried) == 1:
            raise OSError(28, "No space left on device")
        real(segment)

    monkeypatch.setattr(Segment, "flush", flush)
    await store.compaction._round()
    assert "No space" in store.compaction.failures["T", 0]
    await store.compaction._round()
    assert not store.compaction.failures
    assert tried[0] in tried[1:] and len(tried[1:]) == len(set(tried)) > 1
    store.close()


@pytest.mark.parametrize("refused", [5, 28])
def test_a_shutdown_that_could_not_flush_segments_is_no_clean_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: int
) -> None:
    store = compacting(tmp_path)
    sent = fill(store, rounds=3)
    store.compaction.current("T", 0)

    def refuse(segment: Segment) -> None:
        raise OSError(refused, "refused")

    with monkeypatch.context() as device:
        device.setattr(Segment, "flush", refuse)
        store.close()
    again = compacting(tmp_path)
    assert not again.report.clean_exit
    assert kept(again) == sent
    again.close()


async def expire_all(store: MessageStore, clock: TestClock) -> None:
    """Make all files of the log but the last ones old, and clean twice."""
    for _ in range(40):
        assert store.put_message(message("OTHER", body=bytes(8_000))).ok
    await store.flush()
    clock.now_ms += 100 * 3_600_000
    for file in store.commit_log.files.files[:-1]:
        os.utime(file.path, (1, 1))
    store.cleaner.request()
    for _ in range(2):
        await store.cleaner.clean()


@pytest.mark.parametrize("failing", ["append", "flush"])
async def test_retention_keeps_files_whose_messages_are_not_in_the_compacted_queue_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, failing: str
) -> None:
    clock = TestClock()
    store = compacting(tmp_path, clock, delete_commit_log_files_interval=0)
    put(store, "first", b"1")
    await store.compaction._round()
    put(store, "second", b"2")

    def refuse(*args: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(CompactionLog if failing == "append" else Segment, failing, refuse)
        await store.compaction._round()
        await expire_all(store, clock)
        assert store.min_physical_offset == 0
        kept_lines = [line for line in caplog.messages if "is kept" in line]
        assert len(kept_lines) == 1 and "messages of T-0" in kept_lines[0] and "No space left" in kept_lines[0]
        clock.now_ms += 3_600_000
        await store.cleaner.clean()
        assert len([line for line in caplog.messages if "is kept" in line]) == 2  # again after an hour
    await store.compaction._round()
    await store.cleaner.clean()
    assert store.min_physical_offset > 0
    assert [row[1] for row in kept(store)] == ["first", "second"]
    store.close()


async def test_a_full_disk_has_files_deleted_that_are_not_copied_and_the_log_says_what_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = TestClock()
    store = compacting(tmp_path, clock, delete_commit_log_files_interval=0)
    put(store, "first", b"1")
    monkeypatch.setattr(store.cleaner, "disk_ratios", lambda: (0.99, 0.99))
    await expire_all(store, clock)
    assert store.min_physical_offset > 0
    (line,) = [line for line in caplog.messages if "is lost with it" in line]
    assert "messages of T-0" in line
    store.close()


@pytest.mark.parametrize("loss", ["incarnations", "file"])
async def test_messages_of_a_topic_that_was_once_deleted_stay_if_the_positions_do_not_name_its_incarnation(
    tmp_path: Path, loss: str
) -> None:
    store = compacting(tmp_path)
    put(store, "old", b"x")
    kept(store)
    await delete_topics(store, "T")
    await store.compaction.delete_topics({"T"})
    store.compaction.topics.add("T")
    fill(store)
    assert await compacted(store)
    wanted = kept(store)
    store.close()
    positions = tmp_path / "compaction/position-checkpoint"
    found = json.loads(positions.read_text())
    del found["incarnations"]
    positions.write_text(json.dumps(found)) if loss == "incarnations" else positions.unlink()
    store = compacting(tmp_path)
    assert [row for row in kept(store) if row not in wanted] == []
    assert kept(store) == wanted
    store.close()


async def test_messages_from_before_a_deletion_go_if_the_positions_do_not_name_their_incarnation(
    tmp_path: Path,
) -> None:
    store = compacting(tmp_path)
    put(store, "older", b"x")
    put(store, "old", b"x")
    await store.compaction._round()
    await store.flush()
    shutil.copytree(tmp_path / "compaction", tmp_path / "copies")
    await delete_topics(store, "T")
    await store.compaction.delete_topics({"T"})
    store.compaction.topics.add("T")
    put(store, "new", b"1")
    put(store, "newer", b"2")
    store.close()
    shutil.rmtree(tmp_path / "compaction")
    (tmp_path / "copies").rename(tmp_path / "compaction")
    store = compacting(tmp_path)
    assert [row[1] for row in kept(store)] == ["new", "newer"]
    store.close()


@pytest.mark.parametrize("log_has_it", [True, False])
async def test_compaction_takes_a_damaged_copy_again_or_leaves_the_older_message_of_its_key(
    tmp_path: Path, log_has_it: bool
) -> None:
    store = compacting(tmp_path)
    put(store, "K", b"v1" * 20)
    put(store, "K", b"v2" * 20)
    fill(store, rounds=6)
    sent = kept(store)
    if not log_has_it:
        at = bytes(store.commit_log.files.files[0].view[:4_096]).find(b"v2v2")
        store.commit_log.files.files[0].view[at : at + 4] = b"XXXX"
    damage_copy(store, 1, b"v2v2")
    (found,) = store.compaction._logs.values()
    for _ in range(2):
        await compacted(store)
    assert found.position > 0
    wanted = sent[1] if log_has_it else sent[0]
    assert [row for row in kept(store) if row[1] == "K"] == [wanted]
    assert kept(store)[-3:] == sent[-3:]
    store.close()


def damage_copy(store: MessageStore, number: int, body: bytes) -> None:
    """Overwrite some bytes of the body of the copy that stands at this place of the first segment."""
    (found,) = store.compaction._logs.values()
    segment = found._segments[0]
    unit = list(segment.units(0))[number]
    record = segment.record(unit)
    assert record is not None
    segment._log.write(unit.position + bytes(record).find(body), memoryview(b"XXXX"))


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("failing", ["cut", "delete"])
async def test_no_message_is_missing_when_the_disk_fails_while_copies_are_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, is_killed: bool
) -> None:
    store = compacting(tmp_path)
    for key, body in (("first", b"ee"), ("second", b"dd")):
        put(store, key, body * 20)
    sent = kept(store) + fill(store)
    kept(store)
    for _ in range(2):
        sent += fill(store)
        assert await compacted(store)
    await store.compaction._flush("T", 0)
    damage_copy(store, 1, b"dddd")
    sent += fill(store)
    calls = [0]

    def second_fails(patched: Any) -> Any:
        def call(*args: Any) -> None:
            calls[0] += 1
            if calls[0] == 2:
                raise OSError(5, "Input/output error")
            patched(*args)

        return call

    with monkeypatch.context() as patch, pytest.raises(OSError, match="Input/output"):
        owner = Segment if failing == "cut" else CompactionLog
        name = "cut" if failing == "cut" else "_drop"
        patch.setattr(owner, name, second_fails(getattr(owner, name)))
        await compacted(store)
    if is_killed:
        crash(store)
        store = compacting(tmp_path)
    sent += fill(store)
    for _ in range(2):
        await compacted(store)
    assert newest(kept(store)) == newest(sent)
    store.close()


async def test_a_damaged_copy_costs_no_other_one_after_a_kill_when_the_log_has_none_of_them_any_more(
    tmp_path: Path,
) -> None:
    clock = TestClock()
    store = compacting(tmp_path, clock, delete_commit_log_files_interval=0)
    for key in ("A", "B", "C"):
        put(store, key, key.encode() * 20)
    await store.compaction._round()
    await expire_all(store, clock)
    assert store.min_physical_offset > 0
    put(store, "D", b"D" * 20)
    assert [row[1] for row in kept(store)] == ["A", "B", "C", "D"]
    await store.flush()
    await store.compaction._round()
    damage_copy(store, 1, b"BBBB")
    crash(store)
    store = compacting(tmp_path, clock)
    result = store.get_message("g", "T", 0, 0, 32, None)
    assert [record.keys for buffer in result.buffers for record in decode_records(buffer)] == ["A", "B", "C", "D"]
    store.close()


@pytest.mark.parametrize("log_has_them", [True, False])
async def test_a_segment_that_lost_its_last_units_costs_what_the_log_has_no_more_and_nothing_else(
    tmp_path: Path, log_has_them: bool
) -> None:
    clock = TestClock()
    store = compacting(tmp_path, clock, delete_commit_log_files_interval=0)
    fill(store)
    assert await compacted(store)
    fill(store, rounds=6)
    sent = kept(store)
    (found,) = store.compaction._logs.values()
    lost = found._segments[0].last_offset
    units, count = found._segments[0].unit_path, found._segments[0].count
    await store.compaction._flush("T", 0)
    if not log_has_them:
        await expire_all(store, clock)
        assert store.min_physical_offset > 0
    crash(store)
    path = tmp_path / "compaction/compactionCq/T/0" / units.name
    data = path.read_bytes()
    path.write_bytes(data[: (count - 1) * 46] + bytes(2 * 46) + data[(count + 1) * 46 :])
    store = compacting(tmp_path, clock)
    there = kept(store)
    wanted = sent if log_has_them else [row for row in sent if row[0] != lost]
    assert [row for row in wanted if row not in there] == []
    store.close()


@pytest.mark.parametrize("reason", ["damaged", "came back"])
async def test_copies_that_are_taken_again_are_compacted_also_after_a_restart(tmp_path: Path, reason: str) -> None:
    """They are behind the position of the last compaction then. A message that deletes its key would leave the older
    value alone if its own record went before the copies are compacted."""
    clock = TestClock()
    settings = {"delete_commit_log_files_interval": 0}
    store = compacting(tmp_path, clock, **settings)
    put(store, "first", b"dd" * 20)
    put(store, "gone", b"g1" * 20)
    put(store, "gone", b"")
    fill(store)
    assert await compacted(store)
    if reason == "damaged":
        damage_copy(store, 0, b"dddd")
        fill(store)
        assert not await compacted(store)
    else:
        store.compaction.came_back("T", 0, 0)
        await store.compaction._copy_again(("T", 0))
    kept(store)
    await store.shutdown()
    store = compacting(tmp_path, clock, **settings)
    fill(store)
    assert await compacted(store)
    await store.compaction._round()
    await expire_all(store, clock)
    fill(store)
    assert await compacted(store)
    assert [row for row in kept(store) if row[1] == "gone"] == []
    assert [row[2] for row in kept(store) if row[1] == "first"] == [b"dd" * 20]
    store.close()


async def test_copies_whose_files_were_lost_are_compacted_also_after_a_second_restart(tmp_path: Path) -> None:
    store = compacting(tmp_path)
    sent = fill(store)
    assert await compacted(store)
    await store.shutdown()
    for folder in ("compactionLog", "compactionCq"):
        for path in (tmp_path / "compaction" / folder / "T/0").iterdir():
            path.unlink()
    for _ in range(2):
        store = compacting(tmp_path)
        assert kept(store) == sent
        await store.shutdown()
    store = compacting(tmp_path)
    assert await compacted(store)
    (found,) = store.compaction._logs.values()
    closed = [row[1] for row in kept(store) if row[0] <= found.position]
    assert sorted(closed) == sorted(set(closed))
    store.close()


async def test_messages_that_went_while_compaction_was_off_are_counted_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = TestClock()
    store = compacting(tmp_path, clock)
    put(store, "K", b"v1")
    kept(store)
    store.close()
    store = opened(config_at(tmp_path, delete_commit_log_files_interval=0), clock)  # as with enableCompaction=false
    put(store, "K", b"v2")
    await expire_all(store, clock)
    store.close()
    store = compacting(tmp_path, clock)
    put(store, "L", b"v1")

    def refuse(*args: object) -> None:
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CompactionLog, "append", refuse)
        assert kept(store) == kept(store) == [(0, "K", b"v1")]
    assert kept(store) == [(0, "K", b"v1"), (2, "L", b"v1")]
    (line,) = [line for line in caplog.messages if "before they were copied" in line]
    assert "T-0: messages 1 to 1 went with the log" in line
    store.close()
