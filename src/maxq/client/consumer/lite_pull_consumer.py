"""LitePullConsumer: the application asks for messages (`poll`) and says where to read (`seek`) and what is done
(`commit`).

Either `subscribe` (queues are shared with the other members of the group, and may come and go) or `assign` (these
queues, whoever else reads them). One task per queue pulls ahead into a buffer; `poll` takes from it. Messages from
`poll` count as done when the same task (or thread, of the blocking client) calls `poll` again, and is committed by the
timer (auto_commit) or by `commit`.

Source: apache/rocketmq client/consumer/DefaultLitePullConsumer.java, client/impl/consumer/
{DefaultLitePullConsumerImpl,AssignedMessageQueue}.java.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final

from maxq.client.argument_checks import LONG_MAX, check_number, check_offsets, check_queue, queues_of
from maxq.client.client_config import ClientEnvironment, LitePullConsumerConfig
from maxq.client.consumer.held.assigned_queue import AssignedQueue
from maxq.client.consumer.held.fetch_queue_cy import Fetched
from maxq.client.consumer.held.process_queue import ProcessQueue
from maxq.client.consumer.lite_pull_buffer import FetchBuffer
from maxq.client.consumer.offset_store import RemoteBrokerOffsetStore
from maxq.client.consumer.pulling_consumer import FLOW_CONTROL_WAIT_MS, PullingConsumer
from maxq.client.consumer.rebalance_impl import RebalanceImpl
from maxq.client.errors import NotRunningError
from maxq.client.hooks import ConsumeHooks
from maxq.client.instance.client_shutdown import in_turn
from maxq.client.instance.mq_client import MQClientInstance
from maxq.client.instance.mq_client_manager import MQClientManager
from maxq.client.instance.pull_api import GoOn
from maxq.client.message_selector import MessageSelector, expression_of
from maxq.client.results.arrow_batches import arrow_polls, column_memory
from maxq.client.results.consume_result import ConsumeResult
from maxq.client.results.pull_result import PullResult, PullStatus
from maxq.client.trace.hooks import ConsumeMessageTraceHook
from maxq.client.validators import check_topic
from maxq.errors import ClientError, MaxQError
from maxq.protocol.body.consumer_info import ConsumerRunningInfo
from maxq.protocol.body.subscription import TAG, build_subscription_data
from maxq.protocol.enums import ConsumeType
from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.message_queue import MessageQueue
from maxq.protocol.namespace import unwrap, wrap
from maxq.runtime.log_limits import LogThrottle, and_more

if TYPE_CHECKING:
    import pyarrow as pa

    from maxq.arrow.columns_cy import ColumnMemory

log = logging.getLogger(__name__)

PAUSED_WAIT_MS = 100
_ROWS: Final = 8_192  # most rows of a batch of columns; further rows wait for the next one
_ROW_BYTES: Final = 8 << 20
_PULL_ROWS: Final = 4_096  # most messages of a pull whose messages stay records, …
_PULL_BYTES: Final = 4 << 20  # … and most bytes: what a pull costs is divided among its rows
_THRESHOLDS: Final = 4  # such a pull asks for at most this many times pull_threshold_for_queue
_ENOUGH_ROWS: Final = 4_096  # rows from which on a larger batch is hardly cheaper for each row
LINGER_MS: Final = 5
_NO_TIMEOUT_MS = 1 << 62  # timeout that hooks are told, because a poll has none


class MessageIterator:
    """The messages of a lite pull consumer, one after the other; see `LitePullConsumer.__aiter__`."""

    def __init__(self, consumer: "LitePullConsumer") -> None:
        self._consumer = consumer

    def __aiter__(self) -> "MessageIterator":
        return self

    async def __anext__(self) -> MessageExt:
        owner, consumer = asyncio.current_task(), self._consumer
        found = consumer.poll_at_once(owner, is_alone=True, is_one=True)
        while not found:
            try:
                found = await consumer.poll_for(owner, is_one=True)
            except NotRunningError:
                raise StopAsyncIteration from None
        return found[0]


def _commit_nothing() -> int:
    """Return the queue offset that a pull commits: none, because this consumer commits by requests of their own."""
    return 0


class LitePullConsumer(PullingConsumer[LitePullConsumerConfig]):
    """A pulling member of a consumer group.

    Args:
        config: settings; `consumer_group` and `namesrv_addr` at least.
        environment: the clock, disk, chance and address that the client uses.
        manager: shares connections with other clients of the loop that have the same instance name.
    """

    consume_type = ConsumeType.CONSUME_ACTIVELY

    def __init__(
        self, config: LitePullConsumerConfig, environment: ClientEnvironment, *, manager: MQClientManager | None = None
    ) -> None:
        super().__init__(config, environment, manager)
        self._manual: set[MessageQueue] | None = None  # queues given to `assign`; None: the group divides the queues
        self._assigned: dict[MessageQueue, AssignedQueue] = {}
        self._given_up: set[MessageQueue] = set()  # queues that went to other members since the start
        self._buffer = FetchBuffer()
        self._column_memory: ColumnMemory | None = None  # made by the first `poll_arrow`
        self._next_auto_commit_ms = 0
        self._wrong_use = LogThrottle(environment.clock)  # limits how often wrong use is logged
        traces = () if self._trace is None else (ConsumeMessageTraceHook(self._trace),)
        self._hooks = ConsumeHooks(traces, self.group, config.namespace, self._clock, _NO_TIMEOUT_MS)

    # --- life ---

    async def start(self) -> None:
        """Join the group.

        Raises:
            ClientError: already started, or no name server given.
            NoRouteError, RemotingError, BrokerError: an assigned queue cannot be read, or a broker does not select by
                SQL92; the group was left again.
        """
        async with self._ending.starting():
            if self._instance is None:
                self._buffer = FetchBuffer()  # a new one, which belongs to this event loop
            instance = await self._join()
            self._next_auto_commit_ms = self._clock.monotonic_ms() + self._config.auto_commit_interval
            try:
                if self._wanted:
                    await self._check_expressions(instance, list(self._wanted.values()))
                    await self._announce()
                if self._manual is not None:
                    await self._assign_now(self._manual)
            except BaseException:
                await self._ending.complete(self._shut_down)
                raise

    def _build(self, instance: MQClientInstance) -> None:
        self._rebalance = RebalanceImpl(instance, self._config, self.group, self._offsets, self)

    async def shutdown(self, *, is_finished: bool = True) -> None:
        """Leave the group; with auto_commit, finished messages are committed first. If the caller is cancelled, the
        shutdown is still completed, and then the cancellation is raised; a second call waits for the first. The
        consumer may be started again.

        Args:
            is_finished: the messages of the last poll are done, and are committed. False where `async with` is left
                by an exception: those messages come again.
        """
        if not is_finished:
            self._buffer.given_out.clear()
        await self._ending.run(self._shut_down)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown(is_finished=kind is None)

    async def _shut_down(self) -> None:
        instance = self._instance
        if instance is None:
            return
        await in_turn(
            self._rebalance.close,
            self._stop_pulling,
            self._commit_what_is_done,
            self._rebalance.destroy,
            lambda: self._quit(instance),
        )

    async def _stop_pulling(self) -> None:
        tasks = [assigned.task for assigned in self._assigned.values() if assigned.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _commit_what_is_done(self) -> None:
        given_out = self._buffer.given_out
        for owner in list(given_out):
            if not self._has_failed(owner):
                self._finish(owner)
        given_out.clear()
        self._remove_done()
        if self._config.auto_commit:
            self._commit_to_memory()
        self._instance = None
        held = list(self._assigned)
        self._assigned.clear()
        self._column_memory = None
        self._given_up.clear()
        self._buffer.drop_all()  # wakes whoever waits for messages
        await self._offsets.persist_all(held, certain=True)

    # --- what to read ---

    async def subscribe(self, topic: str, expression: str | MessageSelector = "*", expression_type: str = TAG) -> None:
        """Share a topic's queues with the other members of the group.

        Args:
            expression: as PushConsumer.subscribe takes it.

        Raises:
            ClientError: illegal topic, or queues were assigned before.
            FilterExpressionError: an SQL92 expression that is wrong.
            BrokerError: the consumer runs, and its broker does not select by SQL92.
        """
        check_topic(topic)
        if self._manual is not None:
            raise ClientError(f"subscribe and assign exclude each other; group {self.group} was assigned queues before")
        wire = wrap(self._config.namespace, topic)
        await self._want(
            build_subscription_data(
                wire, *expression_of(expression, expression_type), sub_version=self._clock.wall_ms()
            )
        )

    async def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from a topic, and give up its queues."""
        wire = wrap(self._config.namespace, topic)
        self._wanted.pop(wire, None)
        if self._instance is not None:
            await self._announce()
            await self._rebalance_round()

    async def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read exactly these queues.

        Raises:
            ClientError: topics were subscribed before.
        """
        if self._wanted:
            raise ClientError(f"subscribe and assign exclude each other; group {self.group} has subscribed before")
        self._manual = {self._on_wire(queue) for queue in queues_of(queues)}
        if self._instance is not None:
            await self._assign_now(self._manual)

    async def _assign_now(self, queues: set[MessageQueue]) -> None:
        instance = self._running()
        for queue in list(self._assigned):
            if queue not in queues:
                await self._stop(queue)
        for topic in sorted({queue.topic for queue in queues}):
            await instance.routes.update_route(topic)
        await instance.heartbeat_all()
        for queue in sorted(queues - self._assigned.keys()):
            offset = await self._rebalance.pull_from_where(queue)
            if self._running() is not instance:
                raise NotRunningError(f"consumer of group {self.group} was shut down and started again meanwhile")
            if self._manual is not None and queue in self._manual and queue not in self._assigned:
                self._begin(queue, ProcessQueue(self._clock.monotonic_ms()), offset)
        self._look_at_assignment()

    def assignment(self) -> set[MessageQueue]:
        """Return the queues that this consumer reads."""
        return self._held_queues()

    def _held_queues(self) -> set[MessageQueue]:
        return {self._for_the_user(queue) for queue in self._assigned}

    async def fetch_message_queues(self, topic: str) -> list[MessageQueue]:
        """Return all readable queues of a topic, sorted. Raises NoRouteError if there is no such topic."""
        check_topic(topic)
        queues = await self._running().routes.subscribe_queues(wrap(self._config.namespace, topic))
        return [self._for_the_user(queue) for queue in queues]

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Give out no messages of these queues until they are resumed."""
        for assigned in self._find(queues):
            assigned.paused = True

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Let `poll` return messages of these queues again, after `pause`."""
        for assigned in self._find(queues):
            assigned.paused = False
        self._buffer.wake()

    def _find(self, queues: Iterable[MessageQueue]) -> list[AssignedQueue]:
        return [self._assigned[wire] for queue in queues_of(queues) if (wire := self._on_wire(queue)) in self._assigned]

    # --- poll ---

    async def poll(self, timeout_ms: int | None = None) -> list[MessageExt]:
        """Return the next messages of one queue, in order. The messages of this task's last poll count as done. Several
        tasks may poll: what each got is done when it polls again, or has returned.

        Args:
            timeout_ms: how long to wait for some; None: poll_timeout. 0: what is there.

        Returns:
            Messages of one pull, at most pull_batch_size of them; empty if nothing came in time.
        """
        owner = asyncio.current_task()
        check_number("timeout_ms", timeout_ms)
        found = self.poll_at_once(owner, is_alone=True)
        return await self.poll_for(owner, timeout_ms) if found is None else found

    def __aiter__(self) -> "MessageIterator":
        """Iterate over the messages as they come: `async for message in consumer`. Each counts as done when the same
        task asks for the next one, polls or commits. A message that was not given out stays for the next iteration or
        poll. Ends when the consumer is shut down.

        Raises:
            NotRunningError: the consumer does not run.
        """
        self._running()
        return MessageIterator(self)

    def poll_at_once(self, owner: object, *, is_alone: bool = False, is_one: bool = False) -> list[MessageExt] | None:
        """Poll for `owner` if that needs nothing but to take what is here. Any thread may call this where the queue is
        compiled.

        Args:
            is_alone: only if nobody else has something of an earlier poll.
            is_one: take one message alone.

        Returns:
            None: call `poll_for`.
        """
        if self._instance is None or self._hooks or self._clock.monotonic_ms() >= self._next_auto_commit_ms:
            return None
        return self._buffer.hand_out(owner, is_alone, is_one)

    async def poll_for(self, owner: object, timeout_ms: int | None = None, *, is_one: bool = False) -> list[MessageExt]:
        """Poll as `poll` does for one of several pollers, such as a thread: what `owner` got last counts as done. With
        `is_one`, take one message alone."""

        def take() -> list[Fetched]:
            fetched = self._buffer.take(self._config.pull_batch_size, is_one)
            return [] if fetched is None else [fetched]

        self._buffer.keeps_records = False
        for fetched in await self._poll_with(take, owner, timeout_ms):
            assert isinstance(fetched.messages, list), "the buffer makes messages of records"
            return list(fetched.messages)  # a copy, because the caller may change it
        return []

    async def poll_arrow(
        self,
        timeout_ms: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        linger_ms: int = LINGER_MS,
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
        make = self.arrow_polls(columns)
        owner = asyncio.current_task()
        before = self.given_out_to(owner)
        try:
            batch = make(await self.poll_records_for(owner, timeout_ms, linger_ms))
            await self.keep_first(owner, batch.num_rows)
            return batch
        except BaseException:
            self.take_back(owner, unless=before)
            raise

    def arrow_polls(self, columns: Sequence[str] | None) -> "Callable[[Iterable[Fetched]], pa.RecordBatch]":
        """Return what makes the batch of what `poll_records_for` returned. Raises as `poll_arrow`."""
        if self._column_memory is None:
            self._column_memory = column_memory()
        return arrow_polls(columns, self._config.namespace, self._column_memory)

    async def poll_records_for(self, owner: object, timeout_ms: int | None, linger_ms: int) -> list[Fetched]:
        """Poll as `poll_arrow` does for one of several pollers; the columns are still to be made. Until somebody calls
        `poll`, pulls are kept as records."""

        def take() -> list[Fetched]:
            return self._buffer.take_records(_ROWS, _ROW_BYTES)

        check_number("linger_ms", linger_ms)
        self._buffer.keeps_records = not self._hooks  # hooks want to see messages, not records
        return await self._poll_with(take, owner, timeout_ms, linger_ms)

    async def _poll_with(
        self, take: Callable[[], list[Fetched]], owner: object, timeout_ms: int | None, linger_ms: int = 0
    ) -> list[Fetched]:
        self._running()
        check_number("timeout_ms", timeout_ms)
        is_aimless = not self._wanted and self._manual is None
        if is_aimless and (left_out := self._wrong_use.admits("aimless")) is not None:
            more = and_more(left_out)
            log.warning("group %s polls, and nothing is subscribed or assigned: subscribe first%s", self.group, more)
        self._finish_for(owner)
        self._auto_commit()
        wait_ms = self._config.poll_timeout if timeout_ms is None else timeout_ms
        deadline_ms = self._clock.monotonic_ms() + wait_ms
        if linger_ms and self._buffer.message_count:
            await self._linger(deadline_ms, linger_ms)
        while not (found := take()):
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0 or not await self._buffer.wait(left_ms / 1000):
                return []
            await self._linger(deadline_ms, linger_ms)
            self._running()
        self._buffer.given_out[owner] = found
        for fetched in found if self._hooks else ():
            assert isinstance(fetched.messages, list), "what hooks want to see is not kept as records"
            hooked = self._hooks.before(fetched.messages, fetched.assigned.queue)
            # it is not known what the application does with them, so for hooks they are consumed here
            if hooked is not None:
                self._hooks.after(hooked, ConsumeResult.SUCCESS, raised=False)
        return found

    async def _linger(self, deadline_ms: int, linger_ms: int) -> None:
        wait_ms = min(linger_ms, deadline_ms - self._clock.monotonic_ms())
        if wait_ms > 0:
            await self._buffer.gather(_ENOUGH_ROWS, wait_ms / 1000)

    def given_out_to(self, owner: object) -> list[Fetched] | None:
        """Return what the last poll of `owner` returned, if it is not done yet. Any thread may call this."""
        return self._buffer.given_out.get(owner)

    async def keep_first(self, owner: object, count: int) -> None:
        """Leave to the next poll what the last one returned to `owner` behind the first `count` messages."""
        if self._buffer.keep_first(owner, count):
            self._buffer.wake()

    def take_back(self, owner: object, *, unless: list[Fetched] | None) -> None:
        """Make the next poll return again what the last one returned to `owner`, which was interrupted before it could
        use it. The messages that `owner` had before (`unless`) stay with it, or are done."""
        if self._buffer.take_back(owner, unless):
            self._buffer.wake()

    def _finish_for(self, owner: object) -> None:
        """Count as done what `owner` got last, and what tasks got that have ended since (`asyncio.wait_for` makes a
        task of each poll). The messages of a failed task are not done: they are delivered again after a restart or to
        another member. The same holds for what an ended thread got, because how it ended is unknown."""
        ended = 0
        for other in list(self._buffer.given_out):
            if other is owner:
                self._finish(other)
            elif isinstance(other, threading.Thread):
                ended += not other.is_alive()
            elif isinstance(other, asyncio.Task) and other.done():
                if self._has_failed(other):
                    del self._buffer.given_out[other]
                else:
                    self._finish(other)
        self._remove_done()
        if ended and (left_out := self._wrong_use.admits("ended threads")) is not None:
            log.error(
                "%d threads of group %s have ended after a poll: their messages are not consumed, and a queue with %d "
                "such messages (pull_threshold_for_queue) gives no more; call commit() in a thread before it ends, or "
                "poll again%s",
                ended, self.group, self._config.pull_threshold_for_queue, and_more(left_out),
            )  # fmt: skip

    def _has_failed(self, owner: object) -> bool:
        """Return whether `owner` is a task that ended by an exception or was cancelled: what it got last is not
        done."""
        if not (isinstance(owner, asyncio.Task) and owner.done()):
            return False
        why = None if owner.cancelled() else owner.exception()
        if why is None and not owner.cancelled():
            return False
        log.error("a task of group %s ended before it had handled its messages", self.group, exc_info=why)
        return True

    def _finish(self, owner: object) -> None:
        """Note that what `owner` got last is done; `_remove_done` does the rest."""
        given_out = self._buffer.given_out.pop(owner, None)
        if given_out is not None:
            self._buffer.finished.extend(given_out)

    def _remove_done(self) -> None:
        """Remove what is done from the queues' messages, so that it can be committed and more be pulled."""
        if not self._buffer.finished:
            return
        now_ms = self._clock.monotonic_ms()
        for done in self._buffer.take_finished():
            if done.is_current:
                offset = done.assigned.process_queue.remove_messages(done.messages, now_ms)
                if offset >= 0:
                    done.assigned.consume_offset = offset

    # --- commit ---

    def _auto_commit(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if self._config.auto_commit and now_ms >= self._next_auto_commit_ms:
            self._next_auto_commit_ms = now_ms + self._config.auto_commit_interval
            self._commit_to_memory()

    def _commit_to_memory(self) -> None:
        self._remove_done()
        for queue, assigned in self._assigned.items():
            if assigned.consume_offset >= 0:
                self._offsets.update(queue, assigned.consume_offset, increase_only=False)

    async def commit(self, offsets: dict[MessageQueue, int] | None = None) -> None:
        """Commit the given queue offsets, or everything that `poll` has returned to this task, and to others who have
        finished with it.

        Raises:
            RemotingError, BrokerError, ClientError: an offset is not committed; those of other queues are. ClientError,
                if a queue is no longer this consumer's: its new owner's offset would be moved back.
        """
        await self.commit_for(asyncio.current_task(), offsets)

    async def commit_for(self, owner: object, offsets: dict[MessageQueue, int] | None = None) -> None:
        """Commit as `commit` does for one of several pollers; see `poll_for`."""
        self._running()
        if offsets is None:
            self._finish_for(owner)  # counts what this poller was given as finished
            table = {
                queue: assigned.consume_offset
                for queue, assigned in self._assigned.items()
                if assigned.consume_offset >= 0
            }
        else:
            check_offsets(offsets)
            table = {self._on_wire(queue): offset for queue, offset in offsets.items()}
        failure: MaxQError | None = None
        for queue, offset in sorted(table.items()):
            if queue in self._given_up:
                text = f"cannot commit {offset}: {queue} is no longer assigned to this consumer"
                failure = failure or ClientError(text)
                continue
            self._offsets.update(queue, offset, increase_only=False)
            if isinstance(self._offsets, RemoteBrokerOffsetStore):
                try:
                    await self._offsets.commit(queue, offset, oneway=False, if_ahead=False)
                except MaxQError as error:
                    failure = failure or error
        if not isinstance(self._offsets, RemoteBrokerOffsetStore):
            await self._offsets.persist_all(list(table))
        if failure is not None:
            raise failure

    async def committed(self, queue: MessageQueue) -> int:
        """Return the group's committed queue offset of a queue, -1 if there is none."""
        self._running()
        wire = self._on_wire(queue)
        known = self._offsets.in_memory(wire)
        return known if known >= 0 else await self._offsets.stored(wire)

    # --- seek ---

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Read `queue` from `offset` on.

        Raises:
            ClientError: the queue is not ours, or the offset is outside of it; names the range.
        """
        self._running()
        check_number("offset", offset, high=LONG_MAX)
        wire = self._on_wire(queue)
        if wire not in self._assigned:
            raise ClientError(f"cannot seek: {queue} is not assigned to this member of group {self.group}")
        low, high = await self._min_offset(wire), await self._max_offset(wire)
        if not low <= offset <= high:
            raise ClientError(f"cannot seek to {offset} of {queue}: its offsets go from {low} to {high}")
        self._seek(wire, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Read `queue` from its oldest message on."""
        await self.seek(queue, await self._min_offset(self._on_wire(queue)))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Read only messages that arrive in `queue` after this call."""
        await self.seek(queue, await self._max_offset(self._on_wire(queue)))

    def _seek(self, queue: MessageQueue, offset: int) -> None:
        self._remove_done()
        assigned = self._assigned.get(queue)
        if assigned is None:
            raise ClientError(f"cannot seek: {queue} was given to another member of group {self.group} meanwhile")
        assigned.generation += 1
        assigned.process_queue.clear()
        assigned.pull_offset = assigned.consume_offset = offset
        if assigned.task is not None:
            assigned.task.cancel()  # it may be waiting at the broker for the old offset
        self._start_task(assigned)

    async def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the queue offset of the first message stored at or after a time, in ms since 1970."""
        check_number("timestamp_ms", timestamp_ms, high=LONG_MAX)
        wire = self._on_wire(queue)
        instance = self._running()
        search = instance.api.search_offset
        return await instance.ask_group(wire, lambda broker: search(broker.address, wire, timestamp_ms))

    async def _min_offset(self, queue: MessageQueue) -> int:
        instance = self._running()
        return await instance.ask_group(queue, lambda broker: instance.api.min_offset(broker.address, queue))

    async def _max_offset(self, queue: MessageQueue) -> int:
        instance = self._running()
        return await instance.ask_group(queue, lambda broker: instance.api.max_offset(broker.address, queue))

    # --- for the instance ---

    def topics(self) -> set[str]:
        return {*self._wanted, *(queue.topic for queue in self._manual or ())}

    async def do_rebalance(self) -> bool:
        if self._instance is None or not self._wanted:
            return True
        return await self._rebalance_round()

    async def persist_consumer_offset(self) -> None:
        if self._instance is not None:
            await self._offsets.persist_all(list(self._assigned))

    # --- operators ---

    async def reset_offset(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        """Continue at these offsets, by order of a broker (RESET_CONSUMER_CLIENT_OFFSET)."""
        await self._rebalance.wait_for_round()
        for queue, offset in offsets.items():
            if queue.topic == topic and queue in self._assigned:
                # otherwise the timer would commit the offset from before the reset
                self._offsets.update(queue, offset, increase_only=False)
                self._seek(queue, offset)

    def running_info(self) -> ConsumerRunningInfo:
        """Return this consumer's state for tools (GET_CONSUMER_RUNNING_INFO)."""
        self._remove_done()
        held = {queue: assigned.process_queue for queue, assigned in self._assigned.items()}
        return self._running_info_of(held)

    # --- for the rebalance ---

    def on_queue_added(self, queue: MessageQueue, process_queue: ProcessQueue, next_offset: int) -> None:
        self._begin(queue, process_queue, next_offset)

    async def on_queue_removed(self, queue: MessageQueue, process_queue: ProcessQueue) -> bool:
        self._given_up.add(queue)
        await self._stop(queue)
        return True

    async def on_assignment_changed(
        self, topic: str, everything: Sequence[MessageQueue], mine: Collection[MessageQueue]
    ) -> None:
        await self._renew_subscription(topic)
        if self._config.message_queue_listener is not None:
            self._config.message_queue_listener(
                unwrap(self._config.namespace, topic),
                [self._for_the_user(queue) for queue in everything],
                sorted(self._for_the_user(queue) for queue in mine),
            )

    def _begin(self, queue: MessageQueue, process_queue: ProcessQueue, offset: int) -> None:
        assigned = AssignedQueue(queue, process_queue, offset)
        self._assigned[queue] = assigned
        self._given_up.discard(queue)
        self._start_task(assigned)

    def _start_task(self, assigned: AssignedQueue) -> None:
        name = f"maxq-lite-pull-{assigned.queue.topic}-{assigned.queue.queue_id}"
        assigned.task = asyncio.create_task(self._pull_loop(assigned, assigned.generation), name=name)

    async def _stop(self, queue: MessageQueue) -> None:
        self._remove_done()
        assigned = self._assigned.pop(queue, None)
        if assigned is None:
            return
        assigned.process_queue.dropped = True
        if assigned.task is not None:
            assigned.task.cancel()
        if assigned.consume_offset >= 0 and self._config.auto_commit:
            self._offsets.update(queue, assigned.consume_offset, increase_only=False)
        await self._offsets.persist(queue, certain=True)
        self._offsets.remove(queue)
        self._pull_api.forget(queue)

    # --- pulling ---

    async def _pull_loop(self, assigned: AssignedQueue, generation: int) -> None:
        held = assigned.process_queue

        async def pull(go_on: GoOn) -> PullResult | None:
            result = await self._pull(assigned, go_on)
            if result is None:
                return None
            now_ms = self._clock.monotonic_ms()
            if self._shares_queues and held.may_be_anothers(now_ms):
                await self._go_where_another_is(assigned)
            held.last_answer_timestamp = now_ms
            return result

        def take_found(result: PullResult) -> bool:
            self._take(assigned, result)
            is_same = assigned.keeps_records == self._buffer.keeps_records
            return is_same and self._rebalance.subscriptions.get(assigned.queue.topic) is assigned.subscription

        async def take(result: PullResult) -> None:
            self._take(assigned, result)

        await self._pull_until_given_up(
            assigned.queue,
            held,
            is_held=lambda: assigned.generation == generation and not held.dropped,
            hold_back_ms=partial(self._hold_back_ms, assigned),
            pull=pull,
            take_found=take_found,
            take=take,
        )

    @property
    def _shares_queues(self) -> bool:
        return self._manual is None and not self._broadcasting

    async def _go_where_another_is(self, assigned: AssignedQueue) -> None:
        """Continue at the offset that another member has committed, if it took the queue over while this member could
        not reach the queue's broker."""
        queue = assigned.queue
        if await self._offsets.stored(queue) <= self._offsets.highest(queue):
            return
        committed = await self._offsets.read(queue)
        if committed >= 0:
            log.warning("another member of the group has consumed %s up to %d: continuing there", queue, committed)
            self._seek(queue, committed)

    def _hold_back_ms(self, assigned: AssignedQueue) -> int:
        if assigned.paused:
            return PAUSED_WAIT_MS
        self._remove_done()
        config, held = self._config, assigned.process_queue
        too_much = (
            self._buffer.message_count > config.pull_threshold_for_all
            or held.message_count > config.pull_threshold_for_queue
            or held.message_size > config.pull_threshold_size_for_queue << 20
            or held.max_span() > config.consume_max_span
        )
        return FLOW_CONTROL_WAIT_MS if too_much else 0

    async def _pull(self, assigned: AssignedQueue, go_on: GoOn) -> PullResult | None:
        config = self._config
        assigned.keeps_records = self._buffer.keeps_records
        most, size = config.pull_batch_size, config.max_msg_bytes
        if assigned.keeps_records:
            most = max(most, min(_THRESHOLDS * config.pull_threshold_for_queue, _PULL_ROWS))
            size = max(size, min(config.pull_threshold_size_for_queue << 20, _PULL_BYTES))
        assigned.subscription = subscription = self._rebalance.subscriptions.get(assigned.queue.topic)
        if subscription is None:
            subscription = build_subscription_data(assigned.queue.topic, "*")
        return await self._pull_api.pull(
            assigned.queue,
            subscription,
            assigned.pull_offset,
            max_nums=most,
            max_msg_bytes=size,
            commit_offset=_commit_nothing,
            suspend_ms=config.broker_suspend_max_time,
            timeout_ms=config.consumer_timeout_when_suspend,
            send_expression=True,
            lite=True,
            keeps_records=assigned.keeps_records,
            bulk_nums=0 if assigned.keeps_records else self._bulk_nums(config.pull_threshold_for_queue),
            go_on=go_on,
        )

    def _take(self, assigned: AssignedQueue, result: PullResult) -> None:
        if result.status is PullStatus.OFFSET_ILLEGAL:
            self._moved_offsets.tell(assigned.queue, assigned.pull_offset, result.next_begin_offset)
            self._move(assigned, result.next_begin_offset)
            return
        assigned.pull_offset = result.next_begin_offset
        found = result.records or result.messages
        if not found:
            return
        assigned.process_queue.put_messages(found, result.max_offset)
        size = self._config.pull_batch_size
        if not isinstance(found, list) or len(found) <= size:
            self._buffer.put(Fetched(assigned, assigned.generation, found))
            return
        for first in range(0, len(found), size):
            self._buffer.put(Fetched(assigned, assigned.generation, found[first : first + size]))

    def _move(self, assigned: AssignedQueue, offset: int) -> None:
        """Continue at the broker's offset. Messages that were pulled and that the broker no longer has are still
        delivered. But if the queue now ends before the read position, new messages get those queue offsets, and no
        offset of the old ones is committed."""
        held = assigned.process_queue
        if offset >= assigned.pull_offset and held.message_count:
            assigned.pull_offset = offset
            held.queue_offset_max = max(held.queue_offset_max, offset - 1)
            return
        self._offsets.update(assigned.queue, offset, increase_only=False)
        self._seek(assigned.queue, offset)

    # --- names ---

    def _on_wire(self, queue: MessageQueue) -> MessageQueue:
        check_queue(queue)
        namespace = self._config.namespace
        return replace(queue, topic=wrap(namespace, queue.topic)) if namespace else queue

    def _for_the_user(self, queue: MessageQueue) -> MessageQueue:
        namespace = self._config.namespace
        return replace(queue, topic=unwrap(namespace, queue.topic)) if namespace else queue
