"""The shipped name server in the simulator, where minutes pass in milliseconds."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import PurePath

import pytest

from maxq.codes import RequestCode, ResponseCode
from maxq.config import NamesrvConfig, NamesrvSettings, NettyServerConfig
from maxq.namesrv.controller import NamesrvController
from maxq.namesrv.kv_config_manager import KVConfigManager
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.server import RemotingServer
from maxq.testing.sim_disk import PowerLoss, SimDisk
from maxq.testing.simulation import SimWorld, run_simulation
from tests.integration.namesrv.harness import Peer, asking_route, registering

IDENTITY = {"clusterName": "DefaultCluster", "brokerAddr": "10.0.0.1:10911", "brokerName": "broker-a", "brokerId": "0"}
KV_PATH = PurePath("/namesrv/kvConfig.json")

Scene = Callable[[SimWorld, Peer, Peer], Awaitable[None]]


def play(scene: Scene, *, seed: int = 1, idle_seconds: int = 600) -> None:
    """Run `scene(world, client, broker)` against a name server on a simulated machine."""

    async def main(world: SimWorld) -> None:
        settings = NamesrvSettings(
            NamesrvConfig(kv_config_path=str(KV_PATH)),
            NettyServerConfig(bind_address="127.0.0.1", server_channel_max_idle_time_seconds=idle_seconds),
        )
        server = NamesrvController(settings, disk=world.disk, clock=world.clock, rng=world.rng)
        await server.start()
        async with await Peer.connect(server.port) as client, await Peer.connect(server.port) as broker:
            await scene(world, client, broker)
        await server.shutdown()

    run_simulation(main, seed=seed)


async def has_route(client: Peer) -> bool:
    answer = await client.ask(asking_route("T"))
    assert answer.code in (ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST)
    return answer.code == ResponseCode.SUCCESS


@pytest.mark.parametrize("seed", range(5))
def test_a_frozen_broker_is_forgotten_within_125_seconds_and_not_before_120(seed: int) -> None:
    async def scene(world: SimWorld, client: Peer, broker: Peer) -> None:
        start = world.loop.time()
        await broker.ask(registering("T", "U"))
        while await has_route(client):  # noqa: ASYNC110  # what is waited for is remote
            await asyncio.sleep(0.5)
        assert 120 <= world.loop.time() - start <= 126
        assert await broker.at_end()

    play(scene, seed=seed)


@pytest.mark.parametrize("code", [RequestCode.QUERY_DATA_VERSION, RequestCode.BROKER_HEARTBEAT])
def test_a_sign_of_life_alone_keeps_a_broker(code: RequestCode) -> None:
    async def scene(world: SimWorld, client: Peer, broker: Peer) -> None:
        await broker.ask(registering("T", "U", timeout_ms=10_000))
        for _ in range(100):
            await asyncio.sleep(9)
            answer = await broker.ask(RemotingCommand(code, dict(IDENTITY), DataVersion(1, 0, 1000).encode()))
            assert answer.code == 0
            assert await has_route(client)
        await asyncio.sleep(20)
        assert not await has_route(client)

    play(scene)


def test_a_connection_that_falls_silent_takes_its_broker_along() -> None:
    async def scene(world: SimWorld, client: Peer, broker: Peer) -> None:
        await broker.ask(registering("T", "U", timeout_ms=10**9))
        start = world.loop.time()
        while await has_route(client):  # noqa: ASYNC110  # what is waited for is remote
            await asyncio.sleep(1)
        assert 120 <= world.loop.time() - start <= 145

    play(scene, idle_seconds=120)


def test_all_of_a_group_hear_that_a_silent_master_is_gone_though_one_of_them_cannot_be_reached() -> None:
    heard: list[tuple[int, dict[str, str]]] = []

    async def main(world: SimWorld) -> None:
        settings = NamesrvSettings(
            NamesrvConfig(notify_min_broker_id_changed=True), NettyServerConfig(bind_address="127.0.0.1")
        )
        names = NamesrvController(settings, disk=world.disk, clock=world.clock, rng=world.rng)
        await names.start()
        slaves = [RemotingServer(NettyServerConfig(), clock=world.clock) for _ in range(2)]
        addresses = {0: "10.0.0.1:10911", 1: "127.0.0.1:1"}  # nobody listens there
        for broker_id, slave in enumerate(slaves, 2):
            slave.register(
                RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE,
                lambda _connection, request, broker_id=broker_id: heard.append((broker_id, request.ext)),  # type: ignore[misc]
            )
            addresses[broker_id] = f"127.0.0.1:{await slave.start('127.0.0.1', 0)}"
        async with await Peer.connect(names.port) as alive, await Peer.connect(names.port) as silent:
            for broker_id in (1, 2, 3, 0):
                peer, timeout_ms = (alive, 10**9) if broker_id else (silent, 20_000)
                address = addresses[broker_id]
                await peer.ask(
                    registering("T", "U", addr=address, broker_id=broker_id, acting=True, timeout_ms=timeout_ms)
                )
            await asyncio.sleep(1)
            heard.clear()  # that the master had come
            await asyncio.sleep(30)
        gone = {"minBrokerId": "1", "minBrokerAddr": addresses[1], "offlineBrokerAddr": addresses[0]}
        assert sorted(heard, key=lambda notice: notice[0]) == [(2, gone), (3, gone)]
        for server in slaves:
            await server.shutdown()
        await names.shutdown()

    run_simulation(main, seed=1)


@pytest.mark.parametrize("seed", range(30))
def test_an_answered_key_value_survives_a_power_loss(seed: int) -> None:
    answered: list[str] = []
    disks: list[SimDisk] = []

    async def scene(world: SimWorld, client: Peer, broker: Peer) -> None:
        disks.append(world.disk)
        world.disk.cut_power_after(1 + seed)
        for i in range(40):
            item = {"namespace": "NS", "key": f"k{i}", "value": str(i)}
            answer = await client.ask(RemotingCommand(RequestCode.PUT_KV_CONFIG, item))
            if answer.code == 0:
                answered.append(f"k{i}")

    with pytest.raises(PowerLoss):
        play(scene, seed=seed)
    table = KVConfigManager(disks[0].boot(), KV_PATH)
    table.load()
    assert [key for key in answered if table.get("NS", key) is None] == []
    assert seed < 10 or answered
