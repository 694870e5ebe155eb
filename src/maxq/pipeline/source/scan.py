"""From offset ranges to partitions, what one Spark task reads, and from a partition to its rows.

A partition holds whole ranges of queues, to be read over the wire, or a part of the files of a store that the worker
can reach. Rows are the same either way.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from maxq.errors import ConfigError
from maxq.pipeline.options.read_options import ReadOptions
from maxq.pipeline.source.files import FilesPartition, FilesReader, plan_files
from maxq.pipeline.source.offsets import OffsetRange, group_small, split
from maxq.pipeline.source.positions import ask_until_answered, offsets_of
from maxq.pipeline.wire.pulls import SelectionHint
from maxq.pipeline.wire.queue_range import QueueRange
from maxq.pipeline.wire.wire_client import WireClient
from maxq.pipeline.wire.wire_reader import WireReader, exact_tags
from maxq.protocol.body.static_topic import is_mock_broker


@dataclass(frozen=True, slots=True)
class ScanPartition:
    """The work of one task: ranges to read over the wire, in this order, or a part of a store's files."""

    ranges: tuple[QueueRange, ...] = ()
    files: FilesPartition | None = None


def partitions(
    client: WireClient, ranges: Sequence[OffsetRange], options: ReadOptions, brokers: Collection[str]
) -> list[ScanPartition]:
    """Return the partitions of a read, or of one trigger.

    Args:
        brokers: all that have queues of the topics, those without a range as well.

    Raises:
        ConfigError: storePath names no store, or does not say which broker's it is, or it is another one's.
        PipelineError: brokers do not say where their queues begin.
    """
    limits = {"min_parts": options.min_partitions, "max_records": options.max_records_per_partition}
    rest = list(ranges)
    found: list[ScanPartition] = []
    for broker, path in stores_of(options, brokers).items():
        mine = [one for one in rest if one.queue.broker_name == broker]
        queues = [one.queue for one in mine]
        lows = offsets_of(ask_until_answered(client, client.min_offsets, queues, but_deleted=True))
        # queues that the files lack are read over the wire, where losses are noticed
        mine = [one for one in mine if one.queue in lows]
        if not mine:
            continue
        plan = plan_files(path, broker, mine, lows=lows, **limits)
        if plan.partitions and not _are_still_there(client, mine):
            continue  # the ConsumeQueues may belong to the topic that was made again; over the wire this is noticed
        found += [ScanPartition(files=part) for part in plan.partitions]
        planned = set(mine)
        rest = [one for one in rest if one not in planned] + plan.rest
    return found + wire_partitions(sorted(rest), **limits)


def _are_still_there(client: WireClient, ranges: Sequence[OffsetRange]) -> bool:
    """Return whether each topic of the ranges is still the same, as far as the masters report."""
    seen = ask_until_answered(client, client.max_offsets, [one.queue for one in ranges], but_deleted=True)
    return all(
        one.queue in seen and (one.incarnation in (None, seen[one.queue].incarnation) or not seen[one.queue].is_master)
        for one in ranges
    )


def stores_of(options: ReadOptions, brokers: Collection[str]) -> dict[str, str]:
    """Return the store of each broker whose files are to be read. Queues of static topics have none.

    Raises:
        ConfigError: storePath does not say whose store it is.
    """
    brokers = {broker for broker in brokers if not is_mock_broker(broker)}
    wanted = options.read_from in ("files", "auto") and options.store_path is not None
    if not wanted or options.sub_expression_type != "TAG":
        return {}  # SQL92 filters are applied by the broker
    path = options.store_path or ""
    if path.startswith("{"):
        return {broker: str(folder) for broker, folder in json.loads(path).items() if broker in brokers}
    if len(brokers) > 1:
        raise ConfigError(
            f"rocketmq: option storePath is {path!r}, but the topics lie on {len(brokers)} brokers; "
            f'give JSON broker → folder, such as {{"{min(brokers)}": "{path}"}}'
        )
    return dict.fromkeys(brokers, path)


def wire_partitions(
    ranges: Sequence[OffsetRange], *, min_parts: int | None = None, max_records: int | None = None
) -> list[ScanPartition]:
    """Make partitions that are read over the wire. Every offset of `ranges` is in exactly one of them.

    Args:
        min_parts: at least so many, if there are as many offsets (minPartitions).
        max_records: at most so many offsets each (maxRecordsPerPartition).
    """
    pieces = split(ranges, min_parts=min_parts, max_records=max_records)
    return [
        ScanPartition(tuple(_of_wire(one) for one in task))
        for task in group_small(pieces, min_parts=min_parts, max_records=max_records)
    ]


def _of_wire(one: OffsetRange) -> QueueRange:
    queue = one.queue
    return QueueRange(queue.topic, queue.broker_name, queue.queue_id, one.first, one.last, one.incarnation)


def read_scan(options: ReadOptions, scan: ScanPartition, hint: SelectionHint | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one partition, without Spark. Rows that the files lack come over the wire, behind the others.

    Args:
        hint: a condition that all wanted rows meet.
    """
    if scan.files is None:
        yield from WireReader(options, hint=hint).read(scan.ranges)
        return
    reader = FilesReader(options.columns, tags=exact_tags(options.sub_expression, options.sub_expression_type))
    yield from reader.read(scan.files)
    if reader.missing:
        yield from WireReader(options, broker_selects=False).read(reader.missing)
