"""Bytes of the classic HA link, sans-IO.

    slave → master   report     i64 offset                          8 bytes
    master → slave   transfer   i64 offset, i32 size, size bytes    12 + size bytes; size 0: a heartbeat

A report is the physical offset the slave's log has reached; its first one on a connection is where it wants the
master to start. A transfer's offset is where its bytes belong. Java never says anything else.

**Filled ranges**, between MaxQ brokers. A slave that has records asks first for the log from the magic code of its last
one on: `joint_offset`. No Java slave does, its reports are ends of records; so a master that finds there a magic code,
and behind it the offset of just this record (`is_joint`), speaks with a MaxQ slave that has the same record; so it does
when it is asked for everything, which is the log from byte 1 on.

**The name.** A MaxQ slave says its first report twice, in one write: masters take the newest report of an arrival, so
Java's, and MaxQ's of earlier versions, hear it once. To a MaxQ slave that did, and to no other, for those of earlier
versions would take it for no frame, the master says before anything else, in a transfer whose offset is -3, its
brokerName in UTF-8. A slave with another brokerName leaves: its log would be a copy under a name that is not its own.
A network may cut the one write, so a master that has heard the first half waits for the second for a moment; not if a
Java slave may have said it (HAConnection.is_of_maxq).

Then, if starts of that master, or of one before it, have put fillers into its log (store/recovery/filled_ranges.py), it
names them in a transfer whose offset is -2:

    i64 start, i64 end, u32 CRC-32 of the master's bytes there      for each

A Java master sends the log from any offset. A master with another record there says nothing of filled ranges, and need
not: its bytes differ from the first ones compared.

**Offers**, between MaxQ brokers: a slave that has found its last record equal and has the true bytes of a filled range
named to it says on which port it listens for slaves, as the report -2^62 + port. The master fetches the bytes there,
if it can still use them, and closes the connection in any case.

Source:
    store/ha/DefaultHAConnection.java, DefaultHAClient.java.
"""

import struct
from collections.abc import Sequence

from maxq.errors import RemoteProtocolError
from maxq.protocol.message.record_layout import MAGIC, MESSAGE_MAGICS, PHYSICAL_OFFSET
from maxq.store.recovery.filled_ranges import FilledRange

REPORT = struct.Struct(">q")
HEAD = struct.Struct(">qi")
FILLED_OFFSET = -2
NAME_OFFSET = -3
#: Bytes of a record from its magic code to the end of its physical offset.
JOINT_SIZE = 32
_FILLED = struct.Struct(">qqI")
_MOST_FILLED = 50_000
LONGEST_FILLED = _MOST_FILLED * _FILLED.size  # bytes
_LONGEST_NAME = 1 << 10  # bytes
_OFFER = -(1 << 62)


def encode_report(offset: int) -> bytes:
    """Encode a slave's report that its log has reached `offset`."""
    return REPORT.pack(offset)


def encode_request(offset: int) -> bytes:
    """Encode a slave's first message: the offset from which it asks for the log, and a request for the master's
    name."""
    return REPORT.pack(offset) * 2


def encode_head(offset: int, size: int) -> bytes:
    """Encode the head before `size` bytes of log from physical offset `offset` on; size 0 is a heartbeat."""
    return HEAD.pack(offset, size)


def encode_filled_ranges(filled: Sequence[FilledRange]) -> bytes:
    """Encode the transfer that names the filled ranges; of very many, the last ones."""
    body = b"".join(_FILLED.pack(*one) for one in filled[-_MOST_FILLED:])
    return HEAD.pack(FILLED_OFFSET, len(body)) + body


def encode_name(broker_name: str) -> bytes:
    """Encode the transfer that names the log's broker; empty for a name that is too long."""
    body = broker_name.encode()
    return HEAD.pack(NAME_OFFSET, len(body)) + body if 0 < len(body) <= _LONGEST_NAME else b""


def joint_offset(record_offset: int) -> int:
    """Return where a slave whose last record begins at `record_offset` asks its master to start."""
    return record_offset + MAGIC


def is_joint(offset: int, log: memoryview) -> bool:
    """Return whether `joint_offset` made `offset` from a record of this log. `log`: its bytes from `offset` on."""
    return (
        len(log) >= JOINT_SIZE
        and int.from_bytes(log[:4], "big") in MESSAGE_MAGICS
        and int.from_bytes(log[PHYSICAL_OFFSET - MAGIC : PHYSICAL_OFFSET - MAGIC + 8], "big") == offset - MAGIC
    )


def encode_offer(port: int) -> bytes:
    """Encode the offer of a slave that has bytes which its master lost."""
    return REPORT.pack(_OFFER + port)


class ReportParser:
    """Parses the reports of a slave to its master: of all complete reports of an arrival, the newest counts.

    Attributes:
        offered_port: the port of an offer that was heard; 0 if there was none.
        wants_name: the connection began with a report that was said twice at once (`encode_request`).
    """

    __slots__ = ("_has_begun", "_rest", "offered_port", "wants_name")

    def __init__(self) -> None:
        self._rest = b""
        self._has_begun = False
        self.offered_port = 0
        self.wants_name = False

    def receive_data(self, data: bytes) -> int | None:
        """Return the newest report that is complete now; None if there is none, or if an offer came.

        Raises:
            RemoteProtocolError: a negative offset, which no slave reports.
        """
        if self._rest:
            data = self._rest + data
        end = len(data) - len(data) % REPORT.size
        self._rest = data[end:]
        if not end:
            return None
        if not self._has_begun:
            self._has_begun = True
            self.wants_name = end >= 2 * REPORT.size and data[: REPORT.size] == data[REPORT.size : 2 * REPORT.size]
        for (value,) in REPORT.iter_unpack(memoryview(data)[:end]):
            if _OFFER < value < _OFFER + (1 << 16):
                self.offered_port = value - _OFFER
                return None
        offset: int = REPORT.unpack_from(data, end - REPORT.size)[0]
        if offset < 0:
            raise RemoteProtocolError(f"a slave reported offset {offset}; offsets are not negative")
        return offset


class TransferParser:
    """Splits received transfer frames on a slave. Bodies are not collected: their pieces are slices of the received
    bytes. Only the master's first messages are: its name and its filled ranges, see `take_name` and
    `take_filled_ranges`."""

    __slots__ = ("_expected", "_filled", "_head", "_left", "_name", "_notice", "_notice_left", "_offset")

    def __init__(self) -> None:
        self._head = b""
        # notices that may still come, once each, before the first part of the log
        self._expected = {NAME_OFFSET, FILLED_OFFSET}
        self._name = bytearray()
        self._filled = bytearray()
        self._notice = self._name  # the notice that is being received, one of these two
        self._notice_left = 0
        self._offset = 0  # offset of the next byte of the body
        self._left = 0  # bytes of the body still to come

    def take_name(self) -> str:
        """Return, once, the name that the master gave; empty if it gave none, or if not all of it has arrived.

        Raises:
            RemoteProtocolError: it is not UTF-8.
        """
        if not self._name or (self._notice is self._name and self._notice_left):
            return ""
        try:
            name = self._name.decode()
        except UnicodeDecodeError as error:
            raise RemoteProtocolError(f"the master's name is not UTF-8: {bytes(self._name[:99])!r}") from error
        self._name.clear()
        return name

    def take_filled_ranges(self) -> list[FilledRange]:
        """Return, once, the ranges that the master named before all pieces; empty if it named none, or if not all of it
        has arrived."""
        if not self._filled or (self._notice is self._filled and self._notice_left):
            return []
        ranges = [FilledRange(*fields) for fields in _FILLED.iter_unpack(self._filled)]
        self._filled.clear()
        if any(not 0 <= start < end for start, end, _ in ranges):
            raise RemoteProtocolError(f"the master names filled ranges that are no ranges: {ranges[:10]}")
        return ranges

    def receive_data(self, data: memoryview) -> list[tuple[int, memoryview]]:
        """Return (physical offset, bytes) of each piece of a body in `data`, in order; a heartbeat is a piece without
        bytes.

        Raises:
            RemoteProtocolError: a negative offset or size.
        """
        return [(offset, data[start:stop]) for offset, start, stop in self._cut(data)]

    def receive_runs(self, data: memoryview) -> list[tuple[int, memoryview]]:
        """Parse as `receive_data` does, but join consecutive bodies into one piece: they are moved together within
        `data`, over the heads between them. So an arrival of many frames costs one append."""
        runs: list[tuple[int, memoryview]] = []
        run_offset, run_start, run_stop = 0, 0, 0
        for offset, start, stop in self._cut(data):
            size = stop - start
            if size and run_stop > run_start and offset == run_offset + run_stop - run_start:
                if start != run_stop:
                    data[run_stop : run_stop + size] = data[start:stop]
                run_stop += size
                runs[-1] = run_offset, data[run_start:run_stop]
            else:
                run_offset, run_start, run_stop = offset, start, stop
                runs.append((offset, data[start:stop]))
        return runs

    def _cut(self, data: memoryview) -> list[tuple[int, int, int]]:
        """Return (physical offset, start, stop) of each piece in `data`."""
        pieces: list[tuple[int, int, int]] = []
        position, end = 0, len(data)
        while position < end:
            if self._notice_left:
                stop = min(position + self._notice_left, end)
                self._notice += data[position:stop]
                self._notice_left -= stop - position
                position = stop
                continue
            if self._left:
                stop = min(position + self._left, end)
                pieces.append((self._offset, position, stop))
                self._offset += stop - position
                self._left -= stop - position
                position = stop
                continue
            if not self._head and end - position >= HEAD.size:
                self._offset, self._left = HEAD.unpack_from(data, position)
                position += HEAD.size
            else:
                stop = min(position + HEAD.size - len(self._head), end)
                self._head += bytes(data[position:stop])
                position = stop
                if len(self._head) < HEAD.size:
                    break
                self._offset, self._left = HEAD.unpack(self._head)
                self._head = b""
            if self._expected:
                if self._begins_notice():
                    self._notice_left, self._left = self._left, 0
                    continue
                self._expected.clear()
            if self._offset < 0 or self._left < 0:
                raise RemoteProtocolError(f"a transfer of {self._left} bytes at offset {self._offset}: no such frame")
            if not self._left:
                pieces.append((self._offset, position, position))
        return pieces

    def _begins_notice(self) -> bool:
        size = self._left
        if self._offset not in self._expected:
            return False
        if self._offset == NAME_OFFSET:
            self._notice, is_right = self._name, 0 < size <= _LONGEST_NAME
        else:
            self._notice, is_right = self._filled, 0 < size <= LONGEST_FILLED and size % _FILLED.size == 0
        self._expected.discard(self._offset)
        return is_right
