"""Written by `python -m tests.unit.compiled_stubs`; see received_cy.py."""

from collections.abc import Callable, Container, Sequence

from maxq.protocol.message.message import MessageExt

class Pull:
    broker_name: str
    min_offset: int
    max_offset: int
    queue_id: int
    offset_delta: int
    def __init__(
        self,
        broker_name: str,
        min_offset: int,
        max_offset: int,
        queue_id: int = -1,
        offset_delta: int = 0,
        unwrap: Callable[[str], str] | None = None,
    ) -> None: ...

class Stored: ...

class LazyField:
    name: str
    def __init__(self, name: str, number: int) -> None: ...

class ReceivedMessage(MessageExt): ...

def stored_of(message: object) -> Stored | None: ...
def decode_property_text(data: bytes) -> dict[str, str]: ...

class PulledRecords:
    pull: Pull
    size: int
    count: int
    first_offset: int
    last_offset: int
    def __init__(self) -> None: ...
    def messages(self) -> list[MessageExt]: ...
    def split(self, count: int) -> tuple[PulledRecords, PulledRecords]: ...
    def data(self) -> bytes: ...

def read_records(
    data: bytes | bytearray | memoryview, pull: Pull, tags: Container[str] | None = None
) -> list[MessageExt] | None: ...
def keep_records(
    data: bytes | bytearray | memoryview, pull: Pull, tags: Container[str] | None = None, is_given: bool = False
) -> PulledRecords | None: ...
def mark_started(messages: Sequence[MessageExt], started: str) -> None: ...
def show_own_topics(messages: Sequence[MessageExt], retry_topic: str) -> None: ...
