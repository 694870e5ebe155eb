"""Automatic batches: messages sent one by one at about the same time share requests."""

import asyncio

import pytest

from maxq.client.client_config import ProducerConfig
from maxq.client.errors import MessageRefusedError
from maxq.client.producer.produce_accumulator import split_result
from maxq.client.producer.producer import Producer
from maxq.client.results.send_result import SendResult, SendStatus
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import BrokerError, ClientError, RemoteProtocolError
from maxq.protocol.message.message import Message, decode_batch
from maxq.protocol.message.message_queue import MessageQueue
from tests.unit.client.mock_broker import NAMESRV_ADDR, MockCluster, simulate, until

BATCH, SINGLE = RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_MESSAGE_V2


def make(cluster: MockCluster, **settings: object) -> Producer:
    values: dict[str, object] = {"auto_batch": True, **settings}
    config = ProducerConfig(namesrv_addr=NAMESRV_ADDR, producer_group="P", **values)  # type: ignore[arg-type]
    return Producer(config, cluster.environment())


async def start(cluster: MockCluster, queues: int = 1) -> None:
    await cluster.start()
    cluster.route("T", queues=queues)
    cluster.route("U", queues=queues)


def test_messages_sent_together_share_a_request_and_have_results_of_their_own() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster)
        async with make(cluster) as producer:
            messages = [Message("T", b"%d" % n) for n in range(10)]
            results = await asyncio.gather(*(producer.send(message) for message in messages))
        (request,) = cluster.broker.requests(BATCH)
        assert not cluster.broker.requests(SINGLE)
        assert [m.body for m in decode_batch(request.body_bytes, "T")] == [m.body for m in messages]
        assert [result.queue_offset for result in results] == list(range(10))
        assert [result.msg_id for result in results] == [message.uniq_key for message in messages]
        assert len({result.offset_msg_id for result in results}) == 10

    simulate(story)


def test_a_lonely_message_is_sent_as_it_is_after_the_delay() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster)
        async with make(cluster, batch_max_delay_ms=500) as producer:
            before = cluster.world.clock.monotonic_ms()
            result = await producer.send(Message("T", b"x"))
            took_ms = cluster.world.clock.monotonic_ms() - before
        assert 500 <= took_ms < 700
        assert (len(cluster.broker.requests(SINGLE)), len(cluster.broker.requests(BATCH))) == (1, 0)
        assert result.queue_offset == 0

    simulate(story)


def test_a_full_batch_does_not_wait() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster)
        async with make(cluster, batch_max_delay_ms=20_000, batch_max_bytes=1_000) as producer:
            sends = [asyncio.ensure_future(producer.send(Message("T", bytes(250)))) for _ in range(9)]
            await until(lambda: len(cluster.broker.log) >= 8, "two full batches", seconds=2)
            assert not sends[-1].done()
        assert [send.result().queue_offset for send in sends] == list(range(9))  # shutdown sent the rest

    simulate(story)


def test_what_differs_in_topic_queue_tag_or_wait_does_not_share_a_batch() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, queues=2)
        q1 = MessageQueue("T", "broker-a", 1)
        kinds = [("T", {}, None), ("U", {}, None), ("T", {"TAGS": "A"}, None), ("T", {"WAIT": "false"}, None)]
        async with make(cluster) as producer:
            sends = [producer.send(Message(topic, b"x", dict(properties))) for topic, properties, _ in kinds * 2]
            sends += [producer.send(Message("T", b"x"), queue=q1) for _ in range(2)]
            results = await asyncio.gather(*sends)
        assert len(cluster.broker.requests(BATCH)) == 5
        assert all(result.message_queue == q1 for result in results[-2:])

    simulate(story)


@pytest.mark.parametrize(
    "properties",
    [{"DELAY": "3"}, {"TIMER_DELIVER_MS": "5"}, {"TRAN_MSG": "true"}, {"PGROUP": "P"}, {"_SYS_MSG_PRIORITY_": "1"}],
)
def test_messages_that_must_travel_alone_do(properties: dict[str, str]) -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster)
        async with make(cluster, batch_max_delay_ms=10_000) as producer:
            await asyncio.gather(*(producer.send(Message("T", b"x", dict(properties))) for _ in range(3)))
        assert len(cluster.broker.requests(SINGLE)) == 3

    simulate(story)


def test_large_messages_and_those_beyond_the_total_are_sent_by_themselves() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster)
        async with make(
            cluster, batch_max_bytes=1_000, total_batch_max_bytes=500, batch_max_delay_ms=5_000
        ) as producer:
            waiting = [asyncio.ensure_future(producer.send(Message("T", bytes(600))))]
            await asyncio.sleep(0)
            await producer.send(Message("T", bytes(100)))  # 600 wait already
            await producer.send(Message("T", bytes(1_000)))
            assert not waiting[0].done()
        assert len(cluster.broker.requests(SINGLE)) == 3

    simulate(story)


def test_a_refused_batch_is_refused_for_each_of_its_senders() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster)
        cluster.broker.scripts[BATCH] = lambda r: r.reply(ResponseCode.MESSAGE_ILLEGAL, "as scripted")
        async with make(cluster) as producer:
            sends = [producer.send(Message("T", b"x")) for _ in range(3)]
            outcomes = await asyncio.gather(*sends, return_exceptions=True)
            with pytest.raises(MessageRefusedError):
                await producer.send(Message("T", b""))
        assert [type(outcome) for outcome in outcomes] == [BrokerError] * 3

    simulate(story)


def test_callbacks_and_futures_of_send_async_work_too() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster)
        told: list[SendResult | None] = []
        async with make(cluster) as producer:
            futures = [producer.send_async(Message("T", b"x"), lambda r, e: told.append(r)) for _ in range(4)]
            results = await asyncio.gather(*futures)
        assert len(cluster.broker.requests(BATCH)) == 1
        assert told == results

    simulate(story)


def test_a_batch_kept_as_one_record_gives_its_messages_one_offset_id() -> None:
    queue = MessageQueue("T", "b", 0)
    whole = SendResult(SendStatus.SEND_OK, "A,B", queue, 7, "OFFSET")
    assert [(r.msg_id, r.offset_msg_id, r.queue_offset) for r in split_result(whole, 2)] == [
        ("A", "OFFSET", 7),
        ("B", "OFFSET", 8),
    ]
    with pytest.raises(RemoteProtocolError, match="2 messages were sent, the answer names 3"):
        split_result(whole._replace(offset_msg_id="X,Y,Z"), 2)


@pytest.mark.parametrize(
    ("setting", "value"), [("batch_max_delay_ms", 0), ("batch_max_bytes", 3 << 20), ("total_batch_max_bytes", -1)]
)
def test_bounds_are_named(setting: str, value: int) -> None:
    async def story(cluster: MockCluster) -> None:
        with pytest.raises(ClientError, match=f"{setting} is a whole number .*, not {value}"):
            make(cluster, **{setting: value})

    simulate(story)


def test_a_message_that_waits_is_sent_as_it_was_when_it_was_given() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster)
        async with make(cluster) as producer:
            message, futures = Message("T", b"", {"n": ""}), []
            for n in range(3):
                message.body, message.properties["n"] = b"%d" % n, str(n)
                futures.append(producer.send_async(message))
            message.body = b"x"
            results = await asyncio.gather(*futures)
        assert [stored.body for stored in cluster.broker.log] == [b"0", b"1", b"2"]
        assert [stored.properties["n"] for stored in cluster.broker.log] == ["0", "1", "2"]
        assert {result.msg_id for result in results} == {message.uniq_key}, "an object is one message, as always"

    simulate(story)
