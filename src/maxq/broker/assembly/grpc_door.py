"""The broker's gRPC server: clients of RocketMQ 5.x connect here, and nothing is between them and the broker.

Their calls become requests on connections inside the process (proxy/loopback.py), which the broker answers as those
of any other client. Who makes a call was checked before; what they may do is judged as for all requests.

Source:
    proxy/service/{LocalServiceManager,route/LocalTopicRouteService,metadata/LocalMetadataService}.java.
"""

import logging
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from maxq.broker.bundles import Environment, Tables
from maxq.broker.tables.attributes import MESSAGE_TYPE
from maxq.config.host import is_loopback
from maxq.errors import ConfigError
from maxq.lazy_dataclass import dataclass
from maxq.protocol.body.route import MASTER_ID, BrokerData, QueueData
from maxq.protocol.body.subscription import SubscriptionGroupConfig
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.proxy.brokers import NORMAL, Asking, OnReply, TopicView, topic_view
from maxq.proxy.loopback import LoopbackClient
from maxq.remoting.addresses import address_list
from maxq.remoting.client import split_address
from maxq.remoting.connection import Connection
from maxq.remoting.server import RemotingServer
from maxq.remoting.tls.contexts import ServerTls

if TYPE_CHECKING:  # they bring protobuf, which a broker without a gRPC server does not need
    from maxq.proxy.services import Services
    from maxq.remoting.grpc.server import GrpcServer

log: Final = logging.getLogger(__name__)


class OwnBroker:
    """This broker, as the services of its gRPC server see it (proxy/brokers.py)."""

    def __init__(self, env: Environment, tables: Tables, server: RemotingServer, loopback: LoopbackClient) -> None:
        self._settings = env.settings
        self._own = env.own
        self._topics = tables.topics
        self._groups = tables.groups
        self._server = server
        self._loopback = loopback
        self._views: dict[str, tuple[TopicConfig, TopicView]] = {}  # of topics that were asked about
        self.port = 0  # on which gRPC clients connect

    def topic(self, name: str) -> TopicView | None:
        config = self._topics.select_topic_config(name)
        if config is None:
            return None
        known = self._views.get(name)
        if known is None or known[0] is not config:
            known = self._views[name] = config, self._view(config)
        return known[1]

    def _view(self, config: TopicConfig) -> TopicView:
        own = self._own
        queues = QueueData(
            own.broker_name,
            config.read_queue_nums,
            config.write_queue_nums,
            config.perm & self._settings.broker.broker_permission,
            config.topic_sys_flag,
        )
        broker = BrokerData(own.cluster, own.broker_name, {MASTER_ID: own.address})
        message_type = config.attributes.get(MESSAGE_TYPE, NORMAL)
        return topic_view(config.topic_name, message_type, [queues], [broker])

    def topics_changed(self, changed: list[TopicConfig], deleted: list[str]) -> None:
        """Forget the views of topics that were deleted."""
        for name in deleted:
            self._views.pop(name, None)

    def settings_changed(self) -> None:
        """Forget all views, in which the permission of this broker is."""
        self._views.clear()

    def group(self, name: str) -> SubscriptionGroupConfig | None:
        return self._groups.subscription_group_table.get(name)

    def grpc_address(self, broker: BrokerData) -> tuple[str, int]:
        return self._own.ip, self.port

    def ask(self, client: Asking, broker_name: str, command: RemotingCommand, on_reply: OnReply) -> bool:
        if broker_name != self._own.broker_name:
            return False
        link = client.links.get(broker_name)
        if link is None or link.is_closed:
            local = self._own.resolved_ip or self._own.ip, self._own.port
            link = self._loopback.connect(self._server, split_address(client.address), local)
            client.linked(broker_name, link)
        link.request(command, on_reply)
        return True

    def link(self, client: Asking, broker_name: str) -> Connection | None:
        link = client.links.get(broker_name)
        return None if link is None or link.is_closed else link

    def asked(self, link: Connection, opaque: int, on_reply: OnReply) -> None:
        """Do nothing: this broker answers, or the connection ends."""

    @property
    def knows_clients(self) -> bool:
        return True

    def keep_producers(self, topics: Iterable[str]) -> None:
        """Do nothing: each client is asked on its own connection."""

    @property
    def max_message_size(self) -> int:
        return self._settings.store.max_message_size


class GrpcPortError(ConfigError):
    """Raised when the gRPC server of a broker cannot listen. Its cause is the system's error."""


@dataclass(slots=True)
class _Open:
    """What there is while the server listens."""

    server: "GrpcServer"
    services: "Services"
    loopback: LoopbackClient


class GrpcDoor:
    """The gRPC server of a broker, if its settings name a port for it."""

    def __init__(self, env: Environment, tables: Tables, server: RemotingServer) -> None:
        self._env = env
        self._tables = tables
        self._server = server
        self._brokers: OwnBroker | None = None
        self._open: _Open | None = None

    @property
    def port(self) -> int:
        """Return the port on which gRPC clients connect; 0: there is none."""
        return 0 if self._open is None else self._open.server.port

    async def start(self) -> None:
        """Listen, if the settings say so.

        Raises:
            GrpcPortError: the port is in use, or cannot be had.
        """
        settings, env = self._env.settings, self._env
        if not settings.proxy.grpc_server_port:
            return
        from maxq.proxy.services import Services
        from maxq.remoting.grpc.server import GrpcServer

        loopback = LoopbackClient(env.clock)
        brokers = self._brokers = OwnBroker(env, self._tables, self._server, loopback)
        guard = env.guard
        services = Services(brokers, lambda: settings.proxy, env.clock, guard)
        services.answer_brokers(loopback)
        config = settings.server
        server = GrpcServer(
            services.methods(),
            tls=ServerTls(config, env.disk, protocols=("h2",)),
            is_trusted=address_list("proxyProtocolTrusted", config.proxy_protocol_trusted),
            message_limit=settings.proxy.grpc_max_inbound_message_size,
            unsent_limit=config.max_unsent_bytes,
            unfinished_limit=config.max_unfinished_bytes,
            idle_seconds=config.server_channel_max_idle_time_seconds,
            highest_descriptor=config.highest_descriptor,
            backlog=config.server_socket_backlog,
        )
        server.end_of_pass = partial(loopback.deliver_after, services.pass_ended)
        host = config.bind_address
        try:
            brokers.port = await server.start(host, settings.proxy.grpc_server_port)
        except OSError as error:
            raise GrpcPortError(
                f"gRPC clients cannot be served on {host}:{settings.proxy.grpc_server_port}: {error}; choose another "
                "grpcServerPort, or 0 for none"
            ) from error
        services.start()
        self._open = _Open(server, services, loopback)
        if guard is None and not is_loopback(host):
            log.warning(
                "%s:%d is open to other machines WITHOUT access control: anyone who can reach it may do everything; "
                "switch access control on, listen on 127.0.0.1, or close it with a firewall",
                host, server.port,
            )  # fmt: skip

    async def stop(self) -> None:
        """Tell clients to go elsewhere, end the calls under way and close."""
        if self._open is None:
            return
        opened, self._open = self._open, None
        opened.services.end_waiting()
        await opened.server.stop(self._env.settings.proxy.grpc_shutdown_time_seconds)
        opened.services.stop()
        await opened.loopback.close_all("the gRPC server shuts down")

    # --- what it hears of --------------------------------------------------------------------------------------------

    def topics_changed(self, changed: list[TopicConfig], deleted: list[str]) -> None:
        if self._brokers is not None:
            self._brokers.topics_changed(changed, deleted)

    def settings_changed(self) -> None:
        if self._brokers is not None:
            self._brokers.settings_changed()
