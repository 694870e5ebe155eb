"""Every way in which our clients send and receive, on Java's broker and name server, with Java's clients beside them.

What our producers wrote is compared with what Java's producer wrote, byte by byte in the store but for ids, times and
places; what our consumers got, field by field with what Java's consumer got of the same messages.
"""

import asyncio
import itertools
import struct
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from maxq import api
from maxq.api import (
    ConsumeFromWhere,
    Message,
    MessageExt,
    SendStatus,
    async_admin,
    async_lite_pull_consumer,
    async_producer,
    async_push_consumer,
    async_simple_consumer,
    async_transaction_producer,
)
from maxq.api import LocalTransactionState as State
from maxq.client.instance.client_api import fields
from maxq.client.producer.producer import Producer
from maxq.codes import RequestCode
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.frame.remoting_command import SerializeType
from maxq.protocol.message.message_id import encode_host
from tests.interop.processes.java_driver import JavaDriver
from tests.interop.processes.servers import JavaBroker, JavaNamesrv, free_port_base

pytestmark = pytest.mark.interop

FIRST: Final = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
PATIENT: Final = 30_000  # ms; a busy machine takes long for a TLS handshake
#: How a client may be connected. Signatures and the binary header make sends take the slow path.
CLIENTS: Final[dict[str, dict[str, Any]]] = {
    "plain": {},
    "tls": {"use_tls": "insecure"},
    "namespace": {"namespace": "NS"},
    "signed": {"access_key": "anybody", "secret_key": "a-secret-of-some-length"},
    "binary": {"serialize_type": SerializeType.ROCKETMQ},
}
_groups = itertools.count(1)


@dataclass
class Servers:
    """Java's name server and broker.

    Attributes:
        host: the broker's, and so that of the clients.
    """

    namesrv: str
    broker: JavaBroker
    host: str


@pytest.fixture(scope="module", params=["127.0.0.1", "::1"], ids=["v4", "v6"])
def java(request: pytest.FixtureRequest, jars: Path, scratch: Path) -> Iterator[Servers]:
    folder = scratch / ("paths-v6" if ":" in request.param else "paths-v4")
    namesrv = JavaNamesrv(folder / "namesrv", free_port_base())
    broker = JavaBroker(folder / "broker", free_port_base(), request.param)
    try:
        namesrv.start(jars)
        broker.start(jars, namesrv.address, {"accessMessageInMemoryMaxRatio": "0"})
        yield Servers(namesrv.address, broker, request.param)
    finally:
        broker.discard()
        namesrv.discard()


async def created(java: Servers, topic: str, queues: int = 4) -> str:
    async with async_admin(java.namesrv) as admin:
        await admin.topics.create(java.broker.address, TopicConfig(topic, queues, queues))
    return topic


def message(topic: str, text: str, number: int, size: int = 0) -> Message:
    """The message that `Driver.java` makes of the same arguments."""
    made = Message(topic, f"{text}|{number}|".ljust(size, "x").encode())
    made.tags = "TagÄ"
    made.keys = f"{text}-key-{number}"
    made.put_user_property("number", str(number))
    made.wait_store_msg_ok = True
    made.flag = number % 7
    return made


# --- all ways to send -------------------------------------------------------------------------------------------------


async def _one_by_one(producer: Producer, messages: list[Message]) -> None:
    for one in messages:
        assert (await producer.send(one)).send_status is SendStatus.SEND_OK


async def _together(producer: Producer, messages: list[Message]) -> None:
    await producer.send(messages[0])
    results = await asyncio.gather(*map(producer.send, messages[1:]))
    assert {result.msg_id for result in results} == {one.uniq_key for one in messages[1:]}


async def _many(producer: Producer, messages: list[Message]) -> None:
    results = await producer.send_many(messages)
    assert [result.msg_id for result in results] == [one.uniq_key for one in messages]


async def _futures(producer: Producer, messages: list[Message]) -> None:
    await asyncio.gather(*map(producer.send_async, messages))


async def _batch(producer: Producer, messages: list[Message]) -> None:
    await producer.send_batch(messages[: len(messages) // 2])
    await producer.send_batch(messages[len(messages) // 2 :])  # the topic is known now


async def _orderly(producer: Producer, messages: list[Message]) -> None:
    for one in messages:
        await producer.send_orderly(one, lambda queues, _, key: queues[key % len(queues)], 1)


async def _oneway(producer: Producer, messages: list[Message]) -> None:
    for one in messages:
        await producer.send_oneway(one)


async def _table(producer: Producer, messages: list[Message]) -> None:
    """Rows have neither a flag nor a wish to wait: their messages lose both."""
    columns = {
        "body": [one.body for one in messages],
        "tags": [one.tags for one in messages],
        "keys": [[one.keys] for one in messages],
        "properties": [{"number": one.properties["number"]} for one in messages],
    }
    rows = await producer.send_arrow(pa.table(columns), topic=messages[0].topic)
    for one, row in zip(messages, rows.to_pylist(), strict=True):
        one.flag, one.properties["UNIQ_KEY"] = 0, row["uniqKey"]
        del one.properties["WAIT"]


WAYS: Final[dict[str, Callable[[Producer, list[Message]], Awaitable[None]]]] = {
    "one by one": _one_by_one, "together": _together, "many": _many, "futures": _futures, "batch": _batch,
    "orderly": _orderly, "oneway": _oneway, "table": _table,
}  # fmt: skip


# --- all ways to receive ----------------------------------------------------------------------------------------------


def _group() -> str:
    return f"CG_paths_{next(_groups)}"


async def _push(java: Servers, topic: str, count: int, more: dict[str, Any], **settings: Any) -> list[MessageExt]:
    got: list[MessageExt] = []
    full = asyncio.Event()

    def listener(messages: list[MessageExt], _: object) -> None:
        got.extend(messages)
        if len(got) >= count:
            full.set()

    consumer = async_push_consumer(
        _group(), java.namesrv, listener, consume_from_where=FIRST, orderly=settings.pop("orderly", False), **more
    )
    consumer.subscribe(topic)
    async with consumer, asyncio.timeout(60):
        await full.wait()
    return got


async def _push_orderly(java: Servers, topic: str, count: int, more: dict[str, Any]) -> list[MessageExt]:
    return await _push(java, topic, count, more, orderly=True)


async def _poll(java: Servers, topic: str, count: int, more: dict[str, Any]) -> list[MessageExt]:
    got: list[MessageExt] = []
    consumer = async_lite_pull_consumer(_group(), java.namesrv, consume_from_where=FIRST, **more)
    await consumer.subscribe(topic)
    async with consumer, asyncio.timeout(60):
        while len(got) < count:
            got += await consumer.poll(5_000)
    return got


async def _iterate(java: Servers, topic: str, count: int, more: dict[str, Any]) -> list[MessageExt]:
    got: list[MessageExt] = []
    consumer = async_lite_pull_consumer(_group(), java.namesrv, consume_from_where=FIRST, **more)
    await consumer.subscribe(topic)
    async with consumer, asyncio.timeout(60):
        async for one in consumer:
            got.append(one)
            if len(got) == count:
                break
    return got


async def _poll_arrow(java: Servers, topic: str, count: int, more: dict[str, Any]) -> list[MessageExt]:
    got: list[MessageExt] = []
    consumer = async_lite_pull_consumer(_group(), java.namesrv, consume_from_where=FIRST, **more)
    await consumer.subscribe(topic)
    async with consumer, asyncio.timeout(60):
        while len(got) < count:
            got += map(_of_row, (await consumer.poll_arrow(5_000)).to_pylist(maps_as_pydicts="strict"))
    return got


def _of_row(row: dict[str, Any]) -> MessageExt:
    """The message that these columns tell of; what several of them tell is the same."""
    made = MessageExt(
        row["topic"], row["body"], row["properties"], row["flag"], broker_name=row["brokerName"],
        queue_id=row["queueId"], queue_offset=row["queueOffset"], physical_offset=row["physicalOffset"],
        sys_flag=row["sysFlag"], born_timestamp=_ms(row["bornTimestamp"]), store_timestamp=_ms(row["storeTimestamp"]),
        born_host=_host_bytes(row["bornHost"]), store_host=_host_bytes(row["storeHost"]),
        reconsume_times=row["reconsumeTimes"], prepared_transaction_offset=row["preparedTransactionOffset"],
        body_crc=row["bodyCrc"] & 0xFFFFFFFF,
    )  # fmt: skip
    assert row["tags"] == made.tags
    assert row["keys"] == (made.keys or "").split()
    assert (row["msgId"], row["uniqKey"]) == (made.offset_msg_id, made.uniq_key)
    return made


def _host_bytes(text: str) -> bytes:
    host, _, port = text.rpartition(":")
    return encode_host(host.strip("[]"), int(port))


def _ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)


async def _simple(java: Servers, topic: str, count: int, more: dict[str, Any]) -> list[MessageExt]:
    got: list[MessageExt] = []
    consumer = async_simple_consumer(_group(), java.namesrv, consume_from_where=FIRST, **more)
    await consumer.subscribe(topic)
    async with consumer, asyncio.timeout(60):
        while len(got) < count:
            messages = await consumer.receive(32, wait_ms=5_000)
            got += messages
            await consumer.ack_all(messages)
    return got


async def _blocking_poll(java: Servers, topic: str, count: int, more: dict[str, Any]) -> list[MessageExt]:
    def read() -> list[MessageExt]:
        got: list[MessageExt] = []
        with api.LitePullConsumer(_group(), java.namesrv, consume_from_where=FIRST, **more) as consumer:
            consumer.subscribe(topic)
            for one in consumer:
                got.append(one)
                if len(got) == count:
                    return got
        return got

    async with asyncio.timeout(60):
        return await asyncio.to_thread(read)


async def _blocking_push(java: Servers, topic: str, count: int, more: dict[str, Any]) -> list[MessageExt]:
    def read() -> list[MessageExt]:
        got: list[MessageExt] = []
        full = threading.Event()

        def listener(messages: list[MessageExt], _: object) -> None:
            got.extend(messages)
            if len(got) >= count:
                full.set()

        consumer = api.PushConsumer(_group(), java.namesrv, listener, consume_from_where=FIRST, **more)
        consumer.subscribe(topic)
        with consumer:
            assert full.wait(60)
        return got

    return await asyncio.to_thread(read)


RECEIVERS: Final[dict[str, Callable[[Servers, str, int, dict[str, Any]], Awaitable[list[MessageExt]]]]] = {
    "push": _push, "push orderly": _push_orderly, "poll": _poll, "iterate": _iterate, "simple": _simple,
    "poll_arrow": _poll_arrow,
    "blocking iterate": _blocking_poll, "blocking push": _blocking_push,
}  # fmt: skip


@pytest.mark.parametrize("client", CLIENTS)
async def test_what_we_send_in_every_way_is_read_by_java_and_by_us_in_every_way(
    java: Servers, driver: JavaDriver, client: str
) -> None:
    settings = CLIENTS[client]
    wire = await created(java, ("NS%" if client == "namespace" else "") + f"Ways-{client}")
    topic = wire.removeprefix("NS%")
    given: dict[str, Message] = {}
    async with async_producer(f"PG_{client}", java.namesrv, send_msg_timeout=PATIENT, **settings) as producer:
        for way, send in WAYS.items():
            messages = [message(topic, way, number) for number in range(15)]
            given |= {one.body.decode(): one for one in messages}
            await send(producer, messages)
        large = message(topic, "large", 0, size=50_000)
        given[large.body.decode()] = large
        await producer.send(large)
        rows = await asyncio.to_thread(driver.consume, java.namesrv, wire, len(given), group=f"CG_{client}_of_Java")
    assert sorted(row["body"] for row in rows) == sorted(given)
    for row in rows:
        one = given[row["body"]]
        assert (row["keys"], row["tags"], row["flag"]) == (one.keys, one.tags, one.flag)
        assert {name: row["properties"].get(name) for name in one.properties} == one.properties
        assert row["msgId"] == one.uniq_key
    for how, receive in RECEIVERS.items():
        got = await receive(java, topic, len(given), settings)
        assert sorted(one.body.decode() for one in got) == sorted(given), how
        for one in got:
            sent = given[one.body.decode()]
            assert (one.topic, one.keys, one.tags, one.flag) == (topic, sent.keys, sent.tags, sent.flag), how
            assert one.msg_id == sent.uniq_key, how


@pytest.mark.parametrize("how", RECEIVERS)
async def test_what_java_sends_in_every_way_is_for_us_what_it_is_for_java(
    java: Servers, driver: JavaDriver, how: str
) -> None:
    topic = await created(java, f"OfJava-{how.replace(' ', '-')}")
    count = 0
    for mode, number in (("sync", 20), ("async", 20), ("orderly", 20), ("oneway", 20), ("batch", 20)):
        await asyncio.to_thread(driver.send, java.namesrv, topic, number, mode, text=f"j-{mode}", tag="TagÄ")
        count += number
    properties = {"schlüssel": 'w"ert\\', "empty": ""}
    for options, number in (({"compress": "ZLIB"}, 3), ({"compress": "LZ4"}, 3), ({"compress": "ZSTD"}, 3),
                            ({"autoBatch": True}, 20)):  # fmt: skip
        with driver.client("kindsProducer", group="PG_kinds", namesrv=java.namesrv, **options) as name:
            work = partial(
                driver.call, "kindsSend", name=name, topic=topic, properties=properties, count=number, threads=4,
                size=50_000 if "compress" in options else 0, text=f"j-{next(iter(options.values()))}",
            )  # fmt: skip
            await asyncio.to_thread(work)
        count += number
    rows = await asyncio.to_thread(driver.consume, java.namesrv, topic, count)
    assert len(rows) == count
    got = await RECEIVERS[how](java, topic, count, {})
    assert len(got) == count
    by_place = {(row["queueId"], row["queueOffset"]): row for row in rows}
    for one in got:
        _check_fields(one, by_place[one.queue_id, one.queue_offset])


#: Properties that the consuming client or the broker adds at each delivery.
_OF_THE_DELIVERY: Final = {"MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME", "POP_CK", "1ST_POP_TIME", "CLUSTER"}


def _check_fields(one: MessageExt, row: dict[str, Any]) -> None:
    ours = {name: value for name, value in one.properties.items() if name not in _OF_THE_DELIVERY}
    theirs = {name: value for name, value in row["properties"].items() if name not in _OF_THE_DELIVERY}
    assert ours == theirs
    assert one.body.decode() == row["body"]
    assert (one.msg_id, one.offset_msg_id) == (row["msgId"], row["offsetMsgId"])
    assert (one.keys, one.tags, one.flag, one.topic) == (row.get("keys"), row.get("tags"), row["flag"], row["topic"])
    assert (one.born_timestamp, one.store_timestamp) == (row["bornTimestamp"], row["storeTimestamp"])
    assert one.physical_offset == row["physicalOffset"]
    assert _host(one.born_host_text) == _host(row["bornHost"])
    assert _host(one.store_host_text) == _host(row["storeHost"])
    assert one.reconsume_times == row["reconsumeTimes"]


def _host(text: str) -> tuple[str, str]:
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    return ("::1" if host in ("0:0:0:0:0:0:0:1", "::1") else host), port


# --- bytes in the store -----------------------------------------------------------------------------------------------


_IDS: Final = (b"UNIQ_KEY", b"__transactionId__")
#: Properties that brokers add to a message that came alone.
_OF_THE_BROKER: Final = (b"CLUSTER\x01", b"MSG_REGION\x01", b"TRACE_ON\x01")


@dataclass(frozen=True)
class Record:
    """The parts of a stored record that its producer decides. The size is without the ids."""

    size: int
    magic: int
    crc: int
    flag: int
    sys_flag: int
    born: bytes
    rest: tuple[int, int]
    body: bytes
    topic: bytes
    properties: tuple[bytes, ...]


def record_of(raw: bytes) -> Record:
    """Take a record of Java's CommitLog apart, without our own code."""
    size, magic, crc, _queue, flag = struct.unpack_from(">iIIii", raw)
    sys_flag = struct.unpack_from(">i", raw, 36)[0]
    at = 48
    born_size = 20 if sys_flag & (1 << 4) else 8
    born = raw[at : at + born_size - 4]
    at += born_size + 8 + (20 if sys_flag & (1 << 5) else 8)
    rest = struct.unpack_from(">iq", raw, at)
    at += 12
    body_size = struct.unpack_from(">i", raw, at)[0]
    body = raw[at + 4 : at + 4 + body_size]
    at += 4 + body_size
    topic = raw[at + 1 : at + 1 + raw[at]]
    at += 1 + raw[at]
    properties = raw[at + 2 : at + 2 + int.from_bytes(raw[at : at + 2], "big")]
    pairs = [pair for pair in properties.split(b"\x02") if pair]
    for number, pair in enumerate(pairs):
        name, _, value = pair.partition(b"\x01")
        if name in _IDS:  # which have the machine's address in them, be it one of 4 bytes or of 16
            pairs[number] = name + b"\x01"
            size -= len(value)
    return Record(size, magic, crc, flag, sys_flag, born, rest, body, topic, tuple(sorted(pairs)))


async def records(java: Servers, topic: str, count: int) -> list[Record]:
    """What is stored of a topic, in the order of the bodies."""
    got = await _poll(java, topic, count, {})
    async with async_admin(java.namesrv) as admin:
        found = []
        for one in got:
            answer = await admin.api.call(
                java.broker.address, RequestCode.VIEW_MESSAGE_BY_ID, fields(topic=topic, offset=one.physical_offset)
            )
            found.append((one.body, record_of(answer.body_bytes)))
    return [record for _, record in sorted(found, key=lambda pair: pair[0])]


@pytest.mark.parametrize("way", [*WAYS, "gathering", "transaction", "large"])
async def test_our_records_are_those_of_javas_client(java: Servers, driver: JavaDriver, way: str) -> None:
    """Two topics of one length; the bodies are the same, so are the checksums."""
    slug = way.replace(" ", "-")
    theirs, ours = await created(java, f"J-{slug}"), await created(java, f"O-{slug}")
    count = 3 if way == "large" else 15
    size = 50_000 if way == "large" else 0
    if way == "transaction":
        texts = [f"c-{number}" for number in range(count)]
        with driver.client("transactionProducer", group="PG_J", namesrv=java.namesrv) as name:
            await asyncio.to_thread(driver.call, "sendInTransaction", name=name, topic=theirs, texts=texts)
        async with async_transaction_producer(
            "PG_O", java.namesrv, _Committing(), send_msg_timeout=PATIENT
        ) as transactions:
            for text in texts:
                await transactions.send_message_in_transaction(_half(ours, text))
    else:
        mode = {"batch": "batch", "table": "batch", "orderly": "orderly", "oneway": "oneway", "futures": "async"}.get(
            way, "sync"
        )
        if way == "gathering":
            with driver.client("kindsProducer", group="PG_J", namesrv=java.namesrv, autoBatch=True) as name:
                await asyncio.to_thread(
                    lambda: driver.call(
                        "kindsSend", name=name, topic=theirs, count=count, text="same", tag="TagÄ", threads=8
                    )
                )
        else:
            await asyncio.to_thread(driver.send, java.namesrv, theirs, count, mode, text="same", tag="TagÄ", size=size)
        settings: dict[str, Any] = {"auto_batch": True} if way == "gathering" else {}
        async with async_producer("PG_O", java.namesrv, send_msg_timeout=PATIENT, **settings) as producer:
            messages = [message(ours, "same", number, size) for number in range(count)]
            await WAYS.get(way, _together)(producer, messages)
    of_java = await records(java, theirs, count)
    of_us = await records(java, ours, count)
    assert [_compared(record, way) for record in of_us] == [_compared(record, way) for record in of_java]


def _compared(record: Record, way: str) -> dict[str, Any]:
    """Return what is the same for both. Of gathered messages it is chance which share a request; rows of a table have
    neither a flag nor the property WAIT."""
    is_gathered, is_row = way == "gathering", way == "table"
    parts = dict(vars(record))
    parts["topic"] = len(record.topic)
    parts["rest"] = (record.rest[0], record.rest[1] > 0)  # a transaction's message names the place of its half
    names = {b"PGROUP\x01PG_J": b"PGROUP\x01", b"PGROUP\x01PG_O": b"PGROUP\x01"}
    own = (b"REAL_TOPIC\x01", *(_OF_THE_BROKER if is_gathered else ()), *((b"WAIT\x01",) if is_row else ()))
    parts["properties"] = [names.get(pair, pair) for pair in record.properties if not pair.startswith(own)]
    if is_gathered or is_row:
        del parts["size"]
    if is_row:
        del parts["flag"]
    return parts


class _Committing:
    """Commits each transaction."""

    def execute_local_transaction(self, message: Message, arg: Any) -> State:
        return State.COMMIT_MESSAGE

    def check_local_transaction(self, message: MessageExt) -> State:
        return State.COMMIT_MESSAGE


def _half(topic: str, text: str) -> Message:
    made = Message(topic, text.encode())
    made.wait_store_msg_ok = True
    return made
