"""Arrow batches → bodies of requests: rows are sorted by where they go, and gathered until a request is full."""

import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from maxq.arrow.batch_encode_cy import MAX_PROPERTIES, OVERHEAD, encode_rows, hash_rows
from maxq.arrow.sink_columns import Numbers, SinkRows, sink_rows
from maxq.errors import PipelineError, RemoteProtocolError
from maxq.protocol.message.java_hash import java_hash
from maxq.protocol.message.message_queue import MessageQueue
from maxq.runtime.reused_memory import ReusedMemory

COUNTED_DIGITS: Final = 12  # digits at the end of a unique key that are a counter
_RETRY_PREFIX: Final = "%RETRY%"
_INT: Final = struct.Struct(">i")
_SHORT: Final = struct.Struct(">h")
_MOST_OPEN_BYTES: Final = 32 << 20
_SMALLEST: Final = 4 << 10
_REUSED: Final = 64 << 10  # bytes from which on the memory of a body is used again
_QUEUE_BITS: Final = 24
_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)


#: Topic, queue, whether batching is allowed, and the numbers of rows that can be sent together.
Group = tuple[str, MessageQueue | None, bool, Numbers]


@dataclass(frozen=True)
class Encoded:
    """Messages of one topic, as a batch body.

    Attributes:
        queue: where they must go; None: anywhere.
        plain: they may be sent as one batch; else each alone (delayed ones, and those to retry topics).
        parts: for each run of messages, the numbers of its rows, and the counted digits of the first one's unique key,
            from which the others count on.
        body: its memory is used again when nobody refers to it.
    """

    topic: str
    queue: MessageQueue | None
    plain: bool
    body: memoryview
    count: int
    parts: tuple[tuple[Numbers, int], ...]


class _Open:
    """The body of a batch of messages for one queue, while rows are added to it."""

    def __init__(self) -> None:
        self.memory = memoryview(b"")
        self.size = 0
        self.count = 0
        self.parts: list[tuple[Numbers, int]] = []


class UniqueKeys(NamedTuple):
    """The unique keys of messages that are encoded.

    Attributes:
        prefix: the beginning of the property text of each message, up to the counted digits of its unique key.
        reserve: reserves a number of unique keys, and returns the counted digits of the first as a number.
    """

    prefix: str
    reserve: Callable[[int], int]


class BodyRules(NamedTuple):
    """The bodies of requests.

    Attributes:
        memory: where their memory comes from.
        most_bytes: the size at which a body is handed over, unless one message alone is larger.
        most_rows: the number of messages at which a body is handed over.
    """

    memory: ReusedMemory
    most_bytes: int
    most_rows: int = sys.maxsize


class RowEncoder:
    """Encodes rows as batch bodies; see the module's text.

    Args:
        names: columns of the batches (sink_columns.check_columns).
        topic: of rows without one.
        queues: the queues of a topic that take messages, in their order.
        bodies: what bodies of requests are like.
        keys: where the unique keys of messages come from.
        take: called with each body that is full.
        keep_properties: reserved properties that rows may set.
        with_digest: see `digest`.

    Attributes:
        digest: digest of the contents of all rows without their unique keys, independent of their order and division. 0
            without `with_digest`.
    """

    def __init__(
        self,
        names: dict[str, str],
        topic: str | None,
        queues: Callable[[str], Sequence[MessageQueue]],
        *,
        bodies: BodyRules,
        keys: UniqueKeys,
        take: Callable[[Encoded], None],
        keep_properties: Sequence[str] = (),
        with_digest: bool = False,
    ) -> None:
        self._names = names
        self._topic = topic
        self._queues = queues
        self._bodies = bodies
        self._prefix = keys.prefix.encode()
        self._reserve_keys = keys.reserve
        self._number = 0
        self._first_row = 0
        self._take = take
        self._keep = keep_properties
        self._open: dict[tuple[str, MessageQueue | None, bool], _Open] = {}
        self._with_digest = with_digest
        self.digest = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Encode rows. Raises PipelineError for a row that cannot be a message, or a queue that does not exist."""
        if not len(batch):
            return
        rows = sink_rows(batch, self._names, self._keep)
        self.add_groups(rows, self.groups(rows))

    @property
    def most_text(self) -> int:
        """Return the bytes that the properties of a row may have, beside its unique key."""
        return MAX_PROPERTIES - len(self._prefix) - COUNTED_DIGITS - 1

    def add_groups(self, rows: SinkRows, groups: Sequence[Group]) -> None:
        """Encode rows that `groups` has divided. The numbers of rows go on from one call to the next."""
        for _ in self.add_step_by_step(rows, groups):
            pass

    def add_step_by_step(self, rows: SinkRows, groups: Sequence[Group]) -> Iterator[None]:
        """Encode rows as `add_groups` does. Yields each time a body was handed over; nothing else is added before the
        iterator is at its end."""
        if self._with_digest:
            self.digest = (self.digest + rows_digest(rows, self._topic)) % (1 << 64)
        self._number = self._reserve_keys(len(rows))
        for topic, queue, plain, chosen in groups:
            yield from self._append((topic, queue, plain and not topic.startswith(_RETRY_PREFIX)), rows, chosen)
        self._first_row += len(rows)
        if sum(len(one.memory) for one in self._open.values()) > _MOST_OPEN_BYTES:
            self.flush()
            yield

    def flush(self) -> None:
        """Hand over all bodies that are being filled."""
        for key in list(self._open):
            self._close(key)
        self._open.clear()

    # --- where rows go ---

    def groups(self, rows: SinkRows) -> list[Group]:
        """Divide rows into those that can be sent together. Raises PipelineError for a queue that does not exist."""
        return list(self._groups(rows))

    def _groups(self, rows: SinkRows) -> Iterator[Group]:
        everything = np.arange(len(rows), dtype=np.int64)
        for topic, of_topic in self._by_topic(rows, everything):
            places = self._places(topic, rows, of_topic)
            codes = np.zeros(len(of_topic), np.int64) if places is None else places + 1
            if rows.delayed is not None:
                codes = codes + (rows.delayed[of_topic].astype(np.int64) << _QUEUE_BITS)
            for code, chosen in _split(codes, of_topic):
                place = (code & ((1 << _QUEUE_BITS) - 1)) - 1
                queue = None if place < 0 else self._queues(topic)[place]
                yield topic, queue, not code >> _QUEUE_BITS, chosen

    def _by_topic(self, rows: SinkRows, everything: Numbers) -> Iterator[tuple[str, Numbers]]:
        if rows.topics is None:
            assert self._topic is not None, "the columns were checked"
            yield self._topic, everything
            return
        numbers = rows.topics.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        for number, chosen in _split(numbers, everything):
            topic = None if number < 0 else rows.topics.dictionary[number].as_py()
            if not topic and not self._topic:
                raise PipelineError("column topic is null or empty in a row, and no option topic says where it goes")
            yield topic or self._topic or "", chosen

    def _places(self, topic: str, rows: SinkRows, chosen: Numbers) -> Numbers | None:
        """Return for each row the position of its queue among the topic's; -1: any queue; None: any queue for all
        rows."""
        if rows.sharding_keys is not None:
            count = len(self._queues(topic))
            keys = rows.sharding_keys
            by_key = np.array([abs(java_hash(key)) % count for key in keys.dictionary.to_pylist()] or [0], np.int64)
            numbers = keys.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)[chosen]
            return np.where(numbers < 0, -1, by_key[numbers])
        if rows.queue_ids is not None:
            return self._named_places(topic, rows, chosen)
        return None

    def _named_places(self, topic: str, rows: SinkRows, chosen: Numbers) -> Numbers:
        assert rows.queue_ids is not None, "asked by the caller"
        ids = rows.queue_ids[chosen]
        places = np.full(len(ids), -1, np.int64)
        brokers: list[tuple[str | None, Any]] = [(None, ids >= 0)]
        if rows.brokers is not None:
            numbers = rows.brokers.indices.fill_null(-1).to_numpy(zero_copy_only=False)[chosen]
            names = [(-1, None), *enumerate(rows.brokers.dictionary.to_pylist())]
            brokers = [(name, (numbers == number) & (ids >= 0)) for number, name in names]
        for broker, mask in brokers:
            for queue_id in np.unique(ids[mask]).tolist():
                places[mask & (ids == queue_id)] = self._place(topic, broker, queue_id)
        return places

    def _place(self, topic: str, broker: str | None, queue_id: int) -> int:
        queues = self._queues(topic)
        for place, queue in enumerate(queues):
            if queue.queue_id == queue_id and broker in (None, queue.broker_name):
                return place
        there = ", ".join(f"{queue.broker_name}:{queue.queue_id}" for queue in queues[:16])
        wanted = f"{broker}:{queue_id}" if broker else str(queue_id)
        raise PipelineError(f"a row is to go to queue {wanted} of topic {topic}, which takes messages in {there} only")

    # --- bodies ---

    def _append(self, key: tuple[str, MessageQueue | None, bool], rows: SinkRows, chosen: Numbers) -> Iterator[None]:
        bodies, texts = rows.bodies, rows.texts
        each = OVERHEAD + len(self._prefix)
        left = int(bodies.sizes[chosen].sum() + texts.sizes[chosen].sum()) + each * len(chosen)
        first = 0
        while first < len(chosen):
            one = self._open.get(key)
            if one is None:
                one = self._open[key] = _Open()
            self._enlarge(one, min(max(one.size + left, _SMALLEST), self._bodies.most_bytes))
            until = min(first + self._bodies.most_rows - one.count, len(chosen))
            try:
                after, size = encode_rows(
                    one.memory, one.size, chosen[:until], first, bodies.offsets, bodies.data, texts.offsets, texts.data,
                    self._prefix, self._number,
                )  # fmt: skip
            except ValueError as error:
                raise PipelineError(f"{error}; a message has at most {MAX_PROPERTIES} with its unique key") from None
            if after > first:
                one.parts.append((chosen[first:after] + self._first_row, self._number))
            self._number += after - first
            one.count += after - first
            left -= size - one.size
            one.size, first = size, after
            if first == len(chosen) and one.count < self._bodies.most_rows:
                return
            if one.count:
                self._close(key)
                yield
            else:  # the row is larger than a request should be: it is sent alone
                row = chosen[first]
                one.memory = self._room(int(bodies.sizes[row] + texts.sizes[row]) + each)

    def _enlarge(self, one: _Open, size: int) -> None:
        """Make room for at least `size` bytes."""
        if len(one.memory) < size:
            larger = self._room(max(size, min(2 * len(one.memory), self._bodies.most_bytes)))
            larger[: one.size] = one.memory[: one.size]
            one.memory = larger

    def _room(self, size: int) -> memoryview:
        return memoryview(bytearray(size) if size < _REUSED else self._bodies.memory.take(size))[:size]

    def _close(self, key: tuple[str, MessageQueue | None, bool]) -> None:
        one = self._open.pop(key)
        if one.count:
            topic, queue, plain = key
            self._take(Encoded(topic, queue, plain, one.memory[: one.size], one.count, tuple(one.parts)))


def messages_of(batch: memoryview) -> Iterator[tuple[bytes, str]]:
    """Yield the body and the properties of each message of a batch body that this encoder made; bytes of properties
    that are not UTF-8 are replaced, as every reader does."""
    body, at = bytes(batch), 0
    while at < len(body):
        (size,) = _INT.unpack_from(body, at)
        (body_size,) = _INT.unpack_from(body, at + 16)
        end = at + 20 + body_size
        (properties_size,) = _SHORT.unpack_from(body, end)
        if end + 2 + properties_size != at + size:
            raise RemoteProtocolError(f"a batch record at byte {at} has {size} bytes, its parts have others")
        yield body[at + 20 : end], body[end + 2 : at + size].decode(errors="replace")
        at += size


def rows_digest(rows: SinkRows, topic: str | None) -> int:
    """Return the sum of 64-bit hashes of the rows."""
    hashes = np.zeros(len(rows), np.uint64)
    for texts in (rows.bodies, rows.texts):
        hash_rows(hashes, texts.offsets, texts.data)
    for column, missing in ((rows.topics, topic or ""), (rows.brokers, "")):
        names = [missing] if column is None else [missing, *column.dictionary.to_pylist()]
        codes = np.array([int.from_bytes(blake2b(name.encode(), digest_size=8).digest()) for name in names], np.uint64)
        hashes = hashes * _FACTOR + (codes[0] if column is None else codes[column.indices.fill_null(-1).to_numpy() + 1])
    if rows.queue_ids is not None:
        hashes = hashes * _FACTOR + rows.queue_ids.astype(np.uint64)
    return int(np.sum(hashes ^ (hashes >> np.uint64(29)), dtype=np.uint64))


def _split(codes: Numbers, values: Numbers) -> Iterator[tuple[int, Numbers]]:
    """Return the values of each code, in their order."""
    if len(codes) and codes.min() == codes.max():
        yield int(codes[0]), values
        return
    order = np.argsort(codes, kind="stable")
    marks = np.flatnonzero(np.diff(codes[order])) + 1
    for part in np.split(order, marks):
        yield int(codes[part[0]]), values[part]
