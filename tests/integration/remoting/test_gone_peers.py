"""A peer that is gone before its connection was accepted, and one that is given up when there is a connection."""

import asyncio
import logging
import socket
import struct
from collections.abc import Callable, Coroutine

import pytest
import uvloop

from maxq.config.netty_client_config import NettyClientConfig
from maxq.config.netty_server_config import NettyServerConfig
from maxq.errors import RemotingConnectError
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.client import RemotingClient
from maxq.remoting.connection import Connection
from maxq.remoting.server import RemotingServer
from maxq.runtime.files.system import SystemClock, SystemRng
from tests.unit.remoting.peers import until

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing says RST


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_what_was_sent_by_a_peer_that_nobody_can_name_any_more_is_not_done(
    caplog: pytest.LogCaptureFixture, run: Callable[[Coroutine[object, object, str]], str]
) -> None:
    """The system has its bytes and has forgotten its address, unless the loop asked for that when it accepted: rules
    about addresses would be judged without one."""
    asked: list[str] = []
    last = run(_ask_and_go(asked))
    assert "" not in asked and asked[-1] == last
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def _ask_and_go(asked: list[str]) -> str:
    """Many ask and are gone before they are accepted, then one stays, whose address is returned. `asked`: takes the
    addresses of those whose requests are worked off."""

    def answer(connection: Connection, command: RemotingCommand) -> RemotingCommand:
        asked.append(connection.remote_address)
        return command.reply()

    server = RemotingServer(NettyServerConfig(), clock=SystemClock())
    server.register(1, answer)
    port = await server.start("127.0.0.1", 0)
    try:
        for _ in range(20):  # while nobody accepts
            peer = socket.create_connection(("127.0.0.1", port))
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            peer.sendall(RemotingCommand(1).encode())
            peer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)  # accepted after those
        writer.write(RemotingCommand(1).encode())
        await reader.read(1)
        own = writer.get_extra_info("sockname")
        writer.close()
        await until(lambda: not server.connections, "all are gone")
    finally:
        await server.shutdown()
    return f"127.0.0.1:{own[1]}"


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("ends_by", ["giving up", "closing"])
def test_an_attempt_to_connect_that_ends_when_it_has_just_succeeded_leaves_no_connection(
    run: Callable[[Coroutine[object, object, None]], None], ends_by: str
) -> None:
    """Whoever closes the client waits for the end of all its connections."""
    run(_end_an_attempt(ends_by))


async def _end_an_attempt(ends_by: str) -> None:
    server = RemotingServer(NettyServerConfig(), clock=SystemClock())
    server.register(1, lambda connection, command: command.reply())
    address = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"

    class Ending(RemotingClient):
        """A client that ends an attempt between its connection and its success."""

        is_to_end = True

        def connected(self, connection: Connection) -> None:
            super().connected(connection)
            if not self.is_to_end:
                pass
            elif ends_by == "giving up":
                self.give_up_attempt(address, "another one leads")
            else:
                self._connecting[address].cancel()
            self.is_to_end = False

    client = Ending(NettyClientConfig(), clock=SystemClock(), rng=SystemRng())
    try:
        with pytest.raises(RemotingConnectError):
            await client.invoke(address, RemotingCommand(1), 3_000)
        await until(lambda: not client.connections, "it is forgotten")
        assert (await client.invoke(address, RemotingCommand(1), 3_000)).code == 0
        assert len(client.connections) == 1
    finally:
        async with asyncio.timeout(10):
            await client.close()
        await server.shutdown()
