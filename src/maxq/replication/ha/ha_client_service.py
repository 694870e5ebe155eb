"""The slave's end of the link: HAClient on a transport, and the task that keeps a transport there."""

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from maxq.errors import RemoteProtocolError, ReplicationDamageError, ReplicationDivergedError, ReplicationGapError
from maxq.replication.ha.ha_client import HAClient
from maxq.replication.ha.ha_connection import HAConnectionState
from maxq.runtime.background import supervise
from maxq.runtime.interfaces import Clock

log = logging.getLogger(__name__)

_RECEIVE_BUFFER = 1 << 20
_CONNECT_TIMEOUT_S = 5.0
_FIRST_RETRY_S = 0.1  # Java waits 5 s each time, during which a restarted SYNC_MASTER has no copies
_LAST_RETRY_S = 1.0  # reached by doubling while no master answers
_MISFIT_RETRY_S = 5.0  # pause when the logs do not fit: an operator has to look at it first
_MISFITS = (ReplicationGapError, ReplicationDamageError, ReplicationDivergedError)


class HAClientService:
    """Connects to the master, keeps the link and reconnects: at once after silence or a change of the master's address,
    otherwise after 0.1 s, and up to 1 s after repeated failures. After bytes that do not continue this log it waits
    5 s, unless this slave has just offered the master records that the master had lost.

    Attributes:
        master_address: host:port of the master; empty while there is none. Change it with `set_master_address`.
        failure: why the last connection failed or was not made; empty before that. A link that this slave makes anew by
            itself, to compare the logs, has not failed.
        is_apart: by its bytes this log was found to be another than the master's, and has not been found to be one with
            it since. It stays so while no master is known, and with another master until the logs are compared: that
            one has the log of the last one, if that has said that it is of this group. Java's do not say it.
        on_apart: called as `on_apart(is_apart, is_sure)` when `is_apart` changes, or that a master of this group is the
            reason, which is sure then.
        connects: connections made so far.
        refused: connections ended because the master's log does not fit this one's.
        on_failed: told the name and error if the task ends by an error.
    """

    def __init__(
        self, client: HAClient, clock: Clock, on_connected: Callable[[], None], on_joined: Callable[[], None]
    ) -> None:
        """
        Args:
            on_connected: called each time the first report is out.
            on_joined: called each time the two logs were found to be one, after `on_connected`.
        """
        self.client = client
        self._clock = clock
        self._on_connected = on_connected
        self._on_joined = on_joined
        self._buffer = memoryview(bytearray(_RECEIVE_BUFFER))
        self._link: _MasterLink | None = None
        self._address_changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._retry_s = _FIRST_RETRY_S
        self.master_address = ""
        self.failure = ""
        self.is_apart = False
        self.on_apart: Callable[[bool, bool], None] | None = None
        self._apart_from = ""  # host:port of a master that has not said to which group it belongs
        self.connects = 0
        self.refused = 0
        self.on_failed: Callable[[str, BaseException], None] | None = None

    @property
    def is_connected(self) -> bool:
        return self.client.state is HAConnectionState.TRANSFER

    def start(self) -> None:
        """Start the task that connects to the master and copies its log. Needs a running event loop."""
        if self._task is None:
            self.client.state = HAConnectionState.READY
            self._task = asyncio.get_running_loop().create_task(self._run(), name="HA client")
            supervise(self._task, self._failed)

    def _failed(self, name: str, error: BaseException) -> None:
        log.critical("%s failed", name, exc_info=error)
        if self.on_failed is not None:
            self.on_failed(name, error)

    async def shutdown(self) -> None:
        """End the link; no new connection is made."""
        self.client.state = HAConnectionState.SHUTDOWN
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def set_master_address(self, address: str) -> None:
        """Connect to `address` from now on; an empty string ends the link. A connection to another address is
        closed."""
        if address != self.master_address:
            log.info("the master's HA address is %s (was %s)", address or "unknown", self.master_address or "unknown")
            self.master_address = address
            self._retry_s = _FIRST_RETRY_S
            self._address_changed.set()
            if address and self._apart_from not in ("", address):
                self._note_apart(False)
            if self._link is not None:
                self._link.close("the master's address changed")

    def begin_again(self) -> None:
        """Make a new connection, on which the logs are compared anew, because the process at the other end may be
        gone."""
        if self._link is not None:
            self._link.close(START_OVER)
            self.client.on_closed()  # knowledge about the master's log ends with the connection

    async def _run(self) -> None:
        while True:
            self._address_changed.clear()
            pause_s: float | None = None
            if self.master_address:
                pause_s = await self._connection_to(self.master_address)
            if not self._address_changed.is_set():
                await self._pause(pause_s)

    async def _pause(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._address_changed.wait()
        except TimeoutError:
            pass

    async def _connection_to(self, address: str) -> float:
        """Run one connection from its beginning to its end; returns the seconds to wait before the next."""
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        request_offset = await self.client.request_offset()
        link = _MasterLink(self.client, self._clock, self._buffer, self._joined)
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                await asyncio.get_running_loop().create_connection(lambda: link, host, int(port))
        except (OSError, TimeoutError, ValueError) as error:
            self._note(f"cannot connect to the master's HA port {address}: {str(error) or 'timed out'}")
            return self._next_retry_s()
        self.connects += 1
        self._link = link
        try:
            link.begin(request_offset)
            log.info("connected to the master's HA port %s, asking from offset %d", address, request_offset)
            self._on_connected()
            if self.client.is_joined:  # joined already because its log is empty
                self._joined()
            outcome = await link.ended
        finally:
            self._link = None
            link.close("this broker stops being a slave of it")
            self.client.on_closed()
        await self._compare_offered()
        outcome = self.client.offered or outcome
        if self.client.is_another is not None:
            self._note_apart(self.client.is_another, "" if self.client.is_named else address)
        if link.has_heard:
            self._retry_s = _FIRST_RETRY_S
        return self._judge(address, outcome)

    async def _compare_offered(self) -> None:
        try:
            await self.client.compare_offered()
        except (RemoteProtocolError, OSError) as error:
            log.warning("it is not known whether this log differs from the master's: %s", error)

    def _joined(self) -> None:
        self._note_apart(False)
        self._on_joined()

    def note_other_log(self) -> None:
        """Note that a master of this group has another log."""
        self._note_apart(True)

    def _note_apart(self, is_apart: bool, unnamed_master: str = "") -> None:
        """Note whether this log is another than the master's; `unnamed_master` may be one of another group."""
        before = self.is_apart, self._apart_from
        if is_apart and unnamed_master and before == (True, ""):
            return
        self.is_apart, self._apart_from = is_apart, unnamed_master if is_apart else ""
        if before != (self.is_apart, self._apart_from) and self.on_apart is not None:
            self.on_apart(is_apart, is_apart and not unnamed_master)

    def _next_retry_s(self) -> float:
        pause_s, self._retry_s = self._retry_s, min(self._retry_s * 2, _LAST_RETRY_S)
        return pause_s

    def _judge(self, address: str, outcome: "str | Exception") -> float:
        if isinstance(outcome, _MISFITS):
            self.refused += 1
            log.error("the link to master %s is closed: %s", address, outcome)
            may_be_mended = outcome is self.client.offered and str(outcome) != self.failure
            self.failure = str(outcome)
            return _FIRST_RETRY_S if may_be_mended else _MISFIT_RETRY_S
        if outcome == START_OVER:
            log.info("the link to master %s is made anew: %s", address, outcome)
            return 0
        self._note(f"the link to master {address} ended: {outcome}")
        return 0 if outcome == SILENT else self._next_retry_s()

    def _note(self, failure: str) -> None:
        """Log a failure, but not again at every attempt."""
        log.log(logging.DEBUG if failure == self.failure else logging.WARNING, "%s", failure)
        self.failure = failure


SILENT = "nothing was read for haHousekeepingInterval"
START_OVER = "this slave compares its log with the master's on a new connection"


class _MasterLink(asyncio.BufferedProtocol):
    """One connection to the master. Everything that arrives at once is appended and then reported once."""

    def __init__(self, client: HAClient, clock: Clock, buffer: memoryview, on_joined: Callable[[], None]) -> None:
        self._client = client
        self._on_joined = on_joined
        self._clock = clock
        self._buffer = buffer
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_open = False
        self.has_heard = False  # something was received from the master
        self.ended: asyncio.Future[str | Exception] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def begin(self, request_offset: int) -> None:
        """Tell the master from which offset on it is to send its log."""
        if self.ended.done():
            return
        self._is_open = True
        assert self._transport is not None, "the connection was made"
        self._transport.write(self._client.on_connected(request_offset, self._clock.monotonic_ms()))
        self._arm()

    def close(self, outcome: "str | Exception") -> None:
        """End the connection at once; `ended` gets the outcome."""
        self._is_open = False
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        if not self.ended.done():
            self.ended.set_result(outcome)

    def connection_lost(self, error: Exception | None) -> None:
        self.close(error or "the master closed it")

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if not self._is_open:
            return  # closed within this turn of the loop
        self.has_heard = True
        client = self._client
        now_ms = self._clock.monotonic_ms()
        was_joined = client.is_joined
        try:
            goes_on = client.receive_data(self._buffer[:nbytes], now_ms)
        except (*_MISFITS, RemoteProtocolError, OSError) as error:
            self.close(error)
            return
        if not goes_on:
            self.close(START_OVER)
            return
        if client.is_joined and not was_joined:
            self._on_joined()
        report = client.take_report(now_ms)
        if report:
            assert self._transport is not None, "data came over it"
            self._transport.write(report)

    def _arm(self) -> None:
        wait_ms = self._client.next_deadline_ms() - self._clock.monotonic_ms()
        self._timer = asyncio.get_running_loop().call_later(max(wait_ms, 1) / 1000, self._on_time)

    def _on_time(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if self._client.is_silent(now_ms):
            self.close(SILENT)
            return
        heartbeat = self._client.heartbeat(now_ms)
        if heartbeat and self._transport is not None:
            self._transport.write(heartbeat)
        self._arm()
