"""Lines of records beside their JSON objects, in both forms."""

from array import array
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from maxq.protocol.message.message import MessageExt, encode_record
from maxq.protocol.message.message_id import encode_host
from maxq.store.log import record_cy as rc
from maxq.store.tools import message_lines
from maxq.store.tools.log_walk import Batch
from tests.unit.both_forms import both

HOSTS = [encode_host("10.0.0.1", 9), encode_host("::1", 10911)]
CHUNKS = [
    b"TAGS\x01a\x02", b"TAGS\x01later\x02", b"TAGS\x01\x02", b"TAGS\x02", b"TAGS\x01a\x01c\x02", b"XTAGS\x01a\x02",
    b"KEYS\x01k1 k2\x02", b"KEYS\x01\xff\x02", b"TAGS\x01\xe2\x82\xac\x02", b"UNIQ_KEY\x01\xff\x02", b"\x02",
    b"\x01v\x02", b"MAXQ_DAMAGED\x0112\x02",
]  # fmt: skip


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """A few records that follow each other from physical offset 0."""
    log = b""
    for _ in range(draw(st.integers(0, 4))):
        sys_flag = draw(st.sampled_from([0, 0, 0, 4, 8, 12]))
        message = MessageExt(
            draw(st.sampled_from(["T", "Tж", "L" * 200, "tab\tbed"])), draw(st.binary(max_size=8)), {},
            draw(st.integers(0, 2**31 - 1)), "", draw(st.integers(-1, 9)), draw(st.integers(-(2**63), 2**63 - 1)),
            len(log), sys_flag, 7, draw(st.sampled_from(HOSTS)), draw(st.integers(-1, 2**50)),
            draw(st.sampled_from(HOSTS)), version=2,
        )  # fmt: skip
        chunks = draw(st.lists(st.sampled_from(CHUNKS), max_size=5))
        log += encode_record(message, b"".join(chunks)[: draw(st.sampled_from([None, -1]))])
    return log


def scanned(log: bytes) -> Batch:
    rows = array("q", bytes(8 * 8 * rc.SCAN_WIDTH))
    count, end, _ = rc.scan(memoryview(log), 0, len(log), 0, rows)
    assert end == len(log)
    nowhere: Any = None
    return Batch(nowhere, memoryview(log), rows, count)


def columns(found: dict[str, Any]) -> list[str]:
    names = ("physicalOffset", "size", "topic", "queueId", "queueOffset", "storeTimestamp", "msgId")
    values = [*(found[name] for name in names), *(found["properties"].get(name, "") for name in ("TAGS", "KEYS"))]
    return [str(value) for value in values]


@given(logs())
def test_lines_have_what_the_objects_have(log: bytes) -> None:
    batch = scanned(log)
    expected = "".join("\t".join(columns(found)) + "\n" for found in message_lines.messages_of(batch))
    for form in both("maxq.store.tools.text_lines_cy"):
        with mock.patch.object(message_lines, "text_lines", form.text_lines):
            assert bytes(message_lines.lines_of(batch)).decode() == expected
