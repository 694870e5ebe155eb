"""One who owns a topic and a group, and wants to read and write what others own: through every request that names
something, under ACL 2.0 and 1.0. What a request is about is judged by what lies in the log, too."""

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from maxq.auth.signature import Credentials
from maxq.codes import RequestCode as Code
from maxq.codes import ResponseCode
from maxq.config.netty_client_config import NettyClientConfig
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.send import ConsumerSendMsgBackRequestHeader
from maxq.protocol.message.message import decode_record
from maxq.remoting.client import RemotingClient
from maxq.runtime.files.system import SystemClock, SystemRng
from tests.integration.access.world import ACL_2, GuardedBroker, SeenByGuard, signed, until
from tests.integration.broker.transactions.transaction_world import (
    CALM,
    COMMIT,
    QUICK,
    Half,
    TransactionClient,
    half_of,
)

OWNER = Credentials("admin12", "admin-secret")
MALLORY = Credentials("mallory1", "mallory-secret")
NO_PERMISSION = ResponseCode.NO_PERMISSION
HER_TOPIC, HER_GROUP, SECRET, OTHERS = "hers", "her_group", "secret", "others"

PLAIN_FILE = """
globalWhiteRemoteAddresses: []
accounts:
- {accessKey: admin12, secretKey: admin-secret, admin: true}
- {accessKey: mallory1, secretKey: mallory-secret, topicPerms: [hers=PUB|SUB], groupPerms: [her_group=SUB]}
"""


@dataclass
class World:
    """A broker, its owner's `secret` with messages of his, and Mallory's `hers`, which she may do everything with."""

    broker: GuardedBroker

    async def ask(
        self, code: int, ext: dict[str, str], body: bytes | None = None, who: Credentials = MALLORY
    ) -> RemotingCommand:
        return await self.broker.invoke(signed(RemotingCommand(code, dict(ext), body), who))

    async def send(self, topic: str, body: bytes, who: Credentials = OWNER, keys: str = "") -> int:
        """Returns its physical offset."""
        before = self.broker.controller.store.max_physical_offset
        answer = await self.broker.invoke(signed(self.broker.send_request(topic, body, KEYS=keys), who))
        assert answer.code == 0, answer.remark
        return before

    def end(self, topic: str, queue_id: int = 0) -> int:
        return self.broker.controller.store.max_offset(topic, queue_id)

    @property
    def log_end(self) -> int:
        return self.broker.controller.store.max_physical_offset

    def back(self, offset: int, who: Credentials = MALLORY, group: str = HER_GROUP) -> RemotingCommand:
        header = ConsumerSendMsgBackRequestHeader(offset, group, 9, "", HER_TOPIC, False, 16)
        return signed(RemotingCommand(Code.CONSUMER_SEND_MSG_BACK, header.encode()), who)


async def guarded_world(folder: Path, kind: str, settings: dict[str, str]) -> World:
    if kind == "ACL 1.0":
        home = folder / "home"
        (home / "conf").mkdir(parents=True)
        (home / "conf" / "plain_acl.yml").write_text(PLAIN_FILE)
        given = {"aclEnable": "true", "rocketmqHome": str(home)}
    else:
        given = {**ACL_2, "initAuthenticationUser": '{"username":"admin12","password":"admin-secret"}'}
    broker = GuardedBroker(folder / "store", {**given, **settings})
    await broker.start()
    for topic in (HER_TOPIC, SECRET, "%RETRY%" + OTHERS):
        broker.create_topic(topic, 1)
    if kind == "ACL 2.0":
        made = await broker.ask(3001, OWNER, b'{"password":"mallory-secret","userType":"Normal"}', username="mallory1")
        assert made.code == 0, made.remark
        for resource, actions in ((f"Topic:{HER_TOPIC}", '"All"'), (f"Group:{HER_GROUP}", '"All"')):
            entry = f'{{"resource":"{resource}","actions":[{actions}],"decision":"Allow"}}'
            body = f'{{"policies":[{{"policyType":"Custom","entries":[{entry}]}}]}}'
            answer = await broker.ask(3006, OWNER, body.encode(), subject="User:mallory1")
            assert answer.code == 0, answer.remark
    return World(broker)


@pytest.fixture(params=["ACL 2.0", "ACL 1.0"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    made = await guarded_world(
        tmp_path, request.param, {"transactionCheckInterval": str(CALM["transactionCheckInterval"])}
    )
    yield made
    await made.broker.stop()


# --- writing ----------------------------------------------------------------------------------------------------------


def _reply(world: World, code: int, topic: str) -> RemotingCommand:
    command = world.broker.send_request(topic, b"forged", REPLY_TO_CLIENT="nobody", CORRELATION_ID="1")
    command.code = code
    if code == Code.SEND_REPLY_MESSAGE:
        command.ext = {"topic": topic, "producerGroup": "P", "defaultTopic": "TBW102", "defaultTopicQueueNums": "1",
                       "queueId": "0", "sysFlag": "0", "bornTimestamp": "1", "flag": "0",
                       "properties": command.ext["i"]}  # fmt: skip
    return signed(command, MALLORY)


@pytest.mark.parametrize("code", [Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2])
@pytest.mark.parametrize("topic", [SECRET, "%RETRY%others", "%DLQ%others", "rmq_sys_wheel_timer", "brand_new"])
async def test_a_reply_is_stored_where_its_sender_may_send(world: World, code: int, topic: str) -> None:
    before = world.log_end
    answer = await world.broker.invoke(_reply(world, code, topic))
    assert (answer.code, world.log_end) == (NO_PERMISSION, before)
    assert world.broker.controller.topics.select_topic_config("brand_new") is None
    # a reply on its way: it is stored in the topic of the cluster's replies, which every client may
    on_its_way = await world.broker.invoke(_reply(world, code, "DefaultCluster_REPLY_TOPIC"))
    assert on_its_way.code != NO_PERMISSION and world.log_end > before


# --- reading ----------------------------------------------------------------------------------------------------------


async def test_a_message_is_given_back_by_who_may_read_it(world: World) -> None:
    hers = [await world.send(HER_TOPIC, b"hers", MALLORY) for _ in range(3)]
    foreign = await world.send(SECRET, b"secret")
    of_others = await world.send("%RETRY%" + OTHERS, b"secret")
    end = world.log_end
    for offset in (foreign, of_others):
        assert (await world.broker.invoke(world.back(offset))).code == NO_PERMISSION
    assert world.log_end == end
    seen = SeenByGuard(world.broker)
    assert [(await world.broker.invoke(world.back(offset))).code for offset in hers] == [0, 0, 0]
    assert seen.codes == [Code.CONSUMER_SEND_MSG_BACK]  # the others took the batch path
    end = world.log_end
    for offset in (foreign, of_others):
        assert (await world.broker.invoke(world.back(offset))).code == NO_PERMISSION
    assert world.log_end == end


async def test_a_message_is_pushed_to_a_client_by_who_may_read_it(world: World) -> None:
    offset = await world.send(SECRET, b"secret")
    hers = await world.send(HER_TOPIC, b"hers", MALLORY)
    pushed: list[bytes] = []

    async def consume(connection: object, request: RemotingCommand) -> RemotingCommand:
        pushed.append(decode_record(request.body_bytes).body)
        return request.reply()

    world.broker.client.register(Code.CONSUME_MESSAGE_DIRECTLY, consume)
    beat = b'{"clientID":"c1","consumerDataSet":[{"groupName":"her_group","consumeType":"CONSUME_PASSIVELY",' \
           b'"messageModel":"CLUSTERING","subscriptionDataSet":[{"topic":"hers","subString":"*"}]}]}'  # fmt: skip
    assert (await world.ask(Code.HEART_BEAT, {}, beat)).code == 0

    async def direct(physical_offset: int) -> int:
        msg_id = f"7F00000100002A9F{physical_offset:016X}"
        named = {"consumerGroup": HER_GROUP, "clientId": "c1", "msgId": msg_id, "topic": HER_TOPIC}
        return (await world.ask(Code.CONSUME_MESSAGE_DIRECTLY, named)).code

    assert await direct(offset) == NO_PERMISSION
    assert await direct(hers) == 0
    assert pushed == [b"hers"]


@pytest.mark.parametrize("code", [Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE])
async def test_retries_of_another_group_are_read_by_that_group(world: World, code: int) -> None:
    await world.send("%RETRY%" + OTHERS, b"secret")
    ext = {
        "consumerGroup": HER_GROUP, "topic": "%RETRY%" + OTHERS, "queueId": "0", "queueOffset": "0", "maxMsgNums": "9",
        "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
    }  # fmt: skip
    answer = await world.ask(code, ext)
    assert (answer.code, answer.body_bytes) == (NO_PERMISSION, b"")


async def test_queues_and_offsets_of_another_group_s_retries_are_that_group_s(world: World) -> None:
    await world.send("%RETRY%" + OTHERS, b"secret")
    names = {"consumerGroup": HER_GROUP, "topic": "%RETRY%" + OTHERS, "queueId": "0", "commitOffset": "1"}
    for code in (Code.QUERY_CONSUMER_OFFSET, Code.UPDATE_CONSUMER_OFFSET):
        assert (await world.ask(code, names)).code == NO_PERMISSION
    queue = b'{"topic":"%RETRY%others","brokerName":"broker-a","queueId":0}'
    lock = b'{"consumerGroup":"her_group","clientId":"c1","mqSet":[' + queue + b"]}"
    for code in (Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ):
        assert (await world.ask(code, {}, lock)).code == NO_PERMISSION


async def test_a_query_by_key_shows_messages_of_its_topic_and_key(world: World) -> None:
    """Two texts with one hash (Java's String.hashCode): `Aa` and `BB`."""
    for topic in ("secretAa", "secretBB"):
        world.broker.create_topic(topic, 1)
    await world.send("secretAa", b"foreign", keys="k")
    await world.send("secretBB", b"asked for", keys="k")
    await world.send("secretBB", b"another key", keys="x Aa")

    async def found(topic: str, key: str) -> list[bytes]:
        ext = {"topic": topic, "key": key, "maxNum": "9", "beginTimestamp": "0", "endTimestamp": str(1 << 50)}
        body = (await world.ask(Code.QUERY_MESSAGE, ext, who=OWNER)).body_bytes
        bodies, at = [], 0
        while at < len(body):
            size = int.from_bytes(body[at : at + 4], "big")
            bodies.append(decode_record(body[at : at + size]).body)
            at += size
        return bodies

    store = world.broker.controller.store
    await until(lambda: len(store.query_message("secretBB", "Aa", 9, 0, 1 << 50).buffers) == 1)
    assert await found("secretBB", "k") == [b"asked for"]
    assert await found("secretBB", "Aa") == [b"another key"]
    assert await found("secretBB", "BB") == []


# --- timer messages ---------------------------------------------------------------------------------------------------


async def test_a_timer_message_is_recalled_by_who_may_send_to_its_topic(world: World) -> None:
    """A marker names a message by its unique key, or by topic and key: its own topic."""
    due_ms = SystemClock().wall_ms() + 2_000

    async def timed(topic: str, who: Credentials, **more: str) -> None:
        request = world.broker.send_request(topic, b"timed", TIMER_DELIVER_MS=str(due_ms), **more)  # type: ignore[arg-type]
        answer = await world.broker.invoke(signed(request, who))
        assert answer.code == 0, answer.remark

    await timed(SECRET, OWNER, UNIQ_KEY="U1")
    for name in ("U2", "U3", "U4"):
        await timed(HER_TOPIC, MALLORY, UNIQ_KEY=name)
    for number, key in enumerate(("U1", f"{SECRET}+U1", "U2", f"{HER_TOPIC}+U3")):
        await timed(HER_TOPIC, MALLORY, UNIQ_KEY=f"M{number}", TIMER_DEL_UNIQKEY=key)
    await until(lambda: world.end(HER_TOPIC) > 0)
    await until(lambda: world.end(SECRET) == 1)
    assert world.end(HER_TOPIC) == 1  # U4


# --- transactions -----------------------------------------------------------------------------------------------------


async def _half(world: World, topic: str, who: Credentials) -> Half:
    command = world.broker.send_request(topic, b"half", sys_flag=4, UNIQ_KEY="U1", TRAN_MSG="true", PGROUP="PG")
    return half_of(await world.broker.invoke(signed(command, who)))


@pytest.mark.parametrize("named", [{}, {"topic": HER_TOPIC}])
async def test_a_transaction_is_ended_by_who_may_send_its_message(world: World, named: dict[str, str]) -> None:
    foreign = await _half(world, SECRET, OWNER)
    client = TransactionClient(world.broker)

    async def commit(half: Half, who: Credentials) -> int:
        request = client.end_request(half, COMMIT)
        request.ext.update(named)
        return (await world.broker.invoke(signed(request, who))).code

    async def commit_oneway(half: Half, who: Credentials) -> None:
        request = client.end_request(half, COMMIT)
        request.ext.update(named)
        await world.broker.client.invoke_oneway(world.broker.address, signed(request, who))

    hers = [await _half(world, HER_TOPIC, MALLORY) for _ in range(3)]
    assert await commit(foreign, MALLORY) == NO_PERMISSION
    for half in (hers[0], hers[1], foreign):  # the batch path knows her by then
        await commit_oneway(half, MALLORY)
    assert await commit(hers[2], MALLORY) == 0  # on the same connection, so those before were worked off
    assert (world.end(HER_TOPIC), world.end(SECRET)) == (3, 0)
    assert await commit(foreign, OWNER) == 0
    assert world.end(SECRET) == 1


@pytest.mark.parametrize("named", [{}, {"topic": HER_TOPIC}])
async def test_a_half_message_is_checked_again_by_who_may_change_its_topic(world: World, named: dict[str, str]) -> None:
    foreign = await _half(world, SECRET, OWNER)
    ext = {**named, "msgId": f"7F00000100002A9F{foreign.physical_offset:016X}"}
    assert (await world.ask(Code.RESUME_CHECK_HALF_MESSAGE, ext)).code == NO_PERMISSION
    assert (await world.ask(Code.RESUME_CHECK_HALF_MESSAGE, ext, who=OWNER)).code != NO_PERMISSION


async def test_offsets_are_cloned_from_a_group_by_who_may_change_it(world: World) -> None:
    names = {"topic": HER_TOPIC, "srcGroup": OTHERS, "destGroup": HER_GROUP}
    assert (await world.ask(Code.CLONE_GROUP_OFFSET, names)).code == NO_PERMISSION


@pytest.mark.parametrize("kind", ["ACL 2.0", "ACL 1.0"])
async def test_a_producer_is_asked_about_messages_that_it_may_send(tmp_path: Path, kind: str) -> None:
    world = await guarded_world(tmp_path, kind, {name: str(value) for name, value in QUICK.items()})
    asked: dict[str, list[str]] = {"mallory": [], "owner": []}

    def answer_for(name: str) -> Callable[..., object]:
        async def check(connection: object, request: RemotingCommand) -> None:
            asked[name].append(decode_record(request.body_bytes).properties["REAL_TOPIC"])

        return check

    others = RemotingClient(NettyClientConfig(), clock=SystemClock(), rng=SystemRng())
    try:
        others.register(Code.CHECK_TRANSACTION_STATE, answer_for("owner"))  # type: ignore[arg-type]
        world.broker.client.register(Code.CHECK_TRANSACTION_STATE, answer_for("mallory"))  # type: ignore[arg-type]
        beat = b'{"clientID":"%b","producerDataSet":[{"groupName":"PG"}]}'
        assert (await world.ask(Code.HEART_BEAT, {}, beat % b"m")).code == 0
        await _half(world, SECRET, OWNER)
        await _half(world, HER_TOPIC, MALLORY)
        await until(lambda: len(asked["mallory"]) >= 2)
        request = signed(RemotingCommand(Code.HEART_BEAT, {}, beat % b"o"), OWNER)
        assert (await others.invoke(world.broker.address, request, 5000)).code == 0
        await until(lambda: SECRET in asked["owner"])
        assert set(asked["mallory"]) == {HER_TOPIC}
    finally:
        await others.close()
        await world.broker.stop()


async def test_a_reply_goes_to_the_client_that_had_the_name_first(world: World) -> None:
    """Replies are pushed by client id; another user's connection does not take one over that lives."""
    got: list[str] = []

    def taker(name: str) -> Callable[..., object]:
        async def take(connection: object, request: RemotingCommand) -> RemotingCommand:
            got.append(name)
            return request.reply()

        return take

    others = RemotingClient(NettyClientConfig(), clock=SystemClock(), rng=SystemRng())
    try:
        others.register(Code.PUSH_REPLY_MESSAGE_TO_CLIENT, taker("owner"))  # type: ignore[arg-type]
        world.broker.client.register(Code.PUSH_REPLY_MESSAGE_TO_CLIENT, taker("mallory"))  # type: ignore[arg-type]
        beat = b'{"clientID":"asker","producerDataSet":[{"groupName":"PG"}]}'
        request = signed(RemotingCommand(Code.HEART_BEAT, {}, beat), OWNER)
        assert (await others.invoke(world.broker.address, request, 5000)).code == 0
        assert (await world.ask(Code.HEART_BEAT, {}, beat)).code == 0
        command = world.broker.send_request(
            "DefaultCluster_REPLY_TOPIC", b"r", REPLY_TO_CLIENT="asker", CORRELATION_ID="1"
        )
        command.code = Code.SEND_REPLY_MESSAGE_V2
        assert (await world.broker.invoke(signed(command, OWNER))).code == 0
        assert got == ["owner"]
    finally:
        await others.close()


@pytest.mark.parametrize("code", [Code.GET_CONSUMER_RUNNING_INFO, Code.CONSUME_MESSAGE_DIRECTLY])
async def test_a_client_that_an_operator_asks_is_told_nothing_that_it_could_sign_with(world: World, code: int) -> None:
    """A signature covers the values of a request, not what for, nor where one ends and the next begins: of a question
    about a client whose id she chose Mallory could make any request in the name of who asked."""
    asked: list[dict[str, str]] = []

    async def answer(connection: object, request: RemotingCommand) -> RemotingCommand:
        asked.append(dict(request.ext))
        return request.reply()

    rest = '{"password":"her-own-secret","userType":"Super"}//'  # comments are taken in the dialect
    client_id = "mallory2" + rest
    beat = json.dumps({
        "clientID": client_id,
        "consumerDataSet": [{"groupName": HER_GROUP, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
                             "subscriptionDataSet": [{"topic": HER_TOPIC, "subString": "*"}]}],
    }).encode()  # fmt: skip
    world.broker.client.register(code, answer)
    assert (await world.ask(Code.HEART_BEAT, {}, beat)).code == 0
    told = await world.ask(code, {"clientId": client_id, "consumerGroup": HER_GROUP}, who=OWNER)
    assert told.code == 0, told.remark
    seen = asked[0]
    forged = RemotingCommand(
        Code.AUTH_CREATE_USER,
        {"AccessKey": OWNER.access_key, "username": "mallory2", "Signature": seen.get("Signature", "")},
        (rest + "".join(value for name, value in sorted(seen.items()) if name > "clientId")).encode(),
    )
    assert (await world.broker.invoke(forged)).code == NO_PERMISSION
    assert "mallory2" not in world.broker.controller.access.tables.users
    assert seen.keys() & {"AccessKey", "Signature", "SecurityToken"} == set()
    assert (seen["clientId"], seen["consumerGroup"]) == (client_id, HER_GROUP)
