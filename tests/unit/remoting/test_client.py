"""RemotingClient: connections made when needed, made anew when they break, and name servers."""

import asyncio
from typing import Any

import pytest

from maxq.codes import ResponseCode
from maxq.config.netty_client_config import NettyClientConfig
from maxq.config.netty_server_config import NettyServerConfig
from maxq.errors import LocalProtocolError, RemotingConnectError, RemotingSendError, RemotingTimeoutError
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.client import RemotingClient, split_address
from maxq.remoting.server import Connection, RemotingServer
from maxq.testing.simulation import SimWorld, run_simulation
from tests.unit.remoting.peers import ECHO, LATER, SILENT, calling, serving, until

ASKED = 105


def at(server: RemotingServer) -> str:
    return f"127.0.0.1:{server.port}"


async def test_many_requests_share_one_connection() -> None:
    async with serving() as server, calling() as client:
        answers = await asyncio.gather(
            *[client.invoke(at(server), RemotingCommand(ECHO, body=b"%d" % i), 5000) for i in range(500)]
        )
        assert [answer.body for answer in answers] == [b"%d" % i for i in range(500)]
        assert len(server.connections) == 1


async def test_a_broken_connection_fails_what_waits_and_the_next_request_connects_anew() -> None:
    async with serving() as server, calling() as client:
        waiting = asyncio.create_task(client.invoke(at(server), RemotingCommand(SILENT), 5000))
        await until(lambda: server.connections, "connected")
        await asyncio.sleep(0)
        next(iter(server.connections)).abort("test")
        with pytest.raises(RemotingSendError) as caught:
            await waiting
        assert caught.value.retriable and caught.value.refresh_route
        assert (await client.invoke(at(server), RemotingCommand(ECHO), 5000)).code == 0


async def test_nobody_listening_is_a_connect_error_with_the_address() -> None:
    async with serving() as server:
        port = server.port
    async with calling() as client:
        for ask in (client.invoke, client.invoke_oneway):
            with pytest.raises(RemotingConnectError, match=f"connect to <127.0.0.1:{port}> failed") as caught:
                await ask(f"127.0.0.1:{port}", RemotingCommand(ECHO), 1000)
            assert caught.value.address == f"127.0.0.1:{port}"


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:x", "host:70000", "host:٣"])
async def test_what_is_no_address_is_our_own_fault(address: str) -> None:
    async with calling() as client:
        with pytest.raises(LocalProtocolError, match="host:port"):
            await client.invoke(address, RemotingCommand(ECHO), 1000)


def test_addresses_are_split_at_the_last_colon() -> None:
    assert split_address("[::1]:9876") == ("::1", 9876)
    assert split_address("broker:10911") == ("broker", 10911)


async def test_one_way_requests_arrive() -> None:
    seen: list[RemotingCommand] = []

    def take(connection: Connection, command: RemotingCommand) -> None:
        seen.append(command)

    async with serving(lambda server: server.register(LATER, take)) as server, calling() as client:
        await client.invoke_oneway(at(server), RemotingCommand(LATER, {"a": "b"}))
        await until(lambda: seen, "arrived")
        assert seen[0].is_oneway and seen[0].ext == {"a": "b"}


async def test_a_late_answer_is_a_timeout_and_does_not_disturb_the_next() -> None:
    async with serving() as server, calling() as client:
        await client.invoke(at(server), RemotingCommand(ECHO), 5000)
        noisy = asyncio.create_task(client.invoke(at(server), RemotingCommand(SILENT), 50))
        while not noisy.done():
            await client.invoke(at(server), RemotingCommand(ECHO), 5000)
        with pytest.raises(RemotingTimeoutError):
            await noisy
        assert len(server.connections) == 1  # it answered others: not half open


async def test_a_connection_that_is_silent_until_a_timeout_is_closed() -> None:
    async with serving() as server, calling() as client:
        with pytest.raises(RemotingTimeoutError):
            await client.invoke(at(server), RemotingCommand(SILENT), 30)
        await until(lambda: not server.connections, "closed")
    async with serving() as server, calling(client_close_socket_if_timeout=False) as client:
        with pytest.raises(RemotingTimeoutError):
            await client.invoke(at(server), RemotingCommand(SILENT), 30)
        assert len(server.connections) == 1


async def test_a_server_that_goes_away_is_asked_once_more_on_a_new_connection() -> None:
    asked: list[Connection] = []

    def away_at_first(connection: Connection, command: RemotingCommand) -> RemotingCommand:
        asked.append(connection)
        return command.reply(1500, "please go away") if len(asked) == 1 else command.reply(0, "here")

    async with serving(lambda server: server.register(LATER, away_at_first)) as server, calling() as client:
        assert (await client.invoke(at(server), RemotingCommand(LATER), 5000)).remark == "here"
        assert len(asked) == 2 and asked[0] is not asked[1]
        assert not asked[0].is_closed  # answers of others may still come on it


async def test_a_server_that_goes_away_twice_is_a_send_error() -> None:
    def away(connection: Connection, command: RemotingCommand) -> RemotingCommand:
        return command.reply(1500, "please go away")

    async with serving(lambda server: server.register(LATER, away)) as server:
        for settings in ({}, {"enable_reconnect_for_go_away": False}):
            async with calling(**settings) as client:
                with pytest.raises(RemotingSendError, match="goes away"):
                    await client.invoke(at(server), RemotingCommand(LATER), 5000)


async def test_brokers_ask_clients_over_the_same_connection() -> None:
    def info(connection: Connection, command: RemotingCommand) -> RemotingCommand:
        return command.reply(0, "client info", body=b"{}")

    async with serving() as server, calling() as client:
        client.register(307, info)
        await client.invoke(at(server), RemotingCommand(ECHO), 5000)
        (connection,) = server.connections
        answer = await connection.invoke(RemotingCommand(307), 5000)
        assert (answer.remark, answer.body) == ("client info", b"{}")
        assert (await connection.invoke(RemotingCommand(40), 5000)).code == 3


async def test_closing_fails_what_waits_and_refuses_what_comes() -> None:
    async with serving() as server, calling() as client:
        waiting = asyncio.create_task(client.invoke(at(server), RemotingCommand(SILENT), 5000))
        await until(lambda: server.connections, "connected")
        await client.close()
        with pytest.raises((RemotingSendError, RemotingConnectError)):
            await waiting
        with pytest.raises(RemotingConnectError, match="closed"):
            await client.invoke(at(server), RemotingCommand(ECHO), 5000)
        await until(lambda: not server.connections, "closed")


async def test_name_servers_are_tried_in_turn_and_one_is_kept() -> None:
    async with serving() as gone, serving() as first, serving() as second:
        dead = at(gone)
        await gone.shutdown()
        async with calling() as client:
            with pytest.raises(RemotingConnectError, match="no name server"):
                await client.invoke_name_server(RemotingCommand(ECHO), 1000)
            client.update_name_servers([dead, at(first), at(second)])
            for _ in range(10):
                assert (await client.invoke_name_server(RemotingCommand(ECHO), 3000)).code == 0
            assert len(first.connections) + len(second.connections) == 1
            used, other = (first, second) if first.connections else (second, first)
            client.update_name_servers([at(second), at(first), dead])
            client.update_name_servers([at(first), at(second)])
            await client.invoke_name_server(RemotingCommand(ECHO), 3000)
            assert used.connections and not other.connections
            await used.shutdown()
            assert (await client.invoke_name_server(RemotingCommand(ECHO), 3000)).code == 0
            assert other.connections
            client.update_name_servers([dead])
            with pytest.raises(RemotingConnectError, match="connect to"):
                await client.invoke_name_server(RemotingCommand(ECHO), 3000)
            await until(lambda: not other.connections, "the one no longer listed is left")


async def test_a_name_server_that_hangs_or_refuses_costs_a_moment_once() -> None:
    async with serving() as hangs, serving() as refuses, serving() as answers, calling() as client:
        for server, code in ((hangs, None), (refuses, ResponseCode.SYSTEM_ERROR), (answers, ResponseCode.SUCCESS)):
            server.register(ASKED, lambda _, request, code=code: None if code is None else request.reply(code, "said"))
        client.update_name_servers([at(hangs), at(refuses), at(answers)])
        for _ in range(5):
            assert (await client.invoke_name_server(RemotingCommand(ASKED), 5000)).code == ResponseCode.SUCCESS
        await asyncio.sleep(0)
        client.update_name_servers([at(hangs), at(refuses)])
        answer = await client.invoke_name_server(RemotingCommand(ASKED), 60_000)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "said")
        client.update_name_servers([at(hangs)])
        with pytest.raises(RemotingTimeoutError):
            await client.invoke_name_server(RemotingCommand(ASKED), 50)


async def test_a_name_server_that_does_not_know_a_topic_is_not_the_last_that_is_asked() -> None:
    async with serving() as young, serving() as old, calling() as client:
        young.register(ASKED, lambda _, request: request.reply(ResponseCode.TOPIC_NOT_EXIST))
        old.register(ASKED, lambda _, request: request.reply())
        client.update_name_servers([at(young), at(old)])
        for _ in range(5):
            assert (await client.invoke_name_server(RemotingCommand(ASKED), 5000)).code == ResponseCode.SUCCESS
        await old.shutdown()
        assert (await client.invoke_name_server(RemotingCommand(ASKED), 5000)).code == ResponseCode.TOPIC_NOT_EXIST


class Sim:
    """Server and client of one seed."""

    def __init__(self, world: SimWorld, **settings: Any) -> None:
        self.world = world
        self.server = RemotingServer(NettyServerConfig(), clock=world.clock)
        self.server.register(ECHO, lambda _, command: command.reply(0, None, command.ext, command.body))
        self.server.register(SILENT, lambda _, command: None)
        self.client = RemotingClient(NettyClientConfig(**settings), clock=world.clock, rng=world.rng)
        self.address = "10.0.0.1:10911"

    async def start(self) -> None:
        with self.world.network.on_host("10.0.0.1"):
            await self.server.start("10.0.0.1", 10911)

    async def ask(self, command: RemotingCommand, timeout_ms: int = 3000) -> RemotingCommand:
        with self.world.network.on_host("10.0.0.2"):
            return await self.client.invoke(self.address, command, timeout_ms)

    async def stop(self) -> None:
        await self.client.close()
        await self.server.shutdown()


@pytest.mark.parametrize("seed", range(5))
def test_requests_survive_a_network_that_cuts_and_delays(seed: int) -> None:
    async def main(world: SimWorld) -> None:
        sim = Sim(world)
        await sim.start()
        bodies = [world.rng.bytes(world.rng.below(3000)) for _ in range(200)]
        answers = await asyncio.gather(*[sim.ask(RemotingCommand(ECHO, body=body), 60_000) for body in bodies])
        assert [answer.body_bytes for answer in answers] == bodies
        await sim.stop()

    run_simulation(main, seed=seed)


def test_silent_connections_are_closed_after_two_minutes_and_busy_ones_are_not() -> None:
    async def main(world: SimWorld) -> None:
        sim = Sim(world, client_channel_max_idle_time_seconds=1000)
        await sim.start()
        await sim.ask(RemotingCommand(ECHO))
        (connection,) = sim.server.connections
        for _ in range(10):
            await asyncio.sleep(100)
            await sim.ask(RemotingCommand(ECHO))
        assert not connection.is_closed
        await asyncio.sleep(119)
        assert not connection.is_closed
        await asyncio.sleep(13)
        assert connection.is_closed and connection.close_reason == "idle for 120 s"
        await asyncio.sleep(1)
        assert not sim.server.connections and not sim.client.connections
        assert (await sim.ask(RemotingCommand(ECHO))).code == 0
        await sim.stop()

    run_simulation(main, seed=1)


def test_a_client_closes_silent_connections_too() -> None:
    async def main(world: SimWorld) -> None:
        sim = Sim(world, client_channel_max_idle_time_seconds=60)
        await sim.start()
        await sim.ask(RemotingCommand(ECHO))
        await asyncio.sleep(70)
        assert not sim.client.connections
        await sim.stop()

    run_simulation(main, seed=1)


def test_a_peer_cut_off_by_the_network_is_a_timeout_and_then_a_connect_error() -> None:
    async def main(world: SimWorld) -> None:
        sim = Sim(world)
        await sim.start()
        await sim.ask(RemotingCommand(ECHO))
        world.network.partition("10.0.0.1", "10.0.0.2")
        with pytest.raises(RemotingTimeoutError):
            await sim.ask(RemotingCommand(ECHO), 2000)
        before = world.clock.monotonic_ms()
        with pytest.raises(RemotingConnectError, match=r"connectTimeoutMillis"):
            await sim.ask(RemotingCommand(ECHO), 20_000)
        assert world.clock.monotonic_ms() - before == 3000
        with pytest.raises(RemotingConnectError, match="within 1000 ms"):
            await sim.ask(RemotingCommand(ECHO), 1000)
        await asyncio.sleep(3)  # the attempt that others may still wait for ends
        world.network.heal()
        assert (await sim.ask(RemotingCommand(ECHO), 20_000)).code == 0
        await sim.stop()

    run_simulation(main, seed=3)


@pytest.mark.parametrize("steps", [1, 3])
async def test_who_waits_for_an_attempt_that_is_given_up_gets_an_error_and_is_not_cancelled(steps: int) -> None:
    """Also when the attempt has not begun."""
    async with serving() as server, calling() as client:
        waiting = [asyncio.create_task(client.invoke(at(server), RemotingCommand(ECHO), 5000)) for _ in range(2)]
        for _ in range(steps):
            await asyncio.sleep(0)
        assert client.open_attempts() == [at(server)]
        client.give_up_attempt(at(server), "another one leads")
        for outcome in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(outcome, RemotingConnectError) and "another one leads" in str(outcome)
        assert (await client.invoke(at(server), RemotingCommand(ECHO), 5000)).code == 0


async def test_who_waits_for_a_connection_of_a_client_that_closes_gets_an_error() -> None:
    async with serving() as server, calling() as client:
        waiting = asyncio.create_task(client.invoke(at(server), RemotingCommand(ECHO), 5000))
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(RemotingConnectError, match="the client is closed"):
            await waiting
