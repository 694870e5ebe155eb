"""PackedText: text that is kept deflated, ready to stand in a gzip stream (RFC 1952) between other such pieces.

Text of metrics becomes a fiftieth, so what seldom changes can be kept, and is compressed once for many scrapes. A
piece ends on a byte and refers to nothing before it (a full flush), so pieces may stand in any order.
"""

from typing import Final

from isal import isal_zlib

_LEVEL: Final = 1
_RAW: Final = -15  # zlib's parameter for a window of 2^15 without header and trailer

GZIP_HEAD: Final = bytes((0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 0xFF))  # deflate, no name, no time, system unknown
_LAST_BLOCK: Final = b"\x03\x00"  # an empty block with the final bit


class PackedText:
    """Attributes:
    deflated: the piece as it stands in a gzip stream.
    crc, size: CRC-32 and bytes of the text.
    """

    __slots__ = ("crc", "deflated", "size")

    def __init__(self, text: bytes) -> None:
        compressor = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, _RAW)
        self.deflated = compressor.compress(text) + compressor.flush(isal_zlib.Z_FULL_FLUSH)
        self.crc = isal_zlib.crc32(text)
        self.size = len(text)

    def unpack(self) -> bytes:
        """Return the text as it was before it was compressed."""
        return isal_zlib.decompressobj(_RAW).decompress(self.deflated)


class GzipFrame:
    """Follows the pieces of one gzip stream, which begins with GZIP_HEAD, to make its end."""

    def __init__(self) -> None:
        self._crc = 0
        self._size = 0

    def add(self, piece: PackedText) -> None:
        """Account for the next piece of the stream."""
        self._crc = isal_zlib.crc32_combine(self._crc, piece.crc, piece.size)
        self._size += piece.size

    def end(self) -> bytes:
        """Return the last bytes of the gzip stream: the end of its data, checksum and size."""
        return _LAST_BLOCK + self._crc.to_bytes(4, "little") + (self._size & 0xFFFFFFFF).to_bytes(4, "little")
