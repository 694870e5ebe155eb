"""Compressed message bodies."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxq.errors import RemoteProtocolError
from maxq.protocol.message.compression import CompressionType, compress, compression_flag, compression_type, decompress


@given(st.binary(max_size=2000), st.sampled_from(CompressionType))
def test_bodies_come_back(body: bytes, kind: CompressionType) -> None:
    assert decompress(compress(body, kind), kind) == body


@pytest.mark.parametrize("kind", CompressionType)
def test_flags_name_the_kind(kind: CompressionType) -> None:
    assert compression_type(compression_flag(kind)) == kind
    assert compression_flag(kind) & 1


def test_no_type_bits_mean_zlib_and_unknown_bits_are_refused() -> None:
    assert compression_type(1) == CompressionType.ZLIB
    with pytest.raises(RemoteProtocolError, match="type 5"):
        compression_type(0x501)


@pytest.mark.parametrize("kind", CompressionType)
def test_small_bodies_that_inflate_beyond_the_limit_are_refused(kind: CompressionType) -> None:
    bomb = compress(bytes(20_000_000), kind)
    with pytest.raises(RemoteProtocolError, match="more than 1000000 bytes"):
        decompress(bomb, kind, limit=1_000_000)


@pytest.mark.parametrize("kind", CompressionType)
def test_cut_and_foreign_bodies_are_refused(kind: CompressionType) -> None:
    data = compress(b"some text that is long enough to be cut " * 50, kind)
    for rubbish in (data[:-1], data[: len(data) // 2], b"", b"rubbish"):
        with pytest.raises(RemoteProtocolError):
            decompress(rubbish, kind)


@given(st.binary(max_size=100), st.sampled_from(CompressionType))
def test_any_bytes_inflate_or_are_the_protocol_error(data: bytes, kind: CompressionType) -> None:
    with contextlib.suppress(RemoteProtocolError):
        decompress(data, kind)
