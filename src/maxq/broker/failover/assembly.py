"""Failover: one broker's part in its group, put together."""

from collections.abc import Callable

from maxq.broker.bundles import Environment, Messages, Peers, Tables
from maxq.broker.failover.acting_master import ActingMasterService
from maxq.broker.failover.consumer_offset_ownership import ConsumerOffsetOwnership
from maxq.broker.failover.escape_bridge import EscapeBridge
from maxq.broker.failover.group_api import GroupApi
from maxq.broker.failover.group_processor import BrokerGroupProcessor
from maxq.broker.failover.master_link import HALink, MasterFlushOffset, MasterLink, MetadataSync
from maxq.broker.failover.master_only_services import MasterOnlyServices
from maxq.broker.failover.pre_online import PreOnline
from maxq.broker.failover.slave_to_master_sync import SlaveToMasterSync
from maxq.broker.slave.master_api import MasterApi


class Failover:
    """The parts of one broker that deal with the other brokers of its group.

    Attributes:
        acting: brings the broker online and follows who works for the group.
        services: what only one broker of a group does.
        offset_ownership: one of them, whose consumer offsets count.
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
        api = GroupApi(peers.client, env.own, ha.hear_master_mark)
        self.services = MasterOnlyServices()
        self.offset_ownership = ConsumerOffsetOwnership(tables.offsets, env.own, env.clock)
        self.metadata = SlaveToMasterSync(
            MasterApi(peers.client),
            env.own,
            tables.offsets,
            tables.files,
            timer_wheel=lambda: settings.store.timer_wheel_enable,
            log_end=lambda: store.max_physical_offset,
            queue_end=store.taken_offset,
            ha=ha,
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
