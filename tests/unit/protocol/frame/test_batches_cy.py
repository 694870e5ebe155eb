"""Records of a batch body are counted and placed as `decode_batch` reads them, in both forms."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxq.errors import RemoteProtocolError
from maxq.protocol.message.message import BATCH_MOST, Message, batch_count, decode_batch, encode_batch
from maxq.protocol.message.message_id import offset_message_id, offset_message_ids
from maxq.protocol.message.message_properties import encode_properties
from tests.unit.both_forms import both

FORMS = both("maxq.protocol.frame.batches_cy")

messages = st.lists(
    st.builds(
        Message,
        topic=st.just("T"),
        body=st.binary(max_size=40),
        properties=st.dictionaries(st.sampled_from(["KEYS", "TAGS", "ж"]), st.just("value"), max_size=3),
        flag=st.integers(-(2**31), 2**31 - 1),
    ),
    max_size=12,
)


@given(parts=messages, most=st.integers(0, 15))
def test_whole_bodies_are_counted_up_to_the_limit(parts: list[Message], most: int) -> None:
    body = encode_batch(parts)
    behind = len(encode_batch(parts[:most]))
    for form in FORMS:
        assert form.count_records(body, most) == (min(len(parts), most), behind)


@given(parts=messages, at=st.integers(0), byte=st.integers(0, 255), cut=st.integers(0, 30))
def test_damaged_bodies_are_taken_as_the_decoder_takes_them(parts: list[Message], at: int, byte: int, cut: int) -> None:
    body = bytearray(encode_batch(parts))
    if body:
        body[at % len(body)] = byte
    body = body[: len(body) - cut]
    try:
        wanted = len(decode_batch(body, "T"))
    except RemoteProtocolError as error:
        with pytest.raises(RemoteProtocolError) as found:
            batch_count(body)
        assert str(found.value) == str(error)
        for form in FORMS:
            assert form.count_records(body, 99)[1] < len(body)
    else:
        assert batch_count(body) == wanted
        for form in FORMS:
            assert form.count_records(body, 99) == (wanted, len(body))


def test_a_body_is_not_looked_at_beyond_the_limit() -> None:
    body = encode_batch([Message("T", b"x")] * (BATCH_MOST + 1))
    assert batch_count(body + b"no record") == BATCH_MOST + 1


@given(parts=messages, first=st.integers(0, 2**62), more=st.integers(0, 200))
def test_places_and_ids_are_those_of_each_record(parts: list[Message], first: int, more: int) -> None:
    sizes = [len(encode_batch([part])) + more for part in parts]
    wanted = [first + sum(sizes[:number]) for number in range(len(parts))]
    for form in FORMS:
        places = form.record_places(encode_batch(parts), len(parts), first, more)
        assert places.tolist() == wanted
        for host in (bytes(range(8)), bytes(range(100, 120))):
            if parts:
                assert offset_message_ids(host, places) == ",".join(offset_message_id(host, one) for one in wanted)
        assert places.tolist() == wanted


@given(parts=messages, most=st.integers(0, 40))
def test_bodies_and_properties_are_judged_by_their_sizes(parts: list[Message], most: int) -> None:
    body = encode_batch(parts)
    wanted = all(part.body and len(encode_properties(part.properties).encode()) <= most for part in parts)
    for form in FORMS:
        assert form.have_bodies(body, len(parts), most) == wanted
