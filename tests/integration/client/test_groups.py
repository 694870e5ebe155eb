"""Members of a group share queues; progress outlives them."""

import asyncio
from collections import Counter
from collections.abc import Callable

from maxq.api import (
    ConsumeContext,
    ConsumeResult,
    Message,
    MessageExt,
    async_admin,
    async_producer,
    async_push_consumer,
)
from maxq.client.consumer.push_consumer import PushConsumer
from tests.integration.client.helpers import FROM_FIRST, Collector, eventually

Name = Callable[[str], str]


def member(namesrv: str, group: str, topic: str, listener: Collector, **settings: object) -> PushConsumer:
    consumer = async_push_consumer(group, namesrv, listener, consume_from_where=FROM_FIRST, **settings)
    consumer.subscribe(topic)
    return consumer


def held(consumer: PushConsumer, topic: str) -> set[int]:
    return {queue.queue_id for queue in consumer.assigned_queues() if queue.topic == topic}


async def test_members_split_the_queues_and_split_again_when_one_comes_or_goes(namesrv: str, name: Name) -> None:
    topic, group = name("T"), name("G")
    got = [Collector() for _ in range(3)]
    async with async_producer(name("P"), namesrv, default_topic_queue_nums=8) as producer:
        await producer.send_many([Message(topic, b"%d" % n) for n in range(80)])
        async with member(namesrv, group, topic, got[0]) as first:
            await eventually(lambda: len(held(first, topic)) == 8, "the only member holds all queues")
            async with member(namesrv, group, topic, got[1]) as second:
                await eventually(
                    lambda: len(held(first, topic)) == len(held(second, topic)) == 4, "two members hold four each"
                )
                assert not held(first, topic) & held(second, topic)
                third = member(namesrv, group, topic, got[2])
                await third.start()
                await eventually(
                    lambda: sorted(len(held(c, topic)) for c in (first, second, third)) == [2, 3, 3],
                    "three members hold 3, 3, 2",
                )
                await third.shutdown()
                await eventually(lambda: len(held(first, topic)) == len(held(second, topic)) == 4, "four each again")
                await producer.send_many([Message(topic, b"%d" % n) for n in range(80, 160)])
                await eventually(
                    lambda: {body for c in got for body in c.bodies} == {b"%d" % n for n in range(160)}, "every message"
                )
                assert got[1].messages, "the second member takes part"


async def test_a_second_member_gets_nothing_that_the_first_has_done(namesrv: str, name: Name) -> None:
    topic, group, first, second = name("T"), name("G"), Collector(), Collector()
    async with async_producer(name("P"), namesrv, default_topic_queue_nums=8) as producer:
        await producer.send_many([Message(topic, b"%d" % n) for n in range(400)])
        async with member(namesrv, group, topic, first) as one:
            await first.wait_for(400)
            async with member(namesrv, group, topic, second) as two:
                await eventually(lambda: len(held(one, topic)) == len(held(two, topic)) == 4, "four each")
                await producer.send_many([Message(topic, b"%d" % n) for n in range(400, 480)])
                bodies = {b"%d" % n for n in range(480)}
                await eventually(lambda: {*first.bodies, *second.bodies} == bodies, "every message")
    assert first.counts() + second.counts() == Counter(bodies)


async def test_queues_change_hands_while_messages_are_sent_and_hardly_one_goes_to_both_owners(
    namesrv: str, name: Name
) -> None:
    """What apache/rocketmq-e2e's LoadBalancingTest does: two members join two others while messages are sent."""
    topic, group, got = name("T"), name("G"), [Collector() for _ in range(4)]
    async with async_producer(name("P"), namesrv, default_topic_queue_nums=8) as producer:
        await producer.send(Message(topic, b"makes the topic"))
        members = [member(namesrv, group, topic, collector) for collector in got]
        for one in members[:2]:
            await one.start()
        await eventually(lambda: [len(held(one, topic)) for one in members[:2]] == [4, 4], "four each")
        joining = asyncio.gather(*(one.start() for one in members[2:]))
        for number in range(240):
            await producer.send(Message(topic, b"%d" % number))
        await joining
        bodies = {b"makes the topic", *(b"%d" % number for number in range(240))}
        await eventually(lambda: {body for collector in got for body in collector.bodies} == bodies, "every message")
        for one in members:
            await one.shutdown()
    counts = Counter(body for collector in got for body in collector.bodies)
    twice = [body for body, count in counts.items() if count > 1]
    assert len(twice) <= 5, "a message that arrives before the old owner has heard of the new one goes to both"


async def test_a_new_member_goes_on_where_the_last_one_committed(namesrv: str, name: Name) -> None:
    topic, group, first, second = name("T"), name("G"), Collector(), Collector()
    async with async_producer(name("P"), namesrv) as producer:
        await producer.send_many([Message(topic, b"a%d" % n) for n in range(50)])
        async with member(namesrv, group, topic, first) as one:
            await first.wait_for(50)
            await one.shutdown(10_000)  # the first calls of the listener may not have ended yet on a busy machine
        await producer.send_many([Message(topic, b"b%d" % n) for n in range(50)])
        async with member(namesrv, group, topic, second):
            await second.wait_for(50)
    assert first.counts() == Counter(b"a%d" % n for n in range(50))
    assert second.counts() == Counter(b"b%d" % n for n in range(50))


async def test_unfinished_messages_come_again_after_a_crash(namesrv: str, name: Name) -> None:
    topic, group, second = name("T"), name("G"), Collector()
    stuck = asyncio.Event()
    seen: list[bytes] = []

    async def hang(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        seen.extend(message.body for message in messages)
        if messages[0].body == b"3":
            await stuck.wait()
        return ConsumeResult.SUCCESS

    async with async_producer(name("P"), namesrv, default_topic_queue_nums=1) as producer:
        for n in range(10):
            await producer.send(Message(topic, b"%d" % n))
    consumer = async_push_consumer(group, namesrv, hang, consume_from_where=FROM_FIRST)
    consumer.subscribe(topic)
    await consumer.start()
    await eventually(lambda: len(seen) == 10, "all messages were delivered, one hangs")
    await consumer.shutdown()
    async with member(namesrv, group, topic, second):
        await second.wait_for(7)
    assert second.bodies[0] == b"3", "everything before the hanging message was committed, nothing after it"
    assert sorted(second.counts()) == [b"%d" % n for n in range(3, 10)]


async def test_progress_is_visible_to_operators(namesrv: str, name: Name) -> None:
    topic, group, got = name("T"), name("G"), Collector()
    async with async_producer(name("P"), namesrv) as producer, async_admin(namesrv) as admin:
        await producer.send_many([Message(topic, b"%d" % n) for n in range(40)])
        async with member(namesrv, group, topic, got, persist_consumer_offset_interval=100) as consumer:
            await got.wait_for(40)
            await consumer.persist_consumer_offset()
            connections = await admin.groups.connections(group)
            assert [connection.client_id for connection in connections.connection_set] == [consumer.client_id]
            info = await admin.groups.running_info(group, consumer.client_id)
            assert {queue.queue_id for queue in info.mq_table if queue.topic == topic} == {0, 1, 2, 3}
        stats = await admin.groups.consume_stats(group, topic)
        assert stats.total_diff == 0
        assert sum(wrapper.consumer_offset for wrapper in stats.offset_table.values()) == 40
        await producer.send_many([Message(topic, b"later")] * 4)
        assert (await admin.groups.consume_stats(group, topic)).total_diff == 4


async def test_offsets_can_be_reset_under_a_running_member(namesrv: str, name: Name) -> None:
    topic, group, got = name("T"), name("G"), Collector()
    async with async_producer(name("P"), namesrv) as producer, async_admin(namesrv) as admin:
        await producer.send_many([Message(topic, b"%d" % n) for n in range(40)])
        async with member(namesrv, group, topic, got) as consumer:
            await got.wait_for(40)
            await consumer.persist_consumer_offset()
            offsets = await admin.offsets.reset_by_time(group, topic, 0)
            assert set(offsets.values()) == {0}
            await producer.send_many([Message(topic, b"wake %d" % n) for n in range(4)])  # ends pulls under way
            await eventually(lambda: all(got.counts()[b"%d" % n] == 2 for n in range(40)), "every message twice", 40)


async def test_suspended_consumers_take_nothing_until_they_are_resumed(namesrv: str, name: Name) -> None:
    topic, got = name("T"), Collector()
    async with async_producer(name("P"), namesrv) as producer:
        await producer.send(Message(topic, b"first"))
        async with member(namesrv, name("G"), topic, got) as consumer:
            await got.wait_for(1)
            consumer.suspend()
            consumer.resume()
            await producer.send(Message(topic, b"second"))
            await got.wait_for(2)
