"""The slave's side of the link to its master. Pure but for the log: bytes and times in, bytes out.

**Joining.** Offsets alone do not tell whether two logs are the same: a master that lost the end of its log in a power
failure writes other messages at the same offsets. So the first report of a connection asks for the last record of this
log again, from its magic code on (any master sends from any offset but 0), and the bytes that arrive are compared with
this log: store time, queue offset and body. Only then is the end of this log reported; until then the slave says
nothing, or 0 to show that it is there. Different bytes end the connection with an error that names them, every time;
nothing is overwritten.

Equal ends do not rule out an earlier loss: a power failure may lose pages of a file whose later pages were written. The
master's start covers such a range with a filler and names it (frames.py). If this log has the true bytes, it does not
join either, because it may be the only one that has these messages: once the last records have been found equal, it
offers them, and the master takes them, or closes the connection. If this log has a filler there, too, the range is
fetched again after joining (repair.py). The ranges that the master names are recorded
(store/recovery/filled_ranges.py), because this log is, or will be, a copy with these fillers.

**An empty log** reports 0 and gets the master's last file, or the offset that `FirstOffset` chooses. Once it has a
record it connects again, to hear of fillers.

**Everything else** is handled by ReplicaAppender: a frame must begin where this log ends, and only complete verified
records count.

Source:
    store/ha/DefaultHAClient.java.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from maxq.config.message_store_config import MessageStoreConfig
from maxq.errors import ReplicationDivergedError, ReplicationGapError
from maxq.replication.ha.flow_monitor import FlowMonitor
from maxq.replication.ha.frames import TransferParser, encode_offer, encode_report, encode_request, joint_offset
from maxq.replication.ha.ha_connection import HAConnectionState
from maxq.store.recovery.filled_ranges import FilledRange

log = logging.getLogger(__name__)


class ReplicaRanges(Protocol):
    """The part of FilledRanges that a slave uses."""

    as_on_master: frozenset[tuple[int, int]]

    def contradicting(self, named: Sequence[FilledRange]) -> list[FilledRange]:
        """Return those of the master's ranges in which this log has other bytes, and more than a filler of its own."""
        ...

    async def hold_last_places(self, ranges: Sequence[FilledRange]) -> bool:
        """Return whether this log has the last message of a queue in these ranges, whose place the master may have
        given to another message. Reads them, in turns of the loop."""
        ...

    def adopt(self, named: Sequence[FilledRange]) -> None:
        """Adopt the master's fillers: the log is a copy of the master's with them. Blocks if there is anything new;
        raises OSError."""
        ...


class ReplicaLog(Protocol):
    """The part of MessageStore that a slave writes to."""

    @property
    def filled_ranges(self) -> ReplicaRanges:
        """Damaged ranges of this log that recovery has replaced by fillers."""
        ...

    @property
    def last_record_offset(self) -> int:
        """Physical offset of the last record; -1 if there is none."""
        ...

    @property
    def max_physical_offset(self) -> int:
        """Physical offset at which the log ends: what the master must send next."""
        ...

    def log_bytes(self, offset: int, limit: int) -> memoryview | None:
        """At most `limit` bytes of the log from physical offset `offset` on, within one file; None if it has nothing
        there."""
        ...

    def append_from_master(self, physical_offset: int, data: memoryview) -> int:
        """Append the master's log from `physical_offset` on. Returns the end of the last verified record: what may be
        acknowledged. Raises ReplicationGapError, ReplicationDamageError, OSError."""
        ...

    def drop_pending(self) -> None:
        """Discard the part of a record that was received, because the link ended."""
        ...


class FirstOffset(Protocol):
    """Chooses the first report of a slave without a log (haFullCopy)."""

    async def choose(self) -> int:
        """Return the offset to report; called before connecting, while the log is empty."""
        ...

    def nothing_there(self, reported: int) -> bool:
        """Handle that a heartbeat came while the log is still empty. Returns True to connect again, when `choose` will
        return another offset."""
        ...


class HAClient:
    """The slave's side of a replication link. Times are monotonic ms.

    Attributes:
        reported_offset: what was reported last on this connection; -1 without one.
        received: bytes that came over the link.
        offered: what was offered to the master on this connection, in the words of the error that its end is then.
        is_joined: the master's log and this one were found to be one on this connection, or this one was empty.
        is_another: this log was found to be another than the master's on the last connection, or to be the master's;
            None: it was not found out.
        is_named: the master has said on the last connection that it is of this group.
        ahead_bytes: bytes at the end of this log that the master did not send on this connection although it is idle:
            its log ends before, or these bytes were deleted there.
    """

    def __init__(
        self,
        replica: ReplicaLog,
        config: Callable[[], MessageStoreConfig],
        first_offset: FirstOffset | None,
        now_ms: int,
        *,
        own_port: Callable[[], int],
        broker_name: str,
    ) -> None:
        """`own_port` is the port on which this broker listens for slaves; `broker_name` is its name, which is also its
        master's."""
        self._log = replica
        self._own_port = own_port
        self._broker_name = broker_name
        self._contradiction: ReplicationDivergedError | None = None
        self._contradicting: list[FilledRange] = []
        # the master's offer, the end of this log at that time, the result
        self._compared: tuple[list[FilledRange], int, bool] | None = None
        self._config = config
        self._first_offset = first_offset
        self._parser = TransferParser()
        self._position = 0  # while joining: physical offset of the master's next byte
        self.is_joined = False
        self.is_another: bool | None = None
        self.is_named = False
        self._begins_empty = False
        self.state = HAConnectionState.READY
        self.reported_offset = -1
        self.offered: ReplicationDivergedError | None = None
        self.ahead_bytes = 0
        self.last_read_ms = now_ms
        self.last_write_ms = now_ms
        self.received = FlowMonitor(now_ms)

    async def request_offset(self) -> int:
        """Return the offset of the first report on the next connection."""
        last_record = self._log.last_record_offset
        if last_record >= 0:
            return joint_offset(last_record)
        return await self._first_offset.choose() if self._first_offset is not None else 0

    def on_connected(self, request_offset: int, now_ms: int) -> bytes:
        """Note a new connection. Returns the bytes to send first."""
        self._parser = TransferParser()
        self._position = request_offset
        self.is_joined = self._begins_empty = self._log.last_record_offset < 0
        self.is_another, self.is_named = False if self.is_joined else None, False
        self._log.filled_ranges.as_on_master = frozenset()
        self._contradiction = self.offered = None
        self.ahead_bytes = 0
        self.state = HAConnectionState.TRANSFER
        self.last_read_ms = now_ms
        self._report(request_offset, now_ms)
        return encode_request(request_offset)

    def on_closed(self) -> None:
        """Note that the connection ended; the incomplete record received last is discarded."""
        self._log.drop_pending()
        self.reported_offset = -1
        self.is_joined = False
        if self.state is not HAConnectionState.SHUTDOWN:
            self.state = HAConnectionState.READY

    def receive_data(self, data: memoryview, now_ms: int) -> bool:
        """Process received bytes; `take_report` returns the report that follows from them. `data` is changed in place
        (TransferParser.receive_runs).

        Returns:
            False: nothing will come on this connection, make a new one.

        Raises:
            ReplicationGapError, ReplicationDamageError, ReplicationDivergedError: the logs do not fit, or these are not
            records.
            RemoteProtocolError: these are not frames.
            OSError: the disk has no room.
        """
        self.last_read_ms = now_ms
        self.received.count(len(data), now_ms)
        pieces = self._parser.receive_runs(data)
        self._hear_name(self._parser.take_name())
        self._hear_of_filled(self._parser.take_filled_ranges())
        for offset, piece in pieces:
            if self._contradiction is not None and self._position >= self._log.max_physical_offset:
                break  # this slave waits for the master's answer to its offer
            if not len(piece) and self._is_refused_start():
                return False
            if self.is_joined:
                self._log.append_from_master(offset, piece)
            else:
                self._join(offset, piece)
        return not (self._begins_empty and self._log.last_record_offset >= 0)

    def _hear_name(self, name: str) -> None:
        self.is_named = self.is_named or name == self._broker_name
        if name and name != self._broker_name:
            raise ReplicationDivergedError(
                f"the master calls itself {name}, this slave is {self._broker_name}: a slave has the brokerName of its "
                "master. Set brokerName, or let haMasterAddress lead to another master; nothing was copied",
                physical_offset=self._log.max_physical_offset,
            )

    def _hear_of_filled(self, named: list[FilledRange]) -> None:
        if not named:
            return
        contradicting = self._log.filled_ranges.contradicting(named)
        if not contradicting:
            self._log.filled_ranges.adopt(named)
            return
        first = contradicting[0]
        self._contradicting = contradicting
        self._contradiction = ReplicationDivergedError(
            f"the master has lost bytes {first.start} … {first.end} of its log, which this slave has, and went on "
            f"without them ({len(contradicting)} such ranges). They are offered to it. If it cannot use them any more, "
            "make this slave the master, or keep what is needed of its store, empty it and start it again",
            physical_offset=first.start,
        )

    def _is_refused_start(self) -> bool:
        if self._first_offset is None or self._log.max_physical_offset:
            return False
        return self._first_offset.nothing_there(self.reported_offset)

    def _join(self, offset: int, piece: memoryview) -> None:
        """Compare `piece` with this log, and append the part beyond its end."""
        end = self._log.max_physical_offset
        if offset != self._position:
            raise ReplicationGapError(
                f"the master sent its log from physical offset {offset}, asked for was {self._position}; this slave's "
                f"ends at {end}",
                expected=self._position,
                received=offset,
            )
        if not len(piece):
            self._note_ahead(end)
        while len(piece) and self._position < end:
            own = self._log.log_bytes(self._position, min(len(piece), end - self._position))
            if own is None or own != piece[: len(own)]:
                self.is_another = own is not None or self.is_another
                raise ReplicationDivergedError(
                    f"the master has other bytes than this slave at physical offset {self._position} and behind; this "
                    f"slave's log ends at {end}. The master lost its end and went on without it, or this slave belongs "
                    "to another. Keep what is needed of this slave's store, then empty it and start it again",
                    physical_offset=self._position,
                )
            self._position += len(own)
            piece = piece[len(own) :]
        if self._position == end and self._contradiction is None:
            self.is_joined, self.is_another = True, False
            self.ahead_bytes = 0
            if len(piece):
                self._log.append_from_master(self._position, piece)

    def _note_ahead(self, end: int) -> None:
        ahead = end - self._position
        if ahead and not self.ahead_bytes:
            log.error(
                "this slave's log ends at %d, its idle master sends nothing from %d on: the master has lost its end, "
                "or deleted what this slave asks for; nothing is acknowledged", end, self._position,
            )  # fmt: skip
        self.ahead_bytes = ahead

    def take_report(self, now_ms: int) -> bytes:
        """Return the report of appended data, or an offer; empty if there is neither."""
        if self._contradiction is not None:
            if self.offered is not None or self._position < self._log.max_physical_offset:
                return b""
            self.offered = self._contradiction
            return encode_offer(self._own_port())
        if not self.is_joined:
            return b""
        offset = self._log.max_physical_offset
        return self._report(offset, now_ms) if offset > self.reported_offset else b""

    async def compare_offered(self) -> None:
        """Find out after an offer whether this log differs from the master's: it does if the master may have given the
        places of offered messages to others. The same offer is examined once."""
        if self.offered is None:
            return
        offer, end = self._contradicting, self._log.max_physical_offset
        if self._compared is None or self._compared[:2] != (offer, end):
            self._compared = offer, end, await self._log.filled_ranges.hold_last_places(offer)
        self.is_another = self._compared[2]

    def heartbeat(self, now_ms: int) -> bytes:
        """Return the last report again if nothing was sent for haSendHeartbeatInterval; a report of offset 0 while the
        logs are compared."""
        if self.reported_offset < 0 or now_ms - self.last_write_ms < self._config().ha_send_heartbeat_interval:
            return b""
        return self._report(self.reported_offset if self.is_joined else 0, now_ms)

    def _report(self, offset: int, now_ms: int) -> bytes:
        self.reported_offset = offset
        self.last_write_ms = now_ms
        return encode_report(offset)

    def is_silent(self, now_ms: int) -> bool:
        """Return whether nothing was read for haHousekeepingInterval, so that the connection is to be closed."""
        return now_ms - self.last_read_ms > self._config().ha_housekeeping_interval

    def next_deadline_ms(self) -> int:
        """Return when `heartbeat` or `is_silent` must be called again."""
        config = self._config()
        silent = self.last_read_ms + config.ha_housekeeping_interval + 1
        return min(silent, self.last_write_ms + config.ha_send_heartbeat_interval)
