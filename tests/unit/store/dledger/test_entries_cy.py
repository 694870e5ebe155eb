"""Entries of DLedger, scanned and written by the compiled modules, in both forms, against the naive ones."""

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.short_form import times
from tests.unit.both_forms import both, both_together
from tests.unit.store.dledger.naive_dledger import NaiveEntry, NaiveLog

FORMS = both("maxq.store.dledger.entries_cy")
LOG_FORMS = both_together("maxq.store.log.tails_cy", "maxq.store.log.log_cy", "maxq.store.dispatch.dispatch_cy")
FILE_SIZE = 1024


@pytest.fixture(params=FORMS, ids=["uncompiled", "installed"])
def form(request: pytest.FixtureRequest) -> ModuleType:
    module: ModuleType = request.param
    return module


def file_of(sizes: list[int]) -> tuple[NaiveLog, memoryview]:
    """Entries of these body sizes, and the first file that they make."""
    log = NaiveLog(FILE_SIZE)
    for number, size in enumerate(sizes):
        log.append(number // 3, bytes(1 + (number + at) % 255 for at in range(size)))
    files = log.data_files()
    return log, memoryview(bytearray(files[f"{0:020d}"] if files else bytes(FILE_SIZE)))


@settings(max_examples=times(50), deadline=None)
@given(st.lists(st.integers(0, 300), max_size=20))
def test_a_scan_finds_what_was_written_and_why_it_ends(sizes: list[int]) -> None:
    log, view = file_of(sizes)
    here = [entry for entry in log.entries if entry.position < FILE_SIZE]
    for form in FORMS:
        end, index, term, stop = form.scan_entries(view, 0, FILE_SIZE, 0, -1, 0, True)
        assert end == (here[-1].end if here else 0)
        assert (index, term) == ((here[-1].index, here[-1].term) if here else (-1, 0))
        assert stop == (form.STOP_FILLER if len(here) < len(log.entries) else form.STOP_ZERO)
        units = memoryview(bytearray(32 * len(here) + 31))
        assert form.put_units(view, 0, end, units, 0) == (end, len(here), len(here))
        assert bytes(units[: 32 * len(here)]) == b"".join(entry.unit() for entry in here)
        assert form.put_units(view, 0, end, units, 0) == (end, len(here), 0)


@settings(max_examples=times(50), deadline=None)
@given(st.lists(st.integers(1, 90), min_size=3, max_size=8), st.integers(0, 7), st.data())
def test_no_changed_bit_of_an_entry_passes(sizes: list[int], bit: int, data: Any) -> None:
    log, view = file_of(sizes)
    entry = log.entries[1]
    position = data.draw(st.integers(entry.position, entry.end - 1))
    view[position] ^= 1 << bit
    for form in FORMS:
        assert form.scan_entries(view, 0, FILE_SIZE, 0, -1, 0, True)[:2] == (entry.position, 0)
        at, index = form.find_entry(view, entry.position, FILE_SIZE, 0, 0)
        assert (at, index) == (log.entries[2].position, 2)


def test_java_entries_have_no_crc_but_a_record_in_one_has_its_own(form: ModuleType) -> None:
    plain = NaiveEntry(0, 1, 0, b"anything", has_crc=False).encode()
    assert form.scan_entries(plain, 0, len(plain), 0, -1, 0, True)[0] == len(plain)
    tail = LOG_FORMS[1].LogTail()
    log = memoryview(bytearray(FILE_SIZE))
    tail.head, tail.next_index = 48, 0
    tail.attach(log, 0, FILE_SIZE, 0)
    tail.append_record(b"T", 0, 0, 0, 0, 1, bytes(8), 2, bytes(8), 0, 0, b"body", b"", 0x2C7F3A9C, False)
    log[36:44] = bytes(8)
    end = tail.wrote_position
    assert form.scan_entries(log, 0, end, 0, -1, 0, True)[3] == form.STOP_BAD_CRC
    assert form.scan_entries(log, 0, end, 0, -1, 0, False)[0] == end


@pytest.mark.parametrize("log_form", LOG_FORMS, ids=["uncompiled", "installed"])
def test_records_are_made_in_entries_and_dispatched_out_of_them(log_form: ModuleType) -> None:
    naive, tail, log = NaiveLog(FILE_SIZE), log_form.LogTail(), memoryview(bytearray(FILE_SIZE))
    tail.head, tail.next_index, tail.term = 48, 0, 4
    tail.attach(log, 0, FILE_SIZE, 0)
    tail.append_entry(b"no record")
    naive.append(4, b"no record")
    for number in range(4):
        size = tail.append_record(
            b"T", 0, 0, number, 0, 1, bytes(8), 2, bytes(8), 0, 0, memoryview(b"b" * number), b"", 0, False
        )
        at = tail.wrote_position - size
        naive.append(4, bytes(log[at : at + size]))
        assert int.from_bytes(log[at + 28 : at + 36], "big") == at
    tail.append_entry(b"")
    naive.append(4, b"")
    assert (tail.next_index, tail.wrote_position) == (6, naive.end)
    assert bytes(log[: naive.end]) == b"".join(entry.encode() for entry in naive.entries)
    room = FILE_SIZE - tail.wrote_position
    assert tail.append_entry(bytes(room - 48 - 7)) == -1
    tail.close_file()
    assert bytes(log[naive.end : naive.end + 8]) == b"\xff\xff\xff\xff" + room.to_bytes(4, "big")

    topic = log_form.TopicWriteState("T")
    queue = log_form.QueueTail("T", 0, None)
    units = memoryview(bytearray(400))
    queue.attach(units, 0, 0)
    topic.set_queue(0, queue)
    dispatcher = log_form.Dispatcher({b"T": topic}, None, None)
    dispatcher.entries_from = 0
    middle = naive.entries[3].position
    assert dispatcher.run(log, 0, middle, 0) == middle
    assert queue.write_offset == 40
    assert dispatcher.run(log, middle, FILE_SIZE, 0) == FILE_SIZE
    found = [int.from_bytes(units[20 * n : 20 * n + 8], "big") for n in range(4)]
    assert found == [entry.position + 48 for entry in naive.entries[1:5]]
