"""What a pull takes of the units of its queue, in both forms."""

import struct
from types import ModuleType

import pytest

from tests.unit.both_forms import both


@pytest.fixture(params=both("maxq.store.queue.unit_scan_cy"), ids=["uncompiled", "installed"])
def form(request: pytest.FixtureRequest) -> ModuleType:
    return request.param


def unit(physical: int, size: int, code: int) -> bytes:
    return struct.pack(">qiq", physical, size, code)


def take(form: ModuleType, units: bytes, **options: object):
    args = {
        "first_index": 10,
        "codes": None,
        "max_messages": 32,
        "max_bytes": 1 << 27,
        "max_physical_offset": 10_000,
        "memory_bytes": 1 << 30,
        "limits": (262144, 32, 65536, 8),
        "min_physical_offset": 0,
        "max_units": 800,
    } | options
    return form.collect(memoryview(units), 0, len(units), *args.values())


def test_collect_joins_neighbours_and_filters_by_tag(form: ModuleType) -> None:
    units = unit(0, 100, 5) + unit(100, 50, 5) + unit(200, 10, 6) + unit(210, 10, -3)
    found = take(form, units)
    assert (found.ranges, found.message_count, found.total_bytes, found.next_index) == (
        [(0, 150), (200, 20)],
        4,
        170,
        14,
    )
    found = take(form, units, codes=[-3])
    assert (found.ranges, found.next_index, found.last_physical_offset) == ([(210, 10)], 14, 210)
    found = take(form, units, codes=[77])
    assert (found.message_count, found.next_index) == (0, 14)


def test_collect_keeps_the_limits_but_always_gives_one(form: ModuleType) -> None:
    units = b"".join(unit(i * 100_000, 100_000, 0) for i in range(10))
    assert take(form, units).message_count == 2
    assert take(form, units, max_bytes=1).message_count == 1
    assert take(form, units, max_messages=1).next_index == 11
    assert take(form, units, memory_bytes=-(1 << 40)).message_count == 1
    small = b"".join(unit(i, 1, 0) for i in range(40))
    assert take(form, small).message_count == 32
    assert take(form, small, memory_bytes=-(1 << 40)).message_count == 8
    assert take(form, small, max_units=3).message_count == 3


def test_collect_passes_over_blanks_and_cleaned_records(form: ModuleType) -> None:
    units = unit(0, 0x7FFFFFFF, 0) + unit(50, 10, 0) + unit(100, 10, 0)
    found = take(form, units, min_physical_offset=100)
    assert (found.ranges, found.next_index) == ([(100, 10)], 13)


def test_places_of_damaged_messages_are_told_and_what_retention_freed_is_not(form: ModuleType) -> None:
    lost = form.DAMAGED_TAGS_CODE
    units = unit(50, 10, lost) + unit(50, 10, 0) + unit(100, 10, lost) + unit(100, 10, 0) + unit(0, 0x7FFFFFFF, 0)
    units += bytes(20) + unit(110, 10, 7)
    assert form.lost_units(memoryview(units), 0, len(units), 10, 100) == [12, 14, 15]
    assert form.lost_units(memoryview(units), 60, 100, 13, 100) == [14]
    assert form.lost_units(memoryview(units), 0, 0, 10, 100) == []
    with pytest.raises(ValueError, match="outside"):
        form.lost_units(memoryview(units), 0, len(units) + 1, 10, 100)
