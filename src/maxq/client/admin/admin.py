"""Admin: what operators ask name servers and brokers. Its parts: topics, groups, offsets, messages, dead_letters,
brokers, name_servers.

It keeps no heartbeat and no timers: a command connects, asks, and is done.

Source: apache/rocketmq tools/admin/DefaultMQAdminExtImpl.java, client/impl/MQAdminImpl.java.
"""

from types import TracebackType
from typing import Self

from maxq.client.admin.brokers import BrokerAdmin
from maxq.client.admin.context import AdminContext
from maxq.client.admin.dead_letters import DeadLetterAdmin
from maxq.client.admin.groups import GroupAdmin
from maxq.client.admin.messages import MessageAdmin
from maxq.client.admin.name_servers import NameServerAdmin
from maxq.client.admin.offsets import OffsetAdmin
from maxq.client.admin.static_topics import StaticTopicAdmin
from maxq.client.admin.timers import TimerAdmin
from maxq.client.admin.topics import TopicAdmin
from maxq.client.admin.transactions import TransactionAdmin
from maxq.client.client_api import MQClientAPI
from maxq.client.client_config import ClientConfig, ClientSeams
from maxq.client.mq_client_manager import client_tls
from maxq.config.netty_client_config import NettyClientConfig
from maxq.protocol.body.route import ClusterInfo
from maxq.remoting.client import RemotingClient
from maxq.remoting.tls import ClientTls


class Admin:
    """Use: `async with Admin(config, seams) as admin: await admin.topics.list()`.

    Args:
        config: `namesrv_addr` at least; `mq_client_api_timeout` is the timeout of each call in ms.
        seams: the outside world.
        tls: for `use_tls`; None: trust every certificate.
    """

    def __init__(self, config: ClientConfig, seams: ClientSeams, *, tls: ClientTls | None = None) -> None:
        name_servers = config.name_servers()
        self._remoting = RemotingClient(
            NettyClientConfig(use_tls=config.use_tls),
            clock=seams.clock,
            rng=seams.rng,
            tls=(tls or client_tls(seams)) if config.use_tls else None,
        )
        self._remoting.update_name_servers(name_servers)
        api = MQClientAPI(
            self._remoting,
            vip_channel_enabled=config.vip_channel_enabled,
            serialize_type=config.serialize_type,
            timeout_ms=config.mq_client_api_timeout,
        )
        self._context = AdminContext(api, name_servers, seams.clock)
        self.api = api
        self.topics = TopicAdmin(self._context)
        self.static_topics = StaticTopicAdmin(self._context)
        self.groups = GroupAdmin(self._context)
        self.offsets = OffsetAdmin(self._context)
        self.messages = MessageAdmin(self._context)
        self.dead_letters = DeadLetterAdmin(self._context, self.messages, self.offsets, self.topics)
        self.brokers = BrokerAdmin(self._context)
        self.timers = TimerAdmin(self._context)
        self.transactions = TransactionAdmin(self._context, self.messages)
        self.name_servers = NameServerAdmin(self._context)

    async def cluster_info(self) -> ClusterInfo:
        """All clusters and brokers."""
        return await self._context.cluster_info()

    async def close(self) -> None:
        """Close all connections."""
        await self._remoting.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
