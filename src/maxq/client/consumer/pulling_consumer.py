"""PullingConsumer: what push and lite pull consumers have in common, which hold queues and pull from each.

Every queue that is held has a task, which pulls until the queue is given up (`_pull_until_given_up`). It holds back
while too much is here already, and tries again after a moment whatever goes wrong.

Source: apache/rocketmq what client/impl/consumer/{DefaultMQPushConsumerImpl,DefaultLitePullConsumerImpl}.java repeat of
each other.
"""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from typing import TypeVar

from maxq.client.argument_checks import check_number
from maxq.client.client_config import ClientEnvironment, ConsumerConfig
from maxq.client.consumer.group_consumer import GroupConsumer
from maxq.client.consumer.held.process_queue import SILENCE_MAX_MS, ProcessQueue
from maxq.client.consumer.rebalance_impl import RebalanceImpl
from maxq.client.instance.mq_client import MQClientInstance
from maxq.client.instance.mq_client_manager import MQClientManager
from maxq.client.instance.pull_api import GoOn
from maxq.client.results.pull_result import PullResult
from maxq.codes import CURRENT_VERSION, ResponseCode
from maxq.errors import BrokerError, MaxQError, RemoteProtocolError
from maxq.protocol.body.consumer_info import ConsumerRunningInfo
from maxq.protocol.message.message_queue import MessageQueue
from maxq.runtime.log_limits import LogThrottle, and_more

log = logging.getLogger(__name__)

FLOW_CONTROL_WAIT_MS = 10  # Java waits 50; the check costs nothing here
BROKER_FLOW_CONTROL_WAIT_MS = 20  # after FLOW_CONTROL 215
_BULK = 8  # so many times pull_batch_size is asked for at once where a queue has many more messages, and …
_PARTS = 4  # … at most this fraction of the messages that may be unfinished
_UNKNOWN_TO_BROKER = (ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST)

Config = TypeVar("Config", bound=ConsumerConfig)


class PullingConsumer(GroupConsumer[Config]):
    """A member of a consumer group that pulls from the queues it holds."""

    def __init__(self, config: Config, environment: ClientEnvironment, manager: MQClientManager | None) -> None:
        super().__init__(config, environment, manager)
        self._rebalance: RebalanceImpl
        self._failed_pulls = LogThrottle(environment.clock)  # each queue tries again every few seconds
        self._moved_offsets = MovedOffsets(self.group)
        self._assignment_waiters: set[asyncio.Future[None]] = set()

    # --- subscriptions ---

    def _pull_what_is_wanted(self, instance: MQClientInstance) -> None:
        self._rebalance.subscriptions = dict(self._wanted)
        instance.rebalance_immediately()

    async def _renew_subscription(self, topic: str) -> None:
        """Announce a newer version of the subscription to brokers, as Java does when queues have changed hands."""
        wanted = self._wanted.get(topic)
        if wanted is not None and self._instance is not None:
            self._wanted[topic] = replace(wanted, sub_version=self._clock.wall_ms())
            await self._instance.heartbeat_all()
            if (wanted := self._wanted.get(topic)) is not None:  # it may have been unsubscribed meanwhile
                self._rebalance.subscriptions[topic] = wanted

    # --- assignment ---

    @abstractmethod
    def _held_queues(self) -> Collection[MessageQueue]:
        """Return the queues that this consumer holds, as its user names them."""

    async def wait_for_assignment(
        self, is_enough: Callable[[Collection[MessageQueue]], bool] = bool, *, timeout_ms: int | None = None
    ) -> Collection[MessageQueue]:
        """Wait until this consumer holds queues.

        Args:
            is_enough: called with the queues that are held, at once and after each rebalance; True ends the wait. By
                default any queue is enough.
            timeout_ms: how long to wait; None: for ever.

        Returns:
            The queues that are held.

        Raises:
            NotRunningError: the consumer does not run, or was shut down meanwhile.
            TimeoutError: it was not enough in time. It names the reason if servers refuse this member, or do not
                answer.
        """
        check_number("timeout_ms", timeout_ms)
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                return await self._wait_until_enough(is_enough)
        except TimeoutError as error:
            reason = self._rebalance.failure
            why = f": {reason}" if reason is not None else ""
            raise TimeoutError(f"group {self.group} does not hold enough queues after {timeout_ms} ms{why}") from error

    async def _wait_until_enough(
        self, is_enough: Callable[[Collection[MessageQueue]], bool]
    ) -> Collection[MessageQueue]:
        while True:
            self._running()
            held = self._held_queues()
            if not self._rebalance.is_changing and is_enough(held):
                return held
            waiter = asyncio.get_running_loop().create_future()
            self._assignment_waiters.add(waiter)
            try:
                await waiter
            finally:
                self._assignment_waiters.discard(waiter)

    async def _rebalance_round(self) -> bool:
        """Take and give up queues. Returns True if this member holds exactly its share."""
        try:
            return await self._rebalance.do_rebalance()
        finally:
            self._look_at_assignment()

    def _look_at_assignment(self) -> None:
        """Wake the tasks that wait for an assignment."""
        for waiter in self._assignment_waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _quit(self, instance: MQClientInstance) -> None:
        self._look_at_assignment()
        await super()._quit(instance)

    # --- pulling ---

    async def _pull_until_given_up(
        self,
        queue: MessageQueue,
        process_queue: ProcessQueue,
        *,
        is_held: Callable[[], bool],
        hold_back_ms: Callable[[], int],
        pull: Callable[[GoOn], Awaitable[PullResult | None]],
        take_found: Callable[[PullResult], bool | None],
        take: Callable[[PullResult], Awaitable[None]],
        after_standstill: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """Pull from one queue for as long as this consumer holds it.

        Args:
            is_held: False ends it.
            hold_back_ms: how long to wait before the next pull is considered, in ms; 0: pull.
            pull: one pull, or several as PullAPIWrapper.pull makes them; None: there is nothing to take, pull again.
            take_found: gets the result of a pull that found something, unless another member may have the queue.
                Returns whether the same may be asked for again at once; None: it was not taken.
            take: is called with the result of the last pull.
            after_standstill: called when this process stood still for so long that another member may have the queue.
        """
        failure: Exception | None = None

        def go_on(result: PullResult) -> bool | None:
            nonlocal failure
            if not is_held():
                return False
            now_ms = self._clock.monotonic_ms()
            if process_queue.may_be_anothers(now_ms):
                return None
            try:
                is_to_go_on = take_found(result)
            except Exception as error:
                failure = error
                return False
            if is_to_go_on is not None:
                process_queue.last_answer_timestamp = process_queue.last_pull_timestamp = now_ms
            return is_to_go_on and is_held() and hold_back_ms() == 0

        while is_held():
            now_ms = self._clock.monotonic_ms()
            silence_ms, process_queue.last_pull_timestamp = now_ms - process_queue.last_pull_timestamp, now_ms
            if silence_ms > SILENCE_MAX_MS and after_standstill is not None:
                await after_standstill()
                continue
            wait_ms = hold_back_ms()
            if wait_ms:
                await asyncio.sleep(wait_ms / 1000)
                continue
            try:
                result = await pull(go_on)
            except (MaxQError, OSError) as error:
                await self._pull_failed(queue, error)
                continue
            except Exception as error:
                self.failures.report(error, "pulling %s", queue)
                await asyncio.sleep(self._config.pull_time_delay_when_exception / 1000)
                continue
            if result is not None and is_held():
                try:
                    await take(result)
                except Exception as error:
                    failure = error
            if failure is not None:  # it is unknown how much of the result was used: a rebalance sets the queue up anew
                self.failures.report(failure, "taking what was pulled from %s", queue)
                return

    def _bulk_nums(self, most: int) -> int:
        """Return how many messages a pull of a queue that has many more asks for where `most` may be unfinished; 0: as
        many as other pulls do."""
        usual = self._config.pull_batch_size
        bulk = min(_BULK * usual, most // _PARTS)
        return bulk if bulk > usual else 0

    async def _pull_failed(self, queue: MessageQueue, error: MaxQError | OSError) -> None:
        """Log why a pull failed, and wait before the next one; another broker of the group may end the wait."""
        wait_ms = self._config.pull_time_delay_when_exception
        if isinstance(error, BrokerError) and error.code == ResponseCode.FLOW_CONTROL:
            wait_ms = BROKER_FLOW_CONTROL_WAIT_MS
        elif isinstance(error, BrokerError) and error.code in _UNKNOWN_TO_BROKER and self._instance is not None:
            log.info("the broker of %s does not know this consumer's subscription; it is sent again: %s", queue, error)
            self._instance.heartbeat_soon()
        elif (left_out := self._failed_pulls.admits((queue.broker_name, type(error)))) is None:
            pass  # the same was logged of another queue of this broker a moment ago
        elif isinstance(error, RemoteProtocolError):
            log.error("the answer to a pull of %s is not readable: %s%s", queue, error, and_more(left_out))
        else:
            log.warning("pull of %s failed, next try in %d ms: %s%s", queue, wait_ms, error, and_more(left_out))
        await self._pull_api.pause(queue, wait_ms)

    # --- for operators ---

    def _running_info_of(self, process_queues: Mapping[MessageQueue, ProcessQueue]) -> ConsumerRunningInfo:
        """Return the members of GET_CONSUMER_RUNNING_INFO that every pulling consumer has.

        Source: apache/rocketmq remoting/protocol/body/ConsumerRunningInfo.java.
        """
        config, clock, offsets = self._config, self._clock, self._offsets
        to_wall_ms = clock.wall_ms() - clock.monotonic_ms()
        return ConsumerRunningInfo(
            properties={
                ConsumerRunningInfo.PROP_NAMESERVER_ADDR: config.namesrv_addr,
                ConsumerRunningInfo.PROP_CONSUME_TYPE: self.consume_type.name,
                ConsumerRunningInfo.PROP_CLIENT_VERSION: CURRENT_VERSION.name,
                ConsumerRunningInfo.PROP_CONSUMER_START_TIMESTAMP: str(self._running().started_at_ms),
                "consumerGroup": self.group,
                "messageModel": config.message_model.name,
                "consumeFromWhere": config.consume_from_where.name,
                "allocateMessageQueueStrategy": config.allocate_strategy.name,
                "pullBatchSize": str(config.pull_batch_size),
            },
            subscription_set=list(self._wanted.values()),
            mq_table={
                queue: process_queue.info(offsets.in_memory(queue), to_wall_ms)
                for queue, process_queue in process_queues.items()
            },
        )


class MovedOffsets:
    """Logs that a broker sent a consumer to another offset (PULL_OFFSET_MOVED); for many queues at once it writes one
    line.

    A group that begins at the start of a topic asks for offset 0, and is sent to what is left: nothing is lost that it
    could have had, so one line tells it of all queues of the topic. Any other move is a reset or a loss, told by queue.

    Args:
        group: the consumer group.
    """

    def __init__(self, group: str) -> None:
        self._group = group
        self._begun: set[str] = set()  # topics for which it was logged that they do not begin at 0

    def tell(self, queue: MessageQueue, wanted: int, going_on_at: int) -> None:
        """Log that a pull of `queue` at offset `wanted` was sent to offset `going_on_at`."""
        if wanted == going_on_at:
            log.info("the offset of %s was set to %d, where this member is already", queue, wanted)
        elif wanted != 0:
            log.warning(
                "offset %d of %s was reset, or is outside the queue; going on at %d", wanted, queue, going_on_at
            )
        elif queue.topic not in self._begun:
            self._begun.add(queue.topic)
            log.warning(
                "topic %s does not begin at offset 0 for group %s: its first messages are gone, or its offsets were "
                "reset. It begins at offset %d of queue %d of %s, for example",
                queue.topic, self._group, going_on_at, queue.queue_id, queue.broker_name,
            )  # fmt: skip
