"""ProduceAccumulator: gathers messages that are sent one by one, at about the same time, into batches (`auto_batch`).

Messages that may share a request (one topic, one queue if the sender names one, one tag, one WAIT) wait up to
`batch_max_delay_ms` for each other; a batch that reaches `batch_max_bytes` goes at once. Each sender gets a result of
its own. Delayed, retried and transactional messages never wait, nor does anything while `total_batch_max_bytes` are
waiting already. A message whose send is cancelled while it waits is not sent; later it goes with the others of its
batch, as long as somebody waits for one of them.

Source:
    apache/rocketmq client/producer/{ProduceAccumulator,DefaultMQProducer}.java (canBatch, splitSendResults).
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from maxq.client.client_config import ProducerConfig
from maxq.client.results.send_result import SendResult
from maxq.errors import RemoteProtocolError
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import Message
from maxq.protocol.message.message_queue import MessageQueue
from maxq.protocol.namespace import RETRY_PREFIX

#: Sends messages as one batch, to the queue if one is given.
SendBatch = Callable[[list[Message], MessageQueue | None], Awaitable[SendResult]]

#: Bytes that a message takes in a batch beside its body and its properties: lengths, and its unique key.
_BESIDES = 22 + len(f"{const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX}::") + 32

_Key = tuple[str, MessageQueue | None, bool, str | None]

_ALONE = frozenset(
    {
        const.PROPERTY_DELAY_TIME_LEVEL,
        const.PROPERTY_TIMER_DELAY_SEC,
        const.PROPERTY_TIMER_DELAY_MS,
        const.PROPERTY_TIMER_DELIVER_MS,
        const.PROPERTY_PRODUCER_GROUP,
        const.PROPERTY_TRANSACTION_PREPARED,
        const.PROPERTY_PRIORITY,  # chooses the queue, which a batch has only one of
    }
)


@dataclass(slots=True)
class _Accumulation:
    """Messages that wait to be sent as one batch."""

    messages: list[Message] = field(default_factory=list)
    results: list[asyncio.Future[SendResult]] = field(default_factory=list)
    size: int = 0  # bytes of bodies and properties
    encoded: int = 0  # bytes of the request's body, at most
    timer: asyncio.TimerHandle | None = None


class ProduceAccumulator:
    """Gathers the messages of one producer into batches (`auto_batch`)."""

    def __init__(self, config: ProducerConfig, send_batch: SendBatch) -> None:
        self._config = config
        self._send_batch = send_batch
        namespace = config.namespace
        self._besides = _BESIDES
        if namespace:
            self._besides += len(f"{const.PROPERTY_INSTANCE_ID}:{namespace}:".encode())
        self._held_bytes = 0
        self._open: dict[_Key, _Accumulation] = {}
        self._sending: set[asyncio.Task[None]] = set()

    def can_batch(self, message: Message, size: int) -> bool:
        """Return whether a message of `size` bytes (body and properties) may wait for others."""
        return (
            size < self._config.batch_max_bytes
            and self._held_bytes < self._config.total_batch_max_bytes
            and _ALONE.isdisjoint(message.properties)
            and not message.topic.startswith(RETRY_PREFIX)
        )

    def add(self, message: Message, size: int, queue: MessageQueue | None) -> asyncio.Future[SendResult]:
        """Add a message that `can_batch` allows. The future gets its result when the batch was sent."""
        loop = asyncio.get_running_loop()
        key = (message.topic, queue, message.wait_store_msg_ok, message.tags)
        batch = self._open.get(key)
        encoded = size + self._besides
        if batch is not None and (
            batch.size + size > self._config.batch_max_bytes or batch.encoded + encoded > self._config.max_message_size
        ):
            self._close(key)
            batch = None
        if batch is None:
            batch = self._open[key] = _Accumulation()
            batch.timer = loop.call_later(self._config.batch_max_delay_ms / 1000, self._close, key)
        result: asyncio.Future[SendResult] = loop.create_future()
        batch.messages.append(message)
        batch.results.append(result)
        batch.size += size
        batch.encoded += encoded
        self._held_bytes += size
        if batch.size >= self._config.batch_max_bytes:
            self._close(key)
        return result

    def _close(self, key: _Key) -> None:
        batch = self._open.pop(key)
        assert batch.timer is not None, "a batch has had its timer since it was opened"
        batch.timer.cancel()
        task = asyncio.get_running_loop().create_task(self._send(batch, key[1]), name="maxq-auto-batch")
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

        def end_if_unwanted(result: asyncio.Future[SendResult]) -> None:
            if result.cancelled() and all(one.cancelled() for one in batch.results):
                task.cancel()

        for result in batch.results:
            result.add_done_callback(end_if_unwanted)

    async def _send(self, batch: _Accumulation, queue: MessageQueue | None) -> None:
        wanted = [pair for pair in zip(batch.messages, batch.results, strict=True) if not pair[1].cancelled()]
        try:
            if wanted:
                result = await self._send_batch([message for message, _ in wanted], queue)
                for (_, waiting), one in zip(wanted, split_result(result, len(wanted)), strict=True):
                    if not waiting.done():
                        waiting.set_result(one)
        except Exception as error:
            for _, waiting in wanted:
                if not waiting.done():
                    waiting.set_exception(error)
        finally:
            self._held_bytes -= batch.size

    async def flush(self) -> None:
        """Send everything that waits, and return when all of it has results."""
        for key in list(self._open):
            self._close(key)
        await asyncio.gather(*self._sending, return_exceptions=True)  # sends that nobody waits for have been cancelled


def split_result(result: SendResult, count: int) -> list[SendResult]:
    """Return one result for each message of a batch. A batch that its topic keeps as one record (`queue.type=BatchCQ`)
    has one offset_msg_id, which its messages share.

    Raises:
        RemoteProtocolError: the answer is about another number of messages.
    """
    msg_ids = result.msg_id.split(",")
    offset_msg_ids = result.offset_msg_id.split(",")
    if len(offset_msg_ids) == 1:
        offset_msg_ids *= count
    if len(msg_ids) != count or len(offset_msg_ids) != count:
        raise RemoteProtocolError(f"{count} messages were sent, the answer names {len(offset_msg_ids)}")
    return [
        result._replace(
            msg_id=msg_ids[place], offset_msg_id=offset_msg_ids[place], queue_offset=result.queue_offset + place
        )
        for place in range(count)
    ]
