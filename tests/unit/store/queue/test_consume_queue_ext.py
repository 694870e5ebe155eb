"""Extension units: addresses, rolling, where writing goes on after a start, what can not be read."""

from pathlib import PurePath

import pytest

from maxq.store.queue.consume_queue_ext import ConsumeQueueExt, CqExtUnit, is_ext_address, offset_of
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import SimDisk
from maxq.testing.sim_rng import SimRng

BASE = PurePath("/store/consumequeue_ext")
SIZE = 1024
UNIT = CqExtUnit(-7, 1_700_000_000_000, bytes(range(14)))


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(SimRng(1), SimClock())


def ext_on(disk: SimDisk) -> ConsumeQueueExt:
    return ConsumeQueueExt(disk, BASE, "T", 0, SIZE)


def put_all(ext: ConsumeQueueExt, count: int) -> list[int]:
    addresses = [ext.put(UNIT._replace(store_time=number)) for number in range(count)]
    assert None not in addresses
    return [address for address in addresses if address is not None]


def test_a_unit_is_read_where_its_address_says(disk: SimDisk) -> None:
    ext = ext_on(disk)
    ext.place(None, unknown=0)
    addresses = put_all(ext, 100)
    assert addresses[0] == -(2**63)
    assert all(is_ext_address(address) for address in addresses)
    assert [ext.get(address) for address in addresses] == [UNIT._replace(store_time=number) for number in range(100)]
    per_file = (SIZE - 4) // UNIT.size
    assert offset_of(addresses[per_file]) == SIZE  # the next one would leave less than 4 bytes
    file = ext.file_of(addresses[0])
    assert file is not None and bytes(file.view[per_file * UNIT.size :][:2]) == b"\xff\xff"


def test_tags_codes_are_no_addresses() -> None:
    assert not any(map(is_ext_address, (0, 1, -1, 2**31 - 1, -(2**31), 1_700_000_000_000)))


def test_after_a_clean_end_writing_goes_on_behind_the_last_unit(disk: SimDisk) -> None:
    first = ext_on(disk)
    first.place(None, unknown=0)
    last = put_all(first, 3)[-1]
    again = ext_on(disk)
    again.place(last, unknown=9)
    assert put_all(again, 1) == [last + UNIT.size]


@pytest.mark.parametrize("known", [0, None])
def test_what_an_earlier_life_left_behind_the_end_is_never_written_over(disk: SimDisk, known: int | None) -> None:
    first = ext_on(disk)
    first.place(None, unknown=0)
    addresses = put_all(first, 3)
    again = ext_on(disk)
    again.place(None if known is None else addresses[known], unknown=9)  # the queue has lost its last units
    assert put_all(again, 1) == [SIZE - 2**63]


def test_a_queue_that_begins_anew_begins_its_extension_anew(disk: SimDisk) -> None:
    first = ext_on(disk)
    first.place(None, unknown=0)
    put_all(first, 60)
    again = ext_on(disk)
    again.place(None, unknown=0)
    assert put_all(again, 1) == [-(2**63)]
    assert again.get(-(2**63) + UNIT.size) is None


def test_nothing_is_read_at_an_address_of_nothing(disk: SimDisk) -> None:
    ext = ext_on(disk)
    ext.place(None, unknown=0)
    address = put_all(ext, 1)[0]
    for wrong in (address + 1, address + UNIT.size, address + SIZE - 1, address + SIZE, -(2**31) - 1, 5):
        assert ext.get(wrong) is None


def test_a_unit_that_is_too_large_is_not_written(disk: SimDisk) -> None:
    ext = ext_on(disk)
    ext.place(None, unknown=0)
    assert ext.put(CqExtUnit(1, 2, bytes(SIZE))) is None


def test_files_of_expired_units_are_taken_off(disk: SimDisk) -> None:
    ext = ext_on(disk)
    ext.place(None, unknown=0)
    addresses = put_all(ext, 100)
    gone = ext.take_expired(next(address for address in addresses if offset_of(address) >= 2 * SIZE))
    assert [file.file_from_offset for file in gone] == [0, SIZE]
    assert ext.get(addresses[0]) is None
    assert ext.get(addresses[-1]) == UNIT._replace(store_time=99)


def test_what_was_written_is_named_for_the_flush(disk: SimDisk) -> None:
    ext = ext_on(disk)
    assert ext.unflushed(0) == []
    ext.place(None, unknown=0)
    put_all(ext, 2)
    ((file, start, end),) = ext.unflushed(0)
    assert (start, end) == (0, 2 * UNIT.size)
    assert ext.unflushed(4096) == []
    file.flushed_position = end
    assert ext.unflushed(0) == []
