"""OffsetTable: queue offsets of groups, as files and answers have them: {"topic@group": {queue id: offset}}; with its
index by group and topic (KeyIndex), and the pages in which slaves take it (PageMarks)."""

import itertools
from collections.abc import Iterable, Mapping
from json.encoder import encode_basestring
from typing import Any, Final

from maxq.broker.tables.persistent_manager import object_member
from maxq.errors import RemoteProtocolError
from maxq.protocol.json.json_dialect import dumps_pretty

OffsetTable = dict[str, dict[int, int]]


# PageMarks: where a page of a table begins that changes from one page to the next.
#
# The rows are counted in the order of the table's dict. A new key comes to the end; a key that goes moves all behind it
# forward by one. So a page that begins as many rows earlier as keys have gone since the page before passes over no row
# that has stayed. Rows may be read twice.

_TABLES: Final = itertools.count(1)


class PageMarks:
    """Makes and reads the marks that say where the next page of the table of consumer offsets begins. A mark is
    `table.gone.position`: a number of the table, how many keys were removed from it, and rows passed. A reader that
    gets the table page by page sends each mark back unchanged."""

    def __init__(self) -> None:
        # number of this table: one that is replaced has another, and is read from its first row again
        self._table = next(_TABLES)
        self._gone = 0  # keys that were removed since the table was made

    def count_gone(self) -> None:
        """Note that one key (topic and group) was removed from the table of consumer offsets."""
        self._gone += 1

    def mark_of(self, position: int) -> str:
        """Return the mark of the page that begins behind the first `position` rows."""
        return f"{self._table}.{self._gone}.{position}"

    def position_of(self, mark: str) -> int:
        """Return the number of rows before the page of `mark`: 0 for a mark of another table, or of another process."""
        numbers = mark.split(".")
        if len(numbers) != 3 or not all(number.isascii() and number.isdigit() for number in numbers):
            return 0
        table, gone, position = map(int, numbers)
        return max(position - (self._gone - gone), 0) if table == self._table else 0


# KeyIndex: of which topics each group has offsets, and which groups of each topic, without a walk over all keys for
# each question (`consumerProgress` asks for every group).


class KeyIndex:
    """Index of the keys `topic@group` of a table. The owner of the table adds and removes keys here, too.

    Attributes:
        topics: by group; a dictionary without values, which keeps the order in which they came.
        groups: the groups of each topic, in the same form.
    """

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self.topics: dict[str, dict[str, None]] = {}
        self.groups: dict[str, dict[str, None]] = {}
        for key in keys:
            self.add(key)

    def add(self, key: str) -> None:
        """Add a key that the table has; it may be in the index already."""
        topic, group = split_key(key)
        self.topics.setdefault(group, {})[topic] = None
        self.groups.setdefault(topic, {})[group] = None

    def remove(self, key: str) -> None:
        """Remove from this index a key `topic@group` that the table of offsets no longer has."""
        topic, group = split_key(key)
        for names, name, other in ((self.topics, group, topic), (self.groups, topic, group)):
            del names[name][other]
            if not names[name]:
                del names[name]

    def of_topic(self, topic: str) -> list[str]:
        """Return all keys `topic@group` of the table of offsets whose topic is `topic`."""
        return [f"{topic}@{group}" for group in self.groups.get(topic, ())]

    def of_group(self, group: str) -> list[str]:
        """Return all keys `topic@group` of the table of offsets whose group is `group`."""
        return [f"{topic}@{group}" for topic in self.topics.get(group, ())]


def split_key(key: str) -> tuple[str, str]:
    """Split `topic@group` into (topic, group)."""
    topic, _, group = key.rpartition("@")
    return topic, group


def group_topic_map(keys: Iterable[str]) -> dict[str, list[str]]:
    """Return topics by group: a derived member that Java writes and ignores."""
    result: dict[str, list[str]] = {}
    for key in keys:
        topic, group = split_key(key)
        result.setdefault(group, []).append(topic)
    return result


def offset_row(key: str, offsets: Mapping[int, int]) -> bytes:
    """Encode a row of the member `offsetTable` as compact JSON."""
    numbers = ",".join([f'"{queue_id}":{offset}' for queue_id, offset in offsets.items()])
    return f"{encode_basestring(key)}:{{{numbers}}}".encode(errors="replace")


def flat_row(key: str, offset: int) -> bytes:
    """Encode a row of the member `lmqOffsetTable` as compact JSON."""
    return f"{encode_basestring(key)}:{offset}".encode(errors="replace")


def offset_file(value: Mapping[str, Any]) -> bytes:
    """Return the text of consumerOffset.json: the version, truth values, and tables whose rows are numbers by queue id,
    a number, or a list of names or numbers.

    It is made every few seconds in a thread, beside a loop that wants the interpreter: row by row, so that no step
    keeps it for long.
    """
    members = [
        dumps_pretty({name: member})[2:-2].decode()
        if name == "dataVersion" or isinstance(member, bool)
        else _pretty_table(name, member)
        for name, member in value.items()
    ]
    return "".join(("{\n", ",\n".join(members), "\n}")).encode(errors="replace")


def _pretty_table(name: str, table: Mapping[str, dict[int, int] | list[str | int] | int]) -> str:
    rows = ",\n\t\t".join(f"{encode_basestring(key)}:{_row(row)}" for key, row in table.items())
    return f'\t"{name}":{{\n\t\t{rows}\n\t}}' if rows else f'\t"{name}":{{}}'


def _row(row: dict[int, int] | list[str | int] | int) -> str:
    if isinstance(row, dict):
        return f"{{{','.join([f'{queue_id}:{offset}' for queue_id, offset in row.items()])}}}"
    if isinstance(row, list):
        return f"[{','.join([encode_basestring(one) if isinstance(one, str) else str(one) for one in row])}]"
    return str(row)


def keys_on(page: Mapping[str, Any]) -> set[str]:
    """Return `topic@group` of all rows of a page of another broker's offsets."""
    return {*(page.get("offsetTable") or {}), *(page.get("lmqOffsetTable") or {})}


def read_offset_table(value: Mapping[str, Any]) -> OffsetTable:
    """Read the member `offsetTable` of a file or an answer; empty if there is none.

    Raises:
        RemoteProtocolError: these are not offsets.
    """
    return {key: _queue_offsets(key, table) for key, table in object_member(value, "offsetTable").items()}


def _queue_offsets(key: str, table: Any) -> dict[int, int]:
    if not isinstance(table, dict):
        raise RemoteProtocolError(f"offsets of {key} are an object, not {type(table).__name__}")
    try:
        return {int(queue_id): int(offset) for queue_id, offset in table.items()}
    except (TypeError, ValueError):
        raise RemoteProtocolError(f"offsets of {key} are numbers by queue id, not {table!r:.80}") from None
