"""RemotingServer: listens on one or several ports and answers requests.

    server = RemotingServer(config, clock=clock, tls=ServerTls(config, disk))
    server.register(RequestCode.HEART_BEAT, client_manage.heartbeat)
    server.register_default(admin.process)
    port = await server.start("0.0.0.0", 10911)
    await server.listen("0.0.0.0", port - 2, excluded_codes=PULL_CODES)     # VIP

Dispatch of a request: no processor, or a code its port excludes → 3; the server goes away and the client is newer than
5.3.1 → 1500; the gate refuses → 2; else the processor. One-way requests run the same way and are never answered.

Source:
    remoting/netty/NettyRemotingServer.java.
"""

import asyncio
import logging
import ssl
from collections.abc import Iterable
from typing import Final

from maxq.codes import ResponseCode
from maxq.config.host import is_loopback
from maxq.config.netty_server_config import NettyServerConfig
from maxq.protocol.frame.body_limits import refusal_of_body
from maxq.protocol.frame.remoting_command import MAX_HEADER_SIZE, RemotingCommand
from maxq.remoting.addresses import address_list
from maxq.remoting.connection import BatchPath, Connection, Processor
from maxq.remoting.endpoint import ConnectionListener, Gate, RemotingEndpoint
from maxq.remoting.peer_addresses import PeerAddresses
from maxq.remoting.tls.contexts import ServerTls
from maxq.runtime.interfaces import Clock
from maxq.runtime.refusals import Cause, explain

__all__ = ["BatchPath", "Connection", "ConnectionListener", "Gate", "Processor", "RemotingServer"]

log: Final = logging.getLogger("maxq.remoting")

_HIGH_MARK: Final = 1024 * 1024


class RemotingServer(RemotingEndpoint):
    """Listens and serves requests; see the module's text. `port` is the first port on which it listens."""

    def __init__(
        self,
        config: NettyServerConfig,
        *,
        clock: Clock,
        tls: ServerTls | None = None,
        peers: PeerAddresses | None = None,
    ) -> None:
        """
        Args:
            tls: None: connections that begin with TLS are closed.
            peers: who may connect; None: the port is for clients, who are judged by their requests.

        Raises:
            ConfigError: proxyProtocolTrusted lists no addresses.
        """
        high = config.write_buffer_high_water_mark or _HIGH_MARK
        super().__init__(
            clock,
            idle_seconds=config.server_channel_max_idle_time_seconds,
            frame_limit=config.frame_max_length,
            header_limit=MAX_HEADER_SIZE,
            unsent_limit=config.max_unsent_bytes,
            unfinished_limit=config.max_unfinished_bytes,
            write_marks=(high, config.write_buffer_low_water_mark or high // 4),
            request_limit=config.server_async_semaphore_value,
        )
        self.must_be_known = True
        self._config = config
        self._tls = tls
        self._peers = peers
        self._is_trusted = address_list("proxyProtocolTrusted", config.proxy_protocol_trusted)
        self._listening: list[asyncio.AbstractServer] = []
        self._is_full = False  # the last connection was one too many, which is logged once
        self.port = 0

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port (a free one for 0). Raises OSError, which names the port, if it is in use."""
        self.port = await self.listen(host, port)
        return self.port

    async def listen(self, host: str, port: int, *, excluded_codes: Iterable[int] = ()) -> int:
        """Listen on one more port, on which the excluded codes are not served."""
        excluded = frozenset(int(code) for code in excluded_codes)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: Connection(self, excluded_codes=excluded), host, port, backlog=self._config.server_socket_backlog
        )
        self._listening.append(server)
        taken = server.sockets[0].getsockname()[1]
        log.info("listening on %s:%d", host, taken)
        if self.guard is None and self._peers is None and not is_loopback(host):
            log.warning(
                "%s:%d is open to other machines WITHOUT access control: anyone who can reach it may do everything; "
                "switch access control on, listen on 127.0.0.1, or close it with a firewall",
                host, taken,
            )  # fmt: skip
        return int(taken)

    async def shutdown(self) -> None:
        """Stop listening and close every connection. With enableShutdownGracefully, newer clients are sent elsewhere
        for shutdownWaitTimeSeconds before."""
        self._goes_away = True
        if self._config.enable_shutdown_gracefully and self.connections:
            self.batch_path = self.batched_reads.path = None  # so that sends, too, are told to go away
            await asyncio.sleep(self._config.shutdown_wait_time_seconds)
        for server in self._listening:
            server.close()
        await self.close_all("the server shuts down")
        for server in self._listening:
            await server.wait_closed()
        self._listening.clear()

    def connected(self, connection: Connection) -> None:
        """Refuse a connection if descriptors run out. The system hands out the lowest free number, so a high one means
        that few are left: files of the store, without which the broker ends, come first."""
        super().connected(connection)
        if self._peers is not None and not self._peers.admits(connection.peer_ip, f"port {self.port}"):
            connection.abort("peerAddresses does not list it")
            return
        highest = self._config.highest_descriptor
        if highest and connection.descriptor > highest:
            reason = explain(
                Cause.CONNECTIONS,
                f"too many connections: {len(self.connections)}, this one's descriptor is {connection.descriptor}",
                limit=f"{highest} (highestDescriptor)",
                remedy="disconnected; close connections, or raise the limit of open files (ulimit -n, LimitNOFILE)",
            )
            if not self._is_full:
                log.warning("%s %s", connection.remote_address, reason)
            connection.abort(reason)
        self._is_full = connection.is_closed

    def request_received(self, connection: Connection, command: RemotingCommand) -> None:
        """Refuse a body that is longer than its code may have before any other part reads it, a signature check
        included."""
        if type(command.body) is bytes and (why := refusal_of_body(command.code, command.body)) is not None:
            self._reply(connection, command, command.reply(ResponseCode.INVALID_PARAMETER, why))
            return
        super().request_received(connection, command)

    def server_tls(self) -> ssl.SSLContext | None:
        return None if self._tls is None else self._tls.context()

    def plain_allowed(self) -> bool:
        return self._tls is None or self._tls.plain_allowed

    def trusts_balancer(self, address: str) -> bool:
        return self._is_trusted(address)

    def looked(self) -> None:
        if self._tls is not None:
            self._tls.reload_if_changed()
