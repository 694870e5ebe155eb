"""Rules for names and sizes of what is sent and subscribed. Everything here is refused before it costs a round trip.

Source: apache/rocketmq client/Validators.java, common/topic/TopicValidator.java.
"""

import re

from maxq.client.errors import MessageRefusedError, NameIllegalError
from maxq.protocol.message.message import Message
from maxq.protocol.namespace import FORBIDDEN_TOPICS

TOPIC_LENGTH_MAX = 127
GROUP_LENGTH_MAX = 255
PROPERTIES_LENGTH_MAX = 32_767  # bytes on the wire, the broker's additions included
DEFAULT_PRODUCER_GROUP = "DEFAULT_PRODUCER"
DEFAULT_CONSUMER_GROUP = "DEFAULT_CONSUMER"

_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+").fullmatch


def check_topic(topic: str) -> None:
    """Check the name of a topic.

    Raises:
        NameIllegalError: empty, too long, or with other characters than `%|a-zA-Z0-9_-`.
    """
    _check_name("topic", topic, TOPIC_LENGTH_MAX)


def check_send_topic(topic: str) -> None:
    """Check the name of a topic to send to.

    Raises:
        NameIllegalError: illegal, or one of the broker's own topics.
    """
    check_topic(topic)
    if topic in FORBIDDEN_TOPICS:
        raise NameIllegalError(f"sending to the system topic {topic} is forbidden; choose a topic of your own")


def check_group(group: str) -> None:
    """Check the name of a producer or consumer group.

    Raises:
        NameIllegalError: empty, too long, or with illegal characters.
    """
    _check_name("group", group, GROUP_LENGTH_MAX)


def check_consumer_group(group: str) -> None:
    """Check the name of a consumer group that clients join.

    Raises:
        NameIllegalError: as check_group, or the reserved default group.
    """
    check_group(group)
    if group == DEFAULT_CONSUMER_GROUP:
        raise NameIllegalError(f"consumer group must not be {DEFAULT_CONSUMER_GROUP}; choose a name of your own")


def check_namespace(namespace: str) -> None:
    """Check a namespace, which becomes part of the names of topics and groups. Empty is none.

    Raises:
        NameIllegalError: too long for any of them, or with characters that none of them has.
    """
    if namespace:
        _check_name("namespace", namespace, GROUP_LENGTH_MAX)


def check_types(message: Message) -> None:
    """Check the types of the fields of a message that is about to be sent, except its properties, which
    `encode_properties` checks. A bytes-like body (bytearray, memoryview) is replaced by a copy, so that later
    changes do not matter.

    Raises:
        MessageRefusedError: a field is of another type; names field, type and remedy.
    """
    if not isinstance(message, Message):
        raise MessageRefusedError(f"a {type(message).__name__} cannot be sent; make a Message(topic, body)")
    if not isinstance(message.topic, str):
        raise MessageRefusedError(f"the topic of a message is a str, not {type(message.topic).__name__}")
    body = message.body
    if not isinstance(body, bytes):
        if not isinstance(body, bytearray | memoryview):
            hint = "; encode it first: text.encode()" if isinstance(body, str) else ""
            raise MessageRefusedError(f"the body of a message is bytes, not {type(body).__name__}{hint}")
        message.body = bytes(body)
    if not isinstance(message.properties, dict):
        kind = type(message.properties).__name__
        raise MessageRefusedError(f"the properties of a message are a dict of str to str, not {kind}")
    if not isinstance(message.flag, int) or not -(1 << 31) <= message.flag < 1 << 31:
        raise MessageRefusedError(f"the flag of a message is an int of 32 bits, not {message.flag!r:.60}")


def check_body(body: bytes, max_message_size: int, topic: str) -> None:
    """Check the body of a message for a topic.

    Raises:
        MessageRefusedError: empty, or above `max_message_size` bytes.
    """
    size = len(body) if body else 0
    if size == 0:
        raise MessageRefusedError(
            f"the body of a message of topic {topic} is empty; send at least one byte", size=0, limit=1
        )
    if size > max_message_size:
        raise MessageRefusedError(
            f"the body of a message of topic {topic} has {size} bytes, more than max_message_size {max_message_size}; "
            "send less, or raise the limit here and maxMessageSize at the broker",
            size=size,
            limit=max_message_size,
        )


def check_properties(encoded: bytes, topic: str) -> None:
    """Check the encoded properties of a message for a topic.

    Raises:
        MessageRefusedError: above 32 767 bytes.
    """
    if len(encoded) > PROPERTIES_LENGTH_MAX:
        raise MessageRefusedError(
            f"the properties of a message of topic {topic} take {len(encoded)} bytes, more than "
            f"{PROPERTIES_LENGTH_MAX}; put large values into the body",
            size=len(encoded),
            limit=PROPERTIES_LENGTH_MAX,
        )


def _check_name(kind: str, name: str, limit: int) -> None:
    if not isinstance(name, str):
        raise NameIllegalError(f"the {kind} name is a text (str), not {name!r:.60}")
    if not name.strip():
        raise NameIllegalError(f"the {kind} name is empty; give 1 to {limit} characters of %|a-zA-Z0-9_-")
    if len(name) > limit:
        raise NameIllegalError(
            f"the {kind} name has {len(name)} characters, more than {limit}: {name[:40]}…; choose a shorter one"
        )
    if not _LEGAL(name):
        raise NameIllegalError(f"the {kind} name {name!r} has characters other than %|a-zA-Z0-9_-; choose another one")
