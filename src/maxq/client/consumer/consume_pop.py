"""Popping for a push consumer whose broker assigns queues in mode POP.

One task per assigned queue (or for all of a broker, queue id -1) keeps a pop open and hands what comes to workers,
which call the listener. Messages that were consumed are acknowledged. Failed ones are given more invisible time, longer
with each try, and come again by themselves. After max_reconsume_times (16) it goes to the dead letters.

Messages whose invisible time is over before their turn comes are passed over: the broker gives them again.

Source:
    client/impl/consumer/{ConsumeMessagePopConcurrentlyService,PopProcessQueue,RebalancePushImpl}.java,
    DefaultMQPushConsumerImpl.java popMessage.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from maxq.client.client_config import PushConsumerConfig
from maxq.client.consumer.consume_service import ConsumeMessageService
from maxq.client.consumer.consumer_stats import ConsumerStats
from maxq.client.consumer.listener_caller import ListenerCaller
from maxq.client.consumer.send_back import DEFAULT_MAX_RECONSUME_TIMES
from maxq.client.failures import Failures
from maxq.client.instance.pop_api import INIT_MAX, INIT_MIN, PopAPI
from maxq.client.results.consume_result import ConsumeContext, ConsumeResult
from maxq.client.results.pop_result import handle_of
from maxq.errors import ClientError, MaxQError
from maxq.protocol.body.consumer_info import PopProcessQueueInfo
from maxq.protocol.body.subscription import SubscriptionData
from maxq.protocol.enums import ConsumeFromWhere
from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.message_queue import MessageQueue
from maxq.runtime.interfaces import Clock
from maxq.runtime.log_limits import LogThrottle, and_more

log = logging.getLogger(__name__)

#: Seconds until a message that failed comes again, by the tries before (popDelayLevel).
DELAYS: Final = (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)

_HELD_BACK_SECONDS: Final = 0.02
_MARGIN_MS: Final = 500  # least invisible time that must be left when a listener is called
_DEAD_LETTER: Final = -1

SendBack = Callable[[MessageExt, int, str], Awaitable[bool]]


@dataclass(eq=False, slots=True)
class PopProcessQueue:
    """The unfinished messages of one queue from which a consumer pops. Times are monotonic ms."""

    queue: MessageQueue
    wait_ack: int = 0  # messages popped and neither acknowledged nor given back
    last_pop_ms: int = 0
    dropped: bool = False
    task: asyncio.Task[None] | None = field(default=None)


@dataclass(slots=True)
class _Batch:
    messages: list[MessageExt]
    process_queue: PopProcessQueue
    ends_ms: int  # when the messages may be seen by others; monotonic


class ConsumeMessagePopService(ConsumeMessageService):
    """Pops from the queues that the broker assigns to one push consumer."""

    def __init__(
        self,
        caller: ListenerCaller,
        config: PushConsumerConfig,
        stats: ConsumerStats,
        clock: Clock,
        failures: Failures,
        api: PopAPI,
        send_back: SendBack,
        *,
        subscription_of: Callable[[str], SubscriptionData | None],
        is_paused: Callable[[], bool],
    ) -> None:
        """
        Args:
            subscription_of: what the group wants of a topic; None: nothing any more.
            is_paused: the consumer is suspended.
        """
        super().__init__(caller, config, stats, clock, failures)
        self._api = api
        self._send_back = send_back
        # limits how often failed pops are logged: each queue tries again every few seconds
        self._failed_pops = LogThrottle(clock)
        self._subscription_of = subscription_of
        self._is_paused = is_paused
        self._queues: dict[MessageQueue, PopProcessQueue] = {}
        self._batches: asyncio.Queue[_Batch] = asyncio.Queue()
        self._workers: list[asyncio.Task[None]] = []
        self._busy = 0
        self._is_stopped = False
        self._idle = asyncio.Event()
        most = config.max_reconsume_times
        self._most_times = DEFAULT_MAX_RECONSUME_TIMES if most < 0 else most

    # --- queues ------------------------------------------------------------------------------------------------------

    def on_pop_queues(self, topic: str, queues: Collection[MessageQueue]) -> bool:
        """Pop from these queues of a topic, and from no others of it. Returns True if that is a change."""
        wanted = set(queues)
        gone = [queue for queue in self._queues if queue.topic == topic and queue not in wanted]
        for queue in gone:
            self._drop(queue)
        new = sorted(wanted - self._queues.keys())
        for queue in new:
            process_queue = self._queues[queue] = PopProcessQueue(queue)
            name = f"maxq-pop-{queue.topic}-{queue.queue_id}"
            process_queue.task = asyncio.create_task(self._pop_loop(process_queue), name=name)
        if new and not self._workers:
            self._start_workers()
        return bool(gone or new)

    def drop_unsubscribed(self, topics: Collection[str]) -> None:
        """Stop popping from topics that are not among `topics`."""
        for queue in [queue for queue in self._queues if queue.topic not in topics]:
            self._drop(queue)

    def _drop(self, queue: MessageQueue) -> None:
        process_queue = self._queues.pop(queue)
        process_queue.dropped = True
        if process_queue.task is not None:
            process_queue.task.cancel()

    def queues(self) -> list[MessageQueue]:
        """Return the queues that are popped from, sorted."""
        return sorted(self._queues)

    def info(self) -> dict[MessageQueue, PopProcessQueueInfo]:
        """Return the state of each queue for GET_CONSUMER_RUNNING_INFO."""
        to_wall_ms = self._clock.wall_ms() - self._clock.monotonic_ms()
        return {
            queue: PopProcessQueueInfo(held.wait_ack, held.dropped, held.last_pop_ms + to_wall_ms)
            for queue, held in self._queues.items()
        }

    def stop(self) -> None:
        self._is_stopped = True
        for queue in list(self._queues):
            self._drop(queue)

    async def wait_for_calls(self) -> None:
        if self._busy:
            self._idle.clear()
            await self._idle.wait()

    async def shutdown(self) -> None:
        await self._end(self._workers)
        self._workers.clear()

    # --- popping -----------------------------------------------------------------------------------------------------

    async def _pop_loop(self, process_queue: PopProcessQueue) -> None:
        config = self._config
        while not process_queue.dropped:
            process_queue.last_pop_ms = self._clock.monotonic_ms()
            if self._is_paused() or process_queue.wait_ack > config.pop_threshold_for_queue:
                await asyncio.sleep(_HELD_BACK_SECONDS)
                continue
            try:
                await self._pop(process_queue)
            except (MaxQError, OSError) as error:
                queue = process_queue.queue
                if (left_out := self._failed_pops.admits((queue.broker_name, type(error)))) is not None:
                    log.warning("pop of %s failed: %s%s", queue, error, and_more(left_out))
                await self._api.pause(process_queue.queue, config.pull_time_delay_when_exception)
            except Exception as error:
                self._failures.report(error, "popping from %s", process_queue.queue)
                await asyncio.sleep(config.pull_time_delay_when_exception / 1000)

    async def _pop(self, process_queue: PopProcessQueue) -> None:
        queue, config = process_queue.queue, self._config
        subscription = self._subscription_of(queue.topic)
        if subscription is None:
            raise ClientError(f"{queue.topic} is not subscribed any more")
        is_first = config.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        result = await self._api.pop(
            queue, subscription,
            max_nums=config.pop_batch_nums, invisible_ms=config.pop_invisible_time,
            poll_ms=config.broker_suspend_max_time, init_mode=INIT_MIN if is_first else INIT_MAX,
        )  # fmt: skip
        if not result.messages:
            return
        process_queue.wait_ack += len(result.messages)
        ends_ms = self._clock.monotonic_ms() + config.pop_invisible_time - _MARGIN_MS
        size = config.consume_message_batch_max_size
        for start in range(0, len(result.messages), size):
            self._batches.put_nowait(_Batch(result.messages[start : start + size], process_queue, ends_ms))

    # --- consuming ---------------------------------------------------------------------------------------------------

    def _start_workers(self) -> None:
        self._workers = [
            asyncio.create_task(self._work(), name=f"maxq-consume-pop-{number}")
            for number in range(self._config.consume_thread_nums)
        ]

    async def _work(self) -> None:
        while not self._is_stopped:
            batch = await self._batches.get()
            self._busy += 1
            try:
                await self._consume(batch)
            except Exception as error:  # nothing may end the worker; the messages come again by themselves
                queue = batch.process_queue.queue
                self._failures.report(error, "finishing %d messages of %s", len(batch.messages), queue)
            finally:
                batch.process_queue.wait_ack -= len(batch.messages)
                self._busy -= 1
                if not self._busy:
                    self._idle.set()

    def _is_wanted(self, batch: _Batch) -> bool:
        return not batch.process_queue.dropped and self._clock.monotonic_ms() < batch.ends_ms

    async def _consume(self, batch: _Batch) -> None:
        started_ms = self._clock.monotonic_ms()
        if not self._is_wanted(batch):
            return
        self._mark_started(batch.messages)
        context = ConsumeContext(batch.process_queue.queue)
        result = await self._caller.call(batch.messages, context, lambda: self._is_wanted(batch))
        if result is None:
            return
        count = len(batch.messages)
        ok = context.done_of(count) if result is ConsumeResult.SUCCESS else 0
        now_ms = self._clock.monotonic_ms()
        self._stats.on_consume(batch.process_queue.queue.topic, ok, count - ok, now_ms - started_ms)
        if now_ms >= batch.ends_ms + _MARGIN_MS:
            log.warning("%d messages were consumed after their invisible time: they are delivered again", count)
            return
        await self._finish(batch, ok, context.delay_level_when_next_consume)

    async def _finish(self, batch: _Batch, ok: int, level: int) -> None:
        done, failed = batch.messages[:ok], batch.messages[ok:]
        try:
            if len(done) == 1:
                await self._api.ack(done[0])
            elif done:
                await self._api.ack_all(done)
        except (MaxQError, OSError) as error:
            log.warning("%d messages could not be acknowledged, they come again: %s", len(done), error)
        for message in failed:
            try:
                await self._give_back(message, level)
            except (MaxQError, OSError) as error:
                log.warning("message %s could not be given back: %s", message.msg_id, error)

    async def _give_back(self, message: MessageExt, level: int) -> None:
        if level == _DEAD_LETTER or message.reconsume_times >= self._most_times:
            if await self._send_back(message, _DEAD_LETTER, handle_of(message).broker_name):
                await self._api.ack(message)
            return
        place = level if level > 0 else message.reconsume_times
        await self._api.change_invisible_time(message, DELAYS[min(place, len(DELAYS) - 1)] * 1000)
