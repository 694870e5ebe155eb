"""Why autoCreateTopicEnable is dangerous: shown with two brokers of one cluster."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from maxq.api import Message, Producer, SendStatus
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.standalone import Standalone
from tests.integration.broker.harness import RunningBroker
from tests.integration.namesrv.harness import Peer, asking_route, name_server, until


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[tuple[Peer, RunningBroker, RunningBroker]]:
    """A client of the name server, and two brokers with default settings."""
    async with name_server(tmp_path) as server, await Peer.connect(server.port) as client:
        address = {"namesrvAddr": f"127.0.0.1:{server.port}"}
        first = RunningBroker(tmp_path / "a", {"brokerName": "broker-a"} | address)
        second = RunningBroker(tmp_path / "b", {"brokerName": "broker-b"} | address)
        await first.start()
        await second.start()
        yield client, first, second
        await first.stop()
        await second.stop()


def known(answer: RemotingCommand) -> bool:
    return answer.code == 0


async def brokers_of(client: Peer, topic: str) -> list[str]:
    route = json.loads((await client.ask(asking_route(topic))).body_bytes)
    return sorted(queue["brokerName"] for queue in route["queueDatas"])


async def test_a_topic_made_by_its_first_message_is_on_one_broker_and_the_broker_warns(
    cluster: tuple[Peer, RunningBroker, RunningBroker], caplog: pytest.LogCaptureFixture
) -> None:
    client, first, _second = cluster
    assert await brokers_of(client, "TBW102") == ["broker-a", "broker-b"]  # what the producer is shown first
    assert (await first.send("Fresh", b"x")).code == 0
    await until(client, "Fresh", known)
    assert await brokers_of(client, "Fresh") == ["broker-a"]  # what every producer is shown from now on
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [text for text in warnings if text.startswith("topic Fresh was made on this broker alone")]


async def test_a_topic_that_is_created_beforehand_is_on_both(
    cluster: tuple[Peer, RunningBroker, RunningBroker],
) -> None:
    client, first, second = cluster
    for broker in (first, second):
        broker.create_topic("Planned")
    await until(client, "Planned", lambda answer: known(answer) and answer.body_bytes.count(b"perm") == 2)


def test_a_standalone_broker_has_no_other_to_warn_of(caplog: pytest.LogCaptureFixture) -> None:
    with Standalone() as servers, Producer("first", servers.namesrv_address) as producer:
        assert producer.send(Message("Fresh", b"x")).send_status is SendStatus.SEND_OK
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert not [text for text in warnings if "was made on this broker alone" in text]
