"""Places: where a page of a table begins that changes from one page to the next.

The rows are counted in the order of the table's dict. A new key comes to the end; a key that goes moves all behind it
forward by one. So a page that begins as many rows earlier as keys have gone since the page before passes over no row
that has stayed. Rows may be read twice.
"""

import itertools
from typing import Final

_TABLES: Final = itertools.count(1)


class Places:
    """Marks of pages: `table.gone.position`, of which the reader only knows that he sends them back."""

    def __init__(self) -> None:
        self._table = next(_TABLES)  # another one from the first row on has another number
        self._gone = 0  # keys, since the table is there

    def count_gone(self) -> None:
        """Note that one key (topic and group) was removed from the table of consumer offsets."""
        self._gone += 1

    def mark_of(self, position: int) -> str:
        """The mark of the page that begins behind the first `position` rows."""
        return f"{self._table}.{self._gone}.{position}"

    def position_of(self, mark: str) -> int:
        """Behind how many rows the page of `mark` begins: 0 for a mark of another table, or of another process."""
        numbers = mark.split(".")
        if len(numbers) != 3 or not all(number.isascii() and number.isdigit() for number in numbers):
            return 0
        table, gone, position = map(int, numbers)
        return max(position - (self._gone - gone), 0) if table == self._table else 0
