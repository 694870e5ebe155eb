"""Where requests about parts on other brokers go."""

import asyncio
from typing import cast

import pytest

from maxq.broker.tables.static_topic.other_brokers import OtherBrokers
from maxq.broker.tables.static_topic.pull_answers import STANDS_IN, global_pull_answer
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import RequestRefusedError
from maxq.protocol.body.route import BrokerData, TopicRouteData
from maxq.protocol.body.static_topic import LogicQueueMappingItem as Item
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.client import RemotingClient
from maxq.testing.simulation import SimWorld, run_simulation


class Network:
    """A group of brokers, by id, and who was asked. RocketMQ's slaves do not say that they are some.

    Attributes:
        timeouts: how many ms each had to answer.
        route_seconds: how long the name server takes.
    """

    def __init__(self, *ids: int) -> None:
        self.answer: dict[str, str] = {}
        self.addresses = {number: f"10.0.0.{number}:10911" for number in ids}
        self.asked: list[str] = []
        self.timeouts: list[int] = []
        self.route_seconds = 0.0

    async def route(self, topic: str) -> TopicRouteData:
        await asyncio.sleep(self.route_seconds)
        return TopicRouteData(broker_datas=[BrokerData("C", "broker-a", dict(self.addresses))])

    async def invoke(self, address: str, request: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        self.asked.append(address)
        self.timeouts.append(timeout_ms)
        return RemotingCommand(ResponseCode.PULL_NOT_FOUND if self.answer else 0, dict(self.answer))


async def test_who_reads_is_answered_by_a_slave_while_the_master_is_away() -> None:
    network = Network(1, 2)
    others = OtherBrokers(cast(RemotingClient, network), network.route, lambda: 1_000)
    answer = await others.ask("broker-a", "T", RequestCode.PULL_MESSAGE, {}, or_slave=True)
    assert (answer.code, answer.ext) == (ResponseCode.SUCCESS, {STANDS_IN: "true"})
    network.addresses[0] = "10.0.0.0:10911"
    for _ in range(2):
        answer = await others.ask("broker-a", "T", RequestCode.PULL_MESSAGE, {}, or_slave=True)
        assert STANDS_IN not in answer.ext
    assert network.asked == ["10.0.0.1:10911", "10.0.0.0:10911", "10.0.0.0:10911"]


async def test_a_slave_of_rocketmq_that_lacks_the_end_of_a_part_sends_nobody_on() -> None:
    network = Network(1)
    network.answer = {"nextBeginOffset": "90", "minOffset": "0", "maxOffset": "90"}
    others = OtherBrokers(cast(RemotingClient, network), network.route, lambda: 1_000)
    answer = await others.ask("broker-a", "T", RequestCode.PULL_MESSAGE, {}, or_slave=True)
    items = [Item(0, 3, "broker-a", 0, 0, 100), Item(1, 7, "broker-b", 100)]
    reader = global_pull_answer(answer, items, items[0], 90)
    assert (reader.code, reader.ext["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, "90")


async def test_only_a_master_is_asked_for_anything_else() -> None:
    """A slave that lacks a popped message, say, has it for gone."""
    network = Network(1)
    others = OtherBrokers(cast(RemotingClient, network), network.route, lambda: 1_000)
    with pytest.raises(RequestRefusedError, match="does not list with a master"):
        await others.ask("broker-a", "T", RequestCode.PULL_MESSAGE, {})
    assert not network.asked


def test_who_has_little_time_waits_no_longer_for_name_server_and_broker_together() -> None:
    async def story(world: SimWorld) -> list[int]:
        network = Network(0)
        network.route_seconds = 0.5

        async def ask(within_seconds: float) -> None:
            others = OtherBrokers(cast(RemotingClient, network), network.route, lambda: 1_000)
            await others.ask("broker-a", "T", RequestCode.LOCK_BATCH_MQ, {}, until=world.loop.time() + within_seconds)

        await ask(0.7)
        await ask(5.0)
        with pytest.raises(RequestRefusedError, match="did not tell in time where broker broker-a is"):
            await ask(0.3)
        return network.timeouts

    assert run_simulation(story, seed=1) == [200, 1_000]
