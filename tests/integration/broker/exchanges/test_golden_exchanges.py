"""Recorded requests of Java's clients, byte for byte, against our broker; its answers beside the Java broker's.

Compared are code, header fields and remark. Ids, offsets in the log and times differ by nature; a remark of ours may go
on where Java's ends (measured value, limit); Java answers binary headers in JSON, which remoting.md §1.1 leaves open.
Left out is what a later issue builds: delay, transactions, SQL92.
"""

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from maxq.protocol.frame.remoting_command import RemotingCommand, decode_frame
from tests.golden import WIRE
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import RunningBroker

FILES = {
    "000010-SEND_MESSAGE", "000310-SEND_MESSAGE_V2", "000320-SEND_BATCH_MESSAGE", "000011-PULL_MESSAGE",
    "000012-QUERY_MESSAGE", "000033-VIEW_MESSAGE_BY_ID", "000324-SEND_REPLY_MESSAGE", "000325-SEND_REPLY_MESSAGE_V2",
    "009999-UNKNOWN",
}  # fmt: skip
#: Labels whose answer depends on what is not built yet, or on a state that the recording does not hold.
LEFT_OUT = {
    "send.delay-level", "tx.commit", "tx.rollback", "tx.unknown", "pull.filtered-sql", "pull.sql-bad",
    "pull.long-poll.timeout", "pull.long-poll.woken", "push.start-first", "push.start-second-notify", "push.stop",
    "pop.consume-ack-change-invisible", "pop.send", "background", "query.by-key", "query.by-uniq-key", "view.uniq",
    "consumer.consume-directly",
}  # fmt: skip
#: Fields whose values are the broker's own affair.
VARYING = {"msgId", "queueOffset", "indexLastUpdateTimestamp", "indexLastUpdatePhyoffset"}


@dataclass(frozen=True)
class Exchange:
    label: str
    request: bytes
    expected: RemotingCommand

    @property
    def kind(self) -> str:
        return "bin" if self.request[4] == 1 else "json"


def exchanges() -> Iterator[Any]:
    for path in sorted((WIRE / "broker").glob("*/*.jsonl")):
        if path.stem not in FILES:
            continue
        for line in path.read_text().splitlines():
            record = json.loads(line)
            if record["label"] in LEFT_OUT or record["response"] is None:
                continue
            request, response = (bytes.fromhex(record[side]["hex"]) for side in ("request", "response"))
            exchange = Exchange(record["label"], request, decode_frame(response[4:]))
            if exchange.label == "request-reply" and path.stem.startswith(("000011", "000325")):
                continue  # needs the client that asked
            if exchange.label in ("request-reply.warm-up", "order.lock") and path.stem.startswith("000011"):
                continue  # subscription from a heartbeat
            if exchange.label == "view.by-id" and exchange.kind == "bin":
                continue  # of a message in the middle of the recording's log
            name = f"{path.parent.name}-{path.stem}-{exchange.label}-{exchange.expected.code}"
            yield pytest.param(exchange, id=name)


@pytest.fixture
async def wire_broker(start_broker: Start) -> RunningBroker:
    """In the state the recording had: names, limits, topics, four messages in queue 1."""
    broker = await start_broker(
        brokerClusterName="WireCluster", brokerName="broker-w", maxMessageSize=8192, autoCreateTopicEnable="false"
    )
    for kind in ("json", "bin"):
        broker.create_topic(f"W_{kind}", queues=2)
        broker.create_topic(f"W_ord_{kind}", queues=1, order=True)
        broker.create_topic(f"W_rr_{kind}", queues=1)
        broker.create_topic(f"W_ro_{kind}", queues=1, perm=4)
        broker.create_topic(f"W_wo_{kind}", queues=1, perm=2)
        broker.controller.groups.find_subscription_group_config(f"G_{kind}")
    return broker


async def arrange(broker: RunningBroker, exchange: Exchange) -> None:
    """What the recording's broker had been told before this step."""
    label = exchange.label
    if label.startswith(("pull.", "send-back", "view.", "consumer.", "query.")):
        first = 5 if label.startswith("send-back") else 4
        for i in range(first):
            await broker.send(f"W_{exchange.kind}", b"message %d" % i, queue_id=1, TAGS="TagA", KEYS="k1")
    elif label == "error.broker-no-permission":
        broker.settings.update({"brokerPermission": "4"})
    elif label == "subscription.group-missing":
        broker.settings.update({"autoCreateSubscriptionGroup": "false"})
    elif label == "error.system-busy" and exchange.expected.code == 2:
        broker.settings.update({"sendThreadPoolQueueCapacity": "1"})
        broker.controller.fast_failure.sends.enter()


async def ask(broker: RunningBroker, frame: bytes) -> RemotingCommand:
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.controller.port)
    try:
        writer.write(frame)
        length = int.from_bytes(await asyncio.wait_for(reader.readexactly(4), 10), "big")
        return decode_frame(await reader.readexactly(length))
    finally:
        writer.close()


def normalized(remark: str | None) -> str:
    text = re.sub(r"127\.0\.0\.\d+:\d+", "ADDRESS", remark or "")
    return re.sub(r"127\.0\.0\.\d+", "IP", text)


@pytest.mark.parametrize("exchange", list(exchanges()))
async def test_answer_is_the_java_brokers(wire_broker: RunningBroker, exchange: Exchange) -> None:
    await arrange(wire_broker, exchange)
    expected = exchange.expected
    answer = await ask(wire_broker, exchange.request)
    assert answer.code == expected.code, answer.remark
    assert answer.opaque == expected.opaque
    assert answer.flag == expected.flag
    assert answer.serialize_type == exchange.request[4]
    assert normalized(answer.remark).startswith(normalized(expected.remark))
    assert set(answer.ext) == set(expected.ext)
    request = decode_frame(exchange.request[4:])
    same = {name for name in expected.ext if name not in VARYING}
    if "UNIQ_KEY" not in request.ext.get("properties", request.ext.get("i", "")):
        same.discard("transactionId")  # made by the broker
    assert {name: answer.ext[name] for name in same} == {name: expected.ext[name] for name in same}
    assert (answer.body_length > 0) == (expected.body_length > 0)
