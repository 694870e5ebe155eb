"""SimpleConsumer: the application asks for messages (`receive`), each of which is its own until its invisible time is
over, and reports each as done (`ack`), or says when it should be delivered again (`change_invisible_duration`).

No queue belongs to a member of the group: there is no rebalance, and any number of members share even one queue. The
broker keeps the group's place.

Source:
    apache/rocketmq-clients SimpleConsumer.java (the names),
    client/impl/consumer/DefaultMQPushConsumerImpl.java (popAsync).
"""

import itertools
import logging
from collections.abc import Sequence

from maxq.client.argument_checks import check_number, check_received
from maxq.client.client_config import ClientEnvironment, SimpleConsumerConfig
from maxq.client.consumer.group_consumer import GroupConsumer
from maxq.client.instance.mq_client import MQClientInstance
from maxq.client.instance.mq_client_manager import MQClientManager
from maxq.client.instance.pop_api import INIT_MAX, INIT_MIN, PopAPI
from maxq.client.message_selector import MessageSelector, expression_of
from maxq.client.results.pop_result import PopStatus
from maxq.client.validators import check_topic
from maxq.codes import ResponseCode
from maxq.errors import BrokerError, ClientError, RemotingError
from maxq.protocol.body.static_topic import NO_BROKER, is_mock_broker
from maxq.protocol.body.subscription import TAG, SubscriptionData, build_subscription_data
from maxq.protocol.enums import ConsumeFromWhere, ConsumeType
from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.message_queue import MessageQueue
from maxq.protocol.namespace import wrap
from maxq.runtime.log_limits import LogThrottle, and_more

log = logging.getLogger(__name__)

MAX_MESSAGES = 32  # most messages of one receive
_SLICE_MS = 1_000  # how long a receive waits at one of several brokers
_PAUSE_MS = 500  # pause after no broker could be asked

Place = tuple[MessageQueue, SubscriptionData]


class SimpleConsumer(GroupConsumer[SimpleConsumerConfig]):
    """A popping member of a consumer group.

    Args:
        config: settings; `consumer_group` and `namesrv_addr` at least.
        environment: the clock, disk, chance and address that the client uses.
        manager: shares connections with other clients of the loop that have the same instance name.
    """

    consume_type = ConsumeType.CONSUME_POP

    def __init__(
        self, config: SimpleConsumerConfig, environment: ClientEnvironment, *, manager: MQClientManager | None = None
    ) -> None:
        super().__init__(config, environment, manager)
        self._pops: PopAPI
        self._turn = itertools.count()
        self._failed_pops = LogThrottle(environment.clock)  # limits how often failed pops are logged

    # --- life ---

    async def start(self) -> None:
        """Join the group.

        Raises:
            ClientError: already started, or no name server given.
            BrokerError: a broker does not select by an SQL92 expression.
        """
        async with self._ending.starting():
            instance = await self._join()
            try:
                await self._check_expressions(instance, list(self._wanted.values()))
                await self._announce()
            except BaseException:
                await self._ending.complete(self._shut_down)
                raise

    def _build(self, instance: MQClientInstance) -> None:
        self._pops = PopAPI(instance, self.group)

    def _pull_what_is_wanted(self, instance: MQClientInstance) -> None:
        """Start no pulls: a simple consumer receives messages only when the program calls `receive`."""

    async def _shut_down(self) -> None:
        """Leave the group. Received messages that were not acknowledged become visible again after their invisible
        time."""
        instance, self._instance = self._instance, None
        if instance is not None:
            await self._quit(instance)

    # --- what to read ---

    async def subscribe(self, topic: str, expression: str | MessageSelector = "*", expression_type: str = TAG) -> None:
        """Receive messages of a topic.

        Args:
            expression: as PushConsumer.subscribe takes it.

        Raises:
            ClientError: illegal topic.
            FilterExpressionError: an SQL92 expression that is wrong.
            BrokerError: the consumer runs, and its broker does not select by SQL92.
        """
        check_topic(topic)
        wire = wrap(self._config.namespace, topic)
        await self._want(
            build_subscription_data(
                wire, *expression_of(expression, expression_type), sub_version=self._clock.wall_ms()
            )
        )

    async def unsubscribe(self, topic: str) -> None:
        """Stop receiving messages of a topic."""
        self._wanted.pop(wrap(self._config.namespace, topic), None)
        if self._instance is not None:
            await self._announce()

    # --- receive ---

    async def receive(
        self, max_messages: int = MAX_MESSAGES, invisible_ms: int | None = None, *, wait_ms: int | None = None
    ) -> list[MessageExt]:
        """Return some messages, which are invisible to all other consumers for `invisible_ms`.

        Args:
            max_messages: at most so many, 32 or fewer.
            invisible_ms: None: invisible_duration of the settings.
            wait_ms: how long to wait for some; None: await_duration of the settings.

        Returns:
            Messages of one topic and broker; empty if nothing came in time.

        Raises:
            ClientError: nothing is subscribed, or no broker of it is known.
            BrokerError: every broker says that this user may not read the topic or the group (code 16).
            RemotingError, BrokerError: with a `wait_ms` of 0: no broker could be asked; what the last one said.
        """
        self._running()
        check_number("max_messages", max_messages, low=1, high=MAX_MESSAGES)
        check_number("invisible_ms", invisible_ms, low=1)
        check_number("wait_ms", wait_ms)
        config = self._config
        invisible = config.invisible_duration if invisible_ms is None else invisible_ms
        wait = config.await_duration if wait_ms is None else wait_ms
        deadline_ms = self._clock.monotonic_ms() + wait
        places = await self._places()
        if len(places) > 1 and (found := await self._round(places, places, max_messages, invisible, 0)):
            return found
        while True:
            left_ms = deadline_ms - self._clock.monotonic_ms()
            slice_ms = left_ms if len(places) == 1 else min(left_ms, _SLICE_MS)
            found = await self._round(places[:1], places, max_messages, invisible, max(0, slice_ms))
            if found or self._clock.monotonic_ms() >= deadline_ms:
                return found
            places = await self._places()

    async def _places(self) -> list[Place]:
        """Return every topic at every broker that has it, beginning with another one each time. For a static topic the
        brokers that have led a queue are included: messages stored there before the queue moved are nowhere else."""
        if not self._wanted:
            raise ClientError(
                f"nothing is subscribed by the consumer of group {self.group}: subscribe to a topic before you receive"
            )
        instance = self._running()
        places: list[Place] = []
        for topic, subscription in self._wanted.items():
            queues = await instance.routes.subscribe_queues(topic)
            names = dict.fromkeys(map(instance.routes.broker_of, queues))
            if any(is_mock_broker(queue.broker_name) for queue in queues):
                masters = instance.routes.masters(topic)
                names |= dict.fromkeys(name for name, address in masters.items() if address is not None)
            places += [(MessageQueue(topic, name, -1), subscription) for name in names if name != NO_BROKER]
        if not places:
            raise ClientError(
                f"no broker has a readable queue of {', '.join(self._wanted)} for group {self.group}: see whether "
                "brokers run, and whether the topic may be read (`maxq admin topicRoute`)"
            )
        first = next(self._turn) % len(places)
        return places[first:] + places[:first]

    async def _round(
        self, places: Sequence[Place], all_places: Sequence[Place], max_messages: int, invisible_ms: int, wait_ms: int
    ) -> list[MessageExt]:
        """Pop from some of all places in turn, and return what the first one that has messages gives."""
        failure: Exception | None = None
        denied = 0
        is_full = False
        begin = self._config.consume_from_where
        for queue, subscription in places:
            try:
                result = await self._pops.pop(
                    queue,
                    subscription,
                    max_nums=max_messages,
                    invisible_ms=invisible_ms,
                    poll_ms=wait_ms,
                    init_mode=INIT_MIN if begin is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET else INIT_MAX,
                )
            except (RemotingError, BrokerError) as error:
                self._running()  # raises if the shutdown has closed the connection
                kind = queue.broker_name, queue.topic, type(error)
                if (left_out := self._failed_pops.admits(kind)) is not None:
                    log.warning(
                        "%s could not be asked for messages of %s: %s%s",
                        queue.broker_name, queue.topic, error, and_more(left_out),
                    )  # fmt: skip
                failure = error
                denied += isinstance(error, BrokerError) and error.code == ResponseCode.NO_PERMISSION
                continue
            if result.messages:
                return result.messages
            failure = None
            is_full = result.status is PopStatus.POLLING_FULL
        if failure is not None and ((len(places) == 1 and wait_ms <= 0) or denied == len(all_places)):
            raise failure
        if (failure is not None or is_full) and len(places) == 1:
            await self._pops.pause(places[0][0], min(_PAUSE_MS, wait_ms))  # the broker does not hold the request
        return []

    # --- what becomes of them ---

    async def ack(self, message: MessageExt) -> None:
        """Acknowledge a message, so that it is not delivered again.

        Raises:
            RemotingError, BrokerError: it may come again.
            WrongArgumentError: it is not a message that `receive` returned.
        """
        self._running()
        check_received(message)
        await self._pops.ack(message)

    async def ack_all(self, messages: Sequence[MessageExt]) -> None:
        """Acknowledge many messages, in one request for each broker. Raises as `ack`."""
        self._running()
        check_received(messages)
        await self._pops.ack_all(messages)

    async def change_invisible_duration(self, message: MessageExt, invisible_ms: int, *, suspend: bool = False) -> None:
        """Keep a message invisible to others for `invisible_ms` from now (0: it is delivered again at once). It gets a
        new receipt handle.

        Args:
            suspend: it is not counted as a try when it comes again.

        Raises:
            BrokerError: with code 13 its invisible time has ended, and another member may have it; otherwise it is
                unknown until when it is invisible.
            RemotingError: nobody knows until when it is invisible.
            WrongArgumentError: it is not a message that `receive` returned.
        """
        self._running()
        check_received(message)
        check_number("invisible_ms", invisible_ms)
        await self._pops.change_invisible_time(message, invisible_ms, suspend=suspend)

    # --- for the instance ---

    def topics(self) -> set[str]:
        return set(self._wanted)

    async def do_rebalance(self) -> bool:
        """Return True: members of the group share queues without a rebalance."""
        return True

    async def persist_consumer_offset(self) -> None:
        """Do nothing: the broker keeps the group's offsets."""
