"""Gathered records are those of the ranges; what is left out of them is left out, and the rest is as it was."""

from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxq.protocol.message.message import decode_records
from tests.short_form import times
from tests.unit.both_forms import both
from tests.unit.store.log.test_record_cy import record

FORMS = both("maxq.store.read.gather_cy")
RECORDS = st.lists(
    st.tuples(st.binary(max_size=40), st.binary(min_size=1, max_size=20), st.booleans(), st.booleans(), st.booleans()),
    min_size=1,
    max_size=12,
)


@pytest.fixture(params=FORMS, ids=["uncompiled", "installed"])
def form(request: pytest.FixtureRequest) -> ModuleType:
    return request.param


def log_of(parts: list[tuple[bytes, bytes, bool, bool, bool]]) -> tuple[bytes, list[tuple[int, int]]]:
    """A log of records, and (physical offset, size) of those that are wanted."""
    log, ranges = b"", []
    for body, topic, v6, v2, wanted in parts:
        one = record(len(log), body, topic, b"KEYS\x01" + topic.hex().encode() + b"\x02", v6, v2)
        if wanted:
            ranges.append((len(log), len(one)))
        log += one
    return log, ranges


@pytest.mark.parametrize("form", FORMS, ids=["uncompiled", "installed"])
@settings(max_examples=times(60), deadline=None)
@given(parts=RECORDS, omit=st.integers(0, 2))
def test_gathered_records_are_those_of_the_ranges_less_what_is_omitted(form: ModuleType, parts, omit: int) -> None:  # type: ignore[no-untyped-def]
    log, ranges = log_of(parts)
    out = bytearray(sum(size for _, size in ranges) + 5)
    end = form.gather(memoryview(log), 0, len(log), ranges, out, 5, omit)
    found = decode_records(bytes(out[5:end])) if ranges else []
    whole = decode_records(b"".join(log[start : start + size] for start, size in ranges))
    assert end - 5 <= sum(size for _, size in ranges)
    for ours, original in zip(found, whole, strict=True):
        assert ours.body == (b"" if omit else original.body)
        assert ours.properties == ({} if omit == 2 else original.properties)
        assert (ours.topic, ours.queue_offset, ours.physical_offset, ours.born_timestamp, ours.store_host) == (
            original.topic, original.queue_offset, original.physical_offset, original.born_timestamp,
            original.store_host,
        )  # fmt: skip


def test_joined_ranges_and_a_later_file_are_read_by_their_physical_offset(form: ModuleType) -> None:
    log = record(1000) + record(1100)
    assert len(log) == 200
    out = bytearray(len(log))
    assert form.gather(memoryview(log), 1000, 1000 + len(log), [(1000, len(log))], out, 0, 0) == len(log)
    assert out == log


@pytest.mark.parametrize("omit", [0, 1, 2])
def test_what_is_no_chain_of_whole_records_is_refused(form: ModuleType, omit: int) -> None:
    log = record(0, b"x" * 30)
    bad_magic, bad_size, bad_parts = bytearray(log), bytearray(log), bytearray(log)
    bad_magic[5] = 0
    bad_size[:4] = (len(log) + 1).to_bytes(4, "big")
    bad_parts[84:88] = (31).to_bytes(4, "big")
    for data in (bad_magic, bad_size):
        assert form.gather(memoryview(data), 0, len(data), [(0, len(data))], bytearray(999), 0, omit) == -1
    if omit:
        assert form.gather(memoryview(bad_parts), 0, len(log), [(0, len(log))], bytearray(999), 0, omit) == -1
    for ranges in ([(0, len(log) - 1)], [(1, len(log))], [(-1, len(log))], [(0, len(log) + 1)], [(0, 0)]):
        assert form.gather(memoryview(log), 0, len(log), ranges, bytearray(999), 0, omit) == -1
    assert form.gather(memoryview(log), 0, len(log) - 1, [(0, len(log))], bytearray(999), 0, omit) == -1
    assert form.gather(memoryview(log), 0, len(log), [(0, len(log))], bytearray(20), 0, omit) == -1
