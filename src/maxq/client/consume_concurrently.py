"""ConsumeMessageConcurrentlyService: many listener calls at a time, in no order.

A fixed number of workers (asyncio tasks) take batches from one queue. What a listener did not finish goes back to the
broker, which delivers it again later; if even that fails, it is tried again here after 5 s. Until then its offset is
not committed, so nothing is lost.

Source: apache/rocketmq client/impl/consumer/ConsumeMessageConcurrentlyService.java.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from maxq.client.client_config import PushConsumerConfig
from maxq.client.consume_result import ConsumeContext, ConsumeResult
from maxq.client.consumer_stats import ConsumerStats
from maxq.client.listener_caller import ListenerCaller, reset_retry_topic
from maxq.client.offset_store import OffsetStore
from maxq.client.process_queue import ProcessQueue
from maxq.protocol import message_const as const
from maxq.protocol.enums import MessageModel
from maxq.protocol.message import MessageExt
from maxq.protocol.message_queue import MessageQueue
from maxq.runtime.interfaces import Clock

log = logging.getLogger(__name__)

LOCAL_RETRY_DELAY_MS = 5_000
EXPIRED_DELAY_LEVEL = 3  # of messages a listener has held for longer than consume_timeout_minutes
_CHUNK = 32  # batches a worker hands to the executor in one hop
_SLICE = 64  # batches a worker runs on the loop before others get their turn

#: Hands a message back to the broker: (message, delay level, broker name) → taken?
SendBack = Callable[[MessageExt, int, str], Awaitable[bool]]


@dataclass(slots=True, eq=False)
class ConsumeRequest:
    """One listener call to make. `started_ms` is monotonic, 0 before the call."""

    messages: list[MessageExt]
    process_queue: ProcessQueue
    queue: MessageQueue
    started_ms: int = 0
    expired: bool = False
    context: ConsumeContext = field(init=False)


class ConsumeMessageConcurrentlyService:
    """Runs the listener of one push consumer."""

    orderly = False

    def __init__(
        self,
        caller: ListenerCaller,
        config: PushConsumerConfig,
        retry_topic: str,
        offset_store: OffsetStore,
        send_back: SendBack,
        stats: ConsumerStats,
        clock: Clock,
    ) -> None:
        self._caller = caller
        self._config = config
        self._retry_topic = retry_topic
        self._offsets = offset_store
        self._send_back = send_back
        self._stats = stats
        self._clock = clock
        self._broadcasting = config.message_model is MessageModel.BROADCASTING
        self._requests: asyncio.Queue[ConsumeRequest | None] = asyncio.Queue()  # None: wakes an idle worker
        self._running: set[ConsumeRequest] = set()
        self._drained = asyncio.Event()  # set when the last call under way ends
        self._workers: set[asyncio.Task[None]] = set()
        self._wanted_workers = config.consume_thread_nums
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the workers."""
        self.set_workers(self._wanted_workers)
        self._tasks.append(asyncio.create_task(self._expire_loop(), name="maxq-consume-expire"))

    async def shutdown(self, await_termination_ms: int = 0) -> None:
        """Stop the workers; listener calls under way get `await_termination_ms` to end."""
        if self._running and await_termination_ms > 0:
            self._drained.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._drained.wait(), await_termination_ms / 1000)
        tasks = [*self._tasks, *self._workers]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()

    def set_workers(self, count: int) -> None:
        """How many listener calls may be made at a time. Fewer than before: workers end after the call they make."""
        self._wanted_workers = count
        work = self._work_in_executor if self._caller.uses_executor else self._work_on_loop
        for n in range(len(self._workers), count):
            worker = asyncio.create_task(work(), name=f"maxq-consume-{n}")
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)
        for _ in range(len(self._workers) - count):
            self._requests.put_nowait(None)

    async def _next_request(self) -> ConsumeRequest | None:
        """What a worker does next; None: it is one too many."""
        while True:
            if len(self._workers) > self._wanted_workers:
                worker = asyncio.current_task()
                assert worker is not None, "workers are tasks"
                self._workers.discard(worker)
                return None
            request = await self._requests.get()
            if request is not None:
                return request

    def submit(self, messages: list[MessageExt], process_queue: ProcessQueue, queue: MessageQueue) -> None:
        """Messages have come."""
        size = self._config.consume_message_batch_max_size
        put = self._requests.put_nowait
        if size >= len(messages):
            put(ConsumeRequest(messages, process_queue, queue))
            return
        for start in range(0, len(messages), size):
            put(ConsumeRequest(messages[start : start + size], process_queue, queue))

    async def release(self, queue: MessageQueue, process_queue: ProcessQueue) -> bool:
        """A queue is given up: nothing to wait for, dropped requests are skipped."""
        return True

    # --- workers ---

    async def _work_on_loop(self) -> None:
        done = 0
        while (request := await self._next_request()) is not None:
            if self._begin(request):
                result = await self._caller.call(request.messages, request.context)
                await self._end_safely(request, result)
            done += 1
            if done % _SLICE == 0:
                await asyncio.sleep(0)

    async def _work_in_executor(self) -> None:
        requests = self._requests
        while (first := await self._next_request()) is not None:
            more = min(_CHUNK - 1, requests.qsize() // self._wanted_workers)
            taken = [first, *(requests.get_nowait() for _ in range(more))]
            chunk = [request for request in taken if request is not None and self._begin(request)]
            if not chunk:
                continue
            results = await self._caller.call_many([(request.messages, request.context) for request in chunk])
            for request, result in zip(chunk, results, strict=True):
                await self._end_safely(request, result)

    def _begin(self, request: ConsumeRequest) -> bool:
        if request.process_queue.dropped:
            return False
        reset_retry_topic(request.messages, self._retry_topic)
        request.context = ConsumeContext(request.queue)
        request.started_ms = self._clock.monotonic_ms()
        started = str(self._clock.wall_ms())
        for message in request.messages:
            message.properties[const.PROPERTY_CONSUME_START_TIMESTAMP] = started
        self._running.add(request)
        return True

    async def _end_safely(self, request: ConsumeRequest, result: ConsumeResult) -> None:
        try:
            await self._end(request, result)
        except Exception:
            # The worker must live. The messages stay in their ProcessQueue, so their offset is not committed.
            log.exception("finishing %d messages of %s failed", len(request.messages), request.queue)

    async def _end(self, request: ConsumeRequest, result: ConsumeResult) -> None:
        self._running.discard(request)
        if not self._running:
            self._drained.set()
        now_ms = self._clock.monotonic_ms()
        count = len(request.messages)
        ok = 0
        if result is ConsumeResult.SUCCESS:
            ack_index = request.context.ack_index
            ok = count if ack_index is None else max(0, min(ack_index + 1, count))
        self._stats.on_consume(request.queue.topic, ok, count - ok, now_ms - request.started_ms)
        if request.process_queue.dropped:
            return
        done = request.messages
        if ok < count and not request.expired:
            done = done[:ok] + await self._hand_back(request, request.messages[ok:])
        offset = request.process_queue.remove_messages(done, now_ms)
        if offset >= 0 and not request.process_queue.dropped:
            self._offsets.update(request.queue, offset, increase_only=True)

    # --- failures ---

    async def _hand_back(self, request: ConsumeRequest, failed: list[MessageExt]) -> list[MessageExt]:
        """Give failed messages back to the broker.

        Returns:
            Those we are rid of.
        """
        if self._broadcasting:
            for message in failed:
                log.warning("broadcasting: message %s failed and is dropped", message.msg_id)
            return failed
        gone, kept = [], []
        for message in failed:
            level = request.context.delay_level_when_next_consume
            if await self._send_back(message, level, request.queue.broker_name):
                gone.append(message)
            else:
                message.reconsume_times += 1
                kept.append(message)
        if kept:
            retry = ConsumeRequest(kept, request.process_queue, request.queue)
            asyncio.get_running_loop().call_later(LOCAL_RETRY_DELAY_MS / 1000, self._requests.put_nowait, retry)
        return gone

    async def _expire_loop(self) -> None:
        timeout_ms = self._config.consume_timeout_minutes * 60_000
        while True:
            await asyncio.sleep(timeout_ms / 1000)
            deadline_ms = self._clock.monotonic_ms() - timeout_ms
            for request in [request for request in self._running if request.started_ms < deadline_ms]:
                await self._expire(request)

    async def _expire(self, request: ConsumeRequest) -> None:
        """A listener hangs: let the broker deliver its messages to somebody else, so that the offset can move on."""
        if request.process_queue.dropped or self._broadcasting:
            return
        request.expired = True
        for message in request.messages:
            if await self._send_back(message, EXPIRED_DELAY_LEVEL, request.queue.broker_name):
                request.process_queue.remove_messages([message], self._clock.monotonic_ms())
