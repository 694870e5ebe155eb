"""The numbers of a record's layout are in one place: its compiled form says the same, and so do encoded records."""

import re
import struct
from pathlib import Path

import pytest

from maxq.protocol.message import record_layout as layout
from maxq.protocol.message.message import MessageExt, encode_batch, encode_record
from maxq.protocol.message.message_sys_flag import MessageSysFlag

_COMPILED = Path(layout.__file__).with_suffix(".pxd").read_text()


def test_the_compiled_form_has_the_same_constants() -> None:
    constants = dict(re.findall(r"^ {4}([A-Z_0-9]+) = (\w+)$", _COMPILED, re.MULTILINE))
    constants |= dict(re.findall(r"#define MAXQ_(\w+) (\w+)u$", _COMPILED, re.MULTILINE))
    assert len(constants) > 20
    assert {name: int(value, 0) for name, value in constants.items()} == {
        name: getattr(layout, name) for name in constants
    }


def test_the_compiled_form_has_the_same_sums() -> None:
    """`return 56 + …` and the like: the literals of a function are those of its Python form."""
    source = Path(layout.__file__).read_text()
    functions = re.findall(r"cdef inline [\w ]+ (\w+)\(.*\n    return (.*)\n", _COMPILED)
    assert len(functions) > 5
    for name, compiled in functions:
        plain = re.search(rf"def {name}\(.*\n.*\n    return (.*)\n", source)
        assert plain is not None, name
        assert plain[1].replace("_V6_SIZE", "20") == compiled


@pytest.mark.parametrize("born", [8, 20])
@pytest.mark.parametrize("store", [8, 20])
def test_an_encoded_record_has_its_parts_there(born: int, store: int) -> None:
    record = encode_record(
        MessageExt(
            topic="T", body=b"body", queue_id=3, flag=5, queue_offset=7, physical_offset=11, born_timestamp=13,
            born_host=b"b" * born, store_timestamp=17, store_host=b"s" * store, reconsume_times=19,
        ),
        b"",
    )  # fmt: skip
    flag = layout.sys_flag_of(record)
    assert flag == layout.host_bits(born, store)
    assert (layout.born_host_size(flag), layout.store_host_size(flag)) == (born, store)
    assert len(record) == layout.size_of(record) == layout.FIXED_SIZE + born + store + len("T") + len(b"body")
    assert layout.MIN_RECORD_SIZE == layout.FIXED_SIZE + 8 + 8
    assert layout.HEAD_SIZE_MAX >= layout.FIXED_SIZE + 20 + 20 + 1
    assert (layout.queue_offset_of(record), layout.physical_offset_of(record)) == (7, 11)
    assert layout.store_timestamp_of(record) == 17
    assert struct.unpack_from(">I", record, layout.MAGIC)[0] == layout.MAGIC_V1
    assert record[layout.MAGIC :].startswith(layout.MAGIC_START)
    assert struct.unpack_from(">ii", record, layout.QUEUE_ID) == (3, 5)
    assert struct.unpack_from(">q", record, layout.BORN_TIMESTAMP)[0] == 13
    assert record[layout.BORN_HOST :][:born] == b"b" * born
    assert record[layout.store_timestamp_at(flag) + 8 :][:store] == b"s" * store
    assert struct.unpack_from(">i", record, layout.reconsume_times_at(flag))[0] == 19
    at = layout.body_size_at(flag)
    assert struct.unpack_from(">i4s", record, at) == (4, b"body")
    assert layout.queue_offset_of(b"x" + record, 1) == 7


def test_a_message_of_a_batch_has_so_many_bytes_more() -> None:
    assert len(encode_batch([MessageExt(topic="T", body=b"body")])) == layout.BATCH_RECORD_SIZE + 4


def test_bits_are_those_of_clients() -> None:
    names = ("MULTI_TAGS", "TRANSACTION_PREPARED", "TRANSACTION_COMMIT", "TRANSACTION_ROLLBACK", "INNER_BATCH")
    for name in names:
        assert getattr(layout, name) == getattr(MessageSysFlag, name)
