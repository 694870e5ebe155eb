"""ArrowSends: one call of a producer's `send_arrow`. Rows are checked some thousand at a time and encoded as the
bodies of batches, without an object for any of them; a batch is one request to one queue, and leaves when it is full.

Batches for any queue leave several at a time, as far as the window has room. Those for one queue (of rows that name it,
or have a sharding key) leave one after the other, so that rows of a queue stay in their order whatever goes wrong.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from maxq.client.client_config import ProducerConfig
from maxq.client.errors import ArrowSendError, WrongArgumentError
from maxq.client.producer.message_sender import MessageSender
from maxq.client.results.arrow_batches import load_arrow
from maxq.client.results.send_result import SendResult
from maxq.errors import ClientError, MaxQError, PipelineError
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import Message
from maxq.protocol.message.message_queue import MessageQueue
from maxq.protocol.message.received_cy import decode_property_text

if TYPE_CHECKING:
    import pyarrow as pa

    from maxq.arrow.row_encoder import Encoded
    from maxq.arrow.sink_columns import SinkRows

_PIECE: Final = 8_192  # rows that are checked at a time
_BATCH_BYTES: Final = 1 << 20  # bytes of bodies in one request, about
_BATCH_ROWS: Final = 1_536  # most rows of one request: a broker works on no request much longer than on others
_MOST_BYTES: Final = 4 << 20  # most bytes of requests that wait for answers
_MOST_REQUESTS: Final = 64
_AT_ONCE: Final = 128  # most single rows that wait for answers
_CALL: Final = "send_arrow"
_OUT_OF_ORDER: Final = "not sent: rows of the same queue before it failed"


class ArrowSends:
    """Sends the rows of tables.

    Args:
        topic: of rows without one; None: each has its own.
    """

    def __init__(self, sender: MessageSender, config: ProducerConfig, topic: str | None) -> None:
        self._sender = sender
        self._config = config
        self._topic = topic
        self._tables = load_arrow("message_tables", _CALL)
        self._encoders = load_arrow("row_encoder", _CALL)
        self._names: dict[str, str] = {}
        self._queues: dict[str, Sequence[MessageQueue]] = {}  # topic → its queues, if rows are meant for certain queues
        self._count = 0  # rows that were taken
        self._full: list[Encoded] = []
        self._tasks: dict[asyncio.Task[None], Encoded] = {}
        self._newest: dict[MessageQueue, asyncio.Task[None]] = {}  # queue → the last request that is meant for it
        self._bytes = 0  # bytes of requests that wait for answers
        self._outcomes: list[Any] = []
        self._failure: tuple[str, Exception] | None = None  # the first failure: its subject and its error
        self._is_input = False  # the failure is one of the rows, not of a broker
        self._broken: set[MessageQueue] = set()  # queues of failed requests: later rows for them would be out of order
        unique = sender.instance.ids.next()
        self._key_prefix = unique[: -self._encoders.COUNTED_DIGITS]
        self._encoder = self._make_encoder()

    def _make_encoder(self) -> Any:
        namespace = self._config.namespace
        pair, end = const.NAME_VALUE_SEPARATOR, const.PROPERTY_SEPARATOR
        instance = f"{const.PROPERTY_INSTANCE_ID}{pair}{namespace}{end}" if namespace else ""
        prefix = f"{instance}{const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX}{pair}{self._key_prefix}"
        return self._encoders.RowEncoder(
            self._names,
            self._topic,
            lambda topic: self._queues[topic],
            bodies=self._encoders.BodyRules(
                self._sender.table_memory, min(_BATCH_BYTES, self._config.max_message_size), _BATCH_ROWS
            ),
            keys=self._encoders.UniqueKeys(prefix, self._reserve_keys),
            take=self._full.append,
        )

    def _reserve_keys(self, count: int) -> int:
        """Return the number at the end of the first of so many unique keys. The digits that count are followed by those
        of the time, so that none is given twice even if they go over."""
        head, number = self._sender.instance.ids.reserve(count)
        return int(f"{head[len(self._key_prefix) :]}{number:04X}", 16)

    async def run(self, data: Any) -> "pa.RecordBatch":
        """Send all rows. Result and errors are those of `Producer.send_arrow`."""
        is_in_memory = self._tables.is_in_memory(data)
        try:
            read = self._tables.stream_of
            schema, batches = read(data) if is_in_memory else await asyncio.to_thread(read, data)
            self._names.update(self._tables.column_names(schema, has_topic=self._topic is not None))
        except PipelineError as error:
            raise WrongArgumentError(str(error)) from None
        if self._topic is not None:
            self._sender.preparer.wire_topic(self._topic)
        try:
            await self._send_all(batches, is_in_memory)
            while self._tasks:
                await self._wait()
        finally:
            await self._give_up()
        table = self._tables.result_table(self._count, self._key_prefix, self._outcomes)
        if self._failure is not None:
            self._raise(table)
        return table

    def _raise(self, table: "pa.RecordBatch") -> None:
        assert self._failure is not None, "asked by the caller"
        what, cause = self._failure
        stored = self._count - table.column("queueOffset").null_count
        text = f"{what}: {cause} (of {self._count} rows that were taken {stored} are stored; `sent` says which)"
        raise ArrowSendError(text, table, cause) from cause

    # --- rows ---

    async def _send_all(self, batches: Iterator[Any], is_in_memory: bool) -> None:
        while self._failure is None:
            try:
                batch = next(batches, None) if is_in_memory else await asyncio.to_thread(next, batches, None)
            except Exception as error:
                self._fail(f"the rows from row {self._count} on could not be read", error, is_input=True)
                break
            if batch is None:
                break
            for first in range(0, len(batch), _PIECE):
                if not await self._take(batch.slice(first, _PIECE)):
                    break
        if self._failure is None or self._is_input:  # rows that were accepted before a bad row are sent
            self._encoder.flush()
            await self._post_full()

    async def _take(self, piece: Any) -> bool:
        """Encode rows, and send what is full. Returns False if one of them is not a message; those before it are
        encoded. False also if a request has failed: the rest is not sent."""
        if self._names.keys() & {"queueId", "partition", "shardingKey", "key"} and not await self._learn_queues(piece):
            return False
        try:
            checked = self._checked(piece)
        except (PipelineError, ClientError):
            bad = self._tables.first_bad_row(piece, self._checked)
            if bad and not await self._encode(*self._checked(piece.slice(0, bad))):
                return False
            try:
                self._checked(piece.slice(bad, 1))
            except (PipelineError, ClientError) as error:
                self._fail(f"row {self._count} cannot be sent", WrongArgumentError(str(error)), is_input=True)
            return False
        return await self._encode(*checked)

    async def _encode(self, rows: "SinkRows", groups: Any) -> bool:
        """Encode rows that were checked, and send each body when it is full. Returns False if a request has failed."""
        self._count += len(rows)
        for _ in self._encoder.add_step_by_step(rows, groups):
            await self._post_full()
            if self._failure is not None:
                return False
        return True

    def _checked(self, piece: Any) -> "tuple[SinkRows, Any]":
        """Return the rows of a piece, and where they go.

        Raises:
            PipelineError, ClientError: one of them cannot be sent.
        """
        try:
            rows = self._tables.message_rows(
                piece, self._names, self._topic, self._config.max_message_size, self._encoder.most_text
            )
            for topic in self._tables.topics_of(rows):
                self._sender.preparer.wire_topic(topic)
            return rows, self._encoder.groups(rows)
        except self._tables.VALUE_ERRORS as error:
            raise PipelineError(f"it has a value that no message can have: {error}") from None

    async def _learn_queues(self, piece: Any) -> bool:
        """Ask for the queues of topics whose rows say to which they go. Returns False if that failed."""
        topics = {self._topic} if self._topic else set()
        if "topic" in self._names:
            try:
                topics |= {topic for topic in piece.column(self._names["topic"]).unique().to_pylist() if topic}
            except UnicodeDecodeError:  # the row that is not UTF-8 is found and refused later
                return True
        preparer, timeout_s = self._sender.preparer, self._config.send_msg_timeout / 1000
        for topic in topics - self._queues.keys():
            try:
                wire = preparer.wire_topic(topic)
            except ClientError:  # the row with this topic is found and refused later
                continue
            try:
                async with asyncio.timeout(timeout_s):
                    self._queues[topic] = (await self._sender.publish_info(wire)).queues
            except (MaxQError, TimeoutError) as error:
                self._fail(f"the queues of topic {topic} are not known", error, is_input=True)
                return False
        return True

    # --- requests ---

    async def _post_full(self) -> None:
        """Send the bodies that are full, as far as the window has room."""
        for encoded in self._full:
            size = len(encoded.body)
            while self._tasks and (self._bytes + size > _MOST_BYTES or len(self._tasks) >= _MOST_REQUESTS):
                await self._wait()
            before = None if encoded.queue is None else self._newest.get(encoded.queue)
            self._bytes += size
            task = asyncio.get_running_loop().create_task(self._send(encoded, before), name="maxq-send-arrow")
            self._tasks[task] = encoded
            if encoded.queue is not None:
                self._newest[encoded.queue] = task
        self._full.clear()
        await asyncio.sleep(0)  # lets answers be read

    async def _wait(self) -> None:
        """Wait until one more request has ended."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            self._bytes -= len(self._tasks.pop(task).body)

    async def _send(self, encoded: "Encoded", before: "asyncio.Task[None] | None") -> None:
        if before is not None:
            await asyncio.wait([before])
        if encoded.queue in self._broken:
            self._note(encoded)
            return
        if not encoded.plain or encoded.count == 1:
            await self._send_singly(encoded)
            return
        try:
            result = await self._send_batch(encoded)
        except Exception as error:
            self._note(encoded, error=error)
            self._fail(f"a batch of {encoded.count} rows from row {int(encoded.parts[0][0][0])} on failed", error)
            self._break(encoded.queue)
        else:
            self._note(encoded, result)

    async def _send_batch(self, encoded: "Encoded") -> SendResult:
        sender, config = self._sender, self._config
        if sender.fast is not None:
            pending = sender.fast.post_encoded(encoded.topic, encoded.body, encoded.queue, config.send_msg_timeout)
            if pending is not None:
                try:
                    result = await pending.future
                except asyncio.CancelledError:
                    pending.forget()
                    raise
                if result is not None:
                    return result
                return await sender.go_on(pending, config.retry_times_when_send_failed, queue=encoded.queue)
        prepared = sender.preparer.prepare_encoded(encoded.topic, bytes(encoded.body))
        return await sender.send(
            prepared, config.send_msg_timeout, config.retry_times_when_send_failed, queue=encoded.queue
        )

    async def _send_singly(self, encoded: "Encoded") -> None:
        """Send each message in a request of its own: delayed ones, and one that is alone."""
        places = [(int(row), key + n) for rows, key in encoded.parts for n, row in enumerate(rows)]
        waiting: list[asyncio.Future[None]] = []
        for (row, key), (body, text) in zip(places, self._encoders.messages_of(encoded.body), strict=True):
            one = self._send_single(encoded, row, key, body, text)
            if encoded.queue is not None:
                await one
                continue
            waiting.append(asyncio.ensure_future(one))
            if len(waiting) == _AT_ONCE:
                await asyncio.gather(*waiting)
                waiting.clear()
        await asyncio.gather(*waiting)

    async def _send_single(self, encoded: "Encoded", row: int, key: int, body: bytes, text: str) -> None:
        sender, config = self._sender, self._config
        outcome, rows = self._tables.RowsOutcome, self._tables.numbers([row])
        if encoded.queue in self._broken:
            self._outcomes.append(outcome(rows, key, error=_OUT_OF_ORDER))
            return
        message = Message(encoded.topic, body, decode_property_text(text.encode()))
        try:
            prepared = sender.preparer.prepare(message)
            result = await sender.send(
                prepared, config.send_msg_timeout, config.retry_times_when_send_failed, queue=encoded.queue
            )
        except Exception as error:
            self._outcomes.append(outcome(rows, key, error=str(error), may_be_stored=_may_be_stored(error)))
            self._fail(f"row {row} failed", error)
            self._break(encoded.queue)
        else:
            queue = result.message_queue.broker_name, result.message_queue.queue_id
            self._outcomes.append(outcome(rows, key, queue, result.queue_offset, result.send_status.name))

    # --- outcomes ---

    def _note(self, encoded: "Encoded", result: SendResult | None = None, error: Exception | None = None) -> None:
        """Note what became of messages: their result, or an error; without either they were not sent, for they would
        be out of order."""
        offset = 0 if result is None else result.queue_offset
        text, may_be_stored = (_OUT_OF_ORDER, False) if error is None else (str(error), _may_be_stored(error))
        for rows, key in encoded.parts:
            if result is None:
                self._outcomes.append(self._tables.RowsOutcome(rows, key, error=text, may_be_stored=may_be_stored))
                continue
            queue = result.message_queue.broker_name, result.message_queue.queue_id
            self._outcomes.append(self._tables.RowsOutcome(rows, key, queue, offset, result.send_status.name))
            offset += len(rows)

    def _fail(self, what: str, error: Exception, *, is_input: bool = False) -> None:
        """Keep the first error, which is raised at the end; no more rows are taken."""
        if self._failure is None:
            self._failure, self._is_input = (what, error), is_input

    def _break(self, queue: MessageQueue | None) -> None:
        """Send nothing more for a certain queue."""
        if queue is not None:
            self._broken.add(queue)

    async def _give_up(self) -> None:
        """Forget what is still on its way, which is only the case if the caller was cancelled."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)


def _may_be_stored(error: Exception) -> bool:
    """Return whether messages may be stored in spite of this error. Of one that is not ours nobody knows."""
    return getattr(error, "may_be_stored", True)
