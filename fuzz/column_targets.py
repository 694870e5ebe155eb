"""Records of a pull as Arrow columns: what a hostile broker answers to a consumer that polls columns."""

from typing import Any

import pyarrow as pa

from maxq.arrow.columns_cy import ColumnBuilder
from maxq.arrow.message_columns import batch_of_messages
from maxq.arrow.schemas import KAFKA_COLUMNS, MESSAGE_COLUMNS
from maxq.protocol.message.received_cy import Pull, keep_records

COLUMNS = (*MESSAGE_COLUMNS, *KAFKA_COLUMNS)


def record_columns(data: bytes) -> bool:
    """Columns of records are those of their messages, and valid Arrow, or the records are left to the general way."""
    kept = keep_records(data, Pull("broker-a", 0, 0))
    if kept is None:
        return False
    builder = ColumnBuilder(COLUMNS, kept.count, kept.size)
    builder.add_records(kept)
    batch = builder.batch()
    batch.validate(full=True)
    assert _comparable(batch) == _comparable(batch_of_messages(kept.messages(), COLUMNS))
    return kept.count > 0


def _comparable(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows: times as numbers, for Python's have fewer years; bytes that are no UTF-8 replaced, as in
    messages, which have one property for all names that are the same then."""
    columns = [one.cast("int64") if pa.types.is_timestamp(one.type) else one for one in batch.columns]
    rows: list[dict[str, Any]] = pa.RecordBatch.from_arrays(columns, names=batch.schema.names).to_pylist()
    for row in rows:
        row["key"] = None if row["key"] is None else row["key"].decode("utf-8", "replace")
        headers = [(pair["key"], pair["value"].decode("utf-8", "replace")) for pair in row["headers"]]
        for name, pairs in (("properties", row["properties"]), ("headers", headers)):
            row[name] = {key: "" if "\ufffd" in key else value for key, value in pairs}
    return rows
