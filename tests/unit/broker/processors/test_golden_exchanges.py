"""Every recorded exchange of the administration, clients and consumers, answered by our processors.

The recordings are of a 5.3.3 broker. Its topics, clients and offsets are put up by replaying what its clients sent;
then each request is answered anew, and code, header fields and the form of the body are compared. Values are compared
only where the state says them.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from maxq.config.properties import parse_properties
from maxq.protocol.body.broker_stats import BrokerStatsData, QueryConsumeQueueResponseBody
from maxq.protocol.body.consumer_info import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from maxq.protocol.body.heartbeat import (
    ConsumerConnection,
    GetConsumerListByGroupResponseBody,
    ProducerConnection,
    ProducerTableInfo,
)
from maxq.protocol.body.offsets import (
    ConsumerOffsetSerializeWrapper,
    ConsumeStats,
    ConsumeStatsList,
    DelayOffsetSerializeWrapper,
    GetConsumerStatusBody,
    LockBatchResponseBody,
    QueryConsumeTimeSpanBody,
    QueryCorrectionOffsetBody,
    ResetOffsetBody,
    TopicStatsTable,
)
from maxq.protocol.body.route import GroupList, KVTable
from maxq.protocol.body.subscription import QuerySubscriptionResponseBody, SubscriptionGroupWrapper
from maxq.protocol.body.topic_config import TopicConfig, TopicConfigAndMappingSerializeWrapper, TopicList
from maxq.protocol.frame.remoting_command import RemotingCommand, decode_frame
from maxq.protocol.json import json_dialect
from maxq.protocol.json.json_body import JsonBody
from tests.golden import WIRE
from tests.unit.broker.broker_world import BrokerWorld, FakeConnection

RECORDED = WIRE / "broker"

#: Requests that other processors answer, and those of features that are not built yet.
NOT_OURS = {10, 11, 12, 33, 36, 37, 310, 320, 324, 325, 901, 9999, *range(200050, 200060)}

BODIES: dict[int, type[JsonBody]] = {
    21: TopicConfigAndMappingSerializeWrapper,
    28: KVTable,
    38: GetConsumerListByGroupResponseBody,
    41: LockBatchResponseBody,
    43: ConsumerOffsetSerializeWrapper,
    45: DelayOffsetSerializeWrapper,
    201: SubscriptionGroupWrapper,
    202: TopicStatsTable,
    203: ConsumerConnection,
    204: ProducerConnection,
    208: ConsumeStats,
    222: ResetOffsetBody,
    223: GetConsumerStatusBody,
    300: GroupList,
    303: QueryConsumeTimeSpanBody,
    305: TopicList,
    307: ConsumerRunningInfo,
    308: QueryCorrectionOffsetBody,
    309: ConsumeMessageDirectlyResult,
    315: BrokerStatsData,
    317: ConsumeStatsList,
    321: QueryConsumeQueueResponseBody,
    328: ProducerTableInfo,
    343: TopicList,
    345: QuerySubscriptionResponseBody,
    351: TopicConfig,
}

#: Where our answer is another one on purpose: (code, label) → our code.
DIFFERENT = {
    (46, "client.check-config"): 1,  # SQL92 is not built yet
    (46, "client.check-config.bad"): 1,
}

#: Header fields that 5.5 has and 5.3.3 had not.
NEW_FIELDS = {"totalTopicNum", "totalGroupNum"}

#: Derived members that Java writes and nobody reads.
DERIVED = {"groupTopicMap", "consumeTimeStampStr", "maxTimeStampStr", "minTimeStampStr"}


@dataclass(frozen=True)
class Exchange:
    file: str
    number: int
    label: str
    request: bytes
    response: bytes | None

    def __str__(self) -> str:
        return f"{self.file}:{self.number}:{self.label}"


def read(folder: str, pattern: str) -> Iterator[Exchange]:
    for path in sorted((RECORDED / folder).glob(pattern)):
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            row = json.loads(line)
            response = row["response"]
            yield Exchange(
                f"{folder}/{path.stem}",
                number,
                row["label"],
                bytes.fromhex(row["request"]["hex"]),
                bytes.fromhex(response["hex"]) if response else None,
            )


def ours() -> list[Exchange]:
    """One exchange of each step and answer code."""
    if not RECORDED.exists():
        return []
    found: dict[tuple[str, str, int | None], Exchange] = {}
    for exchange in (e for folder in ("json", "binary") for e in read(folder, "*.jsonl")):
        if "to-client" in exchange.file or int(Path(exchange.file).name.split("-")[0]) in NOT_OURS:
            continue
        code = None if exchange.response is None else decode_frame(exchange.response[4:]).code
        found.setdefault((exchange.file, exchange.label, code), exchange)
    return list(found.values())


@cache
def client_answers() -> dict[int, RemotingCommand]:
    """What clients answered, by code. (Only the json folder has these recordings.)"""
    found: dict[int, RemotingCommand] = {}
    for exchange in read("json", "*-to-client.jsonl"):
        request = decode_frame(exchange.request[4:])
        if exchange.response is not None and request.code in (221, 307, 309):
            found.setdefault(request.code, decode_frame(exchange.response[4:]))
    return found


class RecordedClient(FakeConnection):
    """Answers as the clients of the recording did."""

    async def invoke(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        return client_answers()[command.code]


async def world_of(suffix: str) -> BrokerWorld:
    """A broker on which everything of the recording happened that matters to an answer."""
    folder = "json" if suffix == "json" else "binary"
    world = BrokerWorld()
    for code in ("000017", "000018", "000200"):
        for exchange in read(folder, f"{code}-*.jsonl"):
            await world.send(decode_frame(exchange.request[4:]))
    clients: dict[str, RecordedClient] = {}
    for exchange in read(folder, "000034-*.jsonl"):
        request = decode_frame(exchange.request[4:])
        client_id = json_dialect.loads(request.body_bytes)["clientID"]
        fake = clients.setdefault(client_id, RecordedClient(f"127.0.0.1:{59000 + len(clients)}"))
        await world.send(request, fake)
    world.notifier.close()
    for exchange in read(folder, "000015-*.jsonl"):
        await world.send(decode_frame(exchange.request[4:]))
    start = world.clock.wall_ms() - 60_000
    for topic, sizes in ((f"W_{suffix}", (8, 5)), (f"W_ord_{suffix}", (3,)), (f"W_rr_{suffix}", (1,))):
        for queue_id, size in enumerate(sizes):
            world.store.fill(topic, queue_id, [start + n for n in range(size)])
    world.store.fill(f"%RETRY%G_{suffix}_push", 0, [start])
    for queue_id in range(2):
        world.offsets.commit_offset("c:1", f"G_{suffix}_push", f"W_{suffix}", queue_id, 0)
    world.stats.add("TOPIC_PUT_NUMS", f"W_{suffix}", 13)
    await world.stats.sample()
    for exchange in read(folder, "000309-*.jsonl"):
        message_id = decode_frame(exchange.request[4:]).ext["msgId"]
        world.store.messages[int(message_id[16:], 16)] = b"a message"
    return world


def without_derived(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_derived(member) for key, member in value.items() if key not in DERIVED}
    if isinstance(value, list):
        return [without_derived(item) for item in value]
    return value


def is_same(ours: Any, java: Any) -> bool:
    """Equal but for the order of sets, which Java writes as lists in the order of their hashes."""
    if isinstance(ours, dict) and isinstance(java, dict):
        mine = {str(key): value for key, value in ours.items()}
        theirs = {str(key): value for key, value in java.items()}
        return mine.keys() == theirs.keys() and all(is_same(mine[key], theirs[key]) for key in mine)
    if isinstance(ours, list) and isinstance(java, list):
        return len(ours) == len(java) and all(any(is_same(item, other) for other in java) for item in ours)
    return bool(ours == java)


@pytest.mark.parametrize("exchange", ours(), ids=str)
async def test_a_recorded_request_is_answered_as_java_did(exchange: Exchange) -> None:
    suffix = "json" if exchange.file.startswith("json") else "bin"
    world = await world_of(suffix)
    request = decode_frame(exchange.request[4:])
    code = request.code
    answer = await world.send(request, RecordedClient())
    if exchange.response is None:
        assert answer.code == 0
        return
    java = decode_frame(exchange.response[4:])
    assert answer.code == DIFFERENT.get((code, exchange.label), java.code), answer.remark
    assert answer.remark != "not set any response code"
    if (code, exchange.label) in DIFFERENT:
        return
    assert set(answer.ext) - NEW_FIELDS == set(java.ext)
    assert bool(answer.body_length) == bool(java.body_length)
    if code == 26:
        missing = set(parse_properties(java.body_bytes)) - set(parse_properties(answer.body_bytes))
        assert missing == set()
    elif code == 907:
        shape = json_dialect.loads(java.body_bytes)
        mine = json_dialect.loads(answer.body_bytes)
        assert mine.keys() == shape.keys()
        assert mine["haClientRuntimeInfo"] == shape["haClientRuntimeInfo"]
    elif code in BODIES and java.body_length:
        check_body(BODIES[code], answer.body_bytes, java.body_bytes)


def check_body(kind: type[JsonBody], answer: bytes, java: bytes) -> None:
    """Java's body goes through our class without loss, and ours is what the class writes: so both have one form."""
    assert is_same(kind.decode(java).to_json(), without_derived(json_dialect.loads(java)))
    mine = without_derived(json_dialect.loads(answer))
    assert is_same(kind.decode(answer).to_json(), mine)
    assert set(mine) == set(kind.decode(java).to_json())
