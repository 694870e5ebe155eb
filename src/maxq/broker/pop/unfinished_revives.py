"""UnfinishedRevives: records that a killed broker had put into the log and not noted in the journal yet.

A check point that is revived or handed over is noted right behind the records that this makes, in the same turn of the
loop. After a kill the records behind the journal's last one therefore belong to work under way. The next start finishes
it instead of doing it again, or a message would come twice, the second time behind its ack.

A broker may be killed once more before it has finished that, and by then the journal has records behind these copies.
So a start notes the places of the copies that it finds (row "u" of the journal), and the note of a check point names
the copies that it has claimed (row "c"). Places that no check point has claimed in ten minutes are forgotten: their
messages were acknowledged meanwhile.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from maxq.broker.pop.pop_journal import PopJournal
from maxq.broker.tables.topic.topic_validator import TIMER_TOPIC, is_retry_topic
from maxq.errors import RemoteProtocolError
from maxq.protocol.body.pop import CK_TAG, PopCheckPoint
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import MessageExt, decode_record
from maxq.runtime.interfaces import Clock
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.durability.log_marks import LogMark
from maxq.store.message_store import MessageStore
from maxq.store.queue.unit_scan_cy import DAMAGED_TAGS_CODE

_UNITS: Final = 512  # units of one queue: 100 check points are handed over in a turn, with 32 messages each
_KEPT_MS: Final = 600_000  # a copy that was due when it was written is still due at the next start

Key = tuple[str, str, int, int, int, str]
_Place = tuple[str, int, int]
"""Topic, queue id, queue offset."""


class UnfinishedRevives:
    """Work that a kill interrupted, as one start finds it. Call `replay` for the journal's records, then `begin`."""

    def __init__(self, store: MessageStore, journal: PopJournal, clock: Clock, log_end: int) -> None:
        """`log_end` is the physical end of the log at the start: what lies behind it is of this run."""
        self._store = store
        self._journal = journal
        self._clock = clock
        self._noted: dict[_Place, int] = {}  # place of a copy → queue offset of the journal record that names it
        self._copies: dict[tuple[str, int], list[MessageExt]] = {}
        self._resting: list[tuple[int, LogMark | None]] = []  # claims that may still be lost, each as in `_noted`
        self._first, self._end = 0, log_end  # physical offsets: the records between are not named by the journal
        self._until_ms = 0

    def replay(self, offset: int, entries: dict[str, list[Any]]) -> None:
        """Apply the rows "u" and "c" of the journal record at queue offset `offset`."""
        for topic, queue_id, queue_offset in entries.get("u", ()):
            self._noted[topic, queue_id, queue_offset] = offset
        for topic, queue_id, queue_offset in entries.get("c", ()):
            self._noted.pop((topic, queue_id, queue_offset), None)

    def begin(self) -> None:
        """Find the copies that are not claimed, and note those that the journal does not name yet."""
        self._first = self._journal.last_before(self._end)
        self._until_ms = self._clock.monotonic_ms() + _KEPT_MS
        for topic, queue_id, queue_offset in list(self._noted):
            record = _decoded(self._store.record_in_queue(topic, queue_id, queue_offset))
            if record is None:
                del self._noted[topic, queue_id, queue_offset]
            else:
                self._copies.setdefault((topic, queue_id), []).append(record)
        new: list[_Place] = []
        for topic, queue_id in self._retry_queues():
            for record in self._records(topic, queue_id):
                place = topic, queue_id, record.queue_offset
                if place not in self._noted:
                    self._copies.setdefault((topic, queue_id), []).append(record)
                    new.append(place)
        if new:
            offset, _ = self._journal.write({"u": [list(place) for place in new]})
            self._noted.update(dict.fromkeys(new, offset if offset >= 0 else self._journal.end))

    def handed_over(self, revive_topic: str, revive_queues: int) -> set[Key]:
        """Return the check points whose record is in the log."""
        records = self._records(TIMER_TOPIC, 0)
        for queue_id in range(revive_queues):
            records += self._records(revive_topic, queue_id)
        return set(_keys(record for record in records if _for(record, revive_topic)))

    def claim(self, copy: MessageExtBrokerInner, *, behind: int, since_ms: int) -> bool:
        """Return whether this copy of a message was stored before the kill; True once for each such copy, which the
        next note of a check point (rows "d" and "e") then names.

        Args:
            behind: queue offset of the message itself, if it lies in the copy's queue; else -1.
            since_ms: when the message was popped; a copy is stored later.
        """
        stored = self._copies.get((copy.topic, copy.queue_id), [])
        for record in stored:
            if record.queue_offset > behind and record.store_timestamp >= since_ms and _is_same(copy, record):
                break
        else:
            return False
        stored.remove(record)
        place = copy.topic, copy.queue_id, record.queue_offset
        self._journal.name_with_next_end(place)
        self._resting.append((self._noted.pop(place), None))  # the next record notes it
        return True

    def oldest_needed(self) -> int:
        """Return the queue offset of the first journal record that names a copy without a claim, or with one that may
        still be lost; -1 if there is none."""
        if self._noted and self._clock.monotonic_ms() >= self._until_ms:
            self._noted.clear()
            self._copies.clear()
        now = self._journal.mark()
        resting = [(offset, mark or now) for offset, mark in self._resting]
        self._resting = [(offset, mark) for offset, mark in resting if not self._journal.is_final(mark)]
        return min((*self._noted.values(), *(offset for offset, _ in self._resting)), default=-1)

    def _retry_queues(self) -> Iterator[tuple[str, int]]:
        for name, state in list(self._store.topics.items()):
            topic = name.decode(errors="replace")
            if is_retry_topic(topic):
                yield from ((topic, queue_id) for queue_id in list(state.queues))

    def _records(self, topic: str, queue_id: int) -> list[MessageExt]:
        """Return those messages of a queue that the journal does not name."""
        end = self._store.max_offset(topic, queue_id)
        begin = max(end - _UNITS, self._store.min_offset(topic, queue_id), 0)
        last = self._store.queue_units(topic, queue_id, end - 1, 1) if end > begin else ()
        if not last or last[0][0] <= self._first:
            return []
        units = self._store.queue_units(topic, queue_id, begin, end - begin)
        places = [
            physical for physical, _, tags in units if self._first < physical < self._end and tags != DAMAGED_TAGS_CODE
        ]
        found = (_decoded(self._store.select_one_message(place)) for place in places)
        return [record for record in found if record is not None]


def _decoded(record: memoryview | None) -> MessageExt | None:
    try:
        return None if record is None else decode_record(record)
    except RemoteProtocolError:
        return None


def _for(record: MessageExt, revive_topic: str) -> bool:
    return record.tags == CK_TAG and record.properties.get(const.PROPERTY_REAL_TOPIC, record.topic) == revive_topic


def _keys(records: Iterable[MessageExt]) -> Iterable[Key]:
    for record in records:
        try:
            yield PopCheckPoint.decode(record.body).key
        except RemoteProtocolError:
            continue


def _is_same(copy: MessageExtBrokerInner, record: MessageExt) -> bool:
    return (
        copy.born_timestamp == record.born_timestamp
        and copy.reconsume_times == record.reconsume_times
        and copy.flag == record.flag
        and copy.properties.items() <= record.properties.items()
        and bytes(copy.body) == bytes(record.body)
    )
