"""The trace dispatcher: batches in the background, and no send or consumption that waits for it or fails by it."""

import asyncio

import pytest

from maxq.client.client_config import ProducerConfig, PushConsumerConfig
from maxq.client.consumer.push_consumer import PushConsumer
from maxq.client.producer.producer import Producer
from maxq.client.results.consume_result import ConsumeContext, ConsumeResult
from maxq.client.trace.async_trace_dispatcher import (
    FLUSH_INTERVAL_MS,
    KEYS_CHARS_MAX,
    MESSAGE_BYTES_MAX,
    WAITING_MAX,
    AsyncTraceDispatcher,
    TraceSide,
    trace_messages,
)
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import BrokerError
from maxq.protocol.enums import ConsumeFromWhere
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.message.message import Message, MessageExt
from maxq.protocol.message.message_queue import MessageQueue
from maxq.protocol.message.message_trace import TraceRecord, TraceType, decode_traces
from tests.unit.client.mock_broker import NAMESRV_ADDR, MockCluster, simulate, until

TRACES = "RMQ_SYS_TRACE_TOPIC"


def producer(cluster: MockCluster, **settings: object) -> Producer:
    config = ProducerConfig(namesrv_addr=NAMESRV_ADDR, producer_group="P", enable_trace=True, **settings)  # type: ignore[arg-type]
    return Producer(config, cluster.environment())


def traced(cluster: MockCluster, topic: str = TRACES) -> list[list[TraceRecord]]:
    """The records of each trace message."""
    held = [message for queue, log in cluster.broker.queues.items() if queue.topic == topic for message in log]
    return [decode_traces(message.body)[0] for message in held]


async def a_cluster(cluster: MockCluster, *topics: str) -> None:
    await cluster.start()
    for topic in topics:
        cluster.route(topic)


def test_a_batch_goes_out_when_it_is_full_and_the_rest_after_five_seconds() -> None:
    async def story(cluster: MockCluster) -> None:
        await a_cluster(cluster, "T", TRACES)
        clock = cluster.world.clock
        async with producer(cluster) as sender:
            ids = [(await sender.send(Message("T", b"x", {"TAGS": "a", "KEYS": "k"}))).msg_id for _ in range(12)]
            await until(lambda: traced(cluster), "a batch")
            full_ms = clock.monotonic_ms()
            assert [record.msg_id for record in traced(cluster)[0]] == ids[:10]
            await until(lambda: len(traced(cluster)) == 2, "the rest")
            assert 0 < clock.monotonic_ms() - full_ms <= FLUSH_INTERVAL_MS
            assert [record.msg_id for record in traced(cluster)[1]] == ids[10:]
        record = traced(cluster)[0][0]
        assert (record.trace_type, record.group_name, record.topic) == (TraceType.PUB, "P", "T")
        assert (record.tags, record.keys, record.body_length, record.success) == ("a", "k", 1, True)
        assert (record.store_host, record.region_id) == (cluster.broker.address, "DefaultRegion")
        groups = {request.ext["a"] for request in cluster.broker.requests(RequestCode.SEND_MESSAGE_V2)} - {"P"}
        assert len(groups) == 1 and groups.pop().startswith("_INNER_TRACE_PRODUCER-P-PRODUCE-")

    simulate(story)


def test_a_shutdown_sends_what_waits() -> None:
    async def story(cluster: MockCluster) -> None:
        await a_cluster(cluster, "T", TRACES)
        async with producer(cluster) as sender:
            await sender.send(Message("T", b"x"))
        assert [len(records) for records in traced(cluster)] == [1]

    simulate(story)


def test_a_trace_topic_that_is_away_breaks_no_send_and_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    async def story(cluster: MockCluster) -> None:
        await a_cluster(cluster, "T")
        async with producer(cluster) as sender:
            for _ in range(30):
                await sender.send(Message("T", b"x"))
            await asyncio.sleep(30)
            assert len(cluster.broker.queues[MessageQueue("T", cluster.broker.name, 0)]) > 0

    simulate(story)
    said = [
        record.getMessage() for record in caplog.records if "trace records could not be sent" in record.getMessage()
    ]
    assert len(said) == 1 and TRACES in said[0] and "traceTopicEnable" in said[0]


def test_a_trace_topic_that_hangs_does_not_hold_up_sends() -> None:
    async def story(cluster: MockCluster) -> None:
        await a_cluster(cluster, "T", TRACES)

        async def hang(request: RemotingCommand) -> RemotingCommand | None:
            if request.ext["b"] == TRACES:
                await asyncio.sleep(3_600)
            return request.reply(ext={"msgId": "", "queueId": "0", "queueOffset": "0"})

        cluster.broker.scripts[RequestCode.SEND_MESSAGE_V2] = hang
        clock = cluster.world.clock
        async with producer(cluster) as sender:
            started_ms = clock.monotonic_ms()
            for _ in range(100):
                await sender.send(Message("T", b"x"))
            assert clock.monotonic_ms() - started_ms < FLUSH_INTERVAL_MS
            leaving_ms = clock.monotonic_ms()
        assert clock.monotonic_ms() - leaving_ms < 10_000

    simulate(story)


def test_sends_that_the_broker_wants_untraced_and_failed_ones_are_not_traced() -> None:
    async def story(cluster: MockCluster) -> None:
        await a_cluster(cluster, "T", TRACES)
        answers = [
            {"msgId": "0A", "queueId": "0", "queueOffset": "0", "TRACE_ON": "false"},
            None,
        ]

        def answer(request: RemotingCommand) -> RemotingCommand:
            ext = answers.pop(0)
            return request.reply(ext=ext) if ext else request.reply(ResponseCode.MESSAGE_ILLEGAL, "no")

        cluster.broker.scripts[RequestCode.SEND_MESSAGE_V2] = answer
        async with producer(cluster) as sender:
            await sender.send(Message("T", b"x"))
            with pytest.raises(BrokerError):
                await sender.send(Message("T", b"x"))
        assert traced(cluster) == []

    simulate(story)


def test_a_batch_is_one_record_that_each_of_its_ids_finds() -> None:
    async def story(cluster: MockCluster) -> None:
        await a_cluster(cluster, "T", "Mine")
        async with producer(cluster, trace_topic="Mine") as sender:
            result = await sender.send_batch([Message("T", b"one"), Message("T", b"two", {"KEYS": "k"})])
        ((record,),) = traced(cluster, "Mine")
        assert (record.msg_id, record.body_length, record.keys) == (result.msg_id, 6, None)
        (message,) = (m for queue, log in cluster.broker.queues.items() if queue.topic == "Mine" for m in log)
        assert (message.properties["KEYS"]).split() == [result.msg_id, *result.msg_id.split(",")]

    simulate(story)


def test_listener_calls_are_traced_with_their_outcome_and_without_the_namespace() -> None:
    async def story(cluster: MockCluster) -> None:
        await a_cluster(cluster, "N%T", TRACES)
        cluster.broker.put("N%T", b"good", properties={"UNIQ_KEY": "A1", "KEYS": "k", "MSG_REGION": "R"})
        cluster.broker.put("N%T", b"bad", properties={"UNIQ_KEY": "A2"}, reconsume_times=3)
        cluster.broker.put("N%T", b"secret", properties={"UNIQ_KEY": "A3", "TRACE_ON": "false"})
        seen: list[bytes] = []

        async def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
            await asyncio.sleep(0.25)
            seen.extend(message.body for message in messages)
            return ConsumeResult.RECONSUME_LATER if messages[0].body == b"bad" else ConsumeResult.SUCCESS

        config = PushConsumerConfig(
            namesrv_addr=NAMESRV_ADDR, consumer_group="G", namespace="N", enable_trace=True, consume_thread_nums=1,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )  # fmt: skip
        consumer = PushConsumer(config, cluster.environment(), listen)
        consumer.subscribe("T")
        async with consumer:
            await until(lambda: len(seen) >= 3, "three messages")
        records = {(record.trace_type, record.msg_id): record for records in traced(cluster) for record in records}
        assert set(records) == {
            (kind, msg_id) for kind in (TraceType.SUB_BEFORE, TraceType.SUB_AFTER) for msg_id in ("A1", "A2")
        }
        before, after = records[TraceType.SUB_BEFORE, "A1"], records[TraceType.SUB_AFTER, "A1"]
        assert (before.region_id, before.group_name, before.keys, before.retry_times) == ("R", "G", "k", 0)
        assert before.request_id == after.request_id
        assert (after.success, after.context_code, after.cost_time_ms) == (True, 0, 250)
        failed = records[TraceType.SUB_AFTER, "A2"]
        assert (failed.success, failed.context_code) == (False, 4)
        assert records[TraceType.SUB_BEFORE, "A2"].region_id == "DefaultRegion"
        assert records[TraceType.SUB_BEFORE, "A2"].retry_times == 3

    simulate(story)


def test_more_than_the_limit_waiting_is_dropped_and_counted() -> None:
    async def story(cluster: MockCluster) -> None:
        config = ProducerConfig(namesrv_addr=NAMESRV_ADDR, producer_group="P")
        dispatcher = AsyncTraceDispatcher(config, "P", TraceSide.PRODUCE, cluster.environment())
        for _ in range(WAITING_MAX + 7):
            dispatcher.append([TraceRecord(TraceType.RECALL, 1, "R", "P", "T", "A", success=True)])
        assert dispatcher.dropped == 7

    simulate(story)


def test_trace_messages_are_bounded_in_bytes_and_keys() -> None:
    ids = ",".join(f"{number:032X}" for number in range(2_000))
    batch = TraceRecord(
        TraceType.PUB, 1, "R", "P", "T", ids, body_length=1, cost_time_ms=1, message_type=0, success=True
    )
    small = TraceRecord(TraceType.RECALL, 1, "R", "P", "T", "A", success=True)
    found = trace_messages("X", [(record, record.encode()) for record in (small, batch, batch, small)])
    assert [decode_traces(message.body)[0] for message in found] == [[small], [batch], [batch, small]]
    assert all(len(message.properties["KEYS"]) <= KEYS_CHARS_MAX for message in found)
    big = TraceRecord(TraceType.RECALL, 1, "R", "P", "T" * 60_000, "A", success=True)
    found = trace_messages("X", [(big, big.encode())] * 5)
    assert [len(decode_traces(message.body)[0]) for message in found] == [2, 2, 1]
    assert all(len(message.body) <= MESSAGE_BYTES_MAX for message in found)


def test_a_namespace_of_the_second_kind_goes_with_every_request() -> None:
    async def story(cluster: MockCluster) -> None:
        await a_cluster(cluster, "T", TRACES)
        async with producer(cluster, namespace_v2="tenant") as sender:
            await sender.send(Message("T", b"x"))
        sends = cluster.broker.requests(RequestCode.SEND_MESSAGE_V2)
        assert {request.ext["b"] for request in sends} == {"T", TRACES}
        assert {(request.ext["nsd"], request.ext["ns"]) for request in sends} == {("true", "tenant")}

    simulate(story)
