"""Batch bodies: what the decoder of the protocol reads out of them, in both forms of the encoder."""

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxq.protocol.message.message import Message, decode_batch
from tests.unit.both_forms import both

FORMS = both("maxq.arrow.batch_encode_cy")
PREFIX = b"UNIQ_KEY\x01" + b"AB" * 10


def column(values: list[bytes]) -> tuple[Any, Any]:
    offsets = np.cumsum([0, *(len(value) for value in values)], dtype=np.int64)
    return offsets, np.frombuffer(b"".join(values) or b"\0", np.uint8)


def encode(form: ModuleType, memory: bytearray, at: int, rows: list[int], first: int, values: Any) -> tuple[int, int]:
    bodies, texts = column([body for body, _ in values]), column([text for _, text in values])
    numbers = np.array(rows, np.int64)
    found: tuple[int, int] = form.encode_rows(memory, at, numbers, first, *bodies, *texts, PREFIX, 0xFF)
    return found


texts = st.sampled_from([b"", b"TAGS\x01T\x02", b"KEYS\x01a b\x02x\x01y\x02"])


@pytest.mark.parametrize("form", FORMS)
@given(values=st.lists(st.tuples(st.binary(max_size=40), texts), min_size=1, max_size=8), data=st.data())
def test_chosen_rows_are_read_back_in_their_order(form: ModuleType, values: Any, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(values) - 1), min_size=1, max_size=12))
    memory = bytearray(4096)
    after, size = encode(form, memory, 0, rows, 0, values)

    assert after == len(rows)
    found = decode_batch(memory[:size], "T")
    assert [message.body for message in found] == [values[row][0] for row in rows]
    assert [message.uniq_key for message in found] == ["AB" * 10 + f"{0xFF + n:012X}" for n in range(len(rows))]
    wanted = [b"\x02".join(b"\x01".join(pair) for pair in _pairs(message)) for message in found]
    assert wanted == [values[row][1].removesuffix(b"\x02") for row in rows]


def _pairs(message: Message) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), text.encode()) for name, text in message.properties.items() if name != "UNIQ_KEY"]


@pytest.mark.parametrize("form", FORMS)
@given(limit=st.integers(0, 400))
def test_what_does_not_fit_is_left_for_the_next_call(form: ModuleType, limit: int) -> None:
    values, rows = [(b"x" * 20, b"")] * 5, list(range(5))
    memory = bytearray(b"\xee" * limit + b"\xaa" * 10)
    after, size = encode(form, memoryview(memory)[:limit], 0, rows, 0, values)  # type: ignore[arg-type]

    record = form.OVERHEAD + len(PREFIX) + 20
    assert (after, size) == (min(5, limit // record), min(5, limit // record) * record)
    assert memory[size:] == b"\xee" * (limit - size) + b"\xaa" * 10
    assert encode(form, bytearray(4096), 0, rows, after, values)[0] == 5


@pytest.mark.parametrize("form", FORMS)
def test_properties_that_are_too_long_are_refused(form: ModuleType) -> None:
    fits = form.MAX_PROPERTIES - len(PREFIX) - 13
    assert encode(form, bytearray(40_000), 0, [0], 0, [(b"x", b"y" * fits)])[0] == 1
    with pytest.raises(ValueError, match="row 0 have 32768 bytes"):
        encode(form, bytearray(40_000), 0, [0], 0, [(b"x", b"y" * (fits + 1))])


@given(values=st.lists(st.binary(max_size=40), min_size=1, max_size=8))
def test_hashes_are_those_of_the_pure_form_and_tell_values_and_columns_apart(values: list[bytes]) -> None:
    found = []
    for form in FORMS:
        hashes = np.zeros(len(values), np.uint64)
        form.hash_rows(hashes, *column(values))
        form.hash_rows(hashes, *column([b""] * len(values)))
        found.append(hashes.tolist())
    assert all(one == found[0] for one in found)
    assert len(set(found[0])) == len(set(values))
