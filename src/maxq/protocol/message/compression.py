"""Message body compression: zlib, LZ4 frames, zstd.

lz4 and zstandard are loaded when they are first used: most programs never do.

Source:
    common/compression/{CompressionType,ZlibCompressor,Lz4Compressor,ZstdCompressor}.java.
"""

import zlib
from enum import IntEnum
from typing import Final

from maxq.errors import RemoteProtocolError
from maxq.protocol.message.message_sys_flag import COMPRESSION_MASK, MessageSysFlag

#: A body that inflates to more than this many bytes is refused, so that a small message cannot fill the memory.
MAX_DECOMPRESSED: Final = 64 * 1024 * 1024

#: Java's default level of each (ZlibCompressor 5).
DEFAULT_LEVEL: Final = 5


class CompressionType(IntEnum):
    """Kinds of compression by their wire values; 0 in a sysFlag means ZLIB, as clients before 5.0 write it."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


def compression_flag(kind: CompressionType) -> int:
    """Return the sysFlag bits of a body compressed by `kind`, the COMPRESSED bit included."""
    return kind << 8 | MessageSysFlag.COMPRESSED


def compression_type(sys_flag: int) -> CompressionType:
    """Return how the body of a message with this flag is compressed.

    Raises:
        RemoteProtocolError: the flag names a type that does not exist.
    """
    value = (sys_flag & COMPRESSION_MASK) >> 8
    if value == 0:
        return CompressionType.ZLIB
    if value > 3:
        raise RemoteProtocolError(f"sysFlag {sys_flag:#x} names compression type {value}; 0 to 3 exist")
    return CompressionType(value)


def compress(
    data: bytes | memoryview, kind: CompressionType = CompressionType.ZLIB, level: int = DEFAULT_LEVEL
) -> bytes:
    """Compress `data` so that Java's decompressor of that kind reads it."""
    if kind == CompressionType.LZ4:
        import lz4.frame

        return bytes(lz4.frame.compress(bytes(data), compression_level=0))
    if kind == CompressionType.ZSTD:
        import zstandard

        return zstandard.ZstdCompressor(level=level).compress(data)
    return zlib.compress(data, level)


def decompress(data: bytes | memoryview, kind: CompressionType, limit: int = MAX_DECOMPRESSED) -> bytes:
    """Return the original of compressed `data`.

    Raises:
        RemoteProtocolError: not in that form, cut short, or longer than `limit` bytes when inflated.
    """
    try:
        if kind == CompressionType.LZ4:
            result, whole = _inflate_lz4(bytes(data), limit)
        elif kind == CompressionType.ZSTD:
            result, whole = _inflate_zstd(data, limit)
        else:
            result, whole = _inflate_zlib(data, limit)
    except (zlib.error, RuntimeError, EOFError, MemoryError) as error:
        raise RemoteProtocolError(f"a body of {len(data)} bytes is not {kind.name}: {error}") from None
    if len(result) > limit:
        raise RemoteProtocolError(f"a {kind.name} body of {len(data)} bytes inflates to more than {limit} bytes")
    if not whole:
        raise RemoteProtocolError(f"a {kind.name} body of {len(data)} bytes ends too early")
    return result


def _inflate_zlib(data: bytes | memoryview, limit: int) -> tuple[bytes, bool]:
    inflater = zlib.decompressobj()
    result = inflater.decompress(data, limit + 1)
    return result, inflater.eof


def _inflate_lz4(data: bytes, limit: int) -> tuple[bytes, bool]:
    import lz4.frame

    inflater = lz4.frame.LZ4FrameDecompressor()
    result = bytes(inflater.decompress(data, max_length=limit + 1))
    return result, bool(inflater.eof)


def _inflate_zstd(data: bytes | memoryview, limit: int) -> tuple[bytes, bool]:
    # Read in small steps: the reader would allocate all it is asked for. `read1` of a cut frame returns b"" like a
    # whole one, so the frame end is told by an object that knows it.
    import zstandard

    parts: list[bytes] = []
    size = 0
    view = memoryview(data)
    try:
        if zstandard.get_frame_parameters(data).window_size > limit:
            raise RemoteProtocolError(f"a ZSTD body asks for a window of more than {limit} bytes")
        inflater = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
        for start in range(0, len(view), 4096):
            part = inflater.decompress(view[start : start + 4096])
            parts.append(part)
            size += len(part)
            if inflater.eof or size > limit:
                break
    except zstandard.ZstdError as error:
        raise RuntimeError(str(error)) from None
    return b"".join(parts), bool(inflater.eof)
