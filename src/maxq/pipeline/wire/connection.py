"""One blocking connection to a broker or name server, for driver and executors of Spark.

This is the blocking driver of `ClientConnection`. Answers are taken in two steps, head and body, so that the next
request can be on its way before the body of this answer has come in. Bodies land in one buffer that is used again.
"""

import socket
import ssl
from contextlib import suppress
from functools import partial
from typing import Final

from maxq.auth.acl_client_rpc_hook import AclClientRPCHook
from maxq.auth.signature import Credentials
from maxq.errors import RemotingConnectError, RemotingSendError, RemotingTimeoutError
from maxq.pipeline.options.read_options import ConnectionOptions
from maxq.protocol.frame.client_connection import AnswerHead, ClientConnection
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.runtime.files.system import SystemClock

_READ_AHEAD: Final = 64 * 1024


class BlockingConnection:
    """A connection that one thread uses.

    Args:
        address: host:port of the server.
        options: how long a request may take, and what it is signed with.
        tls: None: the connection is plain.
        connect_ms: how long connecting may take; None: as long as a request.
    """

    def __init__(
        self, address: str, options: ConnectionOptions, tls: ssl.SSLContext | None, *, connect_ms: int | None = None
    ) -> None:
        """Connect. Raises RemotingConnectError: that failed, or took too long."""
        self.address = address
        self._options = options
        self._clock = SystemClock()
        sign = None
        if options.access_key:
            credentials = Credentials(options.access_key, options.secret_key, options.security_token)
            sign = partial(AclClientRPCHook(credentials).do_before_request, address)
        self._requests = ClientConnection[object](address, sign=sign)
        host, _, port = address.rpartition(":")
        seconds = options.request_timeout_ms / 1000
        try:
            limit = seconds if connect_ms is None else connect_ms / 1000
            plain = socket.create_connection((host.strip("[]"), int(port)), timeout=limit)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = tls.wrap_socket(plain, server_hostname=host) if tls else plain
            self._socket.settimeout(seconds)
        except (OSError, ValueError) as error:
            raise RemotingConnectError(f"connect to <{address}> failed: {error}", address=address) from None
        self._window = bytearray(_READ_AHEAD)
        self._buffer = bytearray()

    def send(self, code: int, ext: dict[str, str], body: bytes | memoryview | None = None) -> int:
        """Send a request.

        Returns:
            Its opaque, which the answer carries.

        Raises:
            RemotingSendError: the connection broke.
        """
        request = RemotingCommand(code, dict(ext), body)
        frame = b"".join(self._requests.request(request, request))
        try:
            self._socket.sendall(frame)
        except OSError as error:
            self.close()
            raise self._broken(error) from None
        except BaseException:  # after an interrupt, a part of the frame may have been sent
            self.close()
            raise
        return request.opaque

    @property
    def waiting(self) -> int:
        """Return the number of requests whose answers have not arrived."""
        return len(self._requests)

    def receive_head(self) -> tuple[RemotingCommand, int]:
        """Receive the next answer to a request of this connection without its body, which `receive_body` returns.
        Requests of the server and answers without a waiting request are skipped.

        Returns:
            The answer, and the body's size in bytes.

        Raises:
            RemotingTimeoutError, RemotingSendError: no answer in time, or the connection broke; it is of no more use.
            RemoteProtocolError: something else came.
        """
        ends_ms = self._clock.monotonic_ms() + self._options.request_timeout_ms
        while True:
            event = self._requests.next_event()
            if isinstance(event, AnswerHead) and event.waiter is not None:
                return event.command, event.body_size
            if event is None:
                if self._clock.monotonic_ms() >= ends_ms:
                    raise self._timeout()
                self._requests.receive_data(memoryview(self._window)[: self._receive_into(self._window)])

    def receive_body(self, size: int) -> memoryview:
        """Receive the body that belongs to the last head. It is valid until the next call."""
        if len(self._buffer) < size:
            self._buffer = bytearray(size)
        view = memoryview(self._buffer)[:size]
        self._fill_body(view)
        return view

    def receive_answer(self, opaque: int) -> RemotingCommand:
        """Receive the answer to one request, body included. Earlier answers to other requests are skipped. Raises as
        `receive_head`."""
        while (answer := self.receive()).opaque != opaque:
            pass
        return answer

    def receive(self) -> RemotingCommand:
        """Receive the next answer, body included. Raises as `receive_head`."""
        command, size = self.receive_head()
        if size:
            body = bytearray(size)
            self._fill_body(memoryview(body))
            command.body = bytes(body)
        return command

    def _fill_body(self, view: memoryview) -> None:
        done = self._requests.take_body(view)
        while done < len(view):
            done += self._receive_into(view[done:])

    def _receive_into(self, view: memoryview | bytearray) -> int:
        """Receive at least one byte into `view`, and return the number of bytes received."""
        try:
            count = self._socket.recv_into(view)
        except TimeoutError:
            raise self._timeout() from None
        except OSError as error:
            raise self._broken(error) from None
        if not count:
            raise RemotingSendError(f"<{self.address}> closed the connection", address=self.address)
        return count

    def _timeout(self) -> RemotingTimeoutError:
        limit_ms = self._options.request_timeout_ms
        text = f"<{self.address}> did not answer within {limit_ms} ms (rocketmq.requestTimeout)"
        return RemotingTimeoutError(text, address=self.address, timeout_ms=limit_ms)

    def _broken(self, error: OSError) -> RemotingSendError:
        return RemotingSendError(f"the connection to <{self.address}> broke: {error}", address=self.address)

    def fileno(self) -> int:
        """Return the socket's descriptor, for selectors. Nothing was read ahead of it as long as each answer is taken
        before the next request is sent."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the connection; answers under way are lost."""
        with suppress(OSError):  # the connection is closed in any case
            self._socket.close()
