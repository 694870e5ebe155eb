"""Recovery: nothing in the log may stay invisible, nothing good behind damage is lost, stale bytes stay dead."""

import json
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from maxq.protocol.message.message import Message, encode_batch
from maxq.protocol.message.message_sys_flag import MessageSysFlag
from maxq.store.message_store import MessageStore
from tests.unit.store import naive
from tests.unit.store.recovery.recovery_world import (
    Damage,
    assert_whole,
    close,
    delete_checkpoint,
    delete_index,
    delete_inventory,
    delete_queues,
    everything_but_the_log,
    fill,
    last_file,
    overwrite,
    reopened,
)
from tests.unit.store.stores import message, opened, small_config


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


def delete_last_index_file(root: Path) -> None:
    naive.files(root / "index")[-1].unlink()


def rubbish_in_index(root: Path) -> None:
    path = naive.files(root / "index")[0]
    path.write_bytes(b"\xff" * 40 + path.read_bytes()[40:])


def torn_header_in_index(root: Path) -> None:
    """Its first entries were written; its times, as they were before, are 0 and look safe."""
    path = naive.files(root / "index")[0]
    path.write_bytes(bytes(32) + path.read_bytes()[32:])


def shorten_index_file(root: Path) -> None:
    path = naive.files(root / "index")[-1]
    path.write_bytes(path.read_bytes()[:77])


def rubbish_in_checkpoint(root: Path) -> None:
    (root / "checkpoint").write_bytes(b"\xee" * 4096)


def checkpoint_of_the_future(root: Path) -> None:
    (root / "checkpoint").write_bytes(struct.pack(">qqq", 1 << 60, 1 << 60, 1 << 60) + bytes(4096 - 24))


def shorten_checkpoint(root: Path) -> None:
    (root / "checkpoint").write_bytes(b"123")


def rubbish_in_inventory(root: Path) -> None:
    (root / "inventory.json").write_bytes(b'{"version":1,"queues":[')


def empty_inventory(root: Path) -> None:
    (root / "inventory.json").write_bytes(b"")


def queues_and_index_but_checkpoint_kept(root: Path) -> None:
    delete_queues(root)
    delete_index(root)
    delete_inventory(root)


DAMAGES: list[Damage] = [
    delete_queues, delete_one_queue, delete_one_topic, delete_first_queue_file, delete_last_queue_file,
    shorten_queue_file, empty_queue_file, zero_queue_file, rubbish_in_queue, queue_longer_than_log, delete_index,
    delete_last_index_file, rubbish_in_index, torn_header_in_index, shorten_index_file, delete_checkpoint,
    rubbish_in_checkpoint, checkpoint_of_the_future, shorten_checkpoint, delete_inventory, rubbish_in_inventory,
    empty_inventory, everything_but_the_log, queues_and_index_but_checkpoint_kept,
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


# --- what lies beside the log ---


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Path]:
    fill(tmp_path)
    yield tmp_path


def test_the_abort_file_is_there_while_open_and_gone_after_a_clean_exit(filled: Path) -> None:
    store, _ = reopened(filled)
    assert (filled / "abort").exists()
    store.close()
    assert not (filled / "abort").exists()


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
            with store.commit_log.without_first() as first:
                first.destroy()
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


def test_inner_batches_that_came_after_the_last_inventory_are_there_once_after_a_kill(tmp_path: Path) -> None:
    def put(store: MessageStore) -> int:
        inner = message("B", body=encode_batch([Message("B", b"1"), Message("B", b"2")]), INNER_NUM="2")
        inner.sys_flag = MessageSysFlag.INNER_BATCH | MessageSysFlag.NEED_UNWRAP
        return store.put_message(inner).queue_offset

    store = opened(small_config(tmp_path))
    store.queues.topic_write_state("B").has_batch_queues = True
    assert [put(store), put(store)] == [0, 2]
    store.queue_flusher.flush_inline()
    assert [put(store), put(store)] == [4, 6]
    close(store, clean=False)
    store, report = reopened(tmp_path)
    assert not report.clean_exit
    assert store.max_offset("B", 0) == 8
    found = store.get_message("g", "B", 0, 0, 32, None)
    assert (found.message_count, len(found.buffers), found.next_begin_offset) == (8, 4, 8)
    assert put(store) == 8
    store.close()
