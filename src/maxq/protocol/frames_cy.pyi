"""Typed face of the compiled send path's codec. See frames_cy.py."""

from array import array

ROW_WIDTH: int

class SendScanner:
    """Reads the leading run of plain sends of a receive buffer into rows (columns: store/log_cy, R_…)."""

    rows: array[int]
    scratch: bytearray
    count: int  # rows of the last scan
    def __init__(self, frame_limit: int, capacity: int = 1024, scratch_size: int = 262144) -> None:
        """frame_limit: longest whole frame, bytes."""
    def scan(self, buffer: bytearray | memoryview, start: int, end: int) -> int:
        """Fill rows from frames in buffer[start:end]; returns the position after the last frame taken. It stops at the
        first frame that is incomplete, too long, no send, or not plain: RemotingCommand's codec has the last word."""

#: Header fields of a pull that make its key, in order.
PULL_KEY_FIELDS: tuple[str, ...]

class PullScanner:
    """Reads one pull (11 or 361). `key`: the fields a reader repeats from pull to pull, in PULL_KEY_FIELDS order, each
    followed by a zero byte; the rest is what differs. Pulls with other fields, and one-way ones, are not taken."""

    key: bytes
    code: int
    opaque: int
    queue_offset: int
    commit_offset: int
    binary: bool
    def __init__(self) -> None: ...
    def scan(self, buffer: bytearray | memoryview, start: int, end: int) -> int:
        """Read the frame at `start`; the position behind it, or `start` if it is incomplete or not such a pull."""

def encode_replies(
    rows: array[int],
    first: int,
    count: int,
    source: bytearray | memoryview,
    scratch: bytearray,
    store_host: bytes,
    region: bytes,
    trace_on: bytes,
    language: int,
    version: int,
    log: memoryview,
    file_from_offset: int,
    code: int,
    out: bytearray,
) -> int:
    """Append the answers to appended rows (not to one-way ones) to `out`; returns how many bytes were written.
    `log` is the file that holds the rows' records (the ids of a batch are read off it)."""

def is_compiled() -> bool: ...
