"""Written by `python -m tests.unit.compiled_stubs`; see request_scanners_cy.py."""

from maxq.protocol.frame.frame_scanner_cy import OneFrameScanner

PULL_KEY_FIELDS: tuple[str, ...]

class PullScanner(OneFrameScanner):
    key: bytes
    code: int
    opaque: int
    queue_offset: int
    commit_offset: int
    binary: bool
    def __init__(self) -> None: ...

class EndScanner(OneFrameScanner):
    commit_or_rollback: int
    commit_log_offset: int
    tran_state_table_offset: int
    producer_group: bytes
    topic: bytes
    msg_id: bytes
    def __init__(self) -> None: ...

class SendBackScanner(OneFrameScanner):
    group: bytes
    offset: int
    origin: bytes
    delay_level: int
    most_times: int
    unit_mode: bool
    version: int
    opaque: int
    binary: bool
    def __init__(self) -> None: ...
