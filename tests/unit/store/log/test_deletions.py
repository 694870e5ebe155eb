"""Deleted topics: what a start, a kill, a rebuild, a query and a Java broker's store make of them."""

import asyncio
import errno
import json
import os
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any

import pytest

from maxq.errors import StoreError
from maxq.protocol.message.message import decode_record, decode_records
from maxq.protocol.message.message_sys_flag import MessageSysFlag
from maxq.runtime.files.system import SystemDisk
from maxq.store.files.store_inventory import InventoryFile, StoreInventory, decode_inventory
from maxq.store.log.deletions import DELETED_TOPIC, Deletions
from maxq.store.log.record_cy import crc31
from maxq.store.message_store import MessageStore
from maxq.store.recovery.damage_names import DAMAGED_PROPERTY
from maxq.store.store_results import PutMessageStatus
from maxq.store.tools.check import StoreCheck
from maxq.store.tools.recover import recover
from maxq.store.tools.store_files import StoreFiles
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import SimDisk
from maxq.testing.sim_rng import SimRng
from tests.unit.store import naive
from tests.unit.store.stores import TestClock, delete_topics, message, new_store, opened, small_config


def bodies(store: MessageStore, topic: str, queue_id: int = 0) -> list[bytes]:
    """What a reader gets from 0 to the end; every message says the queue offset at which it stands."""
    found: list[bytes] = []
    low, high = max(0, store.min_offset(topic, queue_id)), store.max_offset(topic, queue_id)
    at = low
    while at < high:
        result = store.get_message("g", topic, queue_id, at, 32, None)
        assert result.buffers, (result.status, at, high)
        for record in (record for buffer in result.buffers for record in decode_records(buffer, check_crc=True)):
            assert record.queue_offset == low + len(found)
            found.append(record.body)
        at = result.next_begin_offset
    return found


def send(store: MessageStore, topic: str, *texts: str, queue_id: int = 0, **properties: str) -> None:
    for text in texts:
        result = store.put_message(message(topic, queue_id, text.encode(), **properties))
        assert result.ok, result.remark


def old(count: int = 60) -> list[str]:
    return [f"old {number}" for number in range(count)]


def killed(root: Path, **changes: Any) -> MessageStore:
    """The store as a process finds it that was started after a kill."""
    image = root.with_name(root.name + "-killed")
    shutil.rmtree(image, ignore_errors=True)
    shutil.copytree(root, image)
    (image / "lock").unlink(missing_ok=True)
    return opened(small_config(image, **changes))


def log_bytes(root: Path) -> bytes:
    """Of the first file, which holds all that these tests store before they look."""
    return (root / "commitlog" / f"{0:020d}").read_bytes()


def files_of(root: Path) -> StoreFiles:
    return StoreFiles(SystemDisk(), root, hash_slots=100, index_entries=200)


def without_witnesses(root: Path) -> None:
    """Leave the log, as `maxq store recover --rebuild` does."""
    for name in ("consumequeue", "index", "deleted"):
        shutil.rmtree(root / name, ignore_errors=True)
    for name in ("inventory.json", "deletions.json"):
        (root / name).unlink(missing_ok=True)


async def test_deletions_that_wait_together_share_what_they_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each by itself would write queues, checkpoint and inventory, one after the other."""
    written = 0
    save = InventoryFile.save

    def counted(file: InventoryFile, inventory: StoreInventory) -> None:
        nonlocal written
        written += 1
        save(file, inventory)

    monkeypatch.setattr(InventoryFile, "save", counted)
    root = tmp_path / "store"
    store = opened(small_config(root))
    topics = [f"T{number}" for number in range(20)]
    for topic in topics:
        send(store, topic, "a")
    for topic in topics:
        assert store.put_deletion([topic]).ok
    await asyncio.gather(*(store.finish_deletion([topic]) for topic in topics))
    assert 1 <= written <= 2
    inventory = decode_inventory((root / "inventory.json").read_bytes())
    assert inventory is not None and inventory.queues.keys() & set(topics) == set()
    after_a_kill = killed(root)
    assert [topic for topic in topics if after_a_kill.max_offset(topic, 0)] == []
    await after_a_kill.shutdown()
    await store.shutdown()


@pytest.mark.parametrize("finished", [True, False], ids=["answered", "killed-before-the-answer"])
@pytest.mark.parametrize("log_only", [False, True], ids=["all-files", "from-the-log"])
@pytest.mark.parametrize("made_again", [True, False], ids=["made-again", "gone"])
async def test_a_deleted_topic_stays_deleted_after_a_kill_and_the_log_stays_as_it_is(
    tmp_path: Path, *, finished: bool, log_only: bool, made_again: bool
) -> None:
    root = tmp_path / "store"
    store = opened(small_config(root))
    send(store, "T", *old())
    send(store, "T", "of queue 1", queue_id=1)
    send(store, "Other", *old())
    assert store.put_deletion(["T"]).ok
    if finished:
        await store.finish_deletion(["T"])
    if made_again:
        send(store, "T", "a", "b", "c")
    send(store, "Other", "more")
    before = log_bytes(root)
    if log_only:
        image = tmp_path / "store-killed"
        shutil.copytree(root, image)
        without_witnesses(image)
        (image / "lock").unlink(missing_ok=True)
        again = opened(small_config(image))
    else:
        again = killed(root)
        assert not (finished and again.report.rebuild_reasons)
    assert bodies(again, "T") == ([b"a", b"b", b"c"] if made_again else [])
    assert bodies(again, "T", 1) == []
    assert len(bodies(again, "Other")) == 61
    assert again.report.faults == []
    assert log_bytes(tmp_path / "store-killed") == before
    assert again.put_message(message("T")).queue_offset == (3 if made_again else 0)
    assert again.put_message(message("T", 1)).queue_offset == 0
    assert again.incarnation("T") == store.incarnation("T") > 0
    assert again.incarnation("Other") == 0
    again.close()
    store.close()


@pytest.mark.parametrize("log_only", [False, True], ids=["as-it-was", "recover-rebuild"])
async def test_the_check_knows_what_was_deleted_and_finds_what_is_back(tmp_path: Path, *, log_only: bool) -> None:
    store = opened(small_config(tmp_path))
    send(store, "T", *old(), KEYS="k")
    send(store, "Gone", *old())
    send(store, "Other", *old())
    await delete_topics(store, "T", "Gone")
    send(store, "T", "a", "b", KEYS="k")
    old_unit = struct.pack(">qiq", 0, store.commit_log.record_size(0), 0)
    store.close()
    if log_only:
        recover(files_of(tmp_path), TestClock(), rebuild=True)
    assert StoreCheck(files_of(tmp_path)).run().faults == []
    queue = tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}"
    queue.write_bytes(old_unit + queue.read_bytes()[20:])
    assert [fault for fault in StoreCheck(files_of(tmp_path)).run().faults if "T/0" in fault.file]


async def test_a_clean_restart_keeps_it_deleted_and_numbers_the_new_topic_from_0(tmp_path: Path) -> None:
    store = opened(small_config(tmp_path))
    send(store, "T", *old())
    await delete_topics(store, "T")
    incarnation = store.incarnation("T")
    store.close()
    again = opened(small_config(tmp_path))
    assert again.report.dispatched_records == 0
    assert again.max_offset("T", 0) == 0
    assert again.incarnation("T") == incarnation
    send(again, "T", "a", "b")
    third = killed(tmp_path)
    assert bodies(third, "T") == [b"a", b"b"]
    third.close()
    again.close()
    records, _ = naive.java_reads(tmp_path)  # a Java broker reads the log, and its deletions, as records
    assert [record.topic for record in records].count(DELETED_TOPIC) == 1


async def test_a_topic_deleted_twice_has_another_incarnation(tmp_path: Path) -> None:
    store = opened(small_config(tmp_path))
    seen = {store.incarnation("T")}
    for text in ("a", "b"):
        send(store, "T", text, text)
        await delete_topics(store, "T")
        assert store.incarnation("T") not in seen
        seen.add(store.incarnation("T"))
    send(store, "T", "c")
    again = killed(tmp_path)
    assert bodies(again, "T") == [b"c"]
    assert again.incarnation("T") == max(seen)
    again.close()
    store.close()


async def test_messages_that_wait_for_the_disk_stand_on_their_side_of_the_deletion(tmp_path: Path) -> None:
    """With SYNC_FLUSH dispatch follows the group commit: the new topic is numbered from 0 before the old messages have
    got their places."""
    store = new_store(small_config(tmp_path, flush_disk_type="SYNC_FLUSH"))
    store.load()
    send(store, "T", "old 0", "old 1")
    assert store.put_deletion(["T"]).ok
    send(store, "T", "a")
    assert store.put_deletion(["T"]).ok
    send(store, "T", "b", "c")
    assert store.max_offset("T", 0) == 0
    await store.finish_deletion(["T"])
    assert bodies(store, "T") == [b"b", b"c"]
    send(store, "T", "d")
    await store.flush()
    assert bodies(store, "T") == [b"b", b"c", b"d"]
    store.close()
    again = opened(small_config(tmp_path))
    assert bodies(again, "T") == [b"b", b"c", b"d"]
    again.close()


async def test_light_queues_and_topics_of_batches_are_deleted_the_same_way(tmp_path: Path) -> None:
    settings = {"enable_lmq": True, "enable_multi_dispatch": True}
    store = new_store(small_config(tmp_path, **settings))
    store.queues.is_batch_topic = lambda topic: topic == "Batch"
    store.load()
    send(store, "T", *old(5), INNER_MULTI_DISPATCH="%LMQ%a,%LMQ%b")
    send(store, "Batch", *old(5))
    await delete_topics(store, "%LMQ%a", "Batch")
    send(store, "T", "new", INNER_MULTI_DISPATCH="%LMQ%a")
    send(store, "Batch", "new")
    image = tmp_path.with_name(tmp_path.name + "-image")
    shutil.copytree(tmp_path, image)
    without_witnesses(image)
    shutil.rmtree(image / "batchconsumequeue")
    again = new_store(small_config(image, **settings))
    again.queues.is_batch_topic = lambda topic: topic == "Batch"
    again.load()
    for found in (store, again):
        assert found.max_offset("%LMQ%a", 0) == 1
        assert found.max_offset("%LMQ%b", 0) == 5
        assert found.max_offset("T", 0) == 6
        assert found.max_offset("Batch", 0) == 1
        found.close()


async def test_a_query_by_key_finds_nothing_of_the_deleted_topic(tmp_path: Path) -> None:
    store = opened(small_config(tmp_path))
    send(store, "T", "old", KEYS="k")
    send(store, "Other", "kept", KEYS="k")
    await delete_topics(store, "T")
    assert not store.query_message("T", "k", 10, 0, 1 << 62).buffers
    send(store, "T", "new", KEYS="k")
    found = store.query_message("T", "k", 10, 0, 1 << 62).buffers
    assert [decode_record(record).body for record in found] == [b"new"]
    assert len(store.query_message("Other", "k", 10, 0, 1 << 62).buffers) == 1
    store.close()


async def test_the_deletion_is_known_when_its_record_was_cleaned_away(tmp_path: Path) -> None:
    clock = TestClock()
    store = opened(small_config(tmp_path, delete_commit_log_files_interval=0, file_reserved_time=72), clock)
    send(store, "T", *old(20))
    await delete_topics(store, "T")
    send(store, "T", "a")
    incarnation = store.incarnation("T")
    for _ in range(40):
        store.put_message(message("Other", body=bytes(8000)))
    clock.now_ms += 90_000 * 3_600_000
    clock.go_to_hour(4)
    assert await store.cleaner.clean()
    assert store.min_physical_offset > incarnation
    again = killed(tmp_path)
    assert again.incarnation("T") == incarnation
    assert (again.min_offset("T", 0), again.max_offset("T", 0)) == (1, 1)
    again.close()
    store.close()


async def test_a_damaged_record_of_a_deletion_deletes_all_the_same(tmp_path: Path) -> None:
    store = opened(small_config(tmp_path))
    send(store, "T", *old())
    await delete_topics(store, "T")
    at = store.incarnation("T")
    send(store, "T", "a", "b")
    store.close()
    log = tmp_path / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    data[at + 89] ^= 0xFF
    log.write_bytes(data)
    shutil.rmtree(tmp_path / "consumequeue")
    (tmp_path / "inventory.json").unlink()
    (tmp_path / "abort").touch()
    again = opened(small_config(tmp_path))
    assert again.report.damages
    assert bodies(again, "T") == [b"a", b"b"]
    assert again.incarnation("T") == at
    again.close()


def as_java_deletes(store: MessageStore, topic: str) -> None:
    """A Java broker deletes the queues of a topic and leaves nothing in its log."""
    for queue in store.queues.of_topic(topic):
        store.queues.remove(queue)
    store.dispatch.forget_topic()
    store.commit_log.tail.forget_topic()


@pytest.mark.parametrize("again_and_again", [1, 3])
def test_a_topic_that_java_deleted_and_made_again_begins_where_its_records_say(
    tmp_path: Path, again_and_again: int
) -> None:
    store = opened(small_config(tmp_path))
    for _ in range(again_and_again):
        send(store, "T", *old())
        send(store, "T", *old(2), queue_id=1)
        as_java_deletes(store, "T")
    send(store, "T", *[f"new {number}" for number in range(30)])
    send(store, "Other", "x")
    store.close()
    before = log_bytes(tmp_path)
    without_witnesses(tmp_path)
    (tmp_path / "abort").touch()
    again = opened(small_config(tmp_path))
    assert bodies(again, "T") == [b"new %d" % number for number in range(30)]
    assert log_bytes(tmp_path) == before
    assert again.put_message(message("T")).queue_offset == 30
    again.close()


def test_the_first_and_only_message_of_a_topic_that_java_made_again_is_not_changed(tmp_path: Path) -> None:
    store = opened(small_config(tmp_path))
    send(store, "T", *old(5))
    as_java_deletes(store, "T")
    result = store.put_message(message("T", 0, b"new"))
    store.close()
    without_witnesses(tmp_path)
    (tmp_path / "abort").touch()
    again = opened(small_config(tmp_path))
    record = again.look_message_by_offset(result.physical_offset)
    assert record is not None
    assert (record.queue_offset, record.body) == (0, b"new")
    again.close()


def test_nobody_but_the_store_writes_deletions(tmp_path: Path) -> None:
    store = opened(small_config(tmp_path))
    send(store, "T", "kept")
    forged = message(DELETED_TOPIC, 0, b'["T"]')
    forged.sys_flag = 0xC
    assert store.put_message(forged).status is PutMessageStatus.MESSAGE_ILLEGAL
    assert store.put_batch(forged).status is PutMessageStatus.MESSAGE_ILLEGAL
    assert bodies(store, "T") == [b"kept"]
    store.close()


async def test_a_slave_and_a_closed_store_delete_nothing(tmp_path: Path) -> None:
    store = opened(small_config(tmp_path, broker_role="SLAVE"))
    assert not store.put_deletion(["T"]).ok
    assert await store.unused_topics([]) == set()
    store.close()


def test_a_record_that_names_no_topics_deletes_none(tmp_path: Path) -> None:
    store = opened(small_config(tmp_path))
    send(store, "T", "kept")
    assert store.put_deletion(["Gone"]).ok
    store.close()
    log = tmp_path / "commitlog" / f"{0:020d}"
    data = log.read_bytes()
    at = data.index(b'["Gone"]')
    start = data.rindex(struct.pack(">I", 0xDAA320A7), 0, at) - 4
    body = b"[123456]"
    changed = data[:at] + body + data[at + 8 :]
    changed = changed[: start + 8] + struct.pack(">i", crc31(body)) + changed[start + 12 :]
    log.write_bytes(changed)
    without_witnesses(tmp_path)
    again = opened(small_config(tmp_path))
    assert bodies(again, "T") == [b"kept"]
    again.close()


def test_a_record_that_looks_like_a_filler_takes_nothing_from_the_queue_it_names(tmp_path: Path) -> None:
    """Only a start writes fillers: what a client sends in their form is refused."""
    store = opened(small_config(tmp_path))
    send(store, "T", "one", "two")
    forged = message("T", 0, b"", **{DAMAGED_PROPERTY: "100"})
    forged.sys_flag = MessageSysFlag.TRANSACTION_ROLLBACK
    assert store.put_message(forged).status is PutMessageStatus.MESSAGE_ILLEGAL
    send(store, "T", "three")
    assert bodies(store, "T") == [b"one", b"two", b"three"]
    again = killed(tmp_path)
    assert bodies(again, "T") == [b"one", b"two", b"three"]


async def test_tools_name_a_list_of_deletions_that_cannot_be_read_and_believe_the_log(tmp_path: Path) -> None:
    store = opened(small_config(tmp_path))
    send(store, "T", *old(5))
    await delete_topics(store, "T")
    store.close()
    assert StoreCheck(files_of(tmp_path)).run().faults == []
    (tmp_path / "deletions.json").write_text("{torn")
    faults = StoreCheck(files_of(tmp_path)).run().faults
    assert [(fault.file, fault.what) for fault in faults] == [("deletions.json", "not readable")]
    with pytest.raises(StoreError, match=r"deletions\.json cannot be read"):
        files_of(tmp_path).deletions()


def test_what_the_own_log_does_not_have_is_taken_from_another_table() -> None:
    disk = SimDisk(SimRng(1), SimClock())
    master, slave = Deletions(disk, PurePath("/m")), Deletions(disk, PurePath("/s"))
    for at, topic in enumerate(("A", "B", "A", "C"), start=1):
        master.put(topic, 100 * at)
    assert slave.adopt(master.to_json()) == 0 and slave.rows() == {}  # it knows all
    slave.begins_at(350)
    slave.put("B", 500)  # of its own log
    slave.save(slave.to_file())
    again = Deletions(disk, PurePath("/s"))
    assert again.load() is None and again.unknown_before == 350
    assert again.adopt(master.to_json()) == 300
    assert list(again.rows().items()) == [("A", 300), ("B", 500)] and again.unknown_before == 0
    for wrong in ({}, {"version": 1}, {"version": 1, "topics": {"T": "1"}}, {"version": 2, "topics": {}}):
        with pytest.raises(ValueError):
            again.adopt(wrong)


def test_the_table_of_as_many_topics_as_it_remembers_is_written_in_no_time(tmp_path: Path) -> None:
    """It is written beside a loop that answers requests, which stands still while one call makes the text of it."""
    table = Deletions(SystemDisk(), PurePath(tmp_path))
    for number in range(100_000):
        table.put(f"a topic of some length, number {number}", number + 1)
    wanted = table.to_file()

    def save() -> None:
        table._saved = None
        table.save(wanted)

    assert _least_s(save) < _least_s(lambda: json.dumps(wanted.value)) / 2, "the text is made as slowly as by json"
    again = Deletions(SystemDisk(), PurePath(tmp_path))
    assert again.load() is None
    assert again.rows() == table.rows()


def _least_s(work: Callable[[], object]) -> float:
    """Processor time, in seconds, of the quickest of five runs."""
    took = []
    for _ in range(5):
        began = time.thread_time()
        work()
        took.append(time.thread_time() - began)
    return min(took)


async def test_files_of_a_deleted_topic_that_the_disk_keeps_stop_nothing_and_go_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker stopped itself, and so did each start after that."""
    delete_tree = SystemDisk.delete_tree

    def refused(disk: SystemDisk, path: Path) -> None:
        if path.parent.name == "deleted":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        delete_tree(disk, path)

    monkeypatch.setattr(SystemDisk, "delete_tree", refused)
    failures: list[str] = []
    for _ in range(2):
        store = opened(small_config(tmp_path, flush_interval_consume_queue=1))
        store.set_service_failed(lambda name, error: failures.append(name))
        store.start()
        assert store.put_message(message("T")).ok
        await delete_topics(store, "T")
        await asyncio.sleep(0.01)
        assert store.flags.writable and list((tmp_path / "deleted").iterdir())
        await store.shutdown()
        assert not (tmp_path / "abort").exists()
    monkeypatch.setattr(SystemDisk, "delete_tree", delete_tree)
    store = opened(small_config(tmp_path))
    store.close()
    assert not failures and not list((tmp_path / "deleted").iterdir())
