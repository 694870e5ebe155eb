"""Outcomes of the store's calls: values, not exceptions."""

import zlib
from dataclasses import field
from enum import Enum, auto
from typing import Final, NamedTuple

from maxq.lazy_dataclass import dataclass
from maxq.runtime.interfaces import MappedRegion


class PutMessageStatus(Enum):
    """The values of PutMessageStatus.java that the store returns."""

    PUT_OK = auto()
    FLUSH_DISK_TIMEOUT = auto()
    SERVICE_NOT_AVAILABLE = auto()
    CREATE_MAPPED_FILE_FAILED = auto()
    MESSAGE_ILLEGAL = auto()
    PROPERTIES_SIZE_EXCEEDED = auto()
    OS_PAGE_CACHE_BUSY = auto()
    UNKNOWN_ERROR = auto()
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = auto()
    PUT_TO_REMOTE_BROKER_FAIL = auto()
    NO_REMOTE_BROKER_TAKES_IT = auto()  # MaxQ's own: no other group has the topic, or it refuses this message
    QUEUE_HAS_MOVED = auto()  # MaxQ's own: the group that leads the queue of the static topic does not accept it now


@dataclass(slots=True)
class PutMessageResult:
    """Outcome of a put.

    Attributes:
        physical_offset, size: of the record, or of all records of a batch together; bytes.
        end_offset: physical_offset + size: wait for it with `MessageStore.durable`.
        queue_offset: of the (first) message.
        msg_id: offset id; ids of a batch joined with commas.
        message_count: messages stored.
        remark: if it was refused: cause, measured value, limit, remedy.
    """

    status: PutMessageStatus
    physical_offset: int = -1
    end_offset: int = -1
    size: int = 0
    queue_offset: int = -1
    store_timestamp: int = 0
    msg_id: str = ""
    message_count: int = 0
    remark: str = ""

    @property
    def ok(self) -> bool:
        return self.status is PutMessageStatus.PUT_OK


class GetMessageStatus(Enum):
    """The outcome of a read from a queue, with the values of GetMessageStatus.java."""

    FOUND = auto()
    NO_MATCHED_MESSAGE = auto()
    MESSAGE_WAS_REMOVING = auto()
    OFFSET_FOUND_NULL = auto()
    OFFSET_OVERFLOW_BADLY = auto()
    OFFSET_OVERFLOW_ONE = auto()
    OFFSET_TOO_SMALL = auto()
    NO_MATCHED_LOGIC_QUEUE = auto()
    NO_MESSAGE_IN_QUEUE = auto()


class ColdPart(NamedTuple):
    """Bytes [start, end) of a mapped file."""

    region: MappedRegion
    start: int
    end: int


#: BulkRead.omit: see there; smaller values are gather_cy's.
OMIT_RECORDS: Final = 3


class BulkRead(NamedTuple):
    """Options of a bulk reader, which may leave out parts of each record (an extension of MaxQ's).

    Attributes:
        max_bytes: of the answer; counts in place of the limits that a reader without it has.
        omit: what is left out of each record (gather_cy.OMIT_…); OMIT_RECORDS: all of it, only places are told.
    """

    max_bytes: int
    omit: int = 0


@dataclass(slots=True)
class GetMessageResult:
    """Outcome of a pull.

    Attributes:
        buffers: slices of the mapped log: whole records, neighbours joined. They keep their file's mapping alive.
        total_bytes: sum of the buffers.
        next_begin_offset: queue offset to ask for next.
        suggest_pulling_from_slave: what was read lies so far back that it is not in memory.
        last_physical_offset: of the last unit examined; 0 if none was.
        cold: parts of files that are not in memory: bring them in (`bring_in`), off the loop, before they are sent.
        chunk: the part of the log around all of `cold`, which others will come to as well: it is brought in in place of
            `cold`. None if only `cold` is.
        must_read_first: nothing was examined, for the properties to be tested are in `cold`: bring it in, ask again.
        filtered_count: messages whose properties were tested and did not match.
        passed_over: queue offsets of units that point to no whole record, of those that were to be taken; of a bulk
            pull also the places of damaged messages, whatever its filter. In no order.
    """

    status: GetMessageStatus
    buffers: list[memoryview] = field(default_factory=list)
    message_count: int = 0
    total_bytes: int = 0
    next_begin_offset: int = 0
    min_offset: int = 0
    max_offset: int = 0
    suggest_pulling_from_slave: bool = False
    last_physical_offset: int = 0
    cold: list[ColdPart] = field(default_factory=list)
    chunk: ColdPart | None = None
    must_read_first: bool = False
    filtered_count: int = 0
    passed_over: list[int] = field(default_factory=list)

    def bring_in(self) -> None:
        """Load all parts into memory. Of a chunk that cannot be read as a whole, only the parts. Blocks.

        Raises:
            OSError: the device cannot read it.
        """
        for part in () if self.chunk is not None and _is_loaded(self.chunk) else self.cold:
            part.region.load(part.start, part.end)
        for view in self.buffers:  # for kernels that cannot load pages by a call; other threads run meanwhile
            zlib.crc32(view)


def _is_loaded(part: ColdPart) -> bool:
    """Load the part into memory. Returns whether the device could read all of it. Blocks."""
    try:
        part.region.load(part.start, part.end)
    except OSError:
        return False
    return True


@dataclass(slots=True)
class QueryMessageResult:
    """Records found by key: slices of the mapped log, and how far the index reaches."""

    buffers: list[memoryview] = field(default_factory=list)
    index_last_update_timestamp: int = 0
    index_last_update_physical_offset: int = 0

    @property
    def total_bytes(self) -> int:
        return sum(len(buffer) for buffer in self.buffers)
