"""PullAPIWrapper: one pull from the right broker, its messages ready for the user.

Read/write separation, client side (RW-02): every answer names the broker of the group that the next pull of the queue
should ask (the master, or a slave while the backlog is larger than the master's memory). When that one cannot be
reached or does not serve readers, another of the group is asked for a while (broker_table.py); offsets are committed to
the master meanwhile, never along with a slave's pull.

Source: apache/rocketmq client/impl/consumer/PullAPIWrapper.java, common/sysflag/PullSysFlag.java.
"""

import asyncio
from collections.abc import Sequence

from maxq.client.hooks import FilterMessageContext, FilterMessageHook, filtered
from maxq.client.instance.broker_table import BrokerTarget
from maxq.client.instance.mq_client import MQClientInstance
from maxq.client.namespace import unwrap
from maxq.client.results.pull_result import PullResult, PullStatus
from maxq.codes import MQVersion, RequestCode, ResponseCode
from maxq.errors import BrokerError, ClientError, RemoteProtocolError, RemotingError
from maxq.protocol.body.route import MASTER_ID
from maxq.protocol.body.subscription import SubscriptionData
from maxq.protocol.header.pull import (
    PULL_FLAG_COMMIT_OFFSET,
    PULL_FLAG_LITE,
    PULL_FLAG_SUBSCRIPTION,
    PULL_FLAG_SUSPEND,
)
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import MessageExt, decode_batch
from maxq.protocol.message.message_queue import MessageQueue
from maxq.protocol.message.message_sys_flag import MessageSysFlag

NO_PROGRESS_WAIT_MS = 1_000  # before the same broker is asked again at an offset that it does not have

_KNOWS_US_NOT = (
    ResponseCode.SUBSCRIPTION_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_NOT_LATEST,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED,
)
_INNER_BATCH = MessageSysFlag.INNER_BATCH | MessageSysFlag.NEED_UNWRAP


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
        self._hooks = hooks
        self._unit_mode = unit_mode
        self._pull_from_which_node: dict[MessageQueue, int] = {}
        self._began_at: dict[MessageQueue, int] = {}  # BrokerTable.changes when the last pull began
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
        commit_offset: int,
        suspend_ms: int,
        timeout_ms: int,
        send_expression: bool,
        lite: bool = False,
    ) -> PullResult:
        """Pull from `offset` on.

        Args:
            commit_offset: committed along with the pull if above 0 and the master is asked.
            suspend_ms: how long the broker may hold the request when there is nothing; 0 not at all.
            send_expression: put the filter into the request (else the broker knows it from the heartbeat).
            lite: LITE_PULL_MESSAGE.

        Returns:
            Messages whose tags match (the broker compared hashes only), in order, with MIN_OFFSET and MAX_OFFSET set
            and topics without namespace.

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

        commit = commit_offset > 0 and not broker.is_slave
        sys_flag = commit * PULL_FLAG_COMMIT_OFFSET
        if suspend_ms > 0:
            sys_flag |= PULL_FLAG_SUSPEND
        if send_expression:
            sys_flag |= PULL_FLAG_SUBSCRIPTION
        if lite:
            sys_flag |= PULL_FLAG_LITE
        ext = {
            "consumerGroup": self._group,
            "topic": queue.topic,
            "queueId": str(queue.queue_id),
            "queueOffset": str(offset),
            "maxMsgNums": str(max_nums),
            "sysFlag": str(sys_flag),
            "commitOffset": str(commit_offset if commit else 0),
            "suspendTimeoutMillis": str(suspend_ms),
            "subVersion": str(subscription.sub_version),
            "expressionType": subscription.expression_type,
            "maxMsgBytes": str(max_msg_bytes),
            "bname": self._instance.routes.broker_of(queue),
        }
        if send_expression:
            ext["subscription"] = subscription.sub_string
        code = RequestCode.LITE_PULL_MESSAGE if lite else RequestCode.PULL_MESSAGE
        try:
            result = await self._instance.api.pull(broker.address, code, ext, timeout_ms)
        except (RemotingError, BrokerError) as error:
            self._note_failure(queue, broker, error)
            raise
        self._instance.brokers.trust(broker.address)
        self.update_pull_from_which_node(queue, result.suggest_which_broker_id)
        if result.status is PullStatus.FOUND:
            result.messages = self._for_the_user(queue, subscription, offset, result)
        elif result.status is PullStatus.NO_MATCHED_MSG and result.next_begin_offset == offset:
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
                raise ClientError(f"broker {queue.broker_name} is not known, and no route came: {error}") from error
            broker = brokers.reader(self._instance.routes.broker_of(queue), wanted_id)
        if broker is None:
            raise ClientError(f"broker {queue.broker_name} is in no route of topic {queue.topic}")
        if broker.is_slave and wanted_id == MASTER_ID:
            self._instance.refresh_route_soon(queue.topic)  # it stands in for a master that may be back
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

    def _for_the_user(
        self, queue: MessageQueue, subscription: SubscriptionData, offset: int, result: PullResult
    ) -> list[MessageExt]:
        messages = result.messages
        if result.offset_delta is not None:  # a static topic: records tell their physical places
            for message in messages:
                message.queue_id = queue.queue_id
                message.queue_offset += result.offset_delta
        if any(message.sys_flag & _INNER_BATCH == _INNER_BATCH for message in messages):
            messages = [inner for message in messages for inner in unpack(message) if inner.queue_offset >= offset]
        tags = subscription.tags_set
        if tags and subscription.is_tag_type and not subscription.class_filter_mode:
            messages = [message for message in messages if message.properties.get(const.PROPERTY_TAGS) in tags]
        if self._hooks:
            messages = filtered(self._hooks, FilterMessageContext(self._group, messages, queue, self._unit_mode))
        namespace = self._instance.config.namespace
        min_offset, max_offset = str(result.min_offset), str(result.max_offset)
        for message in messages:
            message.broker_name = queue.broker_name
            message.properties[const.PROPERTY_MIN_OFFSET] = min_offset
            message.properties[const.PROPERTY_MAX_OFFSET] = max_offset
            if namespace:
                message.topic = unwrap(namespace, message.topic)
        return messages


def unpack(message: MessageExt) -> list[MessageExt]:
    """Return the messages of an inner batch, with consecutive queue offsets; an ordinary message unchanged. A message
    that is wrongly marked as a batch is returned unchanged as well: its `body_fault` says why."""
    if message.sys_flag & _INNER_BATCH != _INNER_BATCH or message.body_fault:
        return [message]
    try:
        batch = decode_batch(message.body, message.topic)
    except RemoteProtocolError as error:
        message.body_fault = str(error)
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
