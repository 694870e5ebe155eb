"""Messages go in as they are and come out as they were."""

import asyncio
from collections.abc import Callable

import pytest

from maxq.api import Message, SendStatus, async_admin, async_producer, async_push_consumer
from maxq.errors import BrokerError, ClientError
from maxq.protocol.message.compression import CompressionType
from tests.integration.client.helpers import FROM_FIRST, Collector

Name = Callable[[str], str]


async def test_body_properties_and_ids_survive_the_round_trip(namesrv: str, name: Name) -> None:
    topic, got = name("T"), Collector()
    message = Message(topic, "Grüße".encode(), {"TAGS": "TagA", "KEYS": "k1 k2", "ключ": "значение"}, flag=7)
    async with async_producer(name("P"), namesrv) as producer:
        sent = await producer.send(message)
    consumer = async_push_consumer(name("G"), namesrv, got, consume_from_where=FROM_FIRST)
    consumer.subscribe(topic)
    async with consumer:
        await got.wait_for(1)
    (received,) = got.messages
    assert (received.body, received.flag, received.tags, received.keys) == (message.body, 7, "TagA", "k1 k2")
    assert received.properties["ключ"] == "значение"
    assert (received.msg_id, received.offset_msg_id) == (sent.msg_id, sent.offset_msg_id)
    assert (received.queue_id, received.queue_offset) == (sent.message_queue.queue_id, sent.queue_offset)
    assert sent.send_status is SendStatus.SEND_OK


@pytest.mark.parametrize("kind", list(CompressionType))
async def test_large_bodies_are_compressed_and_come_out_whole(namesrv: str, name: Name, kind: CompressionType) -> None:
    topic, got, body = name("T"), Collector(), b"the same again and again " * 2000
    async with async_producer(name("P"), namesrv, compress_type=kind) as producer:
        await producer.send(Message(topic, body))
    consumer = async_push_consumer(name("G"), namesrv, got, consume_from_where=FROM_FIRST)
    consumer.subscribe(topic)
    async with consumer:
        await got.wait_for(1)
    assert got.messages[0].body == body
    assert got.messages[0].store_size < len(body) // 10


async def test_a_batch_is_stored_in_one_queue_in_order(namesrv: str, name: Name) -> None:
    topic, got = name("T"), Collector()
    async with async_producer(name("P"), namesrv) as producer:
        sent = await producer.send_batch([Message(topic, b"%d" % n, {"TAGS": f"t{n % 2}"}) for n in range(10)])
    consumer = async_push_consumer(
        name("G"), namesrv, got, consume_from_where=FROM_FIRST, consume_message_batch_max_size=32
    )
    consumer.subscribe(topic)
    async with consumer:
        await got.wait_for(10)
    assert got.bodies == [b"%d" % n for n in range(10)]
    assert {message.queue_id for message in got.messages} == {sent.message_queue.queue_id}
    assert [message.offset_msg_id for message in got.messages] == sent.offset_msg_id.split(",")
    assert [message.msg_id for message in got.messages] == sent.msg_id.split(",")
    assert got.messages[3].tags == "t1"


async def test_the_answer_to_a_large_batch_names_each_of_its_messages(namesrv: str, name: Name) -> None:
    topic = name("T")
    async with async_producer(name("P"), namesrv) as producer:
        sent = await producer.send_batch([Message(topic, b"x") for _ in range(10_000)])
    assert len(set(sent.offset_msg_id.split(","))) == 10_000


async def test_send_many_sends_every_message_once_and_keeps_the_order_of_results(namesrv: str, name: Name) -> None:
    topic, got, count = name("T"), Collector(), 2000
    messages = [Message(topic, b"%d" % n) for n in range(count)]
    async with async_producer(name("P"), namesrv) as producer:
        results = await producer.send_many(messages, in_flight=64)
    assert [result.msg_id for result in results] == [message.uniq_key for message in messages]
    consumer = async_push_consumer(name("G"), namesrv, got, consume_from_where=FROM_FIRST)
    consumer.subscribe(topic)
    async with consumer:
        await got.wait_for(count)
    assert got.counts() == {b"%d" % n: 1 for n in range(count)}


async def test_one_way_messages_arrive(namesrv: str, name: Name) -> None:
    topic, got = name("T"), Collector()
    consumer = async_push_consumer(name("G"), namesrv, got, consume_from_where=FROM_FIRST)
    consumer.subscribe(topic)
    async with async_producer(name("P"), namesrv) as producer:
        await producer.send(Message(topic, b"two-way"))
        await producer.send_oneway(Message(topic, b"one-way"))
        async with consumer:
            await got.wait_for(2)
    assert set(got.bodies) == {b"two-way", b"one-way"}


async def test_a_future_and_a_callback_tell_the_outcome_of_an_asynchronous_send(namesrv: str, name: Name) -> None:
    told = []
    async with async_producer(name("P"), namesrv) as producer:
        future = producer.send_async(Message(name("T"), b"x"), lambda result, error: told.append((result, error)))
        result = await future
        await asyncio.sleep(0)
    assert told == [(result, None)]


async def test_a_selector_keeps_messages_of_one_key_in_one_queue(namesrv: str, name: Name) -> None:
    topic = name("T")
    async with async_producer(name("P"), namesrv) as producer:
        queues = set()
        for n in range(12):
            sent = await producer.send_orderly(Message(topic, b"%d" % n), lambda qs, _, key: qs[key % len(qs)], 3)
            queues.add(sent.message_queue)
    assert len(queues) == 1


async def test_round_robin_uses_every_queue(namesrv: str, name: Name) -> None:
    topic = name("T")
    async with async_producer(name("P"), namesrv) as producer:
        sent = [await producer.send(Message(topic, b"x")) for _ in range(8)]
    assert {result.message_queue.queue_id for result in sent} == {0, 1, 2, 3}
    assert all(sum(r.message_queue.queue_id == q for r in sent) == 2 for q in range(4))


async def test_tags_with_equal_hashes_are_told_apart(namesrv: str, name: Name) -> None:
    topic, got = name("T"), Collector()
    async with async_producer(name("P"), namesrv) as producer:
        for tag in ("Aa", "BB", "Aa", "C"):  # "Aa" and "BB" have the same hash code
            await producer.send(Message(topic, tag.encode(), {"TAGS": tag}))
        await producer.send(Message(topic, b"end", {"TAGS": "C"}))
    consumer = async_push_consumer(name("G"), namesrv, got, consume_from_where=FROM_FIRST)
    consumer.subscribe(topic, "Aa || C")
    async with consumer:
        await got.wait_for(4)
    assert sorted(got.bodies) == [b"Aa", b"Aa", b"C", b"end"]


async def test_a_waiting_consumer_gets_a_new_message_at_once(namesrv: str, name: Name) -> None:
    topic, got = name("T"), Collector()
    async with async_producer(name("P"), namesrv) as producer:
        await producer.send(Message(topic, b"first"))
        consumer = async_push_consumer(name("G"), namesrv, got, consume_from_where=FROM_FIRST)
        consumer.subscribe(topic)
        async with consumer:
            await got.wait_for(1)
            await producer.send(Message(topic, b"second"))
            await got.wait_for(2, seconds=10)  # below the 15 s a pull is held


async def test_a_namespace_is_invisible_to_the_user_and_separates_topics(namesrv: str, name: Name) -> None:
    topic, got = name("T"), Collector()
    async with async_producer(name("P"), namesrv, namespace="ns1") as producer:
        sent = await producer.send(Message(topic, b"x"))
        assert sent.message_queue.topic == f"ns1%{topic}"
    consumer = async_push_consumer(name("G"), namesrv, got, namespace="ns1", consume_from_where=FROM_FIRST)
    consumer.subscribe(topic)
    async with consumer:
        await got.wait_for(1)
    assert got.messages[0].topic == topic
    async with async_admin(namesrv) as admin:
        names = await admin.topics.names()
    assert f"ns1%{topic}" in names and topic not in names


async def test_messages_nobody_would_take_are_refused_with_size_limit_and_remedy(namesrv: str, name: Name) -> None:
    async with async_producer(name("P"), namesrv, max_message_size=100) as producer:
        with pytest.raises(ClientError, match="has 101 bytes, more than max_message_size 100"):
            await producer.send(Message(name("T"), b"x" * 101))
        with pytest.raises(ClientError, match="is empty"):
            await producer.send(Message(name("T"), b""))
        with pytest.raises(ClientError, match="characters other than"):
            await producer.send(Message("illegal topic", b"x"))
        with pytest.raises(ClientError, match="system topic SCHEDULE_TOPIC_XXXX is forbidden"):
            await producer.send(Message("SCHEDULE_TOPIC_XXXX", b"x"))


async def test_a_queue_that_does_not_exist_is_refused_by_the_broker(namesrv: str, name: Name) -> None:
    topic = name("T")
    async with async_producer(name("P"), namesrv) as producer:
        sent = await producer.send(Message(topic, b"x"))
        missing = type(sent.message_queue)(topic, sent.message_queue.broker_name, 99)
        with pytest.raises(BrokerError) as refused:
            await producer.send(Message(topic, b"x"), queue=missing)
    assert refused.value.code in (1, 29)
