"""Static topics, whose brokers ask each other in their own name: nobody reads, writes or learns of what is not his by a
request that one broker passes on to another."""

import itertools
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from maxq.auth.signature import Credentials
from maxq.codes import RequestCode as Code
from maxq.codes import ResponseCode
from maxq.protocol.body.static_topic import LogicQueueMappingItem, TopicQueueMappingDetail
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.send import SendMessageRequestHeader
from tests.integration.access.test_strangers import HER_GROUP, HER_TOPIC, MALLORY, OWNER, PLAIN_FILE, SECRET
from tests.integration.access.world import ACL_2, GuardedBroker, GuardedNamesrv, signed, until

NO_PERMISSION = ResponseCode.NO_PERMISSION
FIRST, SECOND = "broker-b", "broker-a"  # the parts of a chain
MESSAGES = 3  # in the first part
MOVED_AT = 10  # global offset at which the second begins
ROOT_USERS = {
    "initAuthenticationUser": '{"username":"admin12","password":"admin-secret"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"admin12","secretKey":"admin-secret"}',
}
#: Header fields that could have a broker look elsewhere than it judges.
_DETOURS = {
    "lo": ("true", "false", "False", "garbage"), "bname": (FIRST, SECOND), "n": (FIRST,), "ns": ("NS", SECRET),
    "nsd": ("true", "false"), "oway": ("true",), "srt": ("true",), "queueId": ("-1", "7"),
}  # fmt: skip


@dataclass
class Pair:
    """Two brokers and their name server."""

    brokers: dict[str, GuardedBroker]

    async def ask(
        self, name: str, code: int, ext: dict[str, str], body: bytes | None = None, who: Credentials = MALLORY
    ) -> RemotingCommand:
        return await self.brokers[name].invoke(signed(RemotingCommand(code, dict(ext), body), who))

    async def make_static(self, topic: str, who: Credentials) -> list[int]:
        """Make a static topic, and return the codes of the answers. The queue of FIRST has MESSAGES, then comes that of
        SECOND."""
        chain = [
            LogicQueueMappingItem(gen=0, queue_id=0, bname=FIRST, logic_offset=0, start_offset=0, end_offset=MESSAGES),
            LogicQueueMappingItem(gen=1, queue_id=0, bname=SECOND, logic_offset=MOVED_AT),
        ]
        ext = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
               "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false", "force": "true"}  # fmt: skip
        codes = []
        for name in self.brokers:
            detail = TopicQueueMappingDetail(topic, "__global__", 1, name, 1, hosted_queues={0: chain})
            answer = await self.ask(name, Code.UPDATE_AND_CREATE_STATIC_TOPIC, ext, detail.encode(), who)
            codes.append(answer.code)
        return codes

    async def send(self, name: str, topic: str, body: bytes) -> RemotingCommand:
        header = SendMessageRequestHeader("PG", topic, "TBW102", 4, 0, 0, 1, flag=0, properties="", reconsume_times=0)
        return await self.ask(name, Code.SEND_MESSAGE_V2, header.encode_v2(), body, OWNER)

    def ends(self) -> list[tuple[int, list[tuple[str, dict[int, int]]]]]:
        """Of each broker: the end of its queue of SECRET, and all offsets but those of its own groups."""
        return [
            (
                controller.store.max_offset(SECRET, 0),
                sorted((key, dict(at)) for key, at in controller.offsets._all_offsets() if "@CID_RMQ_SYS_" not in key),
            )
            for controller in (broker.controller for broker in self.brokers.values())
        ]


def fields(topic: str, group: str) -> dict[str, str]:
    return {
        "topic": topic, "b": topic, "consumerGroup": group, "a": "PG", "producerGroup": "PG", "queueId": "0", "e": "0",
        "queueOffset": "0", "maxMsgNums": "9", "sysFlag": "4", "f": "0", "commitOffset": "1", "subscription": "*",
        "suspendTimeoutMillis": "0", "subVersion": "0", "timestamp": "0", "c": "TBW102", "d": "1", "g": "1", "h": "0",
        "defaultTopic": "TBW102", "defaultTopicQueueNums": "1", "bornTimestamp": "1", "flag": "0", "i": "", "j": "0",
    }  # fmt: skip


@pytest.fixture(params=["ACL 2.0", "ACL 1.0"])
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Pair]:
    """FIRST is of another cluster than SECOND. Both know Mallory, the first without any rights of hers."""
    namesrv = GuardedNamesrv(tmp_path, {**ACL_2, **ROOT_USERS})
    await namesrv.controller.start()
    made = Pair({})
    try:
        for name in (FIRST, SECOND):
            made.brokers[name] = broker = _broker(tmp_path / name, request.param, name, namesrv.address)
            await broker.start()
            broker.create_topic(HER_TOPIC, 1)
        if request.param == "ACL 2.0":
            await _make_mallory(made)
        yield made
    finally:
        for broker in made.brokers.values():
            await broker.stop()
        await namesrv.controller.shutdown()


def _broker(folder: Path, kind: str, name: str, namesrv: str) -> GuardedBroker:
    settings = {**ROOT_USERS, "namesrvAddr": namesrv, "brokerName": name, "brokerClusterName": f"of-{name}"}
    if kind == "ACL 2.0":
        return GuardedBroker(folder / "store", {**ACL_2, **settings})
    (folder / "home" / "conf").mkdir(parents=True)
    text = PLAIN_FILE if name == SECOND else PLAIN_FILE.replace("hers=PUB|SUB", "hers=DENY")
    (folder / "home" / "conf" / "plain_acl.yml").write_text(text)
    return GuardedBroker(folder / "store", {"aclEnable": "true", "rocketmqHome": str(folder / "home"), **settings})


async def _make_mallory(pair: Pair) -> None:
    for name in pair.brokers:
        body = b'{"password":"mallory-secret","userType":"Normal"}'
        assert (await pair.ask(name, Code.AUTH_CREATE_USER, {"username": "mallory1"}, body, OWNER)).code == 0
    for resource in (f"Topic:{HER_TOPIC}", f"Group:{HER_GROUP}"):
        entry = f'{{"resource":"{resource}","actions":["All"],"decision":"Allow"}}'
        policies = f'{{"policies":[{{"policyType":"Custom","entries":[{entry}]}}]}}'.encode()
        answer = await pair.ask(SECOND, Code.AUTH_CREATE_ACL, {"subject": "User:mallory1"}, policies, OWNER)
        assert answer.code == 0, answer.remark


async def test_a_topic_that_she_makes_static_shows_her_nothing_of_another_cluster_s_topic_of_its_name(
    pair: Pair,
) -> None:
    """At FIRST the topic of that name is somebody else's. She names its queue as the first part of hers."""
    sent = await pair.send(FIRST, HER_TOPIC, b"not hers")
    assert sent.code == 0, sent.remark
    await until(lambda: pair.brokers[FIRST].controller.store.max_offset(HER_TOPIC, 0) == 1)
    await pair.brokers[FIRST].controller.registration.register_now()
    made = await pair.make_static(HER_TOPIC, MALLORY)
    pulled = await pair.ask(SECOND, Code.PULL_MESSAGE, fields(HER_TOPIC, HER_GROUP))
    assert b"not hers" not in pulled.body_bytes
    assert made == [NO_PERMISSION, NO_PERMISSION]


async def test_requests_that_are_passed_on_are_judged_by_what_they_name(pair: Pair) -> None:
    pair.brokers[FIRST].create_topic(SECRET, 1)
    for number in range(MESSAGES):
        assert (await pair.send(FIRST, SECRET, b"first %d" % number)).code == 0
    assert await pair.make_static(SECRET, OWNER) == [0, 0]
    await pair.brokers[FIRST].controller.registration.register_now()
    sent = await pair.send(SECOND, SECRET, b"second")
    assert (sent.code, sent.ext["queueOffset"]) == (0, str(MOVED_AT))
    own = fields(SECRET, HER_GROUP)
    passed_on = await pair.ask(SECOND, Code.PULL_MESSAGE, own, who=OWNER)
    assert passed_on.code == 0 and passed_on.body_bytes.count(b"first") == MESSAGES
    before = pair.ends()
    for name, code, ext in _attempts():
        answer = await pair.ask(name, code, ext, b"forged")
        is_of_offsets = code in _OPEN_UNDER_ACL_1 and pair.brokers[name].controller.access.plain is not None
        assert answer.code == NO_PERMISSION or is_of_offsets, (name, code, ext)
        assert b"first" not in answer.body_bytes and b"second" not in answer.body_bytes, (name, code, ext)
    assert pair.ends() == before


_CODES = (10, 310, 320, 11, 361, 14, 15, 29, 30, 31, 32)
_OPEN_UNDER_ACL_1 = (29, 30, 31, 32)  # offsets, which that shows to every account


def _attempts() -> Iterator[tuple[str, int, dict[str, str]]]:
    """Each broker, each request that may be passed on, each field that could lead elsewhere, and two of them at once;
    also with names that a namespace could be taken off."""
    detours: list[dict[str, str]] = [{field: value} for field, values in _DETOURS.items() for value in values]
    detours += [one | other for one, other in itertools.pairwise(detours)]
    for name, code in itertools.product((FIRST, SECOND), _CODES):
        for detour in ({}, *detours):
            yield name, code, fields(SECRET, HER_GROUP) | detour
        for topic in (f"NS%{SECRET}", f"%RETRY%NS%{SECRET}", f"%DLQ%NS%{SECRET}", f"%LMQ%{SECRET}"):
            for more in ({}, {"ns": "NS", "nsd": "true"}):
                yield name, code, fields(topic, HER_GROUP) | more
        if code == Code.PULL_MESSAGE:
            yield name, code, fields(SECRET, f"NS%{HER_GROUP}") | {"ns": "NS", "nsd": "true"}
