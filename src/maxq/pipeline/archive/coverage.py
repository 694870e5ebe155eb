"""Comparison of the messages of brokers with those of an archive: what is left to read, and the findings of a proof of
coverage.

Without Spark. Ranges are of queue offsets, both ends included.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from maxq.errors import PipelineError
from maxq.pipeline.archive.ranges import Range, size, subtract
from maxq.pipeline.options.read_options import ConnectionOptions, ReadOptions
from maxq.pipeline.records.losses import Losses
from maxq.pipeline.source.offsets import OffsetRange, to_json
from maxq.pipeline.source.positions import (
    QueueEnds,
    ask_until_answered,
    name_of,
    resolve,
    selected_queues,
    tell_of_slaves,
)
from maxq.pipeline.wire.wire_client import WireClient
from maxq.protocol.body.static_topic import is_mock_broker
from maxq.protocol.message.message_queue import MessageQueue

Coverage = Mapping[MessageQueue, Sequence[Range]]

#: Kinds of findings: faults of an archive, and what is reported besides.
GAP: Final = "gap"  # the broker has messages that the archive has not, before others that it has
OVERLAP: Final = "overlap"  # offsets that are there twice
MISSING_FILE: Final = "missing-file"
DAMAGED_FILE: Final = "damaged-file"
UNREADABLE_FILE: Final = "unreadable-file"  # the file system refuses to give its bytes, now
WRONG_ENTRY: Final = "wrong-entry"  # the file is undamaged and differs from what the manifest says
BEHIND: Final = "behind"  # the end of a queue that is not archived yet
ABSENT: Final = "absent"  # offsets that hold no message on the broker either (compaction topics)
ORPHAN: Final = "orphan"  # left by a run that died; the next one removes it
FAULTS: Final = (GAP, OVERLAP, MISSING_FILE, DAMAGED_FILE, UNREADABLE_FILE, WRONG_ENTRY)


@dataclass(frozen=True)
class Finding:
    """One row of the table of findings; a field that does not apply is None."""

    kind: str
    queue: MessageQueue | None = None
    first: int | None = None
    last: int | None = None
    file: str | None = None
    detail: str = ""

    @property
    def is_fault(self) -> bool:
        return self.kind in FAULTS

    def to_json(self) -> dict[str, object]:
        queue = self.queue
        return {
            "kind": self.kind, "fault": self.is_fault,
            "topic": queue.topic if queue else None, "brokerName": queue.broker_name if queue else None,
            "queueId": queue.queue_id if queue else None, "firstOffset": self.first, "lastOffset": self.last,
            "file": self.file, "detail": self.detail,
        }  # fmt: skip


def broker_ranges(options: ReadOptions, coverage: Coverage) -> dict[MessageQueue, tuple[int, int]]:
    """Return queue → (first offset, one past the last) for the options of a batch at this moment.

    Args:
        coverage: what is archived. Where a slave reports an end, it has at least what is archived: it may lag.

    Raises:
        PipelineError: a topic that was named is not there; brokers do not answer.
    """
    with WireClient(options.connection) as client:
        queues = list(selected_queues(client, options.selection))
        losses, ends = Losses(fail=options.fail_on_data_loss), QueueEnds(client, queues)
        start = resolve(client, options.starting, queues, "startingOffsets", losses, ends)
        end = resolve(client, options.ending, queues, "endingOffsets", losses, ends)
        losses.tell()
    tell_of_slaves(ends.seen)
    if options.ending.kind == "latest":
        for queue, ranges in coverage.items():
            if queue in end and ranges and not ends.seen[queue].is_master:
                end[queue] = max(end[queue], ranges[-1][1] + 1)
    return {queue: (start[queue], max(start[queue], end[queue])) for queue in sorted(queues)}


def incarnations(
    options: ConnectionOptions, queues: Iterable[MessageQueue], *, waits: bool = True
) -> dict[MessageQueue, int]:
    """Return, by queue, the physical offset in its broker's log at which its topic was deleted last. Queues of topics
    that were never deleted are left out, those of Java's brokers, which do not tell, those of brokers that no name
    server knows, and those of static topics, whose messages lie in the logs of several brokers.

    Args:
        waits: for brokers that do not answer at once; else their queues are left out.

    Raises:
        PipelineError: one does not answer within rocketmq.brokerWait.
    """
    with WireClient(options) as client:
        asked = [queue for queue in queues if not is_mock_broker(queue.broker_name) and client.candidates(queue)]
        if waits:
            seen = ask_until_answered(client, client.max_offsets, asked, but_deleted=True)
        else:
            seen, _ = client.max_offsets(asked)
    return {queue: one.incarnation for queue, one in seen.items() if one.incarnation}


def check_same_topics(bounds: Mapping[MessageQueue, tuple[int, int]], coverage: Coverage) -> None:
    """Raise PipelineError if a queue ends before its archived offsets: it is another queue of the same name."""
    for queue, (_, end) in bounds.items():
        archived = coverage.get(queue)
        if archived and end <= archived[-1][1]:
            raise PipelineError(
                f"{name_of(queue)} ends at offset {end}, but offset {archived[-1][1]} is archived: the topic was made "
                "again, or the broker lost the end of its log. Archive what is there now into another folder"
            )


def missing(bounds: Mapping[MessageQueue, tuple[int, int]], coverage: Coverage) -> dict[MessageQueue, list[Range]]:
    """Return the offsets that brokers have and the archive lacks."""
    found = {}
    for queue, (first, end) in bounds.items():
        left = subtract([(first, end - 1)], coverage.get(queue, ())) if end > first else []
        if left:
            found[queue] = left
    return found


def passes(ranges: Mapping[MessageQueue, Sequence[Range]]) -> list[list[OffsetRange]]:
    """Arrange the ranges into as few reads as possible, each with at most one range of a queue."""
    found: list[list[OffsetRange]] = []
    for queue in sorted(ranges):
        for number, (first, last) in enumerate(ranges[queue]):
            if number == len(found):
                found.append([])
            found[number].append(OffsetRange(queue, first, last + 1))
    return found


def read_options(one_pass: Iterable[OffsetRange]) -> dict[str, object]:
    """Return assign, startingOffsets and endingOffsets of one pass, as values for JSON."""
    ranges = list(one_pass)
    assigned: dict[str, dict[str, list[int]]] = {}
    for queue in (one.queue for one in ranges):
        assigned.setdefault(queue.topic, {}).setdefault(queue.broker_name, []).append(queue.queue_id)
    return {
        "assign": assigned,
        "startingOffsets": to_json({one.queue: one.first for one in ranges}),
        "endingOffsets": to_json({one.queue: one.last for one in ranges}),
    }


def coverage_findings(
    bounds: Mapping[MessageQueue, tuple[int, int]], coverage: Coverage, held: Coverage | None = None
) -> list[Finding]:
    """Return what the archive lacks of the offsets that brokers have.

    Args:
        bounds: what brokers have.
        coverage: what the archive has.
        held: of the missing offsets those at which brokers do have a message; None: take it that they all do.
    """
    found: list[Finding] = []
    for queue, ranges in missing(bounds, coverage).items():
        end = bounds[queue][1]
        for first, last in ranges:
            if last == end - 1:
                found.append(Finding(BEHIND, queue, first, last, detail=f"{last - first + 1} not archived yet"))
                continue
            there = [(first, last)] if held is None else _within(held.get(queue, ()), first, last)
            found += [Finding(GAP, queue, *one, detail=f"{size([one])} messages are missing") for one in there]
            found += [
                Finding(ABSENT, queue, *one, detail="the broker has no message there either")
                for one in subtract([(first, last)], there)
            ]
    return found


def lost_findings(bounds: Mapping[MessageQueue, tuple[int, int]], coverage: Coverage) -> list[Finding]:
    """Return gaps that no broker can explain: from the first archived offset of a queue up to the first one that the
    broker still has, or between archived offsets of a queue about which no broker was asked."""
    found: list[Finding] = []
    for queue, ranges in sorted(coverage.items()):
        if ranges:
            end = bounds[queue][0] - 1 if queue in bounds else ranges[-1][1]
            holes = subtract([(ranges[0][0], end)], ranges) if end >= ranges[0][0] else []
            detail = "offsets are missing, and gone from the broker" if queue in bounds else "offsets are missing"
            found += [Finding(GAP, queue, *one, detail=f"{size([one])} {detail}") for one in holes]
    return found


def _within(ranges: Iterable[Range], first: int, last: int) -> list[Range]:
    return [(max(one, first), min(other, last)) for one, other in ranges if one <= last and other >= first]
