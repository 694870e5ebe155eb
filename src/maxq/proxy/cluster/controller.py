"""ProxyController: a proxy that runs by itself, in front of the brokers of a cluster.

Source:
    proxy/ProxyStartup.java, with proxyMode CLUSTER.
"""

from maxq.config.settings import ProxySettings
from maxq.errors import ConfigError
from maxq.proxy.cluster.cluster_brokers import ClusterBrokers
from maxq.proxy.services import Services
from maxq.remoting.addresses import address_list
from maxq.remoting.client import RemotingClient
from maxq.remoting.grpc.server import GrpcServer
from maxq.remoting.tls.contexts import ClientTls, ServerTls
from maxq.runtime.interfaces import Clock, Disk, Rng


class ProxyController:
    """One proxy.

    Args:
        settings: name servers and port among them.
        own_id: what it calls itself at brokers.

    Raises:
        ConfigError: no name server is given, or TLS files cannot be used.
    """

    def __init__(self, settings: ProxySettings, own_id: str, *, disk: Disk, clock: Clock, rng: Rng) -> None:
        addresses = [address.strip() for address in settings.cluster.namesrv_addr.split(";") if address.strip()]
        if not addresses:
            raise ConfigError("a proxy needs name servers: give -n HOST:PORT, or namesrvAddr in its settings file")
        tls = ClientTls(settings.client, disk) if settings.client.use_tls else None
        remoting = RemotingClient(settings.client, clock=clock, rng=rng, tls=tls)
        remoting.update_name_servers(addresses)
        self._settings = settings
        self._brokers = ClusterBrokers(
            remoting,
            lambda: settings.cluster.rocketmq_cluster_name,
            own_id,
            lambda: settings.cluster.max_message_size,
        )
        self._services = Services(self._brokers, lambda: settings.proxy, clock, None)
        self._services.answer_brokers(remoting)
        self._brokers.sent_to = self._services.clients.topics_sent_to
        server = settings.server
        self._server = GrpcServer(
            self._services.methods(),
            tls=ServerTls(server, disk, protocols=("h2",)),
            is_trusted=address_list("proxyProtocolTrusted", server.proxy_protocol_trusted),
            message_limit=settings.proxy.grpc_max_inbound_message_size,
            unsent_limit=server.max_unsent_bytes,
            unfinished_limit=server.max_unfinished_bytes,
            idle_seconds=server.server_channel_max_idle_time_seconds,
            highest_descriptor=server.highest_descriptor,
            backlog=server.server_socket_backlog,
        )
        self._server.end_of_pass = self._services.pass_ended

    @property
    def port(self) -> int:
        """Return the port on which gRPC clients connect, once it has started."""
        return self._server.port

    async def start(self) -> None:
        """Listen. Raises OSError, which names the port, if it is in use."""
        settings = self._settings
        self._brokers.port = await self._server.start(settings.server.bind_address, settings.proxy.grpc_server_port)
        self._brokers.start()
        self._services.start()

    async def shutdown(self) -> None:
        """Tell clients to go elsewhere, end the calls under way and close."""
        self._services.end_waiting()
        await self._server.stop(self._settings.proxy.grpc_shutdown_time_seconds)
        self._services.stop()
        await self._brokers.stop()
