"""Was a transaction committed by a run of the broker that did not live to write it down?

Between the delivered message and its op message lie up to three seconds. After a crash the half message is open again;
Java asks its producer and delivers once more. The delivered message is in the log, though, and in the index under its
unique key; it names the half message it came from.

Source: own. The index is queried as QueryMessageProcessor does; without messageIndexEnable nothing is found, and a
crash may deliver twice as in Java.
"""

from maxq.broker.tables.topic.topic_validator import (
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
)
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import MessageExt, decode_record
from maxq.protocol.message.message_sys_flag import TRANSACTION_MASK, MessageSysFlag
from maxq.protocol.message.transaction_view import number, origin_of
from maxq.store.message_store import MessageStore

_MOST = 64
_LATEST_MS = 1 << 62
_CLOCK_JUMP_MS = 3_600_000  # the index is asked from a little before the half message on: clocks are set back


class CommitRecovery:
    """Searches one store for the ends of transactions."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def final_message(self, half: MessageExt) -> MessageExt | None:
        """Return the message that was delivered for `half`, or for an earlier or later copy of it; None if there is
        none."""
        properties = half.properties
        # also the schedule topic, to which it goes if its queue had moved
        topics = [properties.get(const.PROPERTY_REAL_TOPIC, ""), SCHEDULE_TOPIC]
        if any(name.startswith("TIMER_") for name in properties):
            topics.append(TIMER_TOPIC)
        for topic in topics:
            for message in self._found(topic, half):
                if message.sys_flag & TRANSACTION_MASK != MessageSysFlag.TRANSACTION_COMMIT:
                    continue
                if self._is_same(half, message):
                    return message
        return None

    def was_given_up(self, half: MessageExt) -> bool:
        """Return whether the transaction of `half` is in TRANS_CHECK_MAX_TIME_TOPIC."""
        origin = origin_of(half)
        return any(origin_of(message) == origin for message in self._found(TRANS_CHECK_MAX_TIME_TOPIC, half))

    def _found(self, topic: str, half: MessageExt) -> list[MessageExt]:
        key = half.properties.get(const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX)
        if not key:
            return []
        begin = half.born_timestamp if 0 < half.born_timestamp < half.store_timestamp else half.store_timestamp
        found = self._store.query_message(topic, key, _MOST, max(begin - _CLOCK_JUMP_MS, 0), _LATEST_MS)
        messages = [decode_record(buffer) for buffer in found.buffers]
        return [message for message in messages if message.topic == topic and message.uniq_key == key]

    def _is_same(self, half: MessageExt, final: MessageExt) -> bool:
        """Return whether `final` belongs to the same transaction. It names its half message by offset and, if that was
        a copy, the first half message of the transaction. A loss of power may have taken the half message there, or
        torn its properties, which have no check sum; then the properties that the producer set decide."""
        if final.prepared_transaction_offset == half.physical_offset:
            return True
        origin = number(final.properties, const.PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET, -1)
        if origin >= 0:
            return origin == origin_of(half)
        other = self._store.look_message_by_offset(final.prepared_transaction_offset)
        if other is not None and other.topic == TRANS_HALF_TOPIC and other.uniq_key == half.uniq_key:
            return origin_of(other) == origin_of(half)
        return _made_by(final) == _made_by(half)


def _made_by(message: MessageExt) -> tuple[int, bytes, int]:
    return message.born_timestamp, message.born_host, message.body_crc
