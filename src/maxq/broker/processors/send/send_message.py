"""SEND_MESSAGE (10), SEND_MESSAGE_V2 (310) and SEND_BATCH_MESSAGE (320), also one-way.

This is the slow path, with every check. Fast-path sends usually do not come here: the compiled batch path
(send_path.py) takes them from the receive buffer; whatever it does not understand arrives here, and both end in the
same append.

Source:
    broker/processor/{SendMessageProcessor,AbstractSendMessageProcessor}.java.
"""

import asyncio
import logging
from datetime import UTC, datetime

from maxq.broker.bundles import Environment, Limits, Messages, Tables
from maxq.broker.processors.refusal import Refusal
from maxq.broker.processors.send.put_outcome import put_refusal
from maxq.broker.processors.send.retry_topics import RetryTopics
from maxq.broker.processors.send.send_checks import SendChecks
from maxq.broker.processors.send.send_properties import BrokerProperties, queue_by_priority, received_properties
from maxq.broker.tables.attributes import BATCH_CQ, QUEUE_TYPE
from maxq.broker.tables.topic.compaction_topics import is_compacted
from maxq.broker.tables.topic.topic_validator import TIMER_TOPIC, TOPIC_MAX_LENGTH, TRANS_HALF_TOPIC, is_retry_topic
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import RemoteProtocolError
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.enums import TopicFilterType
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.send import SendMessageRequestHeader, SendMessageResponseHeader
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import BATCH_MOST, UniqIdGenerator, batch_count
from maxq.protocol.message.message_sys_flag import MessageSysFlag
from maxq.protocol.message.recall_handle import RecallHandle
from maxq.remoting.endpoint import failure_reply
from maxq.remoting.server import Connection, RemotingServer
from maxq.runtime.refusals import Cause
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.store_results import PutMessageResult

log = logging.getLogger(__name__)

_UNIQUE_KEY = const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX
_MOST_DIGITS = 18  # digits of a time in ms that is far in the future
_ENCODE_BATCH = "send it as records of size, magic, CRC, flag, body and properties, whose sizes are theirs"


class SendMessageProcessor:
    """Processes sends: checks, appends, and answers once the message is as safe as the settings promise."""

    def __init__(
        self,
        env: Environment,
        tables: Tables,
        messages: Messages,
        limits: Limits,
        retries: RetryTopics,
    ) -> None:
        self._settings = env.settings
        self._store = messages.store
        self._acknowledgement = messages.acknowledgement
        self._topics = tables.topics
        self._stats = env.stats
        self._fast_failure = limits.fast_failure
        self._broker = env.own
        self._clock = env.clock
        self._rng = env.rng
        # makes ids for messages that have none; created for the first of them
        self._unique_ids: UniqIdGenerator | None = None
        self._hooks = messages.hooks
        self._retries = retries
        self._quotas = limits.quotas
        self._checks = SendChecks(env.settings, tables.topics)
        self._own_properties = BrokerProperties(env.own, lambda: env.settings.broker)
        self._unfinished: set[asyncio.Task[None]] = set()

    def _unique_id(self) -> str:
        """Make the UNIQ_KEY of a message that has none. It carries the address that clients reach."""
        if self._unique_ids is None:
            own = self._broker
            self._unique_ids = UniqIdGenerator(
                self._rng.below(1 << 16), own.resolved_ip or own.ip, self._clock, self._rng
            )
        return self._unique_ids.next()

    def register(self, server: RemotingServer) -> None:
        for code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
            server.register(code, self)

    def __call__(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Process a send. Returns None if the answer waits for the disk and is sent later."""
        header = SendMessageRequestHeader.decode_for(request.code, request.ext)
        version_before = self._topics.data_version.counter
        message = self._message(connection, request, header)
        if isinstance(message, Refusal):
            return message.reply_to(request, self._own_properties.for_reply())
        queue_id = message.queue_id
        refusal = self._retries.rewrite(header, request.version, message) or self._hooks.apply(message)
        if refusal is not None:
            return refusal.reply_to(request, self._own_properties.for_reply())
        is_inner_batch = message.sys_flag & MessageSysFlag.INNER_BATCH
        result = self._put(message, plain_batch=bool(header.batch) and not is_inner_batch)
        if not result.ok:
            self._fast_failure.put_times.failed += 1
            return put_refusal(result, self._settings.store).reply_to(request, self._own_properties.for_reply())
        if message.topic == TRANS_HALF_TOPIC:
            self._hooks.half_stored(message.properties[const.PROPERTY_REAL_TOPIC])
        reply = request.reply(ext=self._response(message, queue_id, result))
        topic_created = self._topics.data_version.counter != version_before
        outcome = None
        if message.wait_store_ok:
            outcome = self._acknowledgement.outcome(result.end_offset)
        else:
            self._acknowledgement.without_waiting()
        if outcome is None and not topic_created:
            return reply
        self._answer_later(connection, request, reply, outcome, topic_created)
        return None

    # ---- what is stored ---------------------------------------------------------------------------------------

    def _message(
        self, connection: Connection, request: RemotingCommand, header: SendMessageRequestHeader
    ) -> MessageExtBrokerInner | Refusal:
        refusal = self._too_early() or self._too_few_replicas() or self._quotas.send_refusal(header.topic, request)
        if refusal is not None:
            return refusal
        config = self._checks.destination(header, connection.remote_address)
        if isinstance(config, Refusal):
            return config
        properties = received_properties(header.properties)
        kind = "a batch" if header.batch else ""
        refusal = self._checks.message(config, properties, header.sys_flag, request, kind=kind)
        # in a compacted topic an empty body deletes the key
        if refusal is None and request.body_length == 0 and not is_compacted(config):
            remark = "the message is illegal: it has no body; send at least 1 byte"
            refusal = Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        if refusal is None and header.batch:
            refusal = self._checks.delay_in_batch(properties) or self._check_batch(config, request.body_bytes)
        if refusal is not None:
            return refusal
        message = MessageExtBrokerInner(
            header.topic,
            self._queue_id(config, header, properties),
            request.body_bytes,
            properties,
            flag=header.flag,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            born_host=connection.remote_host,
            reconsume_times=header.reconsume_times or 0,
        )
        if config.topic_filter_type == TopicFilterType.MULTI_TAG:
            message.sys_flag |= MessageSysFlag.MULTI_TAGS
        is_inner_batch = bool(header.batch) and config.attributes.get(QUEUE_TYPE) == BATCH_CQ
        # The messages of a plain batch are stored with their own properties; the request's only steer the request.
        if (is_inner_batch or not header.batch) and not properties.get(_UNIQUE_KEY):
            properties[_UNIQUE_KEY] = self._unique_id()
        self._own_properties.add_to(properties)
        if is_inner_batch:
            self._make_inner_batch(message)
        return message

    def _too_early(self) -> Refusal | None:
        begin_ms = self._settings.broker.start_accept_send_request_time_stamp
        if self._clock.wall_ms() >= begin_ms:
            return None
        moment = datetime.fromtimestamp(begin_ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")
        return Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"[{Cause.TOO_EARLY}]broker unable to service, until {moment} "
            f"(startAcceptSendRequestTimeStamp={begin_ms}); "
            "send elsewhere, or change the setting with updateBrokerConfig",
        )

    def _too_few_replicas(self) -> Refusal | None:
        remark = self._acknowledgement.refusal()
        return None if remark is None else Refusal(self._acknowledgement.refusal_code, remark)

    def _queue_id(self, config: TopicConfig, header: SendMessageRequestHeader, properties: dict[str, str]) -> int:
        if not header.batch:
            by_priority = queue_by_priority(properties, config.write_queue_nums)
            if by_priority is not None:
                return by_priority
        if header.queue_id >= 0:
            return header.queue_id
        return self._rng.below(max(config.write_queue_nums, 1))

    # ---- batches ----------------------------------------------------------------------------------------------

    def _check_batch(self, config: TopicConfig, body: bytes) -> Refusal | None:
        """Check each record of a batch, because it becomes a message of its own."""
        if len(config.topic_name.encode()) > TOPIC_MAX_LENGTH:
            return Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"message topic length too long {len(config.topic_name.encode())}, the limit is {TOPIC_MAX_LENGTH}; "
                "send its messages one by one",
            )
        try:
            count = batch_count(body)
        except RemoteProtocolError as error:
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"the batch is illegal: {error}; {_ENCODE_BATCH}")
        if count > BATCH_MOST:
            return Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the batch of {len(body)} bytes has more than {BATCH_MOST} messages; send smaller batches",
            )
        if not count:
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, "the batch is illegal: it holds no message; send at least one")
        return self._checks.batch(config, body, count)

    def _make_inner_batch(self, message: MessageExtBrokerInner) -> None:
        """Store a batch as one record, in a topic of batch queues; consumers unpack it."""
        count = batch_count(message.body)
        message.sys_flag |= MessageSysFlag.NEED_UNWRAP | MessageSysFlag.INNER_BATCH
        message.properties[const.PROPERTY_INNER_NUM] = str(count)

    # ---- storing and answering --------------------------------------------------------------------------------

    def _put(self, message: MessageExtBrokerInner, *, plain_batch: bool) -> PutMessageResult:
        began_ns = self._clock.monotonic_ns()
        result = self._store.put_batch(message) if plain_batch else self._store.put_message(message)
        took_ms = (self._clock.monotonic_ns() - began_ns) // 1_000_000
        self._fast_failure.append_took(took_ms)
        if result.ok:
            counter = self._stats.put_counter(message.topic, message.queue_id)
            counter.add(result.message_count, result.size, took_ms)
        return result

    def _response(self, message: MessageExtBrokerInner, queue_id: int, result: PutMessageResult) -> dict[str, str]:
        """Return the fields of the answer. `queue_id` belongs to the topic to which the message was sent; a hook may
        have moved it elsewhere."""
        unique_key = message.properties.get(_UNIQUE_KEY)
        header = SendMessageResponseHeader(result.msg_id, queue_id, result.queue_offset, unique_key)
        if message.sys_flag & MessageSysFlag.INNER_BATCH:
            header.batch_uniq_id = unique_key
        if message.topic == TIMER_TOPIC:
            header.recall_handle = self._recall_handle(message)
        return header.encode() | self._own_properties.for_reply()

    def _recall_handle(self, message: MessageExtBrokerInner) -> str | None:
        """Return the handle with which a timer message can be recalled before it is due; None for a message of a retry
        topic, and for one that a client sent to the timer's topic itself."""
        properties = message.properties
        topic, out_ms = properties.get(const.PROPERTY_REAL_TOPIC, ""), properties.get(const.PROPERTY_TIMER_OUT_MS, "")
        is_timed = topic and out_ms.isascii() and out_ms.isdigit() and len(out_ms) <= _MOST_DIGITS
        if not is_timed or is_retry_topic(topic):
            return None
        deliver_ms = int(out_ms) + 1  # a moment within the slot
        return RecallHandle(topic, self._broker.broker_name, deliver_ms, properties[_UNIQUE_KEY]).encode()

    def _answer_later(
        self,
        connection: Connection,
        request: RemotingCommand,
        reply: RemotingCommand,
        outcome: "asyncio.Future[ResponseCode] | None",
        topic_created: bool,
    ) -> None:
        task = asyncio.get_running_loop().create_task(
            self._wait_and_answer(connection, request, reply, outcome, topic_created)
        )
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)

    async def _wait_and_answer(
        self,
        connection: Connection,
        request: RemotingCommand,
        reply: RemotingCommand,
        outcome: "asyncio.Future[ResponseCode] | None",
        topic_created: bool,
    ) -> None:
        """Wait until disk and replicas have the stored message and the topic that it created, and name servers know
        that; then answer."""
        self._fast_failure.sends.enter()
        try:
            if outcome is not None:
                reply.code = await outcome
            if topic_created:
                await self._topics.published()
        except OSError as error:
            log.error("a message is in the log, but the disk failed: %s", error)
            reply.code, reply.remark = ResponseCode.FLUSH_DISK_TIMEOUT, f"stored, but the disk failed: {error}"
        except Exception as error:  # without it the client would get no answer
            failure = failure_reply(request, error)
            reply.code, reply.remark = failure.code, f"stored, but then: {failure.remark}"
        finally:
            self._fast_failure.sends.leave()
        if not request.is_oneway:
            connection.send(reply)

    async def drain(self) -> None:
        """Wait for the answers that wait for the disk."""
        await asyncio.gather(*self._unfinished, return_exceptions=True)
