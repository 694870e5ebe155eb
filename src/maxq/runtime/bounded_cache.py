"""BoundedCache: a cache of what is costly to make, bounded by entries and by the text of its keys.

Others choose the keys, and a key may be a quarter of a megabyte (an expression in a request). When the next entry would
exceed a bound, the cache is emptied: entries that are still used are added again.
"""

from collections.abc import Callable
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class BoundedCache(dict[Key, Value]):
    """Look up with `get`, add with `keep`.

    Args:
        most: entries.
        most_size: sum of `size_of(key)` over all entries.
        size_of: characters or bytes of a key that count.
    """

    def __init__(self, most: int, most_size: int, size_of: Callable[[Key], int]) -> None:
        super().__init__()
        self._most = most
        self._most_size = most_size
        self._size_of = size_of
        self.size = 0  # total size of all keys

    def keep(self, key: Key, value: Value) -> None:
        """Add or replace an entry."""
        if key not in self:
            size = self._size_of(key)
            if len(self) >= self._most or self.size + size > self._most_size:
                self.clear()
            self.size += size
        self[key] = value

    def forget(self, is_gone: Callable[[Key, Value], bool]) -> None:
        """Remove the entries for which `is_gone(key, value)` is true."""
        for key in [key for key, value in self.items() if is_gone(key, value)]:
            self.size -= self._size_of(key)
            del self[key]

    def clear(self) -> None:
        """Remove all entries of this cache."""
        super().clear()
        self.size = 0


def text_size(key: tuple[str, ...]) -> int:
    """Return the number of characters of a key that consists of texts."""
    return sum(map(len, key))
