"""A gRPC server on a simulated network, which splits and delays what is sent, and in virtual time."""

import asyncio

import pytest

from maxq.protocol.http2.hpack_cy import encode_fields
from maxq.remoting.grpc.calls import Call, Unary
from maxq.remoting.grpc.server import GrpcServer
from maxq.testing.simulation import SimWorld, run_simulation
from tests.short_form import times
from tests.unit.remoting.grpc.http2_peer import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    SETTINGS,
    Frame,
    frame,
    prefixed,
    settings,
    window_update,
)


def called(stream: int, path: str, message: bytes, *more: tuple[str, str]) -> bytes:
    fields = [(":method", "POST"), (":scheme", "http"), (":path", path), ("content-type", "application/grpc"), *more]
    block = frame(HEADERS, END_HEADERS, stream, encode_fields(fields))
    body = prefixed(message)
    pieces = [body[at : at + 16384] for at in range(0, len(body), 16384)]
    ends = [END_STREAM if number == len(pieces) else 0 for number in range(1, len(pieces) + 1)]
    return block + b"".join(frame(DATA, end, stream, piece) for end, piece in zip(ends, pieces, strict=True))


@pytest.mark.parametrize("seed", range(times(4)))
def test_calls_deadlines_and_silence_on_a_simulated_network(seed: int) -> None:
    async def main(world: SimWorld) -> None:
        ended: list[str] = []

        def wait(call: Call, message: bytes) -> None:
            call.on_end = lambda: ended.append(call.path)

        server = GrpcServer({"/t/Echo": Unary(lambda call, message: call.answer(message)), "/t/Wait": Unary(wait)})
        port = await server.start("10.0.0.1", 0)
        reader, writer = await asyncio.open_connection("10.0.0.1", port)

        async def following() -> Frame:
            head = await reader.readexactly(9)
            payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
            return Frame(head[3], head[4], int.from_bytes(head[5:9], "big"), payload)

        writer.write(PREFACE + settings(window=1 << 20) + frame(SETTINGS, ACK, 0) + window_update(0, 1 << 20))
        messages = {1: b"a", 3: bytes(100_000), 5: b"", 7: b"d" * 16_384}
        for stream, message in messages.items():
            writer.write(called(stream, "/t/Echo", message))
        bodies = dict.fromkeys(messages, b"")
        left = set(messages)
        while left:
            one = await following()
            if one.kind == DATA:
                bodies[one.stream] += one.payload
            elif one.flags & END_STREAM and one.kind == HEADERS:
                left.discard(one.stream)
        assert bodies == {stream: prefixed(message) for stream, message in messages.items()}

        began = asyncio.get_running_loop().time()
        writer.write(called(9, "/t/Wait", b"", ("grpc-timeout", "2S")))
        while (one := await following()).kind != HEADERS:
            pass
        assert (one.stream, ended) == (9, ["/t/Wait"])
        assert 2 <= asyncio.get_running_loop().time() - began < 3

        writer.write(called(11, "/t/Wait", b""))
        while (one := await following()).kind != PING:
            pass
        writer.write(frame(PING, ACK, 0, one.payload) + frame(3, 0, 11, bytes(4)))
        while (one := await following()).kind != GOAWAY:
            pass
        assert asyncio.get_running_loop().time() - began > 120, "it was silent for two minutes"
        assert len(ended) == 2
        await server.stop(1)
        assert not server.connections

    run_simulation(main, seed=seed)
