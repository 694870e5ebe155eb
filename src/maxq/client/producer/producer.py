"""Producer: sends messages.

`send` waits for one message; many `send` calls may run at once. `send_async` gives a future and costs no task.
`send_many` keeps a window of requests in flight and is the fastest way to send separate messages; `send_batch` puts
several messages into one request and one queue.

Source: apache/rocketmq client/producer/DefaultMQProducer.java, client/impl/producer/DefaultMQProducerImpl.java.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from maxq.client.argument_checks import check_callable, check_messages, check_number, check_queue
from maxq.client.client_config import ClientEnvironment, ProducerConfig
from maxq.client.errors import NameIllegalError, NotRunningError, RequestTimeoutError, WrongArgumentError
from maxq.client.failures import Failures
from maxq.client.instance.client_shutdown import ClientShutdown, in_turn
from maxq.client.instance.mq_client import MQClientInstance, already_started
from maxq.client.instance.mq_client_manager import MQClientManager
from maxq.client.instance.topic_publish_info import TopicPublishInfo
from maxq.client.message_feed import MessageFeed
from maxq.client.producer.fast_sends_cy import FastSends, PendingSend
from maxq.client.producer.many_sends import ManySends
from maxq.client.producer.message_preparer import PreparedMessage
from maxq.client.producer.message_sender import MessageSender
from maxq.client.producer.produce_accumulator import ProduceAccumulator
from maxq.client.results.send_result import SendResult, SendWaiter
from maxq.client.validators import DEFAULT_PRODUCER_GROUP, check_group, check_topic, check_types
from maxq.codes import RequestCode
from maxq.errors import BrokerError, ClientError, RemoteProtocolError
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.send import RecallMessageRequestHeader, RecallMessageResponseHeader
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import Message, MessageExt
from maxq.protocol.message.message_queue import MessageQueue
from maxq.protocol.message.recall_handle import RecallHandle
from maxq.protocol.namespace import DLQ_PREFIX, RETRY_PREFIX, unwrap, wrap

if TYPE_CHECKING:  # few producers trace, or send tables: the others do not load that
    import pyarrow as pa

    from maxq.client.trace.async_trace_dispatcher import AsyncTraceDispatcher

log = logging.getLogger(__name__)

Arg = TypeVar("Arg")
QueueSelector = Callable[[Sequence[MessageQueue], Message, Arg], MessageQueue]

_DETECTOR_INTERVAL_MS = 3_000


class Producer:
    """Sends messages for one producer group.

    Args:
        config: settings; `namesrv_addr` and `producer_group` at least.
        environment: the clock, disk, chance and address that the client uses.
        manager: shares connections with other clients of the loop that have the same instance name.
    """

    def __init__(
        self, config: ProducerConfig, environment: ClientEnvironment, *, manager: MQClientManager | None = None
    ) -> None:
        check_group(config.producer_group)
        if config.producer_group == DEFAULT_PRODUCER_GROUP:
            raise NameIllegalError(f"producer_group must not be {DEFAULT_PRODUCER_GROUP}; choose a name of your own")
        self._config = config
        self._clock = environment.clock
        self._manager = manager or MQClientManager(environment)
        self.group = wrap(config.namespace, config.producer_group)
        check_group(self.group)
        self._instance: MQClientInstance | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # the event loop on which it runs; None: not running
        self._sender: MessageSender
        self._detector: asyncio.Task[None] | None = None
        self._failures = Failures(config.on_failure, environment.clock)
        self._ending = ClientShutdown(f"producer of group {self.group}")
        self._accumulator = ProduceAccumulator(config, self._send_gathered) if config.auto_batch else None
        self._trace: AsyncTraceDispatcher | None = None
        if config.enable_trace:
            from maxq.client.trace import async_trace_dispatcher as tracing

            self._trace = tracing.AsyncTraceDispatcher(
                config, config.producer_group, tracing.TraceSide.PRODUCE, environment
            )

    # --- life ---

    async def start(self) -> None:
        """Connect to the name servers lazily; brokers are contacted on the first send.

        Raises:
            ClientError: already started, or no name server given.
        """
        async with self._ending.starting():
            await self._start()

    async def _start(self) -> None:
        if self._instance is not None:
            raise already_started(f"producer of group {self.group}", self._instance)
        config = self._config
        config.name_servers()
        instance = await self._manager.acquire(self._manager.client_id(config), config)
        try:
            instance.register_producer(self.group)
        except BaseException:
            await self._manager.release(instance)
            raise
        if self._trace is not None:
            self._trace.start(instance)
        self._sender = MessageSender(instance, self._traced(config), self.group)
        self._instance, self._loop = instance, asyncio.get_running_loop()
        if config.send_latency_enable and config.start_detector_enable:
            self._detector = asyncio.create_task(self._detect(), name="maxq-fault-detector")

    def _traced(self, config: ProducerConfig) -> ProducerConfig:
        if self._trace is None:
            return config
        from maxq.client.trace.hooks import SendMessageTraceHook

        hook = SendMessageTraceHook(self._trace)
        return replace(config, send_message_hooks=(*config.send_message_hooks, hook))

    async def shutdown(self) -> None:
        """Leave: waiting batches are sent, brokers are told, connections closed. If the caller is cancelled, the
        shutdown is still completed, and then the cancellation is raised; a second call waits for the first. The
        producer may be started again."""
        await self._ending.run(self._shut_down)

    async def _shut_down(self) -> None:
        instance = self._instance
        if instance is None:
            return

        async def stop() -> None:
            self._instance = self._loop = None
            self._sender.close()
            if self._detector is not None:
                self._detector.cancel()
                await asyncio.gather(self._detector, return_exceptions=True)

        gathered = [] if self._accumulator is None else [self._accumulator.flush]
        trace = [] if self._trace is None else [self._trace.shutdown]
        await in_turn(
            *gathered,
            stop,
            *trace,
            partial(instance.unregister_producer, self.group),
            partial(self._manager.release, instance),
        )

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()

    async def _detect(self) -> None:
        while True:
            await asyncio.sleep(_DETECTOR_INTERVAL_MS / 1000)
            try:
                await self._sender.probe_faulty()
            except Exception as error:
                self._failures.report(error, "probing the brokers that were slow")

    def serve_threads(self) -> None:
        """Let other threads than the loop's begin sends (SendStart), where that is safe. Call it after each start."""
        self._running().serve_threads()

    def _running(self) -> MessageSender:
        if asyncio._get_running_loop() is not self._loop or self._loop is None:
            self._check_running()
        return self._sender

    def _check_running(self) -> None:
        what = f"producer of group {self.group}"
        if self._instance is None:
            raise NotRunningError(f"{what} is not running: start it first")
        self._instance.check_loop(what)

    @property
    def client_id(self) -> str:
        """The id by which brokers know this client."""
        if self._instance is None:
            self._check_running()
        return self._sender.instance.client_id

    # --- sending ---

    async def send(
        self, message: Message, *, queue: MessageQueue | None = None, timeout_ms: int | None = None
    ) -> SendResult:
        """Send one message. Other brokers are tried if the first cannot take it.

        Args:
            message: gets its UNIQ_KEY property here.
            queue: this queue and no other.
            timeout_ms: for all tries together; None: send_msg_timeout.

        Returns:
            Where it went. Look at `send_status` if flushing or replication in time matters.

        Raises:
            ClientError: an illegal message; SendFailedError when all tries failed.
            NoRouteError: the topic does not exist and may not be created.
            BrokerError: refused for a reason that is the same everywhere.
            RemotingTimeoutError: no answer in time.
        """
        if asyncio._get_running_loop() is not self._loop:
            self._check_running()
        sender = self._sender
        if self._accumulator is not None and timeout_ms is None:
            gathered = self._gather(self._accumulator, message, queue)
            if gathered is not None:
                return await gathered
        pending = self._post(sender.fast, message, queue, timeout_ms)
        if pending is None:
            return await self._send(sender, sender.preparer.prepare(message), queue, timeout_ms)
        return await self._outcome(sender, pending, queue, self._config.retry_times_when_send_failed)

    def _post(
        self,
        fast: FastSends | None,
        message: Message,
        queue: MessageQueue | None,
        timeout_ms: int | None,
        waiter: SendWaiter | None = None,
    ) -> PendingSend | None:
        """Send a message in the common way; None: it needs the general one."""
        if fast is None:
            return None
        wire = None if queue is None else self._on_wire(queue)
        wait_ms = self._config.send_msg_timeout if timeout_ms is None else self._timeout_ms(timeout_ms)
        return fast.post(message, wire, wait_ms, waiter)

    async def _outcome(
        self, sender: MessageSender, pending: PendingSend, queue: MessageQueue | None, retries: int
    ) -> SendResult:
        try:
            result = await pending.future
        except asyncio.CancelledError:
            pending.forget()
            raise
        if result is not None:
            return result
        return await sender.go_on(pending, retries, queue=None if queue is None else pending.target.queue)

    def _send(
        self, sender: MessageSender, prepared: PreparedMessage, queue: MessageQueue | None, timeout_ms: int | None
    ) -> Coroutine[Any, Any, SendResult]:
        wire = None if queue is None else self._queue_for(prepared, queue)
        retries = self._config.retry_times_when_send_failed
        return sender.send(prepared, self._timeout_ms(timeout_ms), retries, queue=wire)

    def _timeout_ms(self, given: int | None) -> int:
        if given is None:
            return self._config.send_msg_timeout
        check_number("timeout_ms", given, low=1)
        return given

    def _queue_for(self, prepared: PreparedMessage, queue: MessageQueue) -> MessageQueue:
        """Return the message queue that the caller chose, with the topic name as requests carry it."""
        wire = self._on_wire(queue)
        if wire.topic != prepared.topic:
            raise WrongArgumentError(f"a message of topic {prepared.topic} cannot be sent to {wire}, of another topic")
        return wire

    def _gather(
        self, accumulator: ProduceAccumulator, message: Message, queue: MessageQueue | None
    ) -> asyncio.Future[SendResult] | None:
        """Add a message to a batch that waits for more (`auto_batch`). Returns None if it must be sent by itself."""
        if queue is not None:
            check_queue(queue)
        preparer = self._sender.preparer
        size = preparer.check(message)
        if not accumulator.can_batch(message, size):
            return None
        return accumulator.add(preparer.snapshot(message), size, queue)

    async def _send_gathered(self, messages: list[Message], queue: MessageQueue | None) -> SendResult:
        if len(messages) > 1:
            return await self.send_batch(messages, queue=queue)
        sender = self._running()
        return await self._send(sender, sender.preparer.prepare(messages[0]), queue, None)

    async def send_orderly(
        self, message: Message, selector: QueueSelector[Arg], arg: Arg, *, timeout_ms: int | None = None
    ) -> SendResult:
        """Send to the queue that `selector(queues, message, arg)` picks, so that messages with one `arg` stay in order.
        Further attempts go to the same queue. Raises as `send`."""
        sender = self._running()
        check_callable("the selector", selector, "selector(queues, message, arg)")
        prepared = sender.preparer.prepare(message)
        namespace = self._config.namespace

        def choose(info: TopicPublishInfo) -> MessageQueue:
            queues = [MessageQueue(unwrap(namespace, q.topic), q.broker_name, q.queue_id) for q in info.queues]
            return self._on_wire(selector(queues, message, arg))

        timeout_ms, retries = self._timeout_ms(timeout_ms), self._config.retry_times_when_send_failed
        return await sender.send(prepared, timeout_ms, retries, choose=choose)

    async def send_oneway(self, message: Message, *, queue: MessageQueue | None = None) -> None:
        """Send without an answer: whether the message was stored is not known. Waits up to send_msg_timeout for a
        connection."""
        sender, prepared = self._running(), self._running().preparer.prepare(message)
        wire = None if queue is None else self._queue_for(prepared, queue)
        await sender.send_oneway(prepared, self._config.send_msg_timeout, wire)

    async def request(self, message: Message, *, timeout_ms: int | None = None) -> MessageExt:
        """Send a message and wait for the reply that its consumer makes with `create_reply_message`.

        Args:
            timeout_ms: for sending and replying together; None: send_msg_timeout.

        Raises:
            RequestTimeoutError: sent, but no reply came in time. Otherwise as `send`.
        """
        sender = self._running()
        instance = sender.instance
        timeout_ms = self._timeout_ms(timeout_ms)
        check_types(message)
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        correlation_id = instance.environment.rng.bytes(16).hex()
        message.properties[const.PROPERTY_CORRELATION_ID] = correlation_id
        message.properties[const.PROPERTY_MESSAGE_REPLY_TO_CLIENT] = instance.client_id
        message.properties[const.PROPERTY_MESSAGE_TTL] = str(timeout_ms)
        prepared = sender.preparer.prepare(message)
        await self._introduce(prepared.topic, deadline_ms)  # the broker will push the reply over this connection
        reply = instance.pending_requests.open(correlation_id)
        try:
            left_ms = max(1, deadline_ms - self._clock.monotonic_ms())
            await sender.send(prepared, left_ms, self._config.retry_times_when_send_failed)
            await self._introduce(prepared.topic, deadline_ms)  # there may be another master by now
            left_ms = max(1, deadline_ms - self._clock.monotonic_ms())
            async with asyncio.timeout(left_ms / 1000):  # not wait_for, which may lose a cancellation
                return await reply
        except TimeoutError:
            raise RequestTimeoutError(
                f"message {prepared.msg_id} of topic {message.topic} was sent, but no reply came within "
                f"{timeout_ms} ms: see whether a consumer runs that sends what `create_reply_message` makes, or give "
                "timeout_ms more",
                timeout_ms=timeout_ms,
            ) from None
        finally:
            instance.pending_requests.close(correlation_id)

    async def _introduce(self, topic: str, deadline_ms: int) -> None:
        """Make sure that the brokers of a topic (name on the wire) know this producer, which they are to send something
        of themselves. One that does not answer takes half of the time that is left, and is passed over then.

        Args:
            deadline_ms: monotonic.

        Raises:
            As `send`, if there is no route.
        """
        sender, left_ms = self._sender, max(0, deadline_ms - self._clock.monotonic_ms())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left_ms / 2000):
                await sender.publish_info(topic)
                await sender.instance.introduce()

    async def send_batch(
        self, messages: Iterable[Message], *, queue: MessageQueue | None = None, timeout_ms: int | None = None
    ) -> SendResult:
        """Send several messages of one topic in one request: all of them are stored, one after the other in one
        queue, or none. Not for delayed messages. `msg_id` of the result joins their ids by commas. Raises as
        `send`."""
        sender = self._running()
        if not isinstance(messages, (list, tuple)):
            check_messages(messages, "send_batch")
            messages = tuple(messages)
        pending = self._post_batch(sender.fast, messages, queue, timeout_ms)
        if pending is None:
            return await self._send(sender, sender.preparer.prepare_batch(messages), queue, timeout_ms)
        return await self._outcome(sender, pending, queue, self._config.retry_times_when_send_failed)

    def _post_batch(
        self,
        fast: FastSends | None,
        messages: Sequence[Message],
        queue: MessageQueue | None,
        timeout_ms: int | None,
        waiter: SendWaiter | None = None,
    ) -> PendingSend | None:
        """Send a batch in the common way; None: it needs the general one."""
        if fast is None or not isinstance(messages, (list, tuple)):
            return None
        wire = None if queue is None else self._on_wire(queue)
        wait_ms = self._config.send_msg_timeout if timeout_ms is None else self._timeout_ms(timeout_ms)
        return fast.post_batch(messages, wire, wait_ms, waiter)

    async def send_many(
        self,
        messages: Iterable[Message] | MessageFeed,
        *,
        in_flight: int = 512,
        on_result: Callable[[SendResult], None] | None = None,
    ) -> list[SendResult]:
        """Send many messages, each in a request of its own, with at most `in_flight` of them, and 4 MiB, on their way:
        each has the timeout of a send, which the last of many large ones, started at once, would miss. Results are
        in the messages' order. Retries as `send`.

        Args:
            messages: drawn on this loop, so it must not block; what does comes through a MessageFeed, which is told the
                results (none are returned then).
            on_result: called with each result when it comes: what was acknowledged although a later message failed.

        Raises:
            MaxQError: as `send`, for the first message that could not be sent. The others on their way are still sent,
                the rest is not. An exception of `messages` or `on_result` is raised as it is.
        """
        sender = self._running()
        check_number("in_flight", in_flight, low=1)
        if on_result is not None:
            check_callable("on_result", on_result, "on_result(result)")
        if not isinstance(messages, MessageFeed):
            check_messages(messages, "send_many")
        many = ManySends(sender, self._config, in_flight, on_result)
        return await many.run(messages)

    async def send_arrow(self, data: Any, *, topic: str | None = None) -> "pa.RecordBatch":
        """Send the rows of a table as messages, in batches, without an object for any of them. Needs pyarrow
        (`pip install 'maxq[arrow]'`).

        Rows for any queue have no order among each other; those that name a queue, or have a sharding key, are stored
        in their order. Batches are not compressed. Retries as `send`, of each batch.

        Args:
            data: a pyarrow Table, RecordBatch or RecordBatchReader, or what gives itself as an Arrow stream, such as a
                DataFrame of pandas or Polars. Columns: body (or value); topic, tags, keys, properties, queueId with
                brokerName, shardingKey, delayTimeLevel, deliverTimestamp (docs/reference/arrow-tables.md).
            topic: of rows without one.

        Returns:
            A row for each row: uniqKey, brokerName, queueId, queueOffset, sendStatus; error and mayBeStored (null).

        Raises:
            ArrowSendError: a row cannot be sent, or a batch failed: rows before it, and those on their way, were sent;
                the rest is not. Its `sent` says what became of each.
            ClientError: wrong columns, or pyarrow is not installed: nothing was sent.
        """
        sender = self._running()
        from maxq.client.producer.arrow_sends import ArrowSends

        return await ArrowSends(sender, self._config, topic).run(data)

    def send_async(
        self,
        message: Message,
        callback: Callable[[SendResult | None, Exception | None], None] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> asyncio.Future[SendResult]:
        """Start to send; the future (and the callback, with result or error) gets the outcome.

        Raises:
            ClientError: an illegal message. Everything later goes to the future.
        """
        sender = self._running()
        if callback is not None:
            check_callable("the callback", callback, "callback(result, error)")
        future = None
        if self._accumulator is not None and timeout_ms is None:
            future = self._gather(self._accumulator, message, None)
        if future is None:
            retries = self._config.retry_times_when_send_async_failed
            pending = self._post(sender.fast, message, None, timeout_ms)
            if pending is not None:
                future = asyncio.ensure_future(self._outcome(sender, pending, None, retries))
            else:
                prepared = sender.preparer.prepare(message)
                future = asyncio.ensure_future(sender.send(prepared, self._timeout_ms(timeout_ms), retries))
        if callback is not None:
            tell = callback

            def done(ended: asyncio.Future[SendResult]) -> None:
                if ended.cancelled():
                    tell(None, ClientError("the send was cancelled"))
                    return
                error = ended.exception()
                tell(None, error if isinstance(error, Exception) else None) if error else tell(ended.result(), None)

            future.add_done_callback(done)
        return future

    def _on_wire(self, queue: MessageQueue) -> MessageQueue:
        check_queue(queue)
        namespace = self._config.namespace
        if not namespace:
            return queue
        return MessageQueue(wrap(namespace, queue.topic), queue.broker_name, queue.queue_id)

    async def recall_message(self, topic: str, recall_handle: str) -> str:
        """Take back a message with a delivery time before it is due.

        Args:
            recall_handle: `SendResult.recall_handle` of its send.

        Returns:
            Its id.

        Raises:
            ClientError: the handle is invalid, or the topic belongs to a consumer group.
            BrokerError: the broker does not allow it (recallMessageEnable), or it is due already.
        """
        sender = self._running()
        check_topic(topic)
        if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            raise ClientError(f"topic {topic} is not supported: its messages were delivered before")
        if not isinstance(recall_handle, str):
            raise WrongArgumentError(
                f"recall_handle is a text (str), the one of a SendResult, not {recall_handle!r:.60}; results of "
                "messages without a delivery time have none"
            )
        try:
            handle = RecallHandle.decode(recall_handle)
        except RemoteProtocolError as error:
            raise ClientError(str(error)) from None
        wire_topic = sender.preparer.wire_topic(topic)
        header = RecallMessageRequestHeader(wire_topic, recall_handle, self.group)
        api, queue = sender.instance.api, MessageQueue(wire_topic, handle.broker_name, 0)

        async def one_try(_: MessageQueue, queue: MessageQueue, timeout_ms: int) -> RemotingCommand:
            address = await sender.address_of(queue)
            return await api.call(address, RequestCode.RECALL_MESSAGE, header.encode(), timeout_ms=timeout_ms)

        try:
            answer = await sender.over_tries(queue, one_try, self._config.send_msg_timeout, 0, queue=queue)
        except BrokerError:
            self._trace_recall(topic, handle.message_id, None, success=False)
            raise
        self._trace_recall(topic, handle.message_id, answer.ext.get(const.PROPERTY_MSG_REGION), success=True)
        return RecallMessageResponseHeader.decode(answer.ext).msg_id

    def _trace_recall(self, topic: str, msg_id: str, region_id: str | None, *, success: bool) -> None:
        if self._trace is not None:
            from maxq.client.trace.hooks import recall_record

            group = self._config.producer_group
            self._trace.append([recall_record(self._trace, group, topic, msg_id, region_id, success=success)])

    async def fetch_publish_message_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues that messages of a topic may be sent to.

        Raises:
            NoRouteError: no such topic.
        """
        sender = self._running()
        check_topic(topic)
        info = await sender.instance.routes.publish_info(sender.preparer.wire_topic(topic), None, 0)
        return [MessageQueue(topic, queue.broker_name, queue.queue_id) for queue in info.queues]


class SendStart:
    """The start of a `send` or a `send_batch` for a caller that cannot await it: the blocking producer.

    Args:
        producer: a Producer that runs.
        what: the message; of a batch, its messages.
        queue, timeout_ms: as of `send`.
        is_batch: it is a `send_batch`.
    """

    __slots__ = ("_is_batch", "_producer", "_queue", "_sender", "_timeout_ms", "_what")

    _sender: MessageSender  # set when the first try is made

    def __init__(
        self, producer: Producer, what: Any, queue: MessageQueue | None, timeout_ms: int | None, *, is_batch: bool
    ) -> None:
        self._producer = producer
        self._what = what
        self._queue = queue
        self._timeout_ms = timeout_ms
        self._is_batch = is_batch

    def post(self, waiter: SendWaiter) -> PendingSend | None:
        """Make the first try.

        Args:
            waiter: gets the SendResult, or None if the try has failed.

        Returns:
            The message on its way. None: it is for `finish`, and nothing was sent.
        """
        producer = self._producer
        self._sender = sender = producer._running()
        return self._post(sender.fast, waiter)

    def post_from_thread(self, waiter: SendWaiter) -> PendingSend | None:
        """Make the first try as `post` does, in another thread than the loop's, if that is possible. The waiter may
        have the outcome when this returns."""
        sender = self._producer._sender
        if self._producer._instance is None or sender.for_threads is None:
            return None
        self._sender = sender
        return self._post(sender.for_threads, waiter)

    def _post(self, fast: FastSends | None, waiter: SendWaiter) -> PendingSend | None:
        producer, what = self._producer, self._what
        if self._is_batch:
            return producer._post_batch(fast, what, self._queue, self._timeout_ms, waiter)
        if producer._accumulator is not None and self._timeout_ms is None:
            return None
        return producer._post(fast, what, self._queue, self._timeout_ms, waiter)

    async def finish(self, pending: PendingSend | None) -> SendResult:
        """Return or raise what becomes of the message: of one that `post` did not take, or whose first try has
        failed."""
        producer, what, queue = self._producer, self._what, self._queue
        if pending is not None:  # even if the producer was shut down meanwhile: the message may be stored
            retries = producer._config.retry_times_when_send_failed
            return await self._sender.go_on(pending, retries, queue=None if queue is None else pending.target.queue)
        if self._is_batch:
            return await producer.send_batch(what, queue=queue, timeout_ms=self._timeout_ms)
        return await producer.send(what, queue=queue, timeout_ms=self._timeout_ms)
