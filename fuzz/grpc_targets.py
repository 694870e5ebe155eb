"""HTTP/2 and gRPC of a server: header blocks beside another decoder, and connections that get their bytes whole and in
pieces."""

from collections.abc import Callable
from typing import Any

import hpack
from tests.unit.proxy.producer.both_sends import World, compared
from tests.unit.remoting.grpc.http2_peer import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    PRIORITIZED,
    PRIORITY,
    SETTINGS,
    FakeConnection,
    frame,
    prefixed,
    reset,
    settings,
    window_update,
)

from maxq.protocol.grpc import messages as pb
from maxq.protocol.http2.hpack_cy import HpackDecoder
from maxq.proxy.producer import plain_sends_cy
from maxq.remoting.grpc.call_cy import Call, GrpcChannel, Streaming, Unary

_FIELDS = [(":method", "POST"), (":scheme", "http"), (":path", "/t/Echo"), (":authority", "127.0.0.1:8081")]
_MORE = [("content-type", "application/grpc"), ("te", "trailers"), ("x-mq-client-id", "a@1"), ("grpc-timeout", "3S")]


def header_blocks(data: bytes) -> None:
    """Blocks that another decoder reads, ours reads in the same way, also when it has read them before."""
    ours, other = HpackDecoder(4096, 1 << 20), hpack.Decoder(1 << 20)
    for _ in range(2):
        try:
            expected = other.decode(data, raw=True)
        except hpack.HPACKError:  # which it also says of a table that is made larger again, and that ours allows
            ours.decode(data)
            return
        got = [(field.name, field.value) for field in ours.decode(data).fields]
        assert got == [(bytes(name).decode("latin-1"), bytes(value).decode("latin-1")) for name, value in expected]


def header_block_seeds() -> list[bytes]:
    encoder = hpack.Encoder()
    first = encoder.encode([*_FIELDS, *_MORE])
    encoder.header_table_size = 100
    return [first, encoder.encode(_MORE), encoder.encode([*_FIELDS, *_MORE], huffman=False), encoder.encode(_FIELDS)]


class _Server:
    """One connection, and what it has said."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []
        self.got: list[bytes | None] = []
        methods = {
            "/t/Echo": Unary(lambda call, message: call.answer(message)),
            "/t/Wait": Unary(self._wait),
            "/t/Hold": Unary(lambda call, message: self.waiting.append(call)),
            "/t/Chat": Streaming(self._chat),
        }
        self.channel = GrpcChannel(FakeConnection(), methods, 1 << 20, 1 << 22)  # type: ignore[arg-type]
        self.said = b""

    def _wait(self, call: Call, message: bytes) -> None:
        for other in self.waiting:
            other.send(message)
        self.waiting.append(call)

    def _chat(self, call: Call) -> Callable[[bytes | None], None]:
        def received(message: bytes | None) -> None:
            self.got.append(message)
            if message is None:
                call.finish(5, "over")
            else:
                call.send(message)

        return received

    def receive(self, kept: bytes, data: bytes) -> bytes:
        """Work off `kept` and `data`; returns what is kept."""
        buffer = bytearray(kept + data)
        used = self.channel.receive(buffer, 0, len(buffer))
        while self.channel.is_resting:
            used = self.channel.receive(buffer, used, len(buffer))
        self.said += self.channel.take_output()
        return bytes(buffer[used:])


def connections(data: bytes) -> bool:
    """What a connection says does not depend on how its bytes arrive, and it holds nothing when it is gone."""
    whole, pieces = _Server(), _Server()
    whole.receive(b"", data)
    kept, position, size = pieces.receive(b"", b""), 0, 1
    while position < len(data):
        kept = pieces.receive(kept, data[position : position + size])
        position += size
        size = 1 + data[position % len(data)] % 61 if position >= 64 else 1
    assert pieces.said == whole.said
    assert pieces.got == whole.got
    assert pieces.channel.failure == whole.channel.failure
    is_fine = not whole.channel.failure
    for server in (whole, pieces):
        server.channel.lost()
        assert server.channel.streams == 0
        assert all(call.is_over for call in server.waiting)
        assert server.channel.connection.kept_bytes == 0  # type: ignore[attr-defined]
    return is_fine


def connection_seeds() -> list[bytes]:
    encoder = hpack.Encoder()

    def head(stream: int, path: str, *more: tuple[str, str], flags: int = END_HEADERS) -> bytes:
        fields = [*_FIELDS[:2], (":path", path), *_MORE[:2], *more]
        return frame(HEADERS, flags, stream, encoder.encode(fields))

    start = PREFACE + settings(window=65535) + frame(SETTINGS, ACK, 0)
    unary = start + head(1, "/t/Echo") + frame(DATA, END_STREAM, 1, prefixed(b"hello"))
    unary += head(3, "/t/Echo") + frame(DATA, END_STREAM, 3, prefixed(b"hello"))
    encoder = hpack.Encoder()
    streams = start + head(1, "/t/Chat", ("grpc-encoding", "gzip")) + frame(DATA, 0, 1, prefixed(b"a") + prefixed(b"b"))
    streams += frame(DATA, PADDED, 1, b"\2" + prefixed(b"cd")[:5] + b"\0\0") + frame(DATA, 0, 1, b"cd") + reset(1)
    streams += head(3, "/t/Chat") + frame(DATA, END_STREAM, 3, prefixed(b"z")) + frame(PING, 0, 0, b"12345678")
    encoder = hpack.Encoder()
    windows = PREFACE + settings(window=3) + head(1, "/t/Wait") + frame(DATA, END_STREAM, 1, prefixed(b"w"))
    windows += head(3, "/t/Wait") + frame(DATA, END_STREAM, 3, prefixed(b"more")) + window_update(1, 4)
    windows += window_update(0, 100) + settings(window=1) + settings(window=200, frame_size=20000)
    encoder = hpack.Encoder()
    block = encoder.encode([*_FIELDS, *_MORE])
    parts = start + frame(HEADERS, 0, 1, block[:9]) + frame(CONTINUATION, 0, 1, block[9:20])
    parts += frame(CONTINUATION, END_HEADERS, 1, block[20:]) + frame(DATA, END_STREAM, 1, prefixed(b"x"))
    parts += frame(PRIORITY, 0, 1, b"\0\0\0\3\5") + frame(HEADERS, END_HEADERS | PADDED | PRIORITIZED | END_STREAM, 3,
        b"\4\0\0\0\1\7" + encoder.encode([*_FIELDS, *_MORE]) + bytes(4))  # fmt: skip
    return [unary, streams, windows, parts]


# --- sends ------------------------------------------------------------------------------------------------------------


def plain_grpc_sends(data: bytes) -> bool:
    """What the compiled way of sends takes, the general way sends in the same form."""
    return compared(World(plain_sends_cy), data)  # type: ignore[arg-type]


def plain_grpc_send_seeds() -> list[bytes]:
    system = pb.SystemProperties(
        tag="green", keys=["k1"], message_id="01AB", message_type=1, body_encoding=1, born_host="h",
        born_timestamp=pb.Timestamp(seconds=1_700_000_000, nanos=5_000_000),
        body_digest=pb.Digest(type=pb.DigestType.CRC32, checksum="AB"),
    )  # fmt: skip
    one = pb.Message(
        topic=pb.Resource(name="orders"), body=b"body", system_properties=system, user_properties={"c": "d"}
    )
    return [pb.SendMessageRequest(messages=[one]).SerializeToString()]


# --- time -------------------------------------------------------------------------------------------------------------

_BLOCK = hpack.Encoder().encode([*_FIELDS[:2], (":path", "/t/Hold"), *_MORE[:2]])
_AGAIN = b"\x83\x86\xc0\xbf\xbe"  # the same, when it has been read


def arrival(data: bytes) -> None:
    """One arrival at a connection that has many calls open, all of whose answers wait for windows."""
    server = _Server()
    start = PREFACE + settings(window=1) + frame(HEADERS, END_HEADERS, 1, _BLOCK)
    start += b"".join(frame(HEADERS, END_HEADERS, stream, _AGAIN) for stream in range(3, 401, 2))
    start += b"".join(frame(DATA, END_STREAM, stream, prefixed(b"")) for stream in range(1, 401, 2))
    kept = server.receive(b"", start)
    for call in server.waiting:
        call.answer(bytes(100))
    server.receive(kept, data)


def _calls(size: int) -> bytes:
    """As many calls as there is room for."""
    one = len(frame(HEADERS, END_HEADERS, 1, _AGAIN)) + len(frame(DATA, END_STREAM, 1, prefixed(b"")))
    return b"".join(
        frame(HEADERS, END_HEADERS, stream, _AGAIN) + frame(DATA, END_STREAM, stream, prefixed(b""))
        for stream in range(401, 401 + 2 * max(1, size // one), 2)
    )


def _block(piece: bytes, start: bytes = b"") -> Callable[[int], bytes]:
    """A header block of equal pieces, with as many continuations as it needs."""

    def make(size: int) -> bytes:
        block = start + piece * max(1, (size - 100) // len(piece))
        parts = [block[at : at + 16384] for at in range(0, len(block), 16384)]
        out = frame(HEADERS, END_HEADERS if len(parts) == 1 else 0, 401, parts[0])
        for number, part in enumerate(parts[1:], 2):
            out += frame(CONTINUATION, END_HEADERS if number == len(parts) else 0, 401, part)
        return out

    return make


def arrival_shapes() -> dict[str, Callable[[int], bytes]]:
    """Arrivals of about so many bytes, of the shapes that cost most."""

    def repeated(piece: bytes) -> Callable[[int], bytes]:
        return lambda size: piece * max(1, size // len(piece))

    return {
        "calls": _calls,
        "pings": repeated(frame(PING, 0, 0, bytes(8))),
        "settings": repeated(frame(SETTINGS, 0, 0)),
        "settings that change windows": repeated(settings(window=2) + settings(window=1)),
        "settings of many values": repeated(frame(SETTINGS, 0, 0, b"\0\4\0\0\0\1" * 2730)),
        "windows of the connection": repeated(window_update(0, 1)),
        "windows of a stream": repeated(window_update(399, 1)),
        "empty frames": repeated(frame(DATA, 0, 1)),
        "unknown frames": repeated(frame(99, 0, 0)),
        "resets of what is gone": repeated(reset(1)),
        "continuations": lambda size: frame(HEADERS, 0, 401) + repeated(frame(CONTINUATION, 0, 401))(size),
        "indexed fields": _block(b"\x83"),
        "fields that enter the table": _block(b"\x40\x01x\x01y"),
        "fields that fill the table": _block(b"\x40\x01x\x7f\x81\x1e" + b"y" * 3968),
        "fields in Huffman's code": _block(b"\x00\x81\xf3\x84" + b"\0" * 4),
        "changes of the table": _block(b"\x20\x3f\xe1\x1f"),
        "long numbers": _block(b"\x7f\x80\x80\x80\x00"),
        "one long value": lambda size: _block(b"y", b"\0\1x\x7f" + _number(max(0, size - 110 - 127)))(size),
    }


def _number(value: int) -> bytes:
    """A number behind its first byte, in the form of header blocks."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
