"""The blocking clients: Producer, TransactionProducer, PushConsumer, LitePullConsumer, SimpleConsumer and Admin, for
programs without an event loop.

Each object runs the asynchronous client of the same name on an event loop in a thread of its own. Most methods are made
from those of the asynchronous class (calls.py): they wait for the outcome and raise what the asynchronous one raises.
Objects may be used from several threads. `maxq.api` has the same classes with the machine's own clock, disk and chance
filled in."""

import asyncio
import concurrent.futures
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from maxq.client.admin.admin import Admin as AsyncAdmin
from maxq.client.argument_checks import check_messages, check_number, check_transaction_listener
from maxq.client.blocking import calls
from maxq.client.blocking.face import Face
from maxq.client.blocking.loop_thread import LoopFactory, LoopThread
from maxq.client.client_config import (
    MAX_CONSUME_THREADS,
    ClientConfig,
    ClientEnvironment,
    LitePullConsumerConfig,
    ProducerConfig,
    PushConsumerConfig,
    SimpleConsumerConfig,
)
from maxq.client.consumer import lite_pull_consumer, push_consumer, simple_consumer
from maxq.client.consumer.held.fetch_queue_cy import IS_SAFE_FOR_THREADS, Fetched
from maxq.client.errors import NotRunningError
from maxq.client.producer import producer, transaction_producer
from maxq.client.producer.producer import SendStart
from maxq.client.producer.transaction_producer import LocalTransactionState, TransactionListener, TransactionSendResult
from maxq.client.results.consume_result import MessageListener
from maxq.client.results.send_result import SendResult, SendStatus
from maxq.errors import ClientError
from maxq.protocol.message.message import Message, MessageExt
from maxq.protocol.message.message_queue import MessageQueue

log = logging.getLogger(__name__)

Call = TypeVar("Call", bound=Callable[..., Any])
Client = TypeVar("Client")
Result = TypeVar("Result")


class _Started(Face[Client], ABC):
    """A client that is started and shut down, also as a context manager.

    Attributes:
        _client: the asynchronous client.
    """

    _client: Client

    def __init__(self, loop_factory: LoopFactory | None, what: str) -> None:
        self._what = what  # in errors
        self._thread = LoopThread(loop_factory)
        self._is_started = False
        self._is_starting = False
        self._is_unwanted = False  # it was shut down while it started
        self._lives = 0
        self._life = threading.RLock()  # held by who starts it or shuts it down; a signal handler may interrupt that

    @abstractmethod
    async def _begin(self) -> None:
        """Start the asynchronous client that this one uses."""

    @abstractmethod
    async def _end(self) -> None:
        """Shut down the asynchronous client that this one uses."""

    @property
    def _running(self) -> Client:
        if not self._is_started:
            raise NotRunningError(f"{self._what} is not running: start it first")
        return self._client

    @property
    def _idle(self) -> Client | None:
        return None if self._is_started else self._client

    def start(self) -> None:
        """Start the client; also again, after a shutdown.

        Raises:
            ClientError: it runs already, or no name server is given.
            NotRunningError: it was shut down meanwhile, as by a signal handler.
        """
        if self._thread.is_forked:
            self._thread.start()  # says so
        with self._life:
            if self._is_started or self._is_starting:
                raise ClientError(f"{self._what} is already started")
            self._lives += 1
            self._is_starting, self._is_unwanted = True, False
            try:
                self._thread.start()
                try:
                    self._thread.run(self._begin())
                except BaseException:
                    self._thread.stop()
                    raise
                self._is_started = True
            finally:
                self._is_starting = False
            if self._is_unwanted:
                self._shut_down(self._lives)
                raise NotRunningError(f"{self._what} was shut down while it started")

    def shutdown(self) -> None:
        """Shut the client down and end its thread; does nothing if it does not run. A second call waits for the first,
        and a call during a start waits for the start. Called by a listener, or another function that the client
        calls, it only starts the shutdown, which waits for that call."""
        if self._thread.is_forked:  # all that is here is the parent's
            self._thread.stop()
            self._is_started, self._life = False, threading.RLock()
        elif self._thread.is_current or self._is_in_listener:
            threading.Thread(target=self._shut_down, args=(self._lives,), name="maxq-shutdown").start()
        else:
            self._shut_down(self._lives)

    def _shut_down(self, life: int) -> None:
        """End a client that has been started `life` times; one that was started again meanwhile keeps running."""
        with self._life:
            if self._is_starting:  # a signal handler has interrupted the start, which ends with it
                self._is_unwanted = True
            elif self._is_started and life == self._lives:
                self._is_started = False
                try:
                    _stop(self._thread, self._end)
                finally:
                    self._after_end()

    def _after_end(self) -> None:
        """Release the resources that the client used besides its thread."""

    @property
    def _is_in_listener(self) -> bool:
        """Return whether the calling code is part of a call that a shutdown waits for."""
        return False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()


def _stop(thread: LoopThread, end: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """End a client and its thread; does nothing in a forked process, because both belong to the parent."""
    try:
        if thread.is_running:
            thread.run(end())
    finally:
        thread.stop()


def _documented_as(method: Callable[..., Any]) -> Callable[[Call], Call]:
    """Give a method the docstring of the asynchronous one that it stands for."""

    def document(call: Call) -> Call:
        call.__doc__ = method.__doc__
        return call

    return document


class Producer(calls.ProducerCalls, _Started[producer.Producer]):
    """The blocking form of `maxq.client.producer.producer.Producer`."""

    def __init__(
        self, config: ProducerConfig, environment: ClientEnvironment, *, loop_factory: LoopFactory | None = None
    ) -> None:
        super().__init__(loop_factory, f"producer of group {config.producer_group}")
        self._config = config
        self._environment = environment

    async def _begin(self) -> None:
        self._client = self._make()
        await self._client.start()

    def _make(self) -> producer.Producer:
        return producer.Producer(self._config, self._environment)

    async def _end(self) -> None:
        await self._client.shutdown()

    @_documented_as(producer.Producer.send)
    def send(
        self, message: Message, *, queue: MessageQueue | None = None, timeout_ms: int | None = None
    ) -> SendResult:
        return self._thread.send(SendStart(self._running, message, queue, timeout_ms))

    @_documented_as(producer.Producer.send_batch)
    def send_batch(
        self, messages: Sequence[Message], *, queue: MessageQueue | None = None, timeout_ms: int | None = None
    ) -> SendResult:
        return self._thread.send(SendStart(self._running, messages, queue, timeout_ms))

    def send_async(
        self, message: Message, callback: Callable[[SendResult | None, BaseException | None], None] | None = None
    ) -> concurrent.futures.Future[SendResult]:
        """Start to send, and return at once.

        Args:
            callback: called as `callback(result, None)` or `callback(None, error)` on the client's thread, which it
                must not block.

        Returns:
            A future of the result. Errors go to it as well, those of an illegal message among them.

        Raises:
            NotRunningError: the producer does not run.
        """
        client = self._running

        async def send() -> SendResult:
            try:
                return await client.send(message)
            except asyncio.CancelledError:
                text = "the producer was shut down before the send had ended: the message may be stored or not"
                raise NotRunningError(text) from None

        future = self._thread.submit(send())
        if callback is not None:
            tell = callback

            def done(ended: concurrent.futures.Future[SendResult]) -> None:
                error = ClientError("the send was cancelled") if ended.cancelled() else ended.exception()
                tell(None if error else ended.result(), error)

            future.add_done_callback(done)
        return future

    def send_many(self, messages: Iterable[Message], *, in_flight: int = 512) -> list[SendResult]:
        """Send many messages, each in a request of its own, many at a time.

        Args:
            messages: iterated in this thread, so it may block; what it yields is sent, even if it raises later.
            in_flight: how many sends are under way at a time.

        Returns:
            A result for each message, in their order.

        Raises:
            What `send` raises for the first message that fails; no further ones are begun then.
        """
        client = self._running
        check_messages(messages)
        check_number("in_flight", in_flight, low=1)
        if isinstance(messages, Sequence):
            return self._thread.run(client.send_many(messages, in_flight=in_flight))
        results: dict[int, SendResult] = {}
        feed = self._thread.make_feed(2 * in_flight, results.__setitem__)
        call = self._thread.begin(client.send_many(feed, in_flight=in_flight), on_end=feed.give_up)
        try:
            try:
                for message in messages:
                    if not feed.put(message):
                        break
            except Exception:
                feed.end()
                call.result()
                raise
            feed.end()
            call.result()
        except BaseException:
            call.cancel()
            raise
        return [results[place] for place in sorted(results)]


class TransactionProducer(Producer):
    """The blocking form of `maxq.client.producer.transaction_producer.TransactionProducer`. Local transactions are
    executed in the thread that sends, so that they may use what belongs to it (a database session); checks in a
    thread of the producer's own. The listener's methods are plain functions."""

    def __init__(
        self,
        config: ProducerConfig,
        environment: ClientEnvironment,
        listener: TransactionListener,
        *,
        loop_factory: LoopFactory | None = None,
    ) -> None:
        check_transaction_listener(listener)
        super().__init__(config, environment, loop_factory=loop_factory)
        self._listener = listener
        self._pool: ThreadPoolExecutor | None = None

    def _make(self) -> transaction_producer.TransactionProducer:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="maxq-check")
        self._transactional = transaction_producer.TransactionProducer(
            self._config, self._environment, self._listener, executor=self._pool
        )
        return self._transactional

    def _after_end(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def send_message_in_transaction(
        self, message: Message, arg: Any = None, *, timeout_ms: int | None = None
    ) -> TransactionSendResult:
        """Send a message that is delivered if and only if the local transaction is committed.

        Args:
            arg: given to `execute_local_transaction`, which runs in this thread.
            timeout_ms: for sending the half message; None: send_msg_timeout.

        Raises:
            ClientError: an illegal message, a delayed one among them. Otherwise as `send`: nothing was executed then.
        """
        _ = self._running
        client, run = self._transactional, self._thread.run
        half = run(client.send_half(message, timeout_ms=timeout_ms))

        def end(state: LocalTransactionState, remark: str | None = None) -> TransactionSendResult:
            try:
                return run(client.end(half, state, remark))
            except NotRunningError as error:  # the producer was shut down meanwhile
                return TransactionSendResult(half.result, state, error)

        if half.result.send_status is not SendStatus.SEND_OK:
            return end(LocalTransactionState.ROLLBACK_MESSAGE)
        state, remark = LocalTransactionState.UNKNOW, None
        try:
            state = transaction_producer.checked_state(self._listener.execute_local_transaction(message, arg))
        except Exception as error:
            log.warning("execute_local_transaction failed", exc_info=error)
            remark = f"execute_local_transaction exception: {type(error).__name__}: {error}"
        return end(state, remark)


class PushConsumer(calls.PushConsumerCalls, _Started[push_consumer.PushConsumer]):
    """The blocking form of `maxq.client.consumer.push_consumer.PushConsumer`. Plain listeners run in a pool of
    `consume_thread_nums` threads, so they may block; coroutine listeners run on the client's loop."""

    def __init__(
        self,
        config: PushConsumerConfig,
        environment: ClientEnvironment,
        listener: MessageListener,
        *,
        orderly: bool = False,
        loop_factory: LoopFactory | None = None,
    ) -> None:
        super().__init__(loop_factory, f"consumer of group {config.consumer_group}")
        self._width = config.consume_thread_nums
        self._pool = self._make_pool()
        # The constructor only keeps things: it needs no loop, and subscribe may be called before start.
        self._client = push_consumer.PushConsumer(config, environment, listener, orderly=orderly, executor=self._pool)
        self._is_pool_over = False
        self._await_termination_ms: int | None = None

    def _make_pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._width, thread_name_prefix="maxq-consume")

    async def _begin(self) -> None:
        if self._is_pool_over:
            self._pool, self._is_pool_over = self._make_pool(), False
            self._client.set_consume_thread_nums(self._width, self._pool)
        await self._client.start()

    async def _end(self) -> None:
        await self._client.shutdown(self._await_termination_ms)

    def shutdown(self, await_termination_ms: int | None = None) -> None:
        """Leave the group and end the threads. A second call waits for the first. Called by a listener, it only starts
        the shutdown, which waits for that listener call and commits its result.

        Args:
            await_termination_ms: how long listener calls under way get to end; None: await_termination_when_shutdown.
                No call begins afterwards. A call that still runs then goes on to its end; its messages come again.
        """
        self._await_termination_ms = await_termination_ms
        super().shutdown()

    def _after_end(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._is_pool_over = True

    @property
    def _is_in_listener(self) -> bool:
        return self._client.is_in_listener

    def set_consume_thread_nums(self, count: int) -> None:
        """Change how many threads call the listener, also while running. Calls under way end where they are."""
        check_number("consume_thread_nums", count, low=1, high=MAX_CONSUME_THREADS)
        pool, old = ThreadPoolExecutor(count, thread_name_prefix="maxq-consume"), self._pool

        async def change() -> None:
            self._client.set_consume_thread_nums(count, pool)

        if self._is_started:
            self._thread.run(change())
        else:
            self._client.set_consume_thread_nums(count, pool)
        self._width, self._pool = count, pool
        old.shutdown(wait=False)

    @property
    def client_id(self) -> str:
        """The id by which brokers know this client."""
        return self._client.client_id


class LitePullConsumer(calls.LitePullConsumerCalls, _Started[lite_pull_consumer.LitePullConsumer]):
    """The blocking form of `maxq.client.consumer.lite_pull_consumer.LitePullConsumer`."""

    def __init__(
        self, config: LitePullConsumerConfig, environment: ClientEnvironment, *, loop_factory: LoopFactory | None = None
    ) -> None:
        super().__init__(loop_factory, f"consumer of group {config.consumer_group}")
        # The constructor only keeps things: it needs no loop.
        self._client = lite_pull_consumer.LitePullConsumer(config, environment)
        self._is_finished = True
        self._interrupted: list[threading.Thread] = []  # whose last poll is still to be taken back

    async def _begin(self) -> None:
        self._interrupted.clear()
        await self._client.start()

    async def _end(self) -> None:
        await self._client.shutdown(is_finished=self._is_finished)

    def shutdown(self, *, is_finished: bool = True) -> None:
        """Leave the group and end the thread.

        Args:
            is_finished: what `poll` gave out last is done.
        """
        self._is_finished = is_finished
        super().shutdown()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown(is_finished=kind is None)

    def poll(self, timeout_ms: int | None = None) -> list[MessageExt]:
        """Return the next messages of one queue, in order; those of this thread's last poll count as done. Several
        threads may poll.

        Args:
            timeout_ms: how long to wait for some; None: poll_timeout. 0: what is there.

        Returns:
            Messages of one pull; empty if nothing came in time.
        """
        before = self._client.given_out_to(threading.current_thread())
        try:
            return self._poll(timeout_ms)
        except BaseException:  # an interrupt may have come when there were messages already
            self._take_back(before)
            raise

    def _poll(self, timeout_ms: int | None, *, is_one: bool = False) -> list[MessageExt]:
        client, owner = self._running, threading.current_thread()
        check_number("timeout_ms", timeout_ms)
        if IS_SAFE_FOR_THREADS and not self._interrupted and self._thread.is_running and not self._thread.is_current:
            found = client.poll_at_once(owner, is_one=is_one)
            if found is not None:
                return found
        return self._thread.run(client.poll_for(owner, timeout_ms, is_one=is_one))

    def _take_back(self, before: Fetched | None) -> None:
        """Make the next poll of this thread, whose last one was interrupted, return what that had taken already."""
        client, owner = self._client, threading.current_thread()
        self._interrupted.append(owner)  # until then nobody takes anything by itself

        def take_back() -> None:
            client.take_back(owner, unless=before)
            self._interrupted.remove(owner)

        self._thread.post(take_back)

    def __iter__(self) -> Iterator[MessageExt]:
        """Iterate over the messages as they come: `for message in consumer`. Each counts as done when the same thread
        asks for the next one, polls or commits. A message that was not given out stays for the next iteration or poll.
        Ends when the consumer is shut down.

        Raises:
            NotRunningError: the consumer does not run.
        """
        _ = self._running
        return self._messages()

    def _messages(self) -> Iterator[MessageExt]:
        while True:
            before = self._client.given_out_to(threading.current_thread())
            try:
                found = self._poll(None, is_one=True)
            except NotRunningError:
                if self._is_started:
                    raise
                return
            except BaseException:  # an interrupt
                self._take_back(before)
                raise
            yield from found

    def commit(self, offsets: dict[MessageQueue, int] | None = None) -> None:
        """Commit the given queue offsets, or everything that `poll` has returned to this thread, and to other threads
        that have polled again.

        Raises:
            RemotingError, BrokerError, ClientError: an offset is not committed; those of other queues are. ClientError,
                if a queue is no longer this consumer's: its new owner's offset would be moved back.
        """
        self._thread.run(self._running.commit_for(threading.current_thread(), offsets))


class SimpleConsumer(calls.SimpleConsumerCalls, _Started[simple_consumer.SimpleConsumer]):
    """The blocking form of `maxq.client.consumer.simple_consumer.SimpleConsumer`. Several threads may receive at the
    same time."""

    def __init__(
        self, config: SimpleConsumerConfig, environment: ClientEnvironment, *, loop_factory: LoopFactory | None = None
    ) -> None:
        super().__init__(loop_factory, f"consumer of group {config.consumer_group}")
        # The constructor only keeps things: it needs no loop.
        self._client = simple_consumer.SimpleConsumer(config, environment)

    async def _begin(self) -> None:
        await self._client.start()

    async def _end(self) -> None:
        await self._client.shutdown()


class Admin:
    """The blocking form of `maxq.client.admin.admin.Admin`: the same parts with the same methods. Use it as a context
    manager."""

    if TYPE_CHECKING:
        access: calls.AccessCalls
        brokers: calls.BrokerCalls
        controllers: calls.ControllerCalls
        dead_letters: calls.DeadLetterCalls
        groups: calls.GroupCalls
        lite_topics: calls.LiteTopicCalls
        messages: calls.MessageCalls
        name_servers: calls.NameServerCalls
        offsets: calls.OffsetCalls
        operations: calls.OperationsCalls
        static_topics: calls.StaticTopicCalls
        timers: calls.TimerCalls
        topics: calls.TopicCalls
        traces: calls.TraceCalls
        transactions: calls.TransactionCalls

    def __init__(
        self, config: ClientConfig, environment: ClientEnvironment, *, loop_factory: LoopFactory | None = None
    ) -> None:
        async def make() -> AsyncAdmin:
            return AsyncAdmin(config, environment)

        self._thread = LoopThread(loop_factory)
        self._thread.start()
        try:
            self._client = self._thread.run(make())
        except BaseException:
            self._thread.stop()
            raise

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Make a part of the admin client that was not used yet."""
            if name not in calls.ADMIN_PARTS:
                parts = ", ".join(calls.ADMIN_PARTS)
                raise AttributeError(f"{type(self).__name__} has no part {name!r}; there are {parts}")
            made = getattr(calls, calls.ADMIN_PARTS[name].removesuffix("Admin") + "Calls")
            part = made(self._thread, getattr(self._client, name))
            setattr(self, name, part)
            return part

    def __dir__(self) -> list[str]:
        """Return the names of its attributes and of its parts."""
        return sorted({*super().__dir__(), *calls.ADMIN_PARTS})

    def run(self, work: Callable[[AsyncAdmin], Coroutine[Any, Any, Result]]) -> Result:
        """Run `work(admin)` on the event loop of this client, for example several calls at the same time, and return
        its result. `admin` is the asynchronous admin client (`maxq.client.admin.admin.Admin`)."""
        return self._thread.run(work(self._client))

    def close(self) -> None:
        """Close all connections and end the thread."""
        _stop(self._thread, self._client.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
