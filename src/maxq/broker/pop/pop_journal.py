"""PopJournal: the state of pop consumption that must survive a restart, in the log. All changes of one moment are one
record.

Check points and acks live in memory (check_point_buffer.py). Java writes a record for each of them, which then goes
through the timer and the revive topic. Here one small record in JOURNAL_TOPIC says what has changed, so that a broker
that was killed knows again which messages were given to whom and which were acknowledged. A record is a JSON object of
lists:

    p   check points: [number, topic, group, queue, popTime, invisibleTime, reviveQid, startOffset, distances,
        nextBeginOffset (-1: the cursor does not move), suspend (0 or 1)]
    a   acks: [number of the check point, bits]
    e   numbers of check points that ended otherwise: revived, or handed over to the revive topic
    d   check points of the revive topic that were revived: [queue of it, offset of the record]
    t   numbers of two check points that hold the same message (see check_point_buffer.py)
    l   messages that such a check point has left to the other one, or that were acknowledged by the other one's
        receipt: [number of the check point, bits]
    h   receipts that the one message of a check point had before its time was changed: [number of the check point,
        startOffset, popTime, brokerName]
    r   offsets at which an administrator lets a group continue: [topic, group, queue, offset (-1: it begins anew)]
    b   offsets at which a group began at the end of a queue: [topic, group, queue, offset]. They are used for a group
        without an offset, which a start would otherwise let begin at the queue's present end
    o   queues consumed in order: [topic, group, queue, committed offset, order info as in consumerOrderInfo.json]
    u   copies in retry topics that a start cannot attribute to a check point (unfinished_revives.py): [topic, queue,
        offset]
    w   check points whose message has been replaced by another check point in the revive topic, which the next record
        of the log acknowledges there: [number of the check point, when the time of the other one ends, ms]
    m   acks that the revive topic had not taken yet: [topic, group, queue, startOffset, popTime, invisibleTime,
        reviveQid, brokerName, queue offsets]; every start that reads them writes them
    c   copies as in `u` that belong to the check points which the same record ends: [topic, queue, offset]

Rows of a topic that was deleted behind the record are ignored: a topic of the same name that was made since begins
anew.

Only the broker writes to this topic. A record that does not have this form is skipped, because it would otherwise fail
every start.

Reading begins at the committed offset of JOURNAL_GROUP, in the same file as the groups' own offsets: at the first
record that is still needed. The offset of JOURNAL_SET_GROUP lies behind the last record with rows "r" that the groups'
offsets include; since then a group has moved on by pulls, which the journal does not record.

A Java broker ignores all this. If the last broker ended cleanly, Java finds every check point in the revive topic,
because they are handed over at the end; after a crash it begins at the groups' committed offsets.
"""

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Any, Final

import orjson

from maxq.broker.tables.offset.consumer_offset_manager import ConsumerOffsetManager
from maxq.broker.tables.topic.topic_validator import JOURNAL_GROUP, JOURNAL_SET_GROUP, JOURNAL_TOPIC
from maxq.errors import RemoteProtocolError
from maxq.protocol.message.record_layout import body_size_at, sys_flag_of
from maxq.runtime.interfaces import Clock
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.durability.log_marks import LogMark
from maxq.store.message_store import MessageStore
from maxq.store.queue.unit_scan_cy import DAMAGED_TAGS_CODE
from maxq.store.store_results import PutMessageResult, PutMessageStatus

log = logging.getLogger(__name__)


#: Takes the place of a physical offset where the record is not in the log, so that nothing that depends on it may be
#: promised.
NOT_NOTED: Final = -1

#: Takes the place of a queue offset where no slave of this broker may act as master, so that no slave needs the
#: journal.
NO_SLAVE: Final = 1 << 62

_Kind = type | tuple[type, ...]
#: Kind of row → the types of its values.
_ROWS: Final[dict[str, tuple[_Kind, ...]]] = {
    "p": (int, str, str, int, int, int, int, int, list, int, int, (str, type(None))),
    "a": (int, int),
    "d": (int, int),
    "t": (int, int),
    "l": (int, int),
    "h": (int, int, int, str),
    "r": (str, str, int, int),
    "b": (str, str, int, int),
    "o": (str, str, int, int, dict),
    "u": (str, int, int),
    "c": (str, int, int),
    "w": (int, int),
    "m": (str, str, int, int, int, int, int, (str, type(None)), list),
}
_TOPICS: Final = {"p": 1, "r": 0, "b": 0, "o": 0, "u": 0, "c": 0, "m": 0}  # the place of the topic in a row
_IN_ORDER: Final = "phaltedrboucwm"  # order in which a start applies the rows of one record
_DISTANCES: Final = 8  # index of the distances in a row of "p"
_UNITS: Final = 500
_MOST_LATE: Final = 100_000


class PopJournal:
    """Writes and reads the journal of pops. Nothing is written while this broker or its store may not write.

    Attributes:
        known_to_slaves: tells the physical offset below which each slave that may act as master has the log; None: no
            slave may.
    """

    def __init__(
        self, store: MessageStore, offsets: ConsumerOffsetManager, clock: Clock, *, may_write: Callable[[], bool]
    ) -> None:
        self._store = store
        self._offsets = offsets
        offsets.oldest_keys = (f"{JOURNAL_TOPIC}@{JOURNAL_GROUP}", f"{JOURNAL_TOPIC}@{JOURNAL_SET_GROUP}")
        self._clock = clock
        self._may_write = may_write
        self.known_to_slaves: Callable[[], int | None] = lambda: None
        self._committed = -1
        self._late: list[dict[str, list[Any]]] = []  # records that the store refused; oldest first
        self._written_end = 0  # physical offset behind the newest record of this process
        self._claimed: list[list[Any]] = []  # rows "c" for the next record that ends check points
        # topic, group and queue → queue offset of the last record that mentions it
        self._told: dict[tuple[Any, ...], int] = {}

    def name_with_next_end(self, place: tuple[str, int, int]) -> None:
        """Name this copy (topic, queue id, queue offset) in the next record that ends check points."""
        if self._may_write():
            self._claimed.append(list(place))

    def write(self, entries: dict[str, list[Any]]) -> tuple[int, int]:
        """Put one record into the log, behind those that the store did not take before; several where it would be
        longer than maxMessageSize.

        Returns:
            Its queue offset (that of the first; -1: none was written), and the physical offset behind it. NOT_NOTED:
            the store takes nothing now, and until it does, what the record says is known to this process only. (-1, 0):
            this broker writes no journal, because it acts for a master whose log it copies.
        """
        if not self._may_write():
            return -1, 0
        is_next = self._write_late()[1] != NOT_NOTED
        if self._claimed and ("d" in entries or "e" in entries):
            entries = {**entries, "c": self._claimed}
            self._claimed = []
        self._late.append(entries)
        written = self._write_late() if is_next else (-1, NOT_NOTED)
        if len(self._late) > _MOST_LATE:
            del self._late[0]
        return written

    def _write_late(self) -> tuple[int, int]:
        """Write what waits, as far as the store takes it. Returns as `write`."""
        first = -1
        while self._late:
            result = self._put(self._late[0])
            if result.status is PutMessageStatus.MESSAGE_ILLEGAL and (parts := _halves(self._late[0])):
                self._late[:1] = parts
                continue
            if not result.ok:
                return first, NOT_NOTED
            written = self._late.pop(0)
            self._note_told(written, result.queue_offset)
            if "r" in written:
                self.note_set(result.queue_offset)
            first = result.queue_offset if first < 0 else first
            self._written_end = result.end_offset
        return first, self._written_end

    def _note_told(self, entries: dict[str, list[Any]], offset: int) -> None:
        self._told.update(dict.fromkeys(queues_told(entries), offset))

    def note_set(self, offset: int) -> None:
        """Note that the table of offsets has what the rows "r" of the record at queue offset `offset` say."""
        if not self.has_set(offset):
            self._offsets.commit_offset("pop journal", JOURNAL_SET_GROUP, JOURNAL_TOPIC, 0, offset + 1)

    def has_set(self, offset: int) -> bool:
        """Return whether the table of offsets has what the rows "r" of the record at queue offset `offset` say, or what
        was committed since."""
        return offset < self._offsets.query_offset(JOURNAL_SET_GROUP, JOURNAL_TOPIC, 0)

    def tells_of(self, topic: str, group: str, queue_id: int) -> bool:
        """Return whether the next start may find journal records about this queue and group (messages given to it, or
        an offset set by an administrator) that would move the group's offset."""
        if self._late:
            return True
        return self._told.get((topic, group, queue_id), -1) >= max(
            0, self._offsets.query_offset(JOURNAL_GROUP, JOURNAL_TOPIC, 0)
        )

    def queues_of(self, group: str) -> set[tuple[Any, ...]]:
        """Return the queues for which the next start may find journal records about the group: messages given to it, or
        an offset set by an administrator."""
        told = {*self._told, *(queue for entries in self._late for queue in queues_told(entries))}
        return {queue for queue in told if queue[1] == group and self.tells_of(*queue)}

    def noted_end(self) -> int:
        """Return the physical offset below which all noted changes lie (0: there is none), or NOT_NOTED if the store
        has refused one of them."""
        self.catch_up()
        return NOT_NOTED if self._late else self._written_end

    def mark(self) -> LogMark:
        """Return the mark of the log's present end."""
        return self._store.marks.mark()

    def is_final(self, mark: LogMark) -> bool:
        """Return whether no record before `mark` can be lost any more."""
        return self._store.marks.is_final(mark)

    def takes_nothing(self) -> bool:
        """Return whether this broker should write its journal and cannot."""
        return self._may_write() and (self.noted_end() == NOT_NOTED or self._store.admission.refusal() is not None)

    def forget_late(self) -> None:
        """Drop the records that the store refused, because this broker's memory begins anew with the content of the
        log."""
        self._late.clear()
        self._claimed.clear()
        self._told.clear()

    def catch_up(self) -> None:
        """Write the records that the store refused before, if it accepts them now."""
        if self.may_write:
            self._write_late()

    def _put(self, entries: dict[str, list[Any]]) -> PutMessageResult:
        if self._store.admission.refusal() is not None:
            return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE)
        return self._store.put_message(
            MessageExtBrokerInner(
                JOURNAL_TOPIC, 0, orjson.dumps(entries), properties_data=b"", born_timestamp=self._clock.wall_ms()
            )
        )

    @property
    def may_write(self) -> bool:
        """Returns whether the journal can be written now."""
        return self._may_write() and self._store.admission.refusal() is None

    def last_before(self, physical_offset: int) -> int:
        """Return the physical offset of the newest readable record before this one; 0 if there is none."""
        for at in range(self.end - 1, max(self._store.min_offset(JOURNAL_TOPIC, 0), 0) - 1, -1):
            units = self._store.queue_units(JOURNAL_TOPIC, 0, at, 1)
            if units and units[0][0] < physical_offset and units[0][2] != DAMAGED_TAGS_CODE:
                return units[0][0]
        return 0

    @property
    def end(self) -> int:
        """Queue offset behind the newest readable record."""
        return self._store.max_offset(JOURNAL_TOPIC, 0)

    def copied_end(self) -> int:
        """Return the queue offset before which each slave that may act as master has the journal; NO_SLAVE if no slave
        may."""
        known = self.known_to_slaves()
        if known is None:
            return NO_SLAVE
        first = max(0, self._store.min_offset(JOURNAL_TOPIC, 0))
        return first + bisect_left(range(first, self.end), True, key=lambda at: not self._lies_before(known, at))

    def _lies_before(self, physical_offset: int, at: int) -> bool:
        """Return whether the record at queue offset `at` ends before `physical_offset`."""
        units = self._store.queue_units(JOURNAL_TOPIC, 0, at, 1)
        return bool(units) and units[0][0] + units[0][1] <= physical_offset

    def commit(self, offset: int) -> None:
        """Note that everything before queue offset `offset` is no longer needed."""
        if offset != self._committed:
            self._committed = offset
            self._offsets.commit_offset("pop journal", JOURNAL_GROUP, JOURNAL_TOPIC, 0, offset)
            self._told = {queue: at for queue, at in self._told.items() if at >= offset}

    def read(self, begin: int | None = None) -> Iterator[list[tuple[int, dict[str, list[Any]]]]]:
        """Yield (queue offset, entries) of the records from queue offset `begin` on, some hundreds a step; None: of all
        that are still needed."""
        if begin is None:
            begin = self._offsets.query_offset(JOURNAL_GROUP, JOURNAL_TOPIC, 0)
        offset = max(begin, self._store.min_offset(JOURNAL_TOPIC, 0), 0)
        while offset < self.end:
            units = self._store.queue_units(JOURNAL_TOPIC, 0, offset, _UNITS)
            step = min(_UNITS, self.end - offset)
            places = [(offset + at, unit[0]) for at, unit in enumerate(units) if unit[2] != DAMAGED_TAGS_CODE]
            yield [entry for place in places if (entry := self._entries(*place)) is not None]
            offset += step

    def _entries(self, offset: int, physical_offset: int) -> tuple[int, dict[str, list[Any]]] | None:
        record = self._store.select_one_message(physical_offset)
        if record is None:
            return None
        try:
            value = orjson.loads(_body(record))
            check_entries(value)
        except (orjson.JSONDecodeError, RemoteProtocolError) as error:
            log.error("record %d of the pop journal (physical offset %d) is skipped: %s", offset, physical_offset,
                      error)  # fmt: skip
            return None
        entries = self._without_deleted(value, physical_offset)
        self._note_told(entries, offset)
        return offset, entries

    def _without_deleted(self, entries: dict[str, list[Any]], physical_offset: int) -> dict[str, list[Any]]:
        """Remove rows of topics that were deleted behind this record: a topic made again shares none of their
        offsets."""
        deletions = self._store.deletions
        if physical_offset >= deletions.newest:
            return entries
        return {
            name: [row for row in rows if not deletions.is_gone(row[_TOPICS[name]], physical_offset)]
            if name in _TOPICS
            else rows
            for name, rows in entries.items()
        }


def queues_told(entries: dict[str, list[Any]]) -> Iterator[tuple[Any, ...]]:
    """Yield topic, group and queue id of the queues of which a record says that messages were given away, or where the
    group began or goes on."""
    yield from (tuple(row[1:4]) for row in entries.get("p", ()))
    yield from (tuple(row[:3]) for name in "orb" for row in entries.get(name, ()))


def _halves(entries: dict[str, list[Any]]) -> list[dict[str, list[Any]]]:
    """Return two records with the rows of one, check points first, for other rows name these; none if it has only one
    row."""
    rows = [(name, row) for name in sorted(entries, key=_IN_ORDER.index) for row in entries[name]]
    middle = len(rows) // 2
    halves: list[dict[str, list[Any]]] = [{}, {}]
    for at, (name, row) in enumerate(rows):
        halves[at >= middle].setdefault(name, []).append(row)
    return halves if middle else []


def check_entries(value: Any) -> None:
    """Raise RemoteProtocolError if these are not the entries of a record."""
    if not isinstance(value, dict) or not all(isinstance(rows, list) for rows in value.values()):
        raise RemoteProtocolError(f"it is no JSON object of lists: {value!r:.200}")
    for name, kinds in _ROWS.items():
        for row in value.get(name, ()):
            check_row(row, kinds)
    for row in value.get("p", ()):
        check_point(row)
    for *_, offsets in value.get("m", ()):
        if not all(isinstance(offset, int) for offset in offsets):
            raise RemoteProtocolError(f"{offsets!r:.200} are not queue offsets")
    if not all(isinstance(number, int) for number in value.get("e", ())):
        raise RemoteProtocolError(f"{value['e']!r:.200} are not numbers of check points")


def check_point(row: Any, *more: _Kind) -> None:
    """Raise RemoteProtocolError if this is not the row of a check point, with `more` values behind it."""
    check_row(row, (*_ROWS["p"], *more))
    if not all(isinstance(distance, int) for distance in row[_DISTANCES]):
        raise RemoteProtocolError(f"the distances of {row!r:.200} are no numbers")


def check_row(row: Any, kinds: tuple[_Kind, ...]) -> None:
    """Raise RemoteProtocolError if the values of a row are not of these kinds."""
    is_row = isinstance(row, list) and len(row) == len(kinds)
    if not is_row or not all(isinstance(value, kind) for value, kind in zip(row, kinds, strict=True)):
        raise RemoteProtocolError(f"{row!r:.200} is no row of it")


def _body(record: memoryview) -> memoryview:
    """Return the body of a record without decoding the rest."""
    at = body_size_at(sys_flag_of(record))
    size = int.from_bytes(record[at : at + 4], "big")
    if at + 4 + size > len(record):
        raise RemoteProtocolError(f"a journal record of {len(record)} bytes says its body has {size}")
    return record[at + 4 : at + 4 + size]
