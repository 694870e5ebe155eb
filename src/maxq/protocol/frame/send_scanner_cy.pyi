"""Written by `python -m tests.unit.compiled_stubs`; see send_scanner_cy.py."""

from array import array

from maxq.protocol.frame.frame_scanner_cy import FrameScanner

class SendScanner(FrameScanner):
    rows: array[int]
    scratch: bytearray
    count: int
    takes_halves: bool
    half_count: int
    signed_rows: array[int]
    def __init__(self, frame_limit: int, capacity: int = 1024, scratch_size: int = 262144) -> None: ...
    def expect_signatures(self) -> None: ...
    def scan(self, buffer: bytearray | memoryview, start: int, end: int) -> int: ...
    def scan_arrivals(self, buffer: bytearray, table: array[int], count: int) -> None: ...
