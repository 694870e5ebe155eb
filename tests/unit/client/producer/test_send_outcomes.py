"""What the outcome of a send says of its message: an error tells whether it may be stored; what has ended sends nothing
more."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from maxq.client.client_config import ProducerConfig
from maxq.client.errors import NoMasterError, SendFailedError
from maxq.client.instance.topic_publish_info import TopicPublishInfo
from maxq.client.producer.producer import Producer, SendStart
from maxq.client.results.send_result import SendResult
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import (
    BrokerError,
    MaxQError,
    NoRouteError,
    RemoteProtocolError,
    RemotingTimeoutError,
)
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.message.message import Message
from maxq.protocol.message.message_queue import MessageQueue
from maxq.remoting.connection import Connection
from tests.unit.client.mock_broker import NAMESRV_ADDR, MockBroker, MockCluster, simulate

SEND, BATCH = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE
TOPIC_QUEUE = MessageQueue("T", "broker-0", 0)


def make(cluster: MockCluster, **settings: Any) -> Producer:
    config = ProducerConfig(namesrv_addr=NAMESRV_ADDR, producer_group="P", **settings)
    return Producer(config, cluster.environment())


@pytest.fixture(params=[{}, {"send_latency_enable": True}], ids=["common way", "slow path"])
def way(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(request.param)


def outcome(
    way: dict[str, Any], prepare: Callable[[MockCluster], None], queue: MessageQueue | None = None, **settings: Any
) -> MaxQError:
    """The error of a send after `prepare` has been called, on a producer that knows its topic and brokers."""
    found: list[MaxQError] = []

    async def story(cluster: MockCluster) -> None:
        await cluster.start("broker-0", "broker-1")
        cluster.route("T", queues=1)
        async with make(cluster, **way, **settings) as producer:
            await asyncio.gather(*(producer.send(Message("T", b"first")) for _ in range(4)))
            prepare(cluster)
            with pytest.raises(MaxQError) as raised:
                await producer.send(Message("T", b"x"), queue=queue, timeout_ms=1_000)
            found.append(raised.value)

    simulate(story)
    return found[0]


def refuse(broker: MockBroker, code: int) -> None:
    broker.scripts[SEND] = lambda request: request.reply(code, "as scripted")


def store_and_break(broker: MockBroker, then: int | None = None) -> None:
    """The next message is stored, and the connection breaks before the answer. Later ones are refused with `then`."""
    handle = broker._process

    async def process(connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        if request.code == SEND and not broker.scripts:
            await handle(connection, request)
            refuse(broker, ResponseCode.MESSAGE_ILLEGAL if then is None else then)
            connection.abort("as scripted")
            return None
        return await handle(connection, request)

    broker.server.register_default(process)


@pytest.mark.parametrize("code", [ResponseCode.MESSAGE_ILLEGAL, ResponseCode.SYSTEM_BUSY, ResponseCode.GO_AWAY])
@pytest.mark.parametrize("queue", [None, TOPIC_QUEUE], ids=["any queue", "one queue"])
def test_what_every_broker_refuses_is_not_stored(way: dict[str, Any], code: int, queue: MessageQueue | None) -> None:
    def prepare(cluster: MockCluster) -> None:
        for broker in cluster.brokers.values():
            refuse(broker, code)

    error = outcome(way, prepare, queue)
    assert not error.may_be_stored, error


@pytest.mark.parametrize("code", [ResponseCode.MESSAGE_ILLEGAL, ResponseCode.SYSTEM_BUSY])
@pytest.mark.parametrize("queue", [None, TOPIC_QUEUE], ids=["any queue", "one queue"])
def test_a_refusal_behind_a_try_that_broke_says_that_the_message_may_be_stored(
    way: dict[str, Any], code: int, queue: MessageQueue | None
) -> None:
    def prepare(cluster: MockCluster) -> None:
        for broker in cluster.brokers.values():
            store_and_break(broker, code)

    error = outcome(way, prepare, queue)
    assert isinstance(error, (BrokerError, SendFailedError)), error
    assert error.may_be_stored
    assert any("a try before may have stored the message: the channel <10.0.1." in note for note in error.__notes__)


def test_an_unknown_topic_behind_a_try_that_broke_says_that_the_message_may_be_stored(way: dict[str, Any]) -> None:
    def prepare(cluster: MockCluster) -> None:
        for broker in cluster.brokers.values():
            store_and_break(broker, ResponseCode.NOT_LEADER_FOR_QUEUE)
        cluster.names.routes.clear()

    error = outcome(way, prepare)
    assert error.may_be_stored


@pytest.mark.parametrize("retries", [0, 2])
def test_no_answer_and_no_connection(way: dict[str, Any], retries: int) -> None:
    def pause(cluster: MockCluster) -> None:
        for broker in cluster.brokers.values():
            broker.is_paused = True

    error = outcome(way, pause, retry_times_when_send_failed=retries)
    assert isinstance(error, RemotingTimeoutError)
    assert error.may_be_stored


def test_a_message_that_never_left_is_not_stored(way: dict[str, Any]) -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        await cluster.broker.stop()
        async with make(cluster, **way) as producer:
            with pytest.raises(SendFailedError, match="Connection refused") as raised:
                await producer.send(Message("T", b"x"), timeout_ms=500)
            assert not raised.value.may_be_stored
            with pytest.raises(NoRouteError) as unknown:
                await producer.send(Message("U", b"x"), timeout_ms=500)
            assert not unknown.value.may_be_stored
            cluster.names.routes["T"].broker_datas[0].broker_addrs.clear()
            await producer._sender.instance.routes.update_route("T")
            with pytest.raises(NoMasterError, match="no master of topic T is online") as headless:
                await producer.send(Message("T", b"x"), timeout_ms=500)
            assert not headless.value.may_be_stored

    simulate(story)


def test_a_send_waits_for_the_master_while_a_slave_acts_for_it(way: dict[str, Any]) -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        route = cluster.route("T", perm=4)  # as name servers show such a group: the slave as id 0, for readers only
        route.broker_datas[0].enable_acting_master = True
        async with make(cluster, **way) as producer:
            with pytest.raises(NoMasterError, match="its master may be away, and a slave act for it") as waited:
                await producer.send(Message("T", b"x"), timeout_ms=500)
            assert not waited.value.may_be_stored
            asyncio.get_running_loop().call_later(2, setattr, route.queue_datas[0], "perm", 6)
            sent = await producer.send(Message("T", b"x"), timeout_ms=10_000)
        assert sent.message_queue == MessageQueue("T", "broker-a", 0)

    simulate(story)


@pytest.mark.parametrize("retries", [0, 2])
@pytest.mark.parametrize(
    ("code", "remark"),
    [
        (ResponseCode.SYSTEM_ERROR, "the server was shut down meanwhile"),
        (ResponseCode.SYSTEM_BUSY, "[PC_SYNCHRONIZED]broker busy, start flow control for a while"),
    ],
)
def test_a_broker_that_does_not_know_leaves_it_open(way: dict[str, Any], code: int, remark: str, retries: int) -> None:
    """A member of a DLedger group answers so when no quorum has the message in time."""

    def prepare(cluster: MockCluster) -> None:
        for broker in cluster.brokers.values():
            broker.scripts[SEND] = lambda request: request.reply(code, remark)

    assert outcome(way, prepare, retry_times_when_send_failed=retries).may_be_stored


def test_sends_that_ask_for_one_route_together_have_outcomes_of_their_own(way: dict[str, Any]) -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T", queues=1)
        async with make(cluster, **way) as producer:
            await producer.send(Message("T", b"first"))
            store_and_break(cluster.broker)
            broken = asyncio.ensure_future(producer.send(Message("T", b"x")))
            await asyncio.sleep(0)  # it is on its way
            shared = NoRouteError(ResponseCode.TOPIC_NOT_EXIST, "No topic route info")

            async def ask(topic: str) -> TopicPublishInfo:
                raise shared

            producer._sender.publish_info = ask  # type: ignore[method-assign]
            producer._sender.instance.routes._publish.clear()
            errors = await asyncio.gather(broken, producer.send(Message("T", b"y")), return_exceptions=True)
            assert all(isinstance(error, NoRouteError) for error in errors), errors
            assert [error.may_be_stored for error in errors if isinstance(error, MaxQError)] == [True, False]

    simulate(story)


class Waiter:
    """Waits for the first try of a send."""

    def __init__(self) -> None:
        self.outcome: list[SendResult | None] = []
        self.has_ended = asyncio.Event()

    def done(self) -> bool:
        return bool(self.outcome)

    def set_result(self, result: SendResult | None) -> None:
        self.outcome.append(result)
        self.has_ended.set()


def test_a_blocking_send_whose_producer_ends_after_a_try_that_broke_says_that_the_message_may_be_stored() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T", queues=1)
        async with make(cluster) as producer:
            await producer.send(Message("T", b"first"))
            store_and_break(cluster.broker)
            start, waiter = SendStart(producer, Message("T", b"x"), None, None, is_batch=False), Waiter()
            pending = start.post(waiter)
            assert pending is not None
            await waiter.has_ended.wait()
            assert waiter.outcome == [None]
        with pytest.raises(SendFailedError, match="closed before the answer came") as raised:
            await start.finish(pending)
        assert raised.value.may_be_stored

    simulate(story)


def test_an_answer_that_says_nothing_leaves_it_open(way: dict[str, Any]) -> None:
    def prepare(cluster: MockCluster) -> None:
        for broker in cluster.brokers.values():
            broker.scripts[SEND] = lambda request: request.reply(ext={"msgId": "x"})

    error = outcome(way, prepare)
    assert isinstance(error, RemoteProtocolError)
    assert error.may_be_stored


# --- sends that wait for others (auto_batch) --------------------------------------------------------------------------


def test_a_send_that_is_cancelled_while_it_waits_for_others_is_not_sent() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        async with make(cluster, auto_batch=True, batch_max_delay_ms=100) as producer:
            sends = [asyncio.ensure_future(producer.send(Message("T", b"%d" % n))) for n in range(4)]
            future = producer.send_async(Message("T", b"4"))
            await asyncio.sleep(0.05)
            sends[1].cancel()
            sends[3].cancel()
            future.cancel()
            await asyncio.gather(*sends, future, return_exceptions=True)
            await asyncio.sleep(1)
            assert [message.body for message in cluster.broker.log] == [b"0", b"2"]
            assert [sends[at].result().queue_offset for at in (0, 2)] == [0, 1]
            lonely = asyncio.ensure_future(producer.send(Message("T", b"5")))
            await asyncio.sleep(0.05)
            lonely.cancel()
            await asyncio.sleep(1)
            assert len(cluster.broker.log) == 2

    simulate(story)


def test_a_send_with_a_timeout_of_its_own_has_it() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        async with make(cluster, auto_batch=True, batch_max_delay_ms=100) as producer:
            await producer.send(Message("T", b"first"))
            cluster.broker.is_paused = True
            for send in (producer.send, producer.send_async):
                before = cluster.world.clock.monotonic_ms()
                with pytest.raises(RemotingTimeoutError):
                    await send(Message("T", b"x"), timeout_ms=300)
                assert cluster.world.clock.monotonic_ms() - before < 400
            with pytest.raises(MaxQError, match="timeout_ms is a whole number"):
                await producer.send(Message("T", b"x"), timeout_ms=0)

    simulate(story)


@pytest.mark.parametrize("namespace", ["", "ns"])
def test_what_is_gathered_has_room_in_one_request(namespace: str) -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route(f"{namespace}%T" if namespace else "T")
        settings = {"auto_batch": True, "batch_max_delay_ms": 50, "max_message_size": 2_000, "namespace": namespace}
        async with make(cluster, **settings) as producer:
            results = await asyncio.gather(*(producer.send(Message("T", bytes(300))) for _ in range(20)))
            assert len(results) == 20
            batches = cluster.broker.requests(BATCH)
            assert len(batches) > 1
            assert all(1_000 < request.body_length <= 2_000 for request in batches)

    simulate(story)


def test_a_producer_whose_waiting_sends_were_cancelled_shuts_down() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        async with make(cluster, auto_batch=True) as producer:
            await producer.send(Message("T", b"first"))
            cluster.broker.is_paused = True
            sends = [asyncio.ensure_future(producer.send(Message("T", b"x"))) for _ in range(3)]
            await asyncio.sleep(0.1)  # their batch is on its way
            ending = asyncio.ensure_future(producer.shutdown())
            await asyncio.sleep(0.1)
            for send in sends:
                send.cancel()
            await asyncio.wait_for(ending, 10)  # it tells the broker, too

    simulate(story)
