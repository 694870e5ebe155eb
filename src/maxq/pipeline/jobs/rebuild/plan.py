"""Results of tasks about their pieces of the log, and the check that the pieces fit together.

A queue's units come from many pieces. They are what a broker would have written if each piece's run of units begins
where the run before it ended: then no record was in doubt, and a broker that dispatches the whole log puts every unit
where its record says, too.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Final

import pyarrow as pa

from maxq.pipeline.jobs.rebuild.log_dispatch import PieceResult, gap_text
from maxq.store.queue.batch_consume_queue import BatchUnit
from maxq.store.queue.consume_queue import CQ_STORE_UNIT_SIZE

_BATCH_UNIT: Final = Struct(">qiqqqh")
_RUNS: Final = pa.list_(
    pa.struct(
        [
            pa.field("topic", pa.string()),
            pa.field("queueId", pa.int32()),
            pa.field("first", pa.int64()),
            pa.field("end", pa.int64()),
            pa.field("physicalOffset", pa.int64()),
        ]
    )
)
_BATCH_UNITS: Final = pa.list_(
    pa.struct([pa.field("topic", pa.string()), pa.field("queueId", pa.int32()), pa.field("units", pa.binary())])
)

#: One row a piece.
PIECE_SCHEMA: Final = pa.schema(
    [
        pa.field("piece", pa.int32()),
        pa.field("records", pa.int64()),
        pa.field("entryCount", pa.int64()),
        pa.field("endOffset", pa.int64()),
        pa.field("lastStoreTimestamp", pa.int64()),
        pa.field("tornTail", pa.string()),
        pa.field("faults", pa.list_(pa.string())),
        pa.field("runs", _RUNS),
        pa.field("batchUnits", _BATCH_UNITS),
    ]
)


def summary_batch(number: int, result: PieceResult) -> pa.RecordBatch:
    """Return one row that says what a piece of the log has."""
    row = {
        "piece": number,
        "records": result.records,
        "entryCount": result.entry_count,
        "endOffset": result.end_offset,
        "lastStoreTimestamp": result.last_store_timestamp,
        "tornTail": result.torn_tail,
        "faults": result.faults,
        "runs": [
            {
                "topic": run.topic,
                "queueId": run.queue_id,
                "first": run.first,
                "end": run.end,
                "physicalOffset": run.first_physical_offset,
            }
            for run in result.runs.values()
        ],
        "batchUnits": [
            {"topic": topic, "queueId": queue_id, "units": b"".join(_BATCH_UNIT.pack(*unit) for unit in units)}
            for (topic, queue_id), units in result.batch_units.items()
        ],
    }
    return pa.RecordBatch.from_pylist([row], PIECE_SCHEMA)


@dataclass(slots=True)
class QueueBounds:
    """The queue offsets [first, end) that a queue has."""

    first: int
    end: int


@dataclass(slots=True)
class LogSummary:
    """Summary of all pieces.

    Attributes:
        queues, batch_units: of the records of the log, by (topic, queue id).
        kept: queues of which the log has no record.
        batch_ends: how far queues of batches were numbered, as the last inventory has it.
        end_offset: physical offset behind the last record.
        faults: reasons, in words, why a broker may have other units.
    """

    queues: dict[tuple[str, int], QueueBounds] = field(default_factory=dict)
    batch_units: dict[tuple[str, int], list[BatchUnit]] = field(default_factory=dict)
    kept: dict[tuple[str, int], QueueBounds] = field(default_factory=dict)
    batch_ends: dict[str, dict[int, tuple[int, int, int]]] = field(default_factory=dict)
    records: int = 0
    end_offset: int = 0
    last_store_timestamp: int = 0
    torn_tail: str = ""
    faults: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]], log_start: int) -> "LogSummary":
        """
        Args:
            rows: of PIECE_SCHEMA, in log order.
        """
        summary = cls(end_offset=log_start)
        for row in rows:
            summary._add(row)
        return summary

    def _add(self, row: Mapping[str, Any]) -> None:
        self.faults += row["faults"]
        self.records += row["records"]
        if row["records"]:
            self.end_offset, self.last_store_timestamp = row["endOffset"], row["lastStoreTimestamp"]
        self.torn_tail = row["tornTail"] or self.torn_tail
        for run in row["runs"]:
            self._join(run)
        for part in row["batchUnits"]:
            units = [BatchUnit(*values) for values in _BATCH_UNIT.iter_unpack(part["units"])]
            self.batch_units.setdefault((part["topic"], part["queueId"]), []).extend(units)

    def _join(self, run: Mapping[str, Any]) -> None:
        known = self.queues.get((run["topic"], run["queueId"]))
        if known is None:
            self.queues[run["topic"], run["queueId"]] = QueueBounds(run["first"], run["end"])
        elif known.end == run["first"]:
            known.end = run["end"]
        else:
            self.faults.append(gap_text(run["topic"], run["queueId"], known.end, run["first"], run["physicalOffset"]))

    def inventory_queues(self, file_size: int) -> dict[str, dict[int, tuple[int, int]]]:
        """Return the queues as an inventory has them: topic → queue id → (queue offset at which the first file begins,
        end)."""
        per_file = -(-file_size // CQ_STORE_UNIT_SIZE)
        found: dict[str, dict[int, tuple[int, int]]] = {}
        for (topic, queue_id), bounds in {**self.queues, **self.kept}.items():
            begin = bounds.first - (bounds.first % per_file if bounds.first < bounds.end else 0)
            found.setdefault(topic, {})[queue_id] = (begin, bounds.end)
        return found
