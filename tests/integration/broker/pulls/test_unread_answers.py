"""A client that asks and does not read cannot grow the broker's memory."""

import asyncio
import socket
from dataclasses import dataclass

import pytest

from maxq.codes import RequestCode
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.pull import PullMessageRequestHeader
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import SUBSCRIPTION, RunningBroker, until

_LIMIT = 4 << 20


def pull_frame(topic: str, opaque: int) -> bytes:
    header = PullMessageRequestHeader("G", topic, 0, 0, 32, SUBSCRIPTION, 0, 0, 0, "*", "TAG")
    return RemotingCommand(RequestCode.PULL_MESSAGE, header.encode(), opaque=opaque).encode()


async def ask_without_reading(broker: RunningBroker, topic: str, pulls: int) -> asyncio.StreamWriter:
    """Send so many pulls; the reader's buffer takes 64 KiB at most."""
    _, writer = await asyncio.open_connection("127.0.0.1", broker.controller.port, limit=1024)
    writer.write(b"".join(pull_frame(topic, number) for number in range(pulls)))
    return writer


async def test_answers_that_nobody_reads_are_bounded_and_others_are_served(start_broker: Start) -> None:
    broker = await start_broker(maxUnsentBytes=_LIMIT)
    broker.create_topic("orders", queues=1)
    for _ in range(40):
        await broker.send("orders", b"x" * 8000)
    one_answer = 32 * 8500
    known = set(broker.controller.server.connections)
    writer = await ask_without_reading(broker, "orders", 2000)
    await until(lambda: bool(broker.controller.server.connections.keys() - known))
    (silent,) = broker.controller.server.connections.keys() - known
    await until(lambda: silent.is_held_back)
    assert not silent.is_closed
    for _ in range(50):
        assert silent.unsent_bytes <= _LIMIT + one_answer
        assert len(await broker.pull_messages("orders", 0, group="H")) > 20
    taken = broker.controller.stats.get_counter("G", "orders", 0).nums
    assert taken < 2000 * 32 / 2, "its requests must wait in its own socket"
    writer.close()


async def is_served(broker: RunningBroker) -> RemotingCommand:
    """Somebody else asks."""
    return await broker.invoke(RemotingCommand(RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": "0"}))


@dataclass(frozen=True)
class Flood:
    """A request whose answers are large, many times."""

    code: int
    ext: dict[str, str]
    times: int
    largest: int  # bytes of one answer


MANY_TOPICS = 400
BODY, STORED = 60_000, 200
POP = {
    "consumerGroup": "P", "topic": "orders", "queueId": "-1", "maxMsgNums": "32", "invisibleTime": "60000",
    "pollTime": "0", "bornTime": "0", "initMode": "0", "order": "false", "exp": "*", "expType": "TAG",
}  # fmt: skip
FLOODS = {
    "pop": Flood(RequestCode.POP_MESSAGE, POP, 400, 300_000),
    "peek": Flood(RequestCode.PEEK_MESSAGE, {**POP, "queueId": "0"}, 400, 300_000),
    "message by id": Flood(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "0"}, 1000, BODY + 1000),
    "query": Flood(
        RequestCode.QUERY_MESSAGE,
        {"topic": "orders", "key": "same", "maxNum": "32", "beginTimestamp": "0", "endTimestamp": str(1 << 60)},
        100, 33 * (BODY + 1000),
    ),
    "topics": Flood(RequestCode.GET_ALL_TOPIC_CONFIG, {}, 1000, 400 * MANY_TOPICS),
    "broker config": Flood(RequestCode.GET_BROKER_CONFIG, {}, 2000, 30_000),
    "runtime": Flood(RequestCode.GET_BROKER_RUNTIME_INFO, {}, 4000, 20_000),
    "unknown": Flood(60_000, {}, 100_000, 1000),
}  # fmt: skip


@pytest.mark.parametrize("kind", FLOODS)
async def test_every_kind_of_answer_is_bounded_where_nobody_reads(start_broker: Start, kind: str) -> None:
    flood = FLOODS[kind]
    broker = await start_broker(maxUnsentBytes=_LIMIT, mappedFileSizeCommitLog=1 << 24, waitTimeMillsInPullQueue=60_000)
    broker.create_topic("orders", queues=1)
    if kind == "topics":
        for number in range(MANY_TOPICS):
            broker.create_topic(f"topic-{number}")
    if kind in ("pop", "peek", "message by id", "query"):
        for number in range(STORED):
            await broker.send("orders", b"x" * BODY, KEYS="same", UNIQ_KEY=f"U{number}")
    known = set(broker.controller.server.connections)
    frames = b"".join(
        RemotingCommand(flood.code, dict(flood.ext), opaque=number).encode() for number in range(flood.times)
    )
    narrow = socket.socket()
    narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    narrow.setblocking(False)
    await asyncio.get_running_loop().sock_connect(narrow, ("127.0.0.1", broker.controller.port))
    _, writer = await asyncio.open_connection(sock=narrow, limit=1024)
    writer.write(frames)
    await until(lambda: bool(broker.controller.server.connections.keys() - known))
    (silent,) = broker.controller.server.connections.keys() - known
    await until(lambda: silent.is_held_back)
    for _ in range(50):
        assert silent.unsent_bytes <= _LIMIT + flood.largest
        assert (await is_served(broker)).code == 0
    writer.close()


async def test_pulls_that_wait_and_are_all_answered_at_once_are_bounded(start_broker: Start) -> None:
    """The answers are not asked for one by one: who has too many of them unread is disconnected."""
    broker = await start_broker(maxUnsentBytes=_LIMIT, mappedFileSizeCommitLog=1 << 24)
    broker.create_topic("orders", queues=1)
    known = set(broker.controller.server.connections)
    header = PullMessageRequestHeader("G", "orders", 0, 0, 32, SUBSCRIPTION | 2, 0, 60_000, 0, "*", "TAG")
    _, writer = await asyncio.open_connection("127.0.0.1", broker.controller.port, limit=1024)
    writer.write(
        b"".join(
            RemotingCommand(RequestCode.PULL_MESSAGE, header.encode(), opaque=number).encode() for number in range(2000)
        )
    )
    await until(lambda: broker.controller.hold_service.held_count == 2000)
    (silent,) = broker.controller.server.connections.keys() - known
    await broker.send("orders", b"x" * BODY, UNIQ_KEY="U")
    await until(lambda: silent.is_held_back)
    for _ in range(50):
        assert silent.unsent_bytes <= _LIMIT + BODY + 1000
        assert (await is_served(broker)).code == 0
    writer.close()


async def test_a_client_that_is_pushed_more_than_the_limit_is_disconnected_and_counted(start_broker: Start) -> None:
    broker = await start_broker(maxUnsentBytes=_LIMIT)
    known = set(broker.controller.server.connections)
    _, writer = await asyncio.open_connection("127.0.0.1", broker.controller.port, limit=1024)
    await until(lambda: bool(broker.controller.server.connections.keys() - known))
    (silent,) = broker.controller.server.connections.keys() - known
    for _ in range(400):
        silent.write([bytes(1 << 18)])
        if silent.is_closed:
            break
    assert "[UNREAD_ANSWERS]" in silent.close_reason
    assert f"the limit is {_LIMIT} (maxUnsentBytes)" in silent.close_reason
    await until(lambda: broker.controller.fast_failure.refused.by_cause.get("UNREAD_ANSWERS") == 1)
    writer.close()
