"""Where running consumers are told to go on, over starts of the broker."""

from pathlib import Path
from typing import Any

import pytest

from maxq.codes import RequestCode, ResponseCode
from maxq.protocol.frame.remoting_command import RemotingCommand
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import SUBSCRIPTION, RunningBroker, copy_as_killed


async def _filled(broker: RunningBroker, count: int) -> None:
    broker.create_topic("T", 1)
    await broker.controller.topics.persisted()
    for number in range(count):
        await broker.send("T", b"%03d" % number)


async def _commit(broker: RunningBroker, offset: int) -> None:
    ext = {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": str(offset)}
    reply = await broker.invoke(RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext))
    assert reply.code == ResponseCode.SUCCESS, reply.remark


async def _goes_on(broker: RunningBroker, offset: int) -> int:
    """Where a consumer that pulls at `offset` is told to go on."""
    reply = await broker.pull("T", offset)
    assert reply.code == ResponseCode.PULL_OFFSET_MOVED, reply.remark
    return int(reply.ext["nextBeginOffset"])


async def _set(broker: RunningBroker, offset: int) -> None:
    """Set the group's offset as an operator does."""
    ext = {"topic": "T", "group": "G", "timestamp": "-1", "isForce": "true", "queueId": "0", "offset": str(offset)}
    reply = await broker.invoke(RemotingCommand(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext))
    assert reply.code == ResponseCode.SUCCESS, reply.remark


async def test_an_operators_reset_that_no_pull_has_taken_counts_after_a_start(start_broker: Start) -> None:
    broker = await start_broker()
    await _filled(broker, 4)
    assert (await broker.pull("T", 2)).code == ResponseCode.SUCCESS  # the group is known
    await _set(broker, 1)
    await broker.stop()
    broker = await start_broker()
    await _commit(broker, 4)  # of what it had before
    assert await _goes_on(broker, 4) == 1
    await broker.stop()
    broker = await start_broker()
    assert (await broker.pull("T", 1)).code == ResponseCode.SUCCESS


async def test_a_consumer_that_had_more_than_a_slave_which_became_the_master_misses_nothing_after_one_more_start(
    start_broker: Start,
) -> None:
    broker = await start_broker()
    await _filled(broker, 2)
    assert (await broker.pull("T", 0)).code == ResponseCode.SUCCESS  # the group is known
    broker.controller.offsets.commit_offset("copied", "G", "T", 0, 8)  # a slave may have no message before them yet
    await broker.stop()
    owner = broker.folder / "owner.json"
    owner.write_bytes(owner.read_bytes().replace(b"ASYNC_MASTER", b"SLAVE"))
    broker = await start_broker()
    for body in (b"new", b"newer"):
        await broker.send("T", body)
    await broker.stop()
    broker = await start_broker()
    assert await _goes_on(broker, 8) == 2


async def test_messages_that_get_the_places_of_lost_ones_are_new_to_a_consumer_that_commits_those_late(
    start_broker: Start,
) -> None:
    """It had read six messages when the power failed, of which the broker has kept four, and committed two."""
    broker = await start_broker()
    await _filled(broker, 4)
    assert (await broker.pull("T", 0)).code == ResponseCode.SUCCESS  # the group is known
    await _commit(broker, 2)
    await broker.stop()
    (broker.folder / "abort").write_bytes(b"")
    broker = await start_broker()
    await broker.send("T", b"new")
    await _commit(broker, 6)
    for body in (b"newer", b"newest"):
        await broker.send("T", body)
    assert await _goes_on(broker, 6) == 4
    await _commit(broker, 7)
    await broker.stop()
    broker = await start_broker()
    assert broker.controller.offsets.query_offset("G", "T", 0) == 7


@pytest.mark.parametrize("lo", [None, "false"], ids=["queue", "part of a static topic's queue"])
async def test_what_a_pull_commits_behind_the_end_counts_for_nothing(broker: RunningBroker, lo: str | None) -> None:
    await _filled(broker, 4)
    commits: dict[str, Any] = {"sys_flag": SUBSCRIPTION | 1, "max_nums": 1, "lo": lo}
    assert (await broker.pull("T", 1, commit_offset=1, **commits)).code == ResponseCode.SUCCESS
    assert (await broker.pull("T", 2, commit_offset=5, **commits)).code == ResponseCode.SUCCESS
    assert broker.controller.offsets.query_offset("G", "T", 0) == 1
    assert (await broker.pull("T", 2, commit_offset=4, **commits)).code == ResponseCode.SUCCESS
    assert broker.controller.offsets.query_offset("G", "T", 0) == 4


async def test_a_reset_that_a_pull_has_taken_is_not_taken_again_after_a_kill(
    start_broker: Start, tmp_path: Path
) -> None:
    broker = await start_broker()
    await _filled(broker, 4)
    assert (await broker.pull("T", 2)).code == ResponseCode.SUCCESS  # the group is known
    await _set(broker, 1)
    assert await _goes_on(broker, 4) == 1
    copy_as_killed(broker.folder, tmp_path / "killed")
    successor = await start_broker("killed")
    assert (await successor.pull("T", 3)).code == ResponseCode.SUCCESS
