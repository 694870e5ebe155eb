"""PopAPI: pops, acks and changes of invisible time of one consumer group.

Source:
    client/impl/consumer/DefaultMQPushConsumerImpl.java (popAsync, ackAsync, changePopInvisibleTimeAsync),
    client/impl/MQClientAPIImpl.java.
"""

import logging
from collections.abc import Collection, Sequence

from maxq.client.instance.mq_client import MQClientInstance
from maxq.client.results.pop_result import PopResult, decode_pop_answer, handle_of
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import BrokerError, ClientError, RemotingError
from maxq.protocol.body.pop import BatchAck, encode_batch_acks
from maxq.protocol.body.subscription import SubscriptionData
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.pull import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageRequestHeader,
)
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.message_queue import MessageQueue
from maxq.protocol.message.pop_extra_info import ExtraInfo, real_topic
from maxq.protocol.namespace import unwrap, wrap

log = logging.getLogger(__name__)

INIT_MIN = 0
INIT_MAX = 1

_ANSWERED_LATE_MS = 10_000  # how long after the end of a request its answer may still come
_POPPED = (
    ResponseCode.SUCCESS,
    ResponseCode.POLLING_FULL,
    ResponseCode.POLLING_TIMEOUT,
    ResponseCode.PULL_NOT_FOUND,
)


class PopAPI:
    """Pops for one consumer group (name on the wire). Only masters and acting masters are asked. Every call raises
    RemotingError, BrokerError and ClientError unchanged."""

    def __init__(self, instance: MQClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group
        self._began_at: dict[MessageQueue, int] = {}  # value of BrokerTable.changes when the last pop began

    async def pop(
        self,
        queue: MessageQueue,
        subscription: SubscriptionData,
        *,
        max_nums: int,
        invisible_ms: int,
        poll_ms: int,
        init_mode: int,
        order: bool = False,
        attempt_id: str | None = None,
    ) -> PopResult:
        """Ask for messages, which are then invisible to other consumers for `invisible_ms`. Queue id -1 means any queue
        of that broker.

        Args:
            poll_ms: how long the broker may keep the request while there is nothing.
            init_mode: where a group begins that was never there: INIT_MIN or INIT_MAX.
            attempt_id: the same as in an attempt whose answer was lost.
        """
        header = PopMessageRequestHeader(
            self._group, queue.topic, queue.queue_id, max_nums, invisible_ms, poll_ms,
            self._instance.environment.clock.wall_ms(), init_mode, subscription.expression_type,
            subscription.sub_string, order, attempt_id,
        )  # fmt: skip
        ext = header.encode() | {"bname": queue.broker_name}
        self._began_at[queue] = self._instance.brokers.changes
        reply = await self._call(
            queue, RequestCode.POP_MESSAGE, ext, timeout_ms=poll_ms + _ANSWERED_LATE_MS, expect=_POPPED
        )
        self._began_at.pop(queue, None)
        result = decode_pop_answer(reply, queue.topic, queue.broker_name, order=order)
        assert result is not None, "the codes were checked"
        for message in result.messages:
            message.topic = unwrap(self._instance.config.namespace, queue.topic)
        if subscription.tags_set and subscription.is_tag_type:
            await self._leave_other_tags(result, subscription.tags_set)
        return result

    async def _leave_other_tags(self, result: PopResult, tags: set[str]) -> None:
        """Leave out messages whose tags have only the hash of a wanted tag, by which brokers select. They are
        acknowledged."""
        others = [message for message in result.messages if message.tags not in tags]
        if not others:
            return
        result.messages = [message for message in result.messages if message.tags in tags]
        try:
            await self.ack_all(others)
        except (RemotingError, BrokerError, ClientError) as error:
            log.warning("%d messages with other tags were not acknowledged, they come again: %s", len(others), error)

    async def ack(self, message: MessageExt) -> None:
        """Acknowledge a popped message, so that it is not delivered again."""
        handle = handle_of(message)
        queue = self._queue_of(message, handle)
        header = AckMessageRequestHeader(
            self._group, queue.topic, queue.queue_id, str(handle), handle.queue_offset or 0
        )
        ext = header.encode() | {"bname": queue.broker_name}
        await self._call(queue, RequestCode.ACK_MESSAGE, ext)

    async def ack_all(self, messages: Sequence[MessageExt]) -> None:
        """Acknowledge messages with one request for each broker."""
        by_broker: dict[str, dict[tuple[object, ...], BatchAck]] = {}
        queues: dict[str, MessageQueue] = {}
        for message in messages:
            handle = handle_of(message)
            if handle.is_order:
                await self.ack(message)
                continue
            queue = queues[handle.broker_name] = self._queue_of(message, handle)
            topic = wrap(self._instance.config.namespace, message.topic)
            key = (topic, handle.retry, handle.queue_id, handle.start_offset, handle.pop_time)
            batch = by_broker.setdefault(handle.broker_name, {}).get(key)
            if batch is None:
                batch = by_broker[handle.broker_name][key] = BatchAck(
                    topic, self._group, handle.retry, handle.start_offset, queue.queue_id, handle.revive_qid,
                    handle.pop_time, handle.invisible_time, [],
                )  # fmt: skip
            batch.bits.append((handle.queue_offset or 0) - handle.start_offset)
        for broker_name, batches in by_broker.items():
            body = encode_batch_acks(broker_name, batches.values())
            await self._call(queues[broker_name], RequestCode.BATCH_ACK_MESSAGE, {"bname": broker_name}, body)

    async def change_invisible_time(self, message: MessageExt, invisible_ms: int, *, suspend: bool = False) -> None:
        """Set after how many ms from now others may get a message. It gets a new receipt handle.

        Args:
            suspend: it is not counted as a try when it comes again.
        """
        handle = handle_of(message)
        queue = self._queue_of(message, handle)
        header = ChangeInvisibleTimeRequestHeader(
            self._group, queue.topic, queue.queue_id, str(handle), handle.queue_offset or 0, invisible_ms,
            suspend=suspend,
        )  # fmt: skip
        ext = header.encode() | {"bname": queue.broker_name}
        reply = await self._call(queue, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ext)
        changed = ChangeInvisibleTimeResponseHeader.decode(reply.ext)
        message.properties[const.PROPERTY_POP_CK] = str(
            handle._replace(
                start_offset=handle.queue_offset or 0,
                pop_time=changed.pop_time,
                invisible_time=changed.invisible_time,
                revive_qid=changed.revive_qid,
            )
        )

    def _queue_of(self, message: MessageExt, handle: ExtraInfo) -> MessageQueue:
        """Return the queue that holds a message, which may be one of the group's retry topic."""
        topic = real_topic(wrap(self._instance.config.namespace, message.topic), self._group, handle.retry)
        return MessageQueue(topic, handle.broker_name, handle.queue_id or 0)

    async def pause(self, queue: MessageQueue, limit_ms: int) -> None:
        """Wait after a failed pop of this queue until routes name other brokers than when it began, but not longer than
        `limit_ms`."""
        await self._instance.wait_for_brokers(limit_ms, since=self._began_at.pop(queue, None))

    async def _call(
        self,
        queue: MessageQueue,
        code: RequestCode,
        ext: dict[str, str],
        body: bytes | None = None,
        *,
        timeout_ms: int | None = None,
        expect: Collection[int] = (ResponseCode.SUCCESS,),
    ) -> RemotingCommand:
        """Ask the master of a queue's broker group. After a failure that makes its route doubtful, the route is
        requested again."""
        address = await self._address(queue)
        try:
            return await self._instance.api.call(address, code, ext, body, timeout_ms=timeout_ms, expect=expect)
        except (RemotingError, BrokerError) as error:
            self._instance.note_failure(address, queue.topic, error)
            raise

    async def _address(self, queue: MessageQueue) -> str:
        address = self._instance.find_broker_address_in_publish(queue.broker_name)
        if address is not None:
            return address
        try:
            return await self._instance.broker_address(queue)
        except BrokerError as error:
            raise ClientError(f"broker {queue.broker_name} is in no route of topic {queue.topic}: {error}") from error
