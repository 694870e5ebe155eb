"""Lost bytes of the log may have held the record that deletes a topic: what is whole stays as it is."""

import struct
from pathlib import Path

import pytest

from maxq.runtime.files.system import SystemDisk
from maxq.store.message_store import MessageStore
from maxq.store.tools.check import StoreCheck
from maxq.store.tools.store_files import StoreFiles
from tests.unit.store import naive
from tests.unit.store.recovery.recovery_world import close, everything_but_the_log, got, overwrite, reopened
from tests.unit.store.stores import delete_topics, message, opened, small_config


def files_of(root: Path) -> StoreFiles:
    return StoreFiles(SystemDisk(), root, hash_slots=100, index_entries=200)


def fields_of(root: Path) -> list[tuple[int, str, int, int]]:
    return [(r.physical_offset, r.topic, r.queue_id, r.queue_offset) for r in naive.java_reads(root)[0]]


def send(store: MessageStore, count: int, topic: str = "T") -> list[int]:
    return [store.put_message(message(topic, KEYS="k")).physical_offset for _ in range(count)]


def lose(root: Path, *offsets: int) -> None:
    """Take these records out of the log, and all that other files know of them."""
    for offset in offsets:
        overwrite(root, offset, bytes(91))
    everything_but_the_log(root)
    (root / "deletions.json").unlink(missing_ok=True)


async def test_no_record_is_rewritten_when_the_one_that_deletes_its_topic_is_lost(tmp_path: Path) -> None:
    store = opened(small_config(tmp_path))
    old = send(store, 4)
    deletion = store.commit_log.max_offset
    await delete_topics(store, "T")
    new = send(store, 6)
    close(store, clean=False)
    before = [row for row in fields_of(tmp_path) if row[0] in (old[3], *new[2:])]
    lose(tmp_path, old[2], deletion, *new[:2])
    for _ in range(2):
        store, report = reopened(tmp_path)
        assert [fault for fault in report.faults if "was set to" in fault] == []
        assert got(store, "T", 0) == new[2:]
        assert store.max_offset("T", 0) == 6
        store.close()
        assert [row for row in fields_of(tmp_path) if row[0] in (old[3], *new[2:])] == before
        assert StoreCheck(files_of(tmp_path)).run().faults == []
        everything_but_the_log(tmp_path)


async def test_a_single_message_behind_a_lost_deletion_is_shown_behind_the_old_ones_as_it_is(tmp_path: Path) -> None:
    store = opened(small_config(tmp_path))
    old = send(store, 4)
    deletion = store.commit_log.max_offset
    await delete_topics(store, "T")
    new = send(store, 2)
    close(store, clean=False)
    lose(tmp_path, deletion, new[0])
    store, report = reopened(tmp_path)
    assert any(fault.endswith("its place is 4, the record stays as it is") for fault in report.faults)
    assert got(store, "T", 0) == [*old, new[1]]
    new += send(store, 2)
    store.close()
    for _ in range(2):
        assert [row[3] for row in fields_of(tmp_path) if row[1] == "T"] == [0, 1, 2, 3, 1, 5, 6]
        assert StoreCheck(files_of(tmp_path)).run().faults == []
        everything_but_the_log(tmp_path)
        store, _ = reopened(tmp_path)
        assert got(store, "T", 0) == [*old, *new[1:]]
        store.close()


async def test_the_last_record_of_a_queue_before_lost_bytes_is_not_judged_by_what_comes_behind_its_deletion(
    tmp_path: Path,
) -> None:
    store = opened(small_config(tmp_path))
    old = send(store, 4)
    await delete_topics(store, "T")
    new = send(store, 2)
    close(store, clean=False)
    before = [row for row in fields_of(tmp_path) if row[0] in (old[3], new[1])]
    lose(tmp_path, old[2], new[0])
    store, report = reopened(tmp_path)
    assert [fault for fault in report.faults if "was set to" in fault] == []
    assert got(store, "T", 0) == new[1:]
    store.close()
    assert [row for row in fields_of(tmp_path) if row[0] in (old[3], new[1])] == before


async def test_the_first_record_of_a_log_is_not_numbered_by_a_topic_that_was_made_again_behind_lost_bytes(
    tmp_path: Path,
) -> None:
    store = opened(small_config(tmp_path))
    send(store, 9)
    while len(store.commit_log.files.files) < 2:
        store.put_message(message("Big", body=bytes(8000)))
    (last,) = send(store, 1)
    deletion = store.commit_log.max_offset
    await delete_topics(store, "T")
    new = send(store, 4)
    with store.commit_log.without_first() as first:
        first.destroy()
    close(store, clean=False)
    lose(tmp_path, deletion, *new[:3])
    store, report = reopened(tmp_path)
    assert [fault for fault in report.faults if "was set to" in fault] == []
    assert got(store, "T", 0) == [last, new[3]]
    store.close()
    assert [row[3] for row in fields_of(tmp_path) if row[1] == "T"] == [9, 3]


async def test_a_queue_begins_anew_also_if_more_is_lost_between_the_first_messages_left(
    tmp_path: Path,
) -> None:
    store = opened(small_config(tmp_path))
    send(store, 6)
    deletion = store.commit_log.max_offset
    await delete_topics(store, "T")
    new = send(store, 5)
    close(store, clean=False)
    lose(tmp_path, deletion, new[0], new[2])
    store, report = reopened(tmp_path)
    assert [fault for fault in report.faults if "was set to" in fault] == []
    assert got(store, "T", 0) == [new[1], *new[3:]]
    assert store.max_offset("T", 0) == 5
    store.close()
    assert StoreCheck(files_of(tmp_path)).run().faults == []


@pytest.mark.parametrize("wrong", [9, 90_000])
def test_a_wrong_field_is_set_right_though_bytes_before_it_are_lost(tmp_path: Path, wrong: int) -> None:
    store = opened(small_config(tmp_path))
    offsets = send(store, 8)
    close(store, clean=False)
    before = fields_of(tmp_path)
    overwrite(tmp_path, offsets[4] + 20, struct.pack(">q", wrong))
    lose(tmp_path, offsets[2])
    store, report = reopened(tmp_path)
    assert any("says it is message 3" in fault for fault in report.faults)
    assert any(fault.endswith("the field is damaged and was set to 4") for fault in report.faults)
    assert got(store, "T", 0) == [*offsets[:2], *offsets[3:]]
    store.close()
    after = [row for row in fields_of(tmp_path) if row[1] == "T"]
    assert after == [row for row in before if row[0] != offsets[2]]
