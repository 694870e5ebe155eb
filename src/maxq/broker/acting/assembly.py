"""GroupMember: one broker's part in its group, put together."""

from collections.abc import Callable

from maxq.broker.acting.acting_master import ActingMasterService
from maxq.broker.acting.escape_bridge import EscapeBridge
from maxq.broker.acting.group_api import GroupApi
from maxq.broker.acting.group_processor import BrokerGroupProcessor
from maxq.broker.acting.master_link import HALink, MasterFlushOffset, MasterLink, MetadataSync
from maxq.broker.acting.metadata_reverse import MetadataReverse
from maxq.broker.acting.offset_authority import OffsetAuthority
from maxq.broker.acting.pre_online import PreOnline
from maxq.broker.acting.special_services import SpecialServices
from maxq.broker.bundles import Environment, Messages, Peers, Tables
from maxq.broker.slave.master_api import MasterApi


class GroupMember:
    """The parts of one broker that deal with the other brokers of its group.

    Attributes:
        acting: brings the broker online and follows who works for the group.
        services: what only one broker of a group does.
        offset_authority: one of them, the say over consumer offsets.
        escape: takes writes that cannot wait for the master.
        metadata: what slaves kept for this master while it was away.
        processor: answers 905, 906 and 908.
    """

    def __init__(
        self,
        env: Environment,
        tables: Tables,
        messages: Messages,
        peers: Peers,
        ha: HALink,
        sync: MetadataSync,
        notify_held: Callable[[], None],
    ) -> None:
        settings, store = env.settings, messages.store
        link = MasterLink(ha, sync, MasterFlushOffset(store, settings))
        api = GroupApi(peers.client, env.own)
        self.services = SpecialServices()
        self.offset_authority = OffsetAuthority(tables.offsets, env.own, env.clock)
        self.metadata = MetadataReverse(
            MasterApi(peers.client),
            tables.offsets,
            tables.files,
            timer_wheel=lambda: settings.store.timer_wheel_enable,
            log_end=lambda: store.max_physical_offset,
        )
        pre_online = PreOnline(env, api, link, self.metadata)
        self.acting = ActingMasterService(env, api, link, peers.registration, self.services, pre_online, notify_held)
        self.escape = EscapeBridge(
            settings=settings,
            own=env.own,
            store=store,
            mappings=tables.mappings,
            client=peers.client,
            topic_route=peers.outer_api.topic_route,
            clock=env.clock,
        )
        self.processor = BrokerGroupProcessor(env.own, self.acting, link)
