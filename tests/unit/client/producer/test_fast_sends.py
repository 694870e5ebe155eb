"""Sends in the common way: on the wire, in their results and in what failures lead to they are those of the general
way, which a producer takes whose `fast` is None."""

import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from maxq.client.client_config import ProducerConfig
from maxq.client.instance.mq_client_manager import MQClientManager
from maxq.client.producer.producer import Producer
from maxq.client.results.send_result import SendResult
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import MaxQError, RemotingTimeoutError
from maxq.protocol.frame.remoting_command import RemotingCommand, decode_frame
from maxq.protocol.message.compression import CompressionType
from maxq.protocol.message.message import Message
from maxq.protocol.message.message_queue import MessageQueue
from maxq.remoting.client import RemotingClient
from maxq.remoting.connection import Connection
from tests.short_form import times
from tests.unit.both_forms import both
from tests.unit.client.mock_broker import NAMESRV_ADDR, MockBroker, MockCluster, simulate

SEND, BATCH = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE
FORMS = both("maxq.client.producer.fast_sends_cy")
QUIETLY = settings(max_examples=times(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

TEXT = st.text(st.characters(blacklist_categories=["Cs"]), max_size=20) | st.sampled_from(
    ['"', "\\", "a\nb", "\x00\x1f\x7f", "é€😀", "\x01", "\x02", "\ud800", "x" * 9000, "😀" * 8000]
)
NAMES = TEXT | st.sampled_from(["TAGS", "KEYS", "DELAY", "WAIT", "TRAN_MSG", "MSG_TYPE", "UNIQ_KEY", "INSTANCE_ID"])
BODIES = st.binary(min_size=1, max_size=50) | st.sampled_from([b"", b"x" * 4095, b"x" * 4096, bytearray(b"ab")])
MESSAGES = st.builds(
    Message,
    st.sampled_from(["T", "U"]),
    BODIES,
    st.dictionaries(NAMES, TEXT, max_size=4),
    st.sampled_from([0, 0, 0, 7]),
)


@pytest.fixture(params=FORMS, ids=["uncompiled", "installed"])
def form(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    with (
        mock.patch("maxq.client.producer.message_sender.FastSends", request.param.FastSends),
        mock.patch("maxq.client.producer.message_sender.SendAnswers", request.param.SendAnswers),
        mock.patch("maxq.client.producer.many_sends.SendWindow", request.param.SendWindow),
    ):
        yield request.param


def make(cluster: MockCluster, **settings: Any) -> Producer:
    config = ProducerConfig(namesrv_addr=NAMESRV_ADDR, producer_group="P", **settings)
    return Producer(config, cluster.environment())


@contextmanager
def frames() -> Iterator[list[bytes]]:
    """The requests that leave in the common way, each as its frame."""
    sent: list[bytes] = []
    send = Connection.send_requests

    def note(self: Connection, data: bytes, count: int, body: bytes = b"") -> None:
        start, data = data, data + body
        position = 0
        for _ in range(count):
            behind = position + 4 + int.from_bytes(data[position : position + 4], "big")
            sent.append(data[position:behind])
            position = behind
        assert position == len(data)
        send(self, start, count, body)

    with mock.patch.object(Connection, "send_requests", note):
        yield sent


async def warm(cluster: MockCluster, producer: Producer, *topics: str) -> None:
    """Make the producer know its topics and brokers."""
    for topic in topics:
        await asyncio.gather(*(producer.send(Message(topic, b"first")) for _ in range(2 * len(cluster.brokers))))


# --- what leaves ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("namespace", ["", "ns"])
@QUIETLY
@given(messages=st.lists(MESSAGES, min_size=1, max_size=6), several=st.booleans())
def test_a_request_is_byte_by_byte_that_of_the_general_way(
    form: ModuleType, namespace: str, messages: list[Message], several: bool
) -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        prefix = f"{namespace}%" if namespace else ""
        for topic in ("T", "U"):
            cluster.route(prefix + topic, queues=3)
        async with make(cluster, namespace=namespace) as producer:
            await warm(cluster, producer, "T", "U")
            with frames() as sent:
                for message in messages:
                    try:
                        if several:
                            await producer.send_many([message])
                        else:
                            await producer.send(message)
                    except Exception:
                        assert not sent, "what is refused has not left"
                        continue
                    for frame in sent:
                        given_frame(producer, message, frame)
                    sent.clear()

    def given_frame(producer: Producer, message: Message, frame: bytes) -> None:
        command = decode_frame(frame[4:])
        sender = producer._sender
        queue = MessageQueue(command.ext["b"], command.ext["n"], int(command.ext["e"]))
        wanted = sender.request(sender.preparer.prepare(message), queue)
        wanted.opaque, wanted.ext["g"] = command.opaque, command.ext["g"]
        assert frame == wanted.encode()

    simulate(story)


@pytest.mark.parametrize("namespace", ["", "ns"])
@QUIETLY
@given(messages=st.lists(MESSAGES.map(lambda m: Message("T", m.body, m.properties, m.flag)), min_size=1, max_size=6))
def test_a_batch_is_byte_by_byte_that_of_the_general_way(
    form: ModuleType, namespace: str, messages: list[Message]
) -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("ns%T" if namespace else "T", queues=3)
        async with make(cluster, namespace=namespace) as producer:
            await warm(cluster, producer, "T")
            with frames() as sent:
                try:
                    result = await producer.send_batch(messages)
                except Exception:
                    assert not sent, "what is refused has not left"
                    return
            for frame in sent:
                command = decode_frame(frame[4:])
                sender = producer._sender
                prepared = sender.preparer.prepare_batch(messages)
                queue = MessageQueue(command.ext["b"], command.ext["n"], int(command.ext["e"]))
                wanted = sender.request(prepared, queue)
                wanted.opaque, wanted.ext["g"] = command.opaque, command.ext["g"]
                assert frame == wanted.encode() and (result.msg_id == prepared.msg_id or not prepared.msg_id)

    simulate(story)


async def _together(producer: Producer, messages: list[Message]) -> object:
    outcomes = await asyncio.gather(*map(producer.send, messages), return_exceptions=True)
    return [str(outcome) if isinstance(outcome, Exception) else "sent" for outcome in outcomes]


async def _many(producer: Producer, messages: list[Message]) -> object:
    return [result.msg_id for result in await producer.send_many(messages, in_flight=5)]


async def _batch(producer: Producer, messages: list[Message]) -> object:
    return (await producer.send_batch(messages)).msg_id


@pytest.mark.parametrize("send", [_together, _many, _batch])
@QUIETLY
@given(
    messages=st.lists(MESSAGES, min_size=1, max_size=12),
    one_topic=st.booleans(),
    namespace=st.sampled_from(["", "ns"]),
    compressed_from=st.sampled_from([1, 2, 20, 4096]),
    kind=st.sampled_from(list(CompressionType)),
    most=st.sampled_from([40, 1_000, 4_194_304]),
)
def test_a_broker_gets_the_same_messages_as_in_the_general_way(
    form: ModuleType,
    send: Callable[[Producer, list[Message]], Awaitable[object]],
    messages: list[Message],
    one_topic: bool,
    namespace: str,
    compressed_from: int,
    kind: CompressionType,
    most: int,
) -> None:
    def copies() -> list[Message]:
        return [
            Message("T" if one_topic else one.topic, one.body, {"UNIQ_KEY": f"id-{n}", **one.properties}, one.flag)
            for n, one in enumerate(messages)
        ]

    def of_way(*, is_fast: bool) -> object:
        async def story(cluster: MockCluster) -> object:
            await cluster.start()
            for topic in ("T", "U"):
                cluster.route(f"{namespace}%{topic}" if namespace else topic, queues=3)
            async with make(
                cluster, namespace=namespace, compress_msg_body_over_howmuch=compressed_from, compress_type=kind,
                max_message_size=most,
            ) as producer:  # fmt: skip
                await warm(cluster, producer, "T", "U")
                if not is_fast:
                    producer._sender.fast = None
                warming = len(cluster.broker.log)
                try:
                    outcome = await send(producer, copies())
                except MaxQError as error:
                    outcome = str(error)
                stored = [
                    (one.topic, one.body, one.properties, one.flag, int(one.sys_flag))
                    for one in cluster.broker.log[warming:]
                ]
                return outcome, sorted(stored, key=repr)

        return simulate(story)

    assert of_way(is_fast=True) == of_way(is_fast=False)


def test_plain_messages_take_the_common_way_and_special_ones_do_not(form: ModuleType) -> None:
    plain = [Message("T", b"x"), Message("T", b"x", {"TAGS": "a", "KEYS": "é"}), Message("T", b"x", {"DELAY": "3"})]
    special = [
        Message("T", b"x", flag=1),
        Message("T", b"x" * 5000),
        Message("T", b"x", {"TRAN_MSG": "true"}),
        Message("New", b"x"),
    ]

    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        cluster.route("New")
        async with make(cluster) as producer:
            await warm(cluster, producer, "T")
            with frames() as sent:
                for number, message in enumerate(plain):
                    await producer.send(message)
                    assert len(sent) == number + 1
                await producer.send_batch(plain[:2])
                assert len(sent) == len(plain) + 1
                for message in special:
                    await producer.send(message)
                assert len(sent) == len(plain) + 1

    simulate(story)


@pytest.mark.parametrize("missing", ["topic", "body", "properties", "flag"])
def test_a_message_that_lacks_a_field_is_an_error_that_names_it(form: ModuleType, missing: str) -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        async with make(cluster) as producer:
            await warm(cluster, producer, "T")
            message = Message("T", b"a")
            delattr(message, missing)
            for send in (producer.send(message), producer.send_batch([Message("T", b"b"), message])):
                with pytest.raises(AttributeError, match=missing):
                    await send

    simulate(story)


def test_what_is_sent_in_one_turn_leaves_in_one_write(form: ModuleType) -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T", queues=4)
        async with make(cluster) as producer:
            await warm(cluster, producer, "T")
            with mock.patch.object(
                Connection, "send_requests", autospec=True, side_effect=Connection.send_requests
            ) as w:
                await asyncio.gather(*(producer.send(Message("T", b"%d" % n)) for n in range(100)))
            assert [call.args[2] for call in w.call_args_list] == [1, 99], "the first one alone does not wait"

    simulate(story)


# --- what comes back --------------------------------------------------------------------------------------------------

Scenario = Callable[[MockCluster, Producer], Awaitable[object]]


def outcome(scenario: Scenario, *, is_fast: bool, brokers: int = 2, **settings: Any) -> object:
    """What a scenario comes to, how long it takes, and how many requests each broker has got."""

    async def story(cluster: MockCluster) -> object:
        await cluster.start(*(f"broker-{number}" for number in range(brokers)))
        cluster.route("T", queues=2)
        async with make(cluster, **settings) as producer:
            await warm(cluster, producer, "T")
            if not is_fast:
                producer._sender.fast = None
            loop = asyncio.get_running_loop()
            began = loop.time()
            try:
                found: object = await scenario(cluster, producer)
            except Exception as error:
                found = type(error), str(error)
            took_ms = round((loop.time() - began) * 1000)
            counts = [len(broker.requests(SEND)) for broker in cluster.brokers.values()]
            connections = producer._sender.instance.remoting.connections
            kinds = [type(waiter).__name__ for connection in connections for waiter in connection.waiters.values()]
            assert "PendingSend" not in kinds, "nobody waits any more"
            return found, took_ms, counts

    return simulate(story)


def without_ids(result: Any) -> Any:
    if isinstance(result, SendResult):
        return result._replace(msg_id="", offset_msg_id="", transaction_id="")
    return result


def the_same(scenario: Scenario, **settings: Any) -> Any:
    """The outcome of a scenario, which is the same in both ways."""
    general: Any = outcome(scenario, is_fast=False, **settings)
    fast: Any = outcome(scenario, is_fast=True, **settings)
    assert without_ids(fast[0]) == without_ids(general[0]) and fast[2] == general[2]
    assert abs(fast[1] - general[1]) <= 10, (fast, general)
    return fast[0]


FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "queueId": st.sampled_from(["0", "1", "3", "-1", "x", "", "99999999999999999999"]),
        "queueOffset": st.sampled_from(["0", "77", "-1", "x", "123456789012345"]),
        "msgId": st.sampled_from(["0A000001", "", 'a"b', "é"]),
        "transactionId": TEXT.filter(lambda text: text.isprintable()),
        "MSG_REGION": st.sampled_from(["DefaultRegion", "", "r", 'q"']),
        "TRACE_ON": st.sampled_from(["true", "false", ""]),
        "recallHandle": st.sampled_from(["h", ""]),
        "other": st.just("x"),
    },
)


@QUIETLY
@given(ext=FIELDS, code=st.sampled_from([0, 10, 11, 12]), binary=st.booleans(), remark=st.sampled_from([None, "é"]))
@example(ext={"queueId": "0", "queueOffset": "7", "msgId": "A"}, code=0, binary=True, remark=None)
def test_an_answer_is_read_as_in_the_general_way(
    form: ModuleType, ext: dict[str, str], code: int, binary: bool, remark: str | None
) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> SendResult:
        for broker in cluster.brokers.values():
            broker.scripts[SEND] = lambda request: request.reply(code, remark, dict(ext))
        return await producer.send(Message("T", b"x", {"UNIQ_KEY": "id"}))

    def compared(found: Any) -> Any:
        return found[0]

    assert compared(outcome(scenario, is_fast=True)) == compared(outcome(scenario, is_fast=False))


@pytest.mark.parametrize("code", [1, 2, 13, 14, 16, 17, 29, 215, 501, 2102])
@pytest.mark.parametrize("both_refuse", [False, True])
def test_a_refusal_leads_to_what_it_does_in_the_general_way(form: ModuleType, code: int, both_refuse: bool) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> SendResult:
        for broker in list(cluster.brokers.values())[: 2 if both_refuse else 1]:
            broker.scripts[SEND] = lambda request: request.reply(code, "as scripted")
        results = [await producer.send(Message("T", b"x")) for _ in range(2)]
        return results[-1]

    the_same(scenario)


@pytest.mark.parametrize("refusing", [1, 2])
def test_a_broker_that_goes_away_is_asked_once_more_on_a_new_connection(form: ModuleType, refusing: int) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> list[str]:
        for broker in list(cluster.brokers.values())[:refusing]:
            broker.scripts[SEND] = lambda request: request.reply(ResponseCode.GO_AWAY, "as scripted")
        found = []
        for _ in range(4):
            try:
                found.append((await producer.send(Message("T", b"x"), timeout_ms=500)).message_queue.broker_name)
            except Exception as error:
                found.append(type(error).__name__)
        return found

    general: Any = outcome(scenario, is_fast=False)
    fast: Any = outcome(scenario, is_fast=True)
    assert fast[0] == general[0]


def test_a_broker_that_never_answers_leads_to_the_same_error(form: ModuleType) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> SendResult:
        for broker in cluster.brokers.values():
            broker.is_paused = True
        return await producer.send(Message("T", b"x"), timeout_ms=700)

    _, text = the_same(scenario)
    assert "700(ms)" in text


def test_a_connection_that_breaks_meanwhile_leads_to_the_other_broker(form: ModuleType) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> list[str]:
        first = cluster.master("broker-0")
        first.is_paused = True
        sends = [asyncio.ensure_future(producer.send(Message("T", b"x"))) for _ in range(8)]
        await asyncio.sleep(0.1)
        await first.stop()
        return [result.message_queue.broker_name for result in await asyncio.gather(*sends)]

    assert the_same(scenario) == ["broker-1"] * 8


def test_a_chosen_queue_is_kept_in_all_tries(form: ModuleType) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> SendResult:
        broker = cluster.master("broker-0")
        broker.scripts[SEND] = lambda request: request.reply(ResponseCode.SYSTEM_BUSY, "later")
        return await producer.send(Message("T", b"x"), queue=MessageQueue("T", "broker-0", 1))

    the_same(scenario)


def test_answers_that_are_late_double_or_about_nothing_harm_nobody(form: ModuleType) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> list[bytes]:
        broker = cluster.master("broker-0")
        handle = broker._process

        async def twice(connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
            answer = await handle(connection, request)
            if answer is not None and request.code == SEND:
                for _ in range(2):
                    connection.send(request.reply(answer.code, None, dict(answer.ext)))
                stray = request.reply(answer.code, None, dict(answer.ext))
                stray.opaque = request.opaque + 1_000_000
                connection.send(stray)
            return answer

        broker.server.register_default(twice)
        await asyncio.gather(*(producer.send(Message("T", b"%d" % n)) for n in range(50)))
        await producer.send_many([Message("T", b"%d" % n) for n in range(50, 100)])
        return sorted(message.body for broker in cluster.brokers.values() for message in broker.log[1:])

    the_same(scenario)


def test_a_cancelled_send_leaves_nothing_behind(form: ModuleType) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> str:
        for broker in cluster.brokers.values():
            broker.is_paused = True
        send = asyncio.ensure_future(producer.send(Message("T", b"x")))
        await asyncio.sleep(0.01)
        send.cancel()
        await asyncio.gather(send, return_exceptions=True)
        return "cancelled" if send.cancelled() else "not"

    assert the_same(scenario) == "cancelled"


def test_the_cycle_collector_looks_at_no_results_of_compiled_sends(form: ModuleType) -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        async with make(cluster) as producer:
            await warm(cluster, producer, "T")
            results = await producer.send_many([Message("T", b"%d" % n) for n in range(50)])
        assert {gc.is_tracked(result) for result in results} == {not form.is_compiled()}

    simulate(story)


def test_send_many_ends_with_its_cancellation(form: ModuleType) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> int:
        for broker in cluster.brokers.values():
            broker.is_paused = True
        told: list[SendResult] = []
        work = producer.send_many((Message("T", b"%d" % n) for n in range(1000)), in_flight=10, on_result=told.append)
        many = asyncio.ensure_future(work)
        await asyncio.sleep(0.01)
        many.cancel()
        await asyncio.gather(many, return_exceptions=True)
        for broker in cluster.brokers.values():
            broker.is_paused = False
        await asyncio.sleep(5)
        return len(told)

    assert outcome(scenario, is_fast=True)[0] == 0  # type: ignore[index]


@pytest.mark.parametrize("in_flight", [1, 2, 7, 512])
def test_send_many_keeps_its_window_and_the_order_of_results(form: ModuleType, in_flight: int) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> int:
        most, now = 0, 0
        brokers: list[MockBroker] = list(cluster.brokers.values())
        for broker in brokers:
            handle = broker._process

            async def counted(
                connection: Connection, request: RemotingCommand, handle: Any = handle
            ) -> RemotingCommand | None:
                nonlocal most, now
                if request.code != SEND:
                    return await handle(connection, request)  # type: ignore[no-any-return]
                now += 1
                most = max(most, now)
                await asyncio.sleep(0.01)
                answer: RemotingCommand | None = await handle(connection, request)
                now -= 1
                return answer

            broker.server.register_default(counted)
        messages = [Message("T", b"x" * (9000 if n % 10 == 0 else 1), {"KEYS": str(n)}) for n in range(300)]
        results = await producer.send_many(messages, in_flight=in_flight)
        assert [result.msg_id for result in results] == [message.uniq_key for message in messages]
        return most

    found: Any = outcome(scenario, is_fast=True)
    assert 1 <= found[0] <= in_flight


def test_send_many_keeps_no_result_that_its_caller_lets_go_of(form: ModuleType) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> int:
        gc.disable()
        try:
            (result,) = await producer.send_many([Message("T", b"a")])
            return sys.getrefcount(result)
        finally:
            gc.enable()

    assert outcome(scenario, is_fast=True)[0] == 2  # `result`, and the argument


def test_what_on_result_raises_is_raised_and_ends_the_drawing(form: ModuleType) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> object:
        drawn = 0

        def messages() -> Iterator[Message]:
            nonlocal drawn
            while True:
                drawn += 1
                yield Message("T", b"x")

        def refuse(result: SendResult) -> None:
            raise ValueError("no more")

        with pytest.raises(ValueError, match="no more"):
            await producer.send_many(messages(), in_flight=4, on_result=refuse)
        return drawn <= 8

    assert outcome(scenario, is_fast=True)[0] is True  # type: ignore[index]


def test_a_failed_batch_is_tried_elsewhere_as_a_whole(form: ModuleType) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> list[Any]:
        for number in range(2):
            cluster.master(f"broker-{number}").scripts[BATCH] = lambda request: request.reply(
                ResponseCode.SYSTEM_BUSY, "later"
            )
        found: list[Any] = []
        try:
            await producer.send_batch([Message("T", b"a", {"UNIQ_KEY": "1"}), Message("T", b"b", {"UNIQ_KEY": "2"})])
        except Exception as error:
            found.append(str(error))
        for broker in cluster.brokers.values():
            found += [(request.body_bytes, request.ext["m"], request.ext["i"]) for request in broker.requests(BATCH)]
        return found

    assert len(the_same(scenario)) == 4


def test_a_send_has_its_timeout_when_its_producer_ends_before_the_client_does(form: ModuleType) -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        manager = MQClientManager(cluster.environment())
        names = [ProducerConfig(namesrv_addr=NAMESRV_ADDR, producer_group=g, instance_name="one") for g in "AB"]
        first, second = (Producer(config, cluster.environment(), manager=manager) for config in names)
        async with second:
            await first.start()
            await warm(cluster, first, "T")
            cluster.broker.scripts[SEND] = lambda request: None
            send = asyncio.ensure_future(first.send(Message("T", b"x"), timeout_ms=1_000))
            await asyncio.sleep(0.1)
            await first.shutdown()
            with pytest.raises(RemotingTimeoutError):
                await asyncio.wait_for(send, 3)

    simulate(story)


def test_every_send_has_its_timeout_though_its_connection_cannot_be_closed(
    form: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    """Those who waited were never told."""

    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        async with Producer(
            ProducerConfig(namesrv_addr=NAMESRV_ADDR, producer_group="P"), cluster.environment()
        ) as one:
            await warm(cluster, one, "T")
            cluster.broker.scripts[SEND] = lambda request: None
            fails = OSError("no descriptor is free")
            with mock.patch.object(RemotingClient, "close_if_silent", side_effect=fails):
                sends = [one.send(Message("T", b"x"), timeout_ms=1_000) for _ in range(2)]
                results = await asyncio.wait_for(asyncio.gather(*sends, return_exceptions=True), 10)
        assert [type(result) for result in results] == [RemotingTimeoutError] * 2

    simulate(story)
    assert "could not be closed" in caplog.text
