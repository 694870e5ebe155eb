"""UnfinishedRevives: what a killed broker had put into the log and not noted in the journal yet.

A check point that is revived or handed over is noted right behind the records that this makes, in the same turn of the
loop. After a kill the records behind the journal's last one therefore belong to what was under way. Whoever starts
finishes it instead of doing it again, or a message would come twice, the second time behind its ack.
"""

from collections.abc import Iterable
from typing import Final

from maxq.broker.tables.topic.topic_validator import TIMER_TOPIC
from maxq.errors import RemoteProtocolError
from maxq.protocol.body.pop import CK_TAG, PopCheckPoint
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import MessageExt, decode_record
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.message_store import MessageStore

_UNITS: Final = 512  # of one queue: 100 check points are handed over in a turn, 32 messages revived

Key = tuple[str, str, int, int, int, str]


class UnfinishedRevives:
    """Work that a kill interrupted, as one start finds it."""

    def __init__(self, store: MessageStore, noted_until: int) -> None:
        """`noted_until` is the physical offset of the journal's last record."""
        self._store = store
        self._first = noted_until
        self._end = store.max_physical_offset
        self._copies: dict[tuple[str, int], list[MessageExt]] = {}

    def handed_over(self, revive_topic: str, revive_queues: int) -> set[Key]:
        """Return the check points whose record is in the log."""
        records = self._records(TIMER_TOPIC, 0)
        for queue_id in range(revive_queues):
            records += self._records(revive_topic, queue_id)
        return set(_keys(record for record in records if _for(record, revive_topic)))

    def has(self, copy: MessageExtBrokerInner) -> bool:
        """Return whether this copy of a message was stored before the kill; True once for each such copy."""
        place = copy.topic, copy.queue_id
        stored = self._copies.get(place)
        if stored is None:
            if not self._reaches_back(*place):  # as those of all topics that come later: nothing is remembered of them
                return False
            stored = self._copies[place] = self._records(*place)
        found = next((record for record in stored if _is_same(copy, record)), None)
        if found is not None:
            stored.remove(found)
        return found is not None

    def _reaches_back(self, topic: str, queue_id: int) -> bool:
        """Return whether a queue has messages from before the start."""
        first = self._store.queue_units(topic, queue_id, max(self._store.min_offset(topic, queue_id), 0), 1)
        return bool(first) and first[0][0] < self._end

    def _records(self, topic: str, queue_id: int) -> list[MessageExt]:
        """Return those messages of a queue that the journal does not name."""
        end = self._store.max_offset(topic, queue_id)
        begin = max(end - _UNITS, self._store.min_offset(topic, queue_id), 0)
        if end <= begin:
            return []
        units = self._store.queue_units(topic, queue_id, begin, end - begin)
        places = [physical for physical, _, _ in units if self._first < physical < self._end]
        return [record for place in places if (record := self._record(place)) is not None]

    def _record(self, physical_offset: int) -> MessageExt | None:
        record = self._store.select_one_message(physical_offset)
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
