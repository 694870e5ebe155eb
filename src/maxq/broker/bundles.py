"""The objects that nearly every part of a broker uses, in bundles that are passed as one argument.

A part takes the bundles whose members it uses, and keeps the members, not the bundle. None of them knows the broker.
"""

from collections.abc import Callable

from maxq.access.guard import Guard
from maxq.broker.admission.fast_failure import FastFailure
from maxq.broker.admission.quotas import Quotas
from maxq.broker.identity.broker_identity import BrokerAddress
from maxq.broker.identity.outer_api import BrokerOuterApi
from maxq.broker.identity.registration import BrokerRegistration
from maxq.broker.metrics.rpc_latency import RpcLatency
from maxq.broker.processors.acknowledgement import Acknowledgement
from maxq.broker.processors.clients.message_request_mode_manager import MessageRequestModeManager
from maxq.broker.processors.pull.pull_subscription import PullSubscriptions
from maxq.broker.processors.send.put_hooks import PutHooks
from maxq.broker.slave.replicated_config_files import ReplicatedConfigFiles
from maxq.broker.stats.broker_stats_manager import BrokerStatsManager
from maxq.broker.tables.client.consumer_manager import ConsumerManager
from maxq.broker.tables.client.producer_manager import ProducerManager
from maxq.broker.tables.client.rebalance_lock_manager import RebalanceLockManager
from maxq.broker.tables.filter.consumer_filter_manager import ConsumerFilterManager
from maxq.broker.tables.offset.consumer_offset_manager import ConsumerOffsetManager
from maxq.broker.tables.static_topic.topic_queue_mapping_manager import TopicQueueMappingManager
from maxq.broker.tables.subscription.subscription_group_manager import SubscriptionGroupManager
from maxq.broker.tables.topic.topic_config_manager import TopicConfigManager
from maxq.config.settings import BrokerSettings
from maxq.lazy_dataclass import dataclass
from maxq.remoting.client import RemotingClient
from maxq.runtime.interfaces import Clock, Disk, Rng
from maxq.store.message_store import MessageStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The surroundings of every part of a broker.

    Attributes:
        own: name and address of this broker; the port is 0 until it listens.
        stats: what the broker counts.
        rpc_latency: is told how long each request took; None: nobody wants to know.
        guard: access control; None: everybody may do everything.
        on_failure: called with the name of a service that ended by an error, and the error.
    """

    settings: BrokerSettings
    disk: Disk
    clock: Clock
    rng: Rng
    own: BrokerAddress
    stats: BrokerStatsManager
    rpc_latency: RpcLatency | None
    guard: Guard | None
    on_failure: Callable[[str, BaseException], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The tables below config/. `files` are those that a slave copies from its master unchanged."""

    topics: TopicConfigManager
    mappings: TopicQueueMappingManager
    groups: SubscriptionGroupManager
    offsets: ConsumerOffsetManager
    request_modes: MessageRequestModeManager
    files: ReplicatedConfigFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """The connected clients, what consumers subscribe to and filter by, and which queues they have locked."""

    consumers: ConsumerManager
    producers: ProducerManager
    filters: ConsumerFilterManager
    subscriptions: PullSubscriptions
    locks: RebalanceLockManager


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """The message store, the hooks that a message passes before it is stored, and the acknowledgement of sends."""

    store: MessageStore
    hooks: PutHooks
    acknowledgement: Acknowledgement


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The parts that refuse or delay requests: load and time (`fast_failure`), quotas of users, topics and groups."""

    fast_failure: FastFailure
    quotas: Quotas


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """The clients by which this broker asks and informs name servers and other brokers."""

    client: RemotingClient
    outer_api: BrokerOuterApi
    registration: BrokerRegistration
