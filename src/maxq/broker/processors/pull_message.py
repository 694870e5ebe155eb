"""PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361): read on from an offset, or wait for messages.

A pull is one or more passes over the same steps: check, read, answer. The first may park it (longpolling/);
messages or the safety net bring it back as a replay, which may leave it parked; the last pass answers in any case.
Message bytes leave as views of the mapped log. A reader that is far behind reads pages that are not in memory: those
are brought in by the executor before the loop writes them to the socket.

Source:
    broker/processor/{PullMessageProcessor,DefaultPullMessageResultHandler}.java; broker-api.md §10, §11, ha.md §6.1.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from maxq.broker.broker_identity import BrokerAddress
from maxq.broker.fast_failure import FastFailure
from maxq.broker.longpolling.pull_request_hold_service import HeldPull, PullRequestHoldService
from maxq.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from maxq.broker.processors.pull_read_rules import AHEAD_WAIT_MS, ReadRules
from maxq.broker.processors.pull_subscription import (
    FORBIDDEN_BROKER,
    FORBIDDEN_GROUP,
    FORBIDDEN_TOPIC,
    PullSubscriptions,
)
from maxq.broker.processors.refusal import FAQ, Refusal
from maxq.broker.quota.quotas import Quotas
from maxq.broker.stats import names
from maxq.broker.stats.broker_stats_manager import BrokerStatsManager
from maxq.broker.subscription.subscription_group_manager import SubscriptionGroupManager
from maxq.broker.topic.topic_config_manager import TopicConfigManager
from maxq.codes import RequestCode, ResponseCode
from maxq.config.settings import BrokerSettings
from maxq.protocol.body.subscription import SubscriptionData, SubscriptionGroupConfig
from maxq.protocol.body.topic_config import PERM_READ, TopicConfig
from maxq.protocol.header.pull import PullMessageRequestHeader
from maxq.protocol.remoting_command import RemotingCommand
from maxq.remoting.endpoint import AnswerListener
from maxq.remoting.server import Connection, RemotingServer
from maxq.runtime.interfaces import Clock
from maxq.store.gather_cy import OMIT_BODY, OMIT_BODY_AND_PROPERTIES, OMIT_NOTHING
from maxq.store.message_store import MessageStore
from maxq.store.property_filter import PropertyFilter
from maxq.store.store_results import OMIT_RECORDS, BulkRead, GetMessageResult, GetMessageStatus

log = logging.getLogger(__name__)

_COMMIT_OFFSET = 1  # bits of the request's sysFlag
_SUSPEND = 2
_SUBSCRIPTION = 4
_SHORT_POLLING_FLOOR_MS = 1
_QUOTA_WAIT_MS = 1000  # of a pull that may not be held, when its group is above its quota
_ROUNDS = 10  # reads of one parked pull for one arrival
_MAX_BYTES = 128 << 20  # of a pull that names no limit
_OMITTED = {"body": OMIT_BODY, "body,properties": OMIT_BODY_AND_PROPERTIES, "records": OMIT_RECORDS}

_CODES: dict[GetMessageStatus, ResponseCode] = {
    GetMessageStatus.FOUND: ResponseCode.SUCCESS,
    GetMessageStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
#: 21 when the reader expected something there, 19 when it starts on an empty queue.
_EMPTY_QUEUE = (GetMessageStatus.NO_MESSAGE_IN_QUEUE, GetMessageStatus.NO_MATCHED_LOGIC_QUEUE)
#: A parked pull whose replay ends like this may go on waiting.
_NOTHING_YET = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY)


Learn = Callable[
    [PullMessageRequestHeader, TopicConfig, SubscriptionGroupConfig, SubscriptionData, PropertyFilter | None], None
]


def _nothing_learned(
    header: PullMessageRequestHeader,
    topic: TopicConfig,
    group: SubscriptionGroupConfig,
    subscription: SubscriptionData,
    wanted: PropertyFilter | None,
) -> None:
    """Without a batch path every pull takes the general way."""


class _Pull(NamedTuple):
    """A request that passed the checks."""

    header: PullMessageRequestHeader
    group: SubscriptionGroupConfig
    topic: TopicConfig
    subscription: SubscriptionData
    wanted: PropertyFilter | None  # filter on properties; None: by tags
    began_ms: int  # monotonic


class _Outcome(NamedTuple):
    """What a read gave, and what a client is told."""

    result: GetMessageResult
    code: ResponseCode
    remark: str
    suggested_id: int  # of the broker to ask next
    is_ahead: bool = False  # of this slave's copy of the queue: worth a short wait


class PullMessageProcessor:
    """Answers pulls. `hold_service` parks those that find nothing.

    Attributes:
        rules: who is served here, and who is sent elsewhere.
    """

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        subscriptions: PullSubscriptions,
        hold_service: PullRequestHoldService,
        stats: BrokerStatsManager,
        fast_failure: FastFailure,
        clock: Clock,
        broker: BrokerAddress,
        quotas: Quotas,
    ) -> None:
        self._settings = settings
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._subscriptions = subscriptions
        self._hold_service = hold_service
        self._stats = stats
        self._fast_failure = fast_failure
        self._clock = clock
        self._broker = broker
        self._quotas = quotas
        self.rules = ReadRules(settings)
        self._reading: set[asyncio.Task[None]] = set()
        self._waiting: set[asyncio.Task[None]] = set()  # for a quota
        self._learn: Learn = _nothing_learned
        self.on_held_answer: AnswerListener | None = None  # told of the answers to parked pulls
        hold_service.set_replay(self.replay)

    def set_learn(self, learn: Learn) -> None:
        """`learn` is told of every pull that passed the checks and found messages in memory (broker/pull_path.py)."""
        self._learn = learn

    def register(self, server: RemotingServer) -> None:
        for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
            server.register(code, self)

    def __call__(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """The first pass: None when the pull was parked or waits for the disk."""
        return self._first_pass(connection, request, may_wait=True)

    def _first_pass(self, connection: Connection, request: RemotingCommand, may_wait: bool) -> RemotingCommand | None:
        if (refusal := self.rules.refusal()) is not None:
            return refusal.reply_to(request)
        header = PullMessageRequestHeader.decode(request.ext)
        pull = self._check(connection, request.code, header)
        if isinstance(pull, Refusal):
            return pull.reply_to(request)
        if self._quotas.pull_wait_ms(header.consumer_group, request):
            self._wait_for_quota(connection, request, header)
            return None
        outcome = self._read(pull, header.queue_offset, may_wait)
        if outcome.result.must_read_first:
            self._in_background(self._pass_after_reading(connection, request, outcome.result))
            return None
        if header.sys_flag & _COMMIT_OFFSET:
            self._offsets.commit_offset(
                connection.remote_address, header.consumer_group, header.topic, header.queue_id, header.commit_offset
            )
        if (outcome.code == ResponseCode.PULL_NOT_FOUND or outcome.is_ahead) and self._park(
            connection, request, header, at_most_ms=AHEAD_WAIT_MS if outcome.is_ahead else None
        ):
            return None
        if outcome.code == ResponseCode.SUCCESS and header.maxq_max_bytes is None:
            self._learn(header, pull.topic, pull.group, pull.subscription, pull.wanted)
        return self._answer(connection, request, pull, outcome)

    def replay(self, held: HeldPull, last: bool) -> bool:
        """A later pass for a parked pull; True when it was answered. One that was taken in is not refused because this
        slave may not be read any more: its master is back, and the answer sends the reader there."""
        connection, request = held.connection, held.request
        pull = self._check(connection, request.code, held.header)
        if isinstance(pull, Refusal):
            connection.send(pull.reply_to(request))
            return True
        if self._quotas.pull_wait_ms(held.header.consumer_group, request):
            self._wait_for_quota(connection, request, held.header)
            return True
        outcome = self._read(pull, held.offset)
        for _ in range(_ROUNDS):  # one arrival may bring more than one read looks at
            if last or outcome.code not in _NOTHING_YET:
                break
            # Messages that the filter rejects are behind it now.
            held.offset = max(held.offset, outcome.result.next_begin_offset)
            if held.offset >= outcome.result.max_offset:
                return False
            outcome = self._read(pull, held.offset)
        if outcome.code == ResponseCode.PULL_NOT_FOUND and held.offset > held.first_offset:
            # Nothing for this reader, but its client's offset moves on.
            code, remark = ResponseCode.PULL_RETRY_IMMEDIATELY, GetMessageStatus.NO_MATCHED_MESSAGE.name
            outcome = outcome._replace(code=code, remark=remark)
        reply = self._answer(connection, request, pull, outcome)
        if reply is not None:
            connection.send(reply)
            if self.on_held_answer is not None:
                self.on_held_answer(request, reply, self._clock.monotonic_ms() - held.began_ms)
        return True

    # ---- checks -----------------------------------------------------------------------------------------------

    def _check(self, connection: Connection, code: int, header: PullMessageRequestHeader) -> _Pull | Refusal:
        broker = self._settings.broker
        if not broker.broker_permission & PERM_READ:
            return Refusal(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._broker.ip}] pulling message is forbidden: "
                f"brokerPermission is {broker.broker_permission}, reading needs {PERM_READ}; set it with "
                "updateBrokerConfig",
                FORBIDDEN_BROKER,
            )
        if code == RequestCode.LITE_PULL_MESSAGE and not broker.lite_pull_message_enable:
            return Refusal(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._broker.ip}] for lite pull consumer is forbidden: litePullMessageEnable is "
                "false; set it with updateBrokerConfig",
                FORBIDDEN_BROKER,
            )
        group = self._groups.find_subscription_group_config(header.consumer_group)
        if group is None:
            return Refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{header.consumer_group}] does not exist, \n{FAQ}",
            )
        if not group.consume_enable:
            why = self._groups.why_disabled(header.consumer_group)
            why = why or "its consumeEnable is false; set it with updateSubGroup -s true"
            remark = f"subscription group no permission, {header.consumer_group}: {why}"
            return Refusal(ResponseCode.NO_PERMISSION, remark, FORBIDDEN_GROUP)
        topic = self._check_topic(connection, header)
        if isinstance(topic, Refusal):
            return topic
        subscription = self._check_subscription(connection, header, group)
        if isinstance(subscription, Refusal):
            return subscription
        wanted = self._subscriptions.filter_of(header, subscription)
        if isinstance(wanted, Refusal):
            return wanted
        return _Pull(header, group, topic, subscription, wanted, self._clock.monotonic_ms())

    def _check_topic(self, connection: Connection, header: PullMessageRequestHeader) -> TopicConfig | Refusal:
        topic = self._topics.select_topic_config(header.topic)
        if topic is None:
            return Refusal(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please! \n{FAQ}"
            )
        if not topic.perm & PERM_READ:
            return Refusal(
                ResponseCode.NO_PERMISSION,
                f"the topic[{header.topic}] pulling message is forbidden: its perm is {topic.perm}, reading needs "
                f"{PERM_READ}; set it with updateTopicPerm",
                FORBIDDEN_TOPIC,
            )
        if not 0 <= header.queue_id < topic.read_queue_nums:
            return Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[/{connection.remote_address}]; "
                "fetch the route anew, or give the topic more queues with updateTopic",
            )
        return topic

    def _check_subscription(
        self, connection: Connection, header: PullMessageRequestHeader, group: SubscriptionGroupConfig
    ) -> SubscriptionData | Refusal:
        if header.sys_flag & _SUBSCRIPTION:
            found = self._subscriptions.from_header(
                header.topic, header.subscription or "", header.expression_type or ""
            )
        else:
            found = self._subscriptions.from_heartbeat(group, header.topic, header.sub_version)
        if isinstance(found, Refusal):
            return found
        refusal = self._subscriptions.reject_unregistered(header.consumer_group, connection)
        return refusal if refusal is not None else found

    # ---- reading ----------------------------------------------------------------------------------------------

    def _read(self, pull: _Pull, offset: int, may_wait: bool = False) -> _Outcome:
        header = pull.header
        topic, queue_id, group = header.topic, header.queue_id, header.consumer_group
        if self._settings.broker.use_server_side_reset_offset and not self.rules.is_slave:
            reset = self._offsets.query_then_erase_reset_offset(topic, group, queue_id)
            if reset is not None:
                return self._moved(pull, reset)
        most = _MAX_BYTES if header.max_msg_bytes is None else header.max_msg_bytes
        result = self._store.get_message(
            group,
            topic,
            queue_id,
            offset,
            header.max_msg_nums,
            pull.subscription,
            max_bytes=most,
            wanted=pull.wanted,
            may_wait=may_wait,
            bulk=self._bulk(header),
        )
        if result.filtered_count:
            self._stats.add(names.GROUP_FILTERED_NUMS, f"{topic}@{group}", result.filtered_count)
        code = _response_code(result, offset)
        direction = self.rules.direct(code, pull.group, result.suggest_pulling_from_slave)
        is_ahead = offset > result.max_offset and self.rules.may_wait_for_copy(code)
        return _Outcome(result, direction.code, result.status.name, direction.broker_id, is_ahead)

    def _bulk(self, header: PullMessageRequestHeader) -> BulkRead | None:
        """Does the reader take much at once? Its wishes go as far as bulkPullMaxBytes, if bytes are to
        travel."""
        most = self._settings.broker.bulk_pull_max_bytes
        if header.maxq_max_bytes is None or header.maxq_max_bytes <= 0 or not most:
            return None
        omit = _OMITTED.get(header.maxq_omit or "", OMIT_NOTHING)
        return BulkRead(header.maxq_max_bytes if omit == OMIT_RECORDS else min(header.maxq_max_bytes, most), omit)

    def _moved(self, pull: _Pull, offset: int) -> _Outcome:
        """An administrator reset the group's offset: told once, and by a master."""
        topic, queue_id = pull.header.topic, pull.header.queue_id
        result = GetMessageResult(
            GetMessageStatus.OFFSET_OVERFLOW_BADLY,
            next_begin_offset=offset,
            min_offset=self._store.min_offset(topic, queue_id),
            max_offset=self._store.max_offset(topic, queue_id),
        )
        suggested_id = self.rules.suggest(pull.group, is_behind=False)
        return _Outcome(result, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", suggested_id)

    def _park(
        self,
        connection: Connection,
        request: RemotingCommand,
        header: PullMessageRequestHeader,
        *,
        at_most_ms: int | None,
    ) -> bool:
        """True if the request waits from now on; it is answered empty otherwise, and the client asks again."""
        broker = self._settings.broker
        if not header.sys_flag & _SUSPEND or request.is_oneway:
            return False
        if self._hold_service.held_count >= broker.pull_thread_pool_queue_capacity:
            return False
        wait_ms = header.suspend_timeout_millis if broker.long_polling_enable else broker.short_polling_time_mills
        if at_most_ms is not None:
            wait_ms = min(wait_ms, at_most_ms)
        self._hold_service.hold(
            HeldPull(
                connection,
                request,
                header,
                (header.topic, header.queue_id),
                header.queue_offset,
                header.queue_offset,
                self._clock.monotonic_ms() + max(wait_ms, _SHORT_POLLING_FLOOR_MS),
                self._clock.monotonic_ms(),
            )
        )
        return True

    # ---- answering --------------------------------------------------------------------------------------------

    def _answer(
        self, connection: Connection, request: RemotingCommand, pull: _Pull, outcome: _Outcome
    ) -> RemotingCommand | None:
        """The reply; None when its bytes come from the disk first and it is sent later."""
        header, result = pull.header, outcome.result
        self._offsets.commit_pull_offset(
            connection.remote_address, header.consumer_group, header.topic, header.queue_id, result.next_begin_offset
        )
        ext = {
            "suggestWhichBrokerId": str(outcome.suggested_id),
            "nextBeginOffset": str(result.next_begin_offset),
            "minOffset": str(result.min_offset),
            "maxOffset": str(result.max_offset),
            "topicSysFlag": str(pull.topic.topic_sys_flag),
            "groupSysFlag": str(pull.group.group_sys_flag),
        }
        if outcome.code != ResponseCode.SUCCESS:
            return request.reply(outcome.code, outcome.remark, ext)
        if self._bulk(header) is not None:
            ext["maxqCount"], ext["maxqBytes"] = str(result.message_count), str(result.total_bytes)
        self._count(pull, result)
        self._quotas.delivered(header.consumer_group, request, result.message_count, result.total_bytes)
        reply = request.reply(outcome.code, outcome.remark, ext, result.buffers)
        if not result.cold:
            return reply
        self._in_background(self._send_cold(connection, reply, result))
        return None

    def _count(self, pull: _Pull, result: GetMessageResult) -> None:
        header = pull.header
        counter = self._stats.get_counter(header.consumer_group, header.topic, header.queue_id)
        latency_ms = self._clock.monotonic_ms() - pull.began_ms
        if latency_ms > self._stats.longest_get_ms:
            self._stats.longest_get_ms = latency_ms
        counter.add(result.message_count, result.total_bytes, latency_ms, bool(result.cold))
        counter.fall_behind_bytes = max(0, self._store.max_physical_offset - result.last_physical_offset)

    def _in_background(self, reading: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(reading)
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)

    async def _send_cold(self, connection: Connection, reply: RemotingCommand, result: GetMessageResult) -> None:
        """Answer when the messages are in memory."""
        refusal = await self._bring_in(connection, reply, result)
        connection.send(reply if refusal is None else refusal)

    async def _pass_after_reading(
        self, connection: Connection, request: RemotingCommand, result: GetMessageResult
    ) -> None:
        """The first pass once more, when the properties it tests are in memory."""
        reply = await self._bring_in(connection, request, result)
        if reply is None:
            reply = self._try_first_pass(connection, request)
        if reply is not None:
            connection.send(reply)

    def _wait_for_quota(
        self, connection: Connection, request: RemotingCommand, header: PullMessageRequestHeader
    ) -> None:
        task = asyncio.get_running_loop().create_task(self._pass_after_waiting(connection, request, header))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _pass_after_waiting(
        self, connection: Connection, request: RemotingCommand, header: PullMessageRequestHeader
    ) -> None:
        """The first pass once more, when the group's quota allows it; PULL_NOT_FOUND if that takes too long."""
        group = header.consumer_group
        suspends = header.sys_flag & _SUSPEND and header.suspend_timeout_millis > 0
        end_ms = self._clock.monotonic_ms() + (header.suspend_timeout_millis if suspends else _QUOTA_WAIT_MS)
        self._fast_failure.pulls.enter()
        try:
            while (wait_ms := self._quotas.pull_wait_ms(group, request)) and not connection.is_closed:
                left_ms = end_ms - self._clock.monotonic_ms()
                if left_ms <= 0:
                    break
                await asyncio.sleep(min(wait_ms, left_ms) / 1000)
        finally:
            self._fast_failure.pulls.leave()
        if connection.is_closed:
            return
        if wait_ms:
            reply: RemotingCommand | None = self._not_now(request, header)
        else:
            reply = self._try_first_pass(connection, request)
        if reply is not None:
            connection.send(reply)

    def _not_now(self, request: RemotingCommand, header: PullMessageRequestHeader) -> RemotingCommand:
        offset, topic, queue_id = str(header.queue_offset), header.topic, header.queue_id
        ext = {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": offset,
            "minOffset": str(self._store.min_offset(topic, queue_id)),
            "maxOffset": str(self._store.max_offset(topic, queue_id)),
        }
        remark = self._quotas.pull_remark(header.consumer_group, request)
        return request.reply(ResponseCode.PULL_NOT_FOUND, remark, ext)

    def _try_first_pass(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        try:
            return self._first_pass(connection, request, may_wait=False)
        except Exception as error:  # nobody else would answer
            log.exception("a pull of %s failed", connection.remote_address)
            return request.reply(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")

    async def _bring_in(
        self, connection: Connection, command: RemotingCommand, result: GetMessageResult
    ) -> RemotingCommand | None:
        """Have what `result` points to in memory; the answer to `command` if the disk does not give it."""
        self._fast_failure.pulls.enter()
        try:
            await asyncio.get_running_loop().run_in_executor(None, result.bring_in)
        except Exception as error:  # nobody else would answer
            log.exception("messages for %s could not be read from the disk", connection.remote_address)
            remark = f"the messages could not be read from the disk: {type(error).__name__}: {error}"
            return command.reply(ResponseCode.SYSTEM_ERROR, remark)
        finally:
            self._fast_failure.pulls.leave()
        return None

    async def drain(self) -> None:
        """Wait for the answers whose bytes are being read from the disk; who waits for a quota is not answered."""
        for task in self._waiting:
            task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)


def _response_code(result: GetMessageResult, offset: int) -> ResponseCode:
    """What a client is told (composeResponseHeader; broker-api §10.3)."""
    if result.status in _EMPTY_QUEUE:
        return ResponseCode.PULL_OFFSET_MOVED if offset != 0 else ResponseCode.PULL_NOT_FOUND
    return _CODES[result.status]
