"""GroupMember: one broker's part in its group, put together."""

from maxq.broker.acting.acting_master import ActingMasterService
from maxq.broker.acting.broker_group import BrokerGroup
from maxq.broker.acting.escape_bridge import EscapeBridge
from maxq.broker.acting.group_api import GroupApi
from maxq.broker.acting.group_ports import HALink, MetadataSync
from maxq.broker.acting.group_processor import BrokerGroupProcessor
from maxq.broker.acting.master_flush_offset import MasterFlushOffset
from maxq.broker.acting.metadata_reverse import MetadataReverse
from maxq.broker.acting.offset_authority import OffsetAuthority
from maxq.broker.acting.pre_online import PreOnline
from maxq.broker.acting.special_services import SpecialServices
from maxq.broker.client.rebalance_lock_manager import RebalanceLockManager
from maxq.broker.identity.broker_identity import BrokerAddress
from maxq.broker.identity.outer_api import BrokerOuterApi
from maxq.broker.identity.registration import BrokerRegistration
from maxq.broker.longpolling.pull_request_hold_service import PullRequestHoldService
from maxq.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from maxq.broker.slave.carried_files import CarriedFiles
from maxq.broker.slave.master_api import MasterApi
from maxq.broker.static_topic.topic_queue_mapping_manager import TopicQueueMappingManager
from maxq.broker.topic.topic_config_manager import TopicConfigManager
from maxq.config.settings import BrokerSettings
from maxq.lazy_dataclass import dataclass
from maxq.remoting.client import RemotingClient
from maxq.runtime.interfaces import Clock
from maxq.store.message_store import MessageStore


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupParts:
    """What it is made of."""

    settings: BrokerSettings
    own: BrokerAddress
    clock: Clock
    store: MessageStore
    client: RemotingClient
    outer_api: BrokerOuterApi
    registration: BrokerRegistration
    topics: TopicConfigManager
    mappings: TopicQueueMappingManager
    offsets: ConsumerOffsetManager
    locks: RebalanceLockManager
    carried_files: CarriedFiles
    hold_service: PullRequestHoldService
    sync: MetadataSync
    ha: HALink


class GroupMember:
    """Made when the store is loaded and the address is known.

    Attributes:
        acting: brings the broker online and follows who speaks for the group.
        services: what only one broker of a group does; later parts register here.
        escape: takes writes that cannot wait for the master.
        metadata: what slaves kept for this master while it was away.
        processor: answers 905, 906 and 908.
    """

    def __init__(self, parts: GroupParts) -> None:
        settings, own = parts.settings, parts.own
        init_max_offset = parts.store.max_physical_offset
        flush_offset = MasterFlushOffset(parts.store, settings)
        api = GroupApi(parts.client, own)
        self.services = SpecialServices()
        self.services.register("queue locks", parts.locks)
        self.services.register("consumer offsets", OffsetAuthority(parts.offsets, own, parts.clock))
        self.metadata = MetadataReverse(
            MasterApi(parts.client),
            parts.offsets,
            parts.carried_files,
            timer_wheel=lambda: settings.store.timer_wheel_enable,
            log_end=lambda: parts.store.max_physical_offset,
        )
        pre_online = PreOnline(
            own=own,
            api=api,
            ha=parts.ha,
            sync=parts.sync,
            metadata=self.metadata,
            flush_offset=flush_offset,
            init_max_offset=init_max_offset,
            clock=parts.clock,
            compatible=settings.broker.compatible_with_old_name_srv,
        )

        async def is_outdated(name_server: str, timeout_ms: int) -> bool:
            return await parts.outer_api.needs_registration(
                name_server, own, parts.topics.data_version, timeout_ms=timeout_ms
            )

        self.acting = ActingMasterService(
            settings=settings,
            group=BrokerGroup(own),
            api=api,
            registration=parts.registration,
            services=self.services,
            ha=parts.ha,
            sync=parts.sync,
            flush_offset=flush_offset,
            pre_online=pre_online,
            name_servers=lambda: parts.client.name_servers,
            is_outdated=is_outdated,
            notify_held=parts.hold_service.notify_all,
            clock=parts.clock,
        )
        self.escape = EscapeBridge(
            settings=settings,
            own=own,
            store=parts.store,
            mappings=parts.mappings,
            client=parts.client,
            topic_route=parts.outer_api.topic_route,
            clock=parts.clock,
        )
        self.processor = BrokerGroupProcessor(
            own=own,
            acting=self.acting,
            ha=parts.ha,
            sync=parts.sync,
            flush_offset=flush_offset,
            init_max_offset=init_max_offset,
        )
