"""What a consumer says when a broker sends it elsewhere: a line a queue where something may be lost, or one a topic."""

import asyncio
import logging

import pytest

from maxq.client.client_config import LitePullConsumerConfig, PushConsumerConfig
from maxq.client.consumer.lite_pull_consumer import LitePullConsumer
from maxq.client.consumer.push_consumer import PushConsumer
from maxq.client.results.consume_result import ConsumeContext, ConsumeResult
from maxq.codes import RequestCode, ResponseCode
from maxq.protocol.enums import ConsumeFromWhere
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.message_queue import MessageQueue
from tests.unit.client.mock_broker import NAMESRV_ADDR, MockBroker, MockCluster, simulate, until

QUEUES, LEFT_FROM = 4, 3
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


async def cleaned(cluster: MockCluster) -> None:
    """Topic T with five messages in each queue, of which the first three are deleted."""
    await cluster.start()
    for topic in ("T", "%RETRY%G"):
        cluster.route(topic, queues=QUEUES)
    for number in range(5 * QUEUES):
        cluster.broker.put("T", b"%d" % number, number % QUEUES)
    for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
        cluster.broker.scripts[code] = lambda request: without_the_first(cluster.broker, request)


async def without_the_first(broker: MockBroker, request: RemotingCommand) -> RemotingCommand:
    if request.ext["topic"] == "T" and int(request.ext["queueOffset"]) < LEFT_FROM:
        queue = MessageQueue("T", broker.name, int(request.ext["queueId"]))
        answer = broker.pull_answer(request, queue, LEFT_FROM, 0)
        answer.code, answer.ext["minOffset"] = ResponseCode.PULL_OFFSET_MOVED, str(LEFT_FROM)
        return answer
    return await broker.serve_pull(request)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "maxq.client.consumer.pulling_consumer"]


@pytest.mark.parametrize("pushes", [False, True])
def test_a_group_that_begins_on_a_cleaned_topic_is_told_in_one_line(
    pushes: bool, caplog: pytest.LogCaptureFixture
) -> None:
    got: list[bytes] = []

    async def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        got.extend(message.body for message in messages)
        return ConsumeResult.SUCCESS

    async def story(cluster: MockCluster) -> None:
        await cleaned(cluster)
        if pushes:
            config = PushConsumerConfig(namesrv_addr=NAMESRV_ADDR, consumer_group="G", consume_from_where=FIRST)
            consumer = PushConsumer(config, cluster.environment(), listen)
            consumer.subscribe("T")
            async with consumer:
                await until(lambda: len(got) == 2 * QUEUES, "what is left", 60)
            return
        lite = LitePullConsumerConfig(namesrv_addr=NAMESRV_ADDR, consumer_group="G", consume_from_where=FIRST)
        reader = LitePullConsumer(lite, cluster.environment())
        await reader.subscribe("T")
        async with reader, asyncio.timeout(60):
            while len(got) < 2 * QUEUES:
                got.extend(message.body for message in await reader.poll(1_000))

    with caplog.at_level(logging.WARNING):
        simulate(story)
    assert sorted(got, key=int) == [b"%d" % number for number in range(LEFT_FROM * QUEUES, 5 * QUEUES)]
    (line,) = told(caplog)
    assert line.startswith("topic T does not begin at offset 0 for group G: its first messages are gone, or ")
    assert "begins at offset 3 of queue " in line


async def reset_once(broker: MockBroker, told: set[int], request: RemotingCommand) -> RemotingCommand:
    """Answer each queue's first pull with a reset to the offset that it asks for."""
    queue_id, offset = int(request.ext["queueId"]), int(request.ext["queueOffset"])
    if request.ext["topic"] != "T" or queue_id in told:
        return await broker.serve_pull(request)
    told.add(queue_id)
    answer = broker.pull_answer(request, MessageQueue("T", broker.name, queue_id), offset, 0)
    answer.code = ResponseCode.PULL_OFFSET_MOVED
    return answer


def test_a_reset_to_where_the_group_is_already_loses_nothing_and_warns_of_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T", queues=QUEUES)
        for number in range(QUEUES):
            cluster.broker.put("T", b"%d" % number, number)
        reset: set[int] = set()
        for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
            cluster.broker.scripts[code] = lambda request: reset_once(cluster.broker, reset, request)
        config = LitePullConsumerConfig(namesrv_addr=NAMESRV_ADDR, consumer_group="G", consume_from_where=FIRST)
        consumer = LitePullConsumer(config, cluster.environment())
        await consumer.subscribe("T")
        got: set[bytes] = set()
        async with consumer, asyncio.timeout(60):
            while len(got) < QUEUES:
                got.update(message.body for message in await consumer.poll(1_000))
        assert reset == set(range(QUEUES))

    with caplog.at_level(logging.WARNING):
        simulate(story)
    assert told(caplog) == []


def test_a_reader_that_loses_its_place_is_told_of_each_queue(caplog: pytest.LogCaptureFixture) -> None:
    async def story(cluster: MockCluster) -> None:
        await cleaned(cluster)
        for queue_id in range(QUEUES):
            cluster.broker.committed["G", MessageQueue("T", "broker-a", queue_id)] = 1
        config = LitePullConsumerConfig(namesrv_addr=NAMESRV_ADDR, consumer_group="G", consume_from_where=FIRST)
        consumer = LitePullConsumer(config, cluster.environment())
        await consumer.subscribe("T")
        async with consumer:
            await until(lambda: len(told(caplog)) == QUEUES, "four lines", 60)

    with caplog.at_level(logging.WARNING):
        simulate(story)
    assert all(line.startswith("offset 1 of ") and line.endswith("going on at 3") for line in told(caplog))
