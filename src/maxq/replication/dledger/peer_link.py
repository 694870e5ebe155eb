"""PeerLink: this member's requests to one other member.

One connection, made when there is something to send and made anew by the next request after it broke. Requests are
pipelined; each is answered exactly once, with None if the connection could not be made or broke, or time ran out.

A follower keeps such a connection to its leader, though it asks it nothing: that it breaks says that the leader's
process has probably ended. Only this connection, to the configured address of the leader, counts: an incoming one may
claim to be any member, and the leader closes its own connections when it opens others.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from maxq.errors import LocalProtocolError, RemoteProtocolError, RemotingError
from maxq.protocol.dledger.dledger_codec import decode_reply, encode_request, request_code
from maxq.protocol.dledger.dledger_messages import MetadataRequest, Reply, Request
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.client import RemotingClient
from maxq.remoting.connection import Connection
from maxq.runtime.interfaces import Clock

log: Final = logging.getLogger(__name__)

_CONNECT_MS: Final = 1000
#: Interval at which a kept connection sends some bytes: both ends close one that is silent for 120 s.
_KEEP_MS: Final = 30_000


class PeerLink:
    """The connection to one peer; see the module's docstring."""

    def __init__(
        self,
        peer: str,
        address: str,
        client: RemotingClient,
        clock: Clock,
        *,
        timeout_ms: int,
        on_reply: Callable[[int, Reply | None], None],
        on_lost: Callable[[str], None],
    ) -> None:
        """
        Args:
            timeout_ms: longest time a request waits for its answer, connecting included.
            on_reply: (request id, reply or None), once for each request, never from within `send`.
            on_lost: the connection to this peer broke.
        """
        self.peer = peer
        self.address = address
        self._client = client
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._on_reply = on_reply
        self._on_lost = on_lost
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._queued: deque[tuple[int, Request, int]] = deque()  # until there is a connection: id, request, deadline
        self._sent: dict[int, tuple[int, int, int]] = {}  # request id → opaque, deadline, arrivals before; oldest first
        self._is_closed = False
        self._kept_ms = 0  # when something was last sent only to keep the connection open

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection now."""
        return self._connection is not None and not self._connection.is_closed

    def send(self, request_id: int, request: Request) -> None:
        """Send the request now, or as soon as there is a connection."""
        if self._is_closed:
            return
        deadline_ms = self._clock.monotonic_ms() + self._timeout_ms
        connection = self._connection
        if connection is not None and not connection.is_closed:
            self._send_on(connection, request_id, request, deadline_ms)
            return
        self._queued.append((request_id, request, deadline_ms))
        self._connect_soon()

    def keep(self, group: str, own_id: str) -> None:
        """Keep a connection open and alive. Call it periodically while this peer leads."""
        connection, now_ms = self._connection, self._clock.monotonic_ms()
        if self._is_closed:
            return
        if connection is None or connection.is_closed:
            self._kept_ms = now_ms
            self._connect_soon()
        elif now_ms - self._kept_ms >= _KEEP_MS:
            self._kept_ms = now_ms
            question = MetadataRequest(group=group, remote_id=self.peer, local_id=own_id)
            connection.send_oneway(RemotingCommand(request_code(question), body=encode_request(question)))

    def closed(self, connection: Connection) -> None:
        """Handle that a connection of this member ended, perhaps this link's."""
        if connection is self._connection:
            self._lost()

    def _connect_soon(self) -> None:
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect(), name=f"DLedger to {self.peer}")

    def _send_on(self, connection: Connection, request_id: int, request: Request, deadline_ms: int) -> None:
        code = request_code(request)
        command = RemotingCommand(code, body=encode_request(request))
        try:
            opaque = connection.request(command, partial(self._replied, request_id, code))
        except (RemotingError, LocalProtocolError) as error:
            log.warning("request %d to %s failed: %s", code, self.peer, error)
            asyncio.get_running_loop().call_soon(self._on_reply, request_id, None)
            return
        self._sent[request_id] = opaque, deadline_ms, connection.arrivals

    async def _connect(self) -> None:
        try:
            connection = await self._client.connect(self.address, _CONNECT_MS)
        except RemotingError as error:
            log.debug("%s cannot be reached: %s", self.peer, error)
            connection = None
        finally:
            self._connecting = None
        queued, self._queued = self._queued, deque()
        if connection is None:
            for request_id, _, _ in queued:
                self._on_reply(request_id, None)
            return
        self._connection = connection
        for request_id, request, deadline_ms in queued:
            self._send_on(connection, request_id, request, deadline_ms)

    def _replied(self, request_id: int, code: int, command: RemotingCommand | None) -> None:
        if self._sent.pop(request_id, None) is None:
            return
        if command is None:
            self._on_reply(request_id, None)
            self._lost()
            return
        try:
            reply = decode_reply(code, command.body)
        except RemoteProtocolError as error:
            log.warning(
                "%s answered request %d with %s: %s", self.peer, code, command.remark or "an unreadable answer", error
            )
            self._on_reply(request_id, None)
        else:
            self._on_reply(request_id, reply)

    def _lost(self) -> None:
        if self._connection is not None and not self._is_closed:
            self._connection = None
            self._on_lost(self.peer)

    def expire(self, now_ms: int) -> None:
        """Answer None to requests whose time-out is over. A connection that received nothing in all that time is
        closed, because only a new one works at once after a network cut has healed. Call this periodically."""
        late = [request_id for request_id, (_, deadline_ms, _) in self._sent.items() if deadline_ms <= now_ms]
        for request_id in late:
            opaque, _, arrivals = self._sent.pop(request_id)
            connection = self._connection
            if connection is not None:
                connection.forget(opaque)
                if connection.arrivals == arrivals:
                    connection.abort(f"{self.peer} was silent for {self._timeout_ms} ms")
            self._on_reply(request_id, None)

    def drop_unsent(self) -> None:
        """Drop unsent data, because this member's log was cut; its requests are answered None. The bytes of pushed
        entries lie in the log's files until they are sent (uvloop copies nothing), and another leader's entries are
        written there now."""
        connection = self._connection
        if connection is not None and connection.unsent_bytes:
            connection.abort("the log was cut before all pushed entries were sent")
        queued, self._queued = self._queued, deque()
        for request_id, _, _ in queued:
            asyncio.get_running_loop().call_soon(self._on_reply, request_id, None)

    async def close(self) -> None:
        """Close the link: requests are no longer sent or answered."""
        self._is_closed = True
        self._queued.clear()
        self._sent.clear()
        task, self._connecting = self._connecting, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
