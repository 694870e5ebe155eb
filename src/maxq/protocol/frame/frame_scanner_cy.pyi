"""Typed face of what compiled scanners have in common. See frame_scanner_cy.py."""

class OneFrameScanner:
    """Reads the one frame at a place."""

    access_key: bytes  # these three after `expect_signatures` only
    signature: bytes
    signed_content: bytes  # the values it was signed for
    def __init__(self) -> None: ...
    def expect_signatures(self) -> None:
        """Keep from now on what requests were signed with. Nothing is judged here."""

    def scan(self, buffer: bytearray | memoryview, start: int, end: int) -> int:
        """Read the frame at `start`; the position behind it, or `start` if it is incomplete or none of ours."""
