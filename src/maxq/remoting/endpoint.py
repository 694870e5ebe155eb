"""RemotingEndpoint: what server and client have in common. Both answer requests, and both watch their connections.

Source:
    remoting/netty/NettyRemotingAbstract.java.
"""

import asyncio
import errno
import logging
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from itertools import count
from typing import Final, Protocol

from maxq.codes import MQVersion, ResponseCode
from maxq.errors import LocalProtocolError, MaxQError
from maxq.protocol.frame.answer_limits import refusal_of_answer
from maxq.protocol.frame.remoting_command import FRAME_MAX_LENGTH, RESPONSE_FLAG, RemotingCommand
from maxq.remoting.batched_reads import BatchedReads
from maxq.remoting.connection import OWN_BUFFER_START, RECEIVE_BUFFER_SIZE, BatchPath, Connection, Processor
from maxq.remoting.unfinished_frames import UnfinishedFrames
from maxq.runtime.background import end_tasks
from maxq.runtime.holds import CLOSE, Holds
from maxq.runtime.interfaces import Clock

log: Final = logging.getLogger("maxq.remoting")

_LOOKS_PER_IDLE_TIME: Final = 12
_CLOSE_WAIT_SECONDS: Final = 1.0  # how long shutdown waits for peers to take what was sent to them
#: A peer that takes fewer of the bytes that wait for it, for as long as a silent connection may live, counts as not
#: reading.
LEAST_BYTES_A_SECOND: Final = 1024
_TURN_SECONDS: Final = 0.001  # longer than many plain requests take, shorter than what other connections notice

_DISK_IS_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

#: (connection, request) → why it is refused (answered SYSTEM_BUSY with this remark), or None.
Gate = Callable[[Connection, RemotingCommand], str | None]

#: (request, response, milliseconds from one to the other).
AnswerListener = Callable[[RemotingCommand, RemotingCommand, int], None]


#: (connection, request) → the answer that refuses it, or None. Asked before everything else, about every request.
Guard = Callable[[Connection, RemotingCommand], RemotingCommand | None]

#: (connection, request that the guard let through, its answer; None: its processor gave none to pass on).
OutcomeListener = Callable[[Connection, RemotingCommand, RemotingCommand | None], None]


class RequestAuthority(Protocol):
    """Decides what this process may promise, before and after a request is processed (broker/identity/authority.py)."""

    def before(self, request: RemotingCommand) -> RemotingCommand | None:
        """Return the answer that refuses a request, or None."""
        ...

    async def after(self, request: RemotingCommand, response: RemotingCommand) -> RemotingCommand:
        """Return the response to send; called when `response` was not available at once."""
        ...


class ConnectionListener(Protocol):
    """Called on events of connections. A connection that falls silent is closed after `on_idle`; `on_close` comes last,
    for every reason."""

    def on_connect(self, connection: Connection) -> None: ...

    def on_close(self, connection: Connection) -> None: ...

    def on_idle(self, connection: Connection) -> None: ...

    def on_exception(self, connection: Connection) -> None: ...


class RemotingEndpoint:
    """Common part of servers and clients: processors by request code, the connections, and the timer that closes idle
    ones."""

    def __init__(
        self,
        clock: Clock,
        *,
        idle_seconds: int,
        frame_limit: int,
        header_limit: int,
        unsent_limit: int,
        unfinished_limit: int,
        write_marks: tuple[int, int],
        request_limit: int,
    ) -> None:
        """See connection.Endpoint for the limits; all are in bytes except `request_limit`. `unfinished_limit` bounds
        the memory for unfinished frames of all connections; one frame is always accepted."""
        self._clock = clock
        self._one_closed = asyncio.Event()
        self.turn_seconds = _TURN_SECONDS
        self.receive_buffer = bytearray(RECEIVE_BUFFER_SIZE)
        self.receive_view = memoryview(self.receive_buffer)
        self.frame_limit = frame_limit
        self.answer_limit = max(frame_limit, FRAME_MAX_LENGTH)
        self.first_room = OWN_BUFFER_START
        self.make_room: Callable[[int], bytearray] = bytearray
        self.header_limit = header_limit
        self.unsent_limit = unsent_limit
        self.unfinished = UnfinishedFrames(max(unfinished_limit, frame_limit))
        self.write_marks = write_marks
        self.request_limit = request_limit
        self.batch_path: BatchPath | None = None
        self.holds = Holds(clock)
        self.batched_reads = BatchedReads(self.holds)
        self.gate: Gate | None = None
        self.guard: Guard | None = None
        # told once of the outcome of each request that is not on the batch path
        self.on_outcome: OutcomeListener | None = None
        self.authority: RequestAuthority | None = None
        self.on_answer: AnswerListener | None = None  # told of answers that processors give at once or by a coroutine
        self.connections: dict[Connection, None] = {}  # in the order in which they came
        self._processors: dict[int, Processor] = {}
        self._default: Processor | None = None
        self._listeners: list[ConnectionListener] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._cancelled_wait_s: float | None = None  # how long cancelled tasks may continue; None: without limit
        self._opaques = count()
        self._idle_seconds = idle_seconds
        self._idle_timer: asyncio.TimerHandle | None = None
        self._goes_away = False
        # whether a request is still answered while the server goes away
        self.answers_to_the_end: Callable[[RemotingCommand], bool] = lambda request: False
        # the first allowed request must come within one idle time, whatever else the connection sends
        self.must_be_known = False

    # --- set up ------------------------------------------------------------------------------------------------------

    def register(self, code: int, processor: Processor) -> None:
        """Answer requests with this code by `processor`."""
        self._processors[int(code)] = processor

    def processor(self, code: int) -> Processor:
        """Return the processor of a code, for a caller that wraps it. Raises KeyError if there is none."""
        return self._processors[int(code)]

    def codes(self) -> set[int]:
        """Return the request codes that have processors."""
        return set(self._processors)

    def register_default(self, processor: Processor) -> None:
        """Answer all requests that have no processor of their own by `processor`."""
        self._default = processor

    def add_listener(self, listener: ConnectionListener) -> None:
        """Tell `listener` of every connection that is made or ends after this call."""
        self._listeners.append(listener)

    def next_opaque(self) -> int:
        """Return the number for the next request of this side: an int32, from 0 on. Any thread may call this."""
        return next(self._opaques) & 0x7FFFFFFF

    # --- connections -------------------------------------------------------------------------------------------------

    def server_tls(self) -> ssl.SSLContext | None:
        return None

    def plain_allowed(self) -> bool:
        return True

    def trusts_balancer(self, address: str) -> bool:
        return False

    def connected(self, connection: Connection) -> None:
        self.connections[connection] = None
        connection.opened_ms = self._clock.monotonic_ms()
        if self._idle_timer is None:
            self._check_idle_later()
        for listener in self._listeners:
            listener.on_connect(connection)

    def closed(self, connection: Connection, error: Exception | None) -> None:
        self.connections.pop(connection, None)
        self._one_closed.set()
        lived_ms = self._clock.monotonic_ms() - connection.opened_ms
        log.debug("%s closed after %d ms: %s", connection.remote_address, lived_ms, connection.close_reason)
        began_ns = self.holds.now()
        for listener in self._listeners:
            if error is not None:
                listener.on_exception(connection)
            listener.on_close(connection)
        self.holds.ended(CLOSE, began_ns)

    def _check_idle_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._idle_timer = loop.call_later(self._idle_seconds / _LOOKS_PER_IDLE_TIME, self._check_idle)

    def _check_idle(self) -> None:
        """Check all connections. One that moved no byte between _LOOKS_PER_IDLE_TIME checks is idle, and is closed. One
        that has taken next to nothing of its waiting data for that long does not read, and is reset: closing alone
        would wait for it."""
        self._idle_timer = None
        least = max(1, LEAST_BYTES_A_SECOND * self._idle_seconds // _LOOKS_PER_IDLE_TIME)
        for connection in list(self.connections):
            if connection.stalls(least) >= (1 if connection.is_closed else _LOOKS_PER_IDLE_TIME):
                connection.abort(
                    f"read less than {LEAST_BYTES_A_SECOND} bytes a second of its answers for {self._idle_seconds} s"
                )
                connection.kill()
                continue
            if self.must_be_known and not connection.is_known and self._is_late(connection):
                connection.close(f"no request of it was let through within {self._idle_seconds} s")
                continue
            if connection.active:
                connection.active = False
                connection.idle_ticks = 0
                continue
            connection.idle_ticks += 1
            if connection.idle_ticks >= _LOOKS_PER_IDLE_TIME:
                for listener in self._listeners:
                    listener.on_idle(connection)
                connection.close(f"idle for {self._idle_seconds} s")
        self.looked()
        if self.connections:
            self._check_idle_later()

    def _is_late(self, connection: Connection) -> bool:
        return self._clock.monotonic_ms() - connection.opened_ms >= self._idle_seconds * 1000

    def looked(self) -> None:
        """Do other periodic work. Called after each check of idle connections."""

    async def close_all(self, reason: str) -> None:
        """Close every connection, end answers under way, and wait until all connections are closed."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        for connection in list(self.connections):
            connection.close(reason)
        await asyncio.sleep(0)  # lets the newest tasks begin: a task that has not begun cannot close its coroutine
        await end_tasks(set(self._tasks), "the answers under way", self._cancelled_wait_s)
        # A transport reports its end some turns of the loop later, once it has sent what it held.
        try:
            async with asyncio.timeout(_CLOSE_WAIT_SECONDS):
                await self._wait_until_closed()
        except TimeoutError:
            for connection in list(self.connections):
                connection.kill()
            await self._wait_until_closed()
        self.batched_reads.close()

    async def _wait_until_closed(self) -> None:
        while self.connections:
            self._one_closed.clear()
            await self._one_closed.wait()

    # --- requests ----------------------------------------------------------------------------------------------------

    def request_received(self, connection: Connection, command: RemotingCommand) -> None:
        """Answer one request: refuse it, or hand it to its processor."""
        if self.guard is not None and (refused := self.guard(connection, command)) is not None:
            self._reply(connection, command, refused)
            return
        connection.is_known = True
        code = command.code
        began_ms = 0 if self.on_answer is None else self._clock.monotonic_ms()
        processor = self._processors.get(code, self._default)
        if processor is None or code in connection.excluded_codes:
            text = f" request type {code} not supported"
            self._end(connection, command, command.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, text))
            return
        if self._goes_away and command.version > MQVersion.V5_3_1 and not self.answers_to_the_end(command):
            self._end(connection, command, command.reply(ResponseCode.GO_AWAY, "please go away"))
            return
        if self.gate is not None and (refusal := self.gate(connection, command)) is not None:
            self._end(connection, command, command.reply(ResponseCode.SYSTEM_BUSY, refusal))
            return
        if self.authority is not None and (refused := self.authority.before(command)) is not None:
            self._end(connection, command, refused)
            return
        try:
            result = processor(connection, command)
        except Exception as error:
            self._answer(connection, command, failure_reply(command, error), began_ms)
            return
        if isinstance(result, RemotingCommand):
            self._answer(connection, command, result, began_ms)
        elif result is None:
            self._end(connection, command, None)
        else:
            task = asyncio.ensure_future(self._reply_later(connection, command, result, began_ms))
            self._tasks.add(task)
            task.add_done_callback(partial(self._replied, result))

    def _replied(self, result: Awaitable[RemotingCommand | None], task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if isinstance(result, Coroutine):
            result.close()  # a task that is cancelled before its first step leaves its coroutine open

    async def _reply_later(
        self,
        connection: Connection,
        command: RemotingCommand,
        result: Awaitable[RemotingCommand | None],
        began_ms: int,
    ) -> None:
        try:
            response = await self.holds.watch(command.code, result)
            if response is not None and self.authority is not None:
                response = await self.authority.after(command, response)
        except Exception as error:
            response = failure_reply(command, error)
        except asyncio.CancelledError:
            if self.on_outcome is not None:
                interrupted = command.reply(ResponseCode.SYSTEM_ERROR, "the server was shut down meanwhile")
                self.on_outcome(connection, command, interrupted)
            raise
        if response is None:
            self._end(connection, command, None)
        else:
            self._answer(connection, command, response, began_ms)

    def _answer(
        self, connection: Connection, command: RemotingCommand, response: RemotingCommand, began_ms: int
    ) -> None:
        if self.on_answer is not None:
            self.on_answer(command, response, self._clock.monotonic_ms() - began_ms)
        self._end(connection, command, response)

    def _end(self, connection: Connection, command: RemotingCommand, response: RemotingCommand | None) -> None:
        """Tell listeners that an allowed request has ended, and send the answer."""
        if self.on_outcome is not None:
            self.on_outcome(connection, command, response)
        if response is not None:
            self._reply(connection, command, response)

    def _reply(self, connection: Connection, command: RemotingCommand, response: RemotingCommand) -> None:
        if command.is_oneway:
            return
        response.opaque = command.opaque
        response.flag |= RESPONSE_FLAG
        response.serialize_type = command.serialize_type
        try:
            frame = response.buffers()
        except LocalProtocolError as error:
            log.exception("the answer to request %d cannot be sent", command.code)
            connection.send(command.reply(ResponseCode.SYSTEM_ERROR, str(error)))
            return
        size = 4 + int.from_bytes(frame[0][:4], "big")
        if size > self.answer_limit:
            why = refusal_of_answer(command.code, size, self.answer_limit)
            log.warning("the answer to %s would be too large: %s", connection.remote_address, why)
            frame = command.reply(ResponseCode.SYSTEM_ERROR, why).buffers()
        connection.write(frame)


def failure_reply(command: RemotingCommand, error: Exception) -> RemotingCommand:
    """Make the answer to a request whose processing raised `error`, whether at once or after it was parked.

    A MaxQError names its response code. Anything else is SYSTEM_ERROR, and is logged with its traceback, unless the
    disk is full.
    """
    if isinstance(error, MaxQError):
        return command.reply(error.response_code, str(error))
    first_line = str(error).partition("\n")[0]
    text = f"{type(error).__name__}: {first_line}"
    if isinstance(error, OSError) and error.errno in _DISK_IS_FULL:
        text += "; free space on that disk, then ask again"
        log.error("request %d failed: %s", command.code, text)
    else:
        log.error("request %d failed", command.code, exc_info=error)
    return command.reply(ResponseCode.SYSTEM_ERROR, text)
