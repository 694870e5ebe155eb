"""A master's end of one slave's connection: HAConnection on a transport."""

import asyncio
import logging
from typing import Protocol, cast

from maxq.errors import RemoteProtocolError
from maxq.remoting.system_sockets import reset, unacknowledged
from maxq.replication.ha.frames import REPORT, ReportParser
from maxq.replication.ha.ha_connection import HAConnection
from maxq.runtime.interfaces import Clock

log = logging.getLogger(__name__)

#: Bytes that the transport may hold, about; more is read from the log when it has room.
_HIGH_MARK = 1 << 20
_LOW_MARK = 256 << 10
#: Seconds that the second half of a MaxQ slave's first bytes is waited for: it was written together with the first.
_HALF_SECONDS = 1.0


class LinkOwner(Protocol):
    """The part of the master's HA service that a connection to a slave needs (Java: HAService)."""

    def admits(self, transport: asyncio.BaseTransport) -> bool:
        """Return whether a new connection may stay. One that may not is closed, and nothing else is called for it."""
        ...

    def make_connection(self, client_address: str) -> HAConnection:
        """Make what the master knows of the slave at this address, host:port."""
        ...

    def on_open(self, link: "HAConnectionLink") -> None:
        """Record that a slave has opened its HA connection to this master."""
        ...

    def on_report(self, link: "HAConnectionLink") -> None:
        """Note that the slave has acknowledged something (`link.connection`)."""
        ...

    def on_offer(self, link: "HAConnectionLink", port: int) -> None:
        """Note that the slave, whose HA port this is, has what starts of this master have filled."""
        ...

    def on_closed(self, link: "HAConnectionLink") -> None:
        """Note that the connection of a slave has ended."""
        ...


class HAConnectionLink(asyncio.Protocol):
    """Sends data and heartbeats to one slave while the socket takes them, and receives its reports.

    It is woken by appends (`push`), by the transport that has room again, and by one timer for heartbeat, housekeeping
    and flow control.
    """

    def __init__(self, owner: LinkOwner, clock: Clock) -> None:
        self._owner = owner
        self._is_admitted = False
        self._clock = clock
        self._parser = ReportParser()
        self._first = b""  # the slave's first bytes while the rest of them may come
        self._first_timer: asyncio.TimerHandle | None = None
        self._is_paused = False
        self._is_scheduled = False
        self._written = 0  # bytes
        self._taken = 0  # bytes that the slave's side has taken, when the timer last looked
        self._taken_ms = clock.monotonic_ms()  # when that number had grown enough, or nothing was left to take
        self._timer: asyncio.TimerHandle | None = None
        self._resume_timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport
        self.connection: HAConnection
        self.close_reason = "the slave closed it"

    # --- life ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._is_admitted = self._owner.admits(transport)
        if not self._is_admitted:
            reset(self._transport)
            return
        self._transport.set_write_buffer_limits(_HIGH_MARK, _LOW_MARK)
        peer = transport.get_extra_info("peername") or ("?", 0)
        self.connection = self._owner.make_connection(f"{peer[0]}:{peer[1]}")
        self._arm()
        self._owner.on_open(self)

    @property
    def descriptor(self) -> int:
        """The file descriptor of the socket; -1 if it has none."""
        own = self._transport.get_extra_info("socket")
        return -1 if own is None else int(own.fileno())

    def close(self, reason: str) -> None:
        """End the connection at once; data not sent yet is dropped."""
        self.close_reason = reason
        reset(self._transport)

    def connection_lost(self, error: Exception | None) -> None:
        for timer in (self._timer, self._resume_timer, self._first_timer):
            if timer is not None:
                timer.cancel()
        self._is_paused = True
        if not self._is_admitted:
            return
        if error is not None:
            self.close_reason = str(error) or type(error).__name__
        self._owner.on_closed(self)

    # --- reports ---

    def data_received(self, data: bytes) -> None:
        if not self._is_admitted or self._is_half(data):
            return
        data, self._first = self._first + data, b""
        try:
            self._hear(data)
        except RemoteProtocolError as error:
            log.error("slave %s is disconnected: %s", self.connection.client_address, error)
            self.close(str(error))

    def _is_half(self, data: bytes) -> bool:
        """Return whether this is only a part of a MaxQ slave's first message, which a network may split. It is kept
        until the rest arrives."""
        first = self._first + data
        if self.connection.slave_request_offset >= 0 or len(first) >= 2 * REPORT.size or not data:
            return False
        if len(first) >= REPORT.size and not self.connection.is_of_maxq(REPORT.unpack_from(first)[0]):
            return False
        self._first = first
        if self._first_timer is None:
            self._first_timer = asyncio.get_running_loop().call_later(_HALF_SECONDS, self._hear_half)
        return True

    def _hear_half(self) -> None:
        """Process the first half of a report whose rest did not arrive in time."""
        if self._first:
            self.data_received(b"")

    def _hear(self, data: bytes) -> None:
        connection = self.connection
        offset = self._parser.receive_data(data)
        if self._parser.offered_port or offset is not None:  # the beginning of a report alone says nothing
            connection.last_read_ms = self._clock.monotonic_ms()
        if self._parser.offered_port:
            port, self._parser.offered_port = self._parser.offered_port, 0
            self._owner.on_offer(self, port)
        elif offset is not None:
            is_first = connection.slave_request_offset < 0
            connection.on_report(offset, wants_name=self._parser.wants_name)
            self._owner.on_report(self)
            if is_first:
                self._arm()  # heartbeats begin
                self.push()

    # --- sending ---

    def push(self) -> None:
        """Send the available data, as far as the transport has room."""
        if self._is_paused or self._resume_timer is not None:
            return
        connection = self.connection
        if connection.has_something_to_compare:
            self.close("this master's log has grown past the slave's, which compares the two when it connects again")
            return
        now_ms = self._clock.monotonic_ms()
        try:
            pieces = connection.next_pieces(_HIGH_MARK, now_ms)
        except OSError as error:  # only this link fails: whether the append succeeds is its writer's concern
            log.error("slave %s: the log cannot be read for it: %s; it connects again",
                      connection.client_address, error)  # fmt: skip
            self.close(str(error))
            return
        if pieces:
            self._written += sum(map(len, pieces))
            self._transport.writelines(pieces)
        if not connection.behind_bytes or self._is_paused:
            return
        wait_ms = connection.resume_in_ms(now_ms)
        if wait_ms:
            self._resume_timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._resume)
        elif pieces and not self._is_scheduled:
            self._is_scheduled = True  # lets other tasks run between two pushes to a fast reader
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_scheduled = False
        self.push()

    def _resume(self) -> None:
        self._resume_timer = None
        self.push()

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self.push()

    # --- time ---

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        wait_ms = self.connection.next_deadline_ms() - self._clock.monotonic_ms()
        self._timer = asyncio.get_running_loop().call_later(max(wait_ms, 1) / 1000, self._on_time)

    def _on_time(self) -> None:
        connection = self.connection
        now_ms = self._clock.monotonic_ms()
        if connection.is_silent(now_ms):
            self.close(f"nothing was read for {now_ms - connection.last_read_ms} ms (haHousekeepingInterval)")
            return
        taken = self._written - self._transport.get_write_buffer_size() - unacknowledged(self.descriptor)
        if connection.is_read(taken - self._taken) or taken == self._written:
            self._taken, self._taken_ms = taken, now_ms
        elif connection.is_too_long(now_ms - self._taken_ms):
            self.close(
                f"it took {taken - self._taken} bytes within {now_ms - self._taken_ms} ms (haHousekeepingInterval), "
                "though more waited for it"
            )
            return
        heartbeat = connection.heartbeat(now_ms)
        if heartbeat and not self._is_paused:
            self._written += len(heartbeat)
            self._transport.write(heartbeat)
        self.push()  # a file that was closed because the disk had no room has grown without an append
        self._arm()
