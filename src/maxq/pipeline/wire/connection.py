"""One blocking connection to a broker or name server, for driver and executors of Spark.

Requests go out as they are sent; answers are taken in two steps, head and body, so that the next request can be on its
way before the body of this answer has come in. Bodies land in one buffer that is used again.
"""

import io
import socket
import ssl
from typing import Any, Final, cast

from maxq.auth.acl_client_rpc_hook import AclClientRPCHook
from maxq.auth.signature import Credentials
from maxq.errors import RemoteProtocolError, RemotingConnectError, RemotingSendError, RemotingTimeoutError
from maxq.pipeline.options.read_options import ConnectionOptions
from maxq.protocol.frame.remoting_command import LONGEST_HEADER, RemotingCommand, decode_frame

_READ_AHEAD: Final = 64 * 1024
_BODY_LIMIT: Final = 256 << 20  # a length beyond it is no frame


class Connection:
    """See the module. One thread uses it."""

    def __init__(
        self, address: str, options: ConnectionOptions, tls: ssl.SSLContext | None, *, connect_ms: int | None = None
    ) -> None:
        """Raises RemotingConnectError: no connection within `connect_ms` (None: as long as a request may take)."""
        self.address = address
        self._options = options
        self._opaque = 0
        self._signer: AclClientRPCHook | None = None
        if options.access_key:
            credentials = Credentials(options.access_key, options.secret_key, options.security_token)
            self._signer = AclClientRPCHook(credentials)
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
        self._file = cast("io.BufferedReader[Any]", self._socket.makefile("rb", buffering=_READ_AHEAD))
        self._buffer = bytearray()

    def send(self, code: int, ext: dict[str, str], body: bytes | None = None) -> int:
        """Send a request; its opaque, which the answer carries.

        Raises:
            RemotingSendError: the connection broke.
        """
        self._opaque += 1
        request = RemotingCommand(code, dict(ext), body, opaque=self._opaque)
        if self._signer is not None:
            self._signer.do_before_request(self.address, request)
        frame = request.encode()
        try:
            self._socket.sendall(frame)
        except OSError as error:
            self.close()
            raise self._broken(error) from None
        except BaseException:  # an interrupt: part of the frame may have left
            self.close()
            raise
        return self._opaque

    def receive_head(self) -> tuple[RemotingCommand, int]:
        """The next answer but for its body, and the body's size in bytes; take that with `receive_body`.

        Raises:
            RemotingTimeoutError, RemotingSendError: no answer in time, or the connection broke; it is of no more use.
            RemoteProtocolError: something else came.
        """
        while True:
            start = self._read(8)
            header_size = int.from_bytes(start[5:8], "big")
            body_size = int.from_bytes(start[:4], "big") - 4 - header_size
            if not 0 <= body_size <= _BODY_LIMIT:
                raise RemoteProtocolError(f"<{self.address}> sent {bytes(start)!r} where a frame begins")
            command = decode_frame(bytes(start[4:]) + bytes(self._read(header_size)), LONGEST_HEADER)
            if command.is_response:
                return command, body_size
            self._read(body_size)  # a broker tells members of a group when others come and go

    def receive_body(self, size: int) -> memoryview:
        """The body that belongs to the last head, valid until the next call."""
        if len(self._buffer) < size:
            self._buffer = bytearray(size)
        view = memoryview(self._buffer)[:size]
        self._fill(view)
        return view

    def receive(self) -> RemotingCommand:
        """The next answer, whole."""
        command, size = self.receive_head()
        if size:
            command.body = bytes(self._read(size))
        return command

    def _read(self, size: int) -> bytearray:
        found = bytearray(size)
        self._fill(memoryview(found))
        return found

    def _fill(self, view: memoryview) -> None:
        done = 0
        try:
            while done < len(view):
                count = self._file.readinto(view[done:])
                if not count:
                    raise RemotingSendError(f"<{self.address}> closed the connection", address=self.address)
                done += count
        except TimeoutError:
            limit_ms = self._options.request_timeout_ms
            text = f"<{self.address}> did not answer within {limit_ms} ms (rocketmq.requestTimeout)"
            raise RemotingTimeoutError(text, address=self.address, timeout_ms=limit_ms) from None
        except OSError as error:
            raise self._broken(error) from None

    def _broken(self, error: OSError) -> RemotingSendError:
        return RemotingSendError(f"the connection to <{self.address}> broke: {error}", address=self.address)

    def fileno(self) -> int:
        """The socket's descriptor, for selectors: nothing has been read ahead of it as long as each answer is taken
        before the next request goes out."""
        return self._socket.fileno()

    def close(self) -> None:
        """Answers under way are lost."""
        for part in (self._file, self._socket):
            try:
                part.close()
            except OSError:  # nothing more to be had from it
                continue
