"""Connections that are read together, on real sockets: each does what it does when its transport reads it."""

import asyncio
import errno
import select
from collections.abc import AsyncIterator, Callable

import pytest

from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.frame.send_rows import A_END, A_TAKEN, ARRIVAL_WIDTH
from maxq.remoting.batched_reads import BatchedReads
from maxq.remoting.connection import RECEIVE_BUFFER_SIZE
from maxq.remoting.server import Connection, RemotingServer
from tests.unit.remoting.peers import ECHO, RawPeer, connected, serving, until


def adopt(server: RemotingServer) -> list[Connection]:
    """Have all connections read together."""
    for connection in server.connections:
        connection.join_batched_reads()
    assert len(server.batched_reads) == len(server.connections)
    return list(server.connections)


@pytest.fixture
async def server() -> AsyncIterator[RemotingServer]:
    async with serving() as running:
        yield running


async def greeted(server: RemotingServer, peer: RawPeer) -> None:
    """The first bytes of a connection are looked at before it can be read with others."""
    assert (await peer.ask(RemotingCommand(ECHO, body=b"hello"))).body == b"hello"


async def test_what_nobody_takes_is_answered_as_ever(server: RemotingServer) -> None:
    async with connected(server.port) as one, connected(server.port) as other:
        for peer in (one, other):
            await greeted(server, peer)
        adopt(server)
        for number in range(20):
            one.send(*(RemotingCommand(ECHO, body=b"%d.%d" % (number, i)) for i in range(5)))
            assert (await other.ask(RemotingCommand(ECHO, body=b"o%d" % number))).body == b"o%d" % number
            assert [(await one.receive()).body for _ in range(5)] == [b"%d.%d" % (number, i) for i in range(5)]


@pytest.mark.parametrize("step", [1, 7, 100])
async def test_frames_may_come_in_any_pieces(server: RemotingServer, step: int) -> None:
    async with connected(server.port) as peer:
        await greeted(server, peer)
        (connection,) = adopt(server)
        stream = b"".join(RemotingCommand(ECHO, body=b"b" * size).encode() for size in range(1, 4))
        for at in range(0, len(stream), step):
            seen = connection.arrivals
            peer.send(stream[at : at + step])
            await until(lambda seen=seen: connection.arrivals > seen, "the piece arrived")  # type: ignore[misc]
        assert [(await peer.receive()).body for _ in range(3)] == [b"b", b"bb", b"bbb"]


async def test_a_very_large_frame_goes_back_to_the_transport_and_is_answered(server: RemotingServer) -> None:
    async with connected(server.port, limit=1 << 23) as peer:
        await greeted(server, peer)
        adopt(server)
        for size in (RECEIVE_BUFFER_SIZE // 2 + 1, 3_000_000):
            body = bytes(size)
            assert (await peer.ask(RemotingCommand(ECHO, body=body))).body == body
        assert len(server.batched_reads) == 0
        assert (await peer.ask(RemotingCommand(ECHO, body=b"after"))).body == b"after"
        adopt(server)
        assert (await peer.ask(RemotingCommand(ECHO, body=b"again"))).body == b"again"


async def test_while_something_is_processed_no_thread_may_receive_what_follows(server: RemotingServer) -> None:
    seen: list[bool] = []
    async with connected(server.port) as peer:
        await greeted(server, peer)
        adopt(server)
        reads = server.batched_reads
        server.register(ECHO, lambda connection, command: seen.append(reads.is_at_work) or command.reply())
        await peer.ask(RemotingCommand(ECHO))
        assert (seen, reads.is_at_work) == ([True], False)


@pytest.mark.parametrize("fails", ["epoll", "add_reader", "register"])
async def test_a_connection_for_which_the_system_has_no_room_is_read_by_its_transport(
    server: RemotingServer, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """It was read by nobody."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    class Full:
        """An epoll instance that watches no more sockets."""

        def __init__(self) -> None:
            self._epoll = epoll()
            self.fileno, self.close, self.poll = self._epoll.fileno, self._epoll.close, self._epoll.poll

        register = refuse

    epoll = select.epoll
    async with connected(server.port) as peer:
        await greeted(server, peer)
        (connection,) = server.connections
        with monkeypatch.context() as full:
            if fails == "add_reader":
                full.setattr(asyncio.get_running_loop(), "add_reader", refuse)
            else:
                full.setattr(select, "epoll", refuse if fails == "epoll" else Full)
            connection.join_batched_reads()
        assert len(server.batched_reads) == 0
        assert (await peer.ask(RemotingCommand(ECHO, body=b"still read"))).body == b"still read"
        if fails != "register":  # else the instance stays
            adopt(server)
            assert (await peer.ask(RemotingCommand(ECHO, body=b"together"))).body == b"together"


async def test_a_peer_that_leaves_is_gone_at_once(server: RemotingServer) -> None:
    async with connected(server.port) as stays:
        await greeted(server, stays)
        async with connected(server.port) as leaves:
            await greeted(server, leaves)
            adopt(server)
            leaves.writer.close()
            await until(lambda: len(server.connections) == 1, "the end was seen")
        async with connected(server.port) as breaks:
            await greeted(server, breaks)
            adopt(server)
            breaks.writer.transport.abort()
            await until(lambda: len(server.connections) == 1, "the break was seen")
        assert len(server.batched_reads) == 1
        assert (await stays.ask(RemotingCommand(ECHO, body=b"still"))).body == b"still"


async def test_a_connection_that_is_closed_is_watched_no_longer(server: RemotingServer) -> None:
    async with connected(server.port) as peer:
        await greeted(server, peer)
        (connection,) = adopt(server)
        connection.close()
        assert len(server.batched_reads) == 0
        assert await peer.ended() == b""


async def test_what_is_not_the_protocol_ends_the_connection(server: RemotingServer) -> None:
    async with connected(server.port) as peer:
        await greeted(server, peer)
        adopt(server)
        peer.send(b"\x00\x00\x00\x08nonsense")
        assert await peer.ended() == b""
        assert len(server.batched_reads) == 0


async def test_a_peer_that_does_not_read_is_not_read() -> None:
    async with (
        serving(write_buffer_high_water_mark=50_000, max_unsent_bytes=10_000_000) as server,
        connected(server.port, limit=1000) as peer,
    ):
        await greeted(server, peer)
        (connection,) = adopt(server)
        body = bytes(100_000)
        sender = asyncio.create_task(send_many(peer, body, 200))
        await until(lambda: len(server.batched_reads) == 0, "its transport has it back")
        assert connection.unsent_bytes < 2_000_000
        assert [(await peer.receive()).body == body for _ in range(200)] == [True] * 200
        await sender


async def send_many(peer: RawPeer, body: bytes, count: int) -> None:
    for _ in range(count):
        peer.send(RemotingCommand(ECHO, body=body))
        await peer.writer.drain()


async def test_answers_keep_their_order_when_some_go_by_the_transport(server: RemotingServer) -> None:
    """Small answers go to the socket at once unless the transport still holds bytes of this connection."""

    def echo_all(arrivals: BatchedReads) -> None:
        answers, table = bytearray(), arrivals.table
        for number in range(len(arrivals.connections)):
            row = number * ARRIVAL_WIDTH
            data = arrivals.buffer[table[row] : table[row + A_END]]
            if len(data) < 1000:  # the others go the connection's own way
                answers += data
                table[row + A_TAKEN] = table[row + A_END]
                table[row + 4] = 1
        arrivals.answer(answers, table, arrivals.connections)

    server.batched_reads.path = echo_all
    async with connected(server.port, limit=1 << 24) as peer:
        await greeted(server, peer)
        (connection,) = adopt(server)
        sizes = [100_000, 10, 100_000, 20, 100_000, 30] * 10
        for size in sizes:
            seen = connection.arrivals
            peer.send(RemotingCommand(ECHO, body=bytes(size)))
            await until(lambda seen=seen: connection.arrivals > seen and not connection.partial, "arrived")  # type: ignore[misc]
        assert [(await peer.receive()).body_length for _ in sizes] == sizes


async def test_a_path_that_fails_ends_the_connections_of_the_turn_only(server: RemotingServer) -> None:
    def fails(arrivals: BatchedReads) -> None:
        raise ZeroDivisionError

    async with connected(server.port) as one, connected(server.port) as other:
        await greeted(server, one)
        await greeted(server, other)
        adopt(server)
        server.batched_reads.path = fails
        one.send(RemotingCommand(ECHO))
        assert await one.ended() == b""
        server.batched_reads.path = None
        assert (await other.ask(RemotingCommand(ECHO, body=b"fine"))).body == b"fine"


async def test_a_connection_joins_when_there_are_others_that_send(server: RemotingServer) -> None:
    async with connected(server.port) as one, connected(server.port) as two, connected(server.port) as three:
        for peer in (one, two, three):
            await greeted(server, peer)
        sending = list(server.connections)
        for number, connection in enumerate(sending):
            for _ in range(4):
                assert len(server.batched_reads) == 0, f"before the fourth arrival of number {number}"
                connection.note_fast_path_arrival()
        assert len(server.batched_reads) == 3
        for peer in (one, two, three):
            assert (await peer.ask(RemotingCommand(ECHO, body=b"fine"))).body == b"fine"


async def test_a_connection_that_ended_before_there_were_others_never_joins(server: RemotingServer) -> None:
    async with connected(server.port) as one, connected(server.port) as two, connected(server.port) as three:
        for peer in (one, two, three):
            await greeted(server, peer)
        gone, *others = server.connections
        for connection in (gone, *others):
            if connection is others[0]:
                gone.close()
            for _ in range(4):
                connection.note_fast_path_arrival()
        assert len(server.batched_reads) == 0


async def test_while_nothing_would_be_answered_nothing_is_received(
    server: RemotingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maxq.remoting.batched_reads._REST_S", 60)
    async with connected(server.port) as one, connected(server.port) as other:
        for peer in (one, other):
            await greeted(server, peer)
        connections = adopt(server)
        asked: list[Callable[[], None]] = []
        server.batched_reads.may_rest = lambda then: not asked.append(then)  # type: ignore[func-returns-value]
        seen = [connection.arrivals for connection in connections]
        for peer in (one, other):
            peer.send(RemotingCommand(ECHO, body=b"hello"))
        await until(lambda: bool(asked), "what came was seen")
        assert [connection.arrivals for connection in connections] == seen
        server.batched_reads.may_rest = None
        asked[0]()
        for peer in (one, other):
            assert (await peer.receive()).body == b"hello"
        asked[0]()  # nobody rests
        assert (await one.ask(RemotingCommand(ECHO, body=b"again"))).body == b"again"


async def test_it_rests_for_a_moment_only(server: RemotingServer) -> None:
    async with connected(server.port) as peer:
        await greeted(server, peer)
        adopt(server)
        server.batched_reads.may_rest = lambda then: True
        for number in range(3):
            assert (await peer.ask(RemotingCommand(ECHO, body=b"%d" % number))).body == b"%d" % number


async def test_a_server_may_end_while_it_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maxq.remoting.batched_reads._REST_S", 0.2)
    asked: list[Callable[[], None]] = []
    faults: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
    async with serving() as server, connected(server.port) as peer:
        await greeted(server, peer)
        adopt(server)
        server.batched_reads.may_rest = lambda then: not asked.append(then)  # type: ignore[func-returns-value]
        peer.send(RemotingCommand(ECHO, body=b"never answered"))
        await until(lambda: bool(asked), "what came was seen")
    asked[0]()
    await asyncio.sleep(0.25)  # longer than it would rest
    assert faults == []
