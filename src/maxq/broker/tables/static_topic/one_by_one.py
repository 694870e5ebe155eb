"""OneByOne: changes of the same thing are made one after the other, in the order in which they came."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager


class OneByOne:
    """Turns by key. The tables have a row for each key of which a change is under way."""

    def __init__(self) -> None:
        self._locks: dict[Hashable, asyncio.Lock] = {}
        self._users: Counter[Hashable] = Counter()

    def is_busy(self, key: Hashable) -> bool:
        """Return whether a change is under way, or waits for its turn."""
        return key in self._locks

    @asynccontextmanager
    async def turn(self, key: Hashable) -> AsyncIterator[None]:
        """Wait for the changes of the key that came before, and hold up those that come later."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._users[key] += 1
        try:
            async with lock:
                yield
        finally:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key], self._locks[key]
