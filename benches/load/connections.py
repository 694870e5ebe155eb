"""Connections of the generator: raw non-blocking sockets with a window of requests each.

A worker process drives many of them through one `select` (see worker.py). Nothing is allocated per message while
measuring, except what an open-loop rate and end-to-end times need.
"""

import socket
import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence

from benches.load.frames import OPAQUE_BASE, SendRing, code_and_opaque, encode
from benches.load.histogram import Histogram

_LENGTH = struct.Struct(">I")
_LONG = struct.Struct(">q")
_RECEIVE_BYTES = 1 << 18
SUCCESS = 0
PULL_FOUND, PULL_NOT_FOUND, PULL_RETRY_IMMEDIATELY, PULL_OFFSET_MOVED = 0, 19, 20, 21
_OFFSET_DIGITS = 18
_BORN_HOST_V6, _STORE_HOST_V6 = 1 << 4, 1 << 5


class Counts:
    """What one worker has seen while measuring."""

    def __init__(self) -> None:
        self.measuring = False
        self.sent = 0
        self.received = 0
        self.errors = 0
        self.last_error = ""
        self.send_latency = Histogram()
        self.end_to_end = Histogram()
        self.lateness = Histogram()  # open loop: how long after its due time a request left us


class Connection(ABC):
    """A socket that collects whole answer frames and sends what fits."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self._buffer = bytearray(2 * _RECEIVE_BYTES)
        self._filled = 0
        self._unsent = memoryview(b"")
        self.now_ns = 0  # when the worker last woke: the time of the answers it is reading

    def fileno(self) -> int:
        return self.socket.fileno()

    @property
    def wants_to_write(self) -> bool:
        return bool(self._unsent)

    def send(self, data: memoryview) -> None:
        """Send as much as the socket takes; the rest goes out in `on_writable`. Only when nothing is left over."""
        try:
            count = self.socket.send(data)
        except BlockingIOError:
            count = 0
        self._unsent = data[count:]

    def on_writable(self) -> None:
        self.send(self._unsent)

    def receive(self) -> None:
        """Read once and hand every whole answer to `on_answer(start, end)`.

        Raises:
            ConnectionError: the server closed the connection.
        """
        if len(self._buffer) - self._filled < _RECEIVE_BYTES:
            self._buffer.extend(bytes(len(self._buffer)))
        with memoryview(self._buffer) as view:
            count = self.socket.recv_into(view[self._filled : self._filled + _RECEIVE_BYTES])
        if not count:
            raise ConnectionError("the server closed the connection")
        self._filled += count
        start = 0
        while self._filled - start >= 4:
            end = start + 4 + _LENGTH.unpack_from(self._buffer, start)[0]
            if end > self._filled:
                break
            self.on_answer(start, end)
            start = end
        if start:
            self._buffer[: self._filled - start] = self._buffer[start : self._filled]
            self._filled -= start

    @abstractmethod
    def on_answer(self, start: int, end: int) -> None:
        """One whole answer stands in the buffer at [start, end)."""

    @abstractmethod
    def refill(self, now_ns: int) -> None:
        """Send what may be sent now."""


class Sender(Connection):
    """Keeps `inflight` sends outstanding, or sends one every `interval_ns` (and never more than `inflight` at once).

    In the open loop a request's latency counts from when it was due, so a server that stalls cannot hide it.
    """

    def __init__(
        self,
        address: tuple[str, int],
        ring: SendRing,
        *,
        inflight: int,
        interval_ns: int,
        batch: int,
        stamped: bool,
        counts: Counts,
    ) -> None:
        super().__init__(address)
        self._ring = ring
        self._inflight = inflight
        self._interval_ns = interval_ns
        self._batch = batch
        self._stamped = stamped
        self._counts = counts
        self._started_ns = [0] * ring.count
        self._next = 0
        self._passes = 0
        self._outstanding = 0
        self.due_ns = 0  # open loop: when the next request is due

    @property
    def may_send(self) -> bool:
        """Is there room for one more request?"""
        return self._outstanding < self._inflight and not self._unsent

    def on_answer(self, start: int, end: int) -> None:
        self._outstanding -= 1
        counts = self._counts
        if not counts.measuring:
            return
        code, opaque = code_and_opaque(self._buffer, start)
        if code == SUCCESS:
            counts.sent += self._batch
        else:
            counts.errors += 1
            counts.last_error = bytes(self._buffer[start + 8 : min(end, start + 300)]).decode(errors="replace")
        counts.send_latency.add(self.now_ns - self._started_ns[opaque - OPAQUE_BASE])

    def refill(self, now_ns: int) -> None:
        if self._unsent:
            return
        if self._interval_ns:
            self._send_due(now_ns)
            return
        count = min(self._inflight - self._outstanding, self._ring.count - self._next)
        if count <= 0:
            return
        first = self._take(count)
        self._started_ns[first : first + count] = [now_ns] * count
        if self._stamped:
            for number in range(first, first + count):
                self._ring.stamp(number, now_ns)
        self._send_frames(first, count)

    def _send_due(self, now_ns: int) -> None:
        while self.due_ns <= now_ns and self.may_send:
            number = self._take(1)
            self._started_ns[number] = self.due_ns
            if self._counts.measuring:
                self._counts.lateness.add(now_ns - self.due_ns)
            if self._stamped:
                self._ring.stamp(number, now_ns)
            self.due_ns += self._interval_ns
            self._send_frames(number, 1)

    def _take(self, count: int) -> int:
        first = self._next
        self._next += count
        self._outstanding += count
        if self._next == self._ring.count:
            self._next = 0
        if first == 0:
            self._passes += 1
            self._ring.start_pass(self._passes)
        return first

    def _send_frames(self, first: int, count: int) -> None:
        length = self._ring.frame_length
        self.send(self._ring.view[first * length : (first + count) * length])


class Puller(Connection):
    """Pulls its queues in turn, one request at a time.

    Without `tail` it starts at 0 and begins again at the end; with it, it long-polls from the end and takes the time
    from a message's body (its first 8 bytes) to now.
    """

    def __init__(
        self,
        address: tuple[str, int],
        *,
        topic: str,
        queues: Sequence[int],
        ends: Sequence[int],
        tail: bool,
        maximum: int,
        binary: bool,
        counts: Counts,
    ) -> None:
        super().__init__(address)
        self._tail = tail
        self._counts = counts
        self._queues = list(queues)
        self._offsets = [end if tail else 0 for end in ends]
        self._current = 0
        self._waiting = False
        self._empty_answers = 0
        self._frames = [_pull_frame(topic, queue, tail=tail, maximum=maximum, binary=binary) for queue in queues]

    def refill(self, now_ns: int) -> None:
        if self._waiting or self._unsent:
            return
        self._waiting = True
        frame, at = self._frames[self._current]
        frame[at : at + _OFFSET_DIGITS] = b"%018d" % self._offsets[self._current]
        self.send(memoryview(frame))

    def on_answer(self, start: int, end: int) -> None:
        self._waiting = False
        code, _ = code_and_opaque(self._buffer, start)
        if code in (PULL_FOUND, PULL_NOT_FOUND, PULL_RETRY_IMMEDIATELY, PULL_OFFSET_MOVED):
            self._offsets[self._current] = _next_begin_offset(self._buffer, start)
        else:
            self._counts.errors += 1
            self._counts.last_error = bytes(self._buffer[start + 8 : min(end, start + 300)]).decode(errors="replace")
        if code == PULL_FOUND:
            self._empty_answers = 0
            self._count_records(start, end)
        else:
            self._empty_answers += 1
            if not self._tail and self._empty_answers > len(self._queues):
                self._offsets = [0] * len(self._queues)
                self._empty_answers = 0
        self._current = (self._current + 1) % len(self._queues)

    def _count_records(self, start: int, end: int) -> None:
        buffer = self._buffer
        counts = self._counts
        position = start + 8 + (_LENGTH.unpack_from(buffer, start + 4)[0] & 0xFFFFFF)
        found = 0
        while position < end:
            size = _LENGTH.unpack_from(buffer, position)[0]
            if size <= 0:
                break
            found += 1
            if self._tail and counts.measuring:
                counts.end_to_end.add(self.now_ns - _body_stamp(buffer, position))
            position += size
        if counts.measuring:
            counts.received += found


def _pull_frame(topic: str, queue: int, *, tail: bool, maximum: int, binary: bool) -> tuple[bytearray, int]:
    """A pull request and the place of its queue offset: 18 digits with leading zeros, which parseLong takes."""
    digits = "9" * _OFFSET_DIGITS
    fields = {
        "consumerGroup": "bench_group",
        "topic": topic,
        "queueId": str(queue),
        "queueOffset": digits,
        "maxMsgNums": str(maximum),
        "sysFlag": "6" if tail else "4",  # subscription in the header, and may wait
        "commitOffset": "0",
        "suspendTimeoutMillis": "15000",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    frame = bytearray(encode(OPAQUE_BASE + queue, 11, fields, b"", binary=binary))
    return frame, frame.index(digits.encode())


def _next_begin_offset(buffer: bytearray, start: int) -> int:
    name = b"nextBeginOffset"
    at = buffer.index(name, start + 8) + len(name)
    if buffer[at] == 0x22:  # '":"' of a JSON header; otherwise a 4-byte length
        at += 3
        return int(buffer[at : buffer.index(b'"', at)])
    size = _LENGTH.unpack_from(buffer, at)[0]
    return int(buffer[at + 4 : at + 4 + size])


def _body_stamp(buffer: bytearray, record: int) -> int:
    """The i64 at the start of a record's body: after 72 bytes and the two hosts, whose lengths depend on flags."""
    flags = _LENGTH.unpack_from(buffer, record + 36)[0]
    hosts = (20 if flags & _BORN_HOST_V6 else 8) + (20 if flags & _STORE_HOST_V6 else 8)
    stamp: int = _LONG.unpack_from(buffer, record + 72 + hosts)[0]
    return stamp
