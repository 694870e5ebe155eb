"""GroupConsumer: what all consumers have in common as members of a consumer group.

Source: apache/rocketmq client/impl/consumer/MQConsumerInner.java.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import partial
from pathlib import PurePath
from types import TracebackType
from typing import ClassVar, Generic, Self, TypeVar

from maxq.client.client_config import ClientEnvironment, ConsumerConfig
from maxq.client.consumer.offset_store import LocalFileOffsetStore, OffsetStore, RemoteBrokerOffsetStore
from maxq.client.errors import NotRunningError
from maxq.client.failures import Failures
from maxq.client.instance.client_shutdown import ClientShutdown, in_turn
from maxq.client.instance.mq_client import MQClientInstance, already_started
from maxq.client.instance.mq_client_manager import MQClientManager
from maxq.client.instance.pull_api import PullAPIWrapper
from maxq.client.trace.async_trace_dispatcher import AsyncTraceDispatcher, TraceSide
from maxq.client.validators import check_consumer_group, check_group
from maxq.errors import MaxQError, NoRouteError, RemotingError
from maxq.protocol.body.heartbeat import ConsumerData
from maxq.protocol.body.subscription import SubscriptionData
from maxq.protocol.enums import ConsumeType, MessageModel
from maxq.protocol.message.message_queue import MessageQueue
from maxq.protocol.namespace import RETRY_PREFIX, wrap

log = logging.getLogger(__name__)

Config = TypeVar("Config", bound=ConsumerConfig)


class GroupConsumer(ABC, Generic[Config]):
    """A member of a consumer group: its place on a client instance, its subscriptions, its offsets.

    Args:
        config: settings; `consumer_group` and `namesrv_addr` at least.
        environment: the clock, disk, chance and address that the client uses.
        manager: shares connections with other clients of the loop that have the same instance name.
    """

    consume_type: ClassVar[ConsumeType]

    def __init__(self, config: Config, environment: ClientEnvironment, manager: MQClientManager | None) -> None:
        check_consumer_group(config.consumer_group)
        self._config = config
        self._environment = environment
        self._clock = environment.clock
        self.failures = Failures(config.on_failure, environment.clock)
        self._manager = manager or MQClientManager(environment)
        self.group = wrap(config.namespace, config.consumer_group)
        check_group(self.group)
        self._broadcasting = config.message_model is MessageModel.BROADCASTING
        self._wanted: dict[str, SubscriptionData] = {}  # by topic on the wire, as the heartbeat tells it
        self._instance: MQClientInstance | None = None
        self._offsets: OffsetStore
        self._pull_api: PullAPIWrapper
        self._ending = ClientShutdown(f"consumer of group {self.group}")
        self._trace: AsyncTraceDispatcher | None = None
        if config.enable_trace:
            self._trace = AsyncTraceDispatcher(config, config.consumer_group, TraceSide.CONSUME, environment)

    # --- life ---

    @abstractmethod
    async def start(self) -> None:
        """Start the client, and join the consumer group."""

    async def shutdown(self) -> None:
        """Leave the group. If the caller is cancelled, the shutdown is still completed, and then the cancellation is
        raised; a second call waits for the first. The consumer may be started again."""
        await self._ending.run(self._shut_down)

    @abstractmethod
    async def _shut_down(self) -> None:
        """Carry out `shutdown`; does nothing if the consumer does not run."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()

    async def _join(self) -> MQClientInstance:
        """Register this consumer at the client instance of its client id. Called within `_ending.starting`.

        Raises:
            ClientError: already started, no name server given, or stored offsets that cannot be read.
        """
        if self._instance is not None:
            raise already_started(f"consumer of group {self.group}", self._instance)
        client_id = self._manager.client_id(self._config, keep_default_name=self._broadcasting)
        instance = await self._manager.acquire(client_id, self._config)
        self._offsets = self._make_offset_store(instance)
        try:
            await self._offsets.load()
            self._pull_api = PullAPIWrapper(
                instance,
                self.group,
                self._config.filter_message_hooks,
                unit_mode=self._config.unit_mode,
                connect_broker_by_user=self._config.connect_broker_by_user,
            )
            self._build(instance)
            instance.register_consumer(self)
        except BaseException:
            await in_turn(self._offsets.close, partial(self._manager.release, instance))
            raise
        self._instance = instance
        if self._trace is not None:
            self._trace.start(instance)
        return instance

    @abstractmethod
    def _build(self, instance: MQClientInstance) -> None:
        """Make the parts that need the client instance, such as the rebalance. Offset store and pull API exist
        already."""

    def _make_offset_store(self, instance: MQClientInstance) -> OffsetStore:
        if not self._broadcasting:
            return RemoteBrokerOffsetStore(instance, self.group)
        configured = self._config.local_offset_store_dir
        folder = PurePath(configured) if configured else self._environment.home / ".rocketmq_offsets"
        return LocalFileOffsetStore(self._environment.disk, folder, instance.client_id, self.group)

    def _running(self) -> MQClientInstance:
        if self._instance is None:
            raise NotRunningError(f"consumer of group {self.group} is not running: start it first")
        self._instance.check_loop(f"consumer of group {self.group}")
        return self._instance

    @property
    def client_id(self) -> str:
        """The id by which brokers know this client."""
        if self._instance is None:
            return self._running().client_id  # says so
        return self._instance.client_id

    async def _quit(self, instance: MQClientInstance) -> None:
        """Leave the client instance, and tell the brokers so."""
        trace = [] if self._trace is None else [self._trace.shutdown]
        await in_turn(
            *trace,
            self._offsets.close,
            partial(instance.unregister_consumer, self.group),
            partial(self._manager.release, instance),
        )

    # --- subscriptions ---

    async def _announce(self) -> None:
        """Announce the subscriptions to brokers, and then pull: a pull with a newer subscription than its broker knows
        would be refused."""
        instance = self._running()
        await self._learn_routes(instance)
        await instance.heartbeat_all()
        self._pull_what_is_wanted(instance)

    async def _want(self, subscription: SubscriptionData) -> None:
        """Subscribe to a topic, at once or at the start."""
        if self._instance is not None:
            await self._check_expressions(self._instance, [subscription])
        self._wanted[subscription.topic] = subscription
        if self._instance is not None:
            await self._announce()

    async def _check_expressions(self, instance: MQClientInstance, subscriptions: Iterable[SubscriptionData]) -> None:
        """Ask a broker of each topic whether it supports SQL92 expressions. A broker that cannot be reached refuses
        none.

        Raises:
            BrokerError: it does not; enablePropertyFilter may be off.
        """
        for data in subscriptions:
            if data.is_tag_type:
                continue
            try:
                await instance.routes.update_route(data.topic)
                served = instance.routes.first_served(instance.routes.known_subscribe_queues(data.topic))
                if served is not None:
                    address = await instance.broker_address(served)
                    namespace = self._config.namespace
                    await instance.api.check_client_config(address, instance.client_id, self.group, namespace, data)
            except (NoRouteError, RemotingError) as error:
                log.warning("the expression for topic %s could not be checked: %s", data.topic, error)

    async def _learn_routes(self, instance: MQClientInstance) -> None:
        for topic in list(self._wanted):
            try:
                await instance.routes.update_route(topic)
            except MaxQError as error:
                level = logging.DEBUG if topic.startswith(RETRY_PREFIX) else logging.WARNING
                log.log(level, "no route for topic %s of group %s yet: %s", topic, self.group, error)

    @abstractmethod
    def _pull_what_is_wanted(self, instance: MQClientInstance) -> None:
        """Start pulling from newly subscribed topics, and stop pulling from others."""

    # --- for the instance and for operators ---

    def consumer_data(self) -> ConsumerData:
        """Return this consumer's part of the heartbeat."""
        return ConsumerData(
            self.group,
            self.consume_type,
            self._config.message_model,
            self._config.consume_from_where,
            list(self._wanted.values()),
            self._config.unit_mode,
        )

    @abstractmethod
    def topics(self) -> set[str]:
        """Return the topics whose routes are needed, by the names on the wire."""

    @abstractmethod
    async def do_rebalance(self) -> bool:
        """Take and give up queues. Returns True if this member holds exactly its share."""

    @abstractmethod
    async def persist_consumer_offset(self) -> None:
        """Commit the offsets of finished messages."""

    def offsets_of(self, topic: str) -> dict[MessageQueue, int]:
        """Return the offsets in memory of a topic's queues (GET_CONSUMER_STATUS_FROM_CLIENT)."""
        return self._offsets.snapshot(topic)
