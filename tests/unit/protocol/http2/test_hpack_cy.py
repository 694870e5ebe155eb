"""HPACK in both forms, beside PyPI's `hpack`."""

from types import ModuleType

import hpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxq.errors import RemoteProtocolError
from maxq.protocol.http2.field_kinds import K_CONTENT_TYPE, K_MALFORMED, K_OTHER, K_PATH
from tests.short_form import times
from tests.unit.both_forms import both

FORMS = both("maxq.protocol.http2.hpack_cy")
form = pytest.mark.parametrize("form", FORMS, ids=["uncompiled", "installed"])

NAMES = st.sampled_from([":path", ":method", "content-type", "x-mq-client-id", "grpc-timeout", "k" * 130, "a"])
VALUES = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=40) | st.sampled_from(
    ["POST", "v" * 600]
)
BLOCKS = st.lists(st.lists(st.tuples(NAMES, VALUES), max_size=6), min_size=1, max_size=8)


def pairs(block: object) -> list[tuple[str, str]]:
    return [(field.name, field.value) for field in block.fields]  # type: ignore[attr-defined]


@form
@given(blocks=BLOCKS, huffman=st.booleans(), sizes=st.lists(st.sampled_from([0, 64, 200, 4096]), max_size=8))
@settings(max_examples=times(60), deadline=None)
def test_blocks_of_another_encoder_are_read(
    form: ModuleType, blocks: list[list[tuple[str, str]]], huffman: bool, sizes: list[int]
) -> None:
    encoder, decoder = hpack.Encoder(), form.HpackDecoder(4096, 1 << 20)
    for number, fields in enumerate(blocks):
        if number < len(sizes):
            encoder.header_table_size = sizes[number]
        assert pairs(decoder.decode(encoder.encode(fields, huffman=huffman))) == fields
        again = decoder.decode(encoder.encode(fields, huffman=huffman))
        assert pairs(again) == fields


@form
@given(fields=st.lists(st.tuples(NAMES, VALUES), max_size=6))
@settings(max_examples=times(60), deadline=None)
def test_another_decoder_reads_our_blocks(form: ModuleType, fields: list[tuple[str, str]]) -> None:
    decoder = hpack.Decoder()
    for _ in range(2):  # its table stays as it is
        read = decoder.decode(form.encode_fields(fields), raw=True)
        assert [(bytes(name).decode(), bytes(value).decode()) for name, value in read] == fields


@form
@given(data=st.binary(max_size=60))
@settings(max_examples=times(100), deadline=None)
def test_any_bytes_are_fields_or_an_error_of_the_peer(form: ModuleType, data: bytes) -> None:
    decoder = form.HpackDecoder(4096, 4096)
    try:
        decoder.decode(data)
    except RemoteProtocolError:
        return


@form
def test_every_byte_survives_huffmans_code(form: ModuleType) -> None:
    value = "".join(map(chr, range(256)))
    block = form.HpackDecoder(4096, 1 << 20).decode(form.encode_fields([("a", value), ("b", "0" * 5000)]))
    assert pairs(block) == [("a", value), ("b", "0" * 5000)]
    assert len(form.encode_fields([("b", "0" * 800)])) < 520


@form
def test_equal_blocks_are_one_object_while_the_table_is_as_it_was(form: ModuleType) -> None:
    encoder, decoder = hpack.Encoder(), form.HpackDecoder(4096, 1 << 20)
    fields = [(":method", "POST"), ("x-mq-client-id", "one")]
    decoder.decode(encoder.encode(fields))
    first = encoder.encode(fields)
    block = decoder.decode(first)
    assert decoder.decode(first) is block
    decoder.decode(encoder.encode([("x-other", "shifts the table")]))
    assert pairs(decoder.decode(first)) != fields, "the same bytes mean another entry now"
    assert pairs(decoder.decode(encoder.encode(fields))) == fields


@form
def test_fields_are_examined_when_they_are_read(form: ModuleType) -> None:
    kinds = {
        (":path", "/x"): K_PATH,
        ("content-type", "application/grpc"): K_CONTENT_TYPE,
        ("x-mq-date-time", "a b"): K_OTHER,
        ("connection", "close"): K_MALFORMED,
        (":status", "200"): K_MALFORMED,
        ("Upper", "x"): K_MALFORMED,
        ("", "x"): K_MALFORMED,
        ("a:b", "x"): K_MALFORMED,
        ("x", "a\r\nb"): K_MALFORMED,
        ("x", " a"): K_MALFORMED,
        ("x", "a\t"): K_MALFORMED,
        ("x", "a\0"): K_MALFORMED,
    }
    block = form.HpackDecoder(4096, 1 << 20).decode(form.encode_fields(list(kinds)))
    assert {(field.name, field.value): field.kind for field in block.fields} == kinds


@form
def test_a_bad_value_does_not_spoil_the_name_for_later_fields(form: ModuleType) -> None:
    decoder = form.HpackDecoder(4096, 1 << 20)
    decoder.decode(b"\x40\x01x\x02\r\n")
    assert [(field.value, field.kind) for field in decoder.decode(b"\x0f\x2f\x01y").fields] == [("y", K_OTHER)]


@form
@pytest.mark.parametrize(
    ("block", "error"),
    [
        ("80", "no entry 0"),
        ("be", "no entry 62"),
        ("ff", "within a number"),
        ("ff8080", "within a number"),
        ("ffffffffffffff7f", "too large"),
        ("40", "before a string"),
        ("4001", "within a string"),
        ("40016182ffff", "Huffman"),  # the end of the string within it
        ("4001618118", "Huffman"),  # padding of zeros
        ("40016182f8ff", "Huffman"),  # more padding than seven bits
        ("823f00", "size behind a field"),
        ("3fe21f", "table of 4097"),
    ],
)
def test_what_is_no_block_is_an_error_that_says_why(form: ModuleType, block: str, error: str) -> None:
    with pytest.raises(RemoteProtocolError, match=error):
        form.HpackDecoder(4096, 1 << 20).decode(bytes.fromhex(block))


@form
def test_fields_behind_the_limit_cost_no_memory(form: ModuleType) -> None:
    decoder = form.HpackDecoder(4096, 16384)
    decoder.decode(b"\x40\x01x\x7f\x81\x1f" + b"v" * 4096)  # a field that the table cannot hold empties it
    decoder.decode(b"\x40\x01x\x7f\x81\x1e" + b"v" * 3968)
    block = decoder.decode(b"\xbe" * 30000)
    assert block.is_too_large
    assert len(block.fields) == 4
    assert block.size == 30000 * (3968 + 1 + 32)


@form
def test_a_few_bytes_that_name_large_fields_are_read_each_time(form: ModuleType) -> None:
    decoder = form.HpackDecoder(4096, 1 << 15)
    decoder.decode(b"\x40\x01x\x7f\x81\x1e" + b"v" * 3968)
    assert decoder.decode(b"\xbe") is decoder.decode(b"\xbe")
    assert decoder.decode(b"\xbe" * 7) is not decoder.decode(b"\xbe" * 7)
