"""A client of one GrpcChannel, frame by frame and without a network."""

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import hpack

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, END_HEADERS, PADDED, PRIORITIZED = 1, 4, 8, 32
ACK = 1


@dataclass(frozen=True)
class Frame:
    kind: int
    flags: int
    stream: int
    payload: bytes

    @property
    def code(self) -> int:
        """The error code of RST_STREAM or GOAWAY."""
        return int.from_bytes(self.payload[-4:] if self.kind == RST_STREAM else self.payload[4:8], "big")


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def settings(**values: int) -> bytes:
    """SETTINGS; the names are window, frame_size, push."""
    numbers = {"push": 2, "window": 4, "frame_size": 5}
    return frame(
        SETTINGS, 0, 0, b"".join(numbers[name].to_bytes(2, "big") + values[name].to_bytes(4, "big") for name in values)
    )


def window_update(stream: int, size: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, size.to_bytes(4, "big"))


def reset(stream: int, code: int = 8) -> bytes:
    return frame(RST_STREAM, 0, stream, code.to_bytes(4, "big"))


def prefixed(message: bytes, compressed: int = 0) -> bytes:
    """A message of gRPC as it lies in DATA frames."""
    return bytes([compressed]) + len(message).to_bytes(4, "big") + message


def frames(data: bytes) -> list[Frame]:
    """Parse whole frames."""
    found = []
    while data:
        size = int.from_bytes(data[:3], "big")
        assert len(data) >= 9 + size
        found.append(Frame(data[3], data[4], int.from_bytes(data[5:9], "big"), data[9 : 9 + size]))
        data = data[9 + size :]
    return found


@dataclass
class Answer:
    """What a stream was answered with."""

    fields: dict[str, str]
    messages: list[bytes]
    trailers: dict[str, str]

    @property
    def status(self) -> tuple[int, str]:
        last = self.trailers or self.fields
        return int(last["grpc-status"]), last.get("grpc-message", "")


class FakeConnection:
    """Takes what a channel tells of its connection."""

    def __init__(self) -> None:
        self.attributes: dict[str, Any] = {}
        self.remote_address = "192.0.2.1:1"
        self.writes = 0
        self.wakes: list[float] = []
        self.kept_bytes = 0
        self.unread = 0

    def wrote(self) -> None:
        self.writes += 1

    def wake_at(self, deadline: float) -> None:
        self.wakes.append(deadline)

    def kept(self, size: int) -> None:
        self.kept_bytes = size

    def end_unread(self, unsent: int) -> None:
        self.unread = unsent


class Peer:
    """A client. Everything that the channel sends is read into `seen`."""

    def __init__(
        self, form: ModuleType, methods: dict[str, Any], *, message_limit: int = 1 << 20, **values: int
    ) -> None:
        self.connection = FakeConnection()
        self.channel = form.GrpcChannel(self.connection, methods, message_limit, 1 << 22)
        self.seen: list[Frame] = []
        self._left = b""
        self._encoder = hpack.Encoder()
        self._decoder = hpack.Decoder()
        self.send(PREFACE + settings(**values) + frame(SETTINGS, ACK, 0))

    def send(self, data: bytes) -> list[Frame]:
        """Send bytes, and return the frames that come back."""
        buffer = bytearray(self._left + data)
        used = self.channel.receive(buffer, 0, len(buffer))
        self._left = bytes(buffer[used:])
        return self.read()

    def read(self) -> list[Frame]:
        came = frames(self.channel.take_output())
        self.seen += came
        return came

    def block(self, *fields: tuple[str, str]) -> bytes:
        return self._encoder.encode(list(fields))

    def head(self, stream: int, path: str, *more: tuple[str, str], flags: int = END_HEADERS) -> bytes:
        """The HEADERS frame of a call."""
        fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x")]
        fields += [("content-type", "application/grpc"), ("te", "trailers"), *more]
        return frame(HEADERS, flags, stream, self.block(*fields))

    def call(self, stream: int, path: str, message: bytes, *more: tuple[str, str]) -> bytes:
        """A whole call of one message."""
        return self.head(stream, path, *more) + frame(DATA, END_STREAM, stream, prefixed(message))

    def answer(self, stream: int) -> Answer:
        """What came on a stream that has ended."""
        answer = Answer({}, [], {})
        body = b""
        own = [one for one in self.seen if one.stream == stream and one.kind in (HEADERS, DATA)]
        assert own, f"nothing came on stream {stream}"
        assert own[-1].flags & END_STREAM
        for one in own:
            if one.kind == DATA:
                body += one.payload
            elif not answer.fields:
                answer.fields = dict(self._decoder.decode(one.payload))
            else:
                answer.trailers = dict(self._decoder.decode(one.payload))
        while body:
            size = int.from_bytes(body[1:5], "big")
            answer.messages.append(body[5 : 5 + size])
            body = body[5 + size :]
        return answer
