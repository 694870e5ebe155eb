"""ConsumeMessageOrderlyService: one listener call at a time per queue, in queue order, under the broker's lock.

A runner (asyncio task) exists for each queue that has messages. It delivers only while the broker's lock on the queue
is ours and fresh; the lock is renewed every 20 s. Messages that fail stay at the head of the queue and come again
after a pause; with `max_reconsume_times` they are at last handed to the retry topic.

Source: apache/rocketmq client/impl/consumer/ConsumeMessageOrderlyService.java.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Literal

from maxq.client.client_config import PushConsumerConfig
from maxq.client.consumer.consume_service import ConsumeMessageService
from maxq.client.consumer.consumer_stats import ConsumerStats
from maxq.client.consumer.held.process_queue import ProcessQueue
from maxq.client.consumer.listener_caller import ListenerCaller
from maxq.client.consumer.offset_store import OffsetStore
from maxq.client.consumer.rebalance_impl import RebalanceImpl
from maxq.client.failures import Failures
from maxq.client.results.consume_result import ConsumeContext, ConsumeResult
from maxq.errors import MaxQError
from maxq.protocol.enums import MessageModel
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.message_queue import MessageQueue
from maxq.runtime.interfaces import Clock

log = logging.getLogger(__name__)

LOCK_RETRY_MS = 100
RELEASE_WAIT_MS = 500  # how long a round of rebalance waits for a listener call to end
SUSPEND_MIN_MS, SUSPEND_MAX_MS = 10, 30_000
_SLICE = 64  # calls a runner makes before others get their turn

#: Sends a message that failed too often to the retry topic: taken?
SendToRetry = Callable[[MessageExt], Awaitable[bool]]


class ConsumeMessageOrderlyService(ConsumeMessageService):
    """Calls the listener of one push consumer, one call at a time for each queue, in queue order."""

    orderly = True

    def __init__(
        self,
        caller: ListenerCaller,
        config: PushConsumerConfig,
        stats: ConsumerStats,
        clock: Clock,
        failures: Failures,
        offset_store: OffsetStore,
        rebalance: RebalanceImpl,
        send_to_retry: SendToRetry,
    ) -> None:
        super().__init__(caller, config, stats, clock, failures)
        self._offsets = offset_store
        self._rebalance = rebalance
        self._send_to_retry = send_to_retry
        self._clustering = config.message_model is MessageModel.CLUSTERING
        self._runners: dict[ProcessQueue, asyncio.Task[None]] = {}
        self._consume_locks: dict[ProcessQueue, asyncio.Lock] = {}  # held during a listener call
        self._slots = asyncio.Semaphore(config.consume_thread_nums)
        self._workers = config.consume_thread_nums
        # each of these tasks takes one slot away as soon as one is free
        self._shrinking: set[asyncio.Task[Literal[True]]] = set()
        self._lock_task: asyncio.Task[None] | None = None
        self._stopped = False

    def start(self) -> None:
        """Start the task that renews the locks of this member's queues."""
        if self._clustering:
            self._lock_task = asyncio.create_task(self._lock_loop(), name="maxq-lock-queues")

    def stop(self) -> None:
        self._stopped = True
        for shrinking in self._shrinking:
            shrinking.cancel()

    async def wait_for_calls(self) -> None:
        for lock in list(self._consume_locks.values()):
            async with lock:
                pass

    async def shutdown(self) -> None:
        tasks = list(self._runners.values())
        if self._lock_task is not None:
            tasks.append(self._lock_task)
        await self._end(tasks)

    def set_workers(self, count: int) -> None:
        """Set how many listener calls may be made at a time. A lower number takes effect as calls under way end."""
        change, self._workers = count - self._workers, count
        while change > 0 and self._shrinking:
            change -= self._shrinking.pop().cancel()
        for _ in range(change):
            self._slots.release()
        for _ in range(-change):
            taking = asyncio.create_task(self._slots.acquire(), name="maxq-fewer-slots")
            self._shrinking.add(taking)
            taking.add_done_callback(self._shrinking.discard)

    def submit(self, messages: list[MessageExt], process_queue: ProcessQueue, queue: MessageQueue) -> None:
        """Start a runner for a queue whose ProcessQueue has new messages, if none runs."""
        if process_queue not in self._runners and not self._stopped:
            runner = asyncio.create_task(self._run(process_queue, queue), name=f"maxq-orderly-{queue.queue_id}")
            self._runners[process_queue] = runner

    async def release(self, queue: MessageQueue, process_queue: ProcessQueue) -> bool:
        """Give a queue up. Returns True once no listener call for it is under way, so that another client may continue
        with the queue."""
        lock = self._consume_locks.get(process_queue)
        if lock is None:
            return True
        try:
            async with asyncio.timeout(RELEASE_WAIT_MS / 1000):  # not wait_for, which may lose a cancellation
                await lock.acquire()
        except TimeoutError:
            process_queue.try_unlock_times += 1
            log.warning("queue %s is still with the listener, it is given up later", queue)
            return False
        lock.release()
        return True

    async def _lock_loop(self) -> None:
        await asyncio.sleep(1)
        while True:
            try:
                await self._rebalance.lock_all()
            except MaxQError as error:
                log.warning("locks of queues were not renewed: %s", error)
            except Exception as error:
                self._failures.report(error, "renewing locks of queues")
            await self._rebalance.wait_for_next_locks(self._config.lock_interval)

    # --- one queue ---

    async def _run(self, process_queue: ProcessQueue, queue: MessageQueue) -> None:
        lock = self._consume_locks.setdefault(process_queue, asyncio.Lock())
        calls = 0
        try:
            while not process_queue.dropped and not self._stopped and process_queue.has_messages():
                if not await self._is_locked(process_queue, queue):
                    await asyncio.sleep(LOCK_RETRY_MS / 1000)
                    continue
                pause_ms = await self._one_call(process_queue, queue, lock)
                calls += 1
                if pause_ms > 0:
                    await asyncio.sleep(pause_ms / 1000)
                elif calls % _SLICE == 0:
                    await asyncio.sleep(0)
        except Exception as error:
            self._failures.report(error, "consuming queue %s", queue)
        finally:
            del self._runners[process_queue]
            del self._consume_locks[process_queue]
        if process_queue.has_messages() and not process_queue.dropped and not self._stopped:
            asyncio.get_running_loop().call_later(LOCK_RETRY_MS / 1000, self.submit, [], process_queue, queue)

    async def _is_locked(self, process_queue: ProcessQueue, queue: MessageQueue) -> bool:
        if not self._clustering:
            return True
        if process_queue.locked and not process_queue.is_lock_expired(self._clock.monotonic_ms()):
            return True
        return await self._rebalance.lock(queue)

    async def _one_call(self, process_queue: ProcessQueue, queue: MessageQueue, lock: asyncio.Lock) -> int:
        """Make one listener call. Returns how long to pause before the next one, in ms."""
        async with self._slots, lock:
            if not self._is_wanted(process_queue):
                return 0
            now_ms = self._clock.monotonic_ms()
            messages = process_queue.take_messages(self._config.consume_message_batch_max_size, now_ms)
            if not messages:
                return 0
            self._caller.show_own_topics(messages)
            context = ConsumeContext(queue)
            is_done = False
            try:
                result = await self._caller.call(messages, context, partial(self._is_wanted, process_queue))
                if result is None:
                    return 0
                took_ms = self._clock.monotonic_ms() - now_ms
                ok = len(messages) if result is ConsumeResult.SUCCESS else 0
                self._stats.on_consume(queue.topic, ok, len(messages) - ok, took_ms)
                is_done = ok > 0 or await self._gave_up(messages)
            finally:
                # In any case: messages that stay with the listener would be committed together with the next ones.
                if is_done:
                    self._commit(process_queue, queue)
                else:
                    process_queue.rollback()
            if is_done:
                return 0
            pause_ms = self._config.suspend_current_queue_time if context.suspend_ms is None else context.suspend_ms
            return max(SUSPEND_MIN_MS, min(pause_ms, SUSPEND_MAX_MS))

    def _is_wanted(self, process_queue: ProcessQueue) -> bool:
        return not (process_queue.dropped or self._stopped)

    def _commit(self, process_queue: ProcessQueue, queue: MessageQueue) -> None:
        offset = process_queue.commit()
        if offset >= 0 and not process_queue.dropped:
            self._offsets.update(queue, offset, increase_only=False)

    async def _gave_up(self, messages: list[MessageExt]) -> bool:
        """Count a failed attempt at messages. Returns True if all of them have had their attempts and the retry topic
        has accepted them."""
        limit = self._config.max_reconsume_times
        all_gone = True
        for message in messages:
            if 0 <= limit <= message.reconsume_times:
                message.properties[const.PROPERTY_RECONSUME_TIME] = str(message.reconsume_times)
                if await self._send_to_retry(message):
                    continue
            all_gone = False
            message.reconsume_times += 1
        return all_gone
