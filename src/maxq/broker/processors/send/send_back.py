"""CONSUMER_SEND_MSG_BACK (36): a consumer could not handle a message and gives it back.

The record is read again from the log, and a copy of it goes to the retry topic of the group, by way of a delay level;
after too many tries to the group's dead-letter topic. The copy shows the topic it was sent to (RETRY_TOPIC) and the id
it had there (ORIGIN_MESSAGE_ID).

The answer waits until the copy is as safe as the settings promise: the consumer then counts the original as consumed.
(Java answers at once, and a power failure can lose the message even with SYNC_FLUSH.)

Source:
    broker/processor/AbstractSendMessageProcessor.java consumerSendMsgBack.
"""

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from typing import Any, Final

from maxq.auth.signature import ACCESS_KEY
from maxq.broker.admission.access import refusal_of_record, sent_to
from maxq.broker.bundles import Environment, Messages, Tables
from maxq.broker.processors.acknowledgement import STAYS
from maxq.broker.processors.refusal import Refusal
from maxq.broker.processors.send.named_message import is_another
from maxq.broker.processors.send.retry_topics import RetryTopics
from maxq.broker.processors.support import RequestProcessor
from maxq.broker.schedule_message.delay_levels import DelayLevels
from maxq.codes import RequestCode, ResponseCode
from maxq.lazy_dataclass import dataclass
from maxq.protocol.body.route import MASTER_ID
from maxq.protocol.body.subscription import GroupRetryPolicy, SubscriptionGroupConfig
from maxq.protocol.body.topic_config import PERM_WRITE
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.send import ConsumerSendMsgBackRequestHeader
from maxq.protocol.json.json_body import read_int
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import MessageExt
from maxq.remoting.connection import Connection, Processor
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.store_results import PutMessageResult

log = logging.getLogger(__name__)
dlq_log = logging.getLogger("maxq.broker.dlq")

_FIRST_LEVEL = 3  # delay level of a message that failed for the first time
_NOT_COMMITTED = "[{}] the message is not committed by a majority of the DLedger group; give it back again"
FLUSH_DISK_TIMEOUT_REMARK = "FLUSH_DISK_TIMEOUT the message is stored, but not on the disk within syncFlushTimeout"
_OWNER = "Owner"  # the field of the request that Java's statistics name the consumer by


# How long a failed message waits: the retry policy of its group, where it has one.
#
# A group's policy counts for messages that come back without a delay level. They are delayed by levels, so a policy's
# time becomes the shortest level that is not shorter, or the longest there is. (A Java broker heeds the policy only in
# its proxy; remoting consumers get level 3 + times whatever it says. A group without a policy gets that here, too.)
#
# Source:
#     remoting/protocol/subscription/{GroupRetryPolicy,CustomizedRetryPolicy,ExponentialRetryPolicy}.java.

_EXPONENTIAL: Final = "EXPONENTIAL"
_CUSTOMIZED: Final = "CUSTOMIZED"
_INITIAL_MS: Final = 5_000
_MOST_MS: Final = 2 * 3_600_000
_MULTIPLIER: Final = 2
_TIMES_MOST: Final = 32
_FIRST_TRY: Final = 2  # the first retry is the third of a customized table, as it is level 3


def next_delay_ms(policy: GroupRetryPolicy, reconsume_times: int) -> int | None:
    """Returns the delay in ms of a message that failed for the `reconsume_times + 1`-th time; None if the policy has
    no value for it."""
    try:
        if policy.type == _EXPONENTIAL and policy.exponential_retry_policy is not None:
            return _exponential(policy.exponential_retry_policy, reconsume_times)
        if policy.type == _CUSTOMIZED and policy.customized_retry_policy is not None:
            return _customized(policy.customized_retry_policy, reconsume_times)
    except (TypeError, ValueError):  # clients may have stored anything there
        return None
    return None


def _exponential(policy: Mapping[str, Any], reconsume_times: int) -> int:
    initial = read_int(policy.get("initial", _INITIAL_MS))
    most = read_int(policy.get("max", _MOST_MS))
    multiplier = read_int(policy.get("multiplier", _MULTIPLIER))
    growth = int(multiplier ** min(max(reconsume_times, 0), _TIMES_MOST))
    return max(0, min(most, initial * growth))


def _customized(policy: Mapping[str, Any], reconsume_times: int) -> int | None:
    delays = policy.get("next")
    if not isinstance(delays, list) or not delays:
        return None
    return max(0, read_int(delays[min(max(reconsume_times, 0) + _FIRST_TRY, len(delays) - 1)]))


@dataclass(frozen=True, slots=True)
class _Copy:
    """The parts of a sent-back message from which its copy is stored."""

    message: MessageExtBrokerInner
    origin_topic: str
    is_dead: bool


class SendBackProcessor(RequestProcessor):
    """Answers CONSUMER_SEND_MSG_BACK (36): a message that could not be consumed is to be delivered again."""

    def __init__(
        self, env: Environment, tables: Tables, messages: Messages, retries: RetryTopics, levels: DelayLevels
    ) -> None:
        self._topics = tables.topics
        self._store = messages.store
        self._acknowledgement = messages.acknowledgement
        self._settings = env.settings
        self._own = env.own
        self._retries = retries
        self._guard = env.guard
        self._hooks = messages.hooks
        self._levels = levels
        self._rng = env.rng

    def routes(self) -> Mapping[int, Processor]:
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back}

    def send_back(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand]:
        """Process a message that a consumer sends back; see the module's docstring. A failing consumer sends back
        thousands: if there is nothing to wait for, the answer is returned at once and leaves with the others of its
        arrival."""
        header = ConsumerSendMsgBackRequestHeader.decode(request.ext)
        group = self._group(header)
        if isinstance(group, Refusal):
            return group.reply_to(request)
        if group.retry_queue_nums <= 0:  # a group that wants no second try
            return request.reply()
        version_before = self._topics.data_version.counter
        failed = self._failed(connection, request, header)
        if isinstance(failed, RemotingCommand):
            return failed
        copy = self._copy(failed, header, group, request.version)
        if isinstance(copy, Refusal):
            return copy.reply_to(request)
        result = self._store.put_message(copy.message)
        if not result.ok:
            return request.reply(ResponseCode.SYSTEM_ERROR, f"{result.status.name} {result.remark}".rstrip())
        self._count(header, copy, request.ext.get(_OWNER), result)
        outcome = self._acknowledgement.outcome(result.end_offset)
        made_topic = self._topics.data_version.counter != version_before
        if outcome is None and not made_topic:
            return request.reply()
        return self._answer_when_safe(request, outcome, made_topic)

    async def _answer_when_safe(
        self, request: RemotingCommand, outcome: "asyncio.Future[ResponseCode] | None", made_topic: bool
    ) -> RemotingCommand:
        code = ResponseCode.SUCCESS if outcome is None else await outcome
        if made_topic:
            await self._topics.published()
        remark = unsafe_remark(code)
        return request.reply(ResponseCode.SYSTEM_ERROR, remark) if remark else request.reply()

    # ---- may it come back? --------------------------------------------------------------------------------------

    def _group(self, header: ConsumerSendMsgBackRequestHeader) -> SubscriptionGroupConfig | Refusal:
        broker = self._settings.broker
        if self._own.broker_id != MASTER_ID:
            return Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"no master available along with {broker.broker_ip1}: this broker is a slave (id "
                f"{self._own.broker_id}); send the message to the group's retry topic at a master",
            )
        group = self._retries.group(header.group)
        if isinstance(group, Refusal):
            return group
        if not broker.broker_permission & PERM_WRITE:
            return Refusal(
                ResponseCode.NO_PERMISSION,
                f"the broker[{broker.broker_ip1}] sending message is forbidden: brokerPermission is "
                f"{broker.broker_permission}; writing needs {PERM_WRITE}: set it with updateBrokerConfig",
            )
        remark = self._acknowledgement.refusal()
        return group if remark is None else Refusal(ResponseCode.SYSTEM_ERROR, remark)

    # ---- what is stored -----------------------------------------------------------------------------------------

    def _failed(
        self, connection: Connection, request: RemotingCommand, header: ConsumerSendMsgBackRequestHeader
    ) -> MessageExt | RemotingCommand:
        """Return the message that the request names; a refusal if there is none or the sender may not read it."""
        failed = self._store.look_message_by_offset(header.offset)
        if failed is None:
            return request.reply(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.offset}")
        guard = self._guard
        refused = refusal_of_record(guard, connection, request, failed)
        if refused is not None:
            return refused
        if is_another(failed, header.origin_msg_id):
            remark = (
                f"look message by offset failed, {header.offset}: another message is there, {failed.msg_id}, and not "
                f"{header.origin_msg_id}; send the message to the group's retry topic"
            )
            return request.reply(ResponseCode.SYSTEM_ERROR, remark)
        if guard is not None and sent_to(failed) == failed.topic:
            guard.session(connection).remember_read(request.ext.get(ACCESS_KEY, ""), failed.topic)
        return failed

    def _copy(
        self,
        failed: MessageExt,
        header: ConsumerSendMsgBackRequestHeader,
        group: SubscriptionGroupConfig,
        version: int,
    ) -> _Copy | Refusal:
        config = self._retries.retry_topic(group, unit_mode=header.unit_mode)
        if not config.perm & PERM_WRITE:
            return _forbidden(config.topic_name, config.perm)
        most = self._retries.most_times(group, header.max_reconsume_times, version)
        is_dead = failed.reconsume_times >= most or header.delay_level < 0
        if is_dead:
            config = self._retries.dlq_topic(group.group_name)
        level = 0 if is_dead else header.delay_level or level_of(self._levels, group, failed.reconsume_times)
        queue_id = 0 if is_dead else self._rng.below(group.retry_queue_nums)
        message = sent_back(failed, config.topic_name, queue_id, level)
        refusal = self._hooks.apply(message)
        if refusal is not None:
            return refusal
        return _Copy(message, message.properties[const.PROPERTY_RETRY_TOPIC], is_dead)

    def _count(
        self, header: ConsumerSendMsgBackRequestHeader, copy: _Copy, owner: str | None, result: PutMessageResult
    ) -> None:
        self._retries.count_sent_back(header.group, copy.origin_topic)
        if not copy.is_dead:
            return
        self._retries.count_dead_letter(owner, header.group, header.origin_topic, copy.origin_topic)
        dlq_log.info(
            "send msg to DLQ %s, owner=%s, originalTopic=%s, consumerId=%s, msgUniqKey=%s, storeTimestamp=%d",
            copy.message.topic, owner, header.origin_topic, header.group,
            copy.message.properties.get(const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX), result.store_timestamp,
        )  # fmt: skip


def sent_back(failed: MessageExt, topic: str, queue_id: int, level: int) -> MessageExtBrokerInner:
    """Make the copy of a sent-back message. It keeps the sender and the time of the original, and counts the failed
    attempt."""
    properties = {name: value for name, value in failed.properties.items() if name != const.PROPERTY_CRC32}
    properties.setdefault(const.PROPERTY_RETRY_TOPIC, failed.topic)
    properties[const.PROPERTY_WAIT_STORE_MSG_OK] = "false"
    properties[const.PROPERTY_DELAY_TIME_LEVEL] = str(level)
    if not properties.get(const.PROPERTY_ORIGIN_MESSAGE_ID, "").strip():
        properties[const.PROPERTY_ORIGIN_MESSAGE_ID] = failed.offset_msg_id
    return MessageExtBrokerInner(
        topic,
        queue_id,
        failed.body,
        properties,
        flag=failed.flag,
        sys_flag=failed.sys_flag,
        born_timestamp=failed.born_timestamp,
        born_host=failed.born_host,
        reconsume_times=failed.reconsume_times + 1,
    )


def _forbidden(topic: str, perm: int) -> Refusal:
    return Refusal(
        ResponseCode.NO_PERMISSION,
        f"the topic[{topic}] sending message is forbidden: its perm is {perm}, writing needs {PERM_WRITE}; "
        "set it with updateTopicPerm",
    )


def unsafe_remark(code: ResponseCode) -> str:
    """Return why a stored message, whose wait ended with `code`, must be sent back once more; empty if it need not;
    missing replicas alone are not a reason."""
    if code == ResponseCode.FLUSH_DISK_TIMEOUT:
        return FLUSH_DISK_TIMEOUT_REMARK
    return "" if code in STAYS else _NOT_COMMITTED.format(code.name)


def level_of(levels: DelayLevels, group: SubscriptionGroupConfig, reconsume_times: int) -> int:
    """Return the delay level of a message that came back after `reconsume_times` attempts, where the consumer names
    none."""
    delay_ms = next_delay_ms(group.group_retry_policy, reconsume_times)
    return _FIRST_LEVEL + reconsume_times if delay_ms is None else levels.not_shorter_than(delay_ms)
