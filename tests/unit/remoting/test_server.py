"""RemotingServer over real sockets: dispatch, limits, ports, shutdown."""

import asyncio
import errno

import pytest

from maxq.codes import MQVersion, RequestCode, ResponseCode
from maxq.errors import MessageIllegalError, MissingFieldError
from maxq.protocol.frame.remoting_command import RemotingCommand, SerializeType
from maxq.remoting.server import Connection, RemotingServer
from tests.unit.remoting.peers import ECHO, FAIL, LATER, SILENT, connected, serving, until


async def test_requests_are_answered_in_their_own_serialize_type() -> None:
    async with serving() as server, connected(server.port) as peer:
        for kind in SerializeType:
            answer = await peer.ask(RemotingCommand(ECHO, {"a": "b"}, b"x", "r", 7, serialize_type=kind))
            assert (answer.serialize_type, answer.opaque, answer.flag, answer.version) == (kind, 7, 1, 479)
            assert (answer.ext, answer.body, answer.remark) == ({"a": "b"}, b"x", "r")


async def test_an_unknown_code_is_answered_with_3_and_javas_remark() -> None:
    async with serving() as server, connected(server.port) as peer:
        answer = await peer.ask(RemotingCommand(9999, opaque=5))
        assert (answer.code, answer.remark, answer.opaque) == (3, " request type 9999 not supported", 5)


async def test_one_way_requests_are_never_answered_not_even_with_an_error() -> None:
    async with serving(lambda server: server.register(FAIL, fail)) as server, connected(server.port) as peer:
        for code in (ECHO, FAIL, 9999):
            peer.send(RemotingCommand(code, flag=2, opaque=code))
        assert (await peer.ask(RemotingCommand(ECHO, opaque=77))).opaque == 77


def fail(connection: Connection, command: RemotingCommand) -> RemotingCommand:
    raise KeyError("first line\nsecond line")


@pytest.mark.parametrize(
    ("error", "code", "remark"),
    [
        (MessageIllegalError("body of 5 bytes", size=5, limit=4), 13, "body of 5 bytes"),
        (MissingFieldError("topic"), 1, "the custom field <topic> is null"),
        (ValueError("first line\nsecond line"), 1, "ValueError: first line"),
        (
            OSError(errno.ENOSPC, "No space left on device", "/d/topics.json"),
            1,
            "OSError: [Errno 28] No space left on device: '/d/topics.json'; free space on that disk, then ask again",
        ),
    ],
)
@pytest.mark.parametrize("later", [False, True])
async def test_exceptions_of_processors_become_answers(error: Exception, code: int, remark: str, later: bool) -> None:
    def at_once(connection: Connection, command: RemotingCommand) -> RemotingCommand:
        raise error

    async def after_a_while(connection: Connection, command: RemotingCommand) -> RemotingCommand:
        await asyncio.sleep(0)
        raise error

    processor = after_a_while if later else at_once
    async with serving(lambda server: server.register(FAIL, processor)) as server, connected(server.port) as peer:
        answer = await peer.ask(RemotingCommand(FAIL, opaque=3))
        assert (answer.code, answer.remark, answer.opaque) == (code, remark, 3)
        assert (await peer.ask(RemotingCommand(ECHO))).code == 0


class Unsure:
    """An Authority that fails when it is asked about an answer."""

    def before(self, request: RemotingCommand) -> RemotingCommand | None:
        return None

    async def after(self, request: RemotingCommand, response: RemotingCommand) -> RemotingCommand:
        raise OSError(errno.EIO, "Input/output error")


async def test_an_answer_that_cannot_be_promised_for_an_error_is_that_error() -> None:
    async def after_a_while(connection: Connection, command: RemotingCommand) -> RemotingCommand:
        return command.reply()

    async with serving(lambda server: server.register(FAIL, after_a_while)) as server, connected(server.port) as peer:
        server.authority = Unsure()
        answer = await peer.ask(RemotingCommand(FAIL, opaque=3))
        assert (answer.code, answer.remark) == (1, "OSError: [Errno 5] Input/output error")


async def test_two_hundred_pipelined_requests_are_answered_out_of_order() -> None:
    held: list[tuple[Connection, RemotingCommand]] = []

    def hold(connection: Connection, command: RemotingCommand) -> None:
        held.append((connection, command))
        if len(held) == 200:
            for holder, request in reversed(held):
                holder.send(request.reply(0, str(request.opaque)))

    async with serving(lambda server: server.register(LATER, hold)) as server, connected(server.port) as peer:
        peer.send(*[RemotingCommand(LATER, opaque=i) for i in range(200)])
        answers = [await peer.receive() for _ in range(200)]
        assert [answer.opaque for answer in answers] == list(reversed(range(200)))
        assert all(answer.remark == str(answer.opaque) for answer in answers)


async def test_the_default_processor_takes_what_no_other_does() -> None:
    def default(connection: Connection, command: RemotingCommand) -> RemotingCommand:
        return command.reply(0, f"default {command.code}")

    async with serving(lambda server: server.register_default(default)) as server, connected(server.port) as peer:
        assert (await peer.ask(RemotingCommand(555))).remark == "default 555"
        assert (await peer.ask(RemotingCommand(ECHO))).remark is None


async def test_the_gate_refuses_with_system_busy() -> None:
    def prepare(server: RemotingServer) -> None:
        server.gate = lambda connection, command: "too busy" if command.ext.get("heavy") else None

    async with serving(prepare) as server, connected(server.port) as peer:
        answer = await peer.ask(RemotingCommand(ECHO, {"heavy": "1"}))
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_BUSY, "too busy")
        assert (await peer.ask(RemotingCommand(ECHO))).code == 0


async def test_an_answer_that_cannot_be_encoded_is_replaced_by_an_error() -> None:
    def too_long(connection: Connection, command: RemotingCommand) -> RemotingCommand:
        return command.reply(0, "x" * (1 << 24))

    async with serving(lambda server: server.register(FAIL, too_long)) as server, connected(server.port) as peer:
        answer = await peer.ask(RemotingCommand(FAIL))
        assert answer.code == 1 and "16777215" in str(answer.remark)


async def test_a_port_may_exclude_codes() -> None:
    async with serving() as server:
        vip = await server.listen("127.0.0.1", 0, excluded_codes=[RequestCode.PULL_MESSAGE, ECHO])
        assert vip != server.port
        async with connected(vip) as peer, connected(server.port) as plain:
            answer = await peer.ask(RemotingCommand(ECHO))
            assert (answer.code, answer.remark) == (3, f" request type {ECHO} not supported")
            assert (await plain.ask(RemotingCommand(ECHO))).code == 0


async def test_a_frame_of_the_limit_is_taken_and_one_byte_more_ends_the_connection() -> None:
    async with serving() as server:
        overhead = len(RemotingCommand(SILENT).encode())
        async with connected(server.port) as peer:
            peer.send(RemotingCommand(SILENT, body=bytes((1 << 24) - overhead)))
            assert (await peer.ask(RemotingCommand(ECHO, opaque=9))).opaque == 9
        async with connected(server.port) as peer:
            peer.send(RemotingCommand(SILENT, body=bytes((1 << 24) - overhead + 1)).encode()[:100_000])
            assert await peer.ended() == b""


async def test_the_limit_is_configurable() -> None:
    async with serving(frame_max_length=2000) as server, connected(server.port) as peer:
        assert (await peer.ask(RemotingCommand(ECHO, body=bytes(1500)))).code == 0
        peer.send(RemotingCommand(ECHO, body=bytes(2000)))
        assert await peer.ended() == b""


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 40, b"\0\0\0\0", b"\0\0\0\x06\x02\0\0\x02{}", b"\0\0\0\x06\0\0\0\x63{}",
     b"PROXY x\r\n", b"\x16\x03\x01\0\x05hello", b"\r\n\r\n\0\r\nQUIT\n\x11\x11\0\0"],
)  # fmt: skip
async def test_garbage_ends_the_connection_without_an_answer(garbage: bytes) -> None:
    async with serving() as server, connected(server.port) as peer:
        peer.send(garbage)
        assert await peer.ended() == b""
        await until(lambda: not server.connections, "closed on our side")


async def test_a_client_that_does_not_read_is_bounded_in_memory_and_then_gets_everything() -> None:
    async with serving() as server, connected(server.port, limit=1 << 16) as peer:
        body = bytes(100_000)
        peer.send(*[RemotingCommand(ECHO, body=body, opaque=i) for i in range(600)])  # 60 MB of answers
        most = 0
        await until(lambda: server.connections, "connected")
        (connection,) = server.connections
        for _ in range(300):
            await asyncio.sleep(0)
            most = max(most, connection.unsent_bytes)
        assert 0 < most < 4 * 1024 * 1024
        for i in range(600):
            answer = await peer.receive()
            assert (answer.opaque, answer.body_length) == (i, 100_000)


class Hearing:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def on_connect(self, connection: Connection) -> None:
        self.events.append("connect")

    def on_close(self, connection: Connection) -> None:
        self.events.append("close")

    def on_idle(self, connection: Connection) -> None:
        self.events.append("idle")

    def on_exception(self, connection: Connection) -> None:
        self.events.append("exception")


async def test_listeners_hear_of_every_connection_and_its_end() -> None:
    hearing = Hearing()
    async with serving(lambda server: server.add_listener(hearing)) as server:
        async with connected(server.port) as peer:
            await peer.ask(RemotingCommand(ECHO))
            assert hearing.events == ["connect"]
        await until(lambda: "close" in hearing.events, "closed")
        assert hearing.events in (["connect", "close"], ["connect", "exception", "close"])
        async with connected(server.port) as peer:
            await peer.ask(RemotingCommand(ECHO))
            hearing.events.clear()
            await server.shutdown()
            assert hearing.events == ["close"]
            assert await peer.ended() == b""


async def test_going_away_is_told_to_newer_clients_only() -> None:
    async with serving() as server, connected(server.port) as peer:
        server._goes_away = True
        new = await peer.ask(RemotingCommand(ECHO, version=MQVersion.V5_3_1 + 1))
        assert (new.code, new.remark) == (ResponseCode.GO_AWAY, "please go away")
        assert (await peer.ask(RemotingCommand(ECHO, version=MQVersion.V5_3_1))).code == 0
        assert (await peer.ask(RemotingCommand(9999, version=MQVersion.V5_5_0))).code == 3


async def test_shutdown_ends_answers_under_way_and_leaves_no_task() -> None:
    started = asyncio.Event()

    async def forever(connection: Connection, command: RemotingCommand) -> RemotingCommand:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with serving(lambda server: server.register(LATER, forever)) as server, connected(server.port) as peer:
        peer.send(RemotingCommand(LATER))
        await started.wait()
        await server.shutdown()
        assert not server._tasks and not server.connections
        assert await peer.ended() == b""


@pytest.mark.filterwarnings("error")
async def test_a_request_of_the_last_turn_before_shutdown_begins_and_ends() -> None:
    seen: list[str] = []

    async def never(connection: Connection, command: RemotingCommand) -> RemotingCommand:
        seen.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("ended")
        raise AssertionError

    async with serving(lambda server: server.register(LATER, never)) as server, connected(server.port) as peer:
        assert (await peer.ask(RemotingCommand(ECHO))).code == 0
        (connection,) = server.connections
        server.request_received(connection, RemotingCommand(LATER))
        await server.shutdown()
        assert seen == ["begun", "ended"]


async def test_shutdown_does_not_wait_for_a_client_that_does_not_read() -> None:
    async with serving() as server, connected(server.port, limit=1 << 16) as peer:
        peer.send(*[RemotingCommand(ECHO, body=bytes(100_000)) for _ in range(200)])
        await until(lambda: server.connections and next(iter(server.connections)).unsent_bytes > 500_000, "stuck")
        async with asyncio.timeout(20):
            await server.shutdown()
        assert not server.connections


async def test_a_port_in_use_is_named() -> None:
    async with serving() as server, serving() as other:
        with pytest.raises(OSError, match=str(server.port)):
            await other.listen("127.0.0.1", server.port)


async def test_a_server_asks_its_clients_over_their_connection() -> None:
    async with serving() as server, connected(server.port) as peer:
        await peer.ask(RemotingCommand(ECHO))
        (connection,) = server.connections
        task = asyncio.create_task(connection.invoke(RemotingCommand(307, {"clientId": "c"}), 5000))
        request = await peer.receive()
        assert (request.code, request.ext, request.is_response) == (307, {"clientId": "c"}, False)
        peer.send(request.reply(0, body=b"info"))
        assert (await task).body == b"info"


async def test_a_peer_that_does_not_read_is_gone_with_what_waits_for_it() -> None:
    """Closing alone would wait for the peer to take what it was sent."""

    def much(connection: Connection, command: RemotingCommand) -> RemotingCommand:
        return command.reply(0, body=bytes(8 << 20))

    def much_and_end(connection: Connection, command: RemotingCommand) -> None:
        connection.send_oneway(RemotingCommand(1, body=bytes(8 << 20)))
        connection.close()

    def prepare(server: RemotingServer) -> None:
        server.register(LATER, much)
        server.register(LATER + 1, much_and_end)

    async with serving(prepare, server_channel_max_idle_time_seconds=1) as server:
        for code in (LATER, LATER + 1):
            async with connected(server.port) as silent, connected(server.port) as reading:
                silent.send(*[RemotingCommand(code)] * (3 if code == LATER else 1))
                async with asyncio.timeout(20):
                    while len(server.connections) > 1:  # the one that reads and asks goes on
                        assert (await reading.ask(RemotingCommand(ECHO))).code == 0
                        await asyncio.sleep(0.02)
                (left,) = server.connections
                assert not left.is_closed
            await until(lambda: not server.connections, "closed")
