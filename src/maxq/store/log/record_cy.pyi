"""Written by `python -m tests.unit.compiled_stubs`; see record_cy.py."""

from typing import Any

SCAN_WIDTH: int
C_POSITION: int
C_SIZE: int
C_PHYSICAL_OFFSET: int
C_QUEUE_ID: int
C_QUEUE_OFFSET: int
C_SYS_FLAG: int
C_FLAG: int
C_BORN_TIMESTAMP: int
C_STORE_TIMESTAMP: int
C_RECONSUME_TIMES: int
C_PREPARED_OFFSET: int
C_BODY_CRC: int
C_BODY_POSITION: int
C_BODY_SIZE: int
C_TOPIC_POSITION: int
C_TOPIC_SIZE: int
C_PROPERTIES_POSITION: int
C_PROPERTIES_SIZE: int
C_BORN_HOST_POSITION: int
C_STORE_HOST_POSITION: int
STOP_ROWS_FULL: int
STOP_END: int
STOP_BLANK: int
STOP_ZERO: int
STOP_BAD_MAGIC: int
STOP_BAD_SIZE: int
STOP_BAD_CRC: int
STOP_BAD_OFFSET: int
PROP_CRC_SIZE: int

def renew_prop_crc(record: memoryview) -> None: ...
def encode_prop_crc(value: int) -> bytes: ...
def scan(
    view: memoryview,
    start: int,
    end: int,
    file_from_offset: int,
    rows: Any,
    *,
    check_crc: bool = True,
    check_prop_crc: bool = False,
    check_offset: bool = True,
) -> tuple[int, int, int]: ...
def find_record(view: memoryview, start: int, end: int, file_from_offset: int) -> int: ...
def check_chain(view: memoryview, start: int, end: int) -> bool: ...
def cut(
    view: memoryview, file_from_offset: int, end_offset: int, ranges: list[tuple[int, int]]
) -> list[memoryview] | None: ...
def crc31(data: bytes | bytearray | memoryview) -> int: ...
def is_compiled() -> bool: ...
