"""Turns: what is long by nature is done in turns of the loop, and everybody else is served in between.

A request about all topics, groups or members of a broker takes time in proportion to them, seconds at worst. It is
answered by a coroutine that calls `rest` after each small piece of its work.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar

#: How long one turn of long work lasts: long enough that changing over costs little, short enough to wait for.
TURN_SECONDS: Final = 0.005

Item = TypeVar("Item")


class Turns:
    """The turns of one piece of work. On a loop of virtual time, which does not advance while code runs, there is one
    turn."""

    __slots__ = ("_ends", "_time")

    def __init__(self) -> None:
        self._time = asyncio.get_running_loop().time
        self._ends = self._time() + TURN_SECONDS

    async def rest(self) -> None:
        """Yield to the event loop if this turn has lasted TURN_SECONDS; otherwise return at once."""
        if self._time() >= self._ends:
            await asyncio.sleep(0)
            self._ends = self._time() + TURN_SECONDS

    async def over(self, items: Iterable[Item]) -> AsyncIterator[Item]:
        """Yield the items, with a rest after each; they must not change meanwhile."""
        for item in items:
            yield item
            await self.rest()
