"""Sending: which queue, which broker, how often, how long."""

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest

from maxq.client.client_config import ProducerConfig
from maxq.client.errors import (
    MessageRefusedError,
    NameIllegalError,
    NotRunningError,
    RequestTimeoutError,
    SendFailedError,
)
from maxq.client.producer.producer import Producer
from maxq.client.producer.transaction_producer import TransactionProducer
from maxq.client.results.send_result import SendResult, SendStatus
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import BrokerError, ClientError, NoRouteError, RemotingTimeoutError
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.message.compression import CompressionType, decompress
from maxq.protocol.message.message import Message, MessageExt, decode_properties
from maxq.protocol.message.message_queue import MessageQueue
from tests.unit.client.mock_broker import NAMESRV_ADDR, MockCluster, Script, simulate

SEND = RequestCode.SEND_MESSAGE_V2


def make(cluster: MockCluster, **settings: object) -> Producer:
    config = ProducerConfig(namesrv_addr=NAMESRV_ADDR, producer_group="P", **settings)  # type: ignore[arg-type]
    return Producer(config, cluster.environment())


def refuse(code: int) -> Script:
    return lambda request: request.reply(code, "as scripted")


def never() -> Script:
    return lambda request: None


def test_a_message_carries_its_header_and_the_answer_its_place() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        async with make(cluster) as producer:
            sent = await producer.send(Message("T", b"hello", {"TAGS": "A"}, flag=3))
        (request,) = cluster.broker.requests(SEND)
        ext = request.ext
        assert (ext["a"], ext["b"], ext["c"], ext["d"], ext["e"]) == ("P", "T", "TBW102", "4", "0")
        assert (ext["f"], ext["h"], ext["j"], ext["k"], ext["m"], ext["n"]) == (
            "0",
            "3",
            "0",
            "false",
            "false",
            "broker-a",
        )
        properties = decode_properties(ext["i"])
        assert properties["TAGS"] == "A"
        assert sent.msg_id == properties["UNIQ_KEY"] and len(sent.msg_id) == 32
        assert sent.message_queue == MessageQueue("T", "broker-a", 0)
        assert (sent.queue_offset, sent.send_status) == (0, SendStatus.SEND_OK)

    simulate(story)


def test_a_dead_broker_is_passed_over() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start("broker-a", "broker-b")
        cluster.route("T")
        await cluster.master("broker-a").stop()
        async with make(cluster) as producer:
            for _ in range(4):
                sent = await producer.send(Message("T", b"x"))
                assert sent.message_queue.broker_name == "broker-b"
        assert len(cluster.master("broker-b").log) == 4

    simulate(story)


def test_every_try_sends_the_same_message_id() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start("broker-a", "broker-b")
        cluster.route("T")
        for broker in cluster.brokers.values():
            broker.scripts[SEND] = refuse(ResponseCode.SYSTEM_BUSY)
        async with make(cluster) as producer:
            with pytest.raises(SendFailedError) as failed:
                await producer.send(Message("T", b"x"))
        requests = [r for broker in cluster.brokers.values() for r in broker.requests(SEND)]
        assert len({decode_properties(r.ext["i"])["UNIQ_KEY"] for r in requests}) == 1
        names = [name for name, _ in failed.value.attempts]
        assert len(names) == 3 and names[0] != names[1] != names[2]
        assert "3 times" in str(failed.value) and "as scripted" in str(failed.value)
        assert isinstance(failed.value.__cause__, BrokerError)

    simulate(story)


@pytest.mark.parametrize("code", [17, 14, 1, 2, 16, 204, 205])
def test_answers_that_another_broker_may_do_better_are_retried(code: int) -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start("broker-a", "broker-b")
        cluster.route("T")
        cluster.master("broker-a").scripts[SEND] = refuse(code)
        async with make(cluster) as producer:
            for _ in range(2):
                assert (await producer.send(Message("T", b"x"))).message_queue.broker_name == "broker-b"

    simulate(story)


@pytest.mark.parametrize("code", [13, 29, 3, 26])
def test_answers_that_are_the_same_everywhere_are_raised_at_once(code: int) -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        cluster.broker.scripts[SEND] = refuse(code)
        async with make(cluster) as producer:
            with pytest.raises(BrokerError) as refused:
                await producer.send(Message("T", b"x"))
        assert refused.value.code == code
        assert len(cluster.broker.requests(SEND)) == 1

    simulate(story)


def test_the_timeout_is_for_all_tries_together() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start("broker-a", "broker-b")
        cluster.route("T")
        for broker in cluster.brokers.values():
            broker.scripts[SEND] = never()
        async with make(cluster) as producer:
            started = cluster.world.clock.monotonic_ms()
            with pytest.raises((RemotingTimeoutError, SendFailedError)):
                await producer.send(Message("T", b"x"), timeout_ms=700)
            assert 700 <= cluster.world.clock.monotonic_ms() - started < 760

    simulate(story)


def test_a_timeout_names_why_a_try_before_failed() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")

        async def refuse_slowly(request: RemotingCommand) -> RemotingCommand:
            await asyncio.sleep(0.2)
            return request.reply(ResponseCode.SERVICE_NOT_AVAILABLE, "the disk is full")

        cluster.broker.scripts[SEND] = refuse_slowly
        async with make(cluster) as producer:
            with pytest.raises(RemotingTimeoutError, match="a try before failed: CODE: 14  DESC: the disk is full"):
                await producer.send(Message("T", b"x"), timeout_ms=300)

    simulate(story)


@pytest.mark.parametrize(
    ("code", "status"),
    [(10, SendStatus.FLUSH_DISK_TIMEOUT), (11, SendStatus.SLAVE_NOT_AVAILABLE), (12, SendStatus.FLUSH_SLAVE_TIMEOUT)],
)
def test_stored_but_not_safe_is_a_status_not_an_error(code: int, status: SendStatus) -> None:
    def stored(request: RemotingCommand) -> RemotingCommand:
        return request.reply(code, ext={"msgId": "0" * 32, "queueId": "0", "queueOffset": "5"})

    async def story(cluster: MockCluster) -> None:
        await cluster.start("broker-a", "broker-b")
        cluster.route("T")
        for broker in cluster.brokers.values():
            broker.scripts[SEND] = stored
        async with make(cluster) as producer:
            assert (await producer.send(Message("T", b"x"))).send_status is status
            sent = sum(len(broker.requests(SEND)) for broker in cluster.brokers.values())
            assert sent == 1
        async with make(cluster, retry_another_broker_when_not_store_ok=True) as producer:
            assert (await producer.send(Message("T", b"x"))).send_status is status
            assert sum(len(broker.requests(SEND)) for broker in cluster.brokers.values()) == sent + 3

    simulate(story)


def test_an_unknown_topic_takes_the_route_of_the_template_with_few_queues() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("TBW102", queues=8, perm=7)
        async with make(cluster, default_topic_queue_nums=3) as producer:
            sent = [await producer.send(Message("NEW", b"x")) for _ in range(6)]
        assert {result.message_queue.queue_id for result in sent} == {0, 1, 2}
        assert [r.ext["topic"] for r in cluster.names.seen[:2]] == ["NEW", "TBW102"]

    simulate(story)


def test_many_sends_to_a_new_topic_ask_for_its_route_once() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("TBW102", perm=7)
        async with make(cluster) as producer:
            await producer.send_many([Message("NEW", b"x") for _ in range(500)], in_flight=500)
            assert len(cluster.names.seen) < 5, "one question for each name, and the timer's"
            cluster.broker.scripts[SEND] = refuse(ResponseCode.SYSTEM_BUSY)
            await cluster.broker.stop()
            with pytest.raises(SendFailedError):
                await producer.send_many([Message("NEW", b"x") for _ in range(500)], in_flight=500)
            asked = Counter(request.ext["topic"] for request in cluster.names.seen)
            assert asked.keys() == {"NEW", "TBW102"}
            assert max(asked.values()) < 60, "a dead broker makes one question of each name a round, not a message"

    simulate(story)


def test_without_a_template_an_unknown_topic_is_refused() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        async with make(cluster) as producer:
            with pytest.raises(NoRouteError, match=r"topic NEW does not exist.*`maxq admin updateTopic`"):
                await producer.send(Message("NEW", b"x"))

    simulate(story)


def test_only_writable_brokers_with_a_master_are_used() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start("broker-a", "broker-b", "broker-c", slaves=1)
        route = cluster.route("T")
        route.queue_datas[0].perm = 4
        del route.broker_datas[1].broker_addrs[0]
        async with make(cluster) as producer:
            sent = [await producer.send(Message("T", b"x")) for _ in range(4)]
        assert {result.message_queue.broker_name for result in sent} == {"broker-c"}

    simulate(story)


def test_a_topic_that_nobody_may_write_is_refused_with_the_reason() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T", perm=4)
        async with make(cluster) as producer:
            with pytest.raises(ClientError, match="no broker of topic T has write permission"):
                await producer.send(Message("T", b"x"))

    simulate(story)


def test_fault_latency_keeps_away_from_a_broker_that_failed() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start("broker-a", "broker-b")
        cluster.route("T", queues=4)
        bad = cluster.master("broker-a")
        bad.scripts[SEND] = refuse(ResponseCode.SYSTEM_BUSY)
        async with make(cluster, send_latency_enable=True) as producer:
            for _ in range(10):
                await producer.send(Message("T", b"x"))
            assert len(bad.requests(SEND)) <= 1
            del bad.scripts[SEND]
            await asyncio.sleep(10)
            for _ in range(10):
                await producer.send(Message("T", b"x"))
            assert bad.log, "after 10 s the broker is tried again"

    simulate(story)


def test_without_fault_latency_the_bad_broker_is_tried_again_in_every_round() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start("broker-a", "broker-b")
        cluster.route("T", queues=4)
        cluster.master("broker-a").scripts[SEND] = refuse(ResponseCode.SYSTEM_BUSY)
        async with make(cluster) as producer:
            for _ in range(20):
                await producer.send(Message("T", b"x"))
        assert len(cluster.master("broker-a").requests(SEND)) >= 3

    simulate(story)


def test_a_new_route_moves_sends_within_the_polling_interval() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start("broker-a", "broker-b")
        cluster.route("T", brokers=["broker-a"])
        async with make(cluster) as producer:
            await producer.send(Message("T", b"x"))
            cluster.route("T", brokers=["broker-b"])  # wipeWritePerm of a, say
            await asyncio.sleep(31)
            assert (await producer.send(Message("T", b"x"))).message_queue.broker_name == "broker-b"

    simulate(story)


def test_a_master_that_became_a_slave_is_left_within_seconds() -> None:
    """Nothing breaks when it says so, and the name servers are asked by themselves every 30 s only."""

    async def story(cluster: MockCluster) -> None:
        await cluster.start("broker-a", "broker-b")
        cluster.route("T", brokers=["broker-a"])
        async with make(cluster) as producer:
            await producer.send(Message("T", b"x"))
            cluster.master("broker-a").scripts[SEND] = refuse(ResponseCode.SERVICE_NOT_AVAILABLE)
            cluster.route("T", brokers=["broker-b"])
            assert (await producer.send(Message("T", b"x"))).message_queue.broker_name == "broker-b"

    simulate(story)


@pytest.mark.parametrize("is_broken", [False, True], ids=["no connection can be made", "the connection breaks"])
def test_a_broker_that_has_gone_has_the_route_asked_for_within_the_send(is_broken: bool) -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start("broker-a", "broker-b")
        cluster.route("T", brokers=["broker-a"])
        gone = cluster.master("broker-a")

        async def end(request: RemotingCommand) -> RemotingCommand | None:
            cluster.route("T", brokers=["broker-b"])
            ending.append(asyncio.create_task(gone.stop()))
            return None

        ending: list[asyncio.Task[None]] = []
        async with make(cluster) as producer:
            await producer.send(Message("T", b"x"))
            if is_broken:
                gone.scripts[SEND] = end
            else:
                await end(RemotingCommand(SEND))
                await ending[0]
            asked = len(cluster.names.seen)
            assert (await producer.send(Message("T", b"x"))).message_queue.broker_name == "broker-b"
            assert len(cluster.names.seen) > asked
            await ending[0]

    simulate(story)


def test_a_send_that_no_broker_answers_has_the_route_asked_for_at_once() -> None:
    """Long before the silence of the connection, which other requests may keep from being one, is noticed."""

    async def story(cluster: MockCluster) -> None:
        await cluster.start("broker-a", "broker-b")
        cluster.route("T", brokers=["broker-a"])
        async with make(cluster, send_msg_timeout=100) as producer:
            await producer.send(Message("T", b"x"))
            cluster.master("broker-a").scripts[SEND] = never()
            cluster.route("T", brokers=["broker-b"])
            with pytest.raises(RemotingTimeoutError):
                await producer.send(Message("T", b"x"))
            await asyncio.sleep(0.1)
            assert (await producer.send(Message("T", b"x"))).message_queue.broker_name == "broker-b"

    simulate(story)


def test_a_queue_of_a_broker_that_is_no_longer_the_master_is_tried_until_the_timeout() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start("broker-a", "broker-b")
        cluster.route("T")
        refusing = cluster.master("broker-a")
        refusing.scripts[SEND] = refuse(ResponseCode.SERVICE_NOT_AVAILABLE)
        async with make(cluster) as producer:
            with pytest.raises(BrokerError, match="as scripted"):
                await producer.send(Message("T", b"x"), queue=MessageQueue("T", "broker-a", 0))
            assert 20 < len(refusing.requests(SEND)) < 40 and not cluster.master("broker-b").requests(SEND)
            assert len(cluster.names.seen) < 50

            async def until_it_leads_again() -> None:
                await asyncio.sleep(1)
                del refusing.scripts[SEND]

            leading = asyncio.create_task(until_it_leads_again())
            sent = await producer.send(Message("T", b"x"), queue=MessageQueue("T", "broker-a", 0))
            assert sent.message_queue == MessageQueue("T", "broker-a", 0)
            await leading

    simulate(story)


def test_large_bodies_travel_compressed_and_small_ones_as_they_are() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        large = b"ab" * 2048
        async with make(cluster) as producer:
            await producer.send(Message("T", large))
            await producer.send(Message("T", large[:-1]))
        first, second = cluster.broker.requests(SEND)
        assert int(first.ext["f"]) == 0x301
        assert decompress(first.body_bytes, CompressionType.ZLIB) == large
        assert (int(second.ext["f"]), second.body_bytes) == (0, large[:-1])

    simulate(story)


def test_a_batch_is_one_request_with_the_properties_of_each_message() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T", queues=4)
        async with make(cluster) as producer:
            sent = await producer.send_batch([Message("T", b"%d" % n, {"KEYS": f"k{n}"}) for n in range(3)])
        (request,) = cluster.broker.requests(RequestCode.SEND_BATCH_MESSAGE)
        assert request.ext["m"] == "true"
        assert [m.body for m in cluster.broker.log] == [b"0", b"1", b"2"]
        assert [m.keys for m in cluster.broker.log] == ["k0", "k1", "k2"]
        assert sent.msg_id.split(",") == [m.uniq_key for m in cluster.broker.log]
        assert len(sent.offset_msg_id.split(",")) == 3

    simulate(story)


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([], "at least one message"),
        ([Message("T", b"x"), Message("U", b"x")], "one topic"),
        ([Message("T", b"x", {"DELAY": "3"})], "delayed"),
        ([Message("T", b"x", {"TIMER_DELAY_SEC": "3"})], "delayed"),
        ([Message("%RETRY%G", b"x")], "retry topic"),
        ([Message("T", b"x" * 60), Message("T", b"x" * 60)], "more than max_message_size 100"),
    ],
)
def test_batches_nobody_would_take_are_refused_here(messages: list[Message], reason: str) -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        async with make(cluster, max_message_size=100) as producer:
            with pytest.raises(MessageRefusedError, match=reason):
                await producer.send_batch(messages)
        assert not cluster.broker.log

    simulate(story)


def test_send_many_stops_at_a_message_that_cannot_be_sent_and_raises_its_error() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        messages = [Message("T", b"%d" % n if n != 40 else b"") for n in range(100)]
        async with make(cluster) as producer:
            with pytest.raises(MessageRefusedError, match="empty"):
                await producer.send_many(messages, in_flight=8)
        assert 30 <= len(cluster.broker.log) < 60

    simulate(story)


def test_a_window_of_requests_is_in_flight_and_no_more() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        waiting: list[asyncio.Event] = []

        async def hold(request: RemotingCommand) -> RemotingCommand:
            event = asyncio.Event()
            waiting.append(event)
            await event.wait()
            return request.reply(ext={"msgId": "0" * 32, "queueId": "0", "queueOffset": "0"})

        cluster.broker.scripts[SEND] = hold
        async with make(cluster) as producer:
            task = asyncio.ensure_future(producer.send_many([Message("T", b"x") for _ in range(20)], in_flight=5))
            await asyncio.sleep(0.5)
            assert len(waiting) == 5
            while not task.done():
                for event in waiting:
                    event.set()
                await asyncio.sleep(0.01)
            assert len(await task) == 20

    simulate(story)


def test_large_messages_wait_for_one_another_lest_the_last_ones_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maxq.client.producer.many_sends._MANY_BYTES", 4096)

    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        on_the_way = most = 0

        async def slow(request: RemotingCommand) -> RemotingCommand:
            nonlocal on_the_way, most
            on_the_way += 1
            most = max(most, on_the_way)
            await asyncio.sleep(1)  # a slow link
            on_the_way -= 1
            return request.reply(ext={"msgId": "0" * 32, "queueId": "0", "queueOffset": "0"})

        cluster.broker.scripts[SEND] = slow
        bodies = [bytes(1024)] * 12 + [bytes(4096)] + [b"small"] * 5
        async with make(cluster, compress_msg_body_over_howmuch=1 << 30) as producer:
            results = await producer.send_many([Message("T", body) for body in bodies])
        assert len(results) == len(bodies)
        assert most == 5  # four large ones, then one that is the limit alone, then the small ones

    simulate(story)


def test_a_one_way_send_is_marked_and_not_waited_for() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        cluster.broker.scripts[SEND] = never()
        async with make(cluster) as producer:
            await producer.send_oneway(Message("T", b"x"))
            await asyncio.sleep(0.1)
        assert [request.is_oneway for request in cluster.broker.requests(SEND)] == [True]

    simulate(story)


def test_leaving_tells_the_brokers() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        async with make(cluster) as producer:
            await producer.send(Message("T", b"x"))
            client_id = producer.client_id
            await asyncio.sleep(2)
        assert [p.group_name for p in cluster.broker.heartbeats[0].producer_data_set] == ["P"]
        (request,) = cluster.broker.requests(RequestCode.UNREGISTER_CLIENT)
        assert request.ext == {"clientID": client_id, "producerGroup": "P"}
        assert client_id.startswith("10.0.9.9@4711#")
        with pytest.raises(NotRunningError):
            await producer.send(Message("T", b"x"))

    simulate(story)


def test_the_vip_channel_is_two_ports_below() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        with cluster.world.network.on_host(cluster.broker.host):
            await cluster.broker.server.listen(cluster.broker.host, 10909)
        async with make(cluster, vip_channel_enabled=True) as producer:
            await producer.send(Message("T", b"x"))
            ports = {c.local_address.rpartition(":")[2] for c in cluster.broker.server.connections}
        assert ports == {"10909"}

    simulate(story)


def test_names_that_break_the_rules_are_refused() -> None:
    async def story(cluster: MockCluster) -> None:
        with pytest.raises(NameIllegalError, match="must not be DEFAULT_PRODUCER"):
            Producer(ProducerConfig(namesrv_addr=NAMESRV_ADDR), cluster.environment())
        with pytest.raises(NameIllegalError, match="characters other than"):
            Producer(ProducerConfig(namesrv_addr=NAMESRV_ADDR, producer_group="a b"), cluster.environment())
        with pytest.raises(NameIllegalError, match="256 characters, more than 255"):
            Producer(ProducerConfig(producer_group="PP", namespace="n" * 253), cluster.environment())
        with pytest.raises(ClientError, match="no name server is known"):
            await Producer(ProducerConfig(producer_group="P"), cluster.environment()).start()

    simulate(story)


def test_a_topic_is_not_too_long_with_its_namespace() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("n" * 100 + "%" + "T" * 26)
        async with make(cluster, namespace="n" * 100) as producer:
            await producer.send(Message("T" * 26, b"x"))
            with pytest.raises(NameIllegalError, match="128 characters, more than 127"):
                await producer.send(Message("T" * 27, b"x"))

    simulate(story)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Message("T", "text"), "the body of a message is bytes, not str; encode it first: text.encode()"),  # type: ignore[arg-type]
        (Message("T", ["a"]), "the body of a message is bytes, not list"),  # type: ignore[arg-type]
        (Message(None, b"x"), "the topic of a message is a str, not NoneType"),  # type: ignore[arg-type]
        (Message("T", b"x", flag="1"), "the flag of a message is an int of 32 bits, not '1'"),  # type: ignore[arg-type]
        (Message("T", b"x", flag=1 << 31), "the flag of a message is an int of 32 bits"),
        (Message("T", b"x", [("a", "b")]), "the properties of a message are a dict of str to str, not list"),  # type: ignore[arg-type]
        (Message("T", b"x", {"a": None}), "the value of the property 'a' is of type NoneType"),  # type: ignore[dict-item]
        (Message("T", b"x", {"a": ["b"]}), "the value of the property 'a' is of type list"),  # type: ignore[dict-item]
        (Message("T", b"x", {1: "b"}), "the name 1 of a property is of type int"),  # type: ignore[dict-item]
        (Message("T", b"x", {"p": "a\x02DELAY\x013"}), "the property 'p' has a control character"),
        (Message("T", b"x", {"p\x01q": "a"}), "has a control character"),
        (Message("T", b"x", {"p": "\ud800"}), "the properties of a message of T cannot be sent|the batch for T cannot"),
        ("text", "a str cannot be sent; make a Message"),
    ],
)
def test_what_is_no_message_is_refused_by_name_before_a_byte_is_written(message: Message, reason: str) -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        async with make(cluster) as producer:
            await producer.send(Message("T", b"before"))
            with pytest.raises(MessageRefusedError, match=reason):
                await producer.send(message)
            with pytest.raises(MessageRefusedError, match=reason):
                await producer.send_batch([Message("T", b"neighbour"), message])
            with pytest.raises(MessageRefusedError, match=reason):
                await producer.send_oneway(message)
            await producer.send(Message("T", b"after"))
        assert [stored.body for stored in cluster.broker.log] == [b"before", b"after"]
        assert all("DELAY" not in stored.properties for stored in cluster.broker.log)

    simulate(story)


def test_a_body_of_other_bytes_is_sent_as_it_is_now() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        async with make(cluster) as producer:
            body = bytearray(b"now")
            sending = producer.send_async(Message("T", body))
            body[:] = b"too late"
            await sending
            await producer.send(Message("T", memoryview(b"view")))  # type: ignore[arg-type]
        assert [stored.body for stored in cluster.broker.log] == [b"now", b"view"]

    simulate(story)


@pytest.mark.parametrize("where", ["source", "on_result"])
def test_send_many_ends_when_all_that_was_drawn_has_its_outcome_whatever_fails(where: str) -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        told: list[int] = []

        def source() -> Iterator[Message]:
            for n in range(10):
                yield Message("T", b"%d" % n)
            if where == "source":
                raise ZeroDivisionError

        def on_result(result: SendResult) -> None:
            told.append(result.queue_offset)
            if where == "on_result" and len(told) == 3:
                raise ZeroDivisionError

        async with make(cluster) as producer:
            with pytest.raises(ZeroDivisionError):
                await producer.send_many(source(), in_flight=4, on_result=on_result)
            assert len(told) == len(cluster.broker.log) == len(cluster.broker.requests(SEND))
        if where == "source":
            assert [message.body for message in cluster.broker.log] == [b"%d" % n for n in range(10)]

    simulate(story)


@pytest.mark.parametrize("kind", ["request", "half message"])
def test_a_silent_broker_that_should_know_the_producer_first_takes_half_of_the_time_at_most(kind: str) -> None:
    """The time-out is for everything, and other brokers are asked."""

    async def story(cluster: MockCluster) -> None:
        await cluster.start("broker-a", "broker-b", "broker-c")
        cluster.route("T")
        silent = cluster.master("broker-a")
        silent.scripts[RequestCode.HEART_BEAT] = silent.scripts[SEND] = never()
        loop, to_silent = asyncio.get_running_loop(), 0
        config = ProducerConfig(namesrv_addr=NAMESRV_ADDR, producer_group="P")
        async with TransactionProducer(config, cluster.environment(), Local()) as producer:
            for _ in range(8):
                began = loop.time()
                if kind == "request":
                    with pytest.raises((RequestTimeoutError, RemotingTimeoutError)):
                        await producer.request(Message("T", b"?"), timeout_ms=600)
                else:
                    try:
                        await producer.send_half(Message("T", b"half"), timeout_ms=600)
                    except RemotingTimeoutError:
                        to_silent += 1
                assert loop.time() - began < 0.65
        assert cluster.master("broker-b").requests(SEND) or cluster.master("broker-c").requests(SEND)
        assert to_silent < 8

    simulate(story)


class Local:
    """Local transactions of which nothing is known."""

    def execute_local_transaction(self, message: Message, arg: object) -> None:
        return None

    def check_local_transaction(self, message: MessageExt) -> None:
        return None
