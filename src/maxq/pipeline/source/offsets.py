"""Arithmetic of queue offsets: what a trigger reads, and how it is cut into tasks. Pure: numbers in, numbers out.

Offsets of a stream are a dictionary of plain values, which Spark keeps as JSON in the checkpoint:

    {"orders": {"broker-a": {"0": 1200, "1": 1187}}}        topic → broker → queue → next offset to read

It holds every queue ever read, also those of brokers that are away, so a restart needs nothing else. A topic that was
deleted on a broker and made again has the entry "incarnation" beside that broker's queues: the number by which the
broker tells topics of one name apart. Where it is 0, as of topics that were never deleted, it is left out. The queues
of a static topic are of several brokers: there each of them that was asked has an entry of its own, with its number
alone, 0 or not. A queue that was first seen in a trigger, which is every queue of a query's first one, has the entry
"first:<queue id>" in the offsets at which this trigger ends: where it begins. The trigger reads from there whenever it
runs, and what was deleted by then is a loss. Spark keeps no offset at which a first trigger begins.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from maxq.errors import ConfigError
from maxq.pipeline.options.read_options import FIRST, INCARNATION, offsets_table
from maxq.protocol.body.static_topic import is_mock_broker
from maxq.protocol.message.message_queue import MessageQueue

Offsets = dict[MessageQueue, int]
#: (topic, broker) → incarnation of the topic; see the module's text.
Incarnations = dict[tuple[str, str], int]
OffsetsJson = dict[str, dict[str, dict[str, int]]]

#: Ranges of fewer rows share a task: starting one costs as much as reading some thousand rows.
SMALL_RANGE: Final = 10_000


class OffsetRange(NamedTuple):
    """Queue offsets first … last - 1 of one queue.

    Attributes:
        incarnation: which topic of this name they are of (see the module); None: nobody knows.
    """

    queue: MessageQueue
    first: int
    last: int
    incarnation: int | None = None

    @property
    def size(self) -> int:
        """Number of offsets in the range; there are fewer messages if it has holes."""
        return max(0, self.last - self.first)


def to_json(
    offsets: Mapping[MessageQueue, int],
    incarnations: Mapping[tuple[str, str], int] | None = None,
    firsts: Mapping[MessageQueue, int] | None = None,
) -> OffsetsJson:
    """Make plain values in a fixed order, so that equal offsets give equal text. `firsts`: where queues begin that are
    new in these offsets."""
    found: OffsetsJson = {}
    for queue in sorted(offsets):
        found.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    static = {queue.topic for queue in offsets if is_mock_broker(queue.broker_name)}
    for (topic, broker), number in sorted((incarnations or {}).items()):
        if topic in static:
            found[topic][broker] = {INCARNATION: number}
        elif number and broker in found.get(topic, {}):
            found[topic][broker][INCARNATION] = number
    for queue in sorted(firsts or {}):
        found[queue.topic][queue.broker_name][f"{FIRST}{queue.queue_id}"] = (firsts or {})[queue]
    return found


def firsts_of(value: Mapping[str, Any]) -> Offsets:
    """Return where queues begin that are new in a stream's offsets, as far as these say so."""
    return {
        MessageQueue(topic, broker, int(name.removeprefix(FIRST))): first
        for topic, brokers in value.items()
        for broker, queues in brokers.items()
        for name, first in queues.items()
        if name.startswith(FIRST)
    }


def is_same_topic(queue: MessageQueue, then: Incarnations, now: Incarnations) -> bool:
    """Return whether a queue belongs to the same topic in two offsets of a stream, as far as its brokers reported."""
    if is_mock_broker(queue.broker_name):
        return all(then.get(key, number) == number for key, number in now.items() if key[0] == queue.topic)
    key = queue.topic, queue.broker_name
    return then.get(key, 0) == now.get(key, 0)


def incarnations_of(value: Mapping[str, Any]) -> Incarnations:
    """Return the incarnations that a stream's offsets hold. Incarnations of 0 are left out, except those of static
    topics."""
    return {
        (topic, broker): queues[INCARNATION]
        for topic, brokers in value.items()
        for broker, queues in brokers.items()
        if isinstance(queues, Mapping) and isinstance(queues.get(INCARNATION), int)
    }


def from_json(value: Mapping[str, Any]) -> Offsets:
    """Decode a stream's offsets. Raises ConfigError for another dictionary, such as the checkpoint of another
    source."""
    try:
        table = offsets_table(value)
    except ConfigError as error:
        raise ConfigError(f"the checkpoint's offsets are not those of this source: {error}") from None
    return {
        MessageQueue(topic, broker, queue_id): offset
        for topic, brokers in table.items()
        for broker, queues in brokers.items()
        for queue_id, offset in queues.items()
    }


def ranges_between(
    start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int], incarnations: Incarnations | None = None
) -> list[OffsetRange]:
    """Return the ranges between two offsets of a stream, in the order of the queues. Empty ranges are left out.

    Without `incarnations` nobody knows which topics they are of; the queues of static topics, which are of several
    brokers, have none.

    A queue that only `end` has was first seen there: whoever plans `end` puts the start of it into `start`. One whose
    end lies below its start was made again meanwhile (`fell` of a plan): it is read from 0.
    """
    found = []
    for queue in sorted(end):
        last, first = end[queue], start.get(queue, 0)
        if last < first:
            first = 0
        if first < last:
            is_known = incarnations is not None and not is_mock_broker(queue.broker_name)
            number = incarnations.get((queue.topic, queue.broker_name), 0) if incarnations and is_known else 0
            found.append(OffsetRange(queue, first, last, number if is_known else None))
    return found


def limit_rows(start: Mapping[MessageQueue, int], latest: Mapping[MessageQueue, int], limit: int) -> Offsets:
    """Limit a trigger to at most `limit` rows from `start` on, divided among the queues in proportion to what each has.

    Exactly `limit` rows if there are so many; what rounding leaves over goes to the queues it took most from.
    """
    sizes = {queue: max(0, latest[queue] - start.get(queue, 0)) for queue in sorted(latest)}
    total = sum(sizes.values())
    if total <= limit:
        return dict(latest)
    shares = {queue: divmod(size * limit, total) for queue, size in sizes.items()}
    taken = {queue: whole for queue, (whole, _) in shares.items()}
    left = limit - sum(taken.values())
    for queue in sorted(shares, key=lambda queue: -shares[queue][1])[:left]:
        taken[queue] += 1
    return {queue: start.get(queue, 0) + rows if sizes[queue] else latest[queue] for queue, rows in taken.items()}


def split(
    ranges: Iterable[OffsetRange], *, min_parts: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """Cut ranges so that none is longer than `max_records`, and there are at least `min_parts` of them, if there are
    as many offsets. Their union is that of the ranges, no offset is in two."""
    found = [part for one in ranges for part in _cut(one, -(-one.size // max_records) if max_records else 1)]
    if min_parts is None or len(found) >= min_parts:
        return found
    missing = min(min_parts, sum(one.size for one in found)) - len(found)
    pieces = [1] * len(found)
    longest = [(-one.size, index) for index, one in enumerate(found)]
    heapq.heapify(longest)
    for _ in range(missing):  # the longest pieces are cut first
        _, index = longest[0]
        pieces[index] += 1
        heapq.heapreplace(longest, (-found[index].size // pieces[index], index))
    return [part for one, count in zip(found, pieces, strict=True) for part in _cut(one, count)]


def _cut(one: OffsetRange, pieces: int) -> list[OffsetRange]:
    """Cut a range into `pieces` of about the same length."""
    pieces = max(1, min(pieces, one.size))
    marks = [one.first + one.size * index // pieces for index in range(pieces + 1)]
    return [one._replace(first=first, last=last) for first, last in pairwise(marks)]


def group_small(
    ranges: Sequence[OffsetRange], *, min_parts: int | None = None, max_records: int | None = None
) -> list[tuple[OffsetRange, ...]]:
    """Put small ranges of one broker together into tasks of at most SMALL_RANGE rows, so that at least `min_parts`
    tasks are left. Tasks stay in the order of queues."""
    if min_parts is not None and len(ranges) <= min_parts:
        return [(one,) for one in ranges]
    most = min(SMALL_RANGE, max_records or SMALL_RANGE)
    if min_parts is not None:
        most = max(1, min(most, sum(one.size for one in ranges) // min_parts))
    tasks: list[list[OffsetRange]] = []
    sizes: dict[str, tuple[int, list[OffsetRange]]] = {}  # by broker: rows of the task that is being filled
    for one in ranges:
        size, task = sizes.get(one.queue.broker_name, (most + 1, []))
        if size + one.size > most:
            size, task = 0, []
            tasks.append(task)
        task.append(one)
        sizes[one.queue.broker_name] = size + one.size, task
    if min_parts is not None and len(tasks) < min_parts:
        return [(one,) for one in ranges]
    return [tuple(task) for task in tasks]
