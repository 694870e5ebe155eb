"""RebalanceImpl: keeps the queues a consumer holds equal to its share, and locks them for orderly consumption.

The share itself is computed in rebalance.py; here are the questions to name server and brokers, the table of
ProcessQueues, and where a queue that is new to us starts.

Source: apache/rocketmq client/impl/consumer/{RebalanceImpl,RebalancePushImpl,RebalanceLitePullImpl}.java.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence
from typing import Protocol

from maxq.client.client_config import ConsumerConfig
from maxq.client.consumer.held.process_queue import ProcessQueue
from maxq.client.consumer.offset_store import OffsetStore
from maxq.client.instance.mq_client import MQClientInstance
from maxq.codes import ResponseCode
from maxq.errors import BrokerError, ClientError, MaxQError, NoRouteError, RemotingError
from maxq.protocol.body.consumer_info import MessageQueueAssignment
from maxq.protocol.body.route import MASTER_ID
from maxq.protocol.body.subscription import SubscriptionData
from maxq.protocol.enums import ConsumeFromWhere, MessageModel, MessageRequestMode
from maxq.protocol.message.message_queue import MessageQueue
from maxq.protocol.namespace import RETRY_PREFIX
from maxq.runtime.log_limits import LogThrottle, and_more

log = logging.getLogger(__name__)

DROP_TRIES = 20  # tries, half a second each, to let a listener call end


class RebalanceListener(Protocol):
    """The interface by which RebalanceImpl tells a consumer that its queues have changed."""

    def on_queue_added(self, queue: MessageQueue, process_queue: ProcessQueue, next_offset: int) -> None:
        """Start to pull `queue`, which this member was given, from `next_offset` on."""
        ...

    async def on_queue_removed(self, queue: MessageQueue, process_queue: ProcessQueue) -> bool:
        """Stop pulling a queue whose `process_queue` was dropped, and commit. Returns False if that is not possible
        yet: it is called again in the next round."""
        ...

    async def on_assignment_changed(
        self, topic: str, everything: Sequence[MessageQueue], mine: Collection[MessageQueue]
    ) -> None:
        """Note that queues of a topic have changed hands."""
        ...


class PopListener(Protocol):
    """The interface by which RebalanceImpl tells a consumer from which queues to pop, where its broker decides that."""

    def on_pop_queues(self, topic: str, queues: Collection[MessageQueue]) -> bool:
        """Pop from these queues of the topic, and no others. Returns True if that is a change."""
        ...


class RebalanceImpl:
    """Keeps the queues of one consumer equal to its share. Topics and group are names on the wire.

    Attributes:
        failure: why the last round did not learn this member's share of a topic; None if it did.
    """

    def __init__(
        self,
        instance: MQClientInstance,
        config: ConsumerConfig,
        group: str,
        offset_store: OffsetStore,
        listener: RebalanceListener,
        *,
        orderly: bool = False,
        pops: PopListener | None = None,
    ) -> None:
        """With `pops`, ask the broker for this member's share, and pop where the broker says so."""
        self._instance = instance
        self._config = config
        self._group = group
        self._offsets = offset_store
        self._listener = listener
        self._pops = pops
        self._orderly = orderly and config.message_model is MessageModel.CLUSTERING
        self._clock = instance.environment.clock
        self._lock = asyncio.Lock()
        self._is_closed = False
        self._failed_rounds = LogThrottle(self._clock)
        self.failure: MaxQError | None = None
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.process_queues: dict[MessageQueue, ProcessQueue] = {}

    # --- rounds ---

    @property
    def is_changing(self) -> bool:
        """Return whether a round is under way, so that only a part of this member's share may have been taken."""
        return self._lock.locked()

    async def do_rebalance(self) -> bool:
        """Make one round over all topics. Returns True if this member holds exactly its share."""
        async with self._lock:
            if self._is_closed:
                return True
            balanced = True
            before, self.failure = self.failure, None
            for topic in list(self.subscriptions):
                try:
                    balanced &= await self._rebalance_topic(topic)
                except NoRouteError:
                    # A retry topic has no route before the first heartbeat of its group; the timer comes again.
                    balanced &= topic.startswith(RETRY_PREFIX)
                except (RemotingError, BrokerError, ClientError) as error:
                    self._note_failure(topic, error, before)
                    balanced = False
            await self._drop_unsubscribed()
            return balanced

    def _note_failure(self, topic: str, error: MaxQError, before: MaxQError | None) -> None:
        """Keep the reason of a round that gave no share, and log it now and then: the next round follows in a second.

        A broker that does not know the group in a first round had no heartbeat of it yet.
        """
        self.failure = error
        if isinstance(error, BrokerError) and error.code == ResponseCode.SYSTEM_ERROR and before is None:
            log.info("group %s has no share of topic %s yet: %s", self._group, topic, error)
        elif (left_out := self._failed_rounds.admits((topic, type(error)))) is not None:
            log.warning(
                "group %s does not learn its share of topic %s, and asks again: %s%s",
                self._group, topic, error, and_more(left_out),
            )  # fmt: skip

    async def _rebalance_topic(self, topic: str) -> bool:
        everything = await self._instance.routes.subscribe_queues(topic)
        if self._pops is not None and self._config.message_model is MessageModel.CLUSTERING:
            assigned = await self._assigned_by_broker(topic)
            if assigned is None:
                return False  # the broker gave no answer: keep the present queues
            return await self._take_assigned(topic, everything, assigned, self._pops)
        if self._config.message_model is MessageModel.BROADCASTING:
            mine = everything
        else:
            if not everything:
                log.warning("topic %s of group %s has no readable queue", topic, self._group)
                return False
            members = await self._instance.find_consumer_ids(topic, self._group)
            if not members:
                return False  # no broker gave an answer: keep the present queues
            mine = self._config.allocate_strategy.allocate(
                self._group, self._instance.client_id, everything, sorted(members)
            )
        return await self._take_share(topic, everything, mine)

    async def _take_share(self, topic: str, everything: list[MessageQueue], mine: Sequence[MessageQueue]) -> bool:
        changed, complete = await self._take_and_give(topic, set(mine))
        if changed:
            held = [queue for queue in self.process_queues if queue.topic == topic]
            log.info("group %s now holds %d of %d queues of %s", self._group, len(held), len(everything), topic)
            await self._listener.on_assignment_changed(topic, everything, mine)
        return complete

    async def _assigned_by_broker(self, topic: str) -> list[MessageQueueAssignment] | None:
        """Ask a broker of the topic for this member's share. Returns None if no broker could answer."""
        instance = self._instance
        queues = await instance.routes.subscribe_queues(topic)
        served = instance.routes.first_served(queues)
        if served is None:
            return None
        ask = instance.api.query_assignment
        return await instance.ask_group(
            served, lambda broker: ask(broker.address, topic, self._group, instance.client_id)
        )

    async def _take_assigned(
        self, topic: str, everything: list[MessageQueue], assigned: list[MessageQueueAssignment], pops: PopListener
    ) -> bool:
        by_mode: dict[MessageRequestMode, list[MessageQueue]] = {mode: [] for mode in MessageRequestMode}
        for assignment in assigned:
            if assignment.message_queue is not None:
                by_mode[assignment.mode].append(assignment.message_queue)
        popped = by_mode[MessageRequestMode.POP]
        if pops.on_pop_queues(topic, popped):
            log.info("group %s pops from %d queues of %s", self._group, len(popped), topic)
            await self._listener.on_assignment_changed(topic, everything, popped)
        return await self._take_share(topic, everything, by_mode[MessageRequestMode.PULL])

    async def _take_and_give(self, topic: str, mine: set[MessageQueue]) -> tuple[bool, bool]:
        changed, complete = False, True
        now_ms = self._clock.monotonic_ms()
        given_up = []
        for queue, process_queue in list(self.process_queues.items()):
            if queue.topic != topic:
                continue
            if process_queue.is_pull_expired(now_ms) and queue in mine:
                idle_ms = now_ms - process_queue.last_pull_timestamp
                log.error("queue %s was not pulled for %d ms; it is started again", queue, idle_ms)
            elif queue in mine and not process_queue.dropped:
                # a dropped queue's listener was still busy in the last round
                continue
            process_queue.dropped = True
            given_up.append((queue, process_queue))
        for is_given_up in await asyncio.gather(*(self._give_up(*held) for held in given_up)):
            changed |= is_given_up
            complete &= is_given_up
        missing = sorted(mine - self.process_queues.keys())
        taken = await asyncio.gather(*(self._take(queue) for queue in missing))
        for queue, is_taken in zip(missing, taken, strict=True):
            changed |= is_taken
            complete &= is_taken
            if not is_taken:
                log.info("queue %s could not be taken yet", queue)
        return changed, complete

    async def _take(self, queue: MessageQueue) -> bool:
        if self._orderly and not await self.lock(queue):
            return False
        self._offsets.remove(queue)
        try:
            next_offset = await self.pull_from_where(queue)
            # A new group commits here at once, because its next member would otherwise begin where the queue ends by
            # then. The offset 0 may not be stored: brokers answer 0 as long as the first message is in memory.
            if self._offsets.in_memory(queue) <= 0 and not self._begins_at_the_start(queue):
                next_offset = await self._offsets.begin(queue, next_offset)
        except (RemotingError, BrokerError, ClientError) as error:
            self.failure = error
            if (left_out := self._failed_rounds.admits(("start", queue.topic, type(error)))) is not None:
                log.warning(
                    "the starting offset of %s is unknown, next try in the next round: %s%s",
                    queue, error, and_more(left_out),
                )  # fmt: skip
            return False
        process_queue = ProcessQueue(self._clock.monotonic_ms())
        process_queue.locked = self._orderly
        self.process_queues[queue] = process_queue
        self._listener.on_queue_added(queue, process_queue, next_offset)
        return True

    async def _give_up(self, queue: MessageQueue, process_queue: ProcessQueue) -> bool:
        process_queue.dropped = True
        if not await self._listener.on_queue_removed(queue, process_queue):
            return False
        if self.process_queues.get(queue) is process_queue:
            del self.process_queues[queue]
        if self._orderly:
            # Java waits 20 s for a listener that may still be at work; `on_queue_removed` has made sure that none is.
            process_queue.locked = False
            await self.unlock([queue], oneway=True)
        return True

    async def _drop_unsubscribed(self) -> None:
        for queue, process_queue in list(self.process_queues.items()):
            if queue.topic not in self.subscriptions:
                await self._give_up(queue, process_queue)

    async def drop(self, queue: MessageQueue) -> None:
        """Give up one queue at once. The next round takes it again if it is still in this member's share. While its
        listener is running it stays in the table as dropped, so that no round takes it before the listener has
        ended."""
        process_queue = self.process_queues.get(queue)
        if process_queue is None:
            return
        process_queue.dropped = True
        for _ in range(DROP_TRIES):
            async with self._lock:
                if self._is_closed or self.process_queues.get(queue) is not process_queue:
                    return
                if await self._give_up(queue, process_queue):
                    return
        log.warning("queue %s is given up by a later round: its listener is still at work", queue)

    async def leave_to_another(self, queue: MessageQueue, process_queue: ProcessQueue) -> bool:
        """Drop a queue if another member has continued with it, and return whether that is so. Call it when another
        member may have had the queue for a while; the queue's offset at the broker tells. Messages held here are not
        committed then, and a later round takes the queue anew if it is in this member's share."""
        try:
            committed = await self._offsets.stored(queue)
        except (RemotingError, BrokerError, ClientError) as error:
            log.warning("it is unknown whether another member of the group has consumed %s: %s", queue, error)
            return False
        if committed <= self._offsets.highest(queue):
            return False
        log.warning(
            "another member of the group has consumed %s up to %d: the queue is started again there", queue, committed
        )
        process_queue.dropped = True
        self._offsets.remove(queue)
        self._instance.rebalance_immediately()
        return True

    async def wait_for_round(self) -> None:
        """Wait for the end of a round that is under way: queues that it takes are held then."""
        async with self._lock:
            pass

    async def close(self) -> None:
        """Stop making rounds, when a shutdown begins. A round under way is completed first."""
        async with self._lock:
            self._is_closed = True

    async def destroy(self) -> None:
        """Give up all queues, at the end of a shutdown."""
        for process_queue in self.process_queues.values():
            process_queue.dropped = True
        if self._orderly:
            await self.unlock_all(oneway=False)
        self.process_queues.clear()

    # --- where to start ---

    async def pull_from_where(self, queue: MessageQueue) -> int:
        """Return the queue offset at which to start a queue that was taken.

        Raises:
            RemotingError, BrokerError, ClientError: the broker did not say; the queue must not be taken.
        """
        stored = await self._offsets.read(queue)
        if stored >= 0:
            return stored
        if (begun_at := self._offsets.in_memory(queue)) >= 0:  # this offset could not be committed yet
            return begun_at
        if self._begins_at_the_start(queue):
            return 0
        api, ask = self._instance.api, self._instance.ask_group
        if self._config.consume_from_where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            timestamp_ms = self._config.consume_timestamp or self._clock.wall_ms() - 30 * 60_000
            return await ask(queue, lambda broker: api.search_offset(broker.address, queue, timestamp_ms))
        return await ask(queue, lambda broker: api.max_offset(broker.address, queue))

    def _begins_at_the_start(self, queue: MessageQueue) -> bool:
        """Return whether a group that has no offset of a queue begins with its first message, whenever that is. Of its
        retry topic it does (Java's with CONSUME_FROM_TIMESTAMP begins at the end): all that is there has failed in the
        group, perhaps before a member knew the topic's route."""
        is_first = self._config.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        return is_first or queue.topic.startswith(RETRY_PREFIX)

    # --- locks ---

    async def lock(self, queue: MessageQueue) -> bool:
        """Lock one queue at its broker. True if this client has the lock."""
        return queue in await self._lock_at(self._instance.routes.broker_of(queue), [queue])

    async def lock_all(self) -> None:
        """Renew the locks of all queues, and mark those whose lock another client has."""
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in self.process_queues:
            by_broker.setdefault(self._instance.routes.broker_of(queue), []).append(queue)
        await asyncio.gather(*(self._lock_at(name, queues) for name, queues in by_broker.items()))

    async def wait_for_next_locks(self, limit_ms: int) -> None:
        """Wait until locks should be renewed: for `limit_ms`, or until a route changes, because a new master has no
        locks."""
        await self._instance.brokers.wait_for_change(limit_ms)

    async def _lock_at(self, broker_name: str, queues: list[MessageQueue]) -> set[MessageQueue]:
        broker = self._instance.find_broker_address_in_subscribe(broker_name, MASTER_ID, True)
        if broker is None:
            return set()
        try:
            ours = await self._instance.api.lock_batch(broker.address, self._group, self._instance.client_id, queues)
        except (RemotingError, BrokerError) as error:
            log.warning("locking queues of broker %s failed: %s", broker_name, error)
            self._instance.note_failure(broker.address, queues[0].topic, error)
            return set()
        self._instance.brokers.trust(broker.address)
        now_ms = self._clock.monotonic_ms()
        for queue in queues:
            process_queue = self.process_queues.get(queue)
            if process_queue is None:
                continue
            is_doubtful = not process_queue.locked or process_queue.is_lock_expired(now_ms)
            if queue in ours and is_doubtful and await self.leave_to_another(queue, process_queue):
                continue
            process_queue.locked = queue in ours
            if process_queue.locked:
                process_queue.last_lock_timestamp = now_ms
            else:
                log.warning("queue %s is locked by another client", queue)
        return ours

    async def unlock(self, queues: Sequence[MessageQueue], *, oneway: bool) -> None:
        """Release the locks of these queues, which all belong to one broker. Failures are logged; the broker drops
        locks after 60 s."""
        broker_name = self._instance.routes.broker_of(queues[0])
        broker = self._instance.find_broker_address_in_subscribe(broker_name, MASTER_ID, True)
        if broker is None:
            return
        try:
            await self._instance.api.unlock_batch(
                broker.address, self._group, self._instance.client_id, queues, oneway=oneway
            )
        except (RemotingError, BrokerError) as error:
            log.warning("unlocking %d queues of %s failed: %s", len(queues), queues[0].broker_name, error)

    async def unlock_all(self, *, oneway: bool) -> None:
        """Tell the brokers that this member gives up its locks on the queues which it consumes in order."""
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue, process_queue in self.process_queues.items():
            process_queue.locked = False
            by_broker.setdefault(self._instance.routes.broker_of(queue), []).append(queue)
        await asyncio.gather(*(self.unlock(queues, oneway=oneway) for queues in by_broker.values()))
