"""Typed face of the compiled reader of sends. See send_scanner_cy.py."""

from array import array

class SendScanner:
    """Reads the leading run of fast-path sends of a receive buffer into rows (columns: send_rows.py, R_…)."""

    rows: array[int]
    scratch: bytearray
    count: int  # rows of the last scan
    half_count: int  # … of them with F_HALF
    takes_halves: bool  # may a message that opens a transaction become a row? False at first
    signed: bool
    content: bytearray  # the values that the requests of the last scan were signed for
    signed_rows: array[int]  # what each row was signed with (columns S_…)
    def __init__(self, frame_limit: int, capacity: int = 1024, scratch_size: int = 262144) -> None:
        """frame_limit: longest whole frame, bytes."""
    def scan(self, buffer: bytearray | memoryview, start: int, end: int) -> int:
        """Fill rows from frames in buffer[start:end]; returns the position after the last frame taken. It stops at the
        first frame that is incomplete, too long, no send, or not plain: RemotingCommand's codec has the last word."""

    def expect_signatures(self) -> None:
        """Keep from now on what requests were signed with: `content` and `signed_rows`. Nothing is judged here. The
        fields of an AclClientRPCHook are taken either way."""

    def scan_arrivals(self, buffer: bytearray, table: array[int], count: int) -> None:
        """Rows of the leading fast-path sends of each of `count` arrivals (columns A_…), which lie in the buffer
        one behind the other; sets their columns A_TAKEN, A_FIRST and A_ROWS. Stops, in one arrival, also at a send
        that is one-way, does not wait (WAIT=false) or opens a transaction."""
