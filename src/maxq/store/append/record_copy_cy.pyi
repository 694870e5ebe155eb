"""Written by `python -m tests.unit.compiled_stubs`; see record_copy_cy.py."""

class RecordCopy:
    topic: bytes
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_host: bytes
    reconsume_times: int
    body_crc: int
    body_start: int
    body_end: int
    real_topic: bytes
    real_queue_id: int
    retry_topic: bytes
    properties: bytes
    def __init__(self) -> None: ...
    def read(self, record: memoryview) -> bool: ...
    def sent_back(self, topic: bytes, queue_id: bytes, level: bytes, message_id: bytes) -> bytes: ...

def is_compiled() -> bool: ...
