"""What a proxy knows of a cluster, with name servers and brokers that only note what they are asked."""

import asyncio
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from maxq.codes import RequestCode, ResponseCode
from maxq.errors import RemotingConnectError
from maxq.protocol.body.heartbeat import HeartbeatData
from maxq.protocol.body.route import BrokerData, QueueData, TopicRouteData
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.proxy.brokers import NotKnownYet, TopicView
from maxq.proxy.cluster import cluster_brokers
from maxq.proxy.cluster.cluster_brokers import ClusterBrokers
from maxq.proxy.statuses import CallRefusedError

_ROUTE = TopicRouteData(
    queue_datas=[QueueData("b", 1, 1, 6, 0)], broker_datas=[BrokerData("c", "b", {0: "198.51.100.1:10911"})]
)


class Remoting:
    """The proxy's connections. Topics whose names begin with `known` exist."""

    def __init__(self) -> None:
        self.looked_up: list[str] = []
        self.beats: list[list[str]] = []
        self.is_down = False

    async def invoke_name_server(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        if self.is_down:
            raise RemotingConnectError("no name server can be reached")
        name = command.ext["topic"]
        self.looked_up.append(name)
        await asyncio.sleep(0)
        if not name.startswith("known"):
            return RemotingCommand(ResponseCode.TOPIC_NOT_EXIST)
        return RemotingCommand(ResponseCode.SUCCESS, {}, _ROUTE.encode())

    async def close(self) -> None: ...

    async def invoke(self, address: str, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        if command.code == RequestCode.HEART_BEAT:
            beat = HeartbeatData.decode(command.body_bytes)
            self.beats.append([producer.group_name for producer in beat.producer_data_set])
            return RemotingCommand(ResponseCode.SUCCESS)
        return RemotingCommand(ResponseCode.SUCCESS, {}, TopicConfig(command.ext["topic"]).encode())


def _brokers(remoting: Any) -> ClusterBrokers:
    return ClusterBrokers(remoting, lambda: "c", "proxy", lambda: 1 << 20)


async def _topic(brokers: ClusterBrokers, name: str) -> TopicView | None:
    try:
        return brokers.topic(name)
    except NotKnownYet as wait:
        await wait.ready
        return brokers.topic(name)


async def test_a_name_server_that_is_down_is_no_topic_that_does_not_exist() -> None:
    remoting = Remoting()
    brokers = _brokers(remoting)
    remoting.is_down = True
    with pytest.raises((CallRefusedError, RemotingConnectError)) as raised:
        await _topic(brokers, "known")
    assert "no name server can be reached" in str(raised.value)
    remoting.is_down = False
    assert await _topic(brokers, "unknown") is None


async def test_many_unknown_names_do_not_drive_out_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_brokers, "_MOST_KEPT", 4)
    remoting = Remoting()
    brokers = _brokers(remoting)
    assert await _topic(brokers, "known") is not None
    for number in range(10):
        await _topic(brokers, f"no{number}")
        assert brokers.topic("known") is not None
    assert remoting.looked_up.count("known") == 1


async def test_brokers_are_told_of_topics_that_exist_and_that_clients_send_to() -> None:
    remoting = Remoting()
    brokers = _brokers(remoting)
    brokers.keep_producers(["no1", "known1", "known2"])
    await asyncio.sleep(0.05)
    assert remoting.beats == [["known1", "known2"]]
    brokers.sent_to = lambda: {"no1", "known2"}
    remoting.looked_up.clear()
    await brokers._round_of_producers()
    assert (remoting.beats[1:], remoting.looked_up) == ([["known2"]], [])  # first the beat, then the rest
    await brokers.stop()


async def test_of_requests_only_their_numbers_are_kept_until_they_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_brokers, "_LONGEST_ANSWER_S", -1.0)
    brokers = _brokers(Remoting())
    heard: list[Any] = []
    waiters: dict[int, Any] = {}
    link: Any = SimpleNamespace(waiters=waiters, forget=waiters.pop)
    waiters[1] = heard.append
    answered = weakref.ref(asked := Answered())
    brokers.asked(link, 1, heard.append)
    brokers.asked(link, 2, asked)
    del asked
    assert answered() is None
    brokers._give_up()
    assert heard == [None] and not waiters


class Answered:
    """What hears of an answer, and has heard it."""

    def __call__(self, reply: RemotingCommand | None) -> None: ...
