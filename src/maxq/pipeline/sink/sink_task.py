"""One task of a write, without Spark: it takes rows and sends messages until they are acknowledged.

At least once, messages go to their queues at once. Exactly once, they are staged: kept by their brokers where no reader
sees them, under an attempt's name, until the driver commits the batch (sink_commit).
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from maxq.arrow.row_encoder import COUNTED_DIGITS, BodyRules, Encoded, RowEncoder, UniqueKeys, messages_of
from maxq.arrow.sink_columns import send_times
from maxq.codes import RequestCode
from maxq.errors import PipelineError
from maxq.pipeline.options.write_options import WriteOptions
from maxq.pipeline.sink.sender import (
    AUTO_CREATE_TOPIC,
    DEFAULT_QUEUES,
    Outgoing,
    PublishRoutes,
    Sender,
    send_code,
    send_header,
)
from maxq.pipeline.wire.wire_client import WireClient
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message_id import UniqIdGenerator
from maxq.protocol.message.message_queue import MessageQueue
from maxq.runtime.files.system import SystemRng
from maxq.runtime.interfaces import Clock
from maxq.runtime.own_address import own_address
from maxq.runtime.reused_memory import ReusedMemory

_KEPT_BYTES: Final = 8 << 20  # bytes that bodies of requests have used, and others will


@dataclass(frozen=True)
class TaskResult:
    """The report of a task to the driver.

    Attributes:
        rows: messages that were acknowledged.
        attempt: the name its staged messages have; empty: they were not staged.
        staged: broker → (sequence, queue offset in the broker's staging queue) of each request.
        digest: of the rows (RowEncoder.digest), where the application has a name that another run can have.
    """

    rows: int
    attempt: str = ""
    staged: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    digest: int = 0


class SinkTask:
    """Sends the rows of one task; see the module's text.

    Args:
        names: columns of the batches (sink_columns.check_columns).
    """

    def __init__(self, options: WriteOptions, names: dict[str, str]) -> None:
        self._options = options
        self._names = names
        self._rng = SystemRng()
        self._rows = 0
        self._attempt = self._rng.bytes(12).hex() if options.exactly_once else ""
        self._sequence = 0
        self._next_key = 0
        self._staged: dict[str, list[tuple[int, int]]] = {}

    def run(self, batches: Iterable[pa.RecordBatch]) -> TaskResult:
        """Write all rows; on return each was acknowledged.

        Raises:
            PipelineError: a row cannot be a message, or the brokers do not take it. What was sent stays sent.
        """
        with WireClient(self._options.connection) as client:
            self._clock = client.clock
            routes = PublishRoutes(client)
            with closing(Sender(self._options, routes)) as self._sender:
                encoder = self._encoder(routes)
                self._encode(batches, encoder)
                self._sender.finish()
        return TaskResult(self._rows, self._attempt, self._staged, encoder.digest)

    def _encoder(self, routes: PublishRoutes) -> RowEncoder:
        options = self._options
        unique = UniqIdGenerator(0, own_address(), self._clock, self._rng).next()
        self._next_key = int(unique[-COUNTED_DIGITS:], 16)
        prefix = f"{const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX}{const.NAME_VALUE_SEPARATOR}{unique[:-COUNTED_DIGITS]}"
        return RowEncoder(
            self._names,
            options.topic,
            routes.queues,
            bodies=BodyRules(ReusedMemory(_KEPT_BYTES), options.batch_bytes),
            keys=UniqueKeys(prefix, self._reserve_keys),
            take=self._send,
            keep_properties=options.keep_properties,
            with_digest=options.application_id is not None,
        )

    def _reserve_keys(self, count: int) -> int:
        first = self._next_key
        self._next_key += count
        return first

    def _encode(self, batches: Iterable[pa.RecordBatch], encoder: RowEncoder) -> None:
        """Encode rows when they are due. A batch body goes to `_send` when it is full, or when nothing else is due."""
        pace = SinkPace(self._names, self._options.rows_per_second, self._clock, time.sleep)
        for due in chain.from_iterable(map(pace.due, batches)):
            encoder.add(due)
            if not pace.is_any:
                encoder.flush()
        encoder.flush()

    def _send(self, encoded: Encoded) -> None:
        self._rows += encoded.count
        if self._options.exactly_once:
            self._stage(encoded)
        elif encoded.plain and encoded.count > 1:
            self._sender.send(self._outgoing(encoded, encoded.body, ""))
        else:
            for body, properties in messages_of(encoded.body):
                self._sender.send(self._outgoing(encoded, body, properties))

    def _outgoing(self, encoded: Encoded, body: bytes | memoryview, properties: str) -> Outgoing:
        batch, now_ms = not properties, self._clock.wall_ms()

        def header(queue: MessageQueue) -> dict[str, str]:
            return send_header(self._options, queue, now_ms, batch=batch, properties=properties)

        return Outgoing(send_code(batch=batch), encoded.topic, encoded.queue, body, header, _nothing_more)

    def _stage(self, encoded: Encoded) -> None:
        sequence = self._sequence
        self._sequence += 1
        fields = {
            "attempt": self._attempt,
            "sequence": str(sequence),
            "count": str(encoded.count),
            "plain": "true" if encoded.plain else "false",
            "defaultTopic": AUTO_CREATE_TOPIC,
            "defaultTopicQueueNums": str(DEFAULT_QUEUES),
            "bornTimestamp": str(self._clock.wall_ms()),
        }

        def header(queue: MessageQueue) -> dict[str, str]:
            return fields | {"topic": queue.topic, "queueId": str(queue.queue_id)}

        def answered(broker_name: str, answer: RemotingCommand) -> None:
            self._staged.setdefault(broker_name, []).append((sequence, int(answer.ext["queueOffset"])))

        self._sender.send(
            Outgoing(RequestCode.MAXQ_STAGE_MESSAGES, encoded.topic, encoded.queue, encoded.body, header, answered)
        )


def _nothing_more(broker_name: str, answer: RemotingCommand) -> None:
    """Ignore an answer, because the acknowledgement was all that is needed."""


# --- rows that are held back ----------------------------------------------------------------------------------------

_LONGEST_SLEEP: Final = 1.0
_SHORTEST_SLEEP: Final = 0.01  # rows that come due within this time are sent together
_LONGEST_WAIT_MS: Final = 31 * 86_400_000  # a task that waits longer was given a wrong time, or the wrong unit
_CATCH_UP_MS: Final = 1000  # of a rate limit: rows that were missed longer ago are not caught up


class SinkPace:
    """Holds the rows of one task back until they are due: so many a second, or by the times in the column sendAt.

    It cuts batches where one row is due and the next is not yet. Rows stay in their order: one that is due waits for
    those before it. Late rows are sent at once; with a rate limit, at most those of one second.

    Args:
        rate: rows a second, from the first row on; None: any.
        sleep: for so many seconds.
    """

    def __init__(self, names: dict[str, str], rate: float | None, clock: Clock, sleep: Callable[[float], None]) -> None:
        self._names = names
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._next_ms = 0.0  # monotonic ms at which the rate limit allows the next row
        self.is_any = rate is None and "sendAt" not in names

    def due(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows in pieces, each as soon as all of it is due."""
        if self.is_any:
            yield batch
            return
        times = self._times(batch)
        at = 0
        while at < len(times):
            while (left_ms := max(times[at], self._next_ms) - self._clock.wall_ms()) > 0:
                self._sleep(min(max(left_ms / 1000, _SHORTEST_SLEEP), _LONGEST_SLEEP))
            now_ms = self._clock.wall_ms()
            count = int(np.searchsorted(times[at:], now_ms, "right"))
            if self._rate is not None:
                count = min(count, self._allowed(now_ms, self._rate, len(times) - at))
            yield batch.slice(at, count)
            at += count

    def _allowed(self, now_ms: int, rate: float, wanted: int) -> int:
        """Return how many of `wanted` rows the rate allows at this moment, and count them as sent."""
        first_ms = max(self._next_ms, now_ms - _CATCH_UP_MS) if self._next_ms else now_ms
        count = min(wanted, int((now_ms - first_ms) * rate / 1000) + 1)
        self._next_ms = first_ms + count * 1000 / rate
        return count

    def _times(self, batch: pa.RecordBatch) -> npt.NDArray[np.float64]:
        """Return when each row leaves, in ms since 1970. The times ascend.

        Raises:
            PipelineError: a row leaves so late that nobody waits for it.
        """
        times = np.zeros(len(batch), np.float64)
        if "sendAt" in self._names and len(batch):
            times += send_times(batch, self._names)
            latest_ms, limit_ms = times.max(), self._clock.wall_ms() + _LONGEST_WAIT_MS
            if latest_ms > limit_ms:
                raise PipelineError(
                    f"column sendAt is {latest_ms:.0f} ms in a row; at most 31 days from now are waited for (until "
                    f"{limit_ms} ms since 1970): is it in seconds or microseconds? A broker keeps messages for later "
                    "with the column deliverTimestamp"
                )
        ascending: npt.NDArray[np.float64] = np.maximum.accumulate(times)
        return ascending
