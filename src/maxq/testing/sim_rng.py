"""Chance that is the same for the same seed on every Python version."""

from collections.abc import Sequence
from struct import pack
from typing import TypeVar

T = TypeVar("T")

_MASK = (1 << 64) - 1
_FLOATS = 1 << 53


class SimRng:
    """SplitMix64 behind the interface `Rng`.

    Not `random.Random`: the order in which its helpers draw is not promised from one Python release to the next, and
    a failing seed must fail everywhere.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._state = (seed * 0x9E3779B97F4A7C15 + 0xD1B54A32D192ED03) & _MASK

    def next64(self) -> int:
        """Return the next 64 random bits."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        bits = self._state
        bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & _MASK
        return bits ^ (bits >> 31)

    def below(self, bound: int) -> int:
        """Return a uniform integer in [0, bound); the bias of the modulo is below 2**-32 for what simulations ask."""
        if bound <= 0:
            raise ValueError(f"below({bound}): the bound must be positive")
        return self.next64() % bound

    def bytes(self, count: int) -> bytes:
        """Return `count` random bytes."""
        state, words = self._state, []
        for _ in range(-(-count // 8)):  # next64, inlined to save a call for each
            state = (state + 0x9E3779B97F4A7C15) & _MASK
            bits = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
            bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & _MASK
            words.append(bits ^ (bits >> 31))
        self._state = state
        return pack(f">{len(words)}Q", *words)[:count]

    def between(self, low: int, high: int) -> int:
        """Return a uniform integer in [low, high]."""
        return low + self.below(high - low + 1)

    def uniform(self, low: float, high: float) -> float:
        """Return a uniform float in [low, high)."""
        return low + (high - low) * (self.next64() >> 11) / _FLOATS

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return (self.next64() >> 11) / _FLOATS < probability

    def choice(self, items: Sequence[T]) -> T:
        """Return one of the items."""
        return items[self.below(len(items))]

    def fork(self, name: str) -> "SimRng":
        """Return a generator for one part, so that the draws of one part do not change another's."""
        mixed = self.seed & _MASK
        for char in name:
            mixed = ((mixed ^ ord(char)) * 0x100000001B3) & _MASK
        return SimRng(mixed)
