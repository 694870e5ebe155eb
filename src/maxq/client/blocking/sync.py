"""The blocking clients Producer, TransactionProducer and Admin, for programs without an event loop. The consumers are
in consumers.py.

Each object runs the asynchronous client of the same name on an event loop in a thread of its own. Most methods are made
from those of the asynchronous class (calls.py): they wait for the outcome and raise what the asynchronous one raises.
Objects may be used from several threads. `maxq.api` has the same classes with the machine's own clock, disk and chance
filled in."""

import asyncio
import concurrent.futures
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from maxq.client.admin.admin import Admin as AsyncAdmin
from maxq.client.argument_checks import check_callable, check_messages, check_number, check_transaction_listener
from maxq.client.blocking import calls
from maxq.client.blocking.loop_thread import LoopCall, LoopFactory, LoopThread
from maxq.client.blocking.started import Started, stop
from maxq.client.client_config import ClientConfig, ClientEnvironment, ProducerConfig
from maxq.client.errors import NotRunningError
from maxq.client.failures import KnownErrors, error_in_a_line
from maxq.client.producer import producer, transaction_producer
from maxq.client.producer.producer import SendStart
from maxq.client.producer.transaction_producer import LocalTransactionState, TransactionListener, TransactionSendResult
from maxq.client.results.send_result import SendResult, SendStatus
from maxq.errors import ClientError
from maxq.protocol.message.message import Message
from maxq.protocol.message.message_queue import MessageQueue

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

Call = TypeVar("Call", bound=Callable[..., Any])
Result = TypeVar("Result")


def _documented_as(method: Callable[..., Any]) -> Callable[[Call], Call]:
    """Give a method the docstring of the asynchronous one that it stands for."""

    def document(call: Call) -> Call:
        call.__doc__ = method.__doc__
        return call

    return document


class Producer(calls.ProducerCalls, Started[producer.Producer]):
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
        self._client.serve_threads()

    def _make(self) -> producer.Producer:
        return producer.Producer(self._config, self._environment)

    async def _end(self) -> None:
        await self._client.shutdown()

    @_documented_as(producer.Producer.send)
    def send(self, message: Message, *, queue: MessageQueue | None = None, timeout_ms: int | None = None) -> SendResult:
        return self._thread.send(SendStart(self._running, message, queue, timeout_ms, is_batch=False))

    @_documented_as(producer.Producer.send_batch)
    def send_batch(
        self, messages: Iterable[Message], *, queue: MessageQueue | None = None, timeout_ms: int | None = None
    ) -> SendResult:
        client = self._running
        if not isinstance(messages, (list, tuple)):
            check_messages(messages, "send_batch")
            messages = tuple(messages)  # drawn in the caller's thread, because the iterator may block
        return self._thread.send(SendStart(client, messages, queue, timeout_ms, is_batch=True))

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
                raise NotRunningError(text, may_be_stored=True) from None

        if callback is not None:
            check_callable("the callback", callback, "callback(result, error)")
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
            MaxQError: as `send`, for the first message that fails; no further ones are begun then.
        """
        client = self._running
        check_messages(messages, "send_many")
        check_number("in_flight", in_flight, low=1)
        if isinstance(messages, Sequence):
            return self._thread.run(client.send_many(messages, in_flight=in_flight))
        results: dict[int, SendResult] = {}
        feed = self._thread.make_feed(2 * in_flight, results.__setitem__)
        call = LoopCall(client.send_many(feed, in_flight=in_flight), on_end=feed.give_up)
        try:
            self._thread.begin(call)
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

    @_documented_as(producer.Producer.send_arrow)
    def send_arrow(self, data: Any, *, topic: str | None = None) -> "pa.RecordBatch":
        return self._thread.run(self._running.send_arrow(data, topic=topic))


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
        self._known_errors = KnownErrors()

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
            log.warning(
                "execute_local_transaction of group %s failed: %s",
                self._config.producer_group, error_in_a_line(error), exc_info=self._known_errors.if_new(error),
            )  # fmt: skip
            remark = f"execute_local_transaction exception: {type(error).__name__}: {error}"
        return end(state, remark)


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
        stop(self._thread, self._client.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
