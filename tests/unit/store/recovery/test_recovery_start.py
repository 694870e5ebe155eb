"""Where recovery begins to read the log, and from where it builds queues anew (mission LR-08 to LR-10)."""

import struct
from pathlib import Path
from typing import Any

import pytest

from maxq.protocol.message.message import MessageExt, encode_record
from maxq.store.message_store import MessageStore
from maxq.store.recovery.damage import DamagedPlace
from maxq.store.recovery.log_scanner import place_of
from maxq.store.recovery.recovery_report import RecoveryReport
from tests.unit.store import naive
from tests.unit.store.stores import TestClock, message, opened, small_config

FILE = 65_536
FILES = 7


def filled(root: Path) -> list[int]:
    """A cleanly closed store of FILES log files, a message a second; the store time of the first message of each."""
    clock = TestClock()
    store = opened(small_config(root), clock)
    firsts: list[int] = []
    while len(firsts) < FILES:
        clock.now_ms += 1000
        result = store.put_message(message(body=bytes(5000)))
        if result.physical_offset // FILE == len(firsts):
            firsts.append(clock.now_ms)
    store.close()
    return firsts


def reopened(root: Path, **changes: Any) -> tuple[MessageStore, RecoveryReport]:
    store = opened(small_config(root, **changes))
    return store, store.report


def records_from(root: Path, file: int) -> int:
    """How many records the log has in file number `file` and behind it."""
    return sum(record.physical_offset >= file * FILE for record in naive.java_reads(root)[0])


def crash(root: Path, *times: int) -> None:
    """As if it had been killed: an abort file, and a checkpoint of these times (without a check sum, like Java's)."""
    page = bytearray((root / "checkpoint").read_bytes())
    struct.pack_into(">qqq", page, 0, *times)
    page[48:52] = bytes(4)
    (root / "checkpoint").write_bytes(page)
    (root / "abort").touch()


def test_after_a_clean_exit_the_last_three_files_are_checked(tmp_path: Path) -> None:
    filled(tmp_path)
    store, report = reopened(tmp_path)
    assert report.clean_exit
    assert report.records == records_from(tmp_path, FILES - 3)
    assert (report.cut_reason, report.cut_bytes) == ("", 0), "it ends with zeros, as it should"
    store.close()


@pytest.mark.parametrize("file", [1, 3, FILES - 1])
@pytest.mark.parametrize("smaller", ["physic", "logics"])
def test_after_a_kill_the_newest_file_older_than_the_checkpoint_is_checked_first(
    tmp_path: Path, smaller: str, file: int
) -> None:
    firsts = filled(tmp_path)
    early, late = firsts[file] + 3000, firsts[-1] + 60_000  # 3 s: what may be written before it is flushed
    crash(tmp_path, *((early, late) if smaller == "physic" else (late, early)), 0)
    store, report = reopened(tmp_path)
    assert not report.clean_exit
    assert report.records == records_from(tmp_path, file)
    assert store.max_offset("T", 0) == len(naive.java_reads(tmp_path)[0])
    store.close()


def test_an_index_that_must_be_safe_counts_too(tmp_path: Path) -> None:
    firsts = filled(tmp_path)
    crash(tmp_path, firsts[-1], firsts[-1], firsts[2] + 3000)
    store, report = reopened(tmp_path, message_index_safe=True)
    assert report.records == records_from(tmp_path, 2)
    store.close()


def test_queues_are_built_anew_from_the_checked_part_on_if_they_have_the_rest(tmp_path: Path) -> None:
    firsts = filled(tmp_path)
    crash(tmp_path, firsts[4] + 3000, firsts[4] + 3000, 0)
    store, report = reopened(tmp_path, message_index_enable=False)  # which begins elsewhere
    assert (report.dispatch_from, report.rebuild_reasons) == (4 * FILE, [])
    assert store.max_offset("T", 0) == len(naive.java_reads(tmp_path)[0])
    store.close()


def test_a_queue_that_lacks_a_unit_is_built_anew_from_the_whole_log(tmp_path: Path) -> None:
    firsts = filled(tmp_path)
    file = sorted((tmp_path / "consumequeue" / "T" / "0").iterdir())[-1]
    units = bytearray(file.read_bytes())
    last = max(at for at in range(0, len(units), 20) if any(units[at : at + 20]))
    units[last : last + 20] = bytes(20)
    file.write_bytes(units)
    crash(tmp_path, firsts[4] + 3000, firsts[4] + 3000, 0)
    store, report = reopened(tmp_path)
    assert report.dispatch_from == 0
    assert "queue T-0 has lost units" in report.rebuild_reasons[0]
    assert store.max_offset("T", 0) == len(naive.java_reads(tmp_path)[0])
    store.close()


def test_times_of_a_clock_that_was_set_back_do_not_hide_what_was_never_durable(tmp_path: Path) -> None:
    clock = TestClock()
    config = small_config(tmp_path)
    store = opened(config, clock)
    while store.max_physical_offset < 2 * FILE:
        clock.now_ms += 1000
        store.put_message(message(body=bytes(5000)))
    store.flusher.flush_inline()
    store.queue_flusher.flush_inline()
    durable_ms = clock.now_ms
    clock.now_ms -= 3_600_000
    while store.max_physical_offset < FILES * FILE:
        clock.now_ms += 1000
        store.put_message(message(body=b"\1" * 5000))
    store._life.lock.release()  # killed, and of file 5 the machine lost a page that it had not written
    path = sorted((tmp_path / "commitlog").iterdir())[5]
    with open(path, "r+b") as file:
        file.seek(4096 * 3)
        file.write(bytes(512))
    crash(tmp_path, durable_ms, durable_ms, durable_ms)
    again, report = reopened(tmp_path)
    assert report.checked_from <= 2 * FILE
    assert [damage.file_from_offset for damage in report.damages] == [5 * FILE]
    again.close()


@pytest.mark.parametrize(("clean", "following"), [(True, 8), (False, 5)])
def test_who_is_behind_the_end_goes_on_where_an_unclean_start_found_it(
    tmp_path: Path, clean: bool, following: int
) -> None:
    """What lay there before is lost, and what came since is new to whoever had it."""
    store = opened(small_config(tmp_path))
    for _ in range(5):
        store.put_message(message())
    store.close()
    if not clean:
        (tmp_path / "abort").touch()
    store, _ = reopened(tmp_path)
    for _ in range(3):
        store.put_message(message())
    store.put_message(message(topic="Made since"))
    assert store.get_message("G", "T", 0, 10, 32, None).next_begin_offset == following
    assert store.get_message("G", "Made since", 0, 10, 32, None).next_begin_offset == int(clean)
    store.close()


@pytest.mark.parametrize("verify", [True, False])
def test_a_changed_bit_of_properties_is_damage_where_their_check_sum_is_verified(tmp_path: Path, verify: bool) -> None:
    store = opened(small_config(tmp_path, enabled_append_prop_crc=True))
    places = [store.put_message(message(body=b"%d" % number, KEYS="key")).physical_offset for number in range(5)]
    store.close()
    path = tmp_path / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    at = data.index(b"KEYS\1key", places[2])
    data[at + 5] ^= 1
    path.write_bytes(data)
    store, report = reopened(tmp_path, enabled_append_prop_crc=True, force_verify_prop_crc=verify)
    assert [damage.physical_offset for damage in report.damages] == ([places[2]] if verify else [])
    store.close()


def flip(root: Path, physical_offset: int) -> None:
    path = root / "commitlog" / f"{physical_offset // FILE * FILE:020d}"
    data = bytearray(path.read_bytes())
    data[physical_offset % FILE + 95] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("known_durable", [False, True])
def test_a_killed_slave_leaves_damage_that_may_be_torn_to_its_master_with_all_that_follows(
    tmp_path: Path, known_durable: bool
) -> None:
    filled(tmp_path)
    records = naive.java_reads(tmp_path)[0]
    damaged = [record.physical_offset for record in records[-12:-9]]
    for physical_offset in damaged[::2]:
        flip(tmp_path, physical_offset)
    later_ms = 1_800_000_000_000
    crash(tmp_path, later_ms if known_durable else 0, 0, 0)
    store, report = reopened(tmp_path, broker_role="SLAVE")
    assert not report.clean_exit
    if known_durable:  # what was durable was whole once: this copy has lost it
        assert [damage.physical_offset for damage in report.damages] == damaged[::2]
        assert [damage.record_before for damage in report.damages] == [records[-13].physical_offset, damaged[1]]
        assert (store.max_physical_offset, report.cut_reason) == (records[-1].physical_offset + records[-1].size, "")
    else:
        assert (store.max_physical_offset, report.end_offset, report.damages) == (damaged[0], damaged[0], [])
        assert report.cut_reason.endswith("; the rest comes again from the master")
        assert report.cut_bytes > 10 * 5000
    store.close()


def test_a_topic_with_a_zero_byte_is_no_place() -> None:
    record = MessageExt(topic="a/b", queue_id=3, queue_offset=7, body=b"x")
    place = place_of(memoryview(bytes(encode_record(record))))
    assert place == DamagedPlace("a/b", 3, 7)
    record.topic = "a\0b"
    assert place_of(memoryview(bytes(encode_record(record)))) is None


def test_a_file_with_a_single_record_makes_a_hole_before_it_damage_and_no_end(tmp_path: Path) -> None:
    filled(tmp_path)
    records = naive.java_reads(tmp_path)[0]
    lost, last = records[-2], records[-1]
    assert last.physical_offset % FILE == 0
    path = tmp_path / "commitlog" / f"{last.physical_offset - FILE:020d}"
    data = bytearray(path.read_bytes())
    data[lost.physical_offset % FILE :] = bytes(FILE - lost.physical_offset % FILE)
    path.write_bytes(data)
    crash(tmp_path, 0, 0, 0)
    store, report = reopened(tmp_path)
    (damage,) = report.damages
    assert (damage.physical_offset, damage.end_offset) == (lost.physical_offset, last.physical_offset)
    assert damage.record_before == records[-3].physical_offset
    assert store.max_physical_offset == last.physical_offset + last.size
    store.close()


def test_nothing_is_left_behind_the_end_of_a_log_that_ends_in_a_later_file(tmp_path: Path) -> None:
    filled(tmp_path)
    last = naive.java_reads(tmp_path)[0][-1].physical_offset
    flip(tmp_path, last)
    crash(tmp_path, 0, 0, 0)
    store, report = reopened(tmp_path)
    assert report.end_offset == last and report.cut_bytes > 0
    store.close()
    path = tmp_path / "commitlog" / f"{last:020d}"
    assert not path.exists() or not any(path.read_bytes())


@pytest.mark.parametrize("check", [True, False])
def test_bodies_are_verified_unless_the_operator_does_not_want_that(tmp_path: Path, check: bool) -> None:
    filled(tmp_path)
    place = naive.java_reads(tmp_path)[0][-5].physical_offset
    flip(tmp_path, place)
    crash(tmp_path, 0, 0, 0)
    store, report = reopened(tmp_path, check_crc_on_recover=check)
    assert [damage.physical_offset for damage in report.damages] == ([place] if check else [])
    store.close()
