"""MessagePreparer: what all tries of a send have in common: name of the topic, unique id, checks, compression, property
text.

Source: apache/rocketmq client/impl/producer/DefaultMQProducerImpl.java (sendKernelImpl, tryToCompressMessage),
client/producer/DefaultMQProducer.java (batch), common/message/MessageBatch.java.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from maxq.client.client_config import ProducerConfig
from maxq.client.errors import MessageRefusedError
from maxq.client.instance.request_reply import is_reply
from maxq.client.validators import check_body, check_properties, check_send_topic, check_topic, check_types
from maxq.errors import LocalProtocolError
from maxq.protocol.message import message_const as const
from maxq.protocol.message.compression import compress, compression_flag
from maxq.protocol.message.message import Message, decode_batch, encode_batch, encode_properties
from maxq.protocol.message.message_id import UniqIdGenerator
from maxq.protocol.message.message_sys_flag import MessageSysFlag
from maxq.protocol.namespace import RETRY_PREFIX, wrap
from maxq.runtime.interfaces import Clock

_MOST_TOPICS: Final = 10_000
_SURELY_SHORT: Final = 8_000  # so many characters surely fit; the limit is in bytes
_OF_THE_BATCH: Final[tuple[str, ...]] = (const.PROPERTY_WAIT_STORE_MSG_OK, const.PROPERTY_INSTANCE_ID)
_TIMED: Final = frozenset(
    {
        const.PROPERTY_DELAY_TIME_LEVEL,
        const.PROPERTY_TIMER_DELAY_SEC,
        const.PROPERTY_TIMER_DELAY_MS,
        const.PROPERTY_TIMER_DELIVER_MS,
    }
)


@dataclass(slots=True)
class PreparedMessage:
    """The data that all attempts of one send share."""

    topic: str  # name of the topic on the wire
    msg_id: str  # client ids, of a batch joined by commas
    body: bytes
    sys_flag: int
    properties: str
    flag: int
    born_timestamp: int
    is_batch: bool = False
    is_reply: bool = False
    reconsume_times: str = "0"
    max_reconsume_times: str | None = None
    messages: tuple[Message, ...] = ()  # for hooks, where there are any


def property_text(message: Message) -> str:
    """Encode the properties of a message for the wire.

    Raises:
        ClientError: one is not a text, or would be read as another; or they are too long; says which, or by how much.
    """
    try:
        text = encode_properties(message.properties)
        if len(text) > _SURELY_SHORT or not text.isascii():
            check_properties(text.encode(), message.topic)
    except (LocalProtocolError, UnicodeEncodeError) as error:
        raise MessageRefusedError(f"the properties of a message of {message.topic} cannot be sent: {error}") from None
    return text


class MessagePreparer:
    """Checks and encodes the messages of one producer group.

    Args:
        ids: where unique ids come from.
        keeps_messages: PreparedMessage.messages is wanted, by hooks.

    Attributes:
        legal_topics: topics that were checked: the user's name → the name on the wire.
    """

    def __init__(self, config: ProducerConfig, *, ids: UniqIdGenerator, clock: Clock, keeps_messages: bool) -> None:
        self._config = config
        self._ids = ids
        self._clock = clock
        self._keeps_messages = keeps_messages
        self.legal_topics: dict[str, str] = {}

    def wire_topic(self, topic: str) -> str:
        """Return the name of a topic on the wire.

        Raises:
            NameIllegalError: nobody may send there.
        """
        wire = self.legal_topics.get(topic)
        if wire is None:
            check_send_topic(topic)
            if len(self.legal_topics) >= _MOST_TOPICS:
                self.legal_topics.clear()
            wire = wrap(self._config.namespace, topic)
            check_topic(wire)
            self.legal_topics[topic] = wire
        return wire

    def check(self, message: Message) -> int:
        """Make the checks of `prepare` for a message that travels later, in a batch.

        Returns:
            Bytes of body and properties.

        Raises:
            ClientError: it is illegal; says why.
        """
        check_types(message)
        self.wire_topic(message.topic)
        check_body(message.body, self._config.max_message_size, message.topic)
        return len(message.body) + len(property_text(message).encode())

    def snapshot(self, message: Message) -> Message:
        """Give a message its unique id, and return a copy, because it is sent later and may be changed meanwhile."""
        if message.uniq_key is None:
            message.properties[const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX] = self._ids.next()
        return Message(message.topic, message.body, dict(message.properties), message.flag)

    def prepare(self, message: Message) -> PreparedMessage:
        """Give a message its unique id, check and encode it. `message` keeps the id, so that sending it again sends
        the same message.

        Raises:
            ClientError: it is illegal; says why.
        """
        check_types(message)
        topic = self.legal_topics.get(message.topic) or self.wire_topic(message.topic)
        config = self._config
        body = message.body
        size = len(body)
        if not 0 < size <= config.max_message_size:
            check_body(body, config.max_message_size, message.topic)
        properties = message.properties
        msg_id = properties.get(const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX)
        if msg_id is None:
            msg_id = properties[const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX] = self._ids.next()
        if config.namespace:
            properties[const.PROPERTY_INSTANCE_ID] = config.namespace
        sys_flag = 0
        if size >= config.compress_msg_body_over_howmuch:
            body = compress(body, config.compress_type, config.compress_level)
            sys_flag = compression_flag(config.compress_type)
        if properties.get(const.PROPERTY_TRANSACTION_PREPARED) == "true":
            sys_flag |= MessageSysFlag.TRANSACTION_PREPARED
        text = property_text(message)
        prepared = PreparedMessage(
            topic, msg_id, body, sys_flag, text, message.flag, self._clock.wall_ms(), is_reply=is_reply(message)
        )
        if self._keeps_messages:
            prepared.messages = (message,)
        return prepared

    def prepare_retry(self, message: Message) -> PreparedMessage:
        """Encode a message to a retry topic: its counters travel in the header, not as properties."""
        properties = dict(message.properties)
        reconsume_times = properties.pop(const.PROPERTY_RECONSUME_TIME, "0")
        max_times = properties.pop(const.PROPERTY_MAX_RECONSUME_TIMES, None)
        prepared = self.prepare(Message(message.topic, message.body, properties, message.flag))
        prepared.reconsume_times = reconsume_times
        prepared.max_reconsume_times = max_times
        return prepared

    def prepare_batch(self, messages: Sequence[Message]) -> PreparedMessage:
        """Check and encode several messages of one topic for one request. They are never compressed, and there are no
        delayed messages or retry topics among them.

        Raises:
            ClientError: no messages, mixed topics, delayed messages, or the batch is larger than max_message_size.
        """
        if not messages:
            raise MessageRefusedError("a batch has at least one message; there is none", limit=1)
        for message in messages:
            check_types(message)
        first = messages[0]
        if first.topic.startswith(RETRY_PREFIX):
            raise MessageRefusedError(f"a batch cannot go to the retry topic {first.topic}")
        msg_ids = []
        for message in messages:
            if message.topic != first.topic:
                raise MessageRefusedError(
                    f"a batch has one topic, not {first.topic} and {message.topic}; send two batches"
                )
            if not _TIMED.isdisjoint(message.properties):
                raise MessageRefusedError(
                    f"a batch of {first.topic} cannot hold delayed messages; send them one by one"
                )
            if message.wait_store_msg_ok != first.wait_store_msg_ok:
                raise MessageRefusedError(f"all messages of a batch of {first.topic} have the same wait_store_msg_ok")
            check_body(message.body, self._config.max_message_size, message.topic)
            msg_id = message.uniq_key
            if msg_id is None:
                msg_id = message.properties[const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX] = self._ids.next()
            if self._config.namespace:
                message.properties[const.PROPERTY_INSTANCE_ID] = self._config.namespace
            msg_ids.append(msg_id)
        try:
            body = encode_batch(messages)
        except (LocalProtocolError, UnicodeEncodeError) as error:
            for message in messages:
                property_text(message)  # says which property of which message, and what to do
            raise MessageRefusedError(f"the batch for {first.topic} cannot be sent: {error}") from None
        check_body(body, self._config.max_message_size, first.topic)
        # Brokers append the batch's properties to those of every message: an id of its own would replace theirs.
        own = {name: first.properties[name] for name in _OF_THE_BATCH if name in first.properties}
        return PreparedMessage(
            self.wire_topic(first.topic),
            ",".join(msg_ids),
            body,
            0,
            encode_properties(own),
            first.flag,
            self._clock.wall_ms(),
            is_batch=True,
            messages=tuple(messages) if self._keeps_messages else (),
        )

    def prepare_encoded(self, topic: str, body: bytes) -> PreparedMessage:
        """Prepare a batch whose body is encoded, and whose messages were checked and have their unique ids.

        Raises:
            ClientError: the topic is illegal, or the batch is larger than max_message_size.
        """
        wire = self.wire_topic(topic)
        check_body(body, self._config.max_message_size, topic)
        namespace = self._config.namespace
        messages = tuple(decode_batch(body, topic)) if self._keeps_messages else ()
        return PreparedMessage(
            wire,
            ",".join(message.uniq_key or "" for message in messages),
            body,
            0,
            encode_properties({const.PROPERTY_INSTANCE_ID: namespace} if namespace else {}),
            0,
            self._clock.wall_ms(),
            is_batch=True,
            messages=messages,
        )
