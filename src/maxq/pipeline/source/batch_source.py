"""A topic as a table, without Spark: what a batch reads, and which of its conditions brokers decide."""

from collections.abc import Iterator
from dataclasses import dataclass

from maxq.errors import PipelineError
from maxq.pipeline.options.read_options import ReadOptions
from maxq.pipeline.records.losses import Losses
from maxq.pipeline.source.offsets import OffsetRange, Offsets
from maxq.pipeline.source.positions import (
    QueueEnds,
    at_times,
    check_named,
    incarnation_of,
    name_of,
    resolve,
    selected_queues,
    tell_of_slaves,
)
from maxq.pipeline.source.scan import ScanPartition, partitions
from maxq.pipeline.wire.pulls import SelectionHint
from maxq.pipeline.wire.wire_client import WireClient
from maxq.protocol.message.message_queue import MessageQueue


@dataclass(frozen=True)
class Conditions:
    """The rows that a query selects; None means no limit. Offsets and times (ms) are first and one past the last.

    Attributes:
        hint: a condition that all wanted rows meet, for brokers that can use it to send less.
    """

    topics: frozenset[str] | None = None
    brokers: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    first_offset: int | None = None
    end_offset: int | None = None
    first_time: int | None = None
    end_time: int | None = None
    hint: SelectionHint | None = None

    def takes(self, queue: MessageQueue) -> bool:
        """Return whether this queue can have wanted rows."""
        return (
            (self.topics is None or queue.topic in self.topics)
            and (self.brokers is None or queue.broker_name in self.brokers)
            and (self.queue_ids is None or queue.queue_id in self.queue_ids)
        )


def plan_batch(options: ReadOptions, conditions: Conditions) -> list[ScanPartition]:
    """Return the partitions of a batch: from the start to the end of every queue that may have wanted rows.

    Raises:
        DataLossError: offsets or queues that the options name are not there, and that is to be an error.
        PipelineError: a topic that was named is not there; brokers do not answer; the end lies before the start.
    """
    losses = Losses(fail=options.fail_on_data_loss)
    with WireClient(options.connection) as client:
        there = selected_queues(client, options.selection)
        check_named(options.starting, options.selection, there, "startingOffsets", losses)
        check_named(options.ending, options.selection, there, "endingOffsets", losses)
        queues = [queue for queue in there if conditions.takes(queue)]
        ends = QueueEnds(client, queues)
        topics = dict(ends.seen)
        start = resolve(client, options.starting, queues, "startingOffsets", losses, ends)
        end = resolve(client, options.ending, queues, "endingOffsets", losses, ends)
        _check_order(options, ends, start, end, losses)
        losses.tell()
        for first in _marks(client, ends, conditions.first_offset, conditions.first_time):
            start = {queue: max(offset, first[queue]) for queue, offset in start.items()}
        for last in _marks(client, ends, conditions.end_offset, conditions.end_time):
            end = {queue: min(offset, last[queue]) for queue, offset in end.items()}
        tell_of_slaves(ends.seen)
        ranges = [
            OffsetRange(queue, start[queue], end[queue], incarnation_of(queue, topics[queue]))
            for queue in sorted(queues)
            if end[queue] > start[queue]
        ]
        return partitions(client, ranges, options, {queue.broker_name for queue in there})


def _check_order(options: ReadOptions, ends: QueueEnds, start: Offsets, end: Offsets, losses: Losses) -> None:
    """Check for queues that end before they begin, which would give no rows. One whose end a slave reports, which may
    lag, has none yet.

    Raises:
        DataLossError: see `losses`; the queue itself ends there.
        PipelineError: the options say so.
    """
    both = {options.starting.kind, options.ending.kind}
    for queue, told in ends.seen.items():
        if end[queue] >= start[queue]:
            continue
        if both in ({"offsets"}, {"timestamp"}):
            what = f"its end, offset {end[queue]}, lies before its start, {start[queue]}"
            raise PipelineError(f"{name_of(queue)}: {what}; change the options that say where to start and to end")
        if options.ending.kind == "latest" and told.is_master:
            reason = "it was to be read from there on, and ends before: its topic was made again"
            losses.offsets(name_of(queue), start[queue], None, (0, end[queue]), reason)


def _marks(client: WireClient, ends: QueueEnds, offset: int | None, time: int | None) -> Iterator[Offsets]:
    """Return the bounds that conditions on offset and store time give for each queue."""
    if offset is not None:
        yield dict.fromkeys(ends.seen, offset)
    if time is not None and ends.seen:
        yield at_times(client, dict.fromkeys(ends.seen, time), ends)
