"""Where requests about parts on other brokers go."""

from typing import cast

import pytest

from maxq.broker.tables.static_topic.other_brokers import OtherBrokers
from maxq.broker.tables.static_topic.pull_answers import STANDS_IN
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import RequestRefusedError
from maxq.protocol.body.route import BrokerData, TopicRouteData
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.client import RemotingClient


class Network:
    """A group of brokers, by id, and who was asked."""

    def __init__(self, *ids: int) -> None:
        self.addresses = {number: f"10.0.0.{number}:10911" for number in ids}
        self.asked: list[str] = []

    async def route(self, topic: str) -> TopicRouteData:
        return TopicRouteData(broker_datas=[BrokerData("C", "broker-a", dict(self.addresses))])

    async def invoke(self, address: str, request: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        self.asked.append(address)
        return RemotingCommand(0, {} if address == self.addresses.get(0) else {STANDS_IN: "true"})


async def test_who_reads_is_answered_by_a_slave_while_the_master_is_away() -> None:
    network = Network(1, 2)
    others = OtherBrokers(cast(RemotingClient, network), network.route, lambda: 1_000)
    assert (await others.ask("broker-a", "T", RequestCode.PULL_MESSAGE, {}, or_slave=True)).code == ResponseCode.SUCCESS
    network.addresses[0] = "10.0.0.0:10911"
    await others.ask("broker-a", "T", RequestCode.PULL_MESSAGE, {}, or_slave=True)
    assert network.asked == ["10.0.0.1:10911", "10.0.0.0:10911"]


async def test_only_a_master_is_asked_for_anything_else() -> None:
    """A slave that lacks a popped message, say, has it for gone."""
    network = Network(1)
    others = OtherBrokers(cast(RemotingClient, network), network.route, lambda: 1_000)
    with pytest.raises(RequestRefusedError, match="does not list with a master"):
        await others.ask("broker-a", "T", RequestCode.PULL_MESSAGE, {})
    assert not network.asked
