"""Written by `python -m tests.unit.compiled_stubs`; see pull_answers_cy.py."""

from maxq.protocol.frame.frame_scanner_cy import AnswerScanner
from maxq.remoting.connection import Connection

class PullAnswerReader(AnswerScanner):
    def __init__(self, stream_type: type) -> None: ...
    def take(self, connection: Connection, buffer: bytearray | memoryview, start: int, end: int) -> int: ...
