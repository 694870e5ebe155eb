"""PullStream: pulls of one queue, one after the other, for as long as nothing unusual happens.

A pull that asks from a task of its own costs a future, a timer, and two turns of the event loop before the next request
leaves. Here the answer asks for the next messages: while its arrival is worked off, so that what several queues ask for
leaves in one write, and with one timer that is set anew only when it goes off. The task that began it sleeps meanwhile
and decides about everything else.
"""

import asyncio
import struct
from collections.abc import Mapping
from typing import Final, Protocol

import orjson

from maxq.client.instance.pull_answers_cy import PullAnswerReader
from maxq.codes import CURRENT_VERSION, RequestCode
from maxq.errors import RemotingTimeoutError
from maxq.protocol.frame.remoting_command import RemotingCommand, SerializeType
from maxq.remoting.answer_paths import add_answer_path
from maxq.remoting.client import Connection, RemotingClient
from maxq.remoting.rpc_hooks import HookedRemotingClient
from maxq.runtime.interfaces import Clock

#: The fields of a pull that change from one to the next.
CHANGING: Final = ("queueOffset", "commitOffset", "sysFlag")

_PREFIX: Final = struct.Struct(">II")

#: Pieces of a JSON header: before the fields that change, between these and the request's number, and behind it.
JsonPieces = tuple[bytes, bytes, bytes]


class Pulls(Protocol):
    """The fields of a stream's pulls, and the receiver of the answers. An exception from its methods ends the
    stream."""

    @property
    def header(self) -> Mapping[str, str]:
        """Return the header of the next request, without what changes: one of a few objects, which stay as they are."""
        ...

    def next_fields(self) -> tuple[int, int, int]:
        """Return the values of `CHANGING` for the next request."""
        ...

    def take_found(
        self,
        next_begin_offset: int,
        min_offset: int,
        max_offset: int,
        suggested_id: int,
        records: memoryview,
        is_given: bool,
    ) -> bool | None:
        """Take the scanned answer to a pull that found something.

        Args:
            is_given: the memory of `records` is written by nobody any more.

        Returns:
            Whether to ask again; None: it was not taken, decode it.
        """
        ...

    def take(self, response: RemotingCommand) -> bool | None:
        """Take an answer. Returns whether to ask again; None: it was not taken, and ends the stream."""
        ...


class PullStream:
    """Requests on one connection, each sent when the one before was answered.

    Args:
        connection: to the broker at `address`.
        timeout_ms: for each answer.
    """

    def __init__(
        self,
        remoting: RemotingClient,
        connection: Connection,
        address: str,
        code: RequestCode,
        serialize_type: SerializeType,
        timeout_ms: int,
        clock: Clock,
        pulls: Pulls,
    ) -> None:
        self._remoting = remoting
        self._hooked = remoting if isinstance(remoting, HookedRemotingClient) else None
        self._connection = connection
        self._address = address
        self._code = code
        self._serialize_type = serialize_type
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._pulls = pulls
        self._ended: asyncio.Future[RemotingCommand | None] = asyncio.get_running_loop().create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._opaque: int | None = None
        self._request: RemotingCommand | None = None
        self._deadline_ms = 0  # monotonic
        self._arrivals = 0  # arrivals on the connection when the request was sent
        self._is_json = self._hooked is None and serialize_type is SerializeType.JSON
        self._encoded: list[tuple[Mapping[str, str], JsonPieces]] = []  # headers, with their pieces

    async def run(self) -> RemotingCommand | None:
        """Send a request, and those that follow from the answers. If the caller is cancelled, nothing more is taken.

        Returns:
            The answer that ended it; None if that was taken.

        Raises:
            RemotingTimeoutError: no answer came in time.
            RemotingSendError: the connection is closed, or breaks.
        """
        try:
            self._ask()
            self._timer = asyncio.get_running_loop().call_later(self._timeout_ms / 1000, self._look_at_time)
            return await self._ended
        finally:
            if self._timer is not None:
                self._timer.cancel()
            if self._opaque is not None:
                self._connection.forget(self._opaque)
            self._ended.cancel()

    def _ask(self) -> None:
        connection = self._connection
        changing = self._pulls.next_fields()
        self._deadline_ms = self._clock.monotonic_ms() + self._timeout_ms
        self._arrivals = connection.arrivals
        header = self._pulls.header
        if self._is_json and not connection.is_closed:
            opaque = self._opaque = self._remoting.next_opaque()
            connection.waiters[opaque] = self
            connection.send_requests(json_frame(self._pieces(header), changing, opaque), 1)
            return
        ext = {**header, **dict(zip(CHANGING, map(str, changing), strict=True))}
        request = self._request = RemotingCommand(self._code, ext, serialize_type=self._serialize_type)
        if self._hooked is not None:
            self._hooked.before(self._address, request)
        self._opaque = connection.request(request, self)

    def _pieces(self, header: Mapping[str, str]) -> JsonPieces:
        for known, pieces in self._encoded:
            if known is header:
                return pieces
        pieces = json_pieces(self._code, header)
        self._encoded.append((header, pieces))
        return pieces

    def found(
        self, next_begin_offset: int, min_offset: int, max_offset: int, suggested_id: int, records: memoryview
    ) -> bool:
        """Take the scanned answer to the last request. Returns False if it must be decoded."""
        if self._request is not None or self._ended.done() or self._opaque is None:
            return False  # hooks want to see the answer, or nobody wants it
        opaque = self._opaque
        try:
            is_given = records.obj is self._connection.given_buffer
            is_to_ask = self._pulls.take_found(
                next_begin_offset, min_offset, max_offset, suggested_id, records, is_given
            )
            if is_to_ask is None:
                return False
            self._connection.waiters.pop(opaque, None)
            self._go_on(is_to_ask)
        except Exception as error:  # an error must not end the connection, which other requests share
            self._connection.waiters.pop(opaque, None)
            self._fail(error)
        return True

    def __call__(self, response: RemotingCommand | None) -> None:
        """Take the answer to the last request; None: none comes, because the connection is closed."""
        request, self._request, self._opaque = self._request, None, None
        if self._ended.done():
            return
        try:
            if response is None:
                raise self._connection.broken()
            if self._hooked is not None and request is not None:
                self._hooked.after(self._address, request, response)
            is_to_ask = self._pulls.take(response)
            if is_to_ask is None:
                self._ended.set_result(response)
            else:
                self._go_on(is_to_ask)
        except Exception as error:
            self._fail(error)

    def _go_on(self, is_to_ask: bool) -> None:
        self._opaque = None
        if self._ended.done():
            return
        if is_to_ask and not self._connection.is_closed:
            self._ask()
        else:
            self._ended.set_result(None)

    def _fail(self, error: Exception) -> None:
        if not self._ended.done():
            self._ended.set_exception(error)

    def _look_at_time(self) -> None:
        left_ms = self._deadline_ms - self._clock.monotonic_ms()
        if left_ms > 0:
            self._timer = asyncio.get_running_loop().call_later(left_ms / 1000, self._look_at_time)
        elif not self._ended.done():
            address, timeout_ms = self._connection.remote_address, self._timeout_ms
            text = f"wait response on the channel <{address}> timeout, {timeout_ms}(ms)"
            self._ended.set_exception(RemotingTimeoutError(text, address=address, timeout_ms=timeout_ms))
            self._remoting.close_if_silent(self._connection, self._address, self._arrivals, timeout_ms)


def scan_answers(remoting: RemotingClient) -> None:
    """Let the answers to streams of this client be scanned where they arrive."""
    add_answer_path(remoting, "pulls", PullAnswerReader(PullStream).take)


def json_pieces(code: RequestCode, header: Mapping[str, str]) -> JsonPieces:
    """Return the JSON header of a pull request, encoded, cut where the fields stand that change from one request to the
    next (`CHANGING`)."""
    begin = b'{"code":%d,"extFields":{' % code
    behind = b"," + orjson.dumps(dict(header))[1:] + b',"flag":0,"language":"PYTHON","opaque":'
    return begin, behind, b',"serializeTypeCurrentRPC":"JSON","version":%d}' % CURRENT_VERSION


def json_frame(pieces: JsonPieces, changing: tuple[int, int, int], opaque: int) -> bytes:
    """Encode the frame of a pull."""
    begin, behind, end = pieces
    header = b'%b"queueOffset":"%d","commitOffset":"%d","sysFlag":"%d"%b%d%b' % (
        begin, *changing, behind, opaque, end,
    )  # fmt: skip
    return _PREFIX.pack(4 + len(header), len(header)) + header
