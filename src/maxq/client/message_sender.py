"""MessageSender: from a prepared message to a stored one. Choice of queue, the request, retries.

A message is prepared once (message_preparer.py) and may then be tried on several brokers; the timeout is for all tries
together.

Source: apache/rocketmq client/impl/producer/DefaultMQProducerImpl.java (sendDefaultImpl, sendKernelImpl),
client/impl/MQClientAPIImpl.java (processSendResponse).
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from maxq.client.client_config import ProducerConfig
from maxq.client.errors import SendFailedError
from maxq.client.hooks import CommunicationMode, SendHooks, SendMessageContext
from maxq.client.latency_fault import LatencyFaultTolerance
from maxq.client.message_preparer import MessagePreparer, PreparedMessage, property_text
from maxq.client.mq_client import MQClientInstance
from maxq.client.send_result import STATUS_OF_CODE, SendResult, SendStatus
from maxq.client.topic_publish_info import TopicPublishInfo
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import BrokerError, ClientError, RemoteProtocolError, RemotingError, RemotingTimeoutError
from maxq.protocol.body.static_topic import NO_BROKER, is_mock_broker
from maxq.protocol.message_queue import MessageQueue
from maxq.protocol.remoting_command import RemotingCommand

#: Answers after which another try may help (DefaultMQProducer.retryResponseCodes).
RETRY_RESPONSE_CODES = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
        ResponseCode.NOT_LEADER_FOR_QUEUE,  # the queue of a static topic has moved
    }
)


class MessageSender:
    """Sends for one producer group through one instance.

    Args:
        group: producer group as it travels.

    Attributes:
        preparer: makes of a message what `send` takes.
    """

    def __init__(self, instance: MQClientInstance, config: ProducerConfig, group: str) -> None:
        self.instance = instance
        self._config = config
        self._group = group
        self._clock = instance.seams.clock
        self._remoting = instance.remoting
        self._serialize_type = config.serialize_type
        self.faults = LatencyFaultTolerance(enabled=config.send_latency_enable)
        self._hooks = SendHooks(config.send_message_hooks, config.check_forbidden_hooks)
        self._has_hooks = bool(self._hooks)
        self.preparer = MessagePreparer(
            config, ids=instance.ids, clock=instance.seams.clock, keeps_messages=self._has_hooks
        )
        self._default_topic_queue_nums = str(config.default_topic_queue_nums)
        self._unit_mode = "true" if config.unit_mode else "false"

    # --- queues ---

    async def publish_info(self, topic: str) -> TopicPublishInfo:
        """Publish queues of a topic (name on the wire)."""
        info = self.instance.routes.known_publish_info(topic)
        if info is not None and info.queues:
            return info
        config = self._config
        return await self.instance.routes.publish_info(topic, config.create_topic_key, config.default_topic_queue_nums)

    def select_queue(self, info: TopicPublishInfo, last_broker_name: str | None = None) -> MessageQueue:
        """The next queue in turn, not on the broker that just failed; with fault latency on an available, else a
        reachable broker if there is one."""
        broker_of = self.instance.routes.broker_of
        if self.faults.enabled:
            now_ms = self._clock.monotonic_ms()
            queue = info.select_one(
                lambda q: q.broker_name != last_broker_name and self.faults.is_available(broker_of(q), now_ms)
            ) or info.select_one(lambda q: q.broker_name != last_broker_name and self.faults.is_reachable(broker_of(q)))
        elif last_broker_name is not None:
            queue = info.select_one(lambda q: q.broker_name != last_broker_name)
        else:
            queue = None
        queue = queue or info.select_one()
        if queue is not None and is_mock_broker(queue.broker_name) and broker_of(queue) == NO_BROKER:
            queue = info.select_one(lambda q: broker_of(q) != NO_BROKER) or queue
        assert queue is not None, "publish_info never gives an empty list"
        return queue

    # --- one try ---

    def request(self, prepared: PreparedMessage, queue: MessageQueue) -> RemotingCommand:
        """The send request for one queue."""
        ext = {
            "a": self._group,
            "b": prepared.topic,
            "c": self._config.create_topic_key,
            "d": self._default_topic_queue_nums,
            "e": str(queue.queue_id),
            "f": str(int(prepared.sys_flag)),
            "g": str(prepared.born_timestamp),
            "h": str(prepared.flag),
            "i": prepared.properties,
            "j": prepared.reconsume_times,
            "k": self._unit_mode,
            "m": "true" if prepared.is_batch else "false",
            "n": self.instance.routes.broker_of(queue),
        }
        if prepared.max_reconsume_times is not None:
            ext["l"] = prepared.max_reconsume_times
        code = RequestCode.SEND_MESSAGE_V2
        if prepared.is_batch:
            code = RequestCode.SEND_BATCH_MESSAGE
        elif prepared.is_reply:
            code = RequestCode.SEND_REPLY_MESSAGE_V2
        return RemotingCommand(code, ext, prepared.body, serialize_type=self._serialize_type)

    def address(self, queue: MessageQueue) -> str | None:
        """Where to send for a queue; None if its broker has no master we know of."""
        address = self.instance.find_broker_address_in_publish(self.instance.routes.broker_of(queue))
        return None if address is None else self.instance.api.address(address)

    async def address_of(self, queue: MessageQueue) -> str:
        """The same, asking the name server once more.

        Raises:
            ClientError: still unknown.
        """
        address = self.address(queue)
        if address is None:
            await self.instance.routes.update_route(queue.topic)
            address = self.address(queue)
        if address is None:
            broker_name = self.instance.routes.broker_of(queue)
            raise ClientError(f"broker {broker_name} has no master in the name server's routes")
        return address

    def send_kernel(
        self, prepared: PreparedMessage, queue: MessageQueue, timeout_ms: int
    ) -> Coroutine[Any, Any, SendResult]:
        """One try on one queue; keeps the fault table and tells the hooks.

        Raises:
            RemotingError, BrokerError, ClientError
        """
        send = self._send_with_hooks if self._has_hooks else self._send_one
        return send(prepared, queue, timeout_ms)

    async def _send_with_hooks(self, prepared: PreparedMessage, queue: MessageQueue, timeout_ms: int) -> SendResult:
        context = self._before(prepared, queue, await self.address_of(queue), CommunicationMode.SYNC)
        try:
            context.send_result = result = await self._send_one(prepared, queue, timeout_ms)
        except Exception as error:
            context.exception = error
            raise
        finally:
            self._hooks.after(context)
        return result

    def _before(
        self, prepared: PreparedMessage, queue: MessageQueue, address: str, mode: CommunicationMode
    ) -> SendMessageContext:
        config = self._config
        context = SendMessageContext(
            self._group, config.namespace, prepared.messages, queue, address, mode, config.unit_mode
        )
        self._hooks.before(context)
        if not prepared.is_batch:
            prepared.properties = property_text(prepared.messages[0])
        return context

    async def _send_one(self, prepared: PreparedMessage, queue: MessageQueue, timeout_ms: int) -> SendResult:
        started_ms = self._clock.monotonic_ms()
        try:
            address = self.address(queue) or await self.address_of(queue)
            response = await self._remoting.invoke(address, self.request(prepared, queue), timeout_ms)
            result = self.result(prepared, queue, response, address)
        except RemotingError:
            self._note(queue, started_ms, isolation=True, reachable=not self._config.start_detector_enable)
            raise
        except BrokerError as error:
            self._note(queue, started_ms, isolation=True, reachable=False)
            if error.code == ResponseCode.SERVICE_NOT_AVAILABLE:  # a slave's answer: it is the master of an old route
                self.instance.refresh_route_soon(queue.topic)
            raise
        if self.faults.enabled:
            self._note(queue, started_ms, isolation=False, reachable=True)
        return result

    def _note(self, queue: MessageQueue, started_ms: int, *, isolation: bool, reachable: bool) -> None:
        now_ms = self._clock.monotonic_ms()
        broker_name = self.instance.routes.broker_of(queue)
        self.faults.update(broker_name, now_ms - started_ms, now_ms, isolation=isolation, reachable=reachable)

    def result(
        self, prepared: PreparedMessage, queue: MessageQueue, response: RemotingCommand, address: str
    ) -> SendResult:
        """What a send answer says.

        Raises:
            BrokerError: the message is not stored.
            RemoteProtocolError: the answer lacks its fields.
        """
        status = STATUS_OF_CODE.get(response.code)
        if status is None:
            raise BrokerError(response.code, response.remark, address=address)
        ext = response.ext
        try:
            queue_id = int(ext["queueId"])
            queue_offset = int(ext["queueOffset"])
            offset_msg_id = ext["msgId"]
        except (KeyError, ValueError):
            raise RemoteProtocolError(f"send answer of {address} without msgId, queueId or queueOffset") from None
        return SendResult(
            status,
            prepared.msg_id or offset_msg_id,
            queue if queue_id == queue.queue_id else MessageQueue(queue.topic, queue.broker_name, queue_id),
            queue_offset,
            offset_msg_id,
            ext.get("transactionId"),
            ext.get("MSG_REGION") or "DefaultRegion",
            ext.get("TRACE_ON") != "false",
            ext.get("recallHandle"),
        )

    # --- all tries ---

    async def send(
        self,
        prepared: PreparedMessage,
        timeout_ms: int,
        retries: int,
        *,
        choose: Callable[[TopicPublishInfo], MessageQueue] | None = None,
    ) -> SendResult:
        """Send, trying other brokers if it helps.

        Args:
            timeout_ms: for everything together.
            retries: further tries after the first; without effect if `choose` names the queue.
            choose: picks the queue (ordered sends).

        Raises:
            NoRouteError: nobody knows the topic.
            SendFailedError: all tries failed.
            RemotingTimeoutError: the time was up before the tries were.
            BrokerError: refused, and another try would not help.
        """
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        info = await self.publish_info(prepared.topic)
        if choose is not None:
            return await self.send_kernel(prepared, choose(info), self._left(deadline_ms, prepared, timeout_ms))
        attempts: list[tuple[str, Exception]] = []
        last_broker: str | None = None
        not_ok: SendResult | None = None
        for _ in range(1 + retries):
            queue = self.select_queue(info, last_broker)
            last_broker = queue.broker_name
            try:
                left_ms = self._left(deadline_ms, prepared, timeout_ms)
            except RemotingTimeoutError as error:
                if not attempts:
                    raise
                errors = [failed for _, failed in reversed(attempts)]
                cause = next((one for one in errors if not isinstance(one, RemotingTimeoutError)), errors[0])
                raise RemotingTimeoutError(f"{error}; a try before failed: {cause}", timeout_ms=timeout_ms) from cause
            try:
                result = await self.send_kernel(prepared, queue, left_ms)
            except (RemotingError, BrokerError) as error:
                if isinstance(error, BrokerError) and error.code not in RETRY_RESPONSE_CODES:
                    raise
                attempts.append((queue.broker_name, error))
                # The broker may have moved: brokers that died are gone from the name server within a second.
                info = await self._refreshed(prepared.topic, info, error)
                continue
            if result.send_status is SendStatus.SEND_OK or not self._config.retry_another_broker_when_not_store_ok:
                return result
            not_ok = result
        if not_ok is not None:
            return not_ok
        raise self._failure(prepared, attempts) from attempts[-1][1]

    async def _refreshed(self, topic: str, info: TopicPublishInfo, error: Exception) -> TopicPublishInfo:
        is_moved = isinstance(error, BrokerError) and error.code == ResponseCode.NOT_LEADER_FOR_QUEUE
        if not is_moved and not getattr(error, "refresh_route", False):
            return info
        try:
            await self.instance.routes.update_route(topic)
        except (RemotingError, BrokerError):
            return info
        fresh = self.instance.routes.known_publish_info(topic)
        return fresh if fresh is not None and fresh.queues else info

    def _left(self, deadline_ms: int, prepared: PreparedMessage, timeout_ms: int) -> int:
        left_ms = deadline_ms - self._clock.monotonic_ms()
        if left_ms <= 0:
            raise RemotingTimeoutError(
                f"sending to topic {prepared.topic} took longer than {timeout_ms} ms", timeout_ms=timeout_ms
            )
        return left_ms

    def _failure(self, prepared: PreparedMessage, attempts: list[tuple[str, Exception]]) -> SendFailedError:
        brokers = ", ".join(name for name, _ in attempts)
        return SendFailedError(
            f"sending to topic {prepared.topic} failed {len(attempts)} times (brokers {brokers}): {attempts[-1][1]}",
            attempts,
        )

    async def send_oneway(self, prepared: PreparedMessage, queue: MessageQueue | None = None) -> None:
        """Send without waiting for anything."""
        if queue is None:
            queue = self.select_queue(await self.publish_info(prepared.topic))
        address = await self.address_of(queue)
        if not self._has_hooks:
            await self._remoting.invoke_oneway(address, self.request(prepared, queue))
            return
        context = self._before(prepared, queue, address, CommunicationMode.ONEWAY)
        try:
            await self._remoting.invoke_oneway(address, self.request(prepared, queue))
        except Exception as error:
            context.exception = error
            raise
        finally:
            self._hooks.after(context)

    async def probe_faulty(self) -> None:
        """Detector round: ask brokers that failed for an offset of a queue of theirs; an answer makes them
        reachable."""

        async def probe(broker_name: str) -> None:
            address = self.instance.find_broker_address_in_publish(broker_name)
            if address is None:
                self.faults.remove(broker_name)
                return
            queue = MessageQueue(self._config.create_topic_key, broker_name, 0)
            try:
                await self.instance.api.max_offset(address, queue)
            except BrokerError:
                pass  # it answered, and that is all we ask
            except RemotingError:
                return
            self.faults.on_probe(broker_name, reached=True)

        due = self.faults.due_probes(self._clock.monotonic_ms(), 2_000)
        await asyncio.gather(*(probe(name) for name in due))

