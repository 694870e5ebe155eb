"""The bloom filter of dispatch: which consumers a message is for, in a bit map of 14 bytes.

Each consumer of a topic has a few bit positions, derived from its name; a message's map has the bits of all consumers
whose expression is true of it. So a clear bit means that the message certainly does not match, and a set bit that it
may match.

Source:
    filter/util/{BloomFilter,BloomFilterData,BitsArray}.java; Guava's Hashing.murmur3_128.
"""

import math
from typing import Final, NamedTuple

_MASK: Final = 0xFFFFFFFFFFFFFFFF
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F


class BloomFilterData(NamedTuple):
    """A consumer's bits: their positions in a map of `bit_num` bits."""

    bit_pos: tuple[int, ...]
    bit_num: int


class BloomFilter:
    """Sizes of a bloom filter for an error rate of `f` percent with `n` consumers.

    Attributes:
        k: positions of each consumer.
        m: bits of a map, a multiple of 8.
    """

    def __init__(self, f: int, n: int) -> None:
        """Raises ValueError unless 1 <= f < 100 and n >= 1."""
        if not 1 <= f < 100 or n < 1:
            raise ValueError(f"a bloom filter has an error rate of 1 to 99 percent, not {f}, for 1 or more, not {n}")
        rate = f / 100
        self.k = math.ceil(math.log(rate) / math.log(0.5))
        bits = math.ceil(n * (math.log(1 / rate) / math.log(2)) * (math.log(math.e) / math.log(2)))
        self.m = 8 * math.ceil(bits / 8)

    def generate(self, name: str) -> BloomFilterData:
        """Return the bits of the consumer `group#topic`."""
        hash64 = murmur3_128(name.encode("utf-8", "replace"))
        low, high = _int(hash64), _int(hash64 >> 32)
        combined = (_int(low + number * high) for number in range(1, self.k + 1))
        return BloomFilterData(tuple((~value if value < 0 else value) % self.m for value in combined), self.m)

    def is_valid(self, data: BloomFilterData) -> bool:
        """Returns whether these bits belong to a filter of these sizes."""
        return data.bit_num == self.m and len(data.bit_pos) == self.k and all(0 <= p < self.m for p in data.bit_pos)


def set_bits(bits: bytearray, data: BloomFilterData) -> None:
    """Set a consumer group's bits in the bit map of a message."""
    for position in data.bit_pos:
        bits[position >> 3] |= 1 << (position & 7)


def has_bits(bits: bytes | memoryview, data: BloomFilterData) -> bool:
    """Returns False if the message is certainly not for this consumer, else True."""
    return all(bits[position >> 3] >> (position & 7) & 1 for position in data.bit_pos)


def murmur3_128(data: bytes) -> int:
    """Return the first 64 bits of the x64 variant with seed 0, as an unsigned number."""
    h1 = h2 = 0
    whole = len(data) // 16 * 16
    for at in range(0, whole, 16):
        h1 ^= _mixed_1(int.from_bytes(data[at : at + 8], "little"))
        h1 = (_rotated(h1, 27) + h2) * 5 + 0x52DCE729 & _MASK
        h2 ^= _mixed_2(int.from_bytes(data[at + 8 : at + 16], "little"))
        h2 = (_rotated(h2, 31) + h1) * 5 + 0x38495AB5 & _MASK
    rest = data[whole:]
    h1 ^= _mixed_1(int.from_bytes(rest[:8], "little"))
    h2 ^= _mixed_2(int.from_bytes(rest[8:], "little"))
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = h1 + h2 & _MASK
    h2 = h2 + h1 & _MASK
    return _final(h1) + _final(h2) & _MASK


def _mixed_1(k: int) -> int:
    return _rotated(k * _C1 & _MASK, 31) * _C2 & _MASK


def _mixed_2(k: int) -> int:
    return _rotated(k * _C2 & _MASK, 33) * _C1 & _MASK


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _final(k: int) -> int:
    k = (k ^ k >> 33) * 0xFF51AFD7ED558CCD & _MASK
    k = (k ^ k >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return k ^ k >> 33


def _int(value: int) -> int:
    """Return the low 32 bits of a number as a signed number, as a cast to int does in Java."""
    return (value + 0x80000000 & 0xFFFFFFFF) - 0x80000000
