"""What a slave knows of its link to the master, and what it says. Pure but for the log: bytes and times in, bytes out.

**Joining.** Offsets alone do not tell whether two logs are one: a master that lost its end in a power failure writes
other messages at the same offsets. So the first report of a connection asks for the last `JOINT_BYTES` of this log
again (any master sends from any offset but 0), and what comes is compared with what is there. Only then does this
slave's end count: until it is reached by equal bytes, the reports say how far they are equal. Different bytes end the
connection, by name, every time; nothing is overwritten.

**An empty log** reports 0 and gets the master's last file, or what `FirstOffset` chooses.

**Everything else** is ReplicaAppender's: a frame must begin where this log ends, and only whole verified records count.

Source:
    store/ha/DefaultHAClient.java; ha.md §4.
"""

import logging
from collections.abc import Callable
from typing import Protocol

from maxq.config.message_store_config import MessageStoreConfig
from maxq.errors import ReplicationDivergedError, ReplicationGapError
from maxq.replication.ha.flow_monitor import FlowMonitor
from maxq.replication.ha.frames import TransferParser, encode_report
from maxq.replication.ha.ha_connection import FROM_THE_BEGINNING, HAConnectionState

log = logging.getLogger(__name__)

#: So much of the end of this log is compared with the master's on each connection.
JOINT_BYTES = 4096


class ReplicaLog(Protocol):
    """The part of MessageStore that a slave writes to."""

    @property
    def min_physical_offset(self) -> int: ...

    @property
    def max_physical_offset(self) -> int: ...

    def log_bytes(self, offset: int, limit: int) -> memoryview | None: ...

    def append_from_master(self, physical_offset: int, data: memoryview) -> int: ...

    def drop_pending(self) -> None: ...


class FirstOffset(Protocol):
    """What a slave without a log reports first (haFullCopy)."""

    async def choose(self) -> int:
        """Asked before connecting, while the log is empty."""
        ...

    def nothing_there(self, reported: int) -> bool:
        """A heartbeat came while the log is still empty. True: connect again, `choose` will say something else."""
        ...


class HAClient:
    """One slave's side. Times are monotonic ms.

    Attributes:
        reported_offset: what was reported last on this connection; -1 without one.
        received: bytes that came over the link.
        ahead_bytes: bytes at the end of this log that the master did not send on this connection although it is idle:
            its log ends before, or these bytes were deleted there.
    """

    def __init__(
        self,
        replica: ReplicaLog,
        config: Callable[[], MessageStoreConfig],
        first_offset: FirstOffset | None,
        now_ms: int,
    ) -> None:
        self._log = replica
        self._config = config
        self._first_offset = first_offset
        self._parser = TransferParser()
        self._position = 0  # while joining: where the next byte of the master belongs
        self._is_joined = False
        self.state = HAConnectionState.READY
        self.reported_offset = -1
        self.ahead_bytes = 0
        self.last_read_ms = now_ms
        self.last_write_ms = now_ms
        self.received = FlowMonitor(now_ms)

    async def request_offset(self) -> int:
        """What the first report on the next connection says."""
        end = self._log.max_physical_offset
        if not end:
            return await self._first_offset.choose() if self._first_offset is not None else 0
        size = self._config().mapped_file_size_commit_log
        start_of_file = end - end % size  # a master deletes whole files: do not ask for more than the one needed
        return max(start_of_file, end - JOINT_BYTES, self._log.min_physical_offset, FROM_THE_BEGINNING)

    def on_connected(self, request_offset: int, now_ms: int) -> bytes:
        """A connection is there; the report to begin with."""
        self._parser = TransferParser()
        self._position = request_offset
        self._is_joined = request_offset >= self._log.max_physical_offset
        self.ahead_bytes = 0
        self.state = HAConnectionState.TRANSFER
        self.last_read_ms = now_ms
        return self._report(request_offset, now_ms)

    def on_closed(self) -> None:
        """The connection is gone, and with it the rest of a record that was not whole."""
        self._log.drop_pending()
        self.reported_offset = -1
        if self.state is not HAConnectionState.SHUTDOWN:
            self.state = HAConnectionState.READY

    def receive_data(self, data: memoryview, now_ms: int) -> bool:
        """Take what came; `take_report` then has something to say. `data` is changed (TransferParser.receive_runs).

        Returns:
            False: nothing will come on this connection, make a new one.

        Raises:
            ReplicationGapError, ReplicationDamageError, ReplicationDivergedError: the logs do not fit, or these are no
                records.
            RemoteProtocolError: these are no frames.
            OSError: the disk has no room.
        """
        self.last_read_ms = now_ms
        self.received.count(len(data), now_ms)
        for offset, piece in self._parser.receive_runs(data):
            if not len(piece) and self._is_refused_start():
                return False
            if self._is_joined:
                self._log.append_from_master(offset, piece)
            else:
                self._join(offset, piece)
        return True

    def _is_refused_start(self) -> bool:
        if self._first_offset is None or self._log.max_physical_offset:
            return False
        return self._first_offset.nothing_there(self.reported_offset)

    def _join(self, offset: int, piece: memoryview) -> None:
        """Compare `piece` with this log, and append what goes beyond it."""
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
                raise ReplicationDivergedError(
                    f"the master has other bytes than this slave at physical offset {self._position} and behind; this "
                    f"slave's log ends at {end}. The master lost its end and went on without it, or this slave belongs "
                    "to another. Keep what is needed of this slave's store, then empty it and start it again",
                    physical_offset=self._position,
                )
            self._position += len(own)
            piece = piece[len(own) :]
        if self._position == end:
            self._is_joined = True
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
        """The report of what became the log's; empty if nothing did."""
        offset = self._log.max_physical_offset if self._is_joined else self._position
        return self._report(offset, now_ms) if offset > self.reported_offset else b""

    def heartbeat(self, now_ms: int) -> bytes:
        """The last report again, if nothing was written for haSendHeartbeatInterval."""
        if self.reported_offset < 0 or now_ms - self.last_write_ms < self._config().ha_send_heartbeat_interval:
            return b""
        return self._report(self.reported_offset, now_ms)

    def _report(self, offset: int, now_ms: int) -> bytes:
        self.reported_offset = offset
        self.last_write_ms = now_ms
        return encode_report(offset)

    def is_silent(self, now_ms: int) -> bool:
        """Nothing was read for haHousekeepingInterval: the connection is to be closed."""
        return now_ms - self.last_read_ms > self._config().ha_housekeeping_interval

    def next_deadline_ms(self) -> int:
        """When `heartbeat` or `is_silent` may say something new."""
        config = self._config()
        silent = self.last_read_ms + config.ha_housekeeping_interval + 1
        return min(silent, self.last_write_ms + config.ha_send_heartbeat_interval)
