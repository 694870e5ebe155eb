"""TLS over bytes: one connection's half of it, on memory buffers, so that it runs on any transport."""

import contextlib
import ssl
from collections.abc import Sequence
from typing import cast


class TlsChannel:
    """Encrypts and decrypts for one connection: ciphertext in by `feed`, plaintext out by `read_into`; plaintext in by
    `encrypt`, ciphertext out by `outgoing`."""

    __slots__ = ("_in", "_object", "_out", "is_ended", "is_ready")

    def __init__(self, context: ssl.SSLContext, *, server_side: bool, server_name: str | None = None) -> None:
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._in, self._out, server_side=server_side, server_hostname=server_name)
        self.is_ready = False  # the handshake is done
        self.is_ended = False  # the peer said it sends no more

    def start(self) -> bytes:
        """Begin the handshake, and return the first bytes to send."""
        self._shake_hands()
        return self.outgoing()

    def feed(self, data: bytes | memoryview) -> None:
        """Take bytes of the transport. Raises ssl.SSLError."""
        self._in.write(data)
        if not self.is_ready:
            self._shake_hands()

    def read_into(self, window: memoryview) -> int:
        """Put plaintext into `window`; 0 when there is no more for now. Raises ssl.SSLError."""
        if not self.is_ready:
            return 0
        count = 0
        try:
            # with a buffer given, `read` returns the number of bytes
            count = cast(int, self._object.read(len(window), window))
        except ssl.SSLWantReadError:
            return 0
        except ssl.SSLZeroReturnError:
            pass
        if count == 0:
            self.is_ended = True
        return count

    def encrypt(self, buffers: Sequence[bytes | memoryview]) -> bytes:
        """Return the ciphertext of these buffers, and all other output that waits to be sent."""
        for buffer in buffers:
            if len(buffer):
                self._object.write(buffer)
        return self._out.read()

    def outgoing(self) -> bytes:
        """Return handshake messages and alerts that wait to be sent."""
        return self._out.read()

    def close(self) -> bytes:
        """Return the bytes of the alert which tells the peer that nothing more is sent."""
        if self.is_ready and not self.is_ended:
            # the peer has not answered the close yet, and nobody waits for that
            with contextlib.suppress(ssl.SSLError):
                self._object.unwrap()
        return self._out.read()

    def _shake_hands(self) -> None:
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return
        self.is_ready = True
