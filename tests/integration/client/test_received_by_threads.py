"""A thread that sends receives its answer itself, if it comes soon and nothing else is under way. Whatever else comes
on the connection meanwhile is the loop's, and nobody waits longer for it. The broker of these tests does what they
say."""

import contextlib
import queue
import random
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import pytest

from maxq.api import Message, Producer, SendResult
from maxq.client.producer import fast_sends_cy
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import MaxQError, RemotingTimeoutError
from maxq.protocol.body.route import BrokerData, QueueData, TopicRouteData
from maxq.protocol.frame.remoting_command import RemotingCommand, decode_frame
from maxq.remoting.connection import Connection

pytestmark = pytest.mark.skipif(not fast_sends_cy.is_compiled(), reason="uncompiled, the loop sends")

SENDS: Final = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
UNKNOWN: Final = 7_777  # a request that clients answer: they do not know it
LONG_MS: Final = 60_000
NEVER: Final = "the loop takes the answer"


class Sent:
    """A request to send that the broker has received."""

    def __init__(self, broker: "ScriptedBroker", peer: socket.socket, request: RemotingCommand) -> None:
        self.broker, self.peer, self.request = broker, peer, request

    def answer(self, code: int = 0) -> bytes:
        """The frame of the answer."""
        offset = str(next(self.broker.offsets))
        ext = {"msgId": f"stored{offset}", "queueId": self.request.ext["e"], "queueOffset": offset}
        return response(self.request, code, {} if code else ext)

    def reply(self, code: int = 0) -> None:
        self.peer.sendall(self.answer(code))


def response(request: RemotingCommand, code: int = 0, ext: dict[str, str] | None = None, body: bytes = b"") -> bytes:
    answer = request.reply(code, "no" if code else None, ext or {}, body)
    answer.opaque, answer.flag = request.opaque, 1
    return answer.encode()


class ScriptedBroker:
    """Name server and broker on one port. Sends are answered at once; while it `holds` them, they come into `sends` and
    wait for the test. `answers`: what clients answered to requests of the test."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.offsets = iter(range(1 << 40))
        self.holds = False
        self.sends: queue.Queue[Sent] = queue.Queue()
        self.answers: queue.Queue[RemotingCommand] = queue.Queue()
        self.peers: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer = self.listener.accept()[0]
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.peers.append(peer)
                threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        with contextlib.suppress(OSError), peer.makefile("rb") as stream:
            while head := stream.read(4):
                command = decode_frame(stream.read(int.from_bytes(head, "big")))
                if command.is_response:
                    self.answers.put(command)
                elif command.code in SENDS:
                    sent = Sent(self, peer, command)
                    self.sends.put(sent) if self.holds else sent.reply()
                elif command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
                    route = TopicRouteData(
                        queue_datas=[QueueData("b", 4, 4, 6)], broker_datas=[BrokerData("c", "b", {0: self.address})]
                    )
                    peer.sendall(response(command, body=route.encode()))
                else:
                    peer.sendall(response(command))

    def ask(self) -> int:
        """Send a request to the client that has connected last; returns its number, which the answer will have."""
        request = RemotingCommand(UNKNOWN)
        request.opaque = next(self.offsets) + 1_000_000
        self.peers[-1].sendall(request.encode())
        return request.opaque

    def disconnect(self, how: str = "closed") -> None:
        """Close all connections."""
        closing, self.peers = self.peers, []  # others may be made meanwhile
        for peer in closing:
            if how == "reset":
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR if how == "closed" else socket.SHUT_RD)
            peer.close()  # now, or when the thread that reads has seen the end

    def close(self) -> None:
        self.listener.close()
        self.disconnect()


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    made = ScriptedBroker()
    yield made
    made.close()


@pytest.fixture
def loop_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Has an entry for each arrival that the loop has processed."""
    seen: list[int] = []
    work = Connection.work

    def counted(self: Connection, buffer: bytearray, start: int, end: int) -> None:
        seen.append(end - start)
        work(self, buffer, start, end)

    monkeypatch.setattr(Connection, "work", counted)
    return seen


@pytest.fixture
def long_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread waits for its own answer for so long that whoever is late because of it hangs."""
    monkeypatch.setattr(fast_sends_cy, "_ANSWER_WAIT_MS", LONG_MS)


@pytest.fixture
def quick_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def producer(broker: ScriptedBroker, loop_reads: list[int]) -> Iterator[Producer]:
    """A producer whose threads receive their answers."""
    with Producer("P", broker.address, retry_times_when_send_failed=0) as made:
        until_threads_receive(made, loop_reads)
        yield made


def until(condition: Callable[[], Any]) -> None:
    ends = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.002)


def send(producer: Producer, body: bytes = b"x") -> SendResult:
    return producer.send(Message("T", body))


def until_threads_receive(producer: Producer, loop_reads: list[int]) -> None:
    def receives() -> bool:
        before = len(loop_reads)
        send(producer, b"warm")
        return len(loop_reads) == before

    until(receives)


def connections(producer: Producer) -> list[Connection]:
    remoting: Any = producer._client._sender.instance.remoting
    return [connection for _, connection in remoting.open_connections()]


@contextlib.contextmanager
def waiting(producer: Producer, broker: ScriptedBroker) -> Iterator[tuple[Future[SendResult], Sent]]:
    """A thread has sent and waits for its answer, which the test gives."""
    broker.holds = True
    with ThreadPoolExecutor(1) as thread:
        yield thread.submit(send, producer), broker.sends.get(timeout=60)
    broker.holds = False


@contextlib.contextmanager
def interrupted(broker: ScriptedBroker, handle: Callable[[Sent], object]) -> Iterator[None]:
    """While the main thread waits for its answer, a signal handler calls `handle` with what it has sent."""
    sent: list[Sent] = []
    is_handled = threading.Event()

    def ring(number: int, frame: object) -> None:
        if not is_handled.is_set():
            is_handled.set()
            handle(sent[0])

    def interrupt() -> None:
        sent.append(broker.sends.get(timeout=60))
        while not is_handled.wait(0.02):  # a signal that comes just before the thread begins to wait does not wake it
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)

    before = signal.signal(signal.SIGALRM, ring)
    broker.holds = True
    helper = threading.Thread(target=interrupt)
    helper.start()
    try:
        yield
    finally:
        helper.join(60)
        broker.holds = False
        signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("long_wait")
def test_a_thread_that_sends_receives_its_answers_and_the_loop_sleeps(
    producer: Producer, loop_reads: list[int]
) -> None:
    before = len(loop_reads)
    results = [send(producer) for _ in range(20)]
    results += [producer.send_batch([Message("T", b"a"), Message("T", b"b")]) for _ in range(20)]
    assert len(loop_reads) - before <= 8, NEVER  # heartbeats and routes; and what is sent when the timer is set
    assert len({result.queue_offset for result in results}) == 40
    assert len({msg_id for result in results for msg_id in result.msg_id.split(",")}) == 60


@pytest.mark.usefixtures("long_wait")
def test_the_answer_of_another_thread_does_not_wait_for_this_one(producer: Producer, broker: ScriptedBroker) -> None:
    for _ in range(3):
        with waiting(producer, broker) as (first, first_sent), ThreadPoolExecutor(1) as other:
            second = other.submit(send, producer)
            broker.sends.get(timeout=60).reply()
            second.result(30)
            assert not first.done()
            first_sent.reply()
            first.result(30)
        assert send(producer).queue_offset


@pytest.mark.usefixtures("long_wait")
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_answers_that_come_together_are_each_given_to_who_waits(
    producer: Producer, broker: ScriptedBroker, order: tuple[int, int]
) -> None:
    with waiting(producer, broker) as (first, first_sent), ThreadPoolExecutor(1) as other:
        second = other.submit(send, producer)
        sent = (first_sent, broker.sends.get(timeout=60))
        frames = [one.answer() for one in sent]
        sent[0].peer.sendall(b"".join(frames[at] for at in order))
        offsets = [b'"queueOffset":"%d"' % one.result(30).queue_offset in frame
                   for one, frame in zip((first, second), frames, strict=True)]  # fmt: skip
        assert offsets == [True, True]
    assert send(producer).queue_offset


@pytest.mark.usefixtures("long_wait")
def test_answers_count_that_came_before_the_server_closed_the_connection(
    producer: Producer, broker: ScriptedBroker, loop_reads: list[int]
) -> None:
    """Those of other threads were thrown away, and their messages sent again."""
    for _ in range(30):
        with waiting(producer, broker) as (first, first_sent), ThreadPoolExecutor(1) as other:
            second = other.submit(send, producer)
            second_sent = broker.sends.get(timeout=60)
            first_sent.peer.sendall(first_sent.answer() + second_sent.answer())
            first_sent.peer.shutdown(socket.SHUT_RDWR)
            assert first.result(30).queue_offset != second.result(30).queue_offset
        until(lambda: not connections(producer))
        until_threads_receive(producer, loop_reads)


@pytest.mark.usefixtures("long_wait")
def test_requests_of_the_server_are_answered_while_nobody_sends_and_while_somebody_waits(
    producer: Producer, broker: ScriptedBroker, loop_reads: list[int]
) -> None:
    for _ in range(3):
        asked = broker.ask()
        assert broker.answers.get(timeout=30).opaque == asked
        with waiting(producer, broker) as (sending, sent):
            asked = broker.ask()
            assert broker.answers.get(timeout=30).opaque == asked
            assert not sending.done()
            sent.reply()
            sending.result(30)
        until_threads_receive(producer, loop_reads)


@pytest.mark.usefixtures("long_wait")
def test_a_request_of_the_server_in_front_of_or_behind_the_answer_is_processed(
    producer: Producer, broker: ScriptedBroker, loop_reads: list[int]
) -> None:
    request = RemotingCommand(UNKNOWN)
    request.opaque = 4_711
    for is_first in (True, False):
        with waiting(producer, broker) as (sending, sent):
            sent.peer.sendall(request.encode() + sent.answer() if is_first else sent.answer() + request.encode())
            sending.result(30)
            assert broker.answers.get(timeout=30).opaque == 4_711
        until_threads_receive(producer, loop_reads)


@pytest.mark.usefixtures("long_wait")
@pytest.mark.parametrize("how", ["closed", "reset"])
def test_a_connection_that_the_server_closes_is_noticed_before_the_next_send(
    producer: Producer, broker: ScriptedBroker, loop_reads: list[int], how: str
) -> None:
    for _ in range(5):
        broker.disconnect(how)
        until(lambda: not connections(producer))  # nobody sends meanwhile
        assert send(producer).queue_offset, "and it is made anew, without a second try of the message"
        until_threads_receive(producer, loop_reads)


@pytest.mark.usefixtures("long_wait")
@pytest.mark.parametrize("how", ["closed", "reset"])
def test_who_waits_hears_at_once_that_the_connection_ends(
    producer: Producer, broker: ScriptedBroker, loop_reads: list[int], how: str
) -> None:
    with waiting(producer, broker) as (sending, _):
        broker.disconnect(how)
        with pytest.raises(MaxQError, match="closed before the answer came"):
            sending.result(30)
    until_threads_receive(producer, loop_reads)


@pytest.mark.usefixtures("long_wait")
@pytest.mark.parametrize("first", [1, 4, 9, -1])
def test_an_answer_in_pieces_is_put_together(
    producer: Producer, broker: ScriptedBroker, loop_reads: list[int], first: int
) -> None:
    (connection,) = connections(producer)
    with waiting(producer, broker) as (sending, sent):
        frame, seen = sent.answer(), connection.arrivals
        sent.peer.sendall(frame[:first])
        until(lambda: connection.arrivals > seen)
        sent.peer.sendall(frame[first:])
        assert b'"queueOffset":"%d"' % sending.result(30).queue_offset in frame
    until_threads_receive(producer, loop_reads)


@pytest.mark.usefixtures("long_wait")
def test_a_refusal_is_told_as_ever(producer: Producer, broker: ScriptedBroker, loop_reads: list[int]) -> None:
    for _ in range(3):
        with waiting(producer, broker) as (sending, sent):
            sent.reply(ResponseCode.NO_PERMISSION)
            with pytest.raises(MaxQError, match="CODE: 16"):
                sending.result(30)
        until_threads_receive(producer, loop_reads)


def test_an_answer_that_takes_longer_than_a_thread_receives_comes_by_the_loop(
    producer: Producer, broker: ScriptedBroker, loop_reads: list[int]
) -> None:
    with waiting(producer, broker) as (sending, sent):
        sends: Any = producer._client._sender.for_threads
        until(lambda: not sends.is_receiving)
        before = len(loop_reads)
        sent.reply()
        sending.result(30)
        assert len(loop_reads) > before
    until_threads_receive(producer, loop_reads)


def test_no_answer_is_an_error_in_time_and_a_late_one_harms_nobody(
    producer: Producer, broker: ScriptedBroker, loop_reads: list[int]
) -> None:
    broker.holds = True
    with pytest.raises(RemotingTimeoutError):
        producer.send(Message("T", b"x"), timeout_ms=100)
    broker.holds = False
    with contextlib.suppress(OSError):  # the client may have closed the silent connection
        broker.sends.get(timeout=60).reply()
    until_threads_receive(producer, loop_reads)


def test_a_thread_that_waits_hears_that_its_producer_ends(producer: Producer, broker: ScriptedBroker) -> None:
    with waiting(producer, broker) as (sending, _):
        producer.shutdown()
        with pytest.raises(MaxQError):
            sending.result(30)


@pytest.mark.usefixtures("long_wait")
def test_an_interrupt_ends_the_wait_at_once_and_the_next_send_works(
    producer: Producer, broker: ScriptedBroker, loop_reads: list[int]
) -> None:
    late: list[Sent] = []

    def handle(outer: Sent) -> None:
        late.append(outer)
        raise KeyboardInterrupt

    for number in range(3):
        with interrupted(broker, handle), pytest.raises(KeyboardInterrupt):
            send(producer)
        late[number].reply()
        until_threads_receive(producer, loop_reads)


@pytest.mark.usefixtures("long_wait")
def test_a_signal_handler_may_send_and_the_server_ask_while_the_thread_waits_that_it_interrupts(
    producer: Producer, broker: ScriptedBroker, loop_reads: list[int]
) -> None:
    inner: list[SendResult] = []

    def handle(outer: Sent) -> None:
        asked = broker.ask()
        assert broker.answers.get(timeout=30).opaque == asked
        broker.holds = False
        inner.append(send(producer, b"inner"))
        outer.reply()

    for number in range(3):
        with interrupted(broker, handle):
            assert send(producer, b"outer").queue_offset > inner[number].queue_offset
        until_threads_receive(producer, loop_reads)


@pytest.mark.usefixtures("quick_switches")
def test_no_answer_is_lost_or_mistaken_whatever_pieces_come_and_whoever_sends(
    producer: Producer, broker: ScriptedBroker
) -> None:
    """Answers of several threads and of the loop, and requests of the server, cut anywhere."""
    draws, is_over, asked = random.Random(5), threading.Event(), []

    def answer() -> None:
        stream = b""
        while not is_over.is_set() or stream:
            with contextlib.suppress(queue.Empty):
                while True:
                    sent = broker.sends.get(timeout=0 if stream else 0.001)
                    stream += sent.answer()
                    if draws.random() < 0.1:
                        request = RemotingCommand(UNKNOWN)
                        request.opaque = len(asked)
                        asked.append(request)
                        stream += request.encode()
            size = draws.choice((1, 10, 100, 1_000, 10_000)) if draws.random() < 0.3 else 100_000
            if stream:
                broker.peers[-1].sendall(stream[:size])
            stream = stream[size:]

    def work(number: int) -> list[int]:
        if number == 3:
            return [result.queue_offset for result in producer.send_many([Message("T", b"m")] * 100)]
        return [send(producer).queue_offset for _ in range(100)]

    broker.holds = True
    answering = threading.Thread(target=answer)
    answering.start()
    with ThreadPoolExecutor(4) as pool:
        offsets = [offset for made in pool.map(work, range(4)) for offset in made]
    offsets += work(0)  # alone
    is_over.set()
    answering.join(60)
    assert len(set(offsets)) == 500
    assert sorted(broker.answers.get(timeout=30).opaque for _ in asked) == list(range(len(asked)))
