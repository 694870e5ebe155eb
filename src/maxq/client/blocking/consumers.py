"""The blocking consumers: PushConsumer, LitePullConsumer and SimpleConsumer. See sync.py, which has the other clients:
a program that only sends does not load what is here."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING

from maxq.client.argument_checks import check_number
from maxq.client.blocking import consumer_calls
from maxq.client.blocking.loop_thread import LoopFactory
from maxq.client.blocking.started import Started
from maxq.client.client_config import (
    MAX_CONSUME_THREADS,
    ClientEnvironment,
    LitePullConsumerConfig,
    PushConsumerConfig,
    SimpleConsumerConfig,
)
from maxq.client.consumer import lite_pull_consumer, push_consumer, simple_consumer
from maxq.client.consumer.held.fetch_queue_cy import IS_SAFE_FOR_THREADS, Fetched
from maxq.client.consumer.lite_pull_consumer import LINGER_MS
from maxq.client.errors import NotRunningError
from maxq.client.results.arrow_batches import rows_in
from maxq.client.results.consume_result import MessageListener
from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.message_queue import MessageQueue

if TYPE_CHECKING:
    import pyarrow as pa


class PushConsumer(consumer_calls.PushConsumerCalls, Started[push_consumer.PushConsumer]):
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


class LitePullConsumer(consumer_calls.LitePullConsumerCalls, Started[lite_pull_consumer.LitePullConsumer]):
    """The blocking form of `maxq.client.consumer.lite_pull_consumer.LitePullConsumer`."""

    def __init__(
        self, config: LitePullConsumerConfig, environment: ClientEnvironment, *, loop_factory: LoopFactory | None = None
    ) -> None:
        super().__init__(loop_factory, f"consumer of group {config.consumer_group}")
        # The constructor only keeps things: it needs no loop.
        self._client = lite_pull_consumer.LitePullConsumer(config, environment)
        self._is_finished = True
        # threads whose last poll was interrupted; what it took must still be taken back
        self._interrupted: list[threading.Thread] = []

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
            Messages of one pull, at most pull_batch_size of them; empty if nothing came in time.
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

    def poll_arrow(
        self, timeout_ms: int | None = None, *, columns: Sequence[str] | None = None, linger_ms: int = LINGER_MS
    ) -> "pa.RecordBatch":
        """Return the next messages as columns, without an object for each of them. They count as done as those of
        `poll` do, with which it may take turns. Needs pyarrow (`pip install 'maxq[arrow]'`).

        Args:
            timeout_ms: how long to wait for some; None: poll_timeout. 0: what is there.
            columns: which, in this order; None: all of `maxq.arrow.schemas.MESSAGE_COLUMNS`, as the Spark source has
                them. Fewer take less time.
            linger_ms: how long to wait for more when some are there, for a batch costs as much as some hundred rows.

        Returns:
            Messages of any of the queues, those of a queue in order; no rows if nothing came in time.

        Raises:
            ClientError: no such column, or pyarrow is not installed.
        """
        client, owner = self._running, threading.current_thread()
        make = client.arrow_polls(columns)
        before = client.given_out_to(owner)
        try:
            polled = self._thread.run(client.poll_records_for(owner, timeout_ms, linger_ms))
            batch = make(polled)
            if batch.num_rows < rows_in(polled):
                self._thread.run(client.keep_first(owner, batch.num_rows))
            return batch
        except BaseException:
            self._take_back(before)
            raise

    def _take_back(self, before: list[Fetched] | None) -> None:
        """Make the next poll of this thread, whose last one was interrupted, return what that had taken already."""
        client, owner = self._client, threading.current_thread()
        self._interrupted.append(owner)  # until it is taken back, no thread takes messages without the loop

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
            except BaseException:  # an interrupt, for example Ctrl-C
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


class SimpleConsumer(consumer_calls.SimpleConsumerCalls, Started[simple_consumer.SimpleConsumer]):
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
