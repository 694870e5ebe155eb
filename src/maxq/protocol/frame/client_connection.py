"""ClientConnection: the asking side of a connection, without I/O.

Requests become bytes to send, and bytes that were received become events:

    socket.sendall(b"".join(connection.request(command, waiter)))
    while (event := connection.next_event()) is None:
        connection.receive_data(socket.recv(65536))

An `AnswerHead` brings back the `waiter` that its request was given, whatever that is: a future, a place in a list.
Whoever owns the socket and a clock moves the bytes and watches the time: remoting/connection.py on an event loop,
which finds whole frames itself because it is a server's side as well, and pipeline/wire/connection.py blocking.

The head of an answer is an event of its own. Its body is taken with `take_body`, so that a large one can be received
where it is needed, and so that the next request can leave before the body has come.
"""

from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from maxq.errors import RemoteProtocolError, RemotingSendError
from maxq.protocol.frame.remoting_command import LONGEST_HEADER, ONEWAY_FLAG, RemotingCommand, decode_frame

#: Largest length of a body; a frame with a larger one is refused.
BODY_LIMIT: Final = 256 << 20

Waiter = TypeVar("Waiter")


class AnswerHead(NamedTuple):
    """The head of an arrived answer.

    Attributes:
        waiter: what the request was given; None: nobody waits for this answer.
        command: the answer, without its body.
        body_size: bytes of the body, which follow.
    """

    waiter: Any
    command: RemotingCommand
    body_size: int


class Asked(NamedTuple):
    """The head of a request of the server; the fields are those of `AnswerHead`."""

    command: RemotingCommand
    body_size: int


class ClientConnection(Generic[Waiter]):
    """The requests that wait for answers on one connection, and the frames that arrive on it.

    Attributes:
        requests: how many requests there ever were, without one-way ones.
        waiters: by the number (opaque) of their requests.
    """

    __slots__ = ("_body_left", "_limit", "_numbers", "_peer", "_received", "_sign", "requests", "waiters")

    def __init__(
        self,
        peer: str,
        *,
        limit: int | None = None,
        numbers: Callable[[], int] | None = None,
        sign: Callable[[RemotingCommand], None] | None = None,
    ) -> None:
        """
        Args:
            peer: the server's address, for errors.
            limit: so many requests may wait for answers; None: any number.
            numbers: gives each request its number (opaque); None: they count from 1.
            sign: changes each request before it is encoded.
        """
        self._peer = peer
        self._limit = limit
        self._numbers = numbers
        self._sign = sign
        self.waiters: dict[int, Waiter] = {}
        self.requests = 0
        self._received = bytearray()
        self._body_left = 0  # bytes of the body that belongs to the last event

    def __len__(self) -> int:
        """Return how many requests wait for answers."""
        return len(self.waiters)

    def is_at(self, peer: str) -> None:
        """Set the address of the server, which may not be known from the start."""
        self._peer = peer

    # --- sending ---

    def check_room(self) -> None:
        """Raise RemotingSendError if no further request may wait on this connection."""
        if self._limit is not None and len(self.waiters) >= self._limit:
            text = f"{len(self.waiters)} requests wait for answers of <{self._peer}>, which is the limit"
            raise RemotingSendError(text, address=self._peer, may_be_stored=False)

    def request(self, command: RemotingCommand, waiter: Waiter) -> list[bytes | memoryview]:
        """Number a request, note its waiter, and return its frame in pieces.

        Raises:
            RemotingSendError: too many requests wait.
            LocalProtocolError: it cannot be encoded. Nothing was noted then.
        """
        self.check_room()
        frame = self._encode(command)
        self.requests += 1
        self.waiters[command.opaque] = waiter
        return frame

    def oneway(self, command: RemotingCommand) -> list[bytes | memoryview]:
        """Number a request that is not answered, and return its frame in pieces. Raises LocalProtocolError."""
        command.flag |= ONEWAY_FLAG
        return self._encode(command)

    def _encode(self, command: RemotingCommand) -> list[bytes | memoryview]:
        command.opaque = self.requests + 1 & 0x7FFFFFFF if self._numbers is None else self._numbers()
        if self._sign is not None:
            self._sign(command)
        return command.buffers()

    # --- who waits ---

    def answered(self, command: RemotingCommand) -> Waiter | None:
        """Return the waiter of this answer and remove it from the table; None if no caller waits."""
        return self.waiters.pop(command.opaque, None)

    def forget(self, opaque: int) -> None:
        """Stop waiting for the answer to a request."""
        self.waiters.pop(opaque, None)

    def end(self) -> list[Waiter]:
        """Return all waiters and forget them, because no more answers come."""
        waiters = list(self.waiters.values())
        self.waiters.clear()
        return waiters

    # --- receiving ---

    def receive_data(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes that were received from the server."""
        self._received += data

    def next_event(self) -> AnswerHead | Asked | None:
        """Return the next head of a frame, or None if more data is needed for it. The rest of the body before it is
        dropped.

        Raises:
            RemoteProtocolError: what came is not a frame. The connection is of no more use.
        """
        received = self._received
        if self._body_left:
            dropped = min(len(received), self._body_left)
            del received[:dropped]
            self._body_left -= dropped
        if self._body_left or len(received) < 8:
            return None
        header_size = int.from_bytes(received[5:8], "big")
        body_size = int.from_bytes(received[:4], "big") - 4 - header_size
        if not 0 <= body_size <= BODY_LIMIT or header_size > LONGEST_HEADER:
            raise RemoteProtocolError(f"<{self._peer}> sent {bytes(received[:8])!r} where a frame begins")
        end = 8 + header_size
        if len(received) < end:
            return None
        command = decode_frame(bytes(received[4:end]), LONGEST_HEADER)
        del received[:end]
        self._body_left = body_size
        if not command.is_response:
            return Asked(command, body_size)
        return AnswerHead(self.answered(command), command, body_size)

    def take_body(self, view: memoryview) -> int:
        """Copy the received part of the last event's body into `view`, which has as many bytes as the body.

        Returns:
            How many bytes these are. The caller receives the others itself, straight into the rest of `view`, before
            it gives anything to `receive_data`.
        """
        count = min(len(self._received), self._body_left)
        view[:count] = memoryview(self._received)[:count]
        del self._received[:count]
        self._body_left = 0
        return count
