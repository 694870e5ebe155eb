"""Units of messages that were filled as damaged, when their records are back."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from maxq.protocol.message.message import decode_record, decode_records
from maxq.runtime.files.system import SystemDisk
from maxq.store.message_store import MessageStore
from maxq.store.queue.consume_queue import ConsumeQueue
from maxq.store.queue.unit_scan_cy import DAMAGED_TAGS_CODE
from maxq.store.recovery.restore_places import is_filled
from maxq.store.tools.check import StoreCheck
from maxq.store.tools.store_files import StoreFiles
from tests.unit.store.stores import TestClock, message, opened, small_config

MESSAGES = 30


def filled(root: Path, topic: str, **properties: str) -> MessageStore:
    store = opened(small_config(root))
    for number in range(MESSAGES):
        assert store.put_message(message(topic, 0, b"%03d" % number * 40, **properties)).ok
    return store


def units(store: MessageStore, topic: str) -> list[tuple[int, int, int] | None]:
    queue = store.queue(topic, 0)
    assert queue is not None
    return [queue.unit(number) for number in range(MESSAGES)]


@pytest.mark.parametrize(
    ("topic", "properties"),
    [
        ("T", {}),
        ("T", {"TAGS": "TagA"}),
        ("SCHEDULE_TOPIC_XXXX", {"DELAY": "3"}),
        ("SCHEDULE_TOPIC_XXXX", {"DELAY": "99"}),
    ],
)
@pytest.mark.parametrize("inside", [5, 130])  # the magic code; the body
def test_records_that_are_back_get_the_units_they_had(
    tmp_path: Path, topic: str, properties: dict[str, str], inside: int
) -> None:
    store = filled(tmp_path, topic, **properties)
    before = units(store, topic)
    unit = before[12]
    assert unit is not None
    offset, size, _ = unit
    path = tmp_path / "commitlog" / f"{0:020d}"
    store.close()
    good = path.read_bytes()
    bad = bytearray(good)
    bad[offset + inside] ^= 8
    path.write_bytes(bad)
    (tmp_path / "inventory.json").unlink()
    store = opened(small_config(tmp_path))
    assert is_filled(store.commit_log, offset, size) and not is_filled(store.commit_log, 0, size)
    placeholder = units(store, topic)[12]
    assert placeholder is not None and placeholder[2] == DAMAGED_TAGS_CODE
    file = store.commit_log.files.files[0]
    file.view[offset : offset + size] = good[offset : offset + size]
    assert not is_filled(store.commit_log, offset, size)
    assert store.restore_places(offset, size) == 1
    assert units(store, topic) == before
    assert store.restore_places(offset, size) == 0
    store.close()


def test_records_that_are_back_before_they_are_dispatched_take_no_place_from_those_before_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slave whose dispatch is late has what its master's starts had sealed, and what the master has put back."""
    master = filled(tmp_path / "m", "T")
    log, before = bytes(master.log_bytes(0, 1 << 20) or b""), units(master, "T")
    unit = before[20]
    assert unit is not None
    slave = opened(small_config(tmp_path / "s", broker_role="SLAVE"))
    with monkeypatch.context() as late:
        late.setattr(slave.dispatch, "run", lambda end, in_turns=False: None)
        slave.append_from_master(0, memoryview(log))
    slave.restore_places(unit[0], unit[1])
    slave.dispatch.run(slave.max_physical_offset)
    assert units(slave, "T") == before
    slave.close()
    master.close()


def test_places_of_records_that_are_back_are_given_to_nobody_while_the_disk_has_no_room_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(small_config(tmp_path))
    for number in range(5):
        for topic in ("A", "B"):
            assert store.put_message(message(topic, 0, b"%s %d" % (topic.encode(), number))).ok
    start = store.queue("A", 0).unit(4)[0]  # type: ignore[union-attr,index]
    end = store.max_physical_offset
    assert store.put_message(message("Other")).ok
    store.close()
    path = tmp_path / "commitlog" / f"{0:020d}"
    good = path.read_bytes()
    path.write_bytes(good[:start] + b"\xee" * (end - start) + good[end:])
    shutil.rmtree(tmp_path / "consumequeue")
    (tmp_path / "inventory.json").unlink()
    store = opened(small_config(tmp_path))
    assert [store.max_offset(topic, 0) for topic in ("A", "B")] == [4, 4], "what was lost has lost its places"
    store.commit_log.files.files[0].view[start:end] = good[start:end]
    with monkeypatch.context() as full:

        def refused(queue: ConsumeQueue, queue_offset: int, physical_offset: int, size: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        full.setattr(ConsumeQueue, "roll", refused)
        with pytest.raises(OSError, match="No space left"):
            store.restore_places(start, end - start)
    assert store.put_message(message("B", 0, b"B 5")).queue_offset == 5
    store.restore_places(start, end - start)
    for rebuilt in (False, True):
        if rebuilt:
            store.close()
            shutil.rmtree(tmp_path / "consumequeue")
            store = opened(small_config(tmp_path))
        shown = store.get_message("g", "B", 0, 0, 32, None)
        bodies = [one.body for one in decode_records(b"".join(shown.buffers))]
        assert bodies == [b"B %d" % number for number in range(6)]
        assert store.get_message("g", "A", 0, 4, 32, None).message_count == 1
    store.close()


@pytest.mark.parametrize("lost", [range(1536, 2048), range(2048, 4096)])  # sectors that were not written
def test_a_range_in_which_a_loss_of_power_left_a_part_of_the_records_is_asked_for_again(
    tmp_path: Path, lost: range
) -> None:
    store = filled(tmp_path, "T", TAGS="Tag")
    before = units(store, "T")
    first, behind = before[5], before[20]
    assert first is not None and behind is not None
    start, end = first[0], behind[0]
    store.close()
    path = tmp_path / "commitlog" / f"{0:020d}"
    good = path.read_bytes()
    path.write_bytes(good[:start] + b"\xee" * (end - start) + good[end:])
    (tmp_path / "inventory.json").unlink()
    store = opened(small_config(tmp_path))
    file = store.commit_log.files.files[0]
    filler = bytes(file.view[start:end])
    file.view[start:end] = good[start:end]
    file.view[lost.start : lost.stop] = filler[lost.start - start : lost.stop - start]
    assert store.filled_ranges.still_filled() == [(start, end)]
    file.view[start:end] = good[start:end]
    assert store.filled_ranges.still_filled() == []
    store.restore_places(start, end - start)
    assert units(store, "T") == before
    store.close()


def test_a_seal_up_to_the_end_of_a_file_is_known_as_one(tmp_path: Path) -> None:
    store = opened(small_config(tmp_path))
    while store.max_physical_offset <= 65_536:
        store.put_message(message("T", 0, b"y" * 900))
    store.close()
    path = tmp_path / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[60_000:] = b"\xee" * (len(data) - 60_000)
    path.write_bytes(data)
    store = opened(small_config(tmp_path))
    (damage,) = store.report.damages
    assert damage.end_offset == 65_536
    assert is_filled(store.commit_log, damage.physical_offset, damage.size)
    store.close()


def found(store: MessageStore, key: str, begin: int = 0) -> list[int]:
    result = store.query_message("T", key, 32, begin, 1 << 62)
    return sorted(decode_record(record).queue_offset for record in result.buffers)


@pytest.mark.parametrize("entries", [200, 28])  # one file; the restored keys go into a second
def test_records_that_are_back_are_found_by_their_keys_again(tmp_path: Path, entries: int) -> None:
    clock = TestClock()
    config = small_config(tmp_path, max_index_num=entries)
    store = opened(config, clock)
    for number in range(MESSAGES):
        clock.now_ms += 1000
        assert store.put_message(message("T", 0, b"%03d" % number * 40, KEYS=f"own-{number} all")).ok
    unit, behind = store.queue("T", 0).unit(12), store.queue("T", 0).unit(14)
    assert unit is not None and behind is not None
    start, size = unit[0], behind[0] - unit[0]
    store.close()
    path = tmp_path / "commitlog" / f"{0:020d}"
    good = path.read_bytes()
    bad = bytearray(good)
    bad[start : start + size] = b"\xee" * size
    path.write_bytes(bad)
    shutil.rmtree(tmp_path / "index")
    (tmp_path / "inventory.json").unlink()
    store = opened(config, clock)
    assert found(store, "own-12") == [] and len(found(store, "all")) == MESSAGES - 2
    store.commit_log.files.files[0].view[start : start + size] = good[start : start + size]
    end = store.index.files[-1].end_physical_offset
    for _ in range(2):  # a second time nothing is added
        store.restore_places(start, size)
        assert [found(store, f"own-{number}") for number in (11, 12, 13, 14)] == [[11], [12], [13], [14]]
        assert found(store, "all") == list(range(MESSAGES))
    # the restored ones are found with a late begin, too: better than that they hide others
    assert found(store, "all", clock.now_ms - 5500) == [12, 13, *range(24, MESSAGES)]
    assert store.index.files[-1].end_physical_offset == end  # nothing is indexed twice after a crash
    store.close()
    files = StoreFiles(SystemDisk(), tmp_path, hash_slots=100, index_entries=entries)
    check = StoreCheck(files).run()
    assert check.faults == [] and not any("not in it" in line for line in check.lines())
    store = opened(config, clock)
    assert store.put_message(message("T", 0, b"more", KEYS="all")).ok
    assert found(store, "all") == list(range(MESSAGES + 1))
    store.close()
