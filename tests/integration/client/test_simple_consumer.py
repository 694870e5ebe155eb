"""SimpleConsumer, and push consumers whose broker assigns their queues, against a running server."""

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from maxq.api import (
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    MessageExt,
    SimpleConsumer,
    async_admin,
    async_producer,
    async_push_consumer,
    async_simple_consumer,
)
from maxq.client.consumer import consume_pop
from maxq.client.results.pop_result import PopResult, PopStatus
from maxq.errors import ClientError, MaxQError
from maxq.protocol.body.consumer_info import SetMessageRequestModeRequestBody
from maxq.protocol.body.subscription import SubscriptionGroupConfig
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.enums import MessageRequestMode

Name = Callable[[str], str]
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


async def _sent(namesrv: str, topic: str, count: int) -> set[bytes]:
    async with async_admin(namesrv) as admin:
        for address in await admin.brokers.masters_of_cluster("DefaultCluster"):
            await admin.topics.create(address, TopicConfig(topic, 4, 4))
    async with async_producer("PG", namesrv) as producer:
        await producer.send_many([Message(topic, b"%d" % number) for number in range(count)])
    return {b"%d" % number for number in range(count)}


async def test_each_message_goes_to_one_member_and_is_gone_when_acknowledged(namesrv: str, name: Name) -> None:
    topic, group = name("T"), name("G")
    sent = await _sent(namesrv, topic, 60)
    taken: list[list[MessageExt]] = [[], []]
    members = [async_simple_consumer(group, namesrv, consume_from_where=FIRST, instance_name=n) for n in ("a", "b")]
    for member in members:
        await member.subscribe(topic)

    async def take(number: int) -> None:
        async with members[number] as member:
            while sum(map(len, taken)) < 60:
                messages = await member.receive(8, wait_ms=500)
                taken[number] += messages
                await member.ack_all(messages)

    async with asyncio.timeout(20):
        await asyncio.gather(take(0), take(1))
    bodies = [message.body for messages in taken for message in messages]
    assert len(bodies) == 60 and set(bodies) == sent
    async with async_simple_consumer(group, namesrv) as third:
        await third.subscribe(topic)
        assert await third.receive(wait_ms=100) == []


async def test_what_is_given_more_time_comes_later_and_what_is_given_none_at_once(namesrv: str, name: Name) -> None:
    topic, group = name("T"), name("G")
    await _sent(namesrv, topic, 2)
    consumer = async_simple_consumer(group, namesrv, consume_from_where=FIRST)
    await consumer.subscribe(topic)
    async with consumer:
        first: list[MessageExt] = []
        while len(first) < 2:
            first += await consumer.receive(1, invisible_ms=60_000)
        await consumer.change_invisible_duration(first[0], 60_000)
        await consumer.change_invisible_duration(first[1], 0)
        (again,) = await consumer.receive(wait_ms=10_000)
        assert again.body == first[1].body and again.reconsume_times == 1 and again.topic == topic
        await consumer.ack(again)
        await consumer.ack(first[0])  # by the handle that changing gave it
        assert await consumer.receive(wait_ms=100) == []


async def test_a_message_that_comes_while_one_waits_is_received(namesrv: str, name: Name) -> None:
    topic, group = name("T"), name("G")
    await _sent(namesrv, topic, 0)
    consumer = async_simple_consumer(group, namesrv, consume_from_where=FIRST)
    await consumer.subscribe(topic, "TagA")
    async with consumer, async_producer("PG", namesrv) as producer:
        waiting = asyncio.ensure_future(consumer.receive(wait_ms=20_000))
        for tag in ("TagB", "TagA"):
            await producer.send(Message(topic, tag.encode(), {"TAGS": tag}))
        assert [message.body for message in await waiting] == [b"TagA"]


async def test_wrong_use_is_told(namesrv: str, name: Name) -> None:
    async with async_simple_consumer(name("G"), namesrv) as consumer:
        with pytest.raises(ClientError, match="nothing is subscribed"):
            await consumer.receive()
        await consumer.subscribe("T")
        with pytest.raises(ClientError, match="1 to 32"):
            await consumer.receive(33)
        with pytest.raises(ClientError, match="has no receipt handle"):
            await consumer.ack(MessageExt("T", b"made here"))


async def test_the_blocking_face(namesrv: str, name: Name) -> None:
    topic, group = name("T"), name("G")
    sent = await _sent(namesrv, topic, 5)

    def consume() -> set[bytes]:
        found: set[bytes] = set()
        with SimpleConsumer(group, namesrv, consume_from_where=FIRST) as consumer:
            consumer.subscribe(topic)
            while len(found) < 5:
                for message in consumer.receive(wait_ms=2_000):
                    found.add(message.body)
                    consumer.ack(message)
        return found

    assert await asyncio.to_thread(consume) == sent


async def test_a_push_consumer_pops_where_its_broker_says_so(
    namesrv: str, name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume_pop, "DELAYS", (0, 0))
    topic, group = name("T"), name("G")
    sent = await _sent(namesrv, topic, 40)
    async with async_admin(namesrv) as admin:
        for address in await admin.brokers.masters_of_cluster("DefaultCluster"):
            await admin.groups.create(address, SubscriptionGroupConfig(group_name=group))
            mode = SetMessageRequestModeRequestBody(topic, group, MessageRequestMode.POP, 0)
            await admin.groups.set_message_request_mode(address, mode)
    failed: set[bytes] = set()
    taken: list[tuple[bytes, int]] = []
    done = asyncio.Event()

    async def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        for message in messages:
            if message.body in (b"3", b"7") and message.body not in failed:
                failed.add(message.body)
                return ConsumeResult.RECONSUME_LATER
            taken.append((message.body, message.reconsume_times))
        if len(taken) == 40:
            done.set()
        return ConsumeResult.SUCCESS

    consumer = async_push_consumer(group, namesrv, listen, client_rebalance=False, consume_from_where=FIRST)
    consumer.subscribe(topic)
    async with consumer:
        async with asyncio.timeout(20):
            await done.wait()
        assert [queue.queue_id for queue in consumer.assigned_queues() if queue.topic == topic] == [-1]
        assert consumer.running_info().mq_pop_table
    assert {body for body, _ in taken} == sent and len(taken) == 40
    assert dict(taken)[b"3"] == 1 and dict(taken)[b"0"] == 0


async def test_what_failed_too_often_goes_to_the_dead_letters(
    namesrv: str, name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume_pop, "DELAYS", (0, 0))
    topic, group = name("T"), name("G")
    await _sent(namesrv, topic, 1)
    async with async_admin(namesrv) as admin:
        for address in await admin.brokers.masters_of_cluster("DefaultCluster"):
            await admin.groups.create(address, SubscriptionGroupConfig(group_name=group))
            mode = SetMessageRequestModeRequestBody(topic, group, MessageRequestMode.POP, 0)
            await admin.groups.set_message_request_mode(address, mode)
    tries: list[int] = []

    async def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        tries.extend(message.reconsume_times for message in messages)
        return ConsumeResult.RECONSUME_LATER

    consumer = async_push_consumer(
        group, namesrv, listen, client_rebalance=False, consume_from_where=FIRST, max_reconsume_times=2
    )
    consumer.subscribe(topic)
    async with consumer, async_admin(namesrv) as admin, asyncio.timeout(30):
        letters: list[bytes] = []
        while not letters:
            await asyncio.sleep(0.05)
            with contextlib.suppress(MaxQError):  # the topic comes with the first dead letter
                letters = [message.body async for message in admin.messages.scan(f"%DLQ%{group}")]
    assert letters == [b"0"] and tries == [0, 1, 2]


async def test_a_tag_that_only_has_the_same_hash_is_left_out_and_acknowledged(namesrv: str, name: Name) -> None:
    topic, group = name("T"), name("G")
    await _sent(namesrv, topic, 0)
    messages = [Message(topic, b"right"), Message(topic, b"wrong")]
    messages[0].tags, messages[1].tags = "Aa", "BB"
    async with async_producer("PG", namesrv) as producer:
        await producer.send_many(messages)
    consumer = async_simple_consumer(group, namesrv, consume_from_where=FIRST)
    await consumer.subscribe(topic, "Aa")
    async with consumer:
        found: list[MessageExt] = []
        while not found:
            found = await consumer.receive(invisible_ms=200)
        assert [message.body for message in found] == [b"right"]
        await consumer.ack_all(found)
        assert await consumer.receive(wait_ms=600) == []


async def test_a_broker_that_holds_no_more_requests_is_not_asked_in_a_tight_loop(namesrv: str, name: Name) -> None:
    topic, group = name("T"), name("G")
    await _sent(namesrv, topic, 0)
    consumer = async_simple_consumer(group, namesrv, consume_from_where=FIRST)
    await consumer.subscribe(topic)
    async with consumer:
        asked = 0

        async def full(*_: object, **__: object) -> PopResult:
            nonlocal asked
            asked += 1
            return PopResult(PopStatus.POLLING_FULL)

        consumer._pops.pop = full  # type: ignore[method-assign, assignment]
        assert await consumer.receive(wait_ms=300) == []
        assert asked <= 3
