"""Any bytes at all: every request is answered, and every configuration file is read or refused."""

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maxq.broker.tables.persistent_manager import PersistentManager
from maxq.errors import MaxQError
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.json import json_dialect
from tests.short_form import times
from tests.unit.broker.broker_world import BrokerWorld, FakeConnection

FIELDS = [
    "topic", "queueId", "consumerGroup", "group", "groupName", "producerGroup", "clientID", "clientId", "clientAddr",
    "commitOffset", "offset", "timestamp", "boundaryType", "isForce", "isOrder", "readQueueNums", "writeQueueNums",
    "perm", "topicFilterType", "topicSysFlag", "order", "attributes", "topicSeq", "groupSeq", "maxTopicNum",
    "maxGroupNum", "dataVersion", "srcGroup", "destGroup", "offline", "statsName", "statsKey", "msgId", "index",
    "count", "compareGroup", "filterGroups", "topicList", "readable", "cleanOffset", "READ_AHEAD_MODE",
    "setZeroIfNotFound",
]  # fmt: skip

MEMBERS = [
    "clientID", "clientId", "consumerDataSet", "producerDataSet", "groupName", "subscriptionDataSet", "topic",
    "codeSet", "tagsSet", "subVersion", "subString", "expressionType", "heartbeatFingerprint", "withoutSub",
    "consumeType", "messageModel", "consumeFromWhere", "mqSet", "consumerGroup", "brokerName", "queueId",
    "topicConfigList", "topicName", "readQueueNums", "perm", "attributes", "topicFilterType", "groupConfigList",
    "groupRetryPolicy", "retryQueueNums", "subscriptionData", "mode", "strategyName", "popShareQueueNum",
    "dataVersion", "topicConfigTable", "offsetTable", "lmqOffsetTable", "subscriptionGroupTable", "forbiddenTable",
    "messageRequestModeMap", "T", "G", "T@G", "0",
]  # fmt: skip

WORDS = st.sampled_from(["", "T", "G", "0", "1", "-1", "4294967296", "true", "x" * 200, "+a=b", "{}", "Ä", "7F" * 16])
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | WORDS
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=5),
    max_leaves=12,
)
TEXTS = JSON.map(json_dialect.dumps)
CUT_TEXTS = st.tuples(TEXTS, st.integers(0, 40)).map(lambda pair: pair[0][: pair[1]])
BODIES = st.none() | st.binary(max_size=60) | TEXTS | CUT_TEXTS

CODES = sorted(BrokerWorld().handlers)


async def answer(code: int, ext: dict[str, str], body: bytes | None) -> None:
    world = BrokerWorld()
    world.add_topic("T")
    world.store.fill("T", 0, [1000, 2000])
    world.offsets.commit_offset("c:1", "G", "T", 0, 1)
    await world.heartbeat(FakeConnection(), "c1")
    reply = await world.send(RemotingCommand(code, ext, body), FakeConnection())
    assert reply.is_response
    reply.encode()
    world.notifier.close()


@pytest.mark.parametrize("code", CODES)
@settings(max_examples=times(12), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ext=st.dictionaries(st.sampled_from(FIELDS), WORDS, max_size=8), body=BODIES)
def test_any_request_is_answered(code: int, ext: dict[str, str], body: bytes | None) -> None:
    asyncio.run(answer(code, ext, body))


TABLES = ["topics", "groups", "offsets", "modes"]


@pytest.mark.parametrize("lmq", [False, True])
@pytest.mark.parametrize("table", TABLES)
@settings(max_examples=times(60), deadline=None)
@given(data=st.binary(max_size=80) | TEXTS)
def test_any_file_is_read_or_refused_and_what_was_read_can_be_written(table: str, lmq: bool, data: bytes) -> None:
    world = BrokerWorld({"enableLmq": "true"} if lmq else None)
    manager: PersistentManager = getattr(world, table)
    try:
        manager.decode(data)
    except MaxQError:
        return
    written: Any = manager.encode()
    manager.decode(written)
    assert manager.encode() == written
