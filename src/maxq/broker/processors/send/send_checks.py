"""The checks of a send before it reaches the store (AbstractSendMessageProcessor.msgCheck)."""

from collections.abc import Callable, Mapping, Sequence

from maxq.broker.processors.admin.message_type import type_refusal
from maxq.broker.processors.refusal import FAQ, Refusal
from maxq.broker.processors.send.retry_topics import UNIT_SUB_FLAG
from maxq.broker.schedule_message.delay_levels import delay_level_of
from maxq.broker.tables.attributes import CLEANUP_POLICY
from maxq.broker.tables.topic.compaction_topics import COMPACTION, is_compacted
from maxq.broker.tables.topic.topic_config_manager import TopicConfigManager
from maxq.broker.tables.topic.topic_validator import (
    AUTO_CREATE_TOPIC,
    is_not_allowed_send_topic,
    is_retry_topic,
    validate_topic,
)
from maxq.codes import RequestCode, ResponseCode
from maxq.config.settings import BrokerSettings
from maxq.errors import RemoteProtocolError
from maxq.protocol.body.topic_config import PERM_READ, PERM_WRITE, TopicConfig
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.send import SendMessageRequestHeader
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import BATCH_MOST_BY_ITSELF, BATCH_PROPERTIES_BY_ITSELF, batch_count, each_of_batch
from maxq.protocol.message.message_sys_flag import TRANSACTION_MASK, MessageSysFlag

_UNIT = 1  # topic system flag: belongs to one unit
_TIMER_PROPERTIES = (
    const.PROPERTY_TIMER_DELAY_SEC,
    const.PROPERTY_TIMER_DELAY_MS,
    const.PROPERTY_TIMER_DELIVER_MS,
    const.PROPERTY_TIMER_DEL_UNIQKEY,
)


class SendChecks:
    """Checks of a message that need topics and settings. Each returns None, or the refusal."""

    def __init__(self, settings: BrokerSettings, topics: TopicConfigManager) -> None:
        self._settings = settings
        self._topics = topics

    def topic(
        self, topic: str, default_topic: str, remote_address: str, queue_nums: int, unit_mode: bool
    ) -> TopicConfig | Refusal:
        """Return the topic to which a message may be sent; it is created if that is allowed.

        Args:
            default_topic: template of a topic that does not exist yet.
            queue_nums: what the client wants the new topic to have; the template's number bounds it.
        """
        broker = self._settings.broker
        if not broker.broker_permission & PERM_WRITE and self._topics.is_order_topic(topic):
            return Refusal(
                ResponseCode.NO_PERMISSION,
                f"the broker[{broker.broker_ip1}] sending message is forbidden: "
                f"brokerPermission is {broker.broker_permission} and {topic} is an order topic; writing needs "
                f"{PERM_WRITE}: set it with updateBrokerConfig, or send to another broker",
            )
        return self.accepted_topic(topic, default_topic, remote_address, queue_nums, unit_mode)

    def accepted_topic(
        self, topic: str, default_topic: str, remote_address: str, queue_nums: int, unit_mode: bool
    ) -> TopicConfig | Refusal:
        """Return the topic of a message that this broker has accepted before, as `topic` does, whether or not the
        broker takes new messages."""
        wrong = validate_topic(topic)
        if wrong is not None:
            return Refusal(ResponseCode.INVALID_PARAMETER, wrong)
        if is_not_allowed_send_topic(topic):
            return Refusal(
                ResponseCode.NO_PERMISSION,
                f"Sending message to topic[{topic}] is forbidden. Only the broker writes it: send to one of your own",
            )
        config = self._topics.select_topic_config(topic)
        if config is None:
            config = self._create(topic, default_topic, remote_address, queue_nums, unit_mode)
        if config is None:
            return Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!\n{FAQ}")
        return config

    def _create(
        self, topic: str, default_topic: str, remote_address: str, queue_nums: int, unit_mode: bool
    ) -> TopicConfig | None:
        flag = 0
        if unit_mode:
            flag = UNIT_SUB_FLAG if is_retry_topic(topic) else _UNIT
        config = self._topics.create_topic_in_send_message_method(
            topic, default_topic or AUTO_CREATE_TOPIC, remote_address, queue_nums, flag
        )
        # a retry topic without a table entry has one queue whatever retryQueueNums says, as in Java
        if config is None and is_retry_topic(topic):
            config = self._topics.create_topic_in_send_message_back_method(topic, 1, PERM_READ | PERM_WRITE, flag)
        return config

    def destination(self, header: SendMessageRequestHeader, remote_address: str) -> TopicConfig | Refusal:
        """Return the topic to which a send goes, made if that is allowed, once its queue id is found right."""
        config = self.topic(
            header.topic,
            header.default_topic,
            remote_address,
            header.default_topic_queue_nums,
            bool(header.unit_mode),
        )
        if isinstance(config, Refusal):
            return config
        return self.queue_id(config, header.queue_id, remote_address) or config

    @staticmethod
    def queue_id(config: TopicConfig, queue_id: int, remote_address: str) -> Refusal | None:
        """Check that a queue id is below the larger of the topic's queue numbers; negative ones mean "any"."""
        queues = max(config.read_queue_nums, config.write_queue_nums)
        if queue_id < queues:
            return None
        return Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"request queueId[{queue_id}] is illegal, {config.describe()} Producer: {remote_address}; "
            f"the queue ids of this broker are below {queues}: fetch the route again, or give the topic more queues "
            "with updateTopic",
        )

    def message(
        self,
        config: TopicConfig,
        properties: Mapping[str, str],
        sys_flag: int,
        request: RemotingCommand,
        *,
        kind: str = "",
    ) -> Refusal | None:
        """Check a client's message whose topic and queue are right, for any kind of request.

        Args:
            request: its body is the message's body.
            kind: "a batch" or "a reply" for messages that cannot open a transaction; empty for others.
        """
        refusal = self._properties(config, properties, sys_flag) or self._transaction(properties, sys_flag, kind)
        if refusal is None and sys_flag & MessageSysFlag.INNER_BATCH:
            refusal = self._inner_batch(properties, request.body_bytes)
        return refusal

    @staticmethod
    def _inner_batch(properties: Mapping[str, str], body: bytes) -> Refusal | None:
        """Check a batch that another broker group sends as one message. It takes INNER_NUM offsets of its queue, so it
        must have as many messages."""
        try:
            count = batch_count(body)
        except RemoteProtocolError:
            count = 0
        stated = properties.get(const.PROPERTY_INNER_NUM)
        if count and stated == str(count):
            return None
        return Refusal(
            ResponseCode.MESSAGE_ILLEGAL,
            f"sysFlag and INNER_NUM say that the body is a batch of {stated} messages, it has {count}; send batches by "
            f"request {int(RequestCode.SEND_BATCH_MESSAGE)}",
        )

    def batch(self, config: TopicConfig, body: bytes, count: int) -> Refusal | None:
        """Check each of the `count` messages of a batch that a client sent."""
        return self._one_by_one(
            body, count, self._why_one_by_one(config, body),
            lambda properties: self._properties(config, properties, 0)
            or self._transaction(properties, 0, "a batch")
            or self.delay_in_batch(properties)
            or self._handle_of_broker(properties),
        )  # fmt: skip

    def staged(self, config: TopicConfig, body: bytes, count: int, *, is_plain: bool) -> Refusal | None:
        """Check each of `count` staged messages. Messages that are not plain may be delayed or timed."""
        names = const.NOT_IN_BATCHES if is_plain else (const.PROPERTY_TRANSACTION_PREPARED, const.PROPERTY_POP_CK)
        return self._one_by_one(
            body, count, self._why_each(config) or _names_in(body, names),
            lambda properties: self._properties(config, properties, 0)
            or self._transaction(properties, 0, "a staged message")
            or (self.delay_in_batch(properties) if is_plain else None)
            or self._handle_of_broker(properties),
        )  # fmt: skip

    @staticmethod
    def _one_by_one(
        body: bytes, count: int, why: str | None, check: Callable[[Mapping[str, str]], Refusal | None]
    ) -> Refusal | None:
        """Return the first refusal of `check`, if there is a reason `why` to examine each message."""
        if why is None:
            return None
        if count > BATCH_MOST_BY_ITSELF:
            return Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the batch has {count} messages and each is checked by itself, because {why}: the limit is then "
                f"{BATCH_MOST_BY_ITSELF}; send smaller batches",
            )
        properties = 0
        for message in each_of_batch(body, ""):
            properties += len(message.properties)
            if properties > BATCH_PROPERTIES_BY_ITSELF:
                return Refusal(
                    ResponseCode.MESSAGE_ILLEGAL,
                    f"the messages of the batch have more than {BATCH_PROPERTIES_BY_ITSELF} properties together and "
                    f"each is checked by itself, because {why}; send smaller batches",
                )
            refusal = check(message.properties)
            if refusal is not None:
                return refusal
        return None

    @staticmethod
    def _handle_of_broker(properties: Mapping[str, str]) -> Refusal | None:
        """Refuse a message that carries a receipt handle: with it, a consumer would acknowledge another message."""
        if const.PROPERTY_POP_CK not in properties:
            return None
        return Refusal(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the property {const.PROPERTY_POP_CK} is given by brokers to messages that are popped; leave it out",
        )

    def _transaction(self, properties: Mapping[str, str], sys_flag: int, kind: str) -> Refusal | None:
        """Check whether this message may open a transaction, if it has the flag of one."""
        opens = properties.get(const.PROPERTY_TRANSACTION_PREPARED, "").lower() == "true"
        if not opens and not sys_flag & TRANSACTION_MASK:
            return None
        if self._settings.broker.reject_transaction_message:
            return Refusal(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._settings.broker.broker_ip1}] sending transaction message is forbidden: "
                "rejectTransactionMessage is true",
            )
        if kind:
            return Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"{kind} cannot be part of a transaction (TRAN_MSG, sysFlag 0xC); send messages one by one",
            )
        if sys_flag & TRANSACTION_MASK & ~MessageSysFlag.TRANSACTION_PREPARED:
            return Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"sysFlag {sys_flag:#x} says that the message ends a transaction, which only brokers write: send it "
                "without the bit 0x8",
            )
        if not opens:
            return Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"sysFlag {sys_flag:#x} says that the message is part of a transaction, but TRAN_MSG is not true: it "
                "would be stored and never delivered",
            )
        return None

    def _why_one_by_one(self, config: TopicConfig, body: bytes) -> str | None:
        """Return why the messages of a batch body must be checked one by one; None if no check can refuse any of
        them."""
        return self._why_each(config) or _names_in(body, const.NOT_IN_BATCHES)

    def _why_each(self, config: TopicConfig) -> str | None:
        """Return why each message of a topic must be checked; None if the topic accepts every message."""
        if self._settings.broker.enable_topic_message_type_check:
            return "enableTopicMessageTypeCheck is true"
        if is_compacted(config):
            return f"{config.topic_name} keeps one message for each key ({CLEANUP_POLICY}={COMPACTION})"
        return None

    @staticmethod
    def delay_in_batch(properties: Mapping[str, str]) -> Refusal | None:
        """Refuse delays in a batch: its messages lie together in one queue, so none of them can wait."""
        for name in _TIMER_PROPERTIES:
            if name in properties:
                return Refusal(
                    ResponseCode.MESSAGE_ILLEGAL,
                    f"a batch cannot have a delivery time ({name}={properties[name]}); send each alone",
                )
        if delay_level_of(properties) <= 0:
            return None
        return Refusal(
            ResponseCode.MESSAGE_ILLEGAL,
            f"a batch cannot be delayed (DELAY={properties[const.PROPERTY_DELAY_TIME_LEVEL]}); send each alone",
        )

    def _properties(self, config: TopicConfig, properties: Mapping[str, str], sys_flag: int) -> Refusal | None:
        """Check the properties that change where or when a message is delivered, and the message type that follows from
        them."""
        if self._settings.broker.enable_topic_message_type_check:
            refusal = type_refusal(config, properties, sys_flag)
            if refusal is not None:
                return refusal
        if is_compacted(config) and not properties.get(const.PROPERTY_KEYS):
            return Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"Required message key is missing: {config.topic_name} keeps one message for each key "
                f"({CLEANUP_POLICY}={COMPACTION}); set KEYS",
            )
        return None


def _names_in(body: bytes, names: Sequence[str]) -> str | None:
    """Return why the messages of a batch body may have one of these properties; None if they have none."""
    found = next((name for name in names if name.encode() in body), None)
    return found and f"it says {found} somewhere"
