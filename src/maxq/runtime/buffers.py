"""Numbers in network byte order, and bytes, in a buffer: for the modules that run compiled and uncompiled.

Compiled they take the functions of the same names in buffers.pxd, inline and on byte pointers; uncompiled these, on
the memoryview itself. `p` counts bytes from the start of the buffer. Nothing is checked: who calls knows the bounds.
"""

import re
from typing import Final, TypeAlias

Buffer: TypeAlias = memoryview | bytearray

_UNPLAIN: Final = re.compile(rb'[\x00-\x1f"\\]')
_SEPARATOR: Final = re.compile(rb"[\x01\x02]")


def u32(buf: Buffer | bytes, p: int) -> int:
    return int.from_bytes(buf[p : p + 4], "big")


def i32(buf: Buffer | bytes, p: int) -> int:
    return int.from_bytes(buf[p : p + 4], "big", signed=True)


def i64(buf: Buffer | bytes, p: int) -> int:
    return int.from_bytes(buf[p : p + 8], "big", signed=True)


def i16(buf: Buffer | bytes, p: int) -> int:
    return int.from_bytes(buf[p : p + 2], "big", signed=True)


def put32(buf: Buffer, p: int, value: int) -> None:
    """Write the lowest 32 bits of `value`, which may be one of numpy's numbers."""
    buf[p : p + 4] = (int(value) & 0xFFFFFFFF).to_bytes(4, "big")


def put64(buf: Buffer, p: int, value: int) -> None:
    """Write the lowest 64 bits of `value` at `p`, big-endian; it may be one of numpy's numbers."""
    buf[p : p + 8] = (int(value) & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "big")


def copy_bytes(target: Buffer, p: int, source: Buffer | bytes, q: int, size: int) -> None:
    target[p : p + size] = source[q : q + size]


def put_bytes(target: Buffer, p: int, data: bytes) -> int:
    """Write bytes; returns the position behind them."""
    target[p : p + len(data)] = data
    return p + len(data)


def put_utf8(target: Buffer, p: int, text: str) -> int:
    """Write text, at most four bytes a character; returns the position behind it. Raises UnicodeEncodeError for half of
    a surrogate pair."""
    return put_bytes(target, p, text.encode())


def put_number(target: Buffer, p: int, value: int) -> int:
    """Write a number as decimal digits, at most 20 bytes with its sign; returns the position behind them."""
    return put_bytes(target, p, b"%d" % value)


def take_bytes(buf: Buffer | bytes, p: int, size: int) -> bytes:
    return bytes(buf[p : p + size])


def take_ascii(buf: Buffer | bytes, p: int, size: int) -> str:
    return bytes(buf[p : p + size]).decode("ascii")


def same_bytes(buf: Buffer | bytes, p: int, size: int, word: bytes) -> bool:
    """Return whether buf[p : p + size] equals this word."""
    return size == len(word) and buf[p : p + size] == word


def find_byte(buf: Buffer | bytes, p: int, end: int, byte: int) -> int:
    """Returns the position of the first `byte` in buf[p : end], or `end` when there is none."""
    found = bytes(buf[p:end]).find(byte)
    return max(p, end) if found < 0 else p + found


def digits(buf: Buffer | bytes, p: int, end: int) -> int:
    """Return the decimal number in buf[p : end]; -1 if it is not a number of one to nine digits."""
    text = bytes(buf[p:end])
    return int(text) if len(text) <= 9 and text.isdigit() else -1


def find_unplain(buf: Buffer | bytes, p: int, end: int) -> int:
    """Return the position of the first byte in buf[p : end] that does not stand for itself in a JSON string: a quote, a
    backslash, a control character; `end` when there is none."""
    found = _UNPLAIN.search(buf, p, end)
    return end if found is None else found.start()


def has_separator(buf: Buffer | bytes, p: int, end: int) -> bool:
    """Return whether one of the bytes 1 and 2, which separate properties, is in buf[p : end]."""
    return _SEPARATOR.search(buf, p, end) is not None
