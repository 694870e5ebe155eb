"""A topic gets more queues while it is used: nothing that is sent to the new ones is missed."""

import asyncio
from collections.abc import Iterator

import pytest

from maxq.api import Message, async_admin, async_producer, async_push_consumer
from maxq.protocol.body.topic_config import TopicConfig
from maxq.standalone import Standalone
from tests.integration.client.helpers import Collector

FAST = {"poll_name_server_interval": 100, "rebalance_interval": 200}


@pytest.fixture
def server() -> Iterator[Standalone]:
    with Standalone() as running:
        yield running


async def test_messages_sent_to_new_queues_before_the_consumer_knows_them_are_consumed(server: Standalone) -> None:
    """The group is old and starts at the end of unknown queues (LAST_OFFSET); a young queue is read from its beginning
    all the same."""
    got = Collector()
    names = server.namesrv_address
    async with async_admin(names) as admin, async_producer("P", names, poll_name_server_interval=100) as producer:
        await admin.topics.create(server.broker_address, TopicConfig("Growing", 2, 2))
        await producer.send_many([Message("Growing", b"first %d" % n) for n in range(20)])
        consumer = async_push_consumer("G", names, got, **FAST)
        consumer.subscribe("Growing")
        async with consumer:
            await got.wait_for(20)
            await admin.topics.create(server.broker_address, TopicConfig("Growing", 6, 6))
            while (await admin.topics.route("Growing")).queue_datas[0].write_queue_nums != 6:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            late = async_producer("P2", names)  # learns the route now, before the consumer does
            async with late:
                results = await late.send_many([Message("Growing", b"then %d" % n) for n in range(60)])
            assert {result.message_queue.queue_id for result in results} == set(range(6))
            await got.wait_for(80)
            assert {queue.queue_id for queue in consumer.assigned_queues() if queue.topic == "Growing"} == set(range(6))
    assert got.counts() == {**{b"first %d" % n: 1 for n in range(20)}, **{b"then %d" % n: 1 for n in range(60)}}
