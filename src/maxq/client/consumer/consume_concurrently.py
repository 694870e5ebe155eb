"""ConsumeMessageConcurrentlyService: many listener calls at a time, in no order.

A coroutine listener, or a plain one without an executor, is called by a fixed number of workers (asyncio tasks) that
take batches from one queue. A plain listener with an executor is called on its threads (`CallThreads`), and the loop
hears of every result as it comes. Before each call the consumer looks whether the batch is still its own and whether it
is to stop. Messages that a listener did not finish go back to the broker, which delivers them again later; if that
fails, too, they are tried again here after 5 s. Until then its offset is not committed, so nothing is lost.

Source: apache/rocketmq client/impl/consumer/ConsumeMessageConcurrentlyService.java.
"""

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from maxq.client.client_config import PushConsumerConfig
from maxq.client.consumer.consume_service import ConsumeMessageService
from maxq.client.consumer.consumer_stats import ConsumerStats
from maxq.client.consumer.held.process_queue import ProcessQueue
from maxq.client.consumer.listener_caller import ListenerCaller
from maxq.client.consumer.offset_store import OffsetStore
from maxq.client.failures import Failures
from maxq.client.results.consume_result import ConsumeContext, ConsumeResult
from maxq.protocol.enums import MessageModel
from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.message_queue import MessageQueue
from maxq.runtime.interfaces import Clock

log = logging.getLogger(__name__)

LOCAL_RETRY_DELAY_MS = 5_000
EXPIRED_DELAY_LEVEL = 3  # delay level of messages that a listener has held for longer than consume_timeout_minutes
_THREAD_SLICE = 64  # calls a thread of an executor makes before others of that executor get their turn
_THREAD_SLICE_MS = 50  # after which it makes no further ones: an interpreter that ends waits for it
_SLICE = 64  # batches a worker runs on the loop before others get their turn

#: Hands a message back to the broker: (message, delay level, broker name) → taken?
SendBack = Callable[[MessageExt, int, str], Awaitable[bool]]


@dataclass(slots=True, eq=False)
class ConsumeRequest:
    """One listener call to make. `started_ms` is monotonic time in ms, and 0 before the call."""

    messages: list[MessageExt]
    process_queue: ProcessQueue
    queue: MessageQueue
    started_ms: int = 0
    is_ended: bool = False  # the listener has returned
    # queue offsets of messages that were given back before the listener returned
    given_back: set[int] = field(default_factory=set)
    context: ConsumeContext = field(init=False)


class ConsumeMessageConcurrentlyService(ConsumeMessageService):
    """Calls the listener of one push consumer many times at once, in no order."""

    orderly = False

    def __init__(
        self,
        caller: ListenerCaller,
        config: PushConsumerConfig,
        stats: ConsumerStats,
        clock: Clock,
        failures: Failures,
        offset_store: OffsetStore,
        send_back: SendBack,
    ) -> None:
        super().__init__(caller, config, stats, clock, failures)
        self._offsets = offset_store
        self._send_back = send_back
        self._broadcasting = config.message_model is MessageModel.BROADCASTING
        self._requests: asyncio.Queue[ConsumeRequest | None] = asyncio.Queue()  # None: wakes an idle worker
        # calls from before the listener begins until their outcome is recorded
        self._running: set[ConsumeRequest] = set()
        self._drained = asyncio.Event()  # set when no such call is left
        self._workers: set[asyncio.Task[None]] = set()
        self._wanted_workers = config.consume_thread_nums
        self._threads = CallThreads(self, config.consume_thread_nums, clock) if caller.executor is not None else None
        self._settling: set[asyncio.Task[None]] = set()
        self._settling_room = asyncio.Semaphore(config.consume_thread_nums)
        self._is_stopped = False
        self._expiring: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the workers that call the listener, and the task that gives back messages of calls which take too
        long."""
        self.set_workers(self._wanted_workers)
        self._expiring = asyncio.create_task(self._expire_loop(), name="maxq-consume-expire")

    def stop(self) -> None:
        self._is_stopped = True
        if self._threads is not None:
            self._threads.stop()

    async def wait_for_calls(self) -> None:
        if self._running:
            self._drained.clear()
            await self._drained.wait()

    async def shutdown(self) -> None:
        tasks = [*self._workers, *self._settling]
        if self._expiring is not None:
            tasks.append(self._expiring)
        await self._end(tasks)

    def set_workers(self, count: int) -> None:
        """Set how many listener calls may be made at a time. Where that is fewer than before, workers end after the
        call they make."""
        self._wanted_workers = count
        if self._threads is not None:
            self._threads.set_width(count)
            return
        for n in range(len(self._workers), count):
            worker = asyncio.create_task(self._work(), name=f"maxq-consume-{n}")
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)
        for _ in range(len(self._workers) - count):
            self._requests.put_nowait(None)

    def submit(self, messages: list[MessageExt], process_queue: ProcessQueue, queue: MessageQueue) -> None:
        """Call the listener with messages that were pulled from a queue."""
        size = self._config.consume_message_batch_max_size
        self._put(
            [
                ConsumeRequest(messages[start : start + size], process_queue, queue)
                for start in range(0, len(messages), size)
            ]
            if size < len(messages)
            else [ConsumeRequest(messages, process_queue, queue)]
        )

    def _put(self, requests: list[ConsumeRequest]) -> None:
        if self._is_stopped:
            return
        if self._threads is not None:
            self._threads.submit(requests)
            return
        for request in requests:
            self._requests.put_nowait(request)

    async def release(self, queue: MessageQueue, process_queue: ProcessQueue) -> bool:
        """Give a queue up. Returns True at once: calls for a dropped queue are not started; those under way commit
        nothing."""
        return True

    # --- calls on the loop ---

    async def _next_request(self) -> ConsumeRequest | None:
        """Wait for the next call that a worker is to make. None: the worker must end, because there are too many or the
        service stops."""
        while not self._is_stopped:
            if len(self._workers) > self._wanted_workers:
                worker = asyncio.current_task()
                assert worker is not None, "workers are tasks"
                self._workers.discard(worker)
                return None
            request = await self._requests.get()
            if request is not None and not self._is_stopped:
                return request
        return None

    async def _work(self) -> None:
        done = 0
        while (request := await self._next_request()) is not None:
            if self.begin(request):
                try:
                    result = await self._caller.call(request.messages, request.context)
                except BaseException:
                    self._done_with(request)
                    raise
                assert result is not None, "it is always wanted on the loop"
                request.is_ended = True
                failed = self._ended(request, result)
                if failed:
                    await self._settle(request, failed)
            done += 1
            if done % _SLICE == 0:
                await asyncio.sleep(0)

    # --- calls on threads ---

    def submit_to_executor(self, work: Callable[[], None]) -> None:
        """Run `work` on a thread of the listener's executor. Raises RuntimeError if the executor is closed."""
        while True:
            executor = self._caller.executor
            assert executor is not None, "only services with an executor have CallThreads"
            try:
                executor.submit(work)
                return
            except RuntimeError:
                if executor is self._caller.executor:
                    raise
                # otherwise the executor was replaced and closed between the two lines: try the new one

    def run(self, request: ConsumeRequest) -> ConsumeResult:
        """Make one call, on a thread of the executor."""
        result = self._caller.call_blocking(request.messages, request.context)
        request.is_ended = True
        return result

    def on_result(self, request: ConsumeRequest, result: ConsumeResult) -> None:
        """Handle the result of a call that a thread made. Called on the loop."""
        failed = self._ended(request, result)
        if failed:
            self._settle_soon(request, failed)

    def _settle_soon(self, request: ConsumeRequest, failed: list[MessageExt]) -> None:
        async def settle() -> None:
            async with self._settling_room:
                await self._settle(request, failed)

        task = asyncio.create_task(settle(), name="maxq-hand-back")
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    # --- both ---

    def begin(self, request: ConsumeRequest) -> bool:
        """Mark a call as started. Returns False if it must not be made after all: the queue was dropped, or the service
        stops. Any thread may call this."""
        if request.process_queue.dropped or self._is_stopped:
            return False
        request.context = ConsumeContext(request.queue)
        request.started_ms = self._clock.monotonic_ms()
        self._mark_started(request.messages)
        self._running.add(request)
        return True

    def _ended(self, request: ConsumeRequest, result: ConsumeResult) -> list[MessageExt]:
        """Count the outcome of a call, and return the messages that must be sent back to the broker. If there are none,
        the request is finished."""
        now_ms = self._clock.monotonic_ms()
        count = len(request.messages)
        ok = request.context.done_of(count) if result is ConsumeResult.SUCCESS else 0
        self._stats.on_consume(request.queue.topic, ok, count - ok, now_ms - request.started_ms)
        if request.process_queue.dropped:
            self._done_with(request)
            return []
        failed = [message for message in request.messages[ok:] if message.queue_offset not in request.given_back]
        if ok:
            self._finish(request, request.messages[:ok])
        if not failed:
            self._done_with(request)
        return failed

    def _finish(self, request: ConsumeRequest, messages: list[MessageExt]) -> None:
        """Remove messages from the ProcessQueue, because they are done or sent back. The offset behind them may then be
        committed."""
        offset = request.process_queue.remove_messages(messages, self._clock.monotonic_ms())
        if offset >= 0 and not request.process_queue.dropped:
            self._offsets.update(request.queue, offset, increase_only=True)

    def _done_with(self, request: ConsumeRequest) -> None:
        self._running.discard(request)
        if not self._running:
            self._drained.set()

    # --- failures ---

    async def _settle(self, request: ConsumeRequest, failed: list[MessageExt]) -> None:
        try:
            self._finish(request, await self._hand_back(request, failed))
        except Exception as error:
            # The messages stay in their ProcessQueue, so their offset is not committed.
            self._failures.report(error, "finishing %d messages of %s", len(failed), request.queue)
        finally:
            self._done_with(request)

    async def _hand_back(self, request: ConsumeRequest, failed: list[MessageExt]) -> list[MessageExt]:
        """Send failed messages back to the broker. Messages that it refuses are tried again here after 5 s.

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
            try:
                is_taken = await self._send_back(message, level, request.queue.broker_name)
            except Exception as error:
                self._failures.report(error, "giving back a message of %s", request.queue)
                is_taken = False
            if is_taken:
                gone.append(message)
            else:
                message.reconsume_times += 1
                kept.append(message)
        if kept:
            retry = ConsumeRequest(kept, request.process_queue, request.queue)
            asyncio.get_running_loop().call_later(LOCAL_RETRY_DELAY_MS / 1000, self._put, [retry])
        return gone

    async def _expire_loop(self) -> None:
        timeout_ms = self._config.consume_timeout_minutes * 60_000
        while True:
            await asyncio.sleep(timeout_ms / 1000)
            deadline_ms = self._clock.monotonic_ms() - timeout_ms
            for request in [request for request in list(self._running) if request.started_ms < deadline_ms]:
                try:
                    await self._expire(request)
                except Exception as error:
                    self._failures.report(error, "giving back %d messages of %s", len(request.messages), request.queue)

    async def _expire(self, request: ConsumeRequest) -> None:
        """Send the messages of a hanging listener back to the broker, so that another member gets them and the offset
        can advance. Messages that the broker refuses are tried again at the next check, or when the listener
        returns."""
        if self._broadcasting:
            return
        for message in request.messages:
            if request.is_ended or request.process_queue.dropped:
                return
            if message.queue_offset in request.given_back:
                continue
            if await self._send_back(message, EXPIRED_DELAY_LEVEL, request.queue.broker_name):
                request.given_back.add(message.queue_offset)
                self._finish(request, [message])


class CallThreads:
    """Makes listener calls on the threads of an executor, one at a time each, in the order in which they were
    submitted, and passes each result to the loop.

    A thread works until nothing waits. One that takes a call while others wait has the next thread started first, so no
    call waits behind a slow one while a thread could be had. While one thread is on its way, no other is started: quick
    calls are worked off by few. Results that come while the loop is busy reach it together.
    """

    def __init__(self, service: ConsumeMessageConcurrentlyService, width: int, clock: Clock) -> None:
        self._service = service
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._width = width
        self._lock = threading.Lock()  # guards the fields below
        self._waiting: deque[ConsumeRequest] = deque()
        self._count = 0  # threads that run or are about to start
        self._is_coming = False  # a thread is about to start and has not taken its first call
        self._is_stopped = False
        self._results: deque[tuple[ConsumeRequest, ConsumeResult]] = deque()
        self._is_telling = False  # the loop will look at the results

    def set_width(self, width: int) -> None:
        """Set how many calls may be made at a time. Threads that are too many end after their call."""
        with self._lock:
            self._width = width
        self._start_one()

    def submit(self, requests: Iterable[ConsumeRequest]) -> None:
        """Queue calls, and start a thread for them if the limit allows one more."""
        self._waiting.extend(requests)
        self._start_one()

    def stop(self) -> None:
        """Start no more calls, also not of those that wait; calls under way go on."""
        with self._lock:
            self._is_stopped = True
            self._waiting.clear()

    def _start_one(self) -> None:
        with self._lock:
            if self._is_stopped or not self._waiting or self._count >= self._width or self._is_coming:
                return
            self._count += 1
            self._is_coming = True
        try:
            self._service.submit_to_executor(self._work)
        except RuntimeError as error:  # it was shut down, or the interpreter ends
            with self._lock:
                self._count -= 1
                self._is_coming = False
            log.error("the executor takes no listener calls: %s", error)

    def _work(self) -> None:
        self._is_coming = False
        has_started_another = False
        ends_ms = self._clock.monotonic_ms() + _THREAD_SLICE_MS
        for _ in range(_THREAD_SLICE):
            request = self._next()
            if request is None:
                return
            if not has_started_another and self._waiting:
                has_started_another = True
                self._start_one()
            self._results.append((request, self._service.run(request)))
            if not self._is_telling:
                self._is_telling = True
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    self._loop.call_soon_threadsafe(self._tell)
            if self._clock.monotonic_ms() >= ends_ms:
                break
        with self._lock:
            self._count -= 1
        self._start_one()

    def _next(self) -> ConsumeRequest | None:
        """Return the next call, already marked as started. None: this thread must end."""
        with self._lock:
            while self._waiting and not self._is_stopped and self._count <= self._width:
                request = self._waiting.popleft()
                if self._service.begin(request):
                    return request
            self._count -= 1
            return None

    def _tell(self) -> None:
        self._is_telling = False
        results = self._results
        while results:
            self._service.on_result(*results.popleft())
