"""PushConsumer: subscribes, and has a listener called with the messages.

Underneath it pulls: one task per queue keeps a long-polling pull open, hands what comes to a consume service, and
holds back while too much is waiting.

Source: apache/rocketmq client/impl/consumer/DefaultMQPushConsumerImpl.java.
"""

import asyncio
import logging
from collections.abc import Collection, Coroutine, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial

from maxq.client.argument_checks import check_callable
from maxq.client.client_config import ClientEnvironment, ProducerConfig, PushConsumerConfig
from maxq.client.consumer.consume_concurrently import ConsumeMessageConcurrentlyService
from maxq.client.consumer.consume_orderly import ConsumeMessageOrderlyService
from maxq.client.consumer.consume_pop import ConsumeMessagePopService
from maxq.client.consumer.consume_service import ConsumeMessageService
from maxq.client.consumer.consumer_stats import SAMPLE_INTERVAL_MS, ConsumerStats
from maxq.client.consumer.flow_control import FlowControl
from maxq.client.consumer.held.process_queue import ProcessQueue
from maxq.client.consumer.listener_caller import ListenerCaller
from maxq.client.consumer.pulling_consumer import FLOW_CONTROL_WAIT_MS, PullingConsumer
from maxq.client.consumer.rebalance_impl import RebalanceImpl
from maxq.client.consumer.send_back import SendBack
from maxq.client.hooks import ConsumeHooks
from maxq.client.instance.client_shutdown import in_turn
from maxq.client.instance.mq_client import MQClientInstance
from maxq.client.instance.mq_client_manager import MQClientManager
from maxq.client.instance.pop_api import PopAPI
from maxq.client.instance.pull_api import GoOn
from maxq.client.message_selector import MessageSelector, expression_of
from maxq.client.producer.message_sender import MessageSender
from maxq.client.results.consume_result import ConsumeContext, ConsumeResult, MessageListener
from maxq.client.results.pull_result import PullResult, PullStatus
from maxq.client.trace.hooks import ConsumeMessageTraceHook
from maxq.client.validators import check_topic
from maxq.protocol.body.consumer_info import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from maxq.protocol.body.subscription import TAG, SubscriptionData, build_subscription_data
from maxq.protocol.enums import ConsumeType
from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.message_queue import MessageQueue
from maxq.protocol.namespace import wrap

log = logging.getLogger(__name__)

PAUSED_WAIT_MS = 1_000
CLIENT_INNER_PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"


class PushConsumer(PullingConsumer[PushConsumerConfig]):
    """A member of a consumer group.

    Args:
        config: settings; `consumer_group` and `namesrv_addr` at least.
        environment: the clock, disk, chance and address that the client uses.
        listener: called as `listener(messages, context)`, plain or coroutine function; see consume_result.py.
        orderly: one call at a time per queue, in order.
        executor: where a plain listener runs; None: on the event loop, so it must not block.
        manager: shares connections with other clients of the loop that have the same instance name.

    Use: `consumer.subscribe("T", "TagA || TagB")`, then `await consumer.start()` … `await consumer.shutdown()`, or
    `async with consumer:`.
    """

    consume_type = ConsumeType.CONSUME_PASSIVELY

    def __init__(
        self,
        config: PushConsumerConfig,
        environment: ClientEnvironment,
        listener: MessageListener,
        *,
        orderly: bool = False,
        executor: Executor | None = None,
        manager: MQClientManager | None = None,
    ) -> None:
        check_callable("the listener", listener, "listener(messages, context)")
        super().__init__(config, environment, manager)
        self._orderly = orderly
        later = ConsumeResult.SUSPEND_CURRENT_QUEUE_A_MOMENT if orderly else ConsumeResult.RECONSUME_LATER
        timeout_ms = config.consume_timeout_minutes * 60_000
        traces = () if self._trace is None else (ConsumeMessageTraceHook(self._trace),)
        hooks = ConsumeHooks(
            (*config.consume_message_hooks, *traces), self.group, config.namespace, self._clock, timeout_ms
        )
        self._caller = ListenerCaller(listener, executor, later, self.group, hooks, self._ending)
        self.stats = ConsumerStats()
        self._send_back: SendBack
        self._service: ConsumeMessageConcurrentlyService | ConsumeMessageOrderlyService
        self._pops: ConsumeMessagePopService | None = None  # where the broker assigns our queues
        self._pullers: dict[ProcessQueue, asyncio.Task[None]] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._paused = False  # paused by the application
        self._is_resetting = False
        self._reset_turn: asyncio.Lock
        self._calls: asyncio.Task[None] | None = None  # listener calls that a shutdown waits for
        self.flow_control = FlowControl(
            config.pull_threshold_for_queue,
            config.pull_threshold_size_for_queue << 20,
            None if orderly else config.consume_max_span,
        )

    # --- life ---

    def subscribe(self, topic: str, expression: str | MessageSelector = "*", expression_type: str = TAG) -> None:
        """Receive messages of a topic.

        Args:
            expression: `*`, or tags separated by `||`; with another `expression_type` (SQL92) that language's text; or
                a MessageSelector.

        Raises:
            ClientError: illegal topic.
            LocalProtocolError: an expression without a tag.
            FilterExpressionError: an SQL92 expression that is wrong.
        """
        check_topic(topic)
        self._subscribe(wrap(self._config.namespace, topic), *expression_of(expression, expression_type))

    def _subscribe(self, topic: str, expression: str, expression_type: str = TAG) -> None:
        data = build_subscription_data(topic, expression, expression_type, sub_version=self._clock.wall_ms())
        self._wanted[topic] = data
        self._announce_soon()

    def unsubscribe(self, topic: str) -> None:
        """Stop receiving messages of a topic."""
        self._wanted.pop(wrap(self._config.namespace, topic), None)
        self._announce_soon()

    def _announce_soon(self) -> None:
        if self._instance is not None:
            self._in_background(self._announce(), "maxq-subscribe")

    def _in_background(self, work: Coroutine[None, None, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._background.add(task)
        task.add_done_callback(self._background_done)

    def _background_done(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self.failures.report(error, "%s of group %s", task.get_name(), self.group)

    async def start(self) -> None:
        """Join the group.

        Raises:
            ClientError: already started, or no name server.
            BrokerError: a broker does not select by an SQL92 expression.
        """
        async with self._ending.starting():
            instance = await self._join()
            try:
                if not self._broadcasting:
                    self._subscribe_retry_topic()
                await self._learn_routes(instance)
                await self._check_expressions(instance, list(self._wanted.values()))
                self._service.start()
                self._in_background(self._sample_loop(), "maxq-consumer-stats")
                await instance.heartbeat_all()
            except BaseException:
                await self._ending.complete(self._shut_down)
                raise
            self._pull_what_is_wanted(instance)

    def _build(self, instance: MQClientInstance) -> None:
        config = self._config
        sender = MessageSender(
            instance,
            ProducerConfig(
                namespace=config.namespace, serialize_type=config.serialize_type, unit_mode=config.unit_mode
            ),
            CLIENT_INNER_PRODUCER_GROUP,
        )
        self._send_back = SendBack(instance, sender, self.group, config.max_reconsume_times)
        self._pops = self._make_pops(instance)
        self._reset_turn = asyncio.Lock()
        self._rebalance = RebalanceImpl(
            instance, config, self.group, self._offsets, self, orderly=self._orderly, pops=self._pops
        )
        if self._orderly:
            self._service = ConsumeMessageOrderlyService(
                self._caller,
                config,
                self.stats,
                self._clock,
                self.failures,
                self._offsets,
                self._rebalance,
                self._send_back.send_to_retry,
            )
        else:
            self._service = ConsumeMessageConcurrentlyService(
                self._caller,
                config,
                self.stats,
                self._clock,
                self.failures,
                self._offsets,
                self._send_back.send_back,
            )

    def _make_pops(self, instance: MQClientInstance) -> ConsumeMessagePopService | None:
        """Make the popping service, for concurrent listeners of a clustering group with client_rebalance=False."""
        if self._config.client_rebalance or self._orderly or self._broadcasting:
            return None
        return ConsumeMessagePopService(
            self._caller,
            self._config,
            self.stats,
            self._clock,
            self.failures,
            PopAPI(instance, self.group),
            self._send_back.send_back,
            subscription_of=self._wanted.get,
            is_paused=lambda: self._is_paused,
        )

    def _subscribe_retry_topic(self) -> None:
        topic = self._caller.retry_topic
        self._wanted[topic] = build_subscription_data(topic, "*", sub_version=self._clock.wall_ms())

    async def shutdown(self, await_termination_ms: int | None = None) -> None:
        """Leave the group: start no more listener calls, wait for those under way, commit their results, unregister.

        It is completed even if whoever waits for it is cancelled (who is cancelled then, and no more calls are waited
        for); a second call waits for the first. The consumer may be started again. A listener that asks for it only
        begins it: it waits for that call, and commits what it did.

        Args:
            await_termination_ms: how long calls under way are waited for; None: await_termination_when_shutdown. After
                that time coroutine listeners are cancelled. Threads cannot be: their calls run on to their end, nothing
                of theirs is committed, and their messages come again.
        """
        usual_ms = self._config.await_termination_when_shutdown
        limit_ms = usual_ms if await_termination_ms is None else await_termination_ms
        await self._ending.run(lambda: self._shut_down(limit_ms), hurry=self._stop_waiting)

    @property
    def is_in_listener(self) -> bool:
        """Return whether the calling code is part of a call of this consumer's listener."""
        return self._ending.is_called

    async def _shut_down(self, await_termination_ms: int = 0) -> None:
        instance, self._instance = self._instance, None
        if instance is None:
            return
        services: list[ConsumeMessageService] = [self._service] if self._pops is None else [self._service, self._pops]
        for service in services:
            service.stop()

        async def all_calls() -> None:
            for service in services:
                await service.wait_for_calls()

        self._calls = asyncio.create_task(all_calls(), name="maxq-last-calls")
        await in_turn(
            self._rebalance.close,
            self._stop_pulling,
            lambda: self._wait_for_calls(await_termination_ms),
            *(service.shutdown for service in services),
            lambda: self._offsets.persist_all(list(self._rebalance.process_queues), certain=True),
            self._rebalance.destroy,
            lambda: self._quit(instance),
        )

    async def _stop_pulling(self) -> None:
        tasks = [*self._pullers.values(), *self._background]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _wait_for_calls(self, limit_ms: int) -> None:
        assert self._calls is not None, "the shutdown has made it"
        done, _ = await asyncio.wait([self._calls], timeout=limit_ms / 1000)
        if not done or self._calls.cancelled():
            log.warning(
                "listener calls of group %s had not ended %d ms after the shutdown began; their messages come again",
                self.group, limit_ms,
            )  # fmt: skip
            self._stop_waiting()

    def _stop_waiting(self) -> None:
        if self._calls is not None:
            self._calls.cancel()

    @property
    def _is_paused(self) -> bool:
        """Return whether nothing is pulled: by the user, or until offsets are reset."""
        return self._paused or self._is_resetting

    def suspend(self) -> None:
        """Stop pulling. Messages that were pulled are still consumed."""
        self._paused = True

    def resume(self) -> None:
        """Start to pull again after `suspend` has stopped it."""
        self._paused = False

    def set_consume_thread_nums(self, count: int, executor: Executor | None = None) -> None:
        """Change how many listener calls are made at a time, also while running.

        Args:
            count: 1 to 1000.
            executor: where plain listeners run from now on; None: where they ran before.

        Raises:
            ClientError: `count` is out of bounds.
        """
        self._config = replace(self._config, consume_thread_nums=count)
        if executor is not None:
            self._caller.replace_executor(executor)
        if self._instance is not None:
            self._service.set_workers(count)

    def assigned_queues(self) -> list[MessageQueue]:
        """Return the queues that this member holds, sorted, with those it pops from (queue id -1: all of a broker)."""
        self._running()
        return self._held_queues()

    def _held_queues(self) -> list[MessageQueue]:
        popped = [] if self._pops is None else self._pops.queues()
        return sorted([*self._rebalance.process_queues, *popped])

    # --- for the instance ---

    def topics(self) -> set[str]:
        """Return the topics that are subscribed, with the group's retry topic."""
        return set(self._wanted)

    async def do_rebalance(self) -> bool:
        """Make one round of rebalance. Returns True if this member holds exactly its share."""
        if self._instance is None or self._is_paused:
            return True
        if self._pops is not None:
            self._pops.drop_unsubscribed(self._wanted)
        return await self._rebalance_round()

    async def persist_consumer_offset(self) -> None:
        """Commit finished messages, at the broker or, when broadcasting, in a file."""
        if self._instance is not None:
            await self._offsets.persist_all(list(self._rebalance.process_queues))

    # --- for the rebalance ---

    def on_queue_added(self, queue: MessageQueue, process_queue: ProcessQueue, next_offset: int) -> None:
        """Start to pull `queue`, which this member was given, from `next_offset` on."""
        task = asyncio.create_task(
            self._pull_loop(queue, process_queue, next_offset), name=f"maxq-pull-{queue.topic}-{queue.queue_id}"
        )
        self._pullers[process_queue] = task
        task.add_done_callback(lambda _: self._pullers.pop(process_queue, None))

    async def on_queue_removed(self, queue: MessageQueue, process_queue: ProcessQueue) -> bool:
        """Stop pulling `queue`, and commit its finished messages. Returns False if its listener is still running: call
        it again later."""
        puller = self._pullers.get(process_queue)
        if puller is not None and puller is not asyncio.current_task():
            puller.cancel()
        if not await self._service.release(queue, process_queue):
            return False
        await self._offsets.persist(queue, certain=True)
        self._offsets.remove(queue)
        self._pull_api.forget(queue)
        self.flow_control.forget(queue)
        return True

    async def on_assignment_changed(
        self, topic: str, everything: Sequence[MessageQueue], mine: Collection[MessageQueue]
    ) -> None:
        config = self._config
        held = max(len(self._rebalance.process_queues), 1)
        if config.pull_threshold_for_topic != -1:
            self.flow_control.count_max = max(1, config.pull_threshold_for_topic // held)
        if config.pull_threshold_size_for_topic != -1:
            self.flow_control.bytes_max = max(1, config.pull_threshold_size_for_topic // held) << 20
        await self._renew_subscription(topic)
        if config.message_queue_listener is not None:
            config.message_queue_listener(topic, list(everything), sorted(mine))

    # --- pulling ---

    async def _pull_loop(self, queue: MessageQueue, process_queue: ProcessQueue, offset: int) -> None:
        was_locked = False
        subscription: SubscriptionData | None = None

        async def pull(go_on: GoOn) -> PullResult | None:
            nonlocal offset, was_locked, subscription
            if process_queue.locked and not was_locked:
                # Somebody else had the queue until now: go on where they committed.
                offset = await self._rebalance.pull_from_where(queue)
            was_locked = process_queue.locked
            subscription = self._rebalance.subscriptions.get(queue.topic)
            result = await self._pull(queue, process_queue, offset, go_on)
            if result is None:
                return None
            now_ms = self._clock.monotonic_ms()
            if process_queue.may_be_anothers(now_ms) and await self._leave_to_another(queue, process_queue):
                return None
            process_queue.last_answer_timestamp = now_ms
            if result.status is PullStatus.OFFSET_ILLEGAL:
                self._moved_offsets.tell(queue, offset, result.next_begin_offset)
                await self._start_over(queue, process_queue, result)
                return None
            return result

        def take_found(result: PullResult) -> bool | None:
            nonlocal offset
            if self._config.pull_interval > 0:
                return None
            offset = result.next_begin_offset
            took_ms = self._clock.monotonic_ms() - process_queue.last_pull_timestamp
            self.stats.on_pull(queue.topic, len(result.messages), took_ms)
            self._take(queue, process_queue, result)
            return self._rebalance.subscriptions.get(queue.topic) is subscription

        async def take(result: PullResult) -> None:
            nonlocal offset
            offset = result.next_begin_offset
            self._take(queue, process_queue, result)
            if self._config.pull_interval > 0 and result.messages:
                await asyncio.sleep(self._config.pull_interval / 1000)

        await self._pull_until_given_up(
            queue,
            process_queue,
            is_held=lambda: not process_queue.dropped,
            hold_back_ms=partial(self._hold_back_ms, queue, process_queue),
            pull=pull,
            take_found=take_found,
            take=take,
            after_standstill=partial(self._leave_to_another, queue, process_queue),
        )

    def _hold_back_ms(self, queue: MessageQueue, process_queue: ProcessQueue) -> int:
        """Return how long to wait before the next pull, in ms; 0: pull."""
        if self._is_paused:
            return PAUSED_WAIT_MS
        if self.flow_control.holds_back(queue, process_queue):
            return FLOW_CONTROL_WAIT_MS
        if self._orderly:
            is_waiting = not self._broadcasting and not process_queue.locked
            return self._config.pull_time_delay_when_exception if is_waiting else 0
        return 0

    async def _leave_to_another(self, queue: MessageQueue, process_queue: ProcessQueue) -> bool:
        return not self._broadcasting and await self._rebalance.leave_to_another(queue, process_queue)

    async def _pull(
        self, queue: MessageQueue, process_queue: ProcessQueue, offset: int, go_on: GoOn
    ) -> PullResult | None:
        subscription = self._rebalance.subscriptions.get(queue.topic)
        if subscription is None:  # unsubscribed; the next rebalance drops the queue
            await asyncio.sleep(self._config.pull_time_delay_when_exception / 1000)
            return None
        config = self._config
        started_ms = self._clock.monotonic_ms()
        is_silent = process_queue.may_be_anothers(started_ms)
        is_bounded = config.pull_interval > 0 or config.pull_threshold_for_topic != -1

        def commit_offset() -> int:
            return 0 if is_silent or self._broadcasting else self._offsets.in_memory(queue)

        result = await self._pull_api.pull(
            queue,
            subscription,
            offset,
            max_nums=config.pull_batch_size,
            max_msg_bytes=config.max_msg_bytes,
            commit_offset=commit_offset,
            suspend_ms=config.broker_suspend_max_time,
            timeout_ms=config.consumer_timeout_when_suspend,
            send_expression=config.post_subscription_when_pull,
            bulk_nums=0 if is_bounded else self._bulk_nums(config.pull_threshold_for_queue),
            go_on=go_on,
        )
        if result is not None:
            self.stats.on_pull(queue.topic, len(result.messages), self._clock.monotonic_ms() - started_ms)
        return result

    def _take(self, queue: MessageQueue, process_queue: ProcessQueue, result: PullResult) -> None:
        if process_queue.dropped:
            return
        if result.messages:
            process_queue.put_messages(result.messages, result.max_offset)
            self._service.submit(result.messages, process_queue, queue)
        elif result.status is not PullStatus.FOUND and process_queue.message_count == 0:
            # The group has no messages between its committed offset and this one: commit this one, so that progress
            # shows it.
            self._offsets.update(queue, result.next_begin_offset, increase_only=True)

    async def _start_over(self, queue: MessageQueue, process_queue: ProcessQueue, result: PullResult) -> None:
        self._offsets.update_and_freeze(queue, result.next_begin_offset)
        process_queue.dropped = True
        await self._offsets.persist(queue)
        self._pullers.pop(process_queue, None)
        await self._rebalance.drop(queue)
        if self._instance is not None:
            self._instance.rebalance_immediately()

    # --- operators ---

    async def reset_offset(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        """Continue at these offsets, by order of a broker (RESET_CONSUMER_CLIENT_OFFSET)."""
        async with self._reset_turn:  # each broker of the topic may send a reset of its own
            self._is_resetting = True
            try:
                await self._rebalance.wait_for_round()
                held = {queue: pq for queue, pq in self._rebalance.process_queues.items() if queue.topic == topic}
                for queue, process_queue in held.items():
                    if queue in offsets:
                        process_queue.dropped = True
                        self._offsets.update_and_freeze(queue, offsets[queue])
                        process_queue.clear()
                        await self._rebalance.drop(queue)
            finally:
                self._is_resetting = False
            await self.do_rebalance()  # so that the next reset finds the queues assigned again
        self._running().rebalance_immediately()

    def running_info(self) -> ConsumerRunningInfo:
        """Return this consumer's state for tools (GET_CONSUMER_RUNNING_INFO)."""
        info = self._running_info_of(self._rebalance.process_queues)
        info.properties[ConsumerRunningInfo.PROP_THREADPOOL_CORE_SIZE] = str(self._config.consume_thread_nums)
        info.properties[ConsumerRunningInfo.PROP_CONSUME_ORDERLY] = "true" if self._orderly else "false"
        info.properties |= self.flow_control.figures()
        if self._pops is not None:
            info.mq_pop_table = self._pops.info()
        now_ms = self._clock.monotonic_ms()
        info.status_table = {topic: self.stats.consume_status(topic, now_ms) for topic in self._wanted}
        return info

    async def consume_directly(self, message: MessageExt, broker_name: str) -> ConsumeMessageDirectlyResult:
        """Pass this one message to the listener now (CONSUME_MESSAGE_DIRECTLY)."""
        message.broker_name = broker_name
        self._caller.show_own_topics([message])
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
