"""Text that is kept deflated: read as gzip, and unpacked."""

import gzip
import random
import zlib
from collections.abc import Sequence
from itertools import permutations

import pytest

from maxq.runtime.metrics.packed_text import GZIP_HEAD, GzipFrame, PackedText

#: Nothing, little, much that becomes small, and what does not.
TEXTS = [b"", b"x", b"one\n" * 50_000, random.Random(1).randbytes(100_000)]


def gzipped(pieces: list[PackedText]) -> bytes:
    frame = GzipFrame()
    for piece in pieces:
        frame.add(piece)
    return b"".join([GZIP_HEAD, *(piece.deflated for piece in pieces), frame.end()])


@pytest.mark.parametrize("texts", [[], *permutations(TEXTS)])
def test_pieces_are_one_gzip_stream_in_any_order(texts: Sequence[bytes]) -> None:
    pieces = [PackedText(text) for text in texts]
    assert [piece.unpack() for piece in pieces] == list(texts)
    assert gzip.decompress(gzipped(pieces)) == b"".join(texts)


def test_it_is_one_member_so_that_readers_of_one_member_get_all() -> None:
    reader = zlib.decompressobj(31)
    assert reader.decompress(gzipped([PackedText(b"one\n"), PackedText(b"two\n")])) == b"one\ntwo\n"
    assert reader.eof and reader.unused_data == b""


def test_a_stream_that_lost_a_piece_is_noticed() -> None:
    pieces = [PackedText(b"one\n"), PackedText(b"two\n")]
    frame = GzipFrame()
    for piece in pieces:
        frame.add(piece)
    with pytest.raises(gzip.BadGzipFile):
        gzip.decompress(GZIP_HEAD + pieces[0].deflated + frame.end())
