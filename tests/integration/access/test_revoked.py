"""What waits for messages is told none when who asked may not read them any more."""

import asyncio
from pathlib import Path

import pytest

from maxq.codes import RequestCode as Code
from maxq.protocol.header.pull import NotificationRequestHeader, PullMessageRequestHeader
from maxq.protocol.remoting_command import RemotingCommand
from maxq.runtime.system import SystemClock
from tests.integration.access.test_strangers import (
    HER_GROUP,
    HER_TOPIC,
    MALLORY,
    NO_PERMISSION,
    OWNER,
    PLAIN_FILE,
    World,
    world,
)
from tests.integration.access.world import signed, until
from tests.integration.broker.pop_world import pop_request

__all__ = ["world"]
_WAIT_MS = 60_000
_SUSPEND, _SUBSCRIPTION = 2, 4


def _pull() -> RemotingCommand:
    header = PullMessageRequestHeader(
        HER_GROUP, HER_TOPIC, 0, 0, 32, _SUSPEND | _SUBSCRIPTION, 0, _WAIT_MS, 0, "*", "TAG",
    )  # fmt: skip
    return RemotingCommand(Code.PULL_MESSAGE, header.encode())


def _pop() -> RemotingCommand:
    now = SystemClock().wall_ms()
    return pop_request(HER_TOPIC, consumer_group=HER_GROUP, poll_time=_WAIT_MS, born_time=now)


def _notification() -> RemotingCommand:
    header = NotificationRequestHeader(HER_GROUP, HER_TOPIC, -1, poll_time=_WAIT_MS, born_time=SystemClock().wall_ms())
    return RemotingCommand(Code.NOTIFICATION, header.encode())


async def _waiting(world: World, *requests: RemotingCommand) -> list[asyncio.Future[RemotingCommand]]:
    """Mallory makes these requests; all of them wait."""
    asked = [asyncio.ensure_future(world.broker.invoke(signed(request, MALLORY))) for request in requests]
    await asyncio.sleep(0)
    await world.ask(Code.GET_BROKER_RUNTIME_INFO, {})  # on the same connection: those before were worked off
    assert not any(request.done() for request in asked)
    return asked


async def _take_away(world: World, folder: Path, how: str) -> None:
    guard = world.broker.controller.access.guard
    assert guard is not None
    before = guard.rules
    if world.broker.controller.access.plain is not None:
        changes = {"policy": ("hers=PUB|SUB", "hers=PUB"), "user": ("accessKey: mallory1", "accessKey: mallory2")}
        text = PLAIN_FILE.replace(*changes[how])
        (folder / "home" / "conf" / "plain_acl.yml").write_text(text)
    elif how == "policy":
        gone = {"subject": "User:mallory1", "resource": f"Topic:{HER_TOPIC}"}
        assert (await world.ask(Code.AUTH_DELETE_ACL, gone, who=OWNER)).code == 0
    else:
        assert (await world.ask(Code.AUTH_DELETE_USER, {"username": "mallory1"}, who=OWNER)).code == 0
    await until(lambda: guard.rules is not before)


@pytest.mark.parametrize("how", ["policy", "user"])
async def test_who_lost_the_permission_gets_nothing_that_comes_later(world: World, tmp_path: Path, how: str) -> None:
    asked = await _waiting(world, _pull(), _pull(), _pop(), _notification())
    await _take_away(world, tmp_path, how)
    await world.send(HER_TOPIC, b"later")
    async with asyncio.timeout(20):
        answers = await asyncio.gather(*asked)
    assert [(answer.code, answer.body_bytes) for answer in answers] == [(NO_PERMISSION, b"")] * 4
    assert {answer.ext.get("hasMsg") for answer in answers} == {None}


async def test_other_changes_of_the_rules_leave_what_waits(world: World, tmp_path: Path) -> None:
    asked = await _waiting(world, _pull(), _notification())
    guard = world.broker.controller.access.guard
    assert guard is not None
    before = guard.rules
    if world.broker.controller.access.plain is not None:
        more = "- {accessKey: another, secretKey: another-secret}\n"
        (tmp_path / "home" / "conf" / "plain_acl.yml").write_text(PLAIN_FILE + more)
    else:
        made = await world.broker.ask(3001, OWNER, b'{"password":"another","userType":"Normal"}', username="another")
        assert made.code == 0
    await until(lambda: guard.rules is not before)
    await world.send(HER_TOPIC, b"later")
    async with asyncio.timeout(20):
        pulled, told = await asyncio.gather(*asked)
    assert pulled.code == 0 and b"later" in pulled.body_bytes
    assert told.ext.get("hasMsg") == "true"
