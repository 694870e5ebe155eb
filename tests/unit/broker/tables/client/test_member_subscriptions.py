"""Members of a group that subscribe differently: it is said when it begins, by whom, and when it ends."""

import logging

import pytest

from maxq.codes import RequestCode
from maxq.protocol.body.heartbeat import ConsumerData, HeartbeatData
from maxq.protocol.body.subscription import build_subscription_data
from tests.unit.broker.broker_world import BrokerWorld, FakeConnection


async def heartbeat(
    world: BrokerWorld, member: FakeConnection, name: str, expression: str, kind: str = "TAG", *, topics: str = "T"
) -> None:
    subscriptions = [build_subscription_data(topic, expression, kind, sub_version=1) for topic in topics]
    body = HeartbeatData(name, [], [ConsumerData("G", subscription_data_set=subscriptions)])
    assert (await world.call(RequestCode.HEART_BEAT, body=body.encode(), fake=member)).code == 0


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    return [record.getMessage() for record in errors if record.name.startswith("maxq.")]


async def test_it_is_said_once_and_by_name(caplog: pytest.LogCaptureFixture) -> None:
    world, one, other = BrokerWorld(), FakeConnection(), FakeConnection()
    for _ in range(3):
        await heartbeat(world, one, "c1", "TagA")
        await heartbeat(world, other, "c2", "TagB || TagA")
    (text,) = errors(caplog)
    assert "consumer group G subscribe differently" in text
    assert "c1: T (TagA); c2: T (TagA || TagB)" in text
    assert world.consumers.subscribing_differently() == ["G"]


async def test_the_order_of_tags_is_no_difference_but_the_language_is(caplog: pytest.LogCaptureFixture) -> None:
    world, one, other = BrokerWorld(), FakeConnection(), FakeConnection()
    await heartbeat(world, one, "c1", "TagA||TagB")
    await heartbeat(world, other, "c2", "TagB || TagA")
    assert world.consumers.subscribing_differently() == []
    await heartbeat(world, other, "c2", "TAGS = 'TagA'", "SQL92")
    assert world.consumers.subscribing_differently() == ["G"]
    assert len(errors(caplog)) == 1


@pytest.mark.parametrize("leaves", [True, False])
async def test_it_ends_when_the_member_leaves_or_agrees(leaves: bool) -> None:
    world, one, other = BrokerWorld(), FakeConnection(), FakeConnection()
    await heartbeat(world, one, "c1", "TagA")
    await heartbeat(world, other, "c2", "TagB")
    if leaves:
        ext = {"clientID": "c2", "consumerGroup": "G"}
        await world.call(RequestCode.UNREGISTER_CLIENT, ext, fake=other)
    else:
        await heartbeat(world, other, "c2", "TagA")
    assert world.consumers.subscribing_differently() == []


async def test_hundreds_of_members_that_change_one_after_the_other_are_a_line(caplog: pytest.LogCaptureFixture) -> None:
    world, members = BrokerWorld(), [FakeConnection() for _ in range(60)]
    for expression in ("TagA", "TagB"):
        for number, member in enumerate(members):
            await heartbeat(world, member, f"c{number}", expression)
    (text,) = errors(caplog)
    assert len(text) < 3000


async def test_a_member_that_subscribes_after_its_start_does_not_hide_what_it_wants(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world, one, other = BrokerWorld(), FakeConnection(), FakeConnection()
    await heartbeat(world, one, "c1", "TagA")
    await heartbeat(world, other, "c2", "TagB", topics="")
    for _ in range(3):
        await heartbeat(world, other, "c2", "TagB")
    lacking, conflict = errors(caplog)
    assert "c1: T (TagA); c2: T not subscribed" in lacking
    assert "c1: T (TagA); c2: T (TagB)" in conflict


async def test_members_that_agree_in_between_are_reported_again(caplog: pytest.LogCaptureFixture) -> None:
    world, one, other = BrokerWorld(), FakeConnection(), FakeConnection()
    await heartbeat(world, one, "c1", "TagA")
    for expression in ("TagB", "TagA", "TagB"):
        await heartbeat(world, other, "c2", expression)
    assert len(errors(caplog)) == 2
