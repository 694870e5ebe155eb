"""MAXQ_AWAIT_TABLE_CHANGE (30090): a question that waits until topics or groups change."""

import asyncio
from collections.abc import Callable

import pytest

from maxq.codes import RequestCode, ResponseCode
from maxq.protocol.body.subscription import SubscriptionGroupConfig
from maxq.protocol.frame.remoting_command import RemotingCommand
from tests.unit.broker.broker_world import BrokerWorld, FakeConnection

CODE = RequestCode.MAXQ_AWAIT_TABLE_CHANGE


def question(world: BrokerWorld, wait_ms: int = 30_000, **more: str) -> RemotingCommand:
    """Of a slave that has the tables as they are now."""
    ext = {
        "topicVersion": world.topics.data_version.encode().decode(),
        "groupVersion": world.groups.data_version.encode().decode(),
        "waitMs": str(wait_ms),
        **more,
    }
    return RemotingCommand(CODE, ext, opaque=77)


def changed(slave: FakeConnection) -> str:
    (answer,) = slave.sent
    assert (answer.code, answer.opaque, answer.is_response) == (ResponseCode.SUCCESS, 77, True)
    return answer.ext["changed"]


def makes_a_topic(world: BrokerWorld) -> None:
    world.add_topic("T")


def makes_a_group(world: BrokerWorld) -> None:
    world.groups.update_subscription_group_config(SubscriptionGroupConfig("G"))


def shuts_a_group_out(world: BrokerWorld) -> None:
    world.groups.update_forbidden("G", "T", 2, forbidden=True)


def deletes_a_topic(world: BrokerWorld) -> None:
    assert world.topics.delete_topic_configs(["Old"])


@pytest.mark.parametrize("change", [makes_a_topic, makes_a_group, shuts_a_group_out, deletes_a_topic])
async def test_slaves_that_wait_are_answered_when_something_changes(change: Callable[[BrokerWorld], None]) -> None:
    world = BrokerWorld()
    world.add_topic("Old")
    slaves = [FakeConnection(), FakeConnection()]
    waiting = [asyncio.create_task(world.send(question(world), slave)) for slave in slaves]
    await asyncio.sleep(0)
    assert not any(slave.sent for slave in slaves)
    change(world)
    await asyncio.gather(*waiting)
    assert [changed(slave) for slave in slaves] == ["true", "true"]


async def test_a_slave_with_an_older_table_does_not_wait() -> None:
    world, slave = BrokerWorld(), FakeConnection()
    asked = question(world)
    world.add_topic("T")
    await world.send(asked, slave)
    assert changed(slave) == "true"


async def test_a_slave_that_has_waited_long_enough_is_told_that_nothing_changed() -> None:
    world, slave = BrokerWorld(), FakeConnection()
    await world.send(question(world, wait_ms=0), slave)
    assert changed(slave) == "false"


@pytest.mark.parametrize("field", ["topicVersion", "groupVersion", "waitMs"])
async def test_a_question_that_lacks_something_is_refused_by_name(field: str) -> None:
    world = BrokerWorld()
    asked = question(world)
    del asked.ext[field]
    answer = await world.send(asked)
    assert answer.code != ResponseCode.SUCCESS and field in (answer.remark or "")


async def test_a_change_is_copied_when_the_slaves_that_are_wanted_have_it() -> None:
    """Who asks has what he names."""
    world = BrokerWorld()
    slaves = [FakeConnection(), FakeConnection()]
    asking = [asyncio.create_task(world.send(question(world), slave)) for slave in slaves]
    await asyncio.sleep(0)
    makes_a_topic(world)
    await asyncio.gather(*asking)
    copied = asyncio.create_task(world.table_changes.copied(lambda asking: asking, 10_000))
    asking = [asyncio.create_task(world.send(question(world), slaves[0]))]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not copied.done()
    asking.append(asyncio.create_task(world.send(question(world), slaves[1])))
    assert await copied
    slaves[1].close()
    makes_a_group(world)
    await asyncio.gather(*asking)
    assert not await world.table_changes.copied(lambda asking: asking, 1)
    slaves[0].close()
    assert await world.table_changes.copied(lambda asking: asking, 1)
    assert not await world.table_changes.copied(lambda asking: 1, 1)


async def test_offsets_that_an_operator_has_set_are_copied_when_a_slave_says_so() -> None:
    world, slave = BrokerWorld(), FakeConnection()
    await world.send(question(world, offsetsTaken="0"), slave)
    taken = slave.sent.pop().ext["offsetsSet"]
    waiting = asyncio.create_task(world.send(question(world, offsetsTaken=taken), slave))
    await asyncio.sleep(0)
    world.offsets.commit_offset("a consumer", "G", "T", 0, 9)
    await asyncio.sleep(0)
    assert not slave.sent, "a consumer commits all the time"
    world.offsets.assign_reset_offsets("T", "G", {0: 4})
    await waiting
    assert changed(slave) == "true"
    copied = asyncio.create_task(world.table_changes.copied(lambda asking: asking, 10_000))
    await asyncio.sleep(0)
    assert not copied.done()
    again = asyncio.create_task(world.send(question(world, offsetsTaken=slave.sent[0].ext["offsetsSet"]), slave))
    assert await copied
    again.cancel()


async def test_a_later_change_is_not_waited_for() -> None:
    world = BrokerWorld()
    world.add_topic("T")
    copied = asyncio.create_task(world.table_changes.copied(lambda asking: 1, 10_000))
    await asyncio.sleep(0)
    has_it = question(world)
    world.add_topic("Later")
    await world.send(has_it, FakeConnection())
    assert await copied


async def test_a_slave_that_rests_is_left_alone_until_somebody_waits_for_copies() -> None:
    world, slave = BrokerWorld(), FakeConnection()
    asking = asyncio.create_task(world.send(question(world, restMs="30000"), slave))
    await asyncio.sleep(0)
    makes_a_topic(world)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not slave.sent
    copied = asyncio.create_task(world.table_changes.copied(lambda asking: 1, 10_000))
    await asking
    assert changed(slave) == "true" and slave.sent[0].ext["rested"] == "true"
    again = asyncio.create_task(world.send(question(world), slave))
    assert await copied
    again.cancel()


async def test_a_slave_that_has_rested_hears_of_what_changed_meanwhile() -> None:
    world, slave = BrokerWorld(), FakeConnection()
    asking = asyncio.create_task(world.send(question(world, restMs="1"), slave))
    await asyncio.sleep(0)
    makes_a_topic(world)
    await asking
    assert changed(slave) == "true"


async def test_slaves_that_are_gone_are_forgotten_though_no_change_is_waited_for() -> None:
    world = BrokerWorld()
    for _ in range(20):
        slave = FakeConnection()
        await world.send(question(world, 0), slave)
        slave.is_closed = True
    assert len(world.table_changes._asked) == 1
