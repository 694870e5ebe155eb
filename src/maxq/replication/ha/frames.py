"""Bytes of the classic HA link, sans-IO.

    slave → master   report     i64 offset                          8 bytes
    master → slave   transfer   i64 offset, i32 size, size bytes    12 + size bytes; size 0: a heartbeat

A report is the physical offset the slave's log has reached; its first one on a connection is where it wants the
master to start. A transfer's offset is where its bytes belong. Nothing else is ever said.

Source:
    store/ha/DefaultHAConnection.java, DefaultHAClient.java; ha.md §2, §11.
"""

import struct

from maxq.errors import RemoteProtocolError

REPORT = struct.Struct(">q")
HEAD = struct.Struct(">qi")


def encode_report(offset: int) -> bytes:
    """What a slave says: its log has reached `offset`."""
    return REPORT.pack(offset)


def encode_head(offset: int, size: int) -> bytes:
    """The head before `size` bytes of log from physical offset `offset` on; size 0 is a heartbeat."""
    return HEAD.pack(offset, size)


class ReportParser:
    """A master's ear: of all whole reports of an arrival, the newest counts."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def receive_data(self, data: bytes) -> int | None:
        """The newest report that is whole now; None if there is none.

        Raises:
            RemoteProtocolError: a negative offset, which no slave reports.
        """
        if self._rest:
            data = self._rest + data
        end = len(data) - len(data) % REPORT.size
        self._rest = data[end:]
        if not end:
            return None
        offset: int = REPORT.unpack_from(data, end - REPORT.size)[0]
        if offset < 0:
            raise RemoteProtocolError(f"a slave reported offset {offset}; offsets are not negative")
        return offset


class TransferParser:
    """A slave's ear: transfer frames, taken apart as they come. Bodies are not collected: their pieces are slices of
    what was received."""

    __slots__ = ("_head", "_left", "_offset")

    def __init__(self) -> None:
        self._head = b""
        self._offset = 0  # of the next byte of the body
        self._left = 0  # bytes of the body still to come

    def receive_data(self, data: memoryview) -> list[tuple[int, memoryview]]:
        """(physical offset, bytes) of each piece of a body in `data`, in order; a heartbeat is a piece without bytes.

        Raises:
            RemoteProtocolError: a negative offset or size.
        """
        return [(offset, data[start:stop]) for offset, start, stop in self._cut(data)]

    def receive_runs(self, data: memoryview) -> list[tuple[int, memoryview]]:
        """As `receive_data`, but bodies that follow each other are one piece: they are moved together within `data`,
        over the heads between them. An arrival of many frames so costs one append."""
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
        """(physical offset, start, stop) of each piece in `data`."""
        pieces: list[tuple[int, int, int]] = []
        position, end = 0, len(data)
        while position < end:
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
            if self._offset < 0 or self._left < 0:
                raise RemoteProtocolError(f"a transfer of {self._left} bytes at offset {self._offset}: no such frame")
            if not self._left:
                pieces.append((self._offset, position, position))
        return pieces
