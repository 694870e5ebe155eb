"""One connection on a transport that the test holds: arrivals, answers, memory."""

import asyncio
import contextlib
import dataclasses
import gc
import socket
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable
from itertools import count
from typing import Any
from unittest import mock

import pytest

from maxq.config.netty_server_config import NettyServerConfig
from maxq.errors import LocalProtocolError, RemotingSendError, RemotingTimeoutError
from maxq.protocol.frame.remoting_command import RESPONSE_FLAG, RemotingCommand
from maxq.remoting.connection import RECEIVE_BUFFER_SIZE
from maxq.remoting.server import Connection, RemotingServer
from maxq.remoting.socket_io_cy import send_at_once
from maxq.runtime.files.system import SystemClock
from tests.unit.remoting.peers import ECHO, SILENT, FakeTransport, arrive, echo, frames_of, silent, until


def make_server(**settings: int) -> RemotingServer:
    server = RemotingServer(dataclasses.replace(NettyServerConfig(), **settings), clock=SystemClock())
    server.turn_seconds = 60  # however slow this machine is
    server.register(ECHO, echo)
    server.register(SILENT, silent)
    return server


def open_connection(server: RemotingServer) -> tuple[Connection, FakeTransport]:
    connection, transport = Connection(server), FakeTransport()
    connection.connection_made(transport)
    return connection, transport


async def test_all_answers_of_one_arrival_leave_in_one_write() -> None:
    connection, transport = open_connection(make_server())
    arrive(connection, b"".join(RemotingCommand(ECHO, body=b"x", opaque=i).encode() for i in range(100)))
    assert len(transport.writes) == 1
    assert [frame.opaque for frame in frames_of(transport.writes[0])] == list(range(100))


@pytest.mark.parametrize("step", [1, 2, 3, 7, 100])
async def test_frames_may_arrive_in_any_pieces(step: int) -> None:
    connection, transport = open_connection(make_server())
    stream = b"".join(RemotingCommand(ECHO, {"n": str(i)}, b"b" * i, opaque=i).encode() for i in range(20))
    for at in range(0, len(stream), step):
        arrive(connection, stream[at : at + step])
    assert [frame.body_length for frame in frames_of(b"".join(transport.writes))] == list(range(20))


async def test_frames_larger_than_the_shared_buffer_are_received_and_their_memory_is_given_back() -> None:
    connection, transport = open_connection(make_server())
    for size in (RECEIVE_BUFFER_SIZE // 2 - 200, RECEIVE_BUFFER_SIZE // 2 + 1, RECEIVE_BUFFER_SIZE, 5_000_000):
        before = RemotingCommand(ECHO, body=b"before").encode()
        after = RemotingCommand(ECHO, body=b"after").encode()
        arrive(connection, before + RemotingCommand(ECHO, body=bytes(size)).encode() + after)
        answers = frames_of(b"".join(transport.writes))
        assert [answer.body_length for answer in answers] == [6, size, 5]
        assert (connection.own_buffer, connection.partial) == (None, b"")
        transport.writes.clear()


async def test_an_announced_length_takes_no_memory_before_the_bytes_arrive() -> None:
    connection, _ = open_connection(make_server())
    gc.collect()
    tracemalloc.start()
    arrive(connection, (16_000_000).to_bytes(4, "big") + bytes(100))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200_000


async def test_two_connections_share_the_buffer_without_mixing() -> None:
    server = make_server()
    pairs = [open_connection(server) for _ in range(3)]
    frames = [RemotingCommand(ECHO, body=bytes([65 + i]) * 200).encode() for i in range(3)]
    for at in range(0, len(frames[0]), 11):
        for (connection, _), frame in zip(pairs, frames, strict=True):
            arrive(connection, frame[at : at + 11])
    bodies = [frames_of(b"".join(transport.writes))[0].body for _, transport in pairs]
    assert bodies == [b"A" * 200, b"B" * 200, b"C" * 200]


async def test_ten_thousand_idle_connections_take_less_than_three_kilobytes_each() -> None:
    server = make_server()
    transports = [FakeTransport() for _ in range(10_000)]
    gc.collect()
    tracemalloc.start()
    connections = []
    for transport in transports:
        connection = Connection(server)
        connection.connection_made(transport)
        arrive(connection, RemotingCommand(SILENT).encode() + b"\0\0")  # a request, and the start of the next
        connections.append(connection)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size / len(connections) < 3072
    for connection in connections:
        connection.connection_lost(None)
    assert not server.connections


async def test_the_batch_path_takes_leading_frames_and_the_rest_goes_to_processors() -> None:
    server = make_server()
    taken: list[tuple[int, int]] = []
    frame = RemotingCommand(77, body=b"batch").encode()

    def batch_path(connection: Connection, buffer: bytearray, start: int, end: int) -> int:
        assert isinstance(buffer, bytearray)
        first = start
        while buffer[start : start + len(frame)] == frame and start + len(frame) <= end:
            start += len(frame)
            connection.write([b"\0\0\0\x17\0\0\0\x13", b'{"code":0,"flag":1}'])
        taken.append((first, start))
        return start

    server.batch_path = batch_path
    connection, transport = open_connection(server)
    request = RemotingCommand(ECHO, body=b"x").encode()
    arrive(connection, frame * 3 + request + frame + request[:10])
    arrive(connection, request[10:] + frame)
    assert [len(frames_of(data)) for data in transport.writes] == [5, 2]
    bodies = [answer.body for answer in frames_of(b"".join(transport.writes))]
    assert bodies == [None, None, None, b"x", None, b"x", None]
    assert sum(end - start for start, end in taken) == 5 * len(frame)


async def test_a_peer_that_does_not_read_is_not_read_and_its_frames_wait() -> None:
    server = make_server()
    connection, transport = open_connection(server)
    answered: list[int] = []

    def answer(connection: Connection, command: RemotingCommand) -> RemotingCommand:
        answered.append(command.opaque)
        if len(answered) == 5:
            connection.pause_writing()  # what the transport does above its high mark
        return command.reply()

    server.register(9, answer)
    frames = [RemotingCommand(9, opaque=i).encode() for i in range(20)]
    arrive(connection, b"".join(frames) + frames[0][:30])
    assert answered == [0, 1, 2, 3, 4] and not transport.reading
    assert len(frames_of(b"".join(transport.writes))) == 5
    connection.resume_writing()
    assert answered == list(range(20)) and transport.reading
    arrive(connection, frames[0][30:])
    assert answered == [*range(20), 0]


async def test_an_arrival_that_takes_long_lets_others_go_first() -> None:
    server = make_server()
    server.turn_seconds = 0.02  # more than a busy machine stops a process for
    (long, long_transport), (short, _) = open_connection(server), open_connection(server)
    seen: list[tuple[str, int]] = []

    def slow(connection: Connection, command: RemotingCommand) -> RemotingCommand:
        seen.append(("long" if connection is long else "short", command.opaque))
        ends = time.perf_counter() + (0.03 if connection is long else 0)
        while time.perf_counter() < ends:
            pass
        return command.reply()

    server.register(9, slow)
    frames = [RemotingCommand(9, opaque=i).encode() for i in range(4)]
    arrive(long, b"".join(frames) + frames[0][:7])
    assert seen == [("long", 0)] and not long_transport.reading
    arrive(long, frames[0][7:])  # in spite of the pause: it stays behind
    arrive(short, frames[3])
    await until(lambda: len(seen) == 6 and long_transport.reading, "the rest is worked off")
    assert seen.index(("short", 3)) < seen.index(("long", 2))
    assert [opaque for name, opaque in seen if name == "long"] == [0, 1, 2, 3, 0]
    assert len(frames_of(b"".join(long_transport.writes))) == 5


async def test_bytes_that_arrive_in_spite_of_a_pause_are_kept_in_order() -> None:
    server = make_server()
    connection, transport = open_connection(server)
    connection.pause_writing()
    frames = [RemotingCommand(ECHO, body=bytes(50_000), opaque=i).encode() for i in range(20)]
    for frame in frames:
        arrive(connection, frame)
    assert not transport.writes
    connection.resume_writing()
    assert [frame.opaque for frame in frames_of(b"".join(transport.writes))] == list(range(20))


async def test_a_peer_that_does_not_read_is_closed_above_the_limit_and_the_reason_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = make_server(max_unsent_bytes=65536)
    connection, transport = open_connection(server)
    connection.pause_writing()
    transport.held = 65536
    connection.send(RemotingCommand(40))
    assert transport.state == "open"
    transport.held = 65537
    connection.send(RemotingCommand(40))
    assert (transport.state, connection.is_closed) == ("aborted", True)
    assert connection.close_reason.startswith("[UNREAD_ANSWERS]does not read its answers")
    assert "65537 bytes unsent, the limit is 65536 (maxUnsentBytes)" in caplog.text


async def test_marks_of_the_configuration_reach_the_transport() -> None:
    assert open_connection(make_server())[1].limits == (1024 * 1024, 256 * 1024)
    assert open_connection(make_server(write_buffer_high_water_mark=4000))[1].limits == (4000, 1000)


async def test_garbage_closes_the_connection_after_what_came_before_was_answered() -> None:
    connection, transport = open_connection(make_server())
    arrive(connection, RemotingCommand(ECHO, body=b"fine").encode() + b"GET / HTTP/1.1\r\n\r\n")
    assert [frame.body for frame in frames_of(b"".join(transport.writes))] == [b"fine"]
    assert transport.state == "closed" and "the limit is" in connection.close_reason
    arrive(connection, RemotingCommand(ECHO).encode())
    assert len(transport.writes) == 1


async def test_a_failing_batch_path_closes_only_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    server = make_server()

    def batch_path(connection: Connection, buffer: bytearray, start: int, end: int) -> int:
        raise ValueError("broken")

    server.batch_path = batch_path
    connection, transport = open_connection(server)
    arrive(connection, RemotingCommand(ECHO).encode())
    assert transport.state == "aborted" and "broken" in caplog.text


async def test_requests_over_a_connection_are_matched_by_opaque_in_any_order() -> None:
    connection, transport = open_connection(make_server())
    tasks = [asyncio.create_task(connection.invoke(RemotingCommand(40), 5000)) for _ in range(10)]
    await until(lambda: len(transport.writes) == 10, "ten requests")
    sent = frames_of(b"".join(transport.writes))
    assert len({frame.opaque for frame in sent}) == 10
    for frame in reversed(sent):
        arrive(connection, frame.reply(0, str(frame.opaque)).encode())
    assert [(await task).remark for task in tasks] == [str(frame.opaque) for frame in sent]
    arrive(connection, sent[0].reply().encode())  # late: dropped
    assert transport.state == "open"


async def test_requests_fail_when_time_is_up_or_the_connection_ends() -> None:
    connection, _ = open_connection(make_server())
    with pytest.raises(RemotingTimeoutError, match=r"10\.0\.0\.9:4711.*timeout, 5") as caught:
        await connection.invoke(RemotingCommand(40), 5)
    assert (caught.value.address, caught.value.timeout_ms) == ("10.0.0.9:4711", 5)
    task = asyncio.create_task(connection.invoke(RemotingCommand(40), 5000))
    await until(lambda: connection.waiting, "request sent")
    connection.connection_lost(ConnectionResetError("gone"))
    with pytest.raises(RemotingSendError, match="gone"):
        await task
    with pytest.raises(RemotingSendError, match="gone"):
        await connection.invoke(RemotingCommand(40), 5)
    assert not connection.waiting


async def test_too_many_requests_on_one_connection_are_refused_with_the_limit() -> None:
    connection, _ = open_connection(make_server(server_async_semaphore_value=2))
    tasks = [asyncio.create_task(connection.invoke(RemotingCommand(40), 5000)) for _ in range(2)]
    await until(lambda: connection.waiting == 2, "two wait")
    with pytest.raises(RemotingSendError, match="2 requests wait"):
        await connection.invoke(RemotingCommand(40), 5000)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert not connection.waiting


# --- requests of other threads ---


class SocketTransport(FakeTransport):
    """Has a socket; what it is given it writes there, as far as that takes it."""

    def __init__(self) -> None:
        super().__init__()
        self.socket, self.peer = socket.socketpair()
        self.socket.setblocking(False)
        self._extra["socket"] = self.socket  # type: ignore[attr-defined]
        self.on_write: Callable[[], object] = lambda: None

    def write(self, data: Any) -> None:
        super().write(data)
        self.socket.send(data)
        self.on_write()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))


@pytest.fixture
async def direct() -> AsyncIterator[tuple[Connection, SocketTransport]]:
    connection, transport = Connection(make_server(), detect=False), SocketTransport()
    connection.connection_made(transport)
    yield connection, transport
    transport.socket.close()
    transport.peer.close()


async def test_a_request_of_another_thread_leaves_at_once(direct: tuple[Connection, SocketTransport]) -> None:
    connection, transport = direct
    answers: list[RemotingCommand | None] = []
    assert send_at_once(connection, 7, answers.append, b"head", b"body") == 0  # type: ignore[arg-type]
    assert transport.peer.recv(100) == b"headbody"
    assert (connection.waiting, connection.requests, transport.writes) == (1, 1, [])
    arrive(connection, RemotingCommand(40, opaque=7, flag=RESPONSE_FLAG).encode())
    assert [answer.opaque for answer in answers if answer is not None] == [7]


@pytest.mark.parametrize("why", ["bytes wait", "an arrival is worked off", "closed", "lost"])
async def test_a_request_of_another_thread_does_not_overtake_what_waits_to_be_sent(
    direct: tuple[Connection, SocketTransport], why: str
) -> None:
    connection, transport = direct
    if why == "bytes wait":
        transport.held = 1
    elif why == "an arrival is worked off":
        connection._in_pass = True
        connection.write([b"before"])
    elif why == "closed":
        connection.close()
    else:
        connection.connection_lost(None)
    assert send_at_once(connection, 7, lambda _: None, b"head", b"body") == -1  # type: ignore[arg-type]
    assert (connection.waiting, connection.requests) == (0, 0)
    transport.peer.setblocking(False)
    with pytest.raises(BlockingIOError):
        transport.peer.recv(100)


async def test_a_request_of_another_thread_does_not_come_between_the_pieces_of_a_frame(
    direct: tuple[Connection, SocketTransport],
) -> None:
    connection, transport = direct
    transport.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
    said: list[int] = []
    transport.on_write = lambda: said.append(send_at_once(connection, 7, lambda _: None, b"head", b"body"))  # type: ignore[arg-type, func-returns-value]
    connection.write([b"x" * 100, b"y" * (1 << 20)])
    assert said == [-1, -1]
    assert send_at_once(connection, 7, lambda _: None, b"", b"") == 0  # type: ignore[arg-type]


async def test_a_request_of_another_thread_is_not_sent_on_a_connection_that_is_being_closed(
    direct: tuple[Connection, SocketTransport], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would get no answer, though the broker may store its message, and be sent again."""
    connection, _ = direct
    said: list[int] = []

    def flush(connection: Connection) -> None:
        said.append(send_at_once(connection, 7, lambda _: None, b"head", b"body"))  # type: ignore[arg-type]

    monkeypatch.setattr(Connection, "_flush", flush)
    connection.close("idle for 120 s")
    assert (said, connection.waiting) == ([-1], 0)


async def test_what_the_socket_did_not_take_of_a_request_leaves_before_all_else(
    direct: tuple[Connection, SocketTransport],
) -> None:
    connection, transport = direct
    transport.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    body = bytes(range(256)) * 4000
    left = send_at_once(connection, 7, lambda _: None, b"head", body)  # type: ignore[arg-type]
    assert 0 < left < len(body)
    assert connection.unsent_bytes == left
    assert send_at_once(connection, 8, lambda _: None, b"later", b"") == -1  # type: ignore[arg-type]
    got = bytearray()
    transport.peer.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            got += transport.peer.recv(1 << 20)
    transport.socket = mock.Mock()
    connection.send_left()
    connection.write([b"later"])
    assert bytes(got) + b"".join(transport.writes) == b"head" + body + b"later"
    connection.send_left()
    assert connection.unsent_bytes == 0


async def test_opaques_wrap_within_int32() -> None:
    server = make_server()
    server._opaques = count(0x7FFFFFFF)
    assert [server.next_opaque(), server.next_opaque()] == [0x7FFFFFFF, 0]


async def test_one_way_requests_carry_the_flag() -> None:
    connection, transport = open_connection(make_server())
    connection.send_oneway(RemotingCommand(40, {"consumerGroup": "G"}))
    (frame,) = frames_of(transport.writes[0])
    assert frame.is_oneway and not frame.is_response


async def test_the_peer_is_packed_as_born_host() -> None:
    connection, _ = open_connection(make_server())
    assert connection.remote_host.hex() == "0a00000900001267"
    assert connection.local_address == "10.0.0.1:10911"


@pytest.mark.parametrize("body", ["text", 7, object()])
async def test_a_body_that_cannot_follow_its_head_leaves_no_head_behind(body: object) -> None:
    connection, transport = open_connection(make_server())
    for send in (connection.send, connection.send_oneway, lambda command: connection.request(command, print)):
        with pytest.raises((LocalProtocolError, TypeError)):
            send(RemotingCommand(ECHO, body=body))  # type: ignore[arg-type]
    connection.send(RemotingCommand(ECHO, body=b"whole"))
    assert [frame.body_bytes for frame in frames_of(b"".join(transport.writes))] == [b"whole"]
    assert not connection.is_closed


async def test_a_write_that_fails_half_way_ends_the_connection() -> None:
    connection, transport = open_connection(make_server())

    def fail(data: object) -> None:
        raise MemoryError("as scripted")

    transport.writelines = fail  # type: ignore[method-assign]
    with pytest.raises(MemoryError):
        connection.send(RemotingCommand(ECHO, body=b"half"))
    assert connection.is_closed
    with pytest.raises(RemotingSendError, match="half way"):
        connection.request(RemotingCommand(ECHO), print)


def begun(size: int, body: bytes) -> bytes:
    """The begin of a frame of `size` bytes."""
    frame = RemotingCommand(ECHO, body=bytes(size)).encode()
    return frame[: len(frame) - size] + body


async def test_unfinished_frames_of_many_connections_hold_no_more_than_the_limit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = make_server(max_unfinished_bytes=20_000_000)
    known, known_transport = open_connection(server)
    arrive(known, RemotingCommand(ECHO, body=b"let through").encode() + begun(4_000_000, bytes(3_000_000)))
    strangers = []
    for _ in range(40):
        stranger, _ = open_connection(server)
        arrive(stranger, begun(15_000_000, bytes(7_000_000)))
        strangers.append(stranger)
        assert sum(len(one.own_buffer or one.partial) for one in (known, *strangers)) <= server.unfinished.limit
    assert [one.is_closed for one in strangers] == [True] * 39 + [False], "those whose frames began first are ended"
    assert "the limit is 20000000 (maxUnfinishedBytes)" in strangers[0].close_reason
    assert strangers[0].close_reason in caplog.text
    arrive(known, bytes(1_000_000))
    assert [answer.body_length for answer in frames_of(b"".join(known_transport.writes))] == [11, 4_000_000]
    strangers[-1].abort("the end")
    assert server.unfinished.total == 0


async def test_an_unfinished_frame_takes_what_arrived_of_it_and_not_what_it_announces() -> None:
    server = make_server()
    connection, _ = open_connection(server)
    arrive(connection, begun(15_000_000, bytes(200_000)))
    assert 200_000 < server.unfinished.total < 500_000


@pytest.mark.parametrize("held", [20_000, 100_000, 1_000_000])
async def test_of_a_frame_that_came_nothing_stays_counted(held: int) -> None:
    server = make_server()
    connection, _ = open_connection(server)
    frame = RemotingCommand(ECHO, body=bytes(2 * held)).encode()
    for _ in range(3):
        arrive(connection, frame + frame[:held])
        assert server.unfinished.total >= held
        arrive(connection, frame[held:])
        assert server.unfinished.total == 0
    arrive(connection, frame[:held])
    connection.connection_lost(None)
    assert server.unfinished.total == 0


async def test_one_frame_of_the_limit_is_taken_however_little_may_be_held() -> None:
    server = make_server(max_unfinished_bytes=1_048_576)
    connection, transport = open_connection(server)
    arrive(connection, RemotingCommand(ECHO, body=bytes(15_000_000)).encode())
    assert [answer.body_length for answer in frames_of(b"".join(transport.writes))] == [15_000_000]
