import asyncio
from typing import Any

import pytest

from maxq.testing.sim_network import LinkSettings
from maxq.testing.simulation import SimWorld, run_simulation

A, B = "10.0.0.1", "10.0.0.2"


class Recorder(asyncio.Protocol):
    """Notes what happens to it."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.received = bytearray()
        self.transport: Any = None
        self.lost: Exception | str | None = "open"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.events.append(len(data))

    def eof_received(self) -> bool:
        self.events.append("eof")
        return False

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = exc


class BufferedRecorder(asyncio.BufferedProtocol):
    """Receives into a buffer of 10 bytes."""

    def __init__(self) -> None:
        self.buffer = bytearray(10)
        self.received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        pass

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self.buffer[:nbytes]

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        pass


async def pair(world: SimWorld, port: int = 9876) -> tuple[Recorder, Recorder]:
    """A protocol on A connected to one on B."""
    accepted: list[Recorder] = []

    def factory() -> Recorder:
        accepted.append(Recorder())
        return accepted[-1]

    with world.network.on_host(B):
        await world.loop.create_server(factory, "0.0.0.0", port)
    with world.network.on_host(A):
        _, client = await world.loop.create_connection(Recorder, B, port)
    await asyncio.sleep(0.1)
    return client, accepted[0]


def test_stream_api_works_unmodified() -> None:
    async def main(world: SimWorld) -> bytes:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(100):
                writer.write(data)
                await writer.drain()
            writer.close()

        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"hello " * 1000)
        writer.write_eof()
        answer = await reader.read()
        writer.close()
        server.close()
        await server.wait_closed()
        return answer

    assert run_simulation(main, seed=3) == b"hello " * 1000


def test_bytes_arrive_in_order_however_they_are_split() -> None:
    async def main(world: SimWorld) -> tuple[bytes, int]:
        world.network.default_link = LinkSettings(delay_ms=(0, 50), chunk_bytes=(1, 40), whole=0.1, loss=0.1)
        client, server = await pair(world)
        sent = bytes(range(256)) * 8
        for start in range(0, len(sent), 100):
            client.transport.write(sent[start : start + 100])
        await asyncio.sleep(60)
        assert bytes(server.received) == sent
        return bytes(server.received), len(server.events)

    first = run_simulation(main, seed=5)
    assert first == run_simulation(main, seed=5)
    assert first[1] > 30
    assert first != run_simulation(main, seed=6)


def test_buffered_protocols_receive_into_their_buffer() -> None:
    async def main(world: SimWorld) -> bytes:
        protocols: list[BufferedRecorder] = []

        def factory() -> BufferedRecorder:
            protocols.append(BufferedRecorder())
            return protocols[-1]

        await world.loop.create_server(factory, "127.0.0.1", 5)
        transport, _ = await world.loop.create_connection(Recorder, "127.0.0.1", 5)
        transport.write(bytes(range(200)))
        await asyncio.sleep(10)
        return bytes(protocols[0].received)

    assert run_simulation(main, seed=1) == bytes(range(200))


def test_addresses_are_those_of_the_hosts() -> None:
    async def main(world: SimWorld) -> None:
        client, server = await pair(world)
        assert server.transport.get_extra_info("sockname") == (B, 9876)
        assert server.transport.get_extra_info("peername")[0] == A
        assert client.transport.get_extra_info("peername") == (B, 9876)

    run_simulation(main, seed=1)


def test_a_reader_that_pauses_makes_the_writer_pause_and_loses_nothing() -> None:
    async def main(world: SimWorld) -> None:
        client, server = await pair(world)
        server.transport.pause_reading()
        data = bytes(1_000_000)
        client.transport.write(data)
        await asyncio.sleep(10)
        assert client.events[-1] == "pause"
        assert client.transport.get_write_buffer_size() == len(data) - world.network.window
        assert len(server.received) == 0
        server.transport.resume_reading()
        await asyncio.sleep(10)
        assert client.events[-1] == "resume"
        assert len(server.received) == len(data)

    run_simulation(main, seed=1)


def test_close_delivers_what_was_written_then_the_end() -> None:
    async def main(world: SimWorld) -> None:
        client, server = await pair(world)
        client.transport.write(b"last words")
        client.transport.close()
        await asyncio.sleep(1)
        assert bytes(server.received) == b"last words"
        assert server.events[-1] == "eof"
        assert (client.lost, server.lost) == (None, None)

    run_simulation(main, seed=1)


def test_abort_resets_the_peer() -> None:
    async def main(world: SimWorld) -> None:
        client, server = await pair(world)
        client.transport.abort()
        await asyncio.sleep(1)
        assert client.lost is None
        assert isinstance(server.lost, ConnectionResetError)

    run_simulation(main, seed=1)


def test_partition_holds_bytes_and_heal_lets_them_go_on() -> None:
    async def main(world: SimWorld) -> None:
        client, server = await pair(world)
        world.network.partition(A, B)
        client.transport.write(b"during")
        await asyncio.sleep(30)
        assert not server.received
        with world.network.on_host(A), pytest.raises(TimeoutError):
            await asyncio.wait_for(world.loop.create_connection(Recorder, B, 9876), 3)
        world.network.heal(A, B)
        await asyncio.sleep(1)
        assert bytes(server.received) == b"during"

    run_simulation(main, seed=1)


def test_one_way_partition_lets_the_other_way_pass() -> None:
    async def main(world: SimWorld) -> None:
        client, server = await pair(world)
        world.network.partition(A, B, both_ways=False)
        client.transport.write(b"lost for now")
        server.transport.write(b"passes")
        await asyncio.sleep(1)
        assert (bytes(server.received), bytes(client.received)) == (b"", b"passes")

    run_simulation(main, seed=1)


def test_crashed_host_leaves_half_open_connections_until_it_answers_with_a_reset() -> None:
    async def main(world: SimWorld) -> None:
        client, server = await pair(world)
        world.network.crash_host(B)
        client.transport.write(b"anybody?")
        await asyncio.sleep(100)
        assert (client.lost, server.lost) == ("open", "open")
        world.network.restart_host(B)
        with world.network.on_host(A), pytest.raises(ConnectionRefusedError):
            await world.loop.create_connection(Recorder, B, 9876)
        client.transport.write(b"anybody now?")
        await asyncio.sleep(1)
        assert isinstance(client.lost, ConnectionResetError)

    run_simulation(main, seed=1)


def test_reset_breaks_both_ends() -> None:
    async def main(world: SimWorld) -> None:
        client, server = await pair(world)
        world.network.reset(A, B)
        await asyncio.sleep(1)
        assert isinstance(client.lost, ConnectionResetError)
        assert isinstance(server.lost, ConnectionResetError)
        assert world.network.connections(A) == []

    run_simulation(main, seed=1)


def test_ports_are_refused_when_nobody_listens_and_when_taken() -> None:
    async def main(world: SimWorld) -> None:
        with pytest.raises(ConnectionRefusedError):
            await world.loop.create_connection(Recorder, "127.0.0.1", 1)
        server = await world.loop.create_server(Recorder, "127.0.0.1", 1)
        with pytest.raises(OSError, match="bind"):
            await world.loop.create_server(Recorder, "127.0.0.1", 1)
        server.close()
        await server.wait_closed()
        await world.loop.create_server(Recorder, "127.0.0.1", 1)

    run_simulation(main, seed=1)


def test_little_bandwidth_makes_a_slow_reader() -> None:
    async def main(world: SimWorld) -> None:
        world.network.set_link(A, B, LinkSettings(chunk_bytes=(1, 2000), bytes_per_second=10_000))
        client, server = await pair(world)
        client.transport.write(bytes(50_000))
        await asyncio.sleep(1)
        assert 0 < len(server.received) < 15_000
        await asyncio.sleep(10)
        assert len(server.received) == 50_000

    run_simulation(main, seed=1)


def test_a_protocol_that_raises_loses_its_connection_and_is_reported() -> None:
    class Bad(Recorder):
        def data_received(self, data: bytes) -> None:
            raise ValueError("cannot parse")

    async def main(world: SimWorld) -> None:
        server_side = Bad()
        await world.loop.create_server(lambda: server_side, "127.0.0.1", 7)
        _, client = await world.loop.create_connection(Recorder, "127.0.0.1", 7)
        client.transport.write(b"x")
        await asyncio.sleep(1)
        assert isinstance(server_side.lost, ValueError)
        assert isinstance(client.lost, ConnectionResetError)

    with pytest.raises(ValueError, match="cannot parse"):
        run_simulation(main, seed=1)
