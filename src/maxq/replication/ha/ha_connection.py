"""The master's state for one slave, and the bytes to send to it next. Pure: offsets and times in, bytes out.

The slave's first report says where to start: 0 at the start of the master's last file (so a new slave gets no history),
1 at the very beginning (the first byte of a record is always 0, so nobody needs it otherwise), anything else exactly
there. A start that the master does not have is never served, however its log grows: below its minimum the bytes are
gone, above its maximum the master has lost what this slave holds, and sending from there one day would make two
different logs look like one. Such a connection is SUSPENDed: heartbeats, the reason in log and status, and its reports
acknowledge nothing. It ends when the log has grown past the place if the slave is MaxQ's, which compares its last
record on the next one: it is to know that its log is another before this master is gone.

A report acknowledges at most what was sent on this connection: a slave with another log cannot vouch for messages that
it never got. A report of a larger offset cannot come from a slave, and ends the connection: it would count for
everything that is sent later. And the first report acknowledges nothing: it is where a slave wants to begin, and
whether what it has below is this log it has yet to find out. MaxQ's says so with its second; Java's second comes with
the next bytes that it takes, or as its heartbeat.

A MaxQ slave is told before anything is sent (frames.py, `is_joint`) whose log this is, if it asks for that, and of the
fillers in it: a slave of another brokerName will not join, nor one that has the true bytes of a filler.

Source:
    store/ha/DefaultHAConnection.java.
"""

import logging
from collections.abc import Callable
from enum import IntEnum
from typing import Protocol

from maxq.config.message_store_config import MessageStoreConfig
from maxq.errors import RemoteProtocolError
from maxq.remoting.endpoint import LEAST_BYTES_A_SECOND
from maxq.replication.ha.flow_monitor import FlowMonitor
from maxq.replication.ha.frames import HEAD, JOINT_SIZE, encode_filled_ranges, encode_name, is_joint
from maxq.store.recovery.filled_ranges import FilledRange

log = logging.getLogger(__name__)

#: Offset that a slave without a log reports in order to get the whole log.
FROM_THE_BEGINNING = 1


class HAConnectionState(IntEnum):
    """The values of HAConnectionState.java; the numbers are the controller protocol's."""

    READY = 0
    HANDSHAKE = 1
    TRANSFER = 2
    SUSPEND = 3
    SHUTDOWN = 4


class NamedRanges(Protocol):
    """The part of FilledRanges that a master sends."""

    def named(self) -> list[FilledRange]:
        """Returns all ranges, for a slave that joins."""
        ...


class LogSource(Protocol):
    """The part of MessageStore that a master sends from."""

    @property
    def filled_ranges(self) -> NamedRanges:
        """Damaged ranges of this log that recovery has replaced by fillers."""
        ...

    @property
    def min_physical_offset(self) -> int:
        """Physical offset at which the log begins."""
        ...

    @property
    def max_physical_offset(self) -> int:
        """Physical offset of the next record."""
        ...

    def log_bytes(self, offset: int, limit: int) -> memoryview | None:
        """At most `limit` bytes of the log from physical offset `offset` on, within one file; None if it has nothing
        there."""
        ...


class HAConnection:
    """The master's side of a replication link, with the state of one slave. All times are monotonic ms.

    Attributes:
        client_address: the slave's end of the connection, host:port.
        slave_request_offset: its first report; -1 before.
        slave_ack_offset: its newest report; -1 before.
        next_offset: what is sent next; -1 before the first report.
        is_distinct: another connection from the same host was accepted since this one last reported; it may be the
            same slave, so this one does not count as a slave of its own until it reports again.
        is_counted: the master has decided whether this slave is one whose earlier connection had ended, or another.
        began_at: this master's end when an empty slave began with the last file: what is before that file and still
            waits for copies is not on that slave, whatever its reports say. 0: it has, or gets, all there is.
        reason: why nothing is sent, in state SUSPEND.
    """

    def __init__(
        self,
        source: LogSource,
        config: Callable[[], MessageStoreConfig],
        client_address: str,
        now_ms: int,
        *,
        broker_name: str,
    ) -> None:
        """`broker_name` is the name of this master."""
        self._source = source
        self._config = config
        self._broker_name = broker_name
        self.client_address = client_address
        self.state = HAConnectionState.READY
        self.slave_request_offset = -1
        self.slave_ack_offset = -1
        self.next_offset = -1
        self.is_distinct = True
        self.is_counted = False
        self.began_at = 0
        self.reason = ""
        self._notice = b""  # bytes that must be sent before the log
        self._compares_first = False
        self._is_named = False
        self._is_to_compare = False  # for a MaxQ slave: its last bytes are compared when this log is as long as its own
        self._has_joined = False
        self.last_read_ms = now_ms
        self.last_write_ms = now_ms
        self.sent = FlowMonitor(now_ms)

    @property
    def host(self) -> str:
        """The slave's address without its port, which its old and its new connection have in common."""
        return self.client_address.rpartition(":")[0]

    @property
    def has_shown_record(self) -> bool:
        """Return whether the connection began with the position of a record of this log, as connections of MaxQ's
        slaves do."""
        return self._compares_first

    @property
    def copies_tables(self) -> bool:
        """Return whether this is a living MaxQ slave that has this log. It also asks for changes of tables, or soon
        will."""
        return self._is_named and self.replicated_offset >= 0

    @property
    def replicated_offset(self) -> int:
        """Physical offset below which this slave has everything; -1 while its reports do not count."""
        return self._reached if self._has_joined and self.state is HAConnectionState.TRANSFER else -1

    @property
    def _reached(self) -> int:
        return min(self.slave_ack_offset, self.next_offset)

    def is_of_maxq(self, offset: int) -> bool:
        """Return whether only a MaxQ slave sends `offset` as its first report. A MaxQ slave asks for the whole log, or
        begins with its last record, which this log has; a Java slave asks for the last file, or for what follows its
        own log."""
        low = self._source.min_physical_offset
        return offset == FROM_THE_BEGINNING or offset == low > 0 or self._is_joint(offset)

    def _is_joint(self, offset: int) -> bool:
        joint = self._source.log_bytes(offset, JOINT_SIZE)
        return joint is not None and is_joint(offset, joint)

    def on_report(self, offset: int, *, wants_name: bool = False) -> None:
        """Handle the report that the slave's log has reached `offset`.

        Args:
            wants_name: the connection began as `encode_request` says.

        Raises:
            RemoteProtocolError: the slave was not sent so much on this connection, and did not begin there.
        """
        if self.state is HAConnectionState.TRANSFER and offset > max(self.next_offset, self.slave_request_offset):
            raise RemoteProtocolError(
                f"it reported offset {offset}, and was sent the log up to {self.next_offset} only"
            )
        self.is_distinct = True
        if self._compares_first and offset == self.slave_request_offset:
            return  # this is the second half of its request, which came later
        self.slave_ack_offset = offset
        self._has_joined = self.slave_request_offset >= 0
        if not self._has_joined:
            self.slave_request_offset = offset
            self._begin(offset, wants_name)

    def _begin(self, offset: int, wants_name: bool) -> None:
        low, high = self._source.min_physical_offset, self._source.max_physical_offset
        if offset == 0:
            offset = high - high % self._config().mapped_file_size_commit_log
            self.began_at = high if offset > low else 0
        elif offset == FROM_THE_BEGINNING:
            offset = max(offset, low) if high else 0  # both logs are empty: they begin together
        self.next_offset = offset
        self.state = HAConnectionState.TRANSFER
        if offset > high:
            self._is_to_compare = wants_name
            self._suspend(
                f"slave {self.client_address} has {offset} bytes of log, this master only {high}: this master has lost "
                "its end, or the slave belongs to another. Nothing is sent. Save the messages that only the slave has, "
                "if you need them, and empty its store"
            )
        elif offset < low:
            self._expired(low)
        else:
            log.info("slave %s gets the log from physical offset %d on", self.client_address, offset)
            self._notice = self._preface(wants_name)

    def _preface(self, wants_name: bool) -> bytes:
        """Return the first bytes to a slave that is a MaxQ broker. They are held back from a slave that asks for the
        whole log in a single report, because it may be a Java broker whose log ends there."""
        asked = self.slave_request_offset
        self._compares_first = self._is_joint(asked)
        if not self.is_of_maxq(asked):
            return b""
        self._is_named = wants_name
        name = encode_name(self._broker_name) if wants_name else b""
        may_be_java = not wants_name and asked != FROM_THE_BEGINNING and not self._compares_first
        filled = [] if may_be_java else self._source.filled_ranges.named()
        return name + (encode_filled_ranges(filled) if filled else b"")

    def _expired(self, low: int) -> None:
        self._suspend(
            f"slave {self.client_address} needs the log from {self.next_offset} on, this master's begins at {low}: "
            "the log between them was deleted (fileReservedTime, diskMaxUsedSpaceRatio). Empty the slave's store and "
            "start it again"
        )

    def _suspend(self, reason: str) -> None:
        self.state = HAConnectionState.SUSPEND
        self.reason = reason
        log.error("%s", reason)

    @property
    def has_something_to_compare(self) -> bool:
        """Return whether the log has grown past the place where a MaxQ slave that had more than this master wanted to
        begin: on a new connection it will find out whether its log is another."""
        return self._is_to_compare and self._source.max_physical_offset > self.slave_request_offset

    def next_pieces(self, room: int, now_ms: int) -> list[bytes | memoryview]:
        """Return the frames to send now: heads, and slices of the mapped log; none if there is nothing to send, or
        nothing is allowed.

        Args:
            room: about how many bytes the connection can take; at least one frame is given.
        """
        pieces: list[bytes | memoryview] = []
        if self.state is not HAConnectionState.TRANSFER:
            return pieces
        if self._notice:
            pieces.append(self._notice)
            self._notice = b""
        config = self._config()
        batch = config.ha_transfer_batch_size
        limited = config.ha_flow_control_enable
        if limited:
            room = min(room, self.sent.allowance(config.max_ha_transfer_byte_in_second, now_ms))
        offset, size = self.next_offset, 0
        log_bytes = self._source.log_bytes
        while size < room:
            body = log_bytes(offset, min(batch, room - size) if limited else batch)
            if body is None:
                break
            count = len(body)
            pieces += (HEAD.pack(offset, count), body)
            offset += count
            size += count + HEAD.size
        if size:
            self.next_offset = offset
            self.last_write_ms = now_ms
            self.sent.count(size, now_ms)
        elif offset < self._source.min_physical_offset:
            self._expired(self._source.min_physical_offset)
        return pieces

    @property
    def behind_bytes(self) -> int:
        """Return how many bytes of the log were not sent to the slave yet."""
        return max(0, self._source.max_physical_offset - self.next_offset) if self.next_offset >= 0 else 0

    def resume_in_ms(self, now_ms: int) -> int:
        """Return the ms for which flow control delays data that is ready to be sent; 0 if it does not."""
        config = self._config()
        if self.state is not HAConnectionState.TRANSFER or not config.ha_flow_control_enable or not self.behind_bytes:
            return 0
        limit = config.max_ha_transfer_byte_in_second
        wanted = min(config.ha_transfer_batch_size, self.behind_bytes, max(limit // 10, 1))
        missing = wanted - self.sent.allowance(limit, now_ms)
        return -(-missing * 1000 // limit) if missing > 0 else 0

    def heartbeat(self, now_ms: int) -> bytes:
        """Return the heartbeat if one is due because nothing was written for haSendHeartbeatInterval."""
        if self.next_offset < 0 or now_ms - self.last_write_ms < self._config().ha_send_heartbeat_interval:
            return b""
        self.last_write_ms = now_ms
        self.sent.count(HEAD.size, now_ms)
        return HEAD.pack(self.next_offset, 0)

    def is_silent(self, now_ms: int) -> bool:
        """Return whether nothing was read for haHousekeepingInterval, so that the connection is to be closed."""
        return self.is_too_long(now_ms - self.last_read_ms)

    def is_too_long(self, milliseconds: int) -> bool:
        """Returns whether a time in ms is longer than haHousekeepingInterval."""
        return milliseconds > self._config().ha_housekeeping_interval

    def is_read(self, taken: int) -> bool:
        """Return whether `taken` bytes are at least what a slave takes within haHousekeepingInterval while more waits
        for it."""
        return taken * 1000 >= LEAST_BYTES_A_SECOND * self._config().ha_housekeeping_interval

    def next_deadline_ms(self) -> int:
        """Return when `heartbeat` or `is_silent` must be called again."""
        config = self._config()
        silent = self.last_read_ms + config.ha_housekeeping_interval + 1
        if self.next_offset < 0:
            return silent
        return min(silent, self.last_write_ms + config.ha_send_heartbeat_interval)

    def is_in_sync(self, master_offset: int) -> bool:
        """Returns whether the slave is less than haMaxGapNotInSync bytes behind `master_offset`."""
        return (
            self.state is HAConnectionState.TRANSFER
            and master_offset - self._reached < self._config().ha_max_gap_not_in_sync
        )
