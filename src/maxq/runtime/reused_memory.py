"""ReusedMemory: large blocks of memory that are used again, because new ones cost more than what is done in them: the
system clears each page of a new block when it is first touched."""

import sys
from typing import Final

_STEP: Final = 64 << 10
_MOST_LARGER: Final = 4  # a block that is larger than the wanted size by this factor is not given out for it


def _taken(blocks: list[bytearray]) -> tuple[bytearray, int]:
    """Take out the last block. Returns it, and its `getrefcount` here, which is _ALONE (a number that differs between
    releases of Python) if nothing else refers to it."""
    block = blocks.pop()
    return block, sys.getrefcount(block)


_ALONE: Final = _taken([bytearray(1)])[1]


class ReusedMemory:
    """Gives out blocks of memory. One is used again when nobody refers to it any more, be it by a memoryview, an Arrow
    buffer or an array: no call gives it back. Threads may share it.

    Args:
        most_bytes: of all blocks that are kept; more are made when they are needed, and then forgotten.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._blocks: list[bytearray] = []  # the block that was given out last is at the end

    def take(self, size: int) -> bytearray:
        """Return a block of `size` bytes or more, with anything in it. It belongs to whoever refers to it."""
        blocks = self._blocks
        passed: list[bytearray] = []
        found: bytearray | None = None
        while blocks:  # each is removed first, so that another thread does not take the same block
            try:
                block, references = _taken(blocks)
            except IndexError:
                break
            if references == _ALONE and size <= len(block) <= _MOST_LARGER * max(size, _STEP):
                found = block
                break
            passed.append(block)
        passed.reverse()
        blocks.extend(passed)
        if found is None:
            found = bytearray(-(-size // _STEP) * _STEP)
            self._make_room(len(found))
        if len(found) <= self._most_bytes:
            blocks.append(found)
        return found

    def _make_room(self, size: int) -> None:
        """Forget the blocks that were not given for the longest time, if there would be too much."""
        total = size + sum(map(len, self._blocks))
        while total > self._most_bytes and self._blocks:
            total -= len(self._blocks.pop(0))
