"""The message that a delayed message becomes when it is due, and how a delivered one is recognized.

The delivered record has the property bytes of the delayed one: DELAY, REAL_TOPIC and REAL_QID stay readable in it, as
in a log that Java wrote. It is not delayed again, because that depends on the properties of the message that is put,
not on the stored ones.

Source:
    broker/schedule/ScheduleMessageService.java messageTimeUp.
"""

from typing import Final

from maxq.broker.tables.topic.topic_validator import SCHEDULE_TOPIC, is_not_allowed_send_topic
from maxq.errors import MessageIllegalError
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.message_properties import encode_properties
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner

#: Text in the properties of every record that was delivered from a delay level, and of few other records.
DELIVERED_MARK: Final = f"{const.PROPERTY_REAL_TOPIC}{const.NAME_VALUE_SEPARATOR}".encode()

#: Properties that the store itself adds to a record.
_STORE_PROPERTIES: Final = (const.PROPERTY_CRC32, const.PROPERTY_INNER_MULTI_QUEUE_OFFSET)
_CLEARED: Final = (
    const.PROPERTY_DELAY_TIME_LEVEL,
    const.PROPERTY_TIMER_DELIVER_MS,
    const.PROPERTY_TIMER_DELAY_SEC,
    const.PROPERTY_TIMER_DELAY_MS,
)


def time_up(delayed: MessageExt) -> MessageExtBrokerInner:
    """Make the message to put now from a delayed one.

    Raises:
        MessageIllegalError: the record does not say where to, or names a topic that no delayed message is for.
    """
    topic, queue_id = destination(delayed)
    stored = own_properties(delayed)
    properties = {name: value for name, value in stored.items() if name not in _CLEARED}
    properties[const.PROPERTY_WAIT_STORE_MSG_OK] = "false"  # nobody waits for it
    return MessageExtBrokerInner(
        topic,
        queue_id,
        delayed.body,
        properties,
        encode_properties(stored).encode(),
        flag=delayed.flag,
        sys_flag=delayed.sys_flag,
        born_timestamp=delayed.born_timestamp,
        born_host=delayed.born_host,
        store_host=delayed.store_host,
        reconsume_times=delayed.reconsume_times,
    )


def destination(delayed: MessageExt) -> tuple[str, int]:
    """Return real topic and queue id. Raises MessageIllegalError if the properties lack them, or have invalid
    values."""
    topic = delayed.properties.get(const.PROPERTY_REAL_TOPIC, "")
    queue_id = delayed.properties.get(const.PROPERTY_REAL_QUEUE_ID, "")
    if not topic or is_not_allowed_send_topic(topic):
        raise MessageIllegalError(f"its real topic ({const.PROPERTY_REAL_TOPIC}) is {topic!r}: nothing goes there")
    if not (queue_id.isascii() and queue_id.isdigit() and len(queue_id) < 10):
        raise MessageIllegalError(f"its real queue ({const.PROPERTY_REAL_QUEUE_ID}) is {queue_id!r}, no queue id")
    return topic, int(queue_id)


def own_properties(message: MessageExt) -> dict[str, str]:
    """Return the properties without those that the store writes anew into every record."""
    return {name: value for name, value in message.properties.items() if name not in _STORE_PROPERTIES}


def looks_delivered(record: MessageExt) -> bool:
    """Return whether this record may have been delivered from a delay level: it lies where its own properties wanted
    it."""
    properties = record.properties
    return (
        record.topic != SCHEDULE_TOPIC
        and properties.get(const.PROPERTY_REAL_TOPIC) == record.topic
        and properties.get(const.PROPERTY_REAL_QUEUE_ID) == str(record.queue_id)
    )


def is_delivery_of(record: MessageExt, delayed: MessageExt) -> bool:
    """Returns whether `record`, for which `looks_delivered` is true, is the delivered copy of `delayed`."""
    return (
        record.body_crc == delayed.body_crc
        and len(record.body) == len(delayed.body)
        and record.born_timestamp == delayed.born_timestamp
        and record.born_host == delayed.born_host
        and record.reconsume_times == delayed.reconsume_times
        and own_properties(record) == own_properties(delayed)
    )
