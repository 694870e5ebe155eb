"""What a client remembers of topics that a program has used once."""

from typing import cast

import pytest

from maxq.client.instance.broker_table import BrokerTable
from maxq.client.instance.client_api import MQClientAPI
from maxq.client.instance.topic_routes import UNUSED_ROUNDS, TopicRoutes
from maxq.errors import NoRouteError, RemoteProtocolError
from maxq.protocol.body.route import BrokerData, QueueData, TopicRouteData
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_rng import SimRng


class NameServer:
    """Knows every topic but those that begin with `No`; `asked` says how often it was asked for each."""

    def __init__(self) -> None:
        self.asked: dict[str, int] = {}
        self.order_conf: dict[str, str] = {}

    async def topic_route(self, topic: str) -> TopicRouteData:
        self.asked[topic] = self.asked.get(topic, 0) + 1
        if topic.startswith("No"):
            raise NoRouteError(17, f"no route of {topic}")
        return TopicRouteData(
            self.order_conf.get(topic),
            [QueueData("b", 2, 2, 6)],
            [BrokerData("c", "b", {0: "10.0.0.1:10911"})],
        )


def routes_of(name_server: NameServer) -> TopicRoutes:
    return TopicRoutes(cast(MQClientAPI, name_server), BrokerTable(SimClock()), SimRng(1))


def sizes(routes: TopicRoutes) -> dict[str, int]:
    return {name: len(table) for name, table in vars(routes).items() if isinstance(table, dict)}


async def test_topics_that_were_sent_to_once_are_forgotten_and_no_longer_asked_for() -> None:
    name_server = NameServer()
    routes = routes_of(name_server)
    for number in range(100):
        await routes.publish_info(f"T{number}", None, 4)
        await routes.publish_info(f"NotYet{number}", "TBW102", 4)
    for _ in range(UNUSED_ROUNDS + 1):
        await routes.update_all(["read"])
        assert routes.known_publish_info("T7") is not None
    asked = dict(name_server.asked)
    await routes.update_all(["read"])
    assert {topic for topic in asked if name_server.asked[topic] > asked[topic]} == {"read", "T7"}
    assert max(sizes(routes).values()) == 2
    assert (await routes.publish_info("T8", None, 4)).queues  # it is asked for again


@pytest.mark.parametrize("wrong", ["b", "b:", "b:x", "b:-1", "b:2;c:70000"])
async def test_a_wrong_order_configuration_of_one_topic_stands_in_nobodys_way(wrong: str) -> None:
    """No topic behind it in the alphabet got its new route."""
    name_server = NameServer()
    routes = routes_of(name_server)
    for topic in ("A", "B", "C"):
        await routes.publish_info(topic, None, 4)
    name_server.order_conf = {"A": "b:1;", "B": wrong, "C": "b:3"}
    await routes.update_all([])
    assert [len((await routes.publish_info(topic, None, 4)).queues) for topic in ("A", "B", "C")] == [1, 2, 3]
    fresh = routes_of(name_server)
    with pytest.raises(RemoteProtocolError, match=r"orderTopicConf of topic B is .* write `brokerA:4;brokerB:4`"):
        await fresh.publish_info("B", None, 4)


async def test_what_a_consumer_reads_is_never_forgotten() -> None:
    routes = routes_of(NameServer())
    for _ in range(3 * UNUSED_ROUNDS):
        await routes.update_all(["read"])
    assert routes.known_subscribe_queues("read")


async def test_brokers_that_are_gone_leave_neither_version_nor_suspicion() -> None:
    clock = SimClock()
    brokers = BrokerTable(clock)
    for number in range(50):
        address = f"10.0.0.{number}:10911"
        brokers.replace("b", {0: address})
        brokers.versions[address] = 1
        brokers.suspect(address)
        clock.advance_ns(100 * 10**9)
        route = TopicRouteData(broker_datas=[BrokerData("c", "b", {0: address})])
        brokers.forget_offline([route])
    assert len(brokers.versions) == len(brokers._suspects) == 1
