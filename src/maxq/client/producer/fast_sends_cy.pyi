"""Written by `python -m tests.unit.compiled_stubs`; see fast_sends_cy.py."""

import asyncio
from collections.abc import Callable
from typing import Any

from maxq.client.client_config import ProducerConfig
from maxq.client.instance.mq_client import MQClientInstance
from maxq.client.results.send_result import SendResult, SendWaiter
from maxq.protocol.frame.frame_scanner_cy import AnswerScanner
from maxq.protocol.message.message import Message
from maxq.protocol.message.message_id import UniqIdGenerator
from maxq.protocol.message.message_queue import MessageQueue
from maxq.remoting.connection import Connection

TIME_MARK: str
TEXT_MARK: str
OPAQUE_MARK: int

class QueueTarget:
    queue: MessageQueue
    def __init__(self, queue: MessageQueue, line: Line, header: bytes) -> None: ...

class Line:
    address: str
    connection: Connection | None
    waiters: dict[int, Any]
    def __init__(self, address: str) -> None: ...
    def flush(self) -> None: ...

class PendingSend:
    topic: str
    msg_id: str
    body: bytes | memoryview
    target: QueueTarget
    born_ms: int
    deadline_ms: int
    timeout_ms: int
    place: int
    is_batch: bool
    future: asyncio.Future[SendResult | None]
    error: Exception | None
    connection: Connection
    arrivals: int
    opaque: int
    def __init__(self) -> None: ...
    @property
    def text(self) -> bytes: ...
    @property
    def size(self) -> int: ...
    def expire(self) -> None: ...
    def forget(self) -> None: ...

class SendWindow:
    in_flight: int
    in_flight_bytes: int
    failures: list[BaseException]
    failed: list[PendingSend]
    def __init__(
        self, most: int, most_bytes: int, on_result: Callable[[int, SendResult], None], on_failure: Callable[[], object]
    ) -> None: ...
    @property
    def room(self) -> int: ...
    @property
    def is_full(self) -> bool: ...
    def fits(self, size: int) -> bool: ...
    def add(self, size: int) -> None: ...
    def end(self, size: int, place: int, result: SendResult | None) -> None: ...
    def wait(self, loop: asyncio.AbstractEventLoop, wake_at: int) -> asyncio.Future[None]: ...

class FastSends:
    sender: Any
    remoting: Any
    def __init__(
        self,
        sender: Any,
        instance: MQClientInstance,
        config: ProducerConfig,
        loop: asyncio.AbstractEventLoop,
        ids: UniqIdGenerator,
    ) -> None: ...
    def post(
        self, message: Message, queue: MessageQueue | None, timeout_ms: int, waiter: SendWaiter | None = None
    ) -> PendingSend | None: ...
    def post_batch(
        self,
        messages: list[Message] | tuple[Message, ...],
        queue: MessageQueue | None,
        timeout_ms: int,
        waiter: SendWaiter | None = None,
    ) -> PendingSend | None: ...
    def post_encoded(
        self, name: str, body: bytes | memoryview, queue: MessageQueue | None, timeout_ms: int
    ) -> PendingSend | None: ...
    def post_many(self, numbered: list[tuple[int, Message]], window: SendWindow, timeout_ms: int) -> int: ...
    def close(self) -> None: ...

class SendAnswers(AnswerScanner):
    def __init__(self) -> None: ...
    def take(self, connection: Connection, buffer: bytearray | memoryview, start: int, end: int) -> int: ...

class ThreadSends(FastSends):
    is_receiving: bool
    def __init__(
        self,
        sender: Any,
        instance: MQClientInstance,
        config: ProducerConfig,
        loop: asyncio.AbstractEventLoop,
        ids: UniqIdGenerator,
    ) -> None: ...
    def post(
        self, message: Message, queue: MessageQueue | None, timeout_ms: int, waiter: SendWaiter | None = None
    ) -> PendingSend | None: ...
    def post_batch(
        self,
        messages: list[Message] | tuple[Message, ...],
        queue: MessageQueue | None,
        timeout_ms: int,
        waiter: SendWaiter | None = None,
    ) -> PendingSend | None: ...

def is_compiled() -> bool: ...
