"""Are the messages at archived offsets still those that were archived? Without Spark.

A MaxQ broker tells when a topic was deleted and made again (coverage.incarnations). A Java broker does not, nor does
one whose store was emptied: there only the messages tell.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from maxq.errors import PipelineError
from maxq.pipeline.archive.file_stats import times_of
from maxq.pipeline.archive.folder import ArchiveFolder
from maxq.pipeline.archive.manifest import FileEntry, Manifest, coverage_of
from maxq.pipeline.archive.ranges import intersect
from maxq.pipeline.options.read_options import ReadOptions
from maxq.pipeline.source.positions import name_of
from maxq.pipeline.wire.queue_range import QueueRange
from maxq.pipeline.wire.wire_client import WireClient
from maxq.pipeline.wire.wire_reader import WireReader
from maxq.protocol.body.static_topic import is_mock_broker
from maxq.protocol.message.message_queue import MessageQueue

#: Columns that, with the place, distinguish two messages of the same place.
_COLUMNS: Final = ("topic", "brokerName", "queueId", "queueOffset", "storeTimestamp", "bodyCrc")
_PLACE: Final = "physicalOffset"


class ArchivedMessage(NamedTuple):
    """Values that distinguish a message from another one at the same queue offset.

    Attributes:
        stored_us: microseconds since 1970.
        place: physical offset; None: it is not known.
    """

    offset: int
    stored_us: int
    body_crc: int
    place: int | None = None

    def is_same(self, other: "ArchivedMessage") -> bool:
        """Return whether two messages at one offset are the same, wherever their records lie."""
        return self[:3] == other[:3]


def archived_messages(
    folder: ArchiveFolder, files: Iterable[FileEntry], offsets: Mapping[MessageQueue, int]
) -> dict[MessageQueue, ArchivedMessage]:
    """Return the messages that an archive has at these offsets. Those in files that are missing or damaged are left
    out, because `archive verify` reports these."""
    found: dict[MessageQueue, ArchivedMessage] = {}
    for entry in files:
        wanted = {
            queue: offsets[queue]
            for part in entry.queues
            if (queue := entry.queue(part)) in offsets and intersect(part.ranges, [(offsets[queue], offsets[queue])])
        }
        if not wanted:
            continue
        try:
            with folder.filesystem.open_input_file(f"{folder.root}/{entry.path}") as file:
                parquet = pq.ParquetFile(file)
                known = [name for name in (*_COLUMNS[1:], _PLACE) if name in parquet.schema_arrow.names]
                table = parquet.read(columns=known)
        except (OSError, pa.ArrowInvalid):
            continue
        rows = table.filter(pc.is_in(table["queueOffset"], value_set=pa.array(set(wanted.values()), pa.int64())))
        places = zip(rows["brokerName"].to_pylist(), rows["queueId"].to_pylist(), _messages(rows), strict=True)
        for broker, queue_id, message in places:
            queue = MessageQueue(entry.topic, broker, queue_id)
            if wanted.get(queue) == message.offset:
                found[queue] = message
    return found


def _messages(rows: pa.Table) -> Iterable[ArchivedMessage]:
    places: list[Any] = rows[_PLACE].to_pylist() if _PLACE in rows.column_names else [None] * len(rows)
    columns = rows["queueOffset"].to_pylist(), times_of(rows).to_pylist(), rows["bodyCrc"].to_pylist(), places
    return map(ArchivedMessage, *columns)


def other_messages(
    folder: ArchiveFolder, manifest: Manifest, messages: Mapping[MessageQueue, ArchivedMessage]
) -> list[str]:
    """Return the queues of those messages that are others than the archived ones at their offsets, in words."""
    archived = archived_messages(folder, manifest.files, {queue: one.offset for queue, one in messages.items()})
    return [
        f"{name_of(queue)} has another message at offset {one.offset} than"
        for queue, one in sorted(archived.items())
        if not one.is_same(messages[queue])
    ]


def check_messages(folder: ArchiveFolder, manifest: Manifest, messages: Mapping[MessageQueue, ArchivedMessage]) -> None:
    """Check messages at archived offsets.

    Raises:
        PipelineError: one is another message than the archived one: its queue is another one of the same name.
    """
    for what in other_messages(folder, manifest, messages):
        raise _another_queue(f"{what} the archive")


def check_order(folder: ArchiveFolder, manifest: Manifest, entries: Iterable[FileEntry]) -> None:
    """Check new files whose offsets lie before archived ones, as those of a back-fill: in the log of their broker their
    messages lie before these, too. Queues of static topics have messages in several logs.

    Raises:
        PipelineError: a message does not, so its queue is another one of the same name.
    """
    entries, last, below = list(entries), {}, {}
    archived = manifest.coverage()
    for queue, ranges in coverage_of(entries).items():
        if queue not in archived or is_mock_broker(queue.broker_name):
            continue
        last[queue] = archived[queue][-1][1]
        before = intersect(ranges, [(0, last[queue])])
        if before:
            below[queue] = before[-1][1]
    new = archived_messages(folder, entries, below)
    old = archived_messages(folder, manifest.files, {queue: last[queue] for queue in new})
    for queue, one in sorted(old.items()):
        place = new[queue].place
        if place is not None and one.place is not None and place > one.place:
            raise _another_queue(
                f"the message at offset {below[queue]} of {name_of(queue)} is younger than the archived one at offset "
                f"{one.offset}"
            )


def _another_queue(what: str) -> PipelineError:
    return PipelineError(
        f"{what}: the topic was made again, or the broker lost its log. Archive what is there now into another folder"
    )


def check_brokers(
    options: ReadOptions, bounds: Mapping[MessageQueue, tuple[int, int]], folder: ArchiveFolder, manifest: Manifest
) -> None:
    """Check the newest archived message of each queue, as far as its broker still has it.

    Args:
        options: of a read: the connection.
        bounds: queue → (first, one past the last) offset that brokers have.

    Raises:
        PipelineError: see check_messages; brokers do not answer.
    """
    coverage = manifest.coverage()
    newest = {}
    for queue, (first, end) in bounds.items():
        common = intersect(coverage.get(queue, ()), [(first, end - 1)]) if first < end else []
        if common:
            newest[queue] = common[-1][1]
    check_messages(folder, manifest, _messages_at(options, newest))


def messages_on_brokers(
    options: ReadOptions, offsets: Mapping[MessageQueue, int]
) -> dict[MessageQueue, ArchivedMessage]:
    """Return the messages that brokers have at these offsets now. Queues of brokers that do not answer are left out.

    Args:
        options: of a read: the connection.
    """
    return _messages_at(
        options,
        {
            queue: offsets[queue]
            for queue, (first, end) in _ends_now(options, offsets).items()
            if first <= offsets[queue] < end
        },
    )


def other_queues(options: ReadOptions, known: Mapping[MessageQueue, ArchivedMessage]) -> list[MessageQueue]:
    """Return the queues that end before the offsets of these messages, or have other messages there: they are others of
    their names. Queues of brokers that do not answer are left out.

    Args:
        options: of a read: the connection.
    """
    bounds = _ends_now(options, known)
    shorter = [queue for queue, (_, end) in bounds.items() if end <= known[queue].offset]
    now = messages_on_brokers(options, {queue: known[queue].offset for queue in bounds})
    return sorted([*shorter, *(queue for queue, one in now.items() if not one.is_same(known[queue]))])


def _ends_now(options: ReadOptions, queues: Iterable[MessageQueue]) -> dict[MessageQueue, tuple[int, int]]:
    """Return the first offset, and one past the last, of queues whose masters answer."""
    with WireClient(options.connection) as client:
        asked = [queue for queue in queues if client.candidates(queue)]
        lows, highs = client.min_offsets(asked)[0], client.max_offsets(asked)[0]
    return {queue: (lows[queue].offset, one.offset) for queue, one in highs.items() if one.is_master and queue in lows}


def _messages_at(options: ReadOptions, offsets: Mapping[MessageQueue, int]) -> dict[MessageQueue, ArchivedMessage]:
    ranges = [
        QueueRange(queue.topic, queue.broker_name, queue.queue_id, offset, offset + 1)
        for queue, offset in sorted(offsets.items())
    ]
    found: dict[MessageQueue, ArchivedMessage] = {}
    every = replace(options, columns=_COLUMNS, fail_on_data_loss=False, sub_expression="*", sub_expression_type="TAG")
    for batch in WireReader(every).read(ranges):
        table = pa.Table.from_batches([batch])
        queues = map(MessageQueue, *(table[name].to_pylist() for name in _COLUMNS[:3]))
        found |= dict(zip(queues, _messages(table), strict=True))
    return found
