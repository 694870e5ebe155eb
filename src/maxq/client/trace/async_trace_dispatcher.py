"""AsyncTraceDispatcher: takes trace records of one producer or consumer and sends them, in batches, in the background.

`append` costs a list append and never fails: when more wait than the limit, the newest is dropped and counted. Waiting
records are sent when a batch is full or 5 s have passed, in messages of the trace topic whose KEYS are ids and keys of
all records in them. A trace that cannot be sent is dropped, with one warning a minute: no send or consumption ever
waits for its trace.

Records come from wherever listeners run, threads included; sending is on the client's loop.

Source: apache/rocketmq client/trace/AsyncTraceDispatcher.java.
"""

import asyncio
import contextlib
import itertools
import logging
from collections import deque
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final

from maxq.client.client_config import ClientConfig, ClientEnvironment, ProducerConfig
from maxq.client.failures import Failures
from maxq.client.instance.mq_client import MQClientInstance
from maxq.client.producer.message_sender import MessageSender
from maxq.errors import LocalProtocolError, MaxQError
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import Message, UniqIdGenerator
from maxq.protocol.message.message_trace import TRACE_TOPIC, TraceRecord

log = logging.getLogger(__name__)

GROUP_PREFIX: Final = "_INNER_TRACE_PRODUCER"
WAITING_MAX: Final = 2_048  # most waiting groups of records: one for a send, a listener call or an end of a transaction
BATCH_MAX: Final = 20
FLUSH_INTERVAL_MS: Final = 5_000
MESSAGE_BYTES_MAX: Final = 128_000
KEYS_CHARS_MAX: Final = 16_000  # properties of a message hold 32 767 bytes, those of the broker included
SEND_TIMEOUT_MS: Final = 5_000
SHUTDOWN_WAIT_MS: Final = 5_000
_WARN_INTERVAL_MS: Final = 60_000
_RETRIES: Final = 2

_numbers = itertools.count(1)


class TraceSide(Enum):
    """The kind of client whose records are sent (TraceDispatcher.Type)."""

    PRODUCE = "PRODUCE"
    CONSUME = "CONSUME"


class AsyncTraceDispatcher:
    """Collects the trace records of one client and sends them in the background.

    Args:
        config: `trace_topic`, `trace_msg_batch_num`, `namespace`.
        group: of the client, without a namespace.

    Attributes:
        sent, dropped: records.
    """

    def __init__(self, config: ClientConfig, group: str, side: TraceSide, environment: ClientEnvironment) -> None:
        self.topic = config.trace_topic or TRACE_TOPIC
        self.namespace = config.namespace
        self.sent = 0
        self.dropped = 0
        self.clock = environment.clock
        self._failures = Failures(config.on_failure, environment.clock)
        self._request_prefix = UniqIdGenerator(
            environment.pid, environment.host_ip, environment.clock, environment.rng
        ).next()[:-8]
        self._request_numbers = itertools.count(1)
        self._config = config
        self._batch_num = max(1, min(config.trace_msg_batch_num, BATCH_MAX))
        self._group = f"{GROUP_PREFIX}-{group}-{side.value}-{next(_numbers)}"
        self._waiting: deque[list[TraceRecord]] = deque()
        self._wanted = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._instance: MQClientInstance | None = None
        self._sender: MessageSender
        self._warned_ms: int | None = None

    # --- life ---

    def start(self, instance: MQClientInstance) -> None:
        """Send records through a running client instance."""
        config = ProducerConfig(
            producer_group=self._group,
            max_message_size=MESSAGE_BYTES_MAX * 2,
            serialize_type=self._config.serialize_type,
        )
        self._instance = instance
        self._sender = MessageSender(instance, config, self._group)
        instance.register_producer(self._group)
        self._loop = asyncio.get_running_loop()
        self._wanted = asyncio.Event()  # a new one for this event loop: a client may be restarted on another
        self._task = asyncio.create_task(self._run(), name=f"maxq-trace-{self._group}")

    async def shutdown(self) -> None:
        """Send the records that wait, for five seconds at most."""
        task, self._task = self._task, None
        if task is None or self._instance is None:
            return
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SHUTDOWN_WAIT_MS / 1000):
                await self._flush()
        self._drop(list(self._waiting), "the client was shut down before they could be sent")
        self._waiting.clear()
        await self._instance.unregister_producer(self._group)

    # --- records ---

    def request_id(self) -> str:
        """Return a new id that joins a SubBefore and its SubAfter. Any thread may call this."""
        return f"{self._request_prefix}{next(self._request_numbers) & 0xFFFF_FFFF:08X}"

    def is_traced(self, topic: str) -> bool:
        """Return whether events of a topic are traced. Those of the trace topic are not, because tracing them would
        never end."""
        return not topic.startswith(self.topic)

    def append(self, records: list[TraceRecord]) -> None:
        """Add the records of one event. Any thread may call this."""
        waiting = self._waiting
        if len(waiting) >= WAITING_MAX:
            self.dropped += len(records)
            return
        waiting.append(records)
        if len(waiting) % self._batch_num == 0 and (loop := self._loop) is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._wanted.set)

    # --- sending ---

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_INTERVAL_MS / 1000):  # wait_for may lose a cancellation
                    await self._wanted.wait()
            self._wanted.clear()
            await self._flush()

    async def _flush(self) -> None:
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(self._batch_num, len(self._waiting)))]
            try:
                await asyncio.gather(*map(self._send, trace_messages(self.topic, self._encoded(batch))))
                self.sent += sum(map(len, batch))
            except asyncio.CancelledError:
                self._waiting.extendleft(reversed(batch))
                raise
            except MaxQError as error:
                self._drop(batch, str(error))
            except Exception as error:
                self._failures.report(error, "sending traces to topic %s", self.topic)
                self._drop(batch, repr(error))

    def _encoded(self, batch: list[list[TraceRecord]]) -> Iterator[tuple[TraceRecord, str]]:
        for records in batch:
            for record in records:
                try:
                    yield record, record.encode()
                except LocalProtocolError as error:
                    self._drop([[record]], str(error))

    async def _send(self, message: Message) -> None:
        await self._sender.send(self._sender.preparer.prepare(message), SEND_TIMEOUT_MS, _RETRIES)

    def _drop(self, batch: list[list[TraceRecord]], why: str) -> None:
        count = sum(map(len, batch))
        if not count:
            return
        self.dropped += count
        now_ms = self.clock.monotonic_ms()
        if self._warned_ms is None or now_ms - self._warned_ms >= _WARN_INTERVAL_MS:
            self._warned_ms = now_ms
            log.warning(
                "%d trace records could not be sent to topic %s, %d in all: %s; does the topic exist "
                "(traceTopicEnable=true at the broker, or maxq admin updateTopic)?",
                count, self.topic, self.dropped, why,
            )  # fmt: skip


def trace_messages(topic: str, records: Iterable[tuple[TraceRecord, str]]) -> list[Message]:
    """Make messages of the trace topic from encoded records, bounded in bytes and keys.

    KEYS are the ids and keys of the records, of a batch both the joined id, by which Java's tools ask, and each single
    one as far as there is room.
    """
    messages: list[Message] = []
    texts: list[str] = []
    keys: dict[str, None] = {}
    size = key_chars = 0
    for record, text in records:
        own = _keys_of(record)
        added = sum(len(key) + 1 for key in own if key not in keys)
        if texts and (size + len(text) > MESSAGE_BYTES_MAX or key_chars + added > KEYS_CHARS_MAX):
            messages.append(_message(topic, texts, keys))
            texts, keys, size, key_chars = [], {}, 0, 0
        texts.append(text)
        size += len(text.encode())
        for key in own:
            if key not in keys and key_chars + len(key) + 1 <= KEYS_CHARS_MAX:
                keys[key] = None
                key_chars += len(key) + 1
    if texts:
        messages.append(_message(topic, texts, keys))
    return messages


def _keys_of(record: TraceRecord) -> list[str]:
    ids = record.msg_ids
    joined = [record.msg_id] if record.msg_id and len(ids) > 1 else []
    return [*joined, *ids, *(record.keys or "").split(const.KEY_SEPARATOR)]


def _message(topic: str, texts: list[str], keys: Iterable[str]) -> Message:
    text = const.KEY_SEPARATOR.join(key for key in keys if key)
    return Message(topic, "".join(texts).encode(), {const.PROPERTY_KEYS: text} if text else {})
