"""Single records: what is written is what a naive reading of the format says, in both forms."""

import zlib
from types import ModuleType

import pytest

from tests.unit.both_forms import both_together
from tests.unit.store.log_world import BORN, STORE, record


@pytest.fixture(
    params=both_together("maxq.store.log.tails_cy", "maxq.store.log.log_cy"), ids=["uncompiled", "installed"]
)
def form(request: pytest.FixtureRequest) -> ModuleType:
    return request.param


def test_append_record_writes_the_format_and_knows_v2_and_prop_crc(form: ModuleType) -> None:
    log, region = form.LogTail(), bytearray(4096)
    log.attach(memoryview(region), 0, len(region), 0)
    size = log.append_record(
        b"T",
        1,
        7,
        0,
        0,
        1000,
        BORN,
        2000,
        STORE,
        0,
        0,
        b"hello",
        b"a\x01b\x02",
        zlib.crc32(b"hello") & 0x7FFFFFFF,
        False,
    )
    assert region[:size] == record(b"T", 1, 0, 0, b"hello", b"a\x01b\x02")
    topic = b"%RETRY%" + b"g" * 200
    long = log.append_record(topic, 0, 0, 0, 0, 0, BORN, 0, STORE, 0, 0, b"x", b"a\x01b", 0, True)
    written = bytes(region[size : size + long])
    assert written[4:8] == bytes.fromhex("daa320ab")
    digits = str(zlib.crc32(written[:-20]) & 0x7FFFFFFF)[::-1].ljust(10, "0").encode()
    assert written.endswith(b"a\x01b\x02__CRC32#\x01" + digits + b"\x02")
