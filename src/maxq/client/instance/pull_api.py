"""PullAPIWrapper: one pull from the right broker, its messages ready for the user.

Read/write separation, client side (RW-02): every answer names the broker of the group that the next pull of the queue
should ask (the master, or a slave while the backlog is larger than the master's memory). When that one cannot be
reached or does not serve readers, another of the group is asked for a while (broker_table.py); offsets are committed to
the master meanwhile, never along with a slave's pull.

Source: apache/rocketmq client/impl/consumer/PullAPIWrapper.java, common/sysflag/PullSysFlag.java.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from maxq.client.hooks import FilterMessageContext, FilterMessageHook, filtered
from maxq.client.instance.broker_table import BrokerTarget
from maxq.client.instance.client_api import pull_answer
from maxq.client.instance.mq_client import MQClientInstance
from maxq.client.instance.pull_stream import CHANGING, PullStream
from maxq.client.results.pull_result import PullResult, PullStatus
from maxq.codes import MQVersion, RequestCode, ResponseCode
from maxq.errors import BrokerError, ClientError, RemotingError
from maxq.protocol.body.route import MASTER_ID
from maxq.protocol.body.subscription import SubscriptionData
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.pull import (
    PULL_FLAG_COMMIT_OFFSET,
    PULL_FLAG_LITE,
    PULL_FLAG_SUBSCRIPTION,
    PULL_FLAG_SUSPEND,
)
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import MessageExt, decode_inner_batch, decode_records
from maxq.protocol.message.message_queue import MessageQueue
from maxq.protocol.message.message_sys_flag import MessageSysFlag
from maxq.protocol.message.received_cy import Pull, keep_records, read_records
from maxq.protocol.namespace import unwrap

NO_PROGRESS_WAIT_MS = 1_000  # pause before a broker is asked again for an offset that it does not have

_KNOWS_US_NOT = (
    ResponseCode.SUBSCRIPTION_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_NOT_LATEST,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED,
)
_INNER_BATCH = MessageSysFlag.INNER_BATCH | MessageSysFlag.NEED_UNWRAP


#: Takes the result of a pull. Returns True: pull again; False: this was the last one; None: it was not taken.
GoOn = Callable[[PullResult], bool | None]


class PullAPIWrapper:
    """Pulls for one consumer group (name on the wire)."""

    def __init__(
        self,
        instance: MQClientInstance,
        group: str,
        hooks: Sequence[FilterMessageHook],
        *,
        unit_mode: bool,
        connect_broker_by_user: int | None,
    ) -> None:
        """`connect_broker_by_user` is the id of the broker that every pull asks, in spite of other suggestions in
        answers."""
        self._instance = instance
        self._group = group
        self.hooks = hooks
        self._unit_mode = unit_mode
        self._pull_from_which_node: dict[MessageQueue, int] = {}
        self._began_at: dict[MessageQueue, int] = {}  # value of BrokerTable.changes when the last pull began
        self._connect_broker_by_user = connect_broker_by_user

    def recalculate_pull_from_which_node(self, queue: MessageQueue) -> int:
        """Return the broker id for the next pull of a queue: the user's fixed one, else the suggestion of the last
        answer, else the master's."""
        if self._connect_broker_by_user is not None:
            return self._connect_broker_by_user
        return self._pull_from_which_node.get(queue, MASTER_ID)

    def update_pull_from_which_node(self, queue: MessageQueue, broker_id: int) -> None:
        """Note which broker an answer suggests for the next pull of a queue."""
        self._pull_from_which_node[queue] = broker_id

    def forget(self, queue: MessageQueue) -> None:
        """Forget which broker of its group a queue is pulled from, because this member gave it up."""
        self._pull_from_which_node.pop(queue, None)
        self._began_at.pop(queue, None)

    async def pull(
        self,
        queue: MessageQueue,
        subscription: SubscriptionData,
        offset: int,
        *,
        max_nums: int,
        max_msg_bytes: int,
        commit_offset: Callable[[], int],
        suspend_ms: int,
        timeout_ms: int,
        send_expression: bool,
        lite: bool = False,
        keeps_records: bool = False,
        bulk_nums: int = 0,
        go_on: GoOn,
    ) -> PullResult | None:
        """Pull from `offset` on, and again for as long as `go_on` says so.

        Args:
            commit_offset: returns the queue offset that is committed along with a pull, if it is above 0 and the master
                is asked.
            suspend_ms: how long the broker may hold the request when there is nothing; 0 not at all.
            send_expression: put the filter into the request (else the broker knows it from the heartbeat).
            lite: LITE_PULL_MESSAGE.
            keeps_records: what a pull found is to stay records, if nothing about it is special; and a MaxQ broker is
                told that `max_nums` and `max_msg_bytes` count, whatever its own limits are.
            bulk_nums: messages that a pull asks for while the queue has many more, of a MaxQ broker, which is told that
                they count; 0: `max_nums`.
            go_on: called with the result of each pull that found something.

        Returns:
            The first result that `go_on` did not take, or that found nothing: messages whose tags match (the broker
            compared hashes only), in order, with MIN_OFFSET and MAX_OFFSET set and topics without namespace. None if
            all were taken.

        Raises:
            RemotingError, BrokerError: as they come.
            ClientError: no broker of this name is known.
        """
        self._began_at[queue] = self._instance.brokers.changes
        broker = await self._broker_for(queue)
        if not subscription.is_tag_type and 0 < broker.version < MQVersion.V4_1_0_SNAPSHOT:
            raise ClientError(
                f"broker {queue.broker_name} (version {broker.version}) is too old to filter by "
                f"{subscription.expression_type}"
            )
        sys_flag = PULL_FLAG_SUSPEND if suspend_ms > 0 else 0
        if send_expression:
            sys_flag |= PULL_FLAG_SUBSCRIPTION
        if lite:
            sys_flag |= PULL_FLAG_LITE
        header = {
            "consumerGroup": self._group,
            "topic": queue.topic,
            "queueId": str(queue.queue_id),
            "maxMsgNums": str(max_nums),
            "suspendTimeoutMillis": str(suspend_ms),
            "subVersion": str(subscription.sub_version),
            "expressionType": subscription.expression_type,
            "maxMsgBytes": str(max_msg_bytes),
            "bname": self._instance.routes.broker_of(queue),
        }
        if keeps_records:
            header["maxqMaxBytes"] = str(max_msg_bytes)
        if send_expression:
            header["subscription"] = subscription.sub_string
        bulk = {**header, "maxMsgNums": str(bulk_nums), "maxqMaxBytes": str(max_msg_bytes)} if bulk_nums else header
        instance = self._instance
        pulls = _QueuePulls(
            self, instance, queue, subscription, broker, offset, (header, bulk), bulk_nums, sys_flag, commit_offset,
            keeps_records, go_on,
        )  # fmt: skip
        code = RequestCode.LITE_PULL_MESSAGE if lite else RequestCode.PULL_MESSAGE
        try:
            connection = await instance.remoting.connect(broker.address, timeout_ms)
            response = await PullStream(
                instance.remoting, connection, broker.address, code, instance.config.serialize_type, timeout_ms,
                instance.environment.clock, pulls,
            ).run()  # fmt: skip
            if response is None:
                return None
            if response.code == ResponseCode.GO_AWAY:
                ext = {**pulls.header, **dict(zip(CHANGING, map(str, pulls.next_fields()), strict=True))}
                response = await instance.remoting.invoke(broker.address, instance.api.command(code, ext), timeout_ms)
            result, body = pull_answer(response, broker.address)
            if result.status is PullStatus.FOUND:
                result.messages = self.for_the_user(queue, subscription, pulls.offset, result, body)
        except (RemotingError, BrokerError) as error:
            self._note_failure(queue, broker, error)
            raise
        instance.brokers.trust(broker.address)
        self.update_pull_from_which_node(queue, result.suggest_which_broker_id)
        if result.status is PullStatus.NO_MATCHED_MSG and result.next_begin_offset == pulls.offset:
            await self._pause_without_progress(queue, broker)
        return result

    async def pause(self, queue: MessageQueue, limit_ms: int) -> None:
        """Wait after a failed pull of this queue until routes name other brokers than when it began, but not longer
        than `limit_ms`."""
        await self._instance.wait_for_brokers(limit_ms, since=self._began_at.pop(queue, None))

    async def _broker_for(self, queue: MessageQueue) -> BrokerTarget:
        brokers, wanted_id = self._instance.brokers, self.recalculate_pull_from_which_node(queue)
        broker = brokers.reader(self._instance.routes.broker_of(queue), wanted_id)
        if broker is None:
            try:
                await self._instance.routes.update_route(queue.topic)
            except (RemotingError, BrokerError) as error:
                raise ClientError(f"broker {queue.broker_name} of topic {queue.topic} is not known: {error}") from error
            broker = brokers.reader(self._instance.routes.broker_of(queue), wanted_id)
        if broker is None:
            raise ClientError(
                f"broker {queue.broker_name} is in no route of topic {queue.topic}: see whether it runs, and is "
                "registered with the name server (`maxq admin clusterList`)"
            )
        if broker.is_slave and wanted_id == MASTER_ID:
            self._instance.refresh_route_soon(queue.topic)  # the slave stands in for a master that may be back
        return broker

    def _note_failure(self, queue: MessageQueue, broker: BrokerTarget, error: RemotingError | BrokerError) -> None:
        """Ask other brokers of the group for a while after a failure that calls for it. That includes a slave that does
        not serve readers; Java's client asks it for ever, because only answers change where it pulls from."""
        is_moved = isinstance(error, BrokerError) and error.code == ResponseCode.NOT_LEADER_FOR_QUEUE
        self._instance.note_failure(broker.address, queue.topic, error)
        if isinstance(error, BrokerError) and broker.is_slave and error.code not in _KNOWS_US_NOT and not is_moved:
            self._instance.broker_failed(broker.address, queue.topic)
            self.update_pull_from_which_node(queue, MASTER_ID)

    async def _pause_without_progress(self, queue: MessageQueue, asked: BrokerTarget) -> None:
        """Wait if the next pull would go to the broker that lacks an offset. The other one, which its answer suggests,
        may be down, and the client would ask in a circle."""
        broker_name = self._instance.routes.broker_of(queue)
        following = self._instance.brokers.reader(broker_name, self.recalculate_pull_from_which_node(queue))
        if following is not None and following.address == asked.address:
            await asyncio.sleep(NO_PROGRESS_WAIT_MS / 1000)

    def for_the_user(
        self, queue: MessageQueue, subscription: SubscriptionData, offset: int, result: PullResult, body: bytes
    ) -> list[MessageExt]:
        """Return the messages of an answer whose records are `body`."""
        namespace, delta = self._instance.config.namespace, result.offset_delta
        tags = wanted_tags(subscription)
        if not self.hooks:
            pull = Pull(
                queue.broker_name,
                result.min_offset,
                result.max_offset,
                -1 if delta is None else queue.queue_id,
                delta or 0,
                partial(unwrap, namespace) if namespace else None,
            )
            found = read_records(body, pull, tags)
            if found is not None:
                return found
        messages = decode_records(body, inflate=True)
        if delta is not None:  # in a static topic, records have physical offsets
            for message in messages:
                message.queue_id = queue.queue_id
                message.queue_offset += delta
        if any(message.sys_flag & _INNER_BATCH == _INNER_BATCH for message in messages):
            messages = [inner for message in messages for inner in unpack(message) if inner.queue_offset >= offset]
        if tags is not None:
            messages = [message for message in messages if message.properties.get(const.PROPERTY_TAGS) in tags]
        if self.hooks:
            messages = filtered(self.hooks, FilterMessageContext(self._group, messages, queue, self._unit_mode))
        min_offset, max_offset = str(result.min_offset), str(result.max_offset)
        for message in messages:
            message.broker_name = queue.broker_name
            message.properties[const.PROPERTY_MIN_OFFSET] = min_offset
            message.properties[const.PROPERTY_MAX_OFFSET] = max_offset
            if namespace:
                message.topic = unwrap(namespace, message.topic)
        return messages


class _QueuePulls:
    """The pulls of one queue: their fields, and the handling of the answers.

    Attributes:
        offset: from which the next or the outstanding pull asks.
        header: of that pull, without what changes from one to the next.
    """

    def __init__(
        self,
        api: PullAPIWrapper,
        instance: MQClientInstance,
        queue: MessageQueue,
        subscription: SubscriptionData,
        broker: BrokerTarget,
        offset: int,
        headers: tuple[dict[str, str], dict[str, str]],
        bulk_nums: int,
        sys_flag: int,
        commit_offset: Callable[[], int],
        keeps_records: bool,
        go_on: GoOn,
    ) -> None:
        """`headers`: of a pull, and of one that asks for `bulk_nums` messages."""
        self._api = api
        self._brokers = instance.brokers
        self._queue = queue
        self._subscription = subscription
        self._tags = wanted_tags(subscription)
        namespace = instance.config.namespace
        self._unwrap = partial(unwrap, namespace) if namespace else None
        self._broker = broker
        self.offset = offset
        self.header, _ = self._headers = headers
        self._bulk_least = bulk_nums // 2  # messages left behind an answer from which on a larger pull is sent
        self._sys_flag = sys_flag
        self._commit_offset = commit_offset
        self._go_on = go_on
        self._changes = instance.brokers.changes
        self._node = api.recalculate_pull_from_which_node(queue)
        self._keeps_records = keeps_records

    def next_fields(self) -> tuple[int, int, int]:
        if not self._broker.is_slave and (commit := self._commit_offset()) > 0:
            return self.offset, commit, self._sys_flag | PULL_FLAG_COMMIT_OFFSET
        return self.offset, 0, self._sys_flag

    def take_found(
        self,
        next_begin_offset: int,
        min_offset: int,
        max_offset: int,
        suggested_id: int,
        records: memoryview,
        is_given: bool,
    ) -> bool | None:
        if self._api.hooks:
            return None
        pull = Pull(self._queue.broker_name, min_offset, max_offset, -1, 0, self._unwrap)
        result = PullResult(PullStatus.FOUND, next_begin_offset, min_offset, max_offset, suggested_id)
        if self._keeps_records:
            result.records = kept = keep_records(records, pull, self._tags, is_given)
            if kept is None:
                return None
        else:
            messages = read_records(records, pull, self._tags)
            if messages is None:
                return None
            result.messages = messages
        return self._taken(result)

    def take(self, response: RemotingCommand) -> bool | None:
        if response.code != ResponseCode.SUCCESS:
            return None
        result, body = pull_answer(response, self._broker.address)
        if self._keeps_records and not self._api.hooks and result.offset_delta is None:
            pull = Pull(self._queue.broker_name, result.min_offset, result.max_offset, -1, 0, self._unwrap)
            result.records = keep_records(body, pull, self._tags, isinstance(body, bytes))
        if result.records is None:
            result.messages = self._api.for_the_user(self._queue, self._subscription, self.offset, result, body)
        return self._taken(result)

    def _taken(self, result: PullResult) -> bool | None:
        is_to_go_on = self._go_on(result)
        if is_to_go_on is None:
            return None
        self._brokers.trust(self._broker.address)
        self.offset = result.next_begin_offset
        self.header = self._headers[result.max_offset - self.offset > self._bulk_least]
        if result.suggest_which_broker_id != self._node:
            self._api.update_pull_from_which_node(self._queue, result.suggest_which_broker_id)
            if self._api.recalculate_pull_from_which_node(self._queue) != self._node:
                return False
        return is_to_go_on and self._brokers.changes == self._changes


def wanted_tags(subscription: SubscriptionData) -> set[str] | None:
    """Return the tags of which a message must have one, because the broker compares hashes only; None: any will do."""
    if not subscription.is_tag_type or subscription.class_filter_mode:
        return None
    return subscription.tags_set or None


def unpack(message: MessageExt) -> list[MessageExt]:
    """Return the messages of an inner batch, with consecutive queue offsets; an ordinary message unchanged. A message
    that is wrongly marked as a batch is returned unchanged as well: its `body_fault` says why."""
    if message.sys_flag & _INNER_BATCH != _INNER_BATCH:
        return [message]
    batch = decode_inner_batch(message)
    if not batch:
        return [message]
    return [
        MessageExt(
            message.topic,
            inner.body,
            inner.properties,
            inner.flag,
            queue_id=message.queue_id,
            queue_offset=message.queue_offset + place,
            physical_offset=message.physical_offset,
            sys_flag=message.sys_flag,
            born_timestamp=message.born_timestamp,
            born_host=message.born_host,
            store_timestamp=message.store_timestamp,
            store_host=message.store_host,
            store_size=len(inner.body),
        )
        for place, inner in enumerate(batch)
    ]
