"""Answers to sends of the Python client: what the compiled reader takes, the general way reads in the same way."""

from itertools import count
from typing import Any

from maxq.client.client_config import ProducerConfig
from maxq.client.instance.topic_publish_info import TopicPublishInfo
from maxq.client.producer.fast_sends_cy import FastSends, SendAnswers, SendWindow
from maxq.client.producer.message_sender import MessageSender
from maxq.client.results.send_result import SendResult
from maxq.errors import RemoteProtocolError
from maxq.protocol.frame.remoting_command import RemotingCommand, SerializeType, decode_frame
from maxq.protocol.message.message import Message
from maxq.protocol.message.message_queue import MessageQueue

_QUEUE = MessageQueue("T", "b", 1)
_IN_FLIGHT = 8
_CONFIG = ProducerConfig(namesrv_addr="n:1", producer_group="P")
_ANY: Any = None
_HEADER = b'{"code":310,"extFields":{"g":"@time@","i":"@text@"},"opaque":2147483647}'


class _Peer:
    """A connection that goes nowhere, and all else that FastSends asks."""

    request_limit = 100
    arrivals = changes = 0

    def __init__(self) -> None:
        self.waiters: dict[int, Any] = {}
        self.legal_topics = {"T": "T"}
        self.preparer = self.remoting = self.routes = self.brokers = self.environment = self.ids = self.clock = self
        self.info = TopicPublishInfo([_QUEUE], first=0)
        self.next_opaque = count().__next__

    def known_publish_info(self, topic: str) -> TopicPublishInfo:
        return self.info

    def address(self, queue: MessageQueue) -> str:
        return "b:1"

    def header_with_marks(self, queue: MessageQueue) -> bytes:
        return _HEADER

    def open_connection(self, address: str) -> "_Peer":
        return self

    def send_requests(self, frames: bytes, count: int, body: bytes) -> None:
        pass

    def reserve(self, count: int) -> tuple[str, int]:
        return "I", 0

    def wall_ms(self) -> int:
        return 5

    monotonic_ms = wall_ms

    def call_later(self, seconds: float, call: object) -> None:
        pass


def _sends(peer: Any, results: dict[int, SendResult]) -> SendWindow:
    """Send messages with the numbers from 0 on, whose answers can come."""
    window = SendWindow(_IN_FLIGHT, 1 << 20, results.__setitem__, lambda: None)
    fast = FastSends(peer, peer, _CONFIG, peer, peer)
    assert fast.post_many([(n, Message("T", b"x")) for n in range(_IN_FLIGHT)], window, 3000) == _IN_FLIGHT
    return window


def send_answers(data: bytes) -> bool:
    """Give the bytes to messages on their way."""
    peer: Any = _Peer()
    results: dict[int, SendResult] = {}
    window = _sends(peer, results)
    buffer = bytearray(data)
    end = SendAnswers().take(peer, buffer, 0, len(buffer))
    assert 0 <= end <= len(data)
    assert window.in_flight == len(peer.waiters) == _IN_FLIGHT - len(results)
    taken, at = len(results), 0
    while at < end:
        behind = at + 4 + int.from_bytes(data[at : at + 4], "big")
        _check(data[at + 4 : behind], results)
        at = behind
    assert at == end
    peer.waiters.clear()  # who waits and what is waited for have each other
    vars(peer).clear()
    return taken > 0


def _check(payload: bytes, results: dict[int, SendResult]) -> None:
    """Compare one result with what the general way makes of the frame."""
    try:
        command = decode_frame(payload)
        found = results.pop(command.opaque)
        wanted = MessageSender.result(_ANY, found, _QUEUE, command, "b:1")
    except RemoteProtocolError:
        return  # the reader may be the more lenient one; it must never read another meaning
    assert command.is_response and found == wanted, (found, wanted)


def send_answer_seeds() -> list[bytes]:
    ext = {"msgId": "0A00", "queueId": "1", "queueOffset": "77", "transactionId": "t", "MSG_REGION": "r"}
    more = {**ext, "queueId": "2", "TRACE_ON": "false", "recallHandle": "h"}
    seeds = []
    for kind in SerializeType:
        for code, fields in ((0, ext), (10, more), (12, more)):
            seeds.append(RemotingCommand(code, fields, flag=1, opaque=code % 8, serialize_type=kind).encode())
    return [*seeds, b"".join(seeds[:3])]
