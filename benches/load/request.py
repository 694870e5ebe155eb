"""Single requests before and after the measurement: create the topic, ask for offsets, read the broker's settings."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from benches.load.frames import code_and_opaque, encode, ext_field

_TIMEOUT_SECONDS = 20
UPDATE_AND_CREATE_TOPIC, GET_BROKER_CONFIG, GET_MAX_OFFSET = 17, 26, 30


class RefusedError(Exception):
    """The broker answered with another code than success."""


@dataclass(frozen=True)
class Target:
    """A broker's address."""

    host: str
    port: int

    @classmethod
    def at(cls, address: str) -> Self:
        """The broker at `address`, host:port; ValueError if it is not of that form."""
        host, colon, port = address.rpartition(":")
        if not colon or not host or not port.isdecimal():
            raise ValueError(f"{address!r} is not host:port")
        return cls(host, int(port))

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port

    def call(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> bytes:
        """One request over a connection of its own; the whole answer frame.

        Raises:
            RefusedError: any code but 0. OSError: no connection, or no answer within 20 s.
        """
        with socket.create_connection(self.address, timeout=_TIMEOUT_SECONDS) as connection:
            connection.sendall(encode(1_000_000, code, fields, body, binary=False))
            with connection.makefile("rb") as stream:
                head = stream.read(4)
                frame = head + stream.read(int.from_bytes(head, "big"))
        if len(frame) < 8:
            raise OSError(f"{self.host}:{self.port} closed the connection without an answer to request {code}")
        answer, _ = code_and_opaque(bytearray(frame), 0)
        if answer:
            raise RefusedError(f"{self.host}:{self.port} answered request {code} with {answer}: {frame[8:400]!r}")
        return frame

    def create_topic(self, topic: str, queues: int) -> None:
        fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queues), "writeQueueNums": str(queues)}
        more = {"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
        self.call(UPDATE_AND_CREATE_TOPIC, fields | more)

    def max_offset(self, topic: str, queue: int) -> int:
        frame = self.call(GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue)})
        return int(ext_field(frame, "offset") or 0)

    def settings(self) -> dict[str, str]:
        """What GET_BROKER_CONFIG says: every property of the broker."""
        frame = self.call(GET_BROKER_CONFIG, {})
        header = int.from_bytes(frame[4:8], "big") & 0xFFFFFF
        lines = frame[8 + header :].decode(errors="replace").splitlines()
        pairs = (line.partition("=") for line in lines if "=" in line)
        return {name.strip(): value.strip() for name, _, value in pairs}
