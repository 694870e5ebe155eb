"""Damage in the log: nothing good behind it is lost, no offset moves, a Java broker reads on over it."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from maxq.store.queue.unit_scan_cy import DAMAGED_TAGS_CODE
from tests.short_form import long_form
from tests.unit.store import naive
from tests.unit.store.recovery.recovery_world import (
    assert_whole,
    close,
    delete_queues,
    everything_but_the_log,
    fill,
    got,
    overwrite,
    reopened,
)
from tests.unit.store.stores import message, opened, small_config


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


@pytest.mark.parametrize("place", ["in the middle", "at the beginning"])
def test_damage_in_a_file_that_recovery_does_not_scan_is_found_by_a_rebuild(tmp_path: Path, place: str) -> None:
    fill(tmp_path, 600)
    records, end = naive.java_reads(tmp_path)
    victim = records[5]
    if place == "at the beginning":
        victim = next(record for record in records[1:] if record.physical_offset % 65_536 == 0)
    flip_magic(tmp_path, victim.physical_offset)
    delete_queues(tmp_path)
    store, report = reopened(tmp_path)
    assert report.end_offset == end
    assert [damage.physical_offset for damage in report.damages] == [victim.physical_offset]
    assert sum(len(got(store, topic, q)) for topic in ("T0", "T1") for q in range(3)) == len(records) - 1
    store.close()


def fields_of(root: Path) -> list[tuple[int, str, int, int]]:
    return [(r.physical_offset, r.topic, r.queue_id, r.queue_offset) for r in naive.java_reads(root)[0]]


#: A value, the number of the record, and whether the start has the log alone, not the inventory.
WRONG = [
    (wrong, which, everything)
    for everything in (False, True)
    for which in (3, -30, -1)
    for wrong in (0, 1, 4, 40, 90_000, 2**40, 2**60, -1, -(2**62))
]


@pytest.mark.parametrize(("wrong", "which", "everything"), [*WRONG[::5], *long_form(WRONG, WRONG[::5])])
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
    assert named
    if wrong == 0:  # it may be the first message of a topic that a Java broker deleted and made again: not touched
        assert got(store, victim[1], victim[2]) == [
            at for at, topic, queue_id, _ in before if (topic, queue_id) == victim[1:3]
        ]
        store.close()
        assert [row[:3] for row in fields_of(tmp_path)] == [row[:3] for row in before]
        assert fields_of(tmp_path)[which][3] == 0
        return
    store.close()
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


def test_places_that_nothing_but_the_next_message_tells_of_are_named_and_counted(tmp_path: Path) -> None:
    fill(tmp_path, 60)
    records = [record for record in naive.java_reads(tmp_path)[0] if (record.topic, record.queue_id) == ("T0", 0)]
    for victim in records[3:5]:
        wipe_record(tmp_path, victim.physical_offset)
    everything_but_the_log(tmp_path)
    store, report = reopened(tmp_path)
    (named,) = [fault for fault in report.faults if f"(physical offset {records[5].physical_offset})" in fault]
    assert named.endswith("says it is message 5 of T0-0, which ends at 3: the 2 places between are kept as damaged")
    assert got(store, "T0", 0) == [record.physical_offset for record in records if record not in records[3:5]]
    store.close()


def test_the_place_of_a_queues_first_message_is_kept_when_that_is_lost(tmp_path: Path) -> None:
    fill(tmp_path, 60)
    records = [record for record in naive.java_reads(tmp_path)[0] if (record.topic, record.queue_id) == ("T1", 1)]
    wipe_record(tmp_path, records[0].physical_offset)
    everything_but_the_log(tmp_path)
    store, report = reopened(tmp_path)
    (named,) = [fault for fault in report.faults if f"(physical offset {records[1].physical_offset})" in fault]
    assert named.endswith("says it is message 1 of T1-1, which ends at 0: the 1 places between are kept as damaged")
    assert got(store, "T1", 1) == [record.physical_offset for record in records[1:]]
    assert store.max_offset("T1", 1) == len(records)
    store.close()


def test_a_queue_whose_first_messages_were_deleted_begins_where_it_says_though_others_were_lost(tmp_path: Path) -> None:
    store = opened(small_config(tmp_path))
    for _ in range(5):
        store.put_message(message("Old", KEYS="k"))
    while len(store.commit_log.files.files) < 3:
        lost = store.put_message(message("New", body=bytes(8000))).physical_offset
    assert store.put_message(message("Old")).queue_offset == 5
    with store.commit_log.without_first() as first:
        first.destroy()
    store.close()
    wipe_record(tmp_path, lost)
    everything_but_the_log(tmp_path)
    store, report = reopened(tmp_path)
    assert [damage.physical_offset for damage in report.damages] == [lost]
    assert (store.min_offset("Old", 0), store.max_offset("Old", 0)) == (5, 6)
    assert [fault for fault in report.faults if "Old" in fault] == []
    store.close()
