"""Deleted topics: where in the log each topic was deleted last.

A topic is deleted by a record of the log (`DELETED_TOPIC`, transaction type ROLLBACK, which every broker's dispatch
leaves out of queues and index). Its body is a JSON list of topic names. Messages of these topics that lie before that
record in the log are deleted permanently; messages behind it belong to a new topic of the same name, whose queues begin
at 0. Slaves and DLedger members read the record where it stands between the messages, as every recovery does, so all of
them agree on what was deleted. Nothing in the log is ever changed for it.

The physical offset of that record is the topic's *incarnation*: 0 for a topic that was never deleted. Master, slaves
and members of a DLedger group give the same number, and it changes exactly when the topic's messages are gone and its
queue offsets begin anew.

`deletions.json` in the store's root keeps the table. It is written with every inventory of the queues, before it, and
remembers records that the log has lost to retention. Rows about the log behind the start of a recovery's replay are not
taken from the file, but read from the log again. A Java broker ignores both the record and the file.

A copy whose log begins behind records that delete topics does not know these (`unknown_before`), and neither does a
store that has lost the file together with the beginning of its log. It takes them from its master, with the consumer
offsets, or, in a DLedger group, from the leader's record of all tables.
"""

import logging
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any, Final, NamedTuple

import orjson

from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.message_const import PROPERTY_CRC32
from maxq.runtime.interfaces import Disk

log = logging.getLogger(__name__)

#: Topic of the records of deletions. Nobody may send to it.
DELETED_TOPIC: Final = "rmq_sys_maxq_deleted"
#: The topic of the records that say what the tables of a DLedger group are (broker/dledger/table_records.py). Nobody
#: may send to it either.
TABLES_TOPIC: Final = "rmq_sys_maxq_tables"
#: Most names in one record.
MOST_NAMES: Final = 10_000
FILE_NAME: Final = "deletions.json"
_VERSION = 1
#: Topics that the table remembers; of more, those that were deleted longest ago are forgotten.
_MOST_ROWS = 100_000


def encode_names(topics: Iterable[str]) -> bytes:
    """Return the body of a record that deletes `topics`."""
    return orjson.dumps(sorted(topics))


def deleted_names(message: MessageExt) -> list[str]:
    """Return the topics that a `DELETED_TOPIC` record deletes. The list is empty if the body is not such a list, or if
    the record has properties: then it is a message that a Java broker took from a client."""
    if message.properties.keys() - {PROPERTY_CRC32}:
        log.error(
            "the record at physical offset %d deletes topics, but a client sent it; it is ignored",
            message.physical_offset,
        )
        return []
    try:
        names = orjson.loads(message.body)
    except ValueError:
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        log.error("the record at physical offset %d deletes topics, but names none", message.physical_offset)
        return []
    return names


def decode_table(data: bytes) -> dict[str, int]:
    """Incarnation by topic, in the order of the log: the content of `deletions.json`.

    Raises:
        ValueError: it is not such a table, or of a later version.
    """
    return _in_order(_checked(orjson.loads(data))[0])


def _checked(found: Any) -> tuple[dict[str, int], int]:
    """Return topics and `unknown_before` of a table in JSON. Raises ValueError as `decode_table` does."""
    if not isinstance(found, Mapping) or found.get("version") != _VERSION or not isinstance(found.get("topics"), dict):
        raise ValueError(f"this is no table of deleted topics of version {_VERSION}")
    topics, unknown_before = found["topics"], found.get("unknownBefore", 0)
    if not all(isinstance(at, int) for at in (*topics.values(), unknown_before)):
        raise ValueError("a deleted topic has no physical offset")
    return topics, unknown_before


def _in_order(topics: dict[str, int]) -> dict[str, int]:
    return dict(sorted(topics.items(), key=lambda row: row[1]))


class DeletionsFile(NamedTuple):
    """The content for deletions.json, with the number of changes and the `unknown_before` of the moment at which it was
    taken."""

    moment: tuple[int, int]
    value: dict[str, Any]


class Deletions:
    """The table of deleted topics of one store.

    Attributes:
        path: of its file.
        unknown_before: what lies before this physical offset, where the log began when this copy was made, may have
            deleted topics that this table does not know; 0: it knows all.
    """

    def __init__(self, disk: Disk, root: PurePath) -> None:
        self._disk = disk
        self.path = root / FILE_NAME
        self.unknown_before = 0
        self._rows: dict[str, int] = {}  # in the order of the log
        self._doubtful: dict[str, int] = {}  # rows of the file about the part of the log that is being replayed
        self._changes = 0
        self._saved: tuple[int, int] | None = self._moment  # the state that the file has; None: there is no file

    @property
    def _moment(self) -> tuple[int, int]:
        return self._changes, self.unknown_before

    def __len__(self) -> int:
        return len(self._rows)

    def at(self, topic: str) -> int:
        """Returns the topic's incarnation: the physical offset of the record that deleted it last; 0 if it was never
        deleted."""
        return self._rows.get(topic, 0)

    def known(self, topic: str) -> int | None:
        """Return the topic's incarnation; None if this copy of the log begins behind deletions whose records it has not
        learned of yet."""
        found = self.at(topic)
        return None if not found and self.unknown_before else found

    def since(self, physical_offset: int) -> dict[str, int]:
        """Return the topics that were deleted behind `physical_offset`, with their incarnations, in the order of the
        log."""
        return {topic: at for topic, at in self._rows.items() if at > physical_offset}

    @property
    def newest(self) -> int:
        """Physical offset of the newest deletion; 0 if nothing was ever deleted."""
        return next(reversed(self._rows.values()), 0)

    def is_gone(self, topic: str, physical_offset: int) -> bool:
        """Returns whether the topic was deleted after the record at `physical_offset` was stored."""
        return physical_offset < self._rows.get(topic, 0)

    def is_deleted_since(self, topic: str, physical_offset: int) -> bool:
        """Returns whether a record at `physical_offset` or behind it deletes the topic."""
        return self._rows.get(topic, -1) >= physical_offset

    def rows(self) -> dict[str, int]:
        """Returns the incarnation of each topic that was deleted, in the order of the log."""
        return dict(self._rows)

    def to_json(self) -> dict[str, Any]:
        """Returns the content of deletions.json: its version, and the incarnation of each topic that was ever
        deleted."""
        unknown = {"unknownBefore": self.unknown_before} if self.unknown_before else {}
        return {"version": _VERSION, **unknown, "topics": dict(self._rows)}

    def put(self, topic: str, physical_offset: int) -> None:
        """Note that the record at `physical_offset` deletes the topic. A record older than the known one changes
        nothing."""
        if physical_offset > self._rows.get(topic, -1):
            self._changes += 1
            self._rows.pop(topic, None)
            self._rows[topic] = physical_offset
            if len(self._rows) > _MOST_ROWS:
                del self._rows[next(iter(self._rows))]

    # --- what the own log does not have ---

    def begins_at(self, physical_offset: int) -> None:
        """Note that this copy of the log begins at this physical offset and never held anything before it."""
        self.unknown_before = physical_offset

    def adopt(self, value: Mapping[str, Any]) -> int:
        """Add the unknown deletions of another broker's table (`to_json`), whose log is the same.

        Returns:
            Physical offset of the newest deletion that was not known; 0 if there is none.

        Raises:
            ValueError: it is not such a table.
        """
        topics, unknown_before = _checked(value)
        end, self.unknown_before = self.unknown_before, min(self.unknown_before, unknown_before)
        taken = {topic: at for topic, at in topics.items() if self._rows.get(topic, -1) < at < end}
        if taken:
            self._changes += 1
            self._rows = _in_order({**self._rows, **taken})
        return max(taken.values(), default=0)

    # --- recovery ---

    def replay_from(self, physical_offset: int) -> None:
        """Prepare for the log being dispatched again from this physical offset: the deletions behind it are then
        learned again."""
        self._doubtful = {topic: at for topic, at in self._rows.items() if at >= physical_offset}
        if self._doubtful:
            self._changes += 1
            self._rows = {topic: at for topic, at in self._rows.items() if at < physical_offset}

    def lost_in(self, start: int, end: int) -> list[tuple[str, int]]:
        """Return the topics that were deleted in [start, end) according to the file, where the damaged log no longer
        has the records."""
        return [(topic, at) for topic, at in self._doubtful.items() if start <= at < end]

    # --- file ---

    def load(self) -> str | None:
        """Read the file. Blocks. Returns its fault; None if there is none."""
        self._rows, self.unknown_before = {}, 0
        self._changes += 1
        self._saved = self._moment
        if not self._disk.exists(self.path):
            return None
        self._saved = None
        try:
            topics, self.unknown_before = _checked(orjson.loads(self._disk.read(self.path)))
        except ValueError as error:
            return f"{self.path} cannot be read: {error}; the deletions are read from the log"
        self._rows = _in_order(topics)
        self._saved = self._moment
        return None

    def to_file(self) -> DeletionsFile:
        """Return the content that `save` is to write."""
        return DeletionsFile(self._moment, self.to_json())

    def save(self, wanted: DeletionsFile) -> None:
        """Replace the file, atomically and durably, unless it has this content already. Blocks."""
        if wanted.moment != self._saved:
            self._disk.replace(self.path, orjson.dumps(wanted.value))
            self._saved = wanted.moment
