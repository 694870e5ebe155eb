"""What a broker has answered is known at the name servers, however late they take it; and one that hangs holds an
answer up for a moment only."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import PurePath
from typing import Final

import pytest

from maxq.client.admin.admin import Admin
from maxq.client.client_config import ClientConfig, ClientEnvironment, ProducerConfig
from maxq.client.producer.producer import Producer
from maxq.errors import ClientError
from maxq.protocol.body.topic_config import PERM_READ, TopicConfig
from maxq.protocol.message.message import Message
from maxq.testing.sim_network import LinkSettings
from maxq.testing.simulation import SimWorld, run_simulation
from tests.simulation.servers.sim_server import CLIENT, NAMESRV, NameServer, SimServer

pytestmark = pytest.mark.usefixtures("quiet")

BROKER, SECOND_NAMESRV = "10.0.0.1", "10.0.0.8"
BROKER_ADDRESS: Final = f"{BROKER}:10911"
QUICK: Final = LinkSettings(delay_ms=(0.1, 1))
LATE: Final = LinkSettings(delay_ms=(100, 100), chunk_bytes=(65536, 65536))


class Broker(SimServer):
    name = "broker"

    def __init__(self, world: SimWorld, name_servers: list[str]) -> None:
        super().__init__(world, BROKER, world.rng.fork("broker"), 0)
        self._name_servers = name_servers

    def broker_properties(self) -> dict[str, str]:
        return {"namesrvAddr": ";".join(f"{address}:9876" for address in self._name_servers)}


class Scene:
    """A broker, its name servers, an operator who knows all of them, and a producer that asks the first one."""

    def __init__(self, world: SimWorld, name_servers: list[str]) -> None:
        world.network.default_link = QUICK
        self.network = world.network
        self._loop = world.loop
        self.servers: list[SimServer] = [
            NameServer(world, address, world.rng.fork(address), -1) for address in name_servers
        ]
        self.servers.append(Broker(world, name_servers))
        environment = ClientEnvironment(world.clock, world.rng, world.disk, CLIENT, 9, PurePath("/home"))
        self.admin = Admin(
            ClientConfig(namesrv_addr=";".join(f"{address}:9876" for address in name_servers)), environment
        )
        config = ProducerConfig(namesrv_addr=f"{name_servers[0]}:9876", producer_group="P")
        self.producer = Producer(config, environment)

    async def play(self, act: Callable[["Scene"], Awaitable[None]]) -> None:
        for server in self.servers:
            await server.start()
        with self.network.on_host(CLIENT):
            await asyncio.ensure_future(self._play(act))
        self.network.heal()
        for server in reversed(self.servers):
            await server.stop()

    async def _play(self, act: Callable[["Scene"], Awaitable[None]]) -> None:
        async with self.admin, self.producer:
            await act(self)

    async def seconds_of(self, change: Awaitable[object]) -> float:
        begin = self._loop.time()
        await change
        return self._loop.time() - begin

    async def knows(self, topic: str) -> bool:
        return topic in await self.admin.topics.names()


def play(act: Callable[[Scene], Awaitable[None]], *name_servers: str) -> None:
    async def story(world: SimWorld) -> None:
        await Scene(world, list(name_servers)).play(act)

    run_simulation(story, seed=1, time_limit_s=600)


async def _one(scene: Scene) -> None:
    await scene.admin.topics.create_in_cluster("C", TopicConfig("T", 1, 1))


async def _list(scene: Scene) -> None:
    await scene.admin.topics.create_list(BROKER_ADDRESS, [TopicConfig("S", 1, 1), TopicConfig("T", 1, 1)])


async def _static(scene: Scene) -> None:
    await scene.admin.static_topics.create("T", 2, ["broker-a"])


async def _first_message(scene: Scene) -> None:
    await scene.producer.send(Message("T", b"x"))


@pytest.mark.parametrize("make", [_one, _list, _static, _first_message])
def test_a_topic_that_was_made_is_known_at_a_name_server_that_takes_it_late(
    make: Callable[[Scene], Awaitable[None]],
) -> None:
    async def act(scene: Scene) -> None:
        scene.network.set_link(BROKER, NAMESRV, LATE)
        await make(scene)
        assert await scene.knows("T")

    play(act, NAMESRV)


def test_a_topic_that_another_client_is_making_is_known_when_this_one_is_answered() -> None:
    async def act(scene: Scene) -> None:
        scene.network.set_link(BROKER, NAMESRV, LATE)
        other = asyncio.ensure_future(scene.admin.topics.create(BROKER_ADDRESS, TopicConfig("T", 1, 1)))
        await asyncio.sleep(0.05)
        await scene.admin.topics.create(BROKER_ADDRESS, TopicConfig("T", 1, 1))
        assert await scene.knows("T")
        await other

    play(act, NAMESRV)


def test_a_permission_that_was_changed_is_known_at_a_name_server_that_takes_it_late() -> None:
    async def act(scene: Scene) -> None:
        await _one(scene)
        scene.network.set_link(BROKER, NAMESRV, LATE)
        await scene.admin.brokers.update_config(BROKER_ADDRESS, {"brokerPermission": str(PERM_READ)})
        (queues,) = (await scene.admin.topics.route("T")).queue_datas
        assert queues.perm == PERM_READ

    play(act, NAMESRV)


def test_the_only_name_server_hangs_and_the_answer_comes_after_a_second() -> None:
    async def act(scene: Scene) -> None:
        scene.network.partition(BROKER, NAMESRV)
        for _ in range(3):
            assert await scene.seconds_of(scene.admin.topics.create(BROKER_ADDRESS, TopicConfig("T", 1, 1))) < 1.3
        scene.network.heal()
        async with asyncio.timeout(60):
            while not await scene.knows("T"):  # noqa: ASYNC110 - virtual time costs nothing
                await asyncio.sleep(0.1)

    play(act, NAMESRV)


def test_one_of_two_name_servers_hangs_and_the_answer_comes_soon_after_the_other_knows() -> None:
    async def act(scene: Scene) -> None:
        scene.network.partition(BROKER, SECOND_NAMESRV)
        for number in range(3):
            topic = TopicConfig(f"T{number}", 1, 1)
            assert await scene.seconds_of(scene.admin.topics.create(BROKER_ADDRESS, topic)) < 0.3
            assert await scene.knows(topic.topic_name)

    play(act, NAMESRV, SECOND_NAMESRV)


def test_a_name_server_that_is_away_is_not_waited_for() -> None:
    async def act(scene: Scene) -> None:
        scene.servers[0].machine.kill()
        await asyncio.sleep(5)
        assert await scene.seconds_of(scene.admin.topics.create(BROKER_ADDRESS, TopicConfig("T", 1, 1))) < 0.3

    play(act, NAMESRV)


def test_a_topic_that_is_deleted_at_its_broker_alone_leaves_the_routes() -> None:
    async def act(scene: Scene) -> None:
        await _list(scene)
        await scene.admin.topics.delete_in_broker(BROKER_ADDRESS, "T")
        await scene.admin.topics.create(BROKER_ADDRESS, TopicConfig("S", 2, 2))
        await asyncio.sleep(35)
        assert not await scene.knows("T")
        assert await scene.knows("S")

    play(act, NAMESRV)


def test_a_name_server_that_is_away_keeps_no_other_from_being_told() -> None:
    async def act(scene: Scene) -> None:
        await _list(scene)
        scene.servers[0].machine.kill()
        with pytest.raises(ClientError, match=f"name server {SECOND_NAMESRV}:9876 was told, but not {NAMESRV}:9876"):
            await scene.admin.topics.delete("T", "C")
        assert not await scene.knows("T")

    play(act, NAMESRV, SECOND_NAMESRV)
