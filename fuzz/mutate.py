"""Damage to well-formed inputs: what a random byte string would never reach."""

import random

INTERESTING = [0, 1, 2, 0x16, 0x22, 0x27, 0x2C, 0x3A, 0x5B, 0x5C, 0x5D, 0x7B, 0x7D, 0x7F, 0x80, 0xFE, 0xFF]
NUMBERS = [0, 1, -1, 2, 4, 20, 21, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 0x7FFFFF, 0xFFFFFF, 0x1000000,
           0x7FFFFFFF, -0x80000000, 0x7FFFFFFFFFFFFFFF]  # fmt: skip


def mutate(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    """`data` with one to six faults."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        rng.choice(FAULTS)(rng, found, others)
    return bytes(found)


def _place(rng: random.Random, data: bytearray) -> int:
    return rng.randrange(len(data) + 1)


def _flip_bit(rng: random.Random, data: bytearray, others: list[bytes]) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set_byte(rng: random.Random, data: bytearray, others: list[bytes]) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.choice(INTERESTING)


def _set_number(rng: random.Random, data: bytearray, others: list[bytes]) -> None:
    width = rng.choice((2, 3, 4, 8))
    if len(data) >= width:
        at = rng.randrange(len(data) - width + 1)
        data[at : at + width] = (rng.choice(NUMBERS) & (1 << 8 * width) - 1).to_bytes(width, "big")


def _add_to_number(rng: random.Random, data: bytearray, others: list[bytes]) -> None:
    if len(data) >= 4:
        at = rng.randrange(len(data) - 3)
        value = int.from_bytes(data[at : at + 4], "big") + rng.randint(-8, 8)
        data[at : at + 4] = (value & 0xFFFFFFFF).to_bytes(4, "big")


def _cut(rng: random.Random, data: bytearray, others: list[bytes]) -> None:
    del data[_place(rng, data) :]


def _remove(rng: random.Random, data: bytearray, others: list[bytes]) -> None:
    at = _place(rng, data)
    del data[at : at + rng.choice((1, 2, 4, 8, 40))]


def _insert(rng: random.Random, data: bytearray, others: list[bytes]) -> None:
    at = _place(rng, data)
    data[at:at] = bytes(rng.choice(INTERESTING) for _ in range(rng.choice((1, 1, 2, 4))))


def _repeat(rng: random.Random, data: bytearray, others: list[bytes]) -> None:
    at = _place(rng, data)
    piece = bytes(data[at : at + rng.choice((1, 3, 10, 50))])
    data[at:at] = piece * rng.choice((1, 2, 5, 200))


def _splice(rng: random.Random, data: bytearray, others: list[bytes]) -> None:
    other = rng.choice(others)
    start = rng.randrange(len(other) + 1)
    data[_place(rng, data) :] = other[start:]


def _text(rng: random.Random, data: bytearray, others: list[bytes]) -> None:
    pieces = [b"null", b"true", b"-1", b"1e999", b"9" * 30, b"{}", b"[]", b'""', b"\\u0000", b"\\ud800", b"//", b"/*",
              b'{"$ref":"$"}', b"\x01", b"\x02", b",", b":", b"\xc3", b"\xed\xa0\x80", b"'"]  # fmt: skip
    at = _place(rng, data)
    data[at : at + rng.choice((0, 0, 1, 5))] = rng.choice(pieces)


FAULTS = [
    _flip_bit, _set_byte, _set_number, _add_to_number, _cut, _remove, _insert, _repeat, _splice, _text,
]  # fmt: skip
