"""All request processors but those of sending, pulling and querying messages, put together."""

from collections.abc import Callable

from maxq.access.guard import Guard
from maxq.broker.acknowledgement import Acknowledgement
from maxq.broker.client.consumer_manager import ConsumerManager
from maxq.broker.client.producer_manager import ProducerManager
from maxq.broker.client.rebalance_lock_manager import RebalanceLockManager
from maxq.broker.filter.consumer_filter_manager import ConsumerFilterManager
from maxq.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from maxq.broker.processors.admin.admin_client import AdminClientProcessor
from maxq.broker.processors.admin.admin_config import AdminConfigProcessor
from maxq.broker.processors.admin.admin_consume_stats import AdminConsumeStatsProcessor
from maxq.broker.processors.admin.admin_group import AdminGroupProcessor
from maxq.broker.processors.admin.admin_offset import AdminOffsetProcessor
from maxq.broker.processors.admin.admin_static_topic import AdminStaticTopicProcessor
from maxq.broker.processors.admin.admin_store import AdminStoreProcessor
from maxq.broker.processors.admin.admin_timer import AdminTimerProcessor
from maxq.broker.processors.admin.admin_topic import AdminTopicProcessor
from maxq.broker.processors.admin.table_changes import TableChangesProcessor
from maxq.broker.processors.clients.client_manage import ClientManageProcessor
from maxq.broker.processors.clients.consumer_manage import ConsumerManageProcessor
from maxq.broker.processors.clients.message_request_mode_manager import MessageRequestModeManager
from maxq.broker.processors.clients.query_assignment import QueryAssignmentProcessor, TopicRouteSource
from maxq.broker.processors.clients.reset_offset import ResetOffsetProcessor
from maxq.broker.processors.support import RequestProcessor
from maxq.broker.processors.unsupported import UnsupportedProcessor
from maxq.broker.slave.carried_files import CarriedFiles
from maxq.broker.static_topic.topic_queue_mapping_manager import TopicQueueMappingManager
from maxq.broker.stats.broker_stats_manager import BrokerStatsManager
from maxq.broker.subscription.subscription_group_manager import SubscriptionGroupManager
from maxq.broker.topic.topic_config_manager import TopicConfigManager
from maxq.config.settings import BrokerSettings
from maxq.lazy_dataclass import dataclass
from maxq.protocol.body.ha_runtime_info import HARuntimeInfo
from maxq.remoting.server import RemotingServer
from maxq.runtime.interfaces import Clock, Disk
from maxq.store.message_store import MessageStore


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminParts:
    """What the processors are made of."""

    settings: BrokerSettings
    disk: Disk
    clock: Clock
    broker_address: Callable[[], str]  # what clients reach this broker by, `host:port`
    store: MessageStore
    topics: TopicConfigManager
    table_changes: TableChangesProcessor
    mappings: TopicQueueMappingManager
    groups: SubscriptionGroupManager
    offsets: ConsumerOffsetManager
    consumers: ConsumerManager
    filters: ConsumerFilterManager
    producers: ProducerManager
    locks: RebalanceLockManager
    request_modes: MessageRequestModeManager
    carried_files: CarriedFiles
    stats: BrokerStatsManager
    acknowledgement: Acknowledgement
    guard: Guard | None  # of access control; None: everything passes
    runtime_info: Callable[[], dict[str, str]]
    ha_runtime_info: Callable[[], HARuntimeInfo]  # how replication stands
    topic_route: TopicRouteSource
    on_permission_changed: Callable[[], None]  # register anew at all name servers


def admin_processors(parts: AdminParts) -> list[RequestProcessor]:
    """One of each kind. No code is answered by two of them."""
    settings, clock, store = parts.settings, parts.clock, parts.store
    topics, groups, offsets = parts.topics, parts.groups, parts.offsets
    consumers, producers, stats = parts.consumers, parts.producers, parts.stats
    return [
        ClientManageProcessor(
            settings=settings,
            clock=clock,
            topics=topics,
            groups=groups,
            consumers=consumers,
            producers=producers,
            filters=parts.filters,
            guard=parts.guard,
        ),
        ConsumerManageProcessor(
            settings=settings,
            store=store,
            topics=topics,
            groups=groups,
            offsets=offsets,
            consumers=consumers,
            locks=parts.locks,
        ),
        QueryAssignmentProcessor(
            settings=settings,
            clock=clock,
            topics=topics,
            groups=groups,
            consumers=consumers,
            modes=parts.request_modes,
            topic_route=parts.topic_route,
        ),
        AdminTopicProcessor(
            settings=settings,
            store=store,
            topics=topics,
            groups=groups,
            mappings=parts.mappings,
            offsets=offsets,
            stats=stats,
            acknowledgement=parts.acknowledgement,
        ),
        AdminStaticTopicProcessor(settings=settings, store=store, topics=topics, mappings=parts.mappings),
        AdminGroupProcessor(settings=settings, groups=groups, offsets=offsets),
        AdminOffsetProcessor(store=store, topics=topics, offsets=offsets, consumers=consumers),
        AdminTimerProcessor(settings=settings, clock=clock, store=store, files=parts.carried_files),
        AdminConsumeStatsProcessor(
            settings=settings,
            clock=clock,
            broker_address=parts.broker_address,
            store=store,
            topics=topics,
            groups=groups,
            offsets=offsets,
            consumers=consumers,
            stats=stats,
            is_static=parts.mappings.is_static,
        ),
        ResetOffsetProcessor(
            settings=settings, store=store, topics=topics, groups=groups, offsets=offsets, consumers=consumers
        ),
        AdminClientProcessor(
            settings=settings,
            broker_address=parts.broker_address,
            store=store,
            topics=topics,
            groups=groups,
            offsets=offsets,
            consumers=consumers,
            producers=producers,
            guard=parts.guard,
        ),
        AdminConfigProcessor(
            settings=settings,
            disk=parts.disk,
            clock=clock,
            topics=topics,
            stats=stats,
            runtime_info=parts.runtime_info,
            on_permission_changed=parts.on_permission_changed,
        ),
        AdminStoreProcessor(
            settings=settings,
            store=store,
            consumers=consumers,
            filters=parts.filters,
            ha_runtime_info=parts.ha_runtime_info,
        ),
        parts.table_changes,
        UnsupportedProcessor(),
    ]


def register_admin(server: RemotingServer, parts: AdminParts) -> None:
    """Register every code of `admin_processors`."""
    for processor in admin_processors(parts):
        processor.register(server)
