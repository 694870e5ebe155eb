"""Written by `python -m tests.unit.compiled_stubs`; see log_cy.py."""

from maxq.store.log.tails_cy import TopicWriteState

class LogTail:
    wrote_position: int
    file_from_offset: int
    file_size: int
    full: bool
    head: int
    next_index: int
    term: int
    final_topic: TopicWriteState | None
    def __init__(self) -> None: ...
    def attach(self, view: memoryview | None, file_from_offset: int, file_size: int, position: int) -> None: ...
    @property
    def max_offset(self) -> int: ...
    def forget_topic(self) -> None: ...
    def close_file(self) -> None: ...
    def append_entry(self, body: bytes | memoryview) -> int: ...
    def append_record(
        self,
        topic: bytes,
        queue_id: int,
        flag: int,
        queue_offset: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        store_timestamp: int,
        store_host: bytes,
        reconsume_times: int,
        prepared_transaction_offset: int,
        body: bytes | memoryview,
        properties: bytes,
        body_crc: int,
        append_prop_crc: bool,
    ) -> int: ...

def is_compiled() -> bool: ...
