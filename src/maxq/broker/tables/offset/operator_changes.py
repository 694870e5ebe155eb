"""OperatorChanges: when operators have last set (reset, clone) or removed consumer offsets.

An offset that another broker of the group tells may be from before such a change: its copy of the table is older, or it
was committed there while the master was away. So each change has a number, and the offset that a broker reports for a
key counts only if the broker knows of the last change of that key. Numbers grow: they are the wall time in ms, or one
more than the largest.

    topic@group    its offsets were set
    @group         all offsets of the group were removed

The numbers are in the file of the offsets (`operatorChanges`) and in the copies that slaves take; Java's brokers ignore
them. Only the `MOST` with the largest numbers are kept: a broker that was away since an older change is not told of it;
and a broker that has this many changes may have forgotten an older one, so it counts as knowing it.
"""

from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any, Final

from maxq.broker.tables.offset.offset_table import split_key
from maxq.errors import RemoteProtocolError

NAME: Final = "operatorChanges"
MOST: Final = 1_000


def of_group(group: str) -> str:
    """Return the key of the removal of all offsets of a group."""
    return f"@{group}"


class OperatorChanges:
    """Numbers of changes by key, the smallest first."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._last = 0

    def note(self, key: str, now_ms: int) -> None:
        """Note a change that an operator makes here."""
        self._put(key, max(now_ms, self._last + 1))

    def _put(self, key: str, number: int) -> None:
        self._numbers.pop(key, None)
        self._numbers[key] = number
        if number < self._last:  # made by another broker, before the last change that is known here
            self._numbers = dict(sorted(self._numbers.items(), key=itemgetter(1)))
        self._last = max(self._last, number)
        while len(self._numbers) > MOST:
            del self._numbers[next(iter(self._numbers))]

    def of(self, key: str) -> int:
        """Return the number of the last change of `topic@group`; 0 if none is known."""
        return max(self._numbers.get(key, 0), self._numbers.get(of_group(split_key(key)[1]), 0))

    @property
    def _complete_from(self) -> int:
        """Return the number from which on all changes are here; some with smaller numbers may be forgotten."""
        return next(iter(self._numbers.values())) if len(self._numbers) == MOST else 0

    def unknown_to(self, other: "OperatorChanges") -> Iterator[str]:
        """Yield the keys of changes that `other` does not know."""
        for key, number in list(self._numbers.items()):
            if number > other._numbers.get(key, 0) and number >= other._complete_from:
                yield key

    def tells_more_of(self, key: str, other: "OperatorChanges") -> bool:
        """Return whether there is a change of `topic@group` here that `other` does not know."""
        number = self.of(key)
        return number > other.of(key) and number >= other._complete_from

    def adopt(self, other: "OperatorChanges") -> None:
        """Know of all changes of which `other` knows."""
        for key in other.unknown_to(self):
            self._put(key, other._numbers[key])

    def to_json(self) -> dict[str, int]:
        return dict(self._numbers)

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> "OperatorChanges | None":
        """Read those in another broker's table of offsets; None if it does not say, as Java's.

        Raises:
            RemoteProtocolError: they are not numbers.
        """
        numbers = table.get(NAME)
        if numbers is None:
            return None
        changes = cls()
        try:
            for key, number in numbers.items():
                changes._put(str(key), int(number))
        except (AttributeError, TypeError, ValueError):
            raise RemoteProtocolError(f"{NAME} are numbers by topic@group, not {numbers!r:.80}") from None
        return changes
