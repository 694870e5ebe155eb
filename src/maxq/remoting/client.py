"""RemotingClient: connections to brokers and name servers, made when needed.

One connection an address. A request goes out on it as soon as it is open; whoever asks for the same address meanwhile
waits for the same attempt. A connection that breaks is made anew by the next request. A server that answers GO_AWAY
gets no more requests on that connection: the request is sent once more on a new one.

The name server is one of a list, drawn at random and asked first as long as it answers. When it fails, refuses or is
silent for a moment, the next one is asked as well; who answers first is asked first from then on.

Source:
    remoting/netty/NettyRemotingClient.java.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from typing import Final

from maxq.codes import ResponseCode
from maxq.config.netty_client_config import NettyClientConfig
from maxq.errors import (
    LocalProtocolError,
    RemotingConnectError,
    RemotingError,
    RemotingSendError,
    RemotingTimeoutError,
    UntrustedServerError,
)
from maxq.protocol.frame.remoting_command import LONGEST_HEADER, RemotingCommand
from maxq.remoting.connection import Connection, Processor
from maxq.remoting.endpoint import ConnectionListener, RemotingEndpoint
from maxq.remoting.first_answers import SILENT_SECONDS
from maxq.remoting.tls.contexts import ClientTls
from maxq.remoting.tls.tls_channel import TlsChannel
from maxq.runtime.background import CANCELLED_WAIT_S
from maxq.runtime.interfaces import Clock, Rng
from maxq.runtime.reused_memory import ReusedMemory

__all__ = ["Connection", "ConnectionListener", "Processor", "RemotingClient"]

log: Final = logging.getLogger("maxq.remoting")

_WRITE_MARKS: Final = (4 * 1024 * 1024, 1024 * 1024)
_UNSENT_LIMIT: Final = 256 * 1024 * 1024  # above it the server does not read: requests fail rather than fill memory
_FIRST_ROOM: Final = 4 << 20  # bytes; a client has few connections, all to servers of its choice
_KEPT_ROOM: Final = 32 << 20  # bytes that large answers have used, and others will
# bytes; practically no limit, because this process has chosen the servers and what it asks them
_UNFINISHED_LIMIT: Final = 1 << 40


class RemotingClient(RemotingEndpoint):
    """Connects to servers and sends requests; see the module's text. Use `register` to add a processor for the requests
    that brokers send to clients.

    Attributes:
        changes_requests: something is added to each request before it is sent.
        on_lost: told the address of a server whose connection is closed, unless it was `close_connection` that did it.
    """

    changes_requests = False

    def __init__(self, config: NettyClientConfig, *, clock: Clock, rng: Rng, tls: ClientTls | None = None) -> None:
        """`tls`: encrypts all connections; None means that none is encrypted."""
        super().__init__(
            clock,
            idle_seconds=config.client_channel_max_idle_time_seconds,
            frame_limit=config.frame_max_length,
            header_limit=LONGEST_HEADER,
            unsent_limit=_UNSENT_LIMIT,
            unfinished_limit=_UNFINISHED_LIMIT,
            write_marks=_WRITE_MARKS,
            request_limit=config.client_async_semaphore_value,
        )
        # limits how long handlers may run, because answers to brokers call the application's listeners
        self._cancelled_wait_s = CANCELLED_WAIT_S
        self.first_room = _FIRST_ROOM
        self.make_room = ReusedMemory(_KEPT_ROOM).take
        self._config = config
        self._rng = rng
        self._tls = tls
        self._by_address: dict[str, Connection] = {}
        self._connecting: dict[str, asyncio.Task[Connection]] = {}
        self._given_up: dict[str, str] = {}  # address → why its connection attempt ends now
        self._name_servers: list[str] = []
        self._name_server_index = 0
        self._is_closed = False
        self.on_lost: Callable[[str], None] = lambda address: None

    # --- requests ----------------------------------------------------------------------------------------------------

    async def invoke(self, address: str, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        """Send a request to `host:port` and wait for the response, with any code.

        Raises:
            RemotingConnectError: no connection within the time (or connectTimeoutMillis).
            RemotingSendError: the connection broke, or the server went away twice.
            RemotingTimeoutError: no response within `timeout_ms`, connecting included.
        """
        deadline = self._clock.monotonic_ms() + timeout_ms
        connection = await self._connection(address, timeout_ms)
        response = await self._invoke_on(connection, address, command, deadline, timeout_ms)
        if response.code != ResponseCode.GO_AWAY:
            return response
        self.forget(address, connection)
        if self._config.enable_reconnect_for_go_away:
            log.info("%s is shutting down, connecting again", address)
            again = await self._connection(address, max(1, deadline - self._clock.monotonic_ms()))
            response = await self._invoke_on(again, address, command, deadline, timeout_ms)
            if response.code != ResponseCode.GO_AWAY:
                return response
            self.forget(address, again)
        text = f"send request to <{address}> failed: it goes away"
        raise RemotingSendError(text, address=address, may_be_stored=False)

    async def connect(self, address: str, timeout_ms: int) -> Connection:
        """Return the connection to `host:port`, and make it if there is none. It is for callers that send many requests
        on it.

        Raises:
            RemotingConnectError: no connection within the time (or connectTimeoutMillis).
        """
        return await self._connection(address, timeout_ms)

    async def invoke_oneway(self, address: str, command: RemotingCommand, timeout_ms: int = 3000) -> None:
        """Send a request that is not answered. Raises RemotingConnectError after `timeout_ms` without connection."""
        connection = await self._connection(address, timeout_ms)
        connection.send_oneway(command)

    def send_oneway(self, connection: Connection, command: RemotingCommand) -> None:
        """Send a request that is not answered on a connection of this client, such as one that a request came on."""
        connection.send_oneway(command)

    async def _invoke_on(
        self, connection: Connection, address: str, command: RemotingCommand, deadline: int, timeout_ms: int
    ) -> RemotingCommand:
        left_ms = deadline - self._clock.monotonic_ms()
        if left_ms <= 0:
            text = f"invoke <{address}> timeout, {timeout_ms}(ms) went by before the request was sent"
            raise RemotingTimeoutError(text, address=address, timeout_ms=timeout_ms)
        arrivals = connection.arrivals
        try:
            return await connection.invoke(command, left_ms)
        except RemotingTimeoutError:
            self.close_if_silent(connection, address, arrivals, left_ms)
            raise

    def close_if_silent(self, connection: Connection, address: str, arrivals: int, waited_ms: int) -> None:
        """Close a connection after a request that was not answered within `waited_ms`, if nothing has arrived on it
        since there were `arrivals`. Java closes it in any case; but only a silent connection may be half open, and a
        late answer does no harm."""
        if self._config.client_close_socket_if_timeout and connection.arrivals == arrivals:
            log.warning("%s did not answer within %d ms and was silent; closed", address, waited_ms)
            connection.abort("silent until the timeout of a request")

    # --- connections -------------------------------------------------------------------------------------------------

    async def _connection(self, address: str, timeout_ms: int) -> Connection:
        connection = self._by_address.get(address)
        if connection is not None and not connection.is_closed:
            return connection
        if self._is_closed:
            raise RemotingConnectError("the remoting client is closed", address=address)
        attempt = self._connecting.get(address)
        if attempt is None:
            attempt = self._connecting[address] = asyncio.ensure_future(self._connect(address))
            attempt.add_done_callback(lambda task: self._connected_or_failed(address, task))
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await asyncio.shield(attempt)
        except TimeoutError:
            text = f"connect to <{address}> failed: no connection within {timeout_ms} ms"
            raise RemotingConnectError(text, address=address) from None
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if not attempt.cancelled() or (caller is not None and caller.cancelling()):
                raise
            # the attempt was cancelled, before its first step or by `close`, and not whoever waits for it
            reason = self._given_up.get(address, "the client is closed")
            raise RemotingConnectError(f"connect to <{address}> failed: {reason}", address=address) from None

    def _connected_or_failed(self, address: str, attempt: "asyncio.Task[Connection]") -> None:
        self._connecting.pop(address, None)
        if attempt.cancelled() or attempt.exception() is not None:
            return
        connection = attempt.result()
        if self._is_closed:
            connection.close("the client is closed")
        else:
            self._by_address[address] = connection

    async def _connect(self, address: str) -> Connection:
        host, port = split_address(address)
        limit_ms = self._config.connect_timeout_millis
        connection: Connection | None = None
        self._given_up.pop(address, None)
        try:
            async with asyncio.timeout(limit_ms / 1000):
                connection = await self._open(host, port)
                if connection.ready is not None:
                    await connection.ready
        except TimeoutError:
            if connection is not None:
                connection.abort("no TLS handshake in time")
            text = f"connect to <{address}> failed: no connection within {limit_ms} ms (connectTimeoutMillis)"
            raise RemotingConnectError(text, address=address) from None
        except asyncio.CancelledError:
            reason = self._given_up.pop(address, None)
            if reason is None:
                raise
            if connection is not None:
                connection.abort(reason)
            raise RemotingConnectError(f"connect to <{address}> failed: {reason}", address=address) from None
        except UntrustedServerError as error:
            raise UntrustedServerError(f"connect to <{address}> failed: {error}", address=address) from None
        except (OSError, UnicodeError, RemotingSendError) as error:
            raise RemotingConnectError(
                f"connect to <{address}> failed: {_reason(error)}",
                address=address,
                is_refused=isinstance(error, ConnectionRefusedError),
            ) from None
        return connection

    async def _open(self, host: str, port: int) -> Connection:
        loop = asyncio.get_running_loop()
        made: list[Connection] = []

        def make() -> Connection:
            made.append(self._make_connection(host))
            return made[-1]

        try:
            _, connection = await loop.create_connection(make, host, port)
        except BaseException:
            for connection in made:  # uvloop does not report the end of a connection that it gives up
                if connection.ready is not None:
                    connection.ready.cancel()  # nobody waits for the handshake any more
                connection.abort("given up when it had just been made")
                loop.call_soon(self._forget_given_up, connection)
            raise
        return connection

    def _forget_given_up(self, connection: Connection) -> None:
        if connection in self.connections:
            connection.connection_lost(None)

    def _make_connection(self, host: str) -> Connection:
        if self._tls is None:
            return Connection(self, detect=False)
        tls = TlsChannel(self._tls.context(), server_side=False, server_name=host)
        connection = Connection(self, detect=False, tls=tls)
        connection.ready = asyncio.get_running_loop().create_future()
        return connection

    def forget(self, address: str, connection: Connection) -> None:
        """Send no more requests on this connection. It stays open until its answers have arrived and it has been
        idle."""
        if self._by_address.get(address) is connection:
            del self._by_address[address]

    def closed(self, connection: Connection, error: Exception | None) -> None:
        lost = [address for address, held in self._by_address.items() if held is connection]
        for address in lost:
            del self._by_address[address]
        super().closed(connection, error)
        for address in lost:
            self.on_lost(address)

    def open_connection(self, address: str) -> Connection | None:
        """Return the connection to a server if it is open."""
        connection = self._by_address.get(address)
        return None if connection is None or connection.is_closed else connection

    def open_connections(self) -> list[tuple[str, Connection]]:
        """Return address and connection of every server to which a connection is open."""
        return list(self._by_address.items())

    def open_attempts(self) -> list[str]:
        """Return the address of every server to which a connection is being made."""
        return list(self._connecting)

    def give_up_attempt(self, address: str, reason: str) -> None:
        """End the attempt to connect to `address`, if there is one. Its waiters get a RemotingConnectError."""
        attempt = self._connecting.get(address)
        if attempt is not None and not attempt.done():
            self._given_up[address] = reason
            attempt.cancel()

    def close_connection(self, address: str, reason: str = "closed by us") -> None:
        """Close the connection to `address` if there is one."""
        connection = self._by_address.pop(address, None)
        if connection is not None:
            connection.close(reason)

    async def close(self) -> None:
        """Close everything; requests that wait fail with RemotingSendError."""
        self._is_closed = True
        attempts = list(self._connecting.values())
        for attempt in attempts:
            attempt.cancel()
        if attempts:
            await asyncio.gather(*attempts, return_exceptions=True)
        await self.close_all("the client is closed")

    # --- name servers ------------------------------------------------------------------------------------------------

    @property
    def name_servers(self) -> list[str]:
        """Return the addresses of the name servers, in the order in which they are tried."""
        return list(self._name_servers)

    def update_name_servers(self, addresses: Sequence[str]) -> None:
        """Use these name servers (`host:port`). The one in use is kept if it is still listed."""
        if sorted(set(addresses)) == sorted(self._name_servers):
            return
        in_use = self._current_name_server()
        shuffled = sorted(set(addresses))
        for i in range(len(shuffled) - 1, 0, -1):
            j = self._rng.below(i + 1)
            shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
        self._name_servers = shuffled
        self._name_server_index = 0
        if in_use in shuffled:
            self._name_server_index = shuffled.index(in_use)
        elif in_use is not None:
            self.close_connection(in_use, "no longer a name server of ours")

    def _current_name_server(self) -> str | None:
        return self._name_servers[self._name_server_index] if self._name_servers else None

    async def invoke_name_server(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        """Ask the name servers, one after the other, until one answers SUCCESS.

        The next one is asked when one fails or answers something else, and also when it has been silent for a quarter
        of a second: its answer still counts if it comes first. The request must be one that may be answered twice.

        Returns:
            The first answer with SUCCESS; otherwise the first that is not SYSTEM_ERROR; otherwise the first answer.

        Raises:
            RemotingConnectError: no name server is known, or none can be reached.
            RemotingTimeoutError: those that were reached did not answer in time.
        """
        deadline = self._clock.monotonic_ms() + timeout_ms
        at = self._name_server_index
        left = [*self._name_servers[at:], *self._name_servers[:at]]
        if len(left) == 1:
            try:
                return await self.invoke(left[0], command, timeout_ms)
            except RemotingError as error:
                raise self._unanswered(error) from None
        failure: RemotingError = RemotingConnectError("no name server address is set", address="")
        answers: list[RemotingCommand] = []
        asked: dict[asyncio.Task[RemotingCommand], tuple[str, int]] = {}  # address, and since when, ms
        try:
            while left or asked:
                now = self._clock.monotonic_ms()
                if left:
                    address = left.pop(0)
                    asked[asyncio.create_task(self.invoke(address, command, max(1, deadline - now)))] = address, now
                patience = None  # no timeout: each request has its own deadline
                if left or answers:
                    patience = max(0.0, SILENT_SECONDS - (now - max(since for _, since in asked.values())) / 1000)
                done, _ = await asyncio.wait(asked, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                if not done and not left:
                    break
                for task in done:
                    address, _ = asked.pop(task)
                    try:
                        answer = task.result()
                    except RemotingError as error:
                        failure = error
                        continue
                    if answer.code == ResponseCode.SUCCESS:
                        self._prefer(address)
                        return answer
                    answers.append(answer)
        finally:
            for task in asked:
                if not task.cancel() and not task.cancelled():
                    # marks the exception as retrieved: the task ended in the same turn as the one that counts
                    task.exception()
        if not answers:
            raise self._unanswered(failure)
        return min(answers, key=lambda answer: answer.code == ResponseCode.SYSTEM_ERROR)

    def _unanswered(self, failure: RemotingError) -> RemotingError:
        """Return the error of name servers none of which has answered, with what was asked and what to do."""
        if not self._name_servers:
            return failure.told_as(str(failure), "set namesrv_addr to host:port (several separated by ';')")
        several = "" if len(self._name_servers) == 1 else f" (asked: {', '.join(self._name_servers)})"
        message = f"no name server answers{several}: {failure}"
        if isinstance(failure, UntrustedServerError):
            return failure.told_as(message)  # the name server runs and can be reached
        remedy = "see whether one runs there (namesrv_addr), and whether it can be reached from here"
        if self._tls is None and isinstance(failure, RemotingSendError):
            remedy += "; a server that takes only TLS closes other connections (use_tls, --tls)"
        return failure.told_as(message, remedy)

    def _prefer(self, name_server: str) -> None:
        if name_server in self._name_servers:  # the list may have changed meanwhile
            self._name_server_index = self._name_servers.index(name_server)


def split_address(address: str) -> tuple[str, int]:
    """Split `host:port`, in which an IPv6 host may be in brackets, into host and port.

    Raises:
        LocalProtocolError: no port, or an invalid one.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port[:6]) > 65535:
        raise LocalProtocolError(f"an address is host:port, not {address!r:.100}")
    return host.strip("[]"), int(port)


def _reason(error: OSError | UnicodeError | RemotingSendError) -> str:
    """Return an error's text without the address and the number that asyncio puts before it."""
    if isinstance(error, UnicodeError):  # raised by the codec `idna`
        return "the host is no name that a machine can have"
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number) if number is not None and number > 0 else getattr(error, "strerror", None) or str(error)
