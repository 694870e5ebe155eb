"""The record scanner reads what a naive reading of the format says, and nothing that is damaged, stale or foreign."""

import struct
import zlib
from array import array
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.short_form import times
from tests.unit.both_forms import both

FORMS = both("maxq.store.log.record_cy")


@pytest.fixture(params=FORMS, ids=["uncompiled", "installed"])
def form(request: pytest.FixtureRequest) -> ModuleType:
    return request.param


def record(
    physical: int,
    body: bytes = b"body",
    topic: bytes = b"T",
    properties: bytes = b"a\x01b\x02",
    v6: bool = False,
    v2: bool = False,
) -> bytes:
    sys_flag, host = (0x30, bytes(20)) if v6 else (0, bytes(8))
    rest = struct.pack(
        ">IiiiqqiqI",
        0xDAA320AB if v2 else 0xDAA320A7,
        zlib.crc32(body) & 0x7FFFFFFF,
        3,
        -7,
        5,
        physical,
        sys_flag,
        1000,
        0,
    )[:-4]
    rest += host + struct.pack(">q", 2000) + host + struct.pack(">iq", 2, 99) + struct.pack(">i", len(body)) + body
    rest += (
        (struct.pack(">h", len(topic)) if v2 else bytes([len(topic)]))
        + topic
        + struct.pack(">h", len(properties))
        + properties
    )
    return struct.pack(">i", len(rest) + 4) + rest


def scan(
    form: ModuleType, data: bytes, base: int = 0, room: int = 64, **options: bool
) -> tuple[list[tuple[int, ...]], int, int]:
    rows = array("q", bytes(8 * form.SCAN_WIDTH * room))
    count, position, reason = form.scan(memoryview(data), 0, len(data), base, rows, **options)
    return [tuple(rows[i * form.SCAN_WIDTH : (i + 1) * form.SCAN_WIDTH]) for i in range(count)], position, reason


@pytest.mark.parametrize("v6", [False, True])
@pytest.mark.parametrize("v2", [False, True])
def test_every_field_lands_in_its_column(form: ModuleType, v6: bool, v2: bool) -> None:
    data = record(500, b"hello", b"Topic", b"k\x01v", v6, v2)
    (row,), position, reason = scan(form, data, 500)
    assert (position, reason) == (len(data), form.STOP_END)
    assert (
        row[form.C_SIZE],
        row[form.C_PHYSICAL_OFFSET],
        row[form.C_QUEUE_ID],
        row[form.C_QUEUE_OFFSET],
        row[form.C_FLAG],
    ) == (len(data), 500, 3, 5, -7)
    assert (
        row[form.C_BORN_TIMESTAMP],
        row[form.C_STORE_TIMESTAMP],
        row[form.C_RECONSUME_TIMES],
        row[form.C_PREPARED_OFFSET],
    ) == (1000, 2000, 2, 99)
    for place, size, text in (
        (form.C_BODY_POSITION, form.C_BODY_SIZE, b"hello"),
        (form.C_TOPIC_POSITION, form.C_TOPIC_SIZE, b"Topic"),
        (form.C_PROPERTIES_POSITION, form.C_PROPERTIES_SIZE, b"k\x01v"),
    ):
        assert data[row[place] : row[place] + row[size]] == text


def test_the_scan_says_why_it_stopped(form: ModuleType) -> None:
    good = record(0)
    blank = struct.pack(">iI", 8, 0xCBD43194)
    flipped = bytearray(record(len(good)))
    flipped[91] ^= 1  # in the body
    short = bytearray(record(len(good)))
    short[3] -= 1
    cases = {
        "STOP_END": b"",
        "STOP_BLANK": blank,
        "STOP_ZERO": bytes(200),
        "STOP_BAD_MAGIC": b"\xff" * 100,
        "STOP_BAD_CRC": bytes(flipped),
        "STOP_BAD_SIZE": bytes(short),
        "STOP_BAD_OFFSET": record(12345),
    }
    for name, tail in cases.items():
        rows, position, reason = scan(form, good + tail)
        assert (len(rows), position, reason) == (1, len(good), getattr(form, name)), name
    assert scan(form, good + bytes(flipped), check_crc=False)[2] == form.STOP_END
    assert scan(form, good + record(12345), check_offset=False)[2] == form.STOP_END
    assert scan(form, good + record(len(good)), room=1)[2] == form.STOP_ROWS_FULL


def test_the_property_crc_is_checked_when_asked(form: ModuleType) -> None:
    bare = bytearray(record(0, properties=b"a\x01b\x02" + b"__CRC32#\x01" + b"0" * 10 + b"\x02"))
    crc = zlib.crc32(bare[:-20]) & 0x7FFFFFFF
    bare[-11:-1] = str(crc)[::-1].ljust(10, "0").encode()
    assert scan(form, bytes(bare), check_prop_crc=True)[2] == form.STOP_END
    bare[50] ^= 1  # born host: only this CRC covers it
    assert scan(form, bytes(bare), check_prop_crc=True)[2] == form.STOP_BAD_CRC
    without = bytearray(record(0, properties=b"a\x01b\x02"))
    assert scan(form, bytes(without), check_prop_crc=True)[2] == form.STOP_END
    without[-1] = 0
    assert scan(form, bytes(without), check_prop_crc=True)[2] == form.STOP_BAD_CRC
    assert scan(form, record(0, properties=b""), check_prop_crc=True)[2] == form.STOP_END
    flipped = bytearray(record(0, properties=b""))
    flipped[90] ^= 1
    assert scan(form, bytes(flipped), check_prop_crc=True)[2] == form.STOP_BAD_CRC
    bare[50] ^= 3
    form.renew_prop_crc(memoryview(bare))
    assert scan(form, bytes(bare), check_prop_crc=True)[2] == form.STOP_END
    form.renew_prop_crc(memoryview(flipped))
    assert form.encode_prop_crc(961708305) == b"5038071690"


def test_find_record_jumps_over_damage_to_the_next_good_record(form: ModuleType) -> None:
    first, second = record(1000), record(1000 + len(record(1000)), b"second")
    data = bytearray(first + second)
    assert form.find_record(memoryview(data), 0, len(data), 1000) == 0
    assert form.find_record(memoryview(data), 1, len(data), 1000) == len(first)
    data[91] ^= 0xFF
    assert form.find_record(memoryview(data), 0, len(data), 1000) == len(first)
    assert form.find_record(memoryview(data), 0, len(data), 999) == -1  # copies elsewhere are not messages
    data[len(first) + 91] ^= 0xFF
    assert form.find_record(memoryview(data), 0, len(data), 1000) == -1
    assert form.find_record(memoryview(b"\xda\xa3\x20" * 100), 0, 300, 0) == -1


@pytest.mark.parametrize("cut", [1, 4, 50, 80, 97])
def test_a_record_cut_short_is_not_a_record(form: ModuleType, cut: int) -> None:
    data = record(0)
    assert scan(form, data[:-cut])[0] == []


def test_ranges_outside_the_file_are_refused(form: ModuleType) -> None:
    rows = array("q", bytes(8 * form.SCAN_WIDTH))
    with pytest.raises(ValueError, match="outside the file of 10 bytes"):
        form.scan(memoryview(bytes(10)), 0, 11, 0, rows)


@settings(max_examples=times(200), deadline=None)
@given(st.data())
def test_any_bytes_scan_alike_in_both_forms(data: st.DataObject) -> None:
    log = bytearray()
    for body in data.draw(st.lists(st.binary(max_size=30), max_size=4)):
        log += record(len(log), body, v6=data.draw(st.booleans()))
    for _ in range(data.draw(st.integers(0, 4))):
        if log:
            log[data.draw(st.integers(0, len(log) - 1))] = data.draw(st.integers(0, 255))
    log += data.draw(st.binary(max_size=120))
    first, second = (scan(form, bytes(log)) for form in FORMS)
    assert first == second
    found = [form.find_record(memoryview(bytes(log)), 0, len(log), 0) for form in FORMS]
    assert found[0] == found[1]
