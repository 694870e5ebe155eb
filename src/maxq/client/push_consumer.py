"""PushConsumer: subscribes, and has a listener called with the messages.

Underneath it pulls: one task per queue keeps a long-polling pull open, hands what comes to a consume service, and
holds back while too much is waiting (namesrv.md §12).

Source: apache/rocketmq client/impl/consumer/DefaultMQPushConsumerImpl.java.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import PurePath
from types import TracebackType
from typing import Self

from maxq.client.client_config import ClientSeams, ProducerConfig, PushConsumerConfig
from maxq.client.consume_concurrently import ConsumeMessageConcurrentlyService
from maxq.client.consume_orderly import ConsumeMessageOrderlyService
from maxq.client.consume_result import ConsumeContext, ConsumeResult, MessageListener
from maxq.client.consumer_stats import SAMPLE_INTERVAL_MS, ConsumerStats
from maxq.client.errors import NotRunningError
from maxq.client.listener_caller import ListenerCaller, reset_retry_topic
from maxq.client.message_sender import MessageSender
from maxq.client.mq_client import MQClientInstance
from maxq.client.mq_client_manager import MQClientManager
from maxq.client.namespace import RETRY_PREFIX, retry_topic, wrap
from maxq.client.offset_store import LocalFileOffsetStore, OffsetStore, RemoteBrokerOffsetStore
from maxq.client.process_queue import ProcessQueue
from maxq.client.pull_api import PullAPIWrapper
from maxq.client.pull_result import PullResult, PullStatus
from maxq.client.rebalance_impl import RebalanceImpl
from maxq.client.running_info import consumer_running_info
from maxq.client.send_back import SendBack
from maxq.client.validators import check_consumer_group, check_topic
from maxq.codes import ResponseCode
from maxq.errors import BrokerError, ClientError, MaxQError, RemoteProtocolError
from maxq.protocol.body.consumer_info import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from maxq.protocol.body.heartbeat import ConsumerData
from maxq.protocol.body.subscription import TAG, SubscriptionData, build_subscription_data
from maxq.protocol.enums import ConsumeType, MessageModel
from maxq.protocol.message import MessageExt
from maxq.protocol.message_queue import MessageQueue

log = logging.getLogger(__name__)

FLOW_CONTROL_WAIT_MS = 10  # Java waits 50; the check costs nothing here
PAUSED_WAIT_MS = 1_000
BROKER_FLOW_CONTROL_WAIT_MS = 20  # after FLOW_CONTROL 215
CLIENT_INNER_PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
_UNKNOWN_TO_BROKER = (ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST)


class PushConsumer:
    """A member of a consumer group.

    Args:
        config: settings; `consumer_group` and `namesrv_addr` at least.
        seams: the outside world.
        listener: called as `listener(messages, context)`, plain or coroutine function; see consume_result.py.
        orderly: one call at a time per queue, in order.
        executor: where a plain listener runs; None: on the event loop, so it must not block.
        manager: shares connections with other clients of the loop that have the same instance name.

    Use: `consumer.subscribe("T", "TagA || TagB")`, then `await consumer.start()` … `await consumer.shutdown()`, or
    `async with consumer:`.
    """

    def __init__(
        self,
        config: PushConsumerConfig,
        seams: ClientSeams,
        listener: MessageListener,
        *,
        orderly: bool = False,
        executor: Executor | None = None,
        manager: MQClientManager | None = None,
    ) -> None:
        check_consumer_group(config.consumer_group)
        self._config = config
        self._seams = seams
        self._clock = seams.clock
        self._manager = manager or MQClientManager(seams)
        self.group = wrap(config.namespace, config.consumer_group)
        self._retry_topic = retry_topic(self.group)
        self._orderly = orderly
        self._broadcasting = config.message_model is MessageModel.BROADCASTING
        later = ConsumeResult.SUSPEND_CURRENT_QUEUE_A_MOMENT if orderly else ConsumeResult.RECONSUME_LATER
        self._caller = ListenerCaller(listener, executor, later, self.group)
        self.stats = ConsumerStats()
        self._wanted: dict[str, SubscriptionData] = {}  # by topic on the wire, as the heartbeat tells it
        self._instance: MQClientInstance | None = None
        self._offsets: OffsetStore
        self._rebalance: RebalanceImpl
        self._pull_api: PullAPIWrapper
        self._send_back: SendBack
        self._service: ConsumeMessageConcurrentlyService | ConsumeMessageOrderlyService
        self._pullers: dict[ProcessQueue, asyncio.Task[None]] = {}
        self._background: list[asyncio.Task[None]] = []
        self._paused = False
        self._threshold_count = config.pull_threshold_for_queue
        self._threshold_bytes = config.pull_threshold_size_for_queue << 20

    # --- life ---

    def subscribe(self, topic: str, expression: str = "*", expression_type: str = TAG) -> None:
        """Take messages of a topic.

        Args:
            expression: `*`, or tags separated by `||`; with another `expression_type` (SQL92) that language's text.

        Raises:
            ClientError: illegal topic.
            LocalProtocolError: an expression without a tag.
        """
        check_topic(topic)
        self._subscribe(wrap(self._config.namespace, topic), expression, expression_type)

    def _subscribe(self, topic: str, expression: str, expression_type: str = TAG) -> None:
        data = build_subscription_data(topic, expression, expression_type, sub_version=self._clock.wall_ms())
        self._wanted[topic] = data
        if self._instance is not None:
            self._background.append(asyncio.create_task(self._announce(), name="maxq-subscribe"))

    def unsubscribe(self, topic: str) -> None:
        """Take no more messages of a topic."""
        self._wanted.pop(wrap(self._config.namespace, topic), None)
        if self._instance is not None:
            self._background.append(asyncio.create_task(self._announce(), name="maxq-unsubscribe"))

    async def _announce(self) -> None:
        """Brokers first, pulls after: a pull with a newer subscription than the broker knows would be refused."""
        instance = self._running()
        for topic in self._wanted:
            await self._learn_route(topic)
        await instance.heartbeat_all()
        self._rebalance.subscriptions = dict(self._wanted)
        instance.rebalance_immediately()

    async def start(self) -> None:
        """Join the group.

        Raises:
            ClientError: already started, no name server, or a broker refuses a filter expression.
        """
        if self._instance is not None:
            raise ClientError(f"consumer of group {self.group} is already started")
        config = self._config
        client_id = self._manager.client_id(config, keep_default_name=self._broadcasting)
        instance = await self._manager.acquire(client_id, config)
        try:
            await self._build(instance)
            instance.register_consumer(self)
        except BaseException:
            await self._manager.release(instance)
            raise
        self._instance = instance
        try:
            if not self._broadcasting:
                self._subscribe_retry_topic()
            for topic in self._wanted:
                await self._learn_route(topic)
            await self._check_expressions(instance)
            self._service.start()
            self._background.append(asyncio.create_task(self._sample_loop(), name="maxq-consumer-stats"))
            await instance.heartbeat_all()
        except BaseException:
            await self.shutdown()
            raise
        self._rebalance.subscriptions = dict(self._wanted)
        instance.rebalance_immediately()

    async def _build(self, instance: MQClientInstance) -> None:
        config = self._config
        self._offsets = self._make_offset_store(instance)
        await self._offsets.load()
        self._pull_api = PullAPIWrapper(instance, self.group)
        self._rebalance = RebalanceImpl(instance, config, self.group, self._offsets, self, orderly=self._orderly)
        sender = MessageSender(
            instance,
            ProducerConfig(
                namespace=config.namespace, serialize_type=config.serialize_type, unit_mode=config.unit_mode
            ),
            CLIENT_INNER_PRODUCER_GROUP,
        )
        self._send_back = SendBack(instance, sender, self.group, config.max_reconsume_times)
        if self._orderly:
            self._service = ConsumeMessageOrderlyService(
                self._caller,
                config,
                self._retry_topic,
                self._offsets,
                self._rebalance,
                self._send_back.send_to_retry,
                self.stats,
                self._clock,
            )
        else:
            self._service = ConsumeMessageConcurrentlyService(
                self._caller,
                config,
                self._retry_topic,
                self._offsets,
                self._send_back.send_back,
                self.stats,
                self._clock,
            )

    def _make_offset_store(self, instance: MQClientInstance) -> OffsetStore:
        if not self._broadcasting:
            return RemoteBrokerOffsetStore(instance, self.group)
        configured = self._config.local_offset_store_dir
        folder = PurePath(configured) if configured else self._seams.home / ".rocketmq_offsets"
        return LocalFileOffsetStore(self._seams.disk, folder, instance.client_id, self.group)

    def _subscribe_retry_topic(self) -> None:
        self._wanted[self._retry_topic] = build_subscription_data(
            self._retry_topic, "*", sub_version=self._clock.wall_ms()
        )

    async def _learn_route(self, topic: str) -> None:
        try:
            await self._running().update_route(topic)
        except MaxQError as error:
            level = logging.DEBUG if topic.startswith(RETRY_PREFIX) else logging.WARNING
            log.log(level, "no route for topic %s of group %s yet: %s", topic, self.group, error)

    async def _check_expressions(self, instance: MQClientInstance) -> None:
        for topic, data in self._wanted.items():
            if data.is_tag_type:
                continue
            queues = instance.known_subscribe_queues(topic)
            if queues:
                address = await instance.broker_address(queues[0])
                namespace = self._config.namespace
                await instance.api.check_client_config(address, instance.client_id, self.group, namespace, data)

    async def shutdown(self, await_termination_ms: int = 0) -> None:
        """Leave the group: stop pulling, let listener calls end for up to `await_termination_ms`, commit,
        unregister."""
        instance, self._instance = self._instance, None
        if instance is None:
            return
        await self._rebalance.close()
        tasks = [*self._pullers.values(), *self._background]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._service.shutdown(await_termination_ms)
        await self._offsets.persist_all(list(self._rebalance.process_queues), certain=True)
        await self._rebalance.destroy()
        await instance.unregister_consumer(self.group)
        await self._manager.release(instance)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()

    def suspend(self) -> None:
        """Stop pulling; what is here is still consumed."""
        self._paused = True

    def resume(self) -> None:
        """Pull again."""
        self._paused = False

    def _running(self) -> MQClientInstance:
        if self._instance is None:
            raise NotRunningError(f"consumer of group {self.group} is not running: start it first")
        return self._instance

    @property
    def client_id(self) -> str:
        """Who we are for the broker."""
        return self._running().client_id

    def assigned_queues(self) -> list[MessageQueue]:
        """The queues we hold now, sorted."""
        self._running()
        return sorted(self._rebalance.process_queues)

    # --- for the instance ---

    def consumer_data(self) -> ConsumerData:
        return ConsumerData(
            self.group,
            ConsumeType.CONSUME_PASSIVELY,
            self._config.message_model,
            self._config.consume_from_where,
            list(self._wanted.values()),
            self._config.unit_mode,
        )

    def topics(self) -> Collection[str]:
        return list(self._wanted)

    async def do_rebalance(self) -> bool:
        if self._instance is None or self._paused:
            return True
        return await self._rebalance.do_rebalance()

    async def persist_consumer_offset(self) -> None:
        if self._instance is not None:
            await self._offsets.persist_all(list(self._rebalance.process_queues))

    # --- for the rebalance ---

    def on_queue_added(self, queue: MessageQueue, process_queue: ProcessQueue, next_offset: int) -> None:
        task = asyncio.create_task(
            self._pull_loop(queue, process_queue, next_offset), name=f"maxq-pull-{queue.topic}-{queue.queue_id}"
        )
        self._pullers[process_queue] = task
        task.add_done_callback(lambda _: self._pullers.pop(process_queue, None))

    async def on_queue_removed(self, queue: MessageQueue, process_queue: ProcessQueue) -> bool:
        puller = self._pullers.get(process_queue)
        if puller is not None and puller is not asyncio.current_task():
            puller.cancel()
        if not await self._service.release(queue, process_queue):
            return False
        await self._offsets.persist(queue, certain=True)
        self._offsets.remove(queue)
        self._pull_api.forget(queue)
        return True

    async def on_assignment_changed(
        self, topic: str, everything: Sequence[MessageQueue], mine: Collection[MessageQueue]
    ) -> None:
        config = self._config
        held = max(len(self._rebalance.process_queues), 1)
        if config.pull_threshold_for_topic != -1:
            self._threshold_count = max(1, config.pull_threshold_for_topic // held)
        if config.pull_threshold_size_for_topic != -1:
            self._threshold_bytes = max(1, config.pull_threshold_size_for_topic // held) << 20
        wanted = self._wanted.get(topic)
        if wanted is not None and self._instance is not None:
            self._wanted[topic] = replace(wanted, sub_version=self._clock.wall_ms())
            await self._instance.heartbeat_all()
            self._rebalance.subscriptions[topic] = self._wanted[topic]
        if config.message_queue_listener is not None:
            config.message_queue_listener(topic, list(everything), sorted(mine))

    # --- pulling ---

    async def _pull_loop(self, queue: MessageQueue, process_queue: ProcessQueue, offset: int) -> None:
        was_locked = False
        while not process_queue.dropped:
            process_queue.last_pull_timestamp = self._clock.monotonic_ms()
            wait_ms = self._hold_back_ms(process_queue)
            if wait_ms:
                await asyncio.sleep(wait_ms / 1000)
                continue
            try:
                if process_queue.locked and not was_locked:
                    # Somebody else had the queue until now: go on where they committed.
                    offset = await self._rebalance.pull_from_where(queue)
                was_locked = process_queue.locked
                result = await self._pull(queue, offset)
                if result is None:
                    continue
                if result.status is PullStatus.OFFSET_ILLEGAL:
                    await self._start_over(queue, process_queue, result)
                    return
            except (MaxQError, OSError) as error:
                await self._after_failure(queue, error)
                continue
            except asyncio.CancelledError:
                raise
            except Exception:
                log.exception("pulling %s failed", queue)
                await asyncio.sleep(self._config.pull_time_delay_when_exception / 1000)
                continue
            offset = result.next_begin_offset
            self._take(queue, process_queue, result)
            if self._config.pull_interval > 0 and result.messages:
                await asyncio.sleep(self._config.pull_interval / 1000)

    def _hold_back_ms(self, process_queue: ProcessQueue) -> int:
        """How long to wait before pulling; 0: pull now."""
        if self._paused:
            return PAUSED_WAIT_MS
        if process_queue.message_count > self._threshold_count or process_queue.message_size > self._threshold_bytes:
            return FLOW_CONTROL_WAIT_MS
        if self._orderly:
            is_waiting = not self._broadcasting and not process_queue.locked
            return self._config.pull_time_delay_when_exception if is_waiting else 0
        if process_queue.max_span() > self._config.consume_max_span:
            return FLOW_CONTROL_WAIT_MS
        return 0

    async def _pull(self, queue: MessageQueue, offset: int) -> PullResult | None:
        subscription = self._rebalance.subscriptions.get(queue.topic)
        if subscription is None:  # unsubscribed; the next rebalance drops the queue
            await asyncio.sleep(self._config.pull_time_delay_when_exception / 1000)
            return None
        config = self._config
        started_ms = self._clock.monotonic_ms()
        result = await self._pull_api.pull(
            queue,
            subscription,
            offset,
            max_nums=config.pull_batch_size,
            max_msg_bytes=config.max_msg_bytes,
            commit_offset=0 if self._broadcasting else self._offsets.in_memory(queue),
            suspend_ms=config.broker_suspend_max_time,
            timeout_ms=config.consumer_timeout_when_suspend,
            send_expression=config.post_subscription_when_pull,
        )
        self.stats.on_pull(queue.topic, len(result.messages), self._clock.monotonic_ms() - started_ms)
        return result

    def _take(self, queue: MessageQueue, process_queue: ProcessQueue, result: PullResult) -> None:
        if process_queue.dropped:
            return
        if result.messages:
            process_queue.put_messages(result.messages, result.max_offset)
            self._service.submit(result.messages, process_queue, queue)
        elif result.status is not PullStatus.FOUND and process_queue.message_count == 0:
            # Nothing of ours between the committed offset and here: the group's progress shall show it.
            self._offsets.update(queue, result.next_begin_offset, increase_only=True)

    async def _start_over(self, queue: MessageQueue, process_queue: ProcessQueue, result: PullResult) -> None:
        log.warning("offset of %s is outside the queue, going on at %d", queue, result.next_begin_offset)
        self._offsets.update_and_freeze(queue, result.next_begin_offset)
        process_queue.dropped = True
        await self._offsets.persist(queue)
        self._pullers.pop(process_queue, None)
        await self._rebalance.drop(queue)
        if self._instance is not None:
            self._instance.rebalance_immediately()

    async def _after_failure(self, queue: MessageQueue, error: Exception) -> None:
        wait_ms = self._config.pull_time_delay_when_exception
        if isinstance(error, BrokerError) and error.code == ResponseCode.FLOW_CONTROL:
            wait_ms = BROKER_FLOW_CONTROL_WAIT_MS
        elif isinstance(error, BrokerError) and error.code in _UNKNOWN_TO_BROKER and self._instance is not None:
            log.info("the broker of %s does not know our subscription, it is told again: %s", queue, error)
            self._instance.heartbeat_soon()
        elif isinstance(error, RemoteProtocolError):
            log.error("the answer to a pull of %s is not readable: %s", queue, error)
        else:
            log.warning("pull of %s failed, next try in %d ms: %s", queue, wait_ms, error)
        await asyncio.sleep(wait_ms / 1000)

    # --- operators ---

    async def reset_offset(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        """The broker says (RESET_CONSUMER_CLIENT_OFFSET): go on at these offsets."""
        self.suspend()
        try:
            held = {queue: pq for queue, pq in self._rebalance.process_queues.items() if queue.topic == topic}
            for queue, process_queue in held.items():
                if queue in offsets:
                    process_queue.dropped = True
                    self._offsets.update_and_freeze(queue, offsets[queue])
                    process_queue.clear()
                    await self._rebalance.drop(queue)
        finally:
            self.resume()
        self._running().rebalance_immediately()

    def offsets_of(self, topic: str) -> dict[MessageQueue, int]:
        """How far we are in a topic (GET_CONSUMER_STATUS_FROM_CLIENT)."""
        return self._offsets.snapshot(topic)

    def running_info(self) -> ConsumerRunningInfo:
        """State for tools (GET_CONSUMER_RUNNING_INFO)."""
        info = consumer_running_info(
            self._running(),
            self._config,
            self.group,
            ConsumeType.CONSUME_PASSIVELY,
            self._wanted.values(),
            self._rebalance.process_queues,
            self._offsets,
        )
        info.properties[ConsumerRunningInfo.PROP_THREADPOOL_CORE_SIZE] = str(self._config.consume_thread_nums)
        info.properties[ConsumerRunningInfo.PROP_CONSUME_ORDERLY] = "true" if self._orderly else "false"
        now_ms = self._clock.monotonic_ms()
        info.status_table = {topic: self.stats.consume_status(topic, now_ms) for topic in self._wanted}
        return info

    async def consume_directly(self, message: MessageExt, broker_name: str) -> ConsumeMessageDirectlyResult:
        """Have the listener consume this one message now (CONSUME_MESSAGE_DIRECTLY)."""
        message.broker_name = broker_name
        reset_retry_topic([message], self._retry_topic)
        started_ms = self._clock.monotonic_ms()
        context = ConsumeContext(MessageQueue(message.topic, broker_name, message.queue_id))
        outcome, remark = await self._caller.consume_directly(message, context)
        return ConsumeMessageDirectlyResult(
            order=self._orderly,
            auto_commit=True,
            consume_result=outcome,
            remark=remark,
            spent_time_mills=self._clock.monotonic_ms() - started_ms,
        )

    async def _sample_loop(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_INTERVAL_MS / 1000)
            self.stats.sample(self._clock.monotonic_ms())
