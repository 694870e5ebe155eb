"""The type of a message, and whether its topic accepts that type (`enableTopicMessageTypeCheck`).

A topic says what it takes with the attribute `message.type`; without it the topic is NORMAL, MIXED takes everything.
In RocketMQ only the proxy checks this; here the broker can, so that remoting clients are checked too.

Source:
    common/attribute/TopicMessageType.java, proxy/processor/validator/DefaultTopicMessageTypeValidator.java.
"""

from collections.abc import Mapping
from typing import Final

from maxq.broker.processors.refusal import Refusal
from maxq.broker.tables.attributes import MESSAGE_TYPE
from maxq.broker.tables.topic.topic_validator import DLQ_PREFIX, RETRY_PREFIX
from maxq.codes import ResponseCode
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message_sys_flag import TRANSACTION_MASK

NORMAL: Final = "NORMAL"
MIXED: Final = "MIXED"

_DELAY_PROPERTIES = (
    const.PROPERTY_DELAY_TIME_LEVEL,
    const.PROPERTY_TIMER_DELIVER_MS,
    const.PROPERTY_TIMER_DELAY_SEC,
    const.PROPERTY_TIMER_DELAY_MS,
)
_BY_PROPERTY = (
    (const.PROPERTY_SHARDING_KEY, "FIFO"),
    (const.PROPERTY_PRIORITY, "PRIORITY"),
    (const.PROPERTY_LITE_TOPIC, "LITE"),
)


def message_type(properties: Mapping[str, str]) -> str:
    """Return the message type that follows from the properties, the first that fits."""
    if properties.get(const.PROPERTY_TRANSACTION_PREPARED, "").lower() == "true":
        return "TRANSACTION"
    if any(name in properties for name in _DELAY_PROPERTIES):
        return "DELAY"
    for name, named in _BY_PROPERTY:
        if name in properties:
            return named
    return NORMAL


def declared_type(config: TopicConfig) -> str:
    """Return the message type that a topic was made for (NORMAL, FIFO, DELAY, TRANSACTION, …); NORMAL if it names
    none."""
    return config.attributes.get(MESSAGE_TYPE, NORMAL)


def _was_delivered(topic: str, properties: Mapping[str, str], expected: str) -> bool:
    """Return whether this is a message that waited at another broker group, which sends it when it is due or its
    transaction is committed: an acting master stores nothing itself."""
    if expected == "DELAY":
        return properties.get(const.PROPERTY_REAL_TOPIC) == topic
    return expected == "TRANSACTION" and const.PROPERTY_TRANSACTION_ID in properties


def type_refusal(config: TopicConfig, properties: Mapping[str, str], sys_flag: int) -> Refusal | None:
    """Return why the topic does not accept this message; None if it does. Retry and dead letter topics accept
    everything."""
    if config.topic_name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        return None
    expected = declared_type(config)
    actual = "TRANSACTION" if sys_flag & TRANSACTION_MASK else message_type(properties)
    if expected in (MIXED, actual) or _was_delivered(config.topic_name, properties, expected):
        return None
    return Refusal(
        ResponseCode.MESSAGE_ILLEGAL,
        f"TopicMessageType validate failed, the expected type is {expected}, but actual type is {actual}; "
        f"topic {config.topic_name}: send it to a topic of its type, change {MESSAGE_TYPE} with "
        "updateTopic -a +message.type=…, or set enableTopicMessageTypeCheck=false",
    )
