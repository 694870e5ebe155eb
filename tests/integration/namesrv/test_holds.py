"""What concerns all topics of a broker is worked off in turns: a name server, where nobody signs, serves others."""

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from maxq.codes import RequestCode as Code
from maxq.namesrv.controller import NamesrvController
from maxq.protocol.body.topic_config import TopicList
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.runtime.holds import Holds
from tests.integration.namesrv.harness import Peer, asking_route, name_server, registering
from tests.unit.namesrv.registrations import registration
from tests.watched_loop import watch

TOPICS = 50_000
STRANGER_MS = 30.0  # 20, and half as much for what the measure of the machine's speed misses
OF_BROKER = {"brokerName": "big", "brokerAddr": "10.0.0.9:10911", "clusterName": "DefaultCluster", "brokerId": "0"}


@pytest.fixture
def tables_set_aside() -> Iterator[None]:
    """As servers do with their tables (cli/gc_freeze.py)."""
    yield
    gc.unfreeze()


def fill(server: NamesrvController, connection: object = None) -> Holds:
    """Enter a broker `big` with as many topics as a registration may have. Returns what holds the loop from now on."""
    server._routes.register_broker(
        registration([f"T{n}" for n in range(TOPICS)], name="big", addr="10.0.0.9:10911", connection=connection),
        now_ms=server._clock.monotonic_ms(),
    )
    gc.collect()
    gc.freeze()
    holds = server._server.holds
    watch(holds, STRANGER_MS)
    return holds


@pytest.mark.usefixtures("tables_set_aside")
async def test_what_changes_all_topics_of_a_broker_keeps_nobody_waiting(tmp_path: Path) -> None:
    async with name_server(tmp_path) as server, await Peer.connect(server.port) as peer:
        holds = fill(server)
        for code, field, perm in (
            (Code.WIPE_WRITE_PERM_OF_BROKER, "wipeTopicCount", 4),
            (Code.ADD_WRITE_PERM_OF_BROKER, "addTopicCount", 6),
        ):
            answer = await peer.ask(RemotingCommand(code, {"brokerName": "big"}))
            assert answer.ext == {field: str(TOPICS)}
            assert b'"perm":%d' % perm in (await peer.ask(asking_route(f"T{TOPICS - 1}"))).body_bytes
        assert (await peer.ask(RemotingCommand(Code.UNREGISTER_BROKER, OF_BROKER))).code == 0
        answer = await peer.ask(RemotingCommand(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
        assert TopicList.decode(answer.body_bytes).topic_list == []
        assert holds.by_cause == {}


@pytest.mark.usefixtures("tables_set_aside")
async def test_a_broker_of_many_topics_whose_connection_ends_is_gone_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    async with name_server(tmp_path) as server:
        async with await Peer.connect(server.port) as broker:
            assert (await broker.ask(registering("T", "U", name="other"))).code == 0
            (connection,) = server._server.connections
            holds = fill(server, connection)
        async with await Peer.connect(server.port) as peer, asyncio.timeout(30):
            while server._routes.all_topics().topic_list:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert (await peer.ask(asking_route("T1"))).code != 0
        assert holds.by_cause == {}


@pytest.mark.usefixtures("tables_set_aside")
async def test_lists_of_all_topics_keep_nobody_waiting(tmp_path: Path) -> None:
    async with name_server(tmp_path) as server, await Peer.connect(server.port) as peer:
        holds = fill(server)
        for code in (
            Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, Code.GET_TOPICS_BY_CLUSTER, Code.GET_UNIT_TOPIC_LIST,
            Code.GET_HAS_UNIT_SUB_TOPIC_LIST, Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, Code.GET_BROKER_CLUSTER_INFO,
        ):  # fmt: skip
            answer = await peer.ask(RemotingCommand(code, {"cluster": "DefaultCluster"}))
            assert answer.code == 0
        assert holds.by_cause == {}
