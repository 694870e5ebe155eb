"""What a loss of power leaves of topic and properties, which have no check sum."""

from pathlib import Path

import pytest

from maxq.store.recovery.recovery_report import RecoveryReport
from tests.unit.store.stores import message, opened, small_config

SECTOR = 512


def written(root: Path, body: bytes = b"b" * 100, **properties: str) -> list[int]:
    """A store of 40 messages; where they begin, and its end."""
    store = opened(small_config(root))
    results = [store.put_message(message("T", 0, body, **properties)) for _ in range(40)]
    store.close()
    return [result.physical_offset for result in results] + [results[-1].end_offset]


def spoiled(root: Path, start: int, end: int, *, clean: bool = False) -> RecoveryReport:
    """What a start says after these bytes of the log were lost."""
    path = root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[start:end] = bytes(end - start)
    path.write_bytes(data)
    if not clean:
        (root / "abort").touch()
    store = opened(small_config(root))
    store.close()
    return store.report


def crossing(ends: list[int], least: int) -> int:
    """Number of a record that ends `least` bytes or more behind a sector's beginning, but not a hundred."""
    return next(n for n in range(5, 40) if least <= ends[n + 1] % SECTOR < 100)


def test_properties_whose_sector_is_missing_are_damage_with_a_known_place(tmp_path: Path) -> None:
    ends = written(tmp_path, KEYS="k" * 150)
    number = crossing(ends, 1)
    end = ends[number + 1]
    following = end - end % SECTOR + SECTOR
    report = spoiled(tmp_path, end - end % SECTOR, following)
    assert report.damages[0].physical_offset == ends[number]
    assert report.damages[0].end_offset == end
    assert "a sector of its topic or properties was never written" in str(report.damages[0])
    assert report.damages[0].place is not None and report.damages[0].place.queue_offset == number


def test_a_log_that_ends_in_such_a_record_ends_before_it(tmp_path: Path) -> None:
    ends = written(tmp_path, KEYS="k" * 150)
    number = crossing(ends, 1)
    end = ends[number + 1]
    report = spoiled(tmp_path, end - end % SECTOR, 65_536)
    assert report.damages == []
    assert report.end_offset == ends[number]
    assert "a sector of its topic" in report.cut_reason


def test_zeros_that_are_less_than_a_sector_may_have_been_sent(tmp_path: Path) -> None:
    ends = written(tmp_path, KEYS="k" * 150)
    end = ends[crossing(ends, 8) + 1]
    report = spoiled(tmp_path, end - end % SECTOR, end - 1)
    assert report.damages == [] and report.end_offset == ends[-1]


@pytest.mark.parametrize("size", [100, 3000])
def test_a_body_of_zeros_is_a_body(tmp_path: Path, size: int) -> None:
    ends = written(tmp_path, body=bytes(size))
    report = spoiled(tmp_path, 0, 0)
    assert report.damages == [] and report.end_offset == ends[-1]


def test_a_clean_exit_leaves_no_sector_unwritten(tmp_path: Path) -> None:
    ends = written(tmp_path, KEYS="k" * 150)
    assert spoiled(tmp_path, 0, 0, clean=True).end_offset == ends[-1]


@pytest.mark.parametrize("behind", [1, 2])
def test_a_last_record_without_properties_may_end_with_zeros_in_a_new_sector(tmp_path: Path, behind: int) -> None:
    store = opened(small_config(tmp_path))
    record = store.put_message(message("T", 0, b"b" * (SECTOR + behind - 92)))
    store.close()
    assert record.end_offset == SECTOR + behind
    (tmp_path / "abort").touch()
    store = opened(small_config(tmp_path))
    store.close()
    assert (store.report.damages, store.report.end_offset) == ([], record.end_offset)


def test_a_last_record_of_whose_topic_one_byte_was_in_a_lost_sector_is_cut(tmp_path: Path) -> None:
    store = opened(small_config(tmp_path))
    first = store.put_message(message("T", 0, b"b" * (SECTOR + 3 - 92)))
    store.close()
    assert first.end_offset == SECTOR + 3, "one byte of the topic, and the size of no properties"
    report = spoiled(tmp_path, SECTOR, SECTOR + 3)
    assert (report.damages, report.end_offset) == ([], 0)
