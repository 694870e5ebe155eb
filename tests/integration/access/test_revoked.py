"""What waits for messages is told none when who asked may not read them any more."""

import asyncio
import json
from pathlib import Path

import pytest

from maxq.auth.signature import Credentials
from maxq.codes import RequestCode as Code
from maxq.codes import ResponseCode
from maxq.config.netty_client_config import NettyClientConfig
from maxq.protocol.body.subscription import SubscriptionGroupConfig
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.pull import NotificationRequestHeader, PullMessageRequestHeader
from maxq.protocol.message.message import Message, encode_batch
from maxq.remoting.client import RemotingClient
from maxq.runtime.files.system import SystemClock, SystemRng
from tests.integration.access.test_strangers import (
    HER_GROUP,
    HER_TOPIC,
    MALLORY,
    NO_PERMISSION,
    OWNER,
    PLAIN_FILE,
    SECRET,
    World,
    guarded_world,
    world,
)
from tests.integration.access.world import signed, until
from tests.integration.broker.pop.pop_world import pop_request
from tests.integration.broker.transactions.transaction_world import QUICK

__all__ = ["world"]
_WAIT_MS = 60_000
_SUSPEND, _SUBSCRIPTION = 2, 4
#: What is taken away: the permission for the topic, the account, its use, the secret that it was signed with.
WAYS = ("policy", "user", "disabled", "secret")


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
        changes = {
            "policy": ("hers=PUB|SUB", "hers=DENY"), "user": ("accessKey: mallory1", "accessKey: mallory2"),
            "disabled": ("topicPerms: [hers=PUB|SUB], ", ""), "secret": ("mallory-secret", "another-secret"),
        }  # fmt: skip
        text = PLAIN_FILE.replace(*changes[how])
        (folder / "home" / "conf" / "plain_acl.yml").write_text(text)
    elif how == "policy":
        gone = {"subject": "User:mallory1", "resource": f"Topic:{HER_TOPIC}"}
        assert (await world.ask(Code.AUTH_DELETE_ACL, gone, who=OWNER)).code == 0
    elif how == "user":
        assert (await world.ask(Code.AUTH_DELETE_USER, {"username": "mallory1"}, who=OWNER)).code == 0
    else:
        body = {"disabled": b'{"userStatus":"disable"}', "secret": b'{"password":"another-secret"}'}[how]
        assert (await world.ask(Code.AUTH_UPDATE_USER, {"username": "mallory1"}, body, OWNER)).code == 0
    await until(lambda: guard.rules is not before)


@pytest.mark.parametrize("how", WAYS)
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


@pytest.mark.parametrize("how", WAYS)
async def test_who_lost_the_permission_while_a_quota_was_waited_for_gets_nothing(
    world: World, tmp_path: Path, how: str
) -> None:
    pulls = world.broker.controller.fast_failure.pulls
    world.broker.controller.groups.update_subscription_group_config(
        SubscriptionGroupConfig(group_name=HER_GROUP, attributes={"+quota.bytes": "4000"})
    )
    await world.send(HER_TOPIC, b"x" * 10_000)
    assert (await world.broker.invoke(signed(_pull(), MALLORY))).code == 0  # above the quota for seconds from now on
    asked = await _waiting(world, _pull(), _pop())
    await until(lambda: pulls.count == 2)
    await _take_away(world, tmp_path, how)
    async with asyncio.timeout(30):
        answers = await asyncio.gather(*asked)
    assert [(answer.code, answer.body_bytes) for answer in answers] == [(NO_PERMISSION, b"")] * 2


@pytest.mark.parametrize("kind", ["ACL 2.0", "ACL 1.0"])
@pytest.mark.parametrize("how", WAYS)
async def test_who_lost_the_permission_is_shown_no_half_messages(tmp_path: Path, kind: str, how: str) -> None:
    settings = {name: str(value) for name, value in QUICK.items()}
    world = await guarded_world(tmp_path, kind, {**settings, "transactionCheckMax": "10000"})
    asked = {"mallory": 0, "owner": 0}
    owner = RemotingClient(NettyClientConfig(), clock=SystemClock(), rng=SystemRng())

    def count(client: RemotingClient, name: str) -> None:
        async def check(connection: object, request: RemotingCommand) -> None:
            asked[name] += 1

        client.register(Code.CHECK_TRANSACTION_STATE, check)  # type: ignore[arg-type]

    try:
        count(world.broker.client, "mallory")
        count(owner, "owner")
        beat = b'{"clientID":"%b","producerDataSet":[{"groupName":"PG"}]}'
        assert (await world.ask(Code.HEART_BEAT, {}, beat % b"m")).code == 0
        half = world.broker.send_request(HER_TOPIC, b"half", sys_flag=4, UNIQ_KEY="U1", TRAN_MSG="true", PGROUP="PG")
        assert (await world.broker.invoke(signed(half, MALLORY))).code == 0
        await until(lambda: asked["mallory"] >= 1)
        await _take_away(world, tmp_path, how)
        before = asked["mallory"]
        request = signed(RemotingCommand(Code.HEART_BEAT, {}, beat % b"o"), OWNER)
        assert (await owner.invoke(world.broker.address, request, 5000)).code == 0
        await until(lambda: asked["owner"] >= 3)
        assert asked["mallory"] == before
    finally:
        await owner.close()
        await world.broker.stop()


@pytest.mark.parametrize("how", ["user", "disabled", "secret"])
async def test_nothing_is_pushed_to_an_account_that_is_taken_away(world: World, tmp_path: Path, how: str) -> None:
    """Under ACL 1.0 an account cannot be disabled: it may still ask for what needs no permission."""
    got: list[bytes] = []

    async def take(connection: object, request: RemotingCommand) -> RemotingCommand:
        got.append(request.body_bytes)
        return request.reply()

    async def reply(body: bytes) -> int:
        command = world.broker.send_request(
            "DefaultCluster_REPLY_TOPIC", body, REPLY_TO_CLIENT="asker", CORRELATION_ID="1"
        )
        command.code = Code.SEND_REPLY_MESSAGE_V2
        return (await world.broker.invoke(signed(command, OWNER))).code

    async def push(body: bytes) -> int:
        named = {"consumerGroup": HER_GROUP, "clientId": "asker", "topic": HER_TOPIC}
        return (await world.ask(Code.CONSUME_MESSAGE_DIRECTLY, named, body, OWNER)).code

    if how == "disabled" and world.broker.controller.access.plain is not None:
        pytest.skip("ACL 1.0 disables nobody")
    world.broker.client.register(Code.PUSH_REPLY_MESSAGE_TO_CLIENT, take)
    world.broker.client.register(Code.CONSUME_MESSAGE_DIRECTLY, take)
    beat = b'{"clientID":"asker","producerDataSet":[{"groupName":"PG"}],"consumerDataSet":[{"groupName":"her_group",' \
           b'"consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING"}]}'  # fmt: skip
    assert (await world.ask(Code.HEART_BEAT, {}, beat)).code == 0
    assert await reply(b"before") == 0
    assert await push(b"pushed before") == 0
    await _take_away(world, tmp_path, how)
    assert await reply(b"after") == await push(b"pushed after") == ResponseCode.SYSTEM_ERROR
    assert got == [b"before", b"pushed before"]


async def test_staged_messages_are_delivered_for_who_may_send_them_then(tmp_path: Path) -> None:
    """Hers, when the permission was taken away after she staged them; and those of another, whose place she knows."""
    world = await guarded_world(tmp_path, "ACL 2.0", {})
    application = "her_application"

    async def stage(topic: str, who: Credentials) -> int:
        ext = {"topic": topic, "queueId": "0", "attempt": topic, "sequence": "0", "count": "1", "plain": "true",
               "bornTimestamp": "1"}  # fmt: skip
        body = encode_batch([Message(topic, b"staged", {"UNIQ_KEY": "0" * 32})])
        staged = await world.ask(Code.MAXQ_STAGE_MESSAGES, ext, body, who)
        assert staged.code == 0, staged.remark
        return int(staged.ext["queueOffset"])

    async def deliver(batch: int, topic: str, place: int, who: Credentials = MALLORY) -> int:
        body = json.dumps({"runs": [[topic, 0, place, 1]]}).encode()
        named = {"application": application, "batch": str(batch)}
        return (await world.ask(Code.MAXQ_DELIVER_STAGED, named, body, who)).code

    try:
        entry = f'{{"resource":"Topic:{application}","actions":["Pub"],"decision":"Allow"}}'
        policies = f'{{"policies":[{{"policyType":"Custom","entries":[{entry}]}}]}}'.encode()
        assert (await world.ask(Code.AUTH_CREATE_ACL, {"subject": "User:mallory1"}, policies, OWNER)).code == 0
        hers, later, foreign = [
            await stage(*of) for of in ((HER_TOPIC, MALLORY), (HER_TOPIC, MALLORY), (SECRET, OWNER))
        ]
        assert await deliver(0, HER_TOPIC, hers) == 0
        assert await deliver(1, SECRET, foreign) == NO_PERMISSION
        await _take_away(world, tmp_path, "policy")
        assert await deliver(2, HER_TOPIC, later) == NO_PERMISSION
        assert (world.end(HER_TOPIC), world.end(SECRET)) == (1, 0)
        assert await deliver(2, HER_TOPIC, later, OWNER) == 0
        assert world.end(HER_TOPIC) == 2
    finally:
        await world.broker.stop()
