"""The blocking face: Producer, TransactionProducer, PushConsumer, LitePullConsumer and SimpleConsumer for programs
without an event loop (Admin: sync_admin.py).

Each object runs the asynchronous client of the same name on an event loop in a thread of its own; every call waits
for the outcome and raises what the asynchronous one raises. Objects may be used from several threads. `maxq.api` has
the same classes with the machine's own clock, disk and chance filled in."""

import concurrent.futures
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

from maxq.client.argument_checks import check_messages, check_number, check_transaction_listener, queues_of
from maxq.client.blocking.loop_thread import LoopFactory, LoopThread
from maxq.client.client_config import (
    MAX_CONSUME_THREADS,
    ClientSeams,
    LitePullConsumerConfig,
    ProducerConfig,
    PushConsumerConfig,
    SimpleConsumerConfig,
)
from maxq.client.consumer import lite_pull_consumer, push_consumer, simple_consumer
from maxq.client.errors import NotRunningError
from maxq.client.message_selector import MessageSelector, expression_of
from maxq.client.producer import producer, transaction_producer
from maxq.client.producer.producer import Arg, QueueSelector
from maxq.client.producer.transaction_producer import LocalTransactionState, TransactionListener, TransactionSendResult
from maxq.client.results.consume_result import MessageListener
from maxq.client.results.send_result import SendResult, SendStatus
from maxq.client.validators import check_topic
from maxq.protocol.body.subscription import TAG
from maxq.protocol.message.message import Message, MessageExt
from maxq.protocol.message.message_queue import MessageQueue

log = logging.getLogger(__name__)


class Blocking:
    """A client on a loop thread."""

    def __init__(self, loop_factory: LoopFactory | None) -> None:
        self._thread = LoopThread(loop_factory)

    def _start(self, begin: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._thread.start()
        try:
            self._thread.run(begin())
        except BaseException:
            self._thread.stop()
            raise

    def _stop(self, end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """End client and thread; nothing in a process that was forked, for both are the parent's."""
        try:
            if self._thread.is_running:
                self._thread.run(end())
        finally:
            self._thread.stop()


class _Started(Blocking, ABC):
    """One that is started and shut down, also as a context manager."""

    @abstractmethod
    def start(self) -> None:
        """Start the client."""

    @abstractmethod
    def shutdown(self) -> None:
        """End the client and its thread."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()


class Producer(_Started):
    """Blocking `maxq.client.producer.producer.Producer`; see there for arguments, results and errors."""

    def __init__(self, config: ProducerConfig, seams: ClientSeams, *, loop_factory: LoopFactory | None = None) -> None:
        super().__init__(loop_factory)
        self._config = config
        self._seams = seams
        self._client: producer.Producer | None = None

    def start(self) -> None:
        """Start; must come before the first send."""

        async def begin() -> None:
            self._client = self._make()
            await self._client.start()

        self._start(begin)

    def _make(self) -> producer.Producer:
        return producer.Producer(self._config, self._seams)

    def shutdown(self) -> None:
        """Leave and end the thread."""
        client, self._client = self._client, None
        if client is not None:
            self._stop(client.shutdown)

    @property
    def _running(self) -> producer.Producer:
        if self._client is None:
            raise NotRunningError("the producer is not running: start it first")
        return self._client

    def send(self, message: Message, *, queue: MessageQueue | None = None, timeout_ms: int | None = None) -> SendResult:
        """Send one message and wait."""
        return self._thread.run(self._running.send(message, queue=queue, timeout_ms=timeout_ms))

    def send_async(
        self, message: Message, callback: Callable[[SendResult | None, BaseException | None], None] | None = None
    ) -> concurrent.futures.Future[SendResult]:
        """Start to send; the future (and the callback, on the client's thread) tells the outcome."""
        future = self._thread.submit(self._running.send(message))
        if callback is not None:
            tell = callback

            def done(ended: concurrent.futures.Future[SendResult]) -> None:
                error = ended.exception()
                tell(None if error else ended.result(), error)

            future.add_done_callback(done)
        return future

    def send_oneway(self, message: Message, *, queue: MessageQueue | None = None) -> None:
        """Send without an answer."""
        self._thread.run(self._running.send_oneway(message, queue=queue))

    def send_orderly(
        self, message: Message, selector: QueueSelector[Arg], arg: Arg, *, timeout_ms: int | None = None
    ) -> SendResult:
        """Send to the queue the selector picks."""
        return self._thread.run(self._running.send_orderly(message, selector, arg, timeout_ms=timeout_ms))

    def send_batch(
        self, messages: Sequence[Message], *, queue: MessageQueue | None = None, timeout_ms: int | None = None
    ) -> SendResult:
        """Send several messages in one request."""
        return self._thread.run(self._running.send_batch(messages, queue=queue, timeout_ms=timeout_ms))

    def send_many(self, messages: Iterable[Message], *, in_flight: int = 512) -> list[SendResult]:
        """Send many messages, each in a request of its own, many at a time. `messages` is drawn in this thread, so it
        may wait; what it gave is sent, also if it then fails."""
        client = self._running
        check_messages(messages)
        check_number("in_flight", in_flight, low=1)
        if isinstance(messages, Sequence):
            return self._thread.run(client.send_many(messages, in_flight=in_flight))
        results: dict[int, SendResult] = {}
        feed = self._thread.make_feed(2 * in_flight, results.__setitem__)
        future = self._thread.submit(client.send_many(feed, in_flight=in_flight))
        try:
            try:
                for message in messages:
                    if not feed.put(message):
                        break
            except Exception:
                feed.end()
                future.result()
                raise
            feed.end()
            future.result()
        except BaseException:
            future.cancel()
            raise
        return [results[place] for place in sorted(results)]

    def request(self, message: Message, *, timeout_ms: int | None = None) -> MessageExt:
        """Send a message and wait for its reply."""
        return self._thread.run(self._running.request(message, timeout_ms=timeout_ms))

    def recall_message(self, topic: str, recall_handle: str) -> str:
        """Take back a message with a delivery time before it is due."""
        return self._thread.run(self._running.recall_message(topic, recall_handle))

    def fetch_publish_message_queues(self, topic: str) -> list[MessageQueue]:
        """The queues messages of a topic may go to."""
        return self._thread.run(self._running.fetch_publish_message_queues(topic))


class TransactionProducer(Producer):
    """Blocking `maxq.client.producer.transaction_producer.TransactionProducer`. Local transactions are executed in the
    thread that sends, so that they may use what belongs to it (a database session); checks in a thread of the
    producer's own. The listener's methods are plain functions."""

    def __init__(
        self,
        config: ProducerConfig,
        seams: ClientSeams,
        listener: TransactionListener,
        *,
        loop_factory: LoopFactory | None = None,
    ) -> None:
        check_transaction_listener(listener)
        super().__init__(config, seams, loop_factory=loop_factory)
        self._listener = listener
        self._pool: ThreadPoolExecutor | None = None

    def _make(self) -> transaction_producer.TransactionProducer:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="maxq-check")
        self._transactional = transaction_producer.TransactionProducer(
            self._config, self._seams, self._listener, executor=self._pool
        )
        return self._transactional

    def shutdown(self) -> None:
        """Leave and end the threads."""
        super().shutdown()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def send_message_in_transaction(
        self, message: Message, arg: Any = None, *, timeout_ms: int | None = None
    ) -> TransactionSendResult:
        """Send a message that is delivered if and only if the local transaction is committed."""
        _ = self._running
        client, run = self._transactional, self._thread.run
        half = run(client.send_half(message, timeout_ms=timeout_ms))
        if half.result.send_status is not SendStatus.SEND_OK:
            return run(client.end(half, LocalTransactionState.ROLLBACK_MESSAGE))
        state, remark = LocalTransactionState.UNKNOW, None
        try:
            state = transaction_producer.checked_state(self._listener.execute_local_transaction(message, arg))
        except Exception as error:
            log.warning("execute_local_transaction failed", exc_info=error)
            remark = f"execute_local_transaction exception: {type(error).__name__}: {error}"
        return run(client.end(half, state, remark))


class PushConsumer(_Started):
    """Blocking `maxq.client.consumer.push_consumer.PushConsumer`. Plain listeners run in a pool of
    `consume_thread_nums` threads, so they may block; coroutine listeners run on the client's loop."""

    def __init__(
        self,
        config: PushConsumerConfig,
        seams: ClientSeams,
        listener: MessageListener,
        *,
        orderly: bool = False,
        loop_factory: LoopFactory | None = None,
    ) -> None:
        super().__init__(loop_factory)
        self._width = config.consume_thread_nums
        self._pool = self._make_pool()
        # The constructor only keeps things: it needs no loop, and subscribe may be called before start.
        self._client = push_consumer.PushConsumer(config, seams, listener, orderly=orderly, executor=self._pool)
        self._is_started = False
        self._is_pool_over = False

    def _make_pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._width, thread_name_prefix="maxq-consume")

    def subscribe(self, topic: str, expression: str | MessageSelector = "*", expression_type: str = TAG) -> None:
        """Take messages of a topic."""
        self._on_loop(lambda: self._client.subscribe(topic, expression, expression_type))

    def unsubscribe(self, topic: str) -> None:
        """Take no more messages of a topic."""
        self._on_loop(lambda: self._client.unsubscribe(topic))

    def _on_loop(self, work: Callable[[], None]) -> None:
        if not self._is_started:
            work()
            return

        async def call() -> None:
            work()

        self._thread.run(call())

    def start(self) -> None:
        """Join the group; also again, after a shutdown."""

        async def begin() -> None:
            if self._is_pool_over:
                self._pool, self._is_pool_over = self._make_pool(), False
                self._client.set_consume_thread_nums(self._width, self._pool)
            await self._client.start()

        self._start(begin)
        self._is_started = True

    def shutdown(self, await_termination_ms: int | None = None) -> None:
        """Leave the group; listener calls under way get that long to end (None: await_termination_when_shutdown). No
        call begins afterwards. What then still runs, runs on to its end; its messages come again."""
        if self._is_started:
            self._is_started = False
            self._stop(lambda: self._client.shutdown(await_termination_ms))
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._is_pool_over = True

    def suspend(self) -> None:
        """Stop pulling."""
        self._client.suspend()

    def resume(self) -> None:
        """Pull again."""
        self._client.resume()

    def set_consume_thread_nums(self, count: int) -> None:
        """Change how many threads call the listener, also while running. Calls under way end where they are."""
        check_number("consume_thread_nums", count, low=1, high=MAX_CONSUME_THREADS)
        pool, old = ThreadPoolExecutor(count, thread_name_prefix="maxq-consume"), self._pool
        self._on_loop(lambda: self._client.set_consume_thread_nums(count, pool))
        self._width, self._pool = count, pool
        old.shutdown(wait=False)

    @property
    def client_id(self) -> str:
        """Who we are for the broker."""
        return self._client.client_id

    def assigned_queues(self) -> list[MessageQueue]:
        """The queues we hold now, sorted."""

        async def call() -> list[MessageQueue]:
            return self._client.assigned_queues()

        return self._thread.run(call())

    def wait_for_assignment(
        self, is_enough: Callable[[Collection[MessageQueue]], bool] = bool, *, timeout_ms: int | None = None
    ) -> Collection[MessageQueue]:
        """Wait until this consumer holds queues, or as many as `is_enough` wants."""
        return self._thread.run(self._client.wait_for_assignment(is_enough, timeout_ms=timeout_ms))


class LitePullConsumer(_Started):
    """Blocking `maxq.client.consumer.lite_pull_consumer.LitePullConsumer`; see there for arguments, results, errors."""

    def __init__(
        self, config: LitePullConsumerConfig, seams: ClientSeams, *, loop_factory: LoopFactory | None = None
    ) -> None:
        super().__init__(loop_factory)
        # The constructor only keeps things: it needs no loop.
        self._client = lite_pull_consumer.LitePullConsumer(config, seams)
        self._before: list[Callable[[lite_pull_consumer.LitePullConsumer], Coroutine[Any, Any, None]]] = []
        self._is_started = False

    def start(self) -> None:
        """Join the group; also again, after a shutdown, with the same topics or queues."""

        async def begin() -> None:
            while self._before:
                await self._before[0](self._client)
                del self._before[0]
            await self._client.start()

        self._start(begin)
        self._is_started = True

    def shutdown(self, *, is_finished: bool = True) -> None:
        """Leave the group and end the thread; `is_finished`: what `poll` gave out last is done."""
        if self._is_started:
            self._is_started = False
            self._stop(lambda: self._client.shutdown(is_finished=is_finished))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown(is_finished=kind is None)

    @property
    def _running(self) -> lite_pull_consumer.LitePullConsumer:
        if not self._is_started:
            raise NotRunningError("the consumer is not running: start it first")
        return self._client

    def _now_or_at_start(
        self, work: Callable[[lite_pull_consumer.LitePullConsumer], Coroutine[Any, Any, None]]
    ) -> None:
        if self._is_started:
            self._thread.run(work(self._client))
        else:
            self._before.append(work)

    def subscribe(self, topic: str, expression: str | MessageSelector = "*", expression_type: str = TAG) -> None:
        """Share a topic's queues with the group; before or after `start`."""
        check_topic(topic)
        expression_of(expression, expression_type)
        self._now_or_at_start(lambda client: client.subscribe(topic, expression, expression_type))

    def unsubscribe(self, topic: str) -> None:
        """Give the topic's queues up."""
        self._now_or_at_start(lambda client: client.unsubscribe(topic))

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read exactly these queues; before or after `start`."""
        wanted = queues_of(queues)
        self._now_or_at_start(lambda client: client.assign(wanted))

    def poll(self, timeout_ms: int | None = None) -> list[MessageExt]:
        """The next messages; those of this thread's last poll count as done. Several threads may poll."""
        client, owner = self._running, threading.current_thread()
        try:
            return self._thread.run(client.poll_for(owner, timeout_ms))
        except BaseException:  # an interrupt may have come when there were messages already
            self._thread.post(lambda: client.take_back(owner))
            raise

    def commit(self, offsets: dict[MessageQueue, int] | None = None) -> None:
        """Make progress last: these queue offsets, or everything that `poll` has given out to this thread, and to
        others who have polled again."""
        self._thread.run(self._running.commit_for(threading.current_thread(), offsets))

    def committed(self, queue: MessageQueue) -> int:
        """The group's committed queue offset, -1 if there is none."""
        return self._thread.run(self._running.committed(queue))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Read from `offset` on."""
        self._thread.run(self._running.seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Read from the oldest message on."""
        self._thread.run(self._running.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Read only what comes from now on."""
        self._thread.run(self._running.seek_to_end(queue))

    def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Queue offset by store time."""
        return self._thread.run(self._running.offset_for_timestamp(queue, timestamp_ms))

    def fetch_message_queues(self, topic: str) -> list[MessageQueue]:
        """All readable queues of a topic, sorted."""
        return self._thread.run(self._running.fetch_message_queues(topic))

    def assignment(self) -> set[MessageQueue]:
        """The queues we read now."""

        async def call() -> set[MessageQueue]:
            return self._running.assignment()

        return self._thread.run(call())

    def wait_for_assignment(
        self, is_enough: Callable[[Collection[MessageQueue]], bool] = bool, *, timeout_ms: int | None = None
    ) -> Collection[MessageQueue]:
        """Wait until this consumer holds queues, or as many as `is_enough` wants."""
        return self._thread.run(self._running.wait_for_assignment(is_enough, timeout_ms=timeout_ms))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Give out nothing of these queues for now."""
        client, wanted = self._running, queues_of(queues)
        self._thread.post(lambda: client.pause(wanted))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Go on with these queues."""
        client, wanted = self._running, queues_of(queues)
        self._thread.post(lambda: client.resume(wanted))


class SimpleConsumer(_Started):
    """Blocking `maxq.client.consumer.simple_consumer.SimpleConsumer`; see there for arguments, results and errors.
    Several threads may receive at the same time."""

    def __init__(
        self, config: SimpleConsumerConfig, seams: ClientSeams, *, loop_factory: LoopFactory | None = None
    ) -> None:
        super().__init__(loop_factory)
        # The constructor only keeps things: it needs no loop.
        self._client = simple_consumer.SimpleConsumer(config, seams)
        self._before: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._is_started = False

    def start(self) -> None:
        """Join the group."""

        async def begin() -> None:
            while self._before:
                await self._before[0]()
                del self._before[0]
            await self._client.start()

        self._start(begin)
        self._is_started = True

    def shutdown(self) -> None:
        """Leave the group and end the thread."""
        if self._is_started:
            self._is_started = False
            self._stop(self._client.shutdown)

    def _now_or_at_start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._is_started:
            self._thread.run(work())
        else:
            self._before.append(work)

    def subscribe(self, topic: str, expression: str | MessageSelector = "*", expression_type: str = TAG) -> None:
        """Take messages of a topic; before or after `start`."""
        check_topic(topic)
        expression_of(expression, expression_type)
        self._now_or_at_start(lambda: self._client.subscribe(topic, expression, expression_type))

    def unsubscribe(self, topic: str) -> None:
        """Take no more messages of a topic."""
        self._now_or_at_start(lambda: self._client.unsubscribe(topic))

    def receive(
        self,
        max_messages: int = simple_consumer.MAX_MESSAGES,
        invisible_ms: int | None = None,
        *,
        wait_ms: int | None = None,
    ) -> list[MessageExt]:
        """Some messages, not to be seen by others for a while."""
        return self._thread.run(self._running.receive(max_messages, invisible_ms, wait_ms=wait_ms))

    def ack(self, message: MessageExt) -> None:
        """The message is done."""
        self._thread.run(self._running.ack(message))

    def ack_all(self, messages: Sequence[MessageExt]) -> None:
        """These messages are done."""
        self._thread.run(self._running.ack_all(messages))

    def change_invisible_duration(self, message: MessageExt, invisible_ms: int, *, suspend: bool = False) -> None:
        """The message stays ours for so long from now."""
        self._thread.run(self._running.change_invisible_duration(message, invisible_ms, suspend=suspend))

    @property
    def _running(self) -> simple_consumer.SimpleConsumer:
        if not self._is_started:
            raise NotRunningError("the consumer is not running: start it first")
        return self._client
