"""How much one call may ask for."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from maxq.codes import RequestCode
from maxq.config.proxy_config import ProxyConfig
from maxq.protocol.body.consumer_info import ConsumerRunningInfo
from maxq.protocol.body.route import MASTER_ID, BrokerData, QueueData
from maxq.protocol.body.subscription import SubscriptionGroupConfig
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.grpc import messages as pb
from maxq.proxy.brokers import TopicView, topic_view
from maxq.proxy.clients import Client
from maxq.proxy.handles import ReceiptHandle
from maxq.proxy.services import SERVICE, Services
from maxq.proxy.statuses import CallRefusedError
from maxq.proxy.validation import check_fields
from maxq.remoting.grpc.calls import GrpcStatus

_TOPIC = pb.Resource(name="orders")
_MESSAGE = pb.Message(topic=_TOPIC, body=b"x", system_properties=pb.SystemProperties(message_id="m"))


class _Connection:
    """A client's connection that is not closed before the test says so."""

    def __init__(self) -> None:
        self.attributes: dict[str, Any] = {}
        self.on_close: list[Any] = []
        self.remote_address = "192.0.2.1:5"

    def close(self) -> None:
        for told in self.on_close:
            told()


class _Call:
    """Takes what is answered."""

    def __init__(self, connection: _Connection, client_id: str) -> None:
        self.connection = connection
        self.metadata = {"x-mq-client-id": client_id}
        self.path = "a call"
        self.is_over = False
        self.sent: list[bytes] = []
        self.status: int | None = None
        self.on_end: Any = None

    def answer(self, message: bytes) -> None:
        self.send(message)
        self.finish()

    def send(self, message: bytes) -> None:
        self.sent.append(message)

    def finish(self, status: int = GrpcStatus.OK, text: str = "") -> None:
        if not self.is_over:
            self.is_over, self.status = True, status


class _World:
    """All services, before a broker that notes what it is asked."""

    knows_clients = True
    max_message_size = 1 << 20

    def __init__(self) -> None:
        self.connection = _Connection()
        self.asked: list[Any] = []
        self.services = Services(self, ProxyConfig, self, None)  # type: ignore[arg-type]
        self.methods: Any = self.services.methods()
        self.view = TopicView("orders", "NORMAL", [], {}, [("b", 0)], ["b"])

    def call(self, name: str, request: Any, client_id: str = "c") -> _Call:
        call = _Call(self.connection, client_id)
        data = request if isinstance(request, bytes) else request.SerializeToString()
        self.methods[f"/{SERVICE}/{name}"].handle(call, data)
        return call

    def telemetry(self, client_id: str) -> tuple[_Call, Any]:
        call = _Call(self.connection, client_id)
        return call, self.methods[f"/{SERVICE}/Telemetry"].start(call)

    def group(self, name: str) -> SubscriptionGroupConfig | None:
        return None

    def client(self, client_id: str) -> Client:
        found = self.services.clients.find(client_id, "")
        assert found is not None
        return found

    def wall_ms(self) -> int:
        return 1_700_000_000_000

    def topic(self, name: str) -> TopicView | None:
        return self.view if name == "orders" else None

    def ask(self, client: Any, broker_name: str, command: Any, on_reply: Any) -> bool:
        self.asked.append(command)
        return True


@pytest.fixture
async def world() -> _World:
    return _World()


def _ack(count: int) -> pb.AckMessageRequest:
    entries = [pb.AckMessageEntry(receipt_handle="0 1700000000000 60000 0 0 b 0 0 0")] * count
    return pb.AckMessageRequest(topic=_TOPIC, group=pb.Resource(name="g"), entries=entries)


async def test_at_most_1024_messages_are_acknowledged_or_sent_by_one_call(world: _World) -> None:
    for name, answer_type, request in (
        ("AckMessage", pb.AckMessageResponse, _ack(1025)),
        ("SendMessage", pb.SendMessageResponse, pb.SendMessageRequest(messages=[_MESSAGE] * 1025)),
    ):
        call = world.call(name, request)
        assert answer_type.FromString(call.sent[0]).status.code == pb.Code.BAD_REQUEST
    assert world.asked == []
    world.call("SendMessage", pb.SendMessageRequest(messages=[_MESSAGE] * 1024))
    assert len(world.asked) == 1024


async def test_only_sends_are_large(world: _World) -> None:
    assert world.call("Heartbeat", bytes(1 << 20)).status == GrpcStatus.RESOURCE_EXHAUSTED
    sent = world.call("SendMessage", pb.SendMessageRequest(messages=[pb.Message(topic=_TOPIC, body=bytes(1 << 20))]))
    assert sent.status is None or sent.status == GrpcStatus.OK


async def test_one_connection_brings_at_most_1024_clients_which_end_with_it(world: _World) -> None:
    for number in range(1024):
        world.call("AckMessage", _ack(1), f"c{number}")
    assert (len(world.asked), len(world.services.clients)) == (1024, 1024)
    refused = pb.AckMessageResponse.FromString(world.call("AckMessage", _ack(1), "one more").sent[0])
    assert refused.status.code == pb.Code.TOO_MANY_REQUESTS
    world.services.clients.remove(world.client("c0"))
    world.call("AckMessage", _ack(1), "one more")
    assert len(world.services.clients) == 1024
    world.client("c1").settings = pb.Settings()
    world.client("c2").links["b"] = SimpleNamespace(waiters={1: print}, close=print)  # type: ignore[assignment]
    handle = ReceiptHandle.decode("0 1700000000000 60000 0 0 b 0 0 0")
    world.services.renewal.keep(world.client("c3"), "orders", "g", handle, 0)
    world.connection.close()
    assert [number for number in range(1024) if world.services.clients.find(f"c{number}", "")] == [1, 2, 3]
    assert len(world.services.clients) == 3


async def test_a_client_id_has_at_most_255_characters(world: _World) -> None:
    refused = pb.AckMessageResponse.FromString(world.call("AckMessage", _ack(1), "c" * 256).sent[0])
    assert (refused.status.code, len(world.services.clients)) == (pb.Code.BAD_REQUEST, 0)
    world.call("AckMessage", _ack(1), "c" * 255)
    assert len(world.services.clients) == 1


async def test_settings_are_kept_only_if_they_are_legal_and_small(world: _World) -> None:
    large = pb.Settings(publishing=pb.Publishing(topics=[_TOPIC]), user_agent=pb.UA(version="v" * (1 << 18)))
    for client_id, settings, status in (
        ("a", pb.Settings(publishing=pb.Publishing(topics=[pb.Resource(name="a b")])), GrpcStatus.INVALID_ARGUMENT),
        ("b", large, GrpcStatus.RESOURCE_EXHAUSTED),
    ):
        world.call("AckMessage", _ack(1), client_id)
        world.client(client_id).links["b"] = SimpleNamespace(waiters={})  # type: ignore[assignment]
        call, received = world.telemetry(client_id)
        received(pb.TelemetryCommand(settings=settings).SerializeToString())
        assert (call.status, world.client(client_id).settings) == (status, None)


async def test_a_client_is_not_answered_for_by_another(world: _World) -> None:
    settings = pb.Settings(
        client_type=pb.ClientType.PUSH_CONSUMER, subscription=pb.Subscription(group=pb.Resource(name="g"))
    )
    streams = [world.telemetry(client_id) for client_id in ("asked", "other")]
    for _, received in streams:
        received(pb.TelemetryCommand(settings=settings).SerializeToString())
    link: Any = SimpleNamespace(attributes={})
    world.client("asked").linked("b", link)
    request = RemotingCommand(RequestCode.GET_CONSUMER_RUNNING_INFO, {"jstackEnable": "true"})
    asking = asyncio.ensure_future(world.services.telemetry.running_info(link, request))
    await asyncio.sleep(0)
    question = pb.TelemetryCommand.FromString(streams[0][0].sent[-1])
    nonce = question.print_thread_stack_trace_command.nonce
    for (_, received), text in zip(reversed(streams), ("false", "t" * (1 << 18)), strict=True):
        trace = pb.ThreadStackTrace(nonce=nonce, thread_stack_trace=text)
        received(pb.TelemetryCommand(thread_stack_trace=trace).SerializeToString())
    told = ConsumerRunningInfo.decode((await asking).body_bytes)
    assert told.jstack == "t" * (1 << 18)


@pytest.mark.parametrize(
    "addresses", [[pb.Address(host="h", port=1)] * 17, [pb.Address(host="é" * 128, port=1)]], ids=["many", "long"]
)
async def test_large_endpoints_are_not_told_back(world: _World, addresses: list[pb.Address]) -> None:
    endpoints = pb.Endpoints(scheme=pb.AddressScheme.DOMAIN_NAME, addresses=addresses)
    group = pb.Resource(name="g")
    for name, request, answer_type in (
        ("QueryRoute", pb.QueryRouteRequest(topic=_TOPIC, endpoints=endpoints), pb.QueryRouteResponse),
        (
            "QueryAssignment",
            pb.QueryAssignmentRequest(topic=_TOPIC, group=group, endpoints=endpoints),
            pb.QueryAssignmentResponse,
        ),
    ):
        answer: Any = answer_type.FromString(world.call(name, request).sent[0])
        assert answer.status.code == pb.Code.ILLEGAL_ACCESS_POINT


async def test_fields_that_are_not_known_are_not_told_back(world: _World) -> None:
    queues, brokers = [QueueData("b", 1, 1, 6, 0)], [BrokerData("c", "b", {MASTER_ID: "192.0.2.9:1"})]
    world.view = topic_view("orders", "NORMAL", queues, brokers)
    unknown = b"\xfa\x3f\x04fill"  # field 127
    endpoints = pb.Endpoints.FromString(pb.Endpoints(addresses=[pb.Address(host="h")]).SerializeToString() + unknown)
    topic = pb.Resource.FromString(_TOPIC.SerializeToString() + unknown)
    call = world.call("QueryRoute", pb.QueryRouteRequest(topic=topic, endpoints=endpoints))
    assert b"orders" in call.sent[0] and b"fill" not in call.sent[0]


@pytest.mark.parametrize("field", [b"\x0a\x00", b"\x12\x00", b"\x0b", b"\x08\x80\x01", b"\x0d1234", b"\x0912345678"])
def test_parts_are_counted_before_they_are_decoded(field: bytes) -> None:
    message = b"\x0a\x80\x01" + bytes(128)
    check_fields(message + field * 1023)
    with pytest.raises(CallRefusedError):
        check_fields(message + field * 1024)


def test_what_is_not_whole_is_left_to_who_decodes_it() -> None:
    for data in (b"", b"\x0a", b"\x0a\x80", b"\x0a\x05", b"\x80", b"\x0f", b"\x08", b"\x0a" + b"\xff" * 2000):
        check_fields(data)
