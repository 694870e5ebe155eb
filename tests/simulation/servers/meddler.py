"""A relay between clients and a broker in the simulated network, which does to sends and their answers what networks
and brokers do: it loses, delays, repeats, reorders, cuts and garbles them.

What brokers send to producers of themselves, checks of transactions and replies, is lost, late or repeated as well.

Frames are passed on as they are while `rate` is 0, and always those that are nothing of the hosts in `victims`.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

from maxq.codes import RequestCode, ResponseCode
from maxq.errors import RemoteProtocolError
from maxq.protocol.frame.remoting_command import RemotingCommand, decode_frame
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld

_SENDS: Final = frozenset(
    {
        RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.END_TRANSACTION, RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2,
    }
)  # fmt: skip
#: Requests that brokers send to producers on their own account.
_TOLD: Final = frozenset({RequestCode.CHECK_TRANSACTION_STATE, RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT})
_REFUSALS: Final = (
    ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.NO_PERMISSION, ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_BUYER_ID,
    ResponseCode.NOT_LEADER_FOR_QUEUE, ResponseCode.GO_AWAY, ResponseCode.MESSAGE_ILLEGAL,
)  # fmt: skip
_NOT_QUITE: Final = (
    ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE,
)  # fmt: skip


class _End(asyncio.Protocol):
    """One end of a relayed connection: towards the client, or towards the broker."""

    def __init__(self, on_frame: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._on_frame = on_frame
        self._on_end = on_end
        self._received = b""
        self._transport: asyncio.Transport | None = None
        self._held: list[bytes] | None = []  # bytes to send when the connection is made, or continues
        self.host = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.host = transport.get_extra_info("peername")[0]
        self.go_on()

    def connection_lost(self, error: Exception | None) -> None:
        self._on_end()

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            end = 4 + int.from_bytes(self._received[:4], "big")
            if len(self._received) < end:
                return
            frame, self._received = self._received[:end], self._received[end:]
            self._on_frame(frame)

    def write(self, data: bytes) -> None:
        if self._held is not None:
            self._held.append(data)
        elif self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def hold(self) -> None:
        """Send nothing more until `go_on`."""
        if self._held is None:
            self._held = []

    def go_on(self) -> None:
        held, self._held = self._held, None
        for data in held or ():
            self.write(data)

    def end(self) -> None:
        """Send what was written, then end."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class _Passage:
    """A connection of a client, and the one to the broker that goes with it."""

    def __init__(self, meddler: "Meddler") -> None:
        self._meddler = meddler
        self._sends: set[int] = set()  # the numbers (opaque) of requests
        self.near = _End(self._on_request, self.end)
        self._far = _End(self._on_answer, self.end)
        self._is_over = False
        self._connecting: asyncio.Task[None] | None = None

    def accept(self) -> asyncio.Protocol:
        self._connecting = asyncio.ensure_future(self._connect())
        return self.near

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: self._far, *self._meddler.target)
        except OSError:
            self.end()
        if self._is_over:
            self._far.abort()

    def end(self) -> None:
        """End both connections, because one of them has ended."""
        if not self._is_over:
            self._is_over = True
            self.near.end()
            self._far.end()

    def _cut(self) -> None:
        self._is_over = True
        self.near.abort()
        self._far.end()  # what was passed on arrives

    # -- requests --

    def _on_request(self, frame: bytes) -> None:
        meddler = self._meddler
        if meddler.rate and self.near.host in meddler.victims:
            command = decode_frame(memoryview(frame)[4:])
            if not command.is_response and command.code in _SENDS:
                self._sends.add(command.opaque)
                if meddler.rng.chance(meddler.rate):
                    self._meddle_with_request(frame, command)
                    return
        self._far.write(frame)

    def _meddle_with_request(self, frame: bytes, command: RemotingCommand) -> None:
        rng, what = self._meddler.rng, self._meddler.draw(4)
        if what == 0:
            self._meddler.marks["a request was lost"] += 1
        elif what == 1:
            self._meddler.marks["a request was late"] += 1
            asyncio.get_running_loop().call_later(rng.uniform(0.01, 5), self._far.write, frame)
        elif what == 2:
            self._meddler.marks["a connection was cut within a request"] += 1
            self._far.write(frame[: rng.below(len(frame) + 1)])
            self._cut()
        else:
            self._meddler.marks["a request was refused"] += 1
            self._sends.discard(command.opaque)
            self.near.write(command.reply(rng.choice(_REFUSALS), "as scripted").encode())

    # -- answers --

    def _on_answer(self, frame: bytes) -> None:
        meddler = self._meddler
        if meddler.rate and self.near.host in meddler.victims:
            try:
                command = decode_frame(memoryview(frame)[4:])
            except RemoteProtocolError:
                self.near.write(frame)
                return
            if command.is_response and command.opaque in self._sends:
                self._sends.discard(command.opaque)
                if meddler.rng.chance(meddler.rate):
                    self._meddle_with_answer(frame, command)
                    return
            elif not command.is_response and command.code in _TOLD and meddler.rng.chance(meddler.rate):
                self._meddle_with_told(frame, command)
                return
        self.near.write(frame)

    def _meddle_with_told(self, frame: bytes, command: RemotingCommand) -> None:
        marks, what = self._meddler.marks, self._meddler.draw(3)
        name = RequestCode(command.code).name
        if what == 0:
            marks[f"{name} was lost"] += 1
        else:
            marks[f"{name} was {('late', 'repeated')[what - 1]}"] += 1
            asyncio.get_running_loop().call_later(self._meddler.rng.uniform(0.01, 5), self.near.write, frame)
            if what == 2:
                self.near.write(frame)

    def _meddle_with_answer(self, frame: bytes, command: RemotingCommand) -> None:
        loop, rng, write = asyncio.get_running_loop(), self._meddler.rng, self.near.write
        marks, what = self._meddler.marks, self._meddler.draw(12)
        if what == 0:
            marks["an answer was lost"] += 1
        elif what == 1:
            marks["an answer was late"] += 1
            loop.call_later(rng.uniform(0.1, 6), write, frame)
        elif what == 2:
            marks["an answer came behind others"] += 1
            loop.call_later(rng.uniform(0.001, 0.05), write, frame)
        elif what == 3:
            marks["an answer came twice"] += 1
            write(frame)
            if rng.chance(0.5):
                write(frame)
            else:
                loop.call_later(rng.uniform(0.01, 3), write, frame)
        elif what == 4:
            marks["a connection was cut within an answer"] += 1
            self.near.write(frame[: rng.below(len(frame) + 1)])
            self._is_over = True
            self.near.end()
            self._far.end()
        elif what == 5:
            marks["an answer stopped half way"] += 1
            cut = rng.below(len(frame) + 1)
            write(frame[:cut])
            self.near.hold()
            write(frame[cut:])
            loop.call_later(rng.uniform(0.05, 4), self.near.go_on)
        elif what == 6:
            marks["an answer to nothing came"] += 1
            write(RemotingCommand(command.code, command.ext, opaque=command.opaque + 100_003, flag=1).encode())
            write(frame)
        elif what == 7:
            marks["an answer lacked a field"] += 1
            wrong = rng.choice(({"queueOffset": "nil"}, {"queueId": ""}, {"queueOffset": "-"}, {"queueId": "1.5"}))
            ext = {**command.ext, **wrong} if rng.chance(0.7) else {"msgId": "x"}
            write(RemotingCommand(command.code, ext, opaque=command.opaque, flag=1).encode())
        elif what == 8:
            marks["an answer was no frame"] += 1
            junk = rng.bytes(4 + rng.below(60))
            write(len(junk).to_bytes(4, "big") + junk)
        elif what == 9:
            marks["an answer was announced that is too large"] += 1
            write((rng.between(1 << 26, (1 << 32) - 1)).to_bytes(4, "big") + frame[4:])
        elif what == 10 and command.code == ResponseCode.SUCCESS:
            marks["an answer told of less than was asked for"] += 1
            write(RemotingCommand(rng.choice(_NOT_QUITE), command.ext, opaque=command.opaque, flag=1).encode())
        else:
            marks["a request of the broker came first"] += 1
            write(RemotingCommand(9_999, {"a": "b"}).encode())
            write(frame)


class Meddler:
    """Relays between `host` and a broker.

    Attributes:
        target: host and port of the broker.
        victims: hosts of clients whose sends are meddled with, …
        rate: … and how many of 1 their requests and answers.
        marks: what it has done, and how often.
    """

    def __init__(self, world: SimWorld, rng: SimRng, host: str, target: tuple[str, int], marks: Counter[str]) -> None:
        self._world = world
        self.rng = rng
        self.host = host
        self.target = target
        self.marks = marks
        self.victims: set[str] = set()
        self.rate = 0.0
        self._server: asyncio.AbstractServer | None = None

    async def start(self) -> None:
        """Listen at the port of the broker."""
        if self._server is None:
            with self._world.network.on_host(self.host):
                loop = asyncio.get_running_loop()
                self._server = await loop.create_server(lambda: _Passage(self).accept(), self.host, self.target[1])

    def refuse(self) -> None:
        """Listen no more: connections are refused until `start`."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def draw(self, ways: int) -> int:
        """Draw what to do."""
        return self.rng.below(ways)
