"""Mallory, who owns a topic and a group (under ACL 2.0 all whose names begin like theirs), makes every request that a
broker and a name server serve, and puts into each field what is not hers: topics, groups, places of records, ids,
handles, keys, client ids. She makes each of them as a request, one-way, marked as an answer, and with fields that stand
twice in the header. Nothing of it reaches her and nothing of it changes, under ACL 2.0 and ACL 1.0."""

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from maxq.access.audit import CHANGES
from maxq.broker.tables.topic.topic_validator import is_system_group, is_system_topic
from maxq.codes import RequestCode as Code
from maxq.codes import ResponseCode
from maxq.config.netty_client_config import NettyClientConfig
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.send import EndTransactionRequestHeader
from maxq.protocol.message.message_properties import encode_properties
from maxq.protocol.message.message_queue import MessageQueue
from maxq.remoting.client import RemotingClient
from maxq.remoting.connection import Connection
from maxq.runtime.files.system import SystemClock, SystemRng
from tests.integration.access.raw_peer import ANSWER, ONE_WAY, RawPeer, WholeRequest, twice
from tests.integration.access.test_every_request import served
from tests.integration.access.test_strangers import HER_GROUP, HER_TOPIC, MALLORY, OTHERS, OWNER, PLAIN_FILE, SECRET
from tests.integration.access.world import ACL_2, GuardedBroker, GuardedNamesrv, signed, until
from tests.integration.broker.transactions.transaction_world import CALM, COMMIT, Half, half_of
from tests.short_form import long_form
from tests.unit.auth.test_needs import OPEN

MARK = b"FOR-ALICE-ONLY"
POPPED = "popped"  # a topic of Alice
ALICE_CLIENT, HER_CLIENT = "alice@1", "mallory@1"
RETRY, DLQ, LIGHT = "%RETRY%" + OTHERS, "%DLQ%" + OTHERS, "%LMQ%" + OTHERS
FOREIGN_TOPICS = (
    SECRET, POPPED, RETRY, DLQ, f"%RETRY%{OTHERS}+{SECRET}", "rmq_sys_wheel_timer", "rmq_sys_REVIVE_LOG_DefaultCluster",
    "rmq_sys_MAXQ_STAGED", "rmq_sys_MAXQ_POP_JOURNAL", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC", LIGHT,
    # that somebody could take for `secret` or `hers`, or for a list of both
    f"{HER_TOPIC}\0{SECRET}", f"{HER_TOPIC};{SECRET}", f"{HER_TOPIC},{SECRET}", f"{HER_TOPIC}@{SECRET}", f" {SECRET} ",
    f"{HER_TOPIC}/../{SECRET}", f"%RETRY%%RETRY%{OTHERS}", f"NS%{SECRET}", f"%RETRY%NS%{OTHERS}", "*", "",
)  # fmt: skip
LONG_MS = 3_600_000  # a walk may take long, and nothing of Alice's ends by itself meanwhile
#: What a server itself sends to clients.
PUSHES = (39, 40, 220, 221, 307, 309, 326)
NUMBERS = (
    "queueId", "queueOffset", "maxMsgNums", "sysFlag", "commitOffset", "suspendTimeoutMillis", "subVersion",
    "bornTimestamp", "flag", "reconsumeTimes", "defaultTopicQueueNums", "d", "e", "f", "g", "h", "j", "l",
    "offset", "delayLevel", "maxReconsumeTimes", "tranStateTableOffset", "commitLogOffset",
    "commitOrRollback", "invisibleTime", "pollTime", "bornTime", "initMode", "timestamp", "begin", "end",
    "beginTimestamp", "endTimestamp", "maxNum", "index", "count", "sequence", "batch", "brokerId",
    "readQueueNums", "writeQueueNums", "perm", "topicSysFlag", "timerMs", "dataVersion", "filterServerNums",
    "haServerAddr", "timeoutMillis", "version",
)  # fmt: skip


def own_fields() -> dict[str, str]:
    """A header that all requests can be read from, all of it Mallory's."""
    ext = dict.fromkeys(NUMBERS, "0")
    ext |= {
        "topic": HER_TOPIC, "b": HER_TOPIC, "originTopic": HER_TOPIC, "group": HER_GROUP, "consumerGroup": HER_GROUP,
        "groupName": HER_GROUP, "destGroup": HER_GROUP, "srcGroup": HER_GROUP, "compareGroup": HER_GROUP,
        "filterGroups": HER_GROUP, "producerGroup": "HerPG", "a": "HerPG", "application": HER_TOPIC,
        "clientId": HER_CLIENT, "clientID": HER_CLIENT, "subscription": "*", "exp": "*", "expType": "TAG",
        "defaultTopic": "TBW102", "c": "TBW102", "k": "false", "m": "false", "batch": "0", "unitMode": "false",
        "properties": "", "i": "", "maxMsgNums": "9", "maxNum": "9", "endTimestamp": str(1 << 50), "end": "9",
        "invisibleTime": "60000", "subscriptionGroup": HER_GROUP, "key": "none", "attempt": "her-attempt",
        "plain": "true", "perm": "6", "readQueueNums": "1", "writeQueueNums": "1", "topicFilterType": "SINGLE_TAG",
        "order": "false", "commitOrRollback": str(COMMIT), "fromTransactionCheck": "false", "transactionId": "none",
        "msgId": "0" * 32, "offsetMsgId": "0" * 32, "originMsgId": "none", "extraInfo": "", "subject": "User:mallory1",
        "username": "mallory1", "namespace": "N", "value": "v", "brokerName": "broker-a", "n": "broker-a",
        "brokerAddr": "127.0.0.1:1", "brokerClusterName": "C", "isForce": "true", "force": "true", "nameServer": "x",
        "coordinator": "broker-a", "uniqMsgId": "none", "recallHandle": "none", "attemptId": "x", "readable": "true",
    }  # fmt: skip
    return ext


@dataclass
class Alice:
    """What is not Mallory's, and how to name it."""

    offsets: list[int] = field(default_factory=list)
    halves: list[Half] = field(default_factory=list)
    handle: str = ""


@dataclass
class Scene:
    """A broker, its name server, Alice's client that stays connected, and what is hers."""

    broker: GuardedBroker
    namesrv: GuardedNamesrv
    alice_client: RemotingClient
    alice: Alice = field(default_factory=Alice)
    pushed_to_alice: list[int] = field(default_factory=list)
    seen: list[bytes] = field(default_factory=list)  # all that Mallory was told

    async def as_alice(self, command: RemotingCommand) -> RemotingCommand:
        return await self.alice_client.invoke(self.broker.address, signed(command, OWNER), 30_000)

    async def send(self, topic: str, body: bytes, **more: str) -> int:
        before = self.broker.controller.store.max_physical_offset
        answer = await self.as_alice(self.broker.send_request(topic, MARK + body, **more))  # type: ignore[arg-type]
        assert answer.code == 0, answer.remark
        return before

    # --- what must stay as it is ---

    def state(self) -> dict[str, object]:
        """Of the broker and the name server, what is not Mallory's."""
        broker, store = self.broker.controller, self.broker.controller.store
        return {
            "ends": {(topic, 0): store.max_offset(topic, 0) for topic in (SECRET, RETRY, DLQ, LIGHT)},
            "starts": {(topic, 0): store.min_offset(topic, 0) for topic in (SECRET, RETRY, DLQ, LIGHT)},
            "topics": {name: row for name, row in broker.topics.topic_config_table.items() if not _is_hers(name)},
            "groups": {name: row for name, row in broker.groups.subscription_group_table.items() if not _is_hers(name)},
            "forbidden": {name: row for name, row in broker.groups.forbidden_table.items() if not _is_hers(name)},
            "offsets": sorted(
                (key, queue_id, offset)
                for key, offsets in broker.offsets._all_offsets()
                for queue_id, offset in offsets.items()
                if not _is_hers(key.partition("@")[2]) and key.partition("@")[0] != POPPED
            ),
            "resets": broker.offsets.any_reset,
            "locks": [
                broker.locks.try_lock_batch(OTHERS, [MessageQueue(SECRET, "broker-a", 0)], client)
                for client in (ALICE_CLIENT, HER_CLIENT)
            ],
            "clients": broker.producers.find_channel(ALICE_CLIENT),
            "settings": broker._settings.snapshot(secrets=True),
            "users": {user.username: user for user in broker.access.tables.users.values()},
            "rules": dict(broker.access.tables.acls),
            "names": self.namesrv.controller._settings.snapshot(secrets=True),
            "keys": dict(self.namesrv.controller._kv_configs._tables),
            "route": repr(self.namesrv.controller._routes.pickup_topic_route_data(SECRET)),
        }

    async def check_alice_goes_on(self) -> None:
        """Her transactions are open, what she popped is hers to acknowledge, her client is a member."""
        for half in self.alice.halves:
            header = EndTransactionRequestHeader(
                "PG", half.queue_offset, half.physical_offset, COMMIT, "id", SECRET, False, half.transaction_id
            )
            answer = await self.as_alice(RemotingCommand(Code.END_TRANSACTION, header.encode()))
            assert answer.code == 0, answer.remark
        ack = {"consumerGroup": OTHERS, "topic": POPPED, "queueId": "0", "extraInfo": self.alice.handle, "offset": "0"}
        assert (await self.as_alice(RemotingCommand(Code.ACK_MESSAGE, ack))).code == 0
        named = {"key": "U-timed", "topic": SECRET}
        waiting = await self.as_alice(RemotingCommand(Code.MAXQ_INSPECT_TIMER_MESSAGE, named))
        assert [entry["msgId"] for entry in json.loads(waiting.body_bytes)["entries"]] == ["U-timed"]
        await self.check_alice_is_connected()

    async def check_alice_is_connected(self) -> None:
        """Check that Alice is still a member of her group. A client without requests for two minutes is disconnected,
        and a walk may take longer."""
        listed = await self.as_alice(RemotingCommand(Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": OTHERS}))
        assert json.loads(listed.body_bytes)["consumerIdList"] == [ALICE_CLIENT]


@pytest.fixture(params=["ACL 2.0", *long_form(["ACL 1.0"])])
async def scene(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Scene]:
    root = {"innerClientAuthenticationCredentials": '{"accessKey":"admin12","secretKey":"admin-secret"}'}
    if request.param == "ACL 1.0":
        (tmp_path / "home" / "conf").mkdir(parents=True)
        (tmp_path / "home" / "conf" / "plain_acl.yml").write_text(PLAIN_FILE)
        given = {"aclEnable": "true", "rocketmqHome": str(tmp_path / "home"), **root}
    else:
        given = {**ACL_2, "initAuthenticationUser": '{"username":"admin12","password":"admin-secret"}', **root}
    namesrv = GuardedNamesrv(tmp_path, given)
    await namesrv.controller.start()
    more = {
        "namesrvAddr": namesrv.address, "transactionCheckInterval": str(CALM["transactionCheckInterval"]),
        "enableMultiDispatch": "true", "enableLmq": "true", "channelExpiredTimeout": str(LONG_MS),
    }  # fmt: skip
    broker = GuardedBroker(tmp_path / "store", {**given, **more})
    await broker.start()
    alice_client = RemotingClient(NettyClientConfig(), clock=SystemClock(), rng=SystemRng())
    made = Scene(broker, namesrv, alice_client)
    try:
        if request.param == "ACL 2.0":
            for address in (broker.address, namesrv.address):
                await _make_mallory(made, address)
        await _fill(made)
        yield made
    finally:
        await alice_client.close()
        await broker.stop()
        await namesrv.controller.shutdown()


async def _make_mallory(scene: Scene, address: str) -> None:
    user = RemotingCommand(3001, {"username": "mallory1"}, b'{"password":"mallory-secret","userType":"Normal"}')
    commands = [user]
    for resource in (f"Topic:{HER_TOPIC}*", f"Group:{HER_GROUP}*"):
        entry = f'{{"resource":"{resource}","actions":["All"],"decision":"Allow"}}'
        body = f'{{"policies":[{{"policyType":"Custom","entries":[{entry}]}}]}}'
        commands.append(RemotingCommand(3006, {"subject": "User:mallory1"}, body.encode()))
    for command in commands:
        answer = await scene.alice_client.invoke(address, signed(command, OWNER), 5_000)
        assert answer.code == 0, answer.remark


async def _fill(scene: Scene) -> None:
    """What Alice has: messages of each kind, an offset, a popped message, open transactions, a client."""
    broker, alice = scene.broker, scene.alice
    for topic in (HER_TOPIC, SECRET, POPPED, RETRY, DLQ):
        broker.create_topic(topic, 1)

    async def take(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        scene.pushed_to_alice.append(request.code)
        return request.reply()

    async def seen(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        scene.seen.append(request.body_bytes)
        return request.reply()

    for code in PUSHES:
        scene.alice_client.register(code, take)
        broker.client.register(code, seen)
    beat = _beat(ALICE_CLIENT, OTHERS, SECRET, "PG")
    assert (await scene.as_alice(RemotingCommand(Code.HEART_BEAT, {}, beat))).code == 0
    alice.offsets.append(await scene.send(SECRET, b"plain", KEYS="K1", UNIQ_KEY="U1"))
    alice.offsets.append(await scene.send(RETRY, b"retry"))
    alice.offsets.append(await scene.send(DLQ, b"dead"))
    alice.offsets.append(await scene.send(SECRET, b"delayed", DELAY="18"))
    alice.offsets.append(await scene.send(SECRET, b"timed", TIMER_DELAY_MS="86400000", UNIQ_KEY="U-timed"))
    for number in range(2):
        half = broker.send_request(
            SECRET, MARK, sys_flag=4, UNIQ_KEY=f"H{number}", TRAN_MSG="true", PGROUP="PG", KEYS="K1"
        )
        alice.halves.append(half_of(await scene.as_alice(half)))
    alice.offsets.append(await scene.send(POPPED, b"light", INNER_MULTI_DISPATCH=LIGHT))
    await until(lambda: broker.controller.store.max_offset(SECRET, 0) == 1)
    await scene.send(POPPED, b"popped")
    pop = {**own_fields(), "topic": POPPED, "consumerGroup": OTHERS, "maxMsgNums": "1", "initMode": "0",
           "invisibleTime": str(LONG_MS),
           "bornTime": str(SystemClock().wall_ms())}  # fmt: skip
    popped = await scene.as_alice(RemotingCommand(Code.POP_MESSAGE, pop))
    assert popped.code == 0, popped.remark
    times = (popped.ext[name] for name in ("popTime", "invisibleTime", "reviveQid"))
    alice.handle = " ".join(["0", *times, "0", "broker-a", "0", "0"])
    for topic in (SECRET, RETRY):
        commit = {"consumerGroup": OTHERS, "topic": topic, "queueId": "0", "commitOffset": "0"}
        assert (await scene.as_alice(RemotingCommand(Code.UPDATE_CONSUMER_OFFSET, commit))).code == 0


def _is_hers(name: str) -> bool:
    """A name that she may use, or one of the server's own."""
    own = name.removeprefix("%RETRY%").removeprefix("%DLQ%")
    return own.startswith((HER_TOPIC, HER_GROUP)) or is_system_topic(name) or is_system_group(name)


def _beat(client_id: str, group: str, topic: str, producer: str) -> bytes:
    subscription = {"topic": topic, "subString": "*"}
    consumer = {"groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
                "subscriptionDataSet": [subscription]}  # fmt: skip
    return json.dumps(
        {"clientID": client_id, "consumerDataSet": [consumer], "producerDataSet": [{"groupName": producer}]}
    ).encode()


# --- what she tries ---------------------------------------------------------------------------------------------------


def foreign_values(alice: Alice) -> dict[str, list[str]]:
    """Field → what of Alice's it can name."""
    places = [*alice.offsets, *(half.physical_offset for half in alice.halves)]
    ids = [f"7F00000100002A9F{place:016X}" for place in places]
    topics, groups = list(FOREIGN_TOPICS), [OTHERS, RETRY]
    forged = [
        {"REAL_TOPIC": SECRET, "REAL_QID": "0", "DELAY": "1"},
        {"REAL_TOPIC": SECRET, "REAL_QID": "0", "TIMER_DELAY_MS": "1"},
        {"REAL_TOPIC": SECRET, "REAL_QID": "0", "TRAN_MSG": "true", "PGROUP": "PG"},
        {"REAL_TOPIC": SECRET, "RETRY_TOPIC": SECRET, "INNER_MULTI_DISPATCH": f"{SECRET},%LMQ%{SECRET}"},
        {"UNIQ_KEY": "H0", "__transactionId__": "H0", "TRAN_PREPARED_QUEUE_OFFSET": "0", "TAGS": "d"},
        {"TIMER_DEL_UNIQKEY": f"{SECRET}+U-timed", "TIMER_DELAY_MS": "86400000"},
        {"INNER_MULTI_DISPATCH": LIGHT},
        {"INNER_MULTI_DISPATCH": f"%LMQ%{HER_TOPIC},{LIGHT}"},
        {"INNER_MULTI_DISPATCH": SECRET, "INNER_MULTI_QUEUE_OFFSET": "1"},
        {"POP_CK": alice.handle, "ORIGIN_GROUP": OTHERS, "CLUSTER": "DefaultCluster"},
    ]
    properties = [encode_properties(one) for one in forged]
    numbers = [str(place) for place in places]
    values = dict.fromkeys(("topic", "b"), topics)
    values |= dict.fromkeys(("originTopic", "application", "topicList"), topics[:4])
    values |= dict.fromkeys(
        ("group", "consumerGroup", "groupName", "destGroup", "srcGroup", "compareGroup", "filterGroups",
         "subscriptionGroup"), groups,
    )  # fmt: skip
    values |= dict.fromkeys(("offset", "commitLogOffset", "queueOffset", "commitOffset"), numbers)
    values |= dict.fromkeys(("msgId", "offsetMsgId", "originMsgId"), ids)
    values |= {"clientId": [ALICE_CLIENT], "clientID": [ALICE_CLIENT]}
    values |= {"producerGroup": ["PG"], "a": ["PG"]}
    values |= dict.fromkeys(("properties", "i"), properties)
    values |= {
        "key": ["K1", "U1", f"{SECRET}#K1"], "transactionId": ["H0"], "extraInfo": [alice.handle], "c": topics[:1],
        "defaultTopic": topics[:1], "subject": ["User:admin12"], "username": ["admin12"], "f": ["4", "8", "12"],
        "sysFlag": ["4", "8"], "bname": ["broker-a", "broker-b"], "filterSubscription": [OTHERS], "uniqMsgId": ["U1"],
        "lo": ["true", "false"], "ns": ["NS"], "nsd": ["true"],
    }  # fmt: skip
    return values


def requests(alice: Alice) -> Iterator[tuple[dict[str, str], bytes]]:
    """Headers and bodies: all hers; one field foreign, with and without the topic and the group that are judged."""
    own = own_fields()
    values = foreign_values(alice)
    beats = [_beat(*names) for names in (
        (HER_CLIENT, HER_GROUP, HER_TOPIC, "HerPG"), (ALICE_CLIENT, HER_GROUP, HER_TOPIC, "PG"),
        (HER_CLIENT, OTHERS, HER_TOPIC, "PG"), (HER_CLIENT, HER_GROUP, SECRET, "PG"),
        (HER_CLIENT, HER_GROUP, RETRY, "PG"),
    )]  # fmt: skip
    yield own, beats[0]
    for beat in beats:
        yield own, beat
    named = (
        (HER_GROUP, HER_TOPIC, HER_CLIENT), (HER_GROUP, SECRET, HER_CLIENT), (OTHERS, SECRET, ALICE_CLIENT),
        (HER_GROUP, RETRY, HER_CLIENT), (OTHERS, HER_TOPIC, ALICE_CLIENT),
    )  # fmt: skip
    for group, topic, client in named:
        yield own, _many_names(group, topic, client)
        yield {"consumerGroup": HER_GROUP, "clientId": HER_CLIENT}, _many_names(group, topic, client)
    yield own, b"autoCreateTopicEnable=false\nbrokerPermission=2\ndeleteTopicWithBrokerRegistration=true\n"
    for name, foreign in values.items():
        for value in foreign:
            yield {**own, name: value}, b"forged"
            without = {key: text for key, text in own.items() if key not in ("topic", "group", "consumerGroup", "b")}
            yield {**without, name: value}, b""
    for topic, group in ((SECRET, OTHERS), (SECRET, HER_GROUP), (RETRY, OTHERS), (HER_TOPIC, OTHERS)):
        names = dict.fromkeys(("topic", "b", "originTopic"), topic)
        names |= dict.fromkeys(("group", "consumerGroup", "groupName"), group)
        yield {**own, **names}, b"forged"
        yield {**own, **names, "clientId": ALICE_CLIENT, "clientAddr": ALICE_CLIENT, "extraInfo": alice.handle}, b""
    for name in ("topic", "b", "group", "consumerGroup"):
        yield {key: text for key, text in own.items() if key != name}, b""
        for other in ("topic", "b", "group", "consumerGroup", "srcGroup"):
            if other != name:
                left = {key: text for key, text in own.items() if key not in (name, other)}
                yield {**left, other: values[other][0]}, b"forged"
    for half in alice.halves:
        places = {"tranStateTableOffset": str(half.queue_offset), "commitLogOffset": str(half.physical_offset),
                  "transactionId": half.transaction_id, "queueId": str(half.queue_id),
                  "msgId": f"7F00000100002A9F{half.physical_offset:016X}"}  # fmt: skip
        for producer in ("PG", "HerPG"):
            yield {**own, **places, "producerGroup": producer}, b""
            yield {**places, "producerGroup": producer, "commitOrRollback": "12"}, b""


def _many_names(group: str, topic: str, client: str) -> bytes:
    """A body in which each kind of request finds what it looks for."""
    queue = {"topic": topic, "brokerName": "broker-a", "queueId": 0}
    ack = {"c": group, "t": topic, "r": "0", "so": 0, "rq": 0, "q": 0, "pt": 1, "it": 60_000, "b": "AQ==",
           "bn": "broker-a"}  # fmt: skip
    config = {"topicName": topic, "readQueueNums": 1, "writeQueueNums": 1, "perm": 2, "groupName": group}
    return json.dumps(
        {
            "consumerGroup": group, "group": group, "topic": topic, "clientId": client, "mqSet": [queue],
            "brokerName": "broker-a", "acks": [ack], "topicConfigList": [config], "groupConfigList": [config],
            "groupName": group, "topicName": topic, "offsetTable": [], "mode": "POP", "popShareQueueNum": 0,
            "subscriptionData": {"topic": topic, "subString": "*"}, "hostedQueues": {}, "totalQueues": 1, "epoch": 1,
            "username": "admin12", "password": "forged", "subject": "User:admin12", "policies": [],
            "strategyName": "AVG", "messageModel": "CLUSTERING", "wait": 0,
        }
    ).encode()  # fmt: skip


async def _walk(scene: Scene, address: str, codes: list[int], one_in: int = 1) -> dict[int, set[int]]:
    """Makes all requests with all codes (`one_in`: a part of them, another one for each code), also one-way, some of
    them marked as answers, and some with fields that stand twice in the header; returns code → how those that are
    answered were."""
    peer = await RawPeer.connect(address)
    asked = [WholeRequest(ext, body, MALLORY) for ext, body in requests(scene.alice)]
    opaques: dict[int, list[int]] = {}
    try:
        for code in codes:
            if scene.broker.controller.topics.select_topic_config(HER_TOPIC) is None:
                scene.broker.create_topic(HER_TOPIC, 1)  # she may delete it, and did
            opaques[code] = await peer.ask(code, 0, asked[code % one_in :: one_in])
            await peer.ask(code, ONE_WAY, asked[code % 5 :: 5])
            await peer.ask(code, ANSWER, asked[code % 20 :: 20])
            for foreign in fields_twice(scene.alice):
                await peer.write(twice(code, own_fields(), foreign, b"", MALLORY))
            await peer.until_worked_off(Code.GET_BROKER_RUNTIME_INFO, asked[0])
            assert MARK not in b"".join(peer.told), code
            await scene.check_alice_is_connected()
            del peer.told[:]
        hers = {code: {peer.answers[one] for one in found if one in peer.answers} for code, found in opaques.items()}
    finally:
        await peer.close()
    return hers


def fields_twice(alice: Alice) -> Iterator[dict[str, str]]:
    """What stands in a header for the second time."""
    topic, group = dict.fromkeys(("topic", "b"), SECRET), dict.fromkeys(("group", "consumerGroup"), OTHERS)
    yield {**topic, **group}
    yield {"AccessKey": "admin12"}
    yield {"commitLogOffset": str(alice.halves[0].physical_offset), "offset": str(alice.offsets[0])}


async def test_what_is_not_hers_is_neither_told_nor_changed(scene: Scene) -> None:
    before = scene.state()
    codes = sorted(served(scene.broker.controller.server))
    is_plain = scene.broker.controller.access.plain is not None  # judged by the same table, which is all walked once
    outcomes = await _walk(scene, scene.broker.address, codes, 3 if is_plain else 1)
    names = sorted(served(scene.namesrv.controller._server))
    outcomes_of_names = await _walk(scene, scene.namesrv.address, names, 3)
    after = scene.state()
    assert {name: value for name, value in after.items() if value != before[name]} == {}
    assert [told for told in scene.seen if MARK in told] == []
    assert set(scene.pushed_to_alice) <= {Code.NOTIFY_CONSUMER_IDS_CHANGED}
    await scene.check_alice_goes_on()
    # the walk goes somewhere: what is hers she gets
    hers = (10, 14, 15, 29, 30, 31, 34, 41, 42, 310, 400, 200050)
    assert is_plain or [code for code in hers if 0 not in outcomes[code]] == []
    refused = {code for code, found in (outcomes | outcomes_of_names).items() if ResponseCode.NO_PERMISSION in found}
    never = {*codes, *names} - refused
    assert never & CHANGES == set()
    if scene.broker.controller.access.plain is None:  # ACL 1.0 lets every account read what is no message
        assert never <= OPEN
