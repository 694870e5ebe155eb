"""Written by `python -m tests.unit.compiled_stubs`; see frame_scanner_cy.py."""

class FrameScanner:
    signed: bool
    content: bytearray

class AnswerScanner(FrameScanner): ...

class OneFrameScanner(FrameScanner):
    access_key: bytes
    signature: bytes
    signed_content: bytes
    def __init__(self) -> None: ...
    def expect_signatures(self) -> None: ...
    def scan(self, buffer: bytearray | memoryview, start: int, end: int) -> int: ...
