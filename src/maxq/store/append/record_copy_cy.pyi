"""Typed face of the compiled copies of records. See record_copy_cy.py."""

class RecordCopy:
    """The parts of one record that its copies keep; one object is used for one record after the other.

    Attributes:
        topic: of the record.
        body_start, body_end: positions in the record.
        real_topic, real_queue_id: what REAL_TOPIC and REAL_QID say; empty and -1 if they are not there or say nothing.
        retry_topic: what RETRY_TOPIC says; empty if it is not there.
        properties: its property bytes, with a separator behind the last pair.
        The others are the record's fields, as they are.
    """

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
    def read(self, record: memoryview) -> bool:
        """Take what `record` says. False: leave it to the slow path; the attributes say nothing."""

    def sent_back(self, topic: bytes, queue_id: bytes, level: bytes, message_id: bytes) -> bytes:
        """The property bytes of its copy that waits in delay level `level` for queue `queue_id` (decimal numbers) of
        the retry topic `topic`.

        Args:
            message_id: of the record, for ORIGIN_MESSAGE_ID, if it has none yet.
        """

def is_compiled() -> bool: ...
