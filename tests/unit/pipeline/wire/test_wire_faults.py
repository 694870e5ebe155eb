"""Readers outlast what brokers and networks do: restarts, lost connections, TLS, slaves that stand in."""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Self

import pytest

from maxq.api import Admin, Message, MessageQueue, Producer
from maxq.errors import DataLossError, PipelineError, RemotingConnectError, RemotingTimeoutError
from maxq.pipeline.options.read_options import ConnectionOptions, ReadOptions
from maxq.pipeline.records.losses import Losses
from maxq.pipeline.source.stream_source import TopicStream
from maxq.pipeline.wire.pulls import RangePull
from maxq.pipeline.wire.queue_range import QueueRange
from maxq.pipeline.wire.wire_client import TopicRoute, WireClient, _Told
from maxq.pipeline.wire.wire_reader import WireReader, pull_settings
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.frame.remoting_command import RemotingCommand, decode_frame
from maxq.standalone import Standalone
from tests.unit.pipeline.conftest import Fill

QUEUE = MessageQueue("T", "broker-a", 0)


def fill_one(server: Standalone, count: int) -> None:
    with Producer("g", server.namesrv_address) as producer:
        for n in range(count):
            producer.send(Message("T", b"%04d" % n + bytes(500)), queue=QUEUE)


def options(namesrv: str, **more: str) -> ReadOptions:
    given = {"rocketmq.namesrv": namesrv, "subscribe": "T", "rocketmq.brokerWait": "20s"} | more
    return ReadOptions.parse(given, streaming=False)


def ports(server: Standalone) -> tuple[int, int]:
    name, broker = (int(address.rpartition(":")[2]) for address in (server.namesrv_address, server.broker_address))
    return name, broker


def test_a_reader_waits_for_a_broker_that_starts_again(tmp_path: Path) -> None:
    server = Standalone(tmp_path).start()
    namesrv_port, broker_port = ports(server)
    fill_one(server, 60)
    wanted = options(server.namesrv_address, fetchBytes="4k")
    with WireClient(wanted.connection) as client:
        losses = Losses(fail=True)
        pull = RangePull(client, pull_settings(wanted), QueueRange("T", "broker-a", 0, 0, 60), losses)
        chunks = pull.chunks()
        offsets = [next(chunks).first]
        server.stop()
        again = Standalone(tmp_path, namesrv_port=namesrv_port, broker_port=broker_port)
        starting = threading.Timer(0.3, again.start)
        starting.start()
        try:
            seen = [(chunk.first, chunk.next) for chunk in chunks]
        finally:
            starting.join()
            again.stop()
    assert offsets == [0]
    assert seen[-1][1] == 60
    assert all(before[1] == after[0] for before, after in pairwise(seen))
    assert losses.count == 0


def test_a_broker_that_does_not_come_back_is_an_error_that_says_where(tmp_path: Path) -> None:
    with Standalone(tmp_path) as server:
        fill_one(server, 3)
        wanted = options(server.namesrv_address, **{"rocketmq.brokerWait": "300ms"})
        client = WireClient(wanted.connection)
        assert client.candidates(QUEUE)
    pull = RangePull(client, pull_settings(wanted), QueueRange("T", "broker-a", 0, 1, 3), Losses(fail=True))
    with pytest.raises(PipelineError, match=r"T/broker-a/0 \[1, 3\): offset 1 could not be read within 300 ms"):
        list(pull.chunks())


def test_reading_over_tls() -> None:
    with Standalone() as server:
        fill_one(server, 5)
        tls = {"rocketmq.useTLS": "true", "rocketmq.tls.client.authServer": "false"}
        wanted = options(server.namesrv_address, **tls, columns="queueOffset")
        rows = [
            row
            for batch in WireReader(wanted).read([QueueRange("T", "broker-a", 0, 0, 5)])
            for row in batch.to_pylist()
        ]
        assert [row["queueOffset"] for row in rows] == list(range(5))


@pytest.mark.parametrize(
    ("prefer_slave", "to_read", "order"),
    [(False, True, ["m", "s1", "s2"]), (True, True, ["s1", "s2", "m"]), (True, False, ["m", "s1", "s2"])],
)
def test_slaves_are_read_if_wanted_and_ends_are_asked_of_masters(
    prefer_slave: bool, to_read: bool, order: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = WireClient(ConnectionOptions("a:1"), prefer_slave=prefer_slave)
    route = TopicRoute({QUEUE: "broker-a"}, {"broker-a": {0: "m", 2: "s2", 1: "s1"}})
    monkeypatch.setattr(client, "route", lambda topic: route)
    assert [address for address, _ in client.candidates(QUEUE, to_read=to_read)] == order
    client.suspect(order[0])
    assert [address for address, _ in client.candidates(QUEUE, to_read=to_read)] == [*order[1:], order[0]]


def test_a_broker_that_is_silent_holds_up_one_trigger_and_not_each(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        client = WireClient(ConnectionOptions("a:1", request_timeout_ms=1_100))
        monkeypatch.setattr(client, "route", lambda topic: TopicRoute({QUEUE: "broker-a"}, {"broker-a": {0: address}}))
        before = client.clock.monotonic_ms()
        assert "did not answer" in str(client.max_offsets([QUEUE])[1][QUEUE])
        waited_ms = client.clock.monotonic_ms() - before
        assert waited_ms >= 1_000
        assert "was silent lately" in str(client.max_offsets([QUEUE])[1][QUEUE])
        assert client.clock.monotonic_ms() - before < 2 * waited_ms
        client.close()


def test_a_name_server_that_hangs_costs_a_moment_once(server: Standalone, admin: Admin) -> None:
    admin.topics.create(server.broker_address, TopicConfig("Beside", 1, 1))
    with socket.create_server(("127.0.0.1", 0)) as mute:
        addresses = f"127.0.0.1:{mute.getsockname()[1]};{server.namesrv_address}"
        with WireClient(ConnectionOptions(addresses, request_timeout_ms=60_000), route_age_ms=0) as client:
            for _ in range(40):  # a quarter of a second each, were it not remembered who answers
                route = client.route("Beside")
                assert route is not None and len(route.queues) == 1
            assert client.cluster_info().broker_addr_table
            assert client.route("Nowhere") is None


def test_routes_count_on_while_all_name_servers_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        client = WireClient(ConnectionOptions(f"127.0.0.1:{mute.getsockname()[1]}", request_timeout_ms=50))
        asked: list[str] = []
        ask = client._ask_name_server
        monkeypatch.setattr(
            client, "_ask_name_server", lambda code, ext, *most: asked.append(ext["topic"]) or ask(code, ext, *most)
        )
        kept = TopicRoute({QUEUE: "broker-a"}, {"broker-a": {0: "m"}})
        client._routes = dict.fromkeys(("T", "U", "V"), _Told(-(10**9), kept))
        for topic in ("T", "U", "V", "T"):
            assert client.route(topic) is kept
        assert asked == ["T"], "the first one waits for the name servers, the others need not"
        with pytest.raises(RemotingConnectError, match="did not answer"):
            client.route("W")
        client.close()


def test_a_topic_that_is_deleted_under_a_reader_is_lost_data(server: Standalone, admin: Admin, fill: Fill) -> None:
    admin.topics.create(server.broker_address, TopicConfig("Deleted", 1, 1))
    fill("Deleted", 0, 5)
    given = {"subscribe": "Deleted", "rocketmq.brokerWait": "400ms"}
    wanted = QueueRange("Deleted", "broker-a", 0, 0, 5)
    admin.topics.delete("Deleted", "DefaultCluster")
    with pytest.raises(DataLossError, match=r"queue Deleted/broker-a/0: wanted offset 0.* was deleted"):
        list(WireReader(options(server.namesrv_address, **given)).read([wanted]))
    lenient = options(server.namesrv_address, **given, failOnDataLoss="false")
    assert list(WireReader(lenient).read([wanted])) == []


def test_a_topic_that_no_name_server_knows_is_not_deleted_unless_its_broker_says_so(server: Standalone) -> None:
    """A name server that has started again knows nothing until brokers have registered anew."""
    given = {"subscribe": "Elsewhere", "rocketmq.brokerWait": "300ms", "failOnDataLoss": "false"}
    wanted = QueueRange("Elsewhere", "broker-that-has-not-registered-yet", 0, 0, 5)
    with pytest.raises(PipelineError, match="offset 0 could not be read within 300 ms"):
        list(WireReader(options(server.namesrv_address, **given)).read([wanted]))


def test_available_now_waits_for_brokers_rather_than_ending_empty(tmp_path: Path) -> None:
    with Standalone(tmp_path) as server:
        fill_one(server, 3)
        given = {"rocketmq.namesrv": server.namesrv_address, "subscribe": "T", "rocketmq.brokerWait": "300ms"}
        stream = TopicStream(ReadOptions.parse(given, streaming=True))
        stream.initial_offset()
    with pytest.raises(PipelineError, match=r"cannot be (asked about|looked up)"):
        stream.prepare_for_available_now()


def test_what_compaction_emptied_between_two_answers_is_no_loss(tmp_path: Path) -> None:
    """Whether it did is asked while the next pull is under way."""
    small = {
        "compactionMappedFileSize": "4500",
        "compactionCqMappedFileSize": "920",
        "compactionScheduleInternal": "100",
    }
    with Standalone(tmp_path, settings=small) as server, Admin(server.namesrv_address) as admin:
        attributes = {"+cleanup.policy": "COMPACTION"}
        admin.topics.create(server.broker_address, TopicConfig("T", 1, 1, attributes=attributes))
        with Producer("g", server.namesrv_address) as producer:
            for n in range(300):
                producer.send(Message("T", b"%04d" % n + bytes(100), {"KEYS": f"k{n % 40}"}), queue=QUEUE)
        wanted = options(server.namesrv_address, fetchBytes="4k")
        offsets: list[int] = []
        deadline = time.monotonic() + 60
        while not offsets or len(offsets) > 200:
            assert time.monotonic() < deadline, "nothing was compacted"
            rows = WireReader(wanted).read([QueueRange("T", "broker-a", 0, 0, 300)])
            offsets = [row["queueOffset"] for batch in rows for row in batch.to_pylist()]
        assert offsets[-40:] == list(range(260, 300))


class Script:
    """A server that answers each request with frames that a test makes of it."""

    def __init__(self, answers: Callable[[RemotingCommand], list[RemotingCommand]]) -> None:
        self._answers = answers
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with suppress(OSError), connection, connection.makefile("rb") as stream:
            while head := stream.read(4):
                request = decode_frame(stream.read(int.from_bytes(head, "big")))
                for answer in self._answers(request):
                    connection.sendall(b"".join(answer.buffers()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()


def end_of_queue(request: RemotingCommand) -> RemotingCommand:
    return request.reply(ext={"offset": request.ext["queueId"]})


def test_an_answer_that_comes_twice_is_not_the_answer_to_the_next_question(monkeypatch: pytest.MonkeyPatch) -> None:
    with Script(lambda request: [end_of_queue(request)] * 2) as server:
        client = WireClient(ConnectionOptions("a:1", request_timeout_ms=5_000))
        queues = [MessageQueue("T", "broker-a", n) for n in range(3)]
        route = TopicRoute(dict.fromkeys(queues, "broker-a"), {"broker-a": {0: server.address}})
        monkeypatch.setattr(client, "route", lambda topic: route)
        for _ in range(3):
            assert [one.offset for one in client.max_offsets(queues)[0].values()] == [0, 1, 2]
        for n in range(3):
            assert client.ask(server.address, 30, {"queueId": str(n)}).ext["offset"] == str(n)
        client.close()


def test_a_server_that_answers_other_requests_only_is_given_up() -> None:
    def others(request: RemotingCommand) -> list[RemotingCommand]:
        answer = end_of_queue(request)
        answer.opaque += 7
        return [answer] * 1_000

    with (
        Script(others) as server,
        WireClient(ConnectionOptions("a:1", request_timeout_ms=300)) as client,
        pytest.raises(RemotingTimeoutError, match="did not answer within 300 ms"),
    ):
        client.ask(server.address, 30, {"queueId": "0"})
