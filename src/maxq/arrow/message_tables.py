"""Tables of messages that a program sends: what kinds of columns they may have, their rows as messages, and the table
that says what became of them.

A table is a pyarrow Table, RecordBatch or RecordBatchReader, or whatever hands itself over as an Arrow stream
(`__arrow_c_stream__`): a DataFrame of pandas or Polars, a relation of DuckDB.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from maxq.arrow.schemas import BODY_FAULT, KAFKA_COLUMNS, MESSAGE_COLUMNS
from maxq.arrow.sink_columns import SINK_COLUMNS, Numbers, SinkRows, check_columns, pair_maps, sink_rows
from maxq.errors import MaxQError, PipelineError

_PAIRS: Final = pa.map_(pa.string(), pa.string())
_PAIR_LISTS: Final = pa.large_list(pa.struct({"key": pa.string(), "value": pa.string()}))
_HEADERS: Final = pa.large_list(pa.struct({"key": pa.string(), "value": pa.binary()}))
_WORDS: Final = pa.large_list(pa.large_string())
_MAP: Final = "map<string,string>"
# name of a column into which pandas saves an index without a name
_UNNAMED_INDEX: Final = re.compile("__index_level_[0-9]+__")
_SPELLED: Final = {name.lower(): name for name in SINK_COLUMNS if name != "sendAt"}
_POLLED: Final = {name.lower() for name in (*MESSAGE_COLUMNS, BODY_FAULT, *KAFKA_COLUMNS)}
_BODIES: Final = ("body", "value")
_IN_WORDS: Final = {
    "array<string>": "list<string>",
    _MAP: "map<string, string>, a struct of strings, or a list of structs (key, value)",
    "array<struct<key:string,value:binary>>": "list<struct<key: string, value: binary>>",
    "timestamp_ntz": "timestamp",
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), "integer"),
}
#: What Arrow raises for a value that it cannot convert: a number too large, text that is no UTF-8.
VALUE_ERRORS: Final = (pa.ArrowException, UnicodeDecodeError)
_ID_DIGITS: Final = 12  # digits at the end of a unique key that are a counter

#: What became of each row, in the order of the table that was sent.
RESULT_SCHEMA: Final = pa.schema(
    {
        "uniqKey": pa.string(),
        "brokerName": pa.string(),
        "queueId": pa.int32(),
        "queueOffset": pa.int64(),
        "sendStatus": pa.string(),
        "error": pa.string(),
        "mayBeStored": pa.bool_(),
    }
)


def is_in_memory(data: Any) -> bool:
    """Return whether `stream_of`, and each next batch, takes no time; else they may take any."""
    return isinstance(data, (pa.RecordBatch, pa.Table)) or not hasattr(data, "__arrow_c_stream__")


def stream_of(data: Any) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema of a table and its batches.

    Raises:
        PipelineError: it is not a table, or Arrow has no type for the values of a column.
    """
    if isinstance(data, pa.RecordBatch):
        return data.schema, iter([data])
    if isinstance(data, pa.Table):
        return data.schema, iter(data.to_batches())
    if isinstance(data, pa.RecordBatchReader):
        return data.schema, iter(data)
    if not hasattr(data, "__arrow_c_stream__"):
        raise PipelineError(
            "a table of messages is a pyarrow Table, RecordBatch or RecordBatchReader, or a DataFrame that has the "
            f"method __arrow_c_stream__, not {type(data).__name__}; pyarrow.Table.from_pylist makes one of dicts"
        )
    try:
        reader = pa.RecordBatchReader.from_stream(data)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise PipelineError(f"{type(data).__name__} cannot be read as Arrow: {_in_words(error)}") from None
    return reader.schema, iter(reader)


def _in_words(error: Exception) -> str:
    return ": ".join(str(part) for part in error.args) or type(error).__name__


def column_names(schema: pa.Schema, *, has_topic: bool) -> dict[str, str]:
    """Return the meaning of each column, as sink_columns.check_columns does.

    Raises:
        PipelineError: names the column, what is allowed and what to do.
    """
    found: list[tuple[str, str]] = []
    for field in schema:
        if _UNNAMED_INDEX.fullmatch(field.name):
            continue
        name = _own_name(field.name)
        if not pa.types.is_null(field.type):
            _check_type(field, name)
            found.append((field.name, _kind(field.type)))
        elif name in _BODIES:  # a body column is required; any other column that holds nulls alone is ignored
            found.append((field.name, "binary"))
    return check_columns(found, has_topic=has_topic)


def _own_name(given: str) -> str:
    """Return the name that a column has here. Raises PipelineError if messages that are sent have no such column."""
    name = _SPELLED.get(given.lower())
    if name is not None:
        return name
    if given.lower() == "sendat":
        raise PipelineError(
            "column sendAt is for Spark's sink; a broker keeps messages for later with the column deliverTimestamp"
        )
    if given.lower() in _POLLED:
        raise PipelineError(
            f"column {given} cannot be sent: the broker or this producer sets it in each message; leave it out"
        )
    raise PipelineError(
        f"messages have no column {given}; there are {', '.join(_SPELLED.values())}. Leave it out, or put "
        "its values into body, as JSON for example"
    )


def _check_type(field: pa.Field, name: str) -> None:
    if _kind(field.type) in SINK_COLUMNS[name]:
        return
    remedy = "cast it"
    if name in _BODIES:
        remedy = "encode its values, as JSON for example"
    elif pa.types.is_floating(field.type) and "bigint" in SINK_COLUMNS[name]:
        remedy = "cast it (pandas makes integers floats where some are missing: astype('Int64'))"
    wanted = " or ".join(dict.fromkeys(_IN_WORDS.get(one, one) for one in SINK_COLUMNS[name]))
    raise PipelineError(f"column {field.name} is {field.type}; it must be {wanted}: {remedy}")


def _kind(kind: pa.DataType) -> str:
    """Return the name of a type that check_columns knows, or the type's own."""
    types = pa.types
    if types.is_dictionary(kind):
        return _kind(kind.value_type)
    if (
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_binary_view(kind)
    ):
        return "binary"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "string"
    if types.is_integer(kind):
        return "bigint"
    if types.is_timestamp(kind):
        return "timestamp"
    if types.is_map(kind) and _kind(kind.key_type) == _kind(kind.item_type) == "string":
        return _MAP
    if types.is_struct(kind) and all(_kind(field.type) in ("string", "null") for field in kind):
        return _MAP  # the type that libraries give to Python dicts
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        if not types.is_struct(kind.value_type):
            return f"array<{_kind(kind.value_type)}>"
        fields = [(field.name, _kind(field.type)) for field in kind.value_type]
        if fields == [("key", "string"), ("value", "string")]:
            return _MAP  # how libraries without a map type represent maps
        return f"array<struct<{','.join(f'{name}:{of}' for name, of in fields)}>>"
    return str(kind)


def message_rows(
    batch: pa.RecordBatch, names: dict[str, str], topic: str | None, most_bytes: int, most_text: int
) -> SinkRows:
    """Split a batch into the fields of its rows.

    Args:
        names: as `column_names` returns them.
        topic: of rows without one.
        most_bytes: of a body.
        most_text: bytes of properties.

    Raises:
        PipelineError: a row that can be no message.
    """
    columns = [_plain(batch.column(given)) for given in names.values()]
    rows = sink_rows(pa.RecordBatch.from_arrays(columns, names=list(names)), {name: name for name in names})
    sizes = rows.bodies.sizes
    if len(sizes) and int(sizes.max()) > most_bytes:
        raise PipelineError(
            f"a body has {int(sizes.max())} bytes, more than the {most_bytes} of max_message_size: send less, or raise "
            "the limit here and maxMessageSize at the broker"
        )
    texts = rows.texts.sizes
    if len(texts) and int(texts.max()) > most_text:
        raise PipelineError(
            f"the properties of a row have {int(texts.max())} bytes, more than the {most_text} that are left beside "
            "its unique key: put large values into the body"
        )
    if rows.topics is not None and not topic:
        empty = pc.fill_null(pc.equal(rows.topics.dictionary_decode(), ""), True)
        if pc.any(empty).as_py():
            raise PipelineError("column topic is null or empty, and no topic was given for such rows")
    return rows


def _plain(column: Any) -> Any:
    """Return a column in the types that sink_columns knows, with the values of these rows alone."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _plain(column.dictionary_decode())
    if pa.types.is_struct(kind):
        return _fields(column)
    if pa.types.is_map(kind):
        return _alone(column.cast(_PAIRS))
    if _kind(kind) == _MAP:
        return pair_maps(column.cast(_PAIR_LISTS), "properties", "a property")
    if pa.types.is_nested(kind):
        return _alone(column.cast(_HEADERS if pa.types.is_struct(kind.value_type) else _WORDS))
    if _kind(kind) == "binary":
        return column.cast(pa.large_binary())
    if _kind(kind) == "string":
        return column.cast(pa.large_string())
    return column


def _alone(column: Any) -> Any:
    """Return a column of lists without the values of other rows, which a slice keeps."""
    return column.take(pa.array(np.arange(len(column))))


def _fields(structs: Any) -> Any:
    """Convert a column of structs to a column of maps from field name to text; fields that are null are left out."""
    rows, names = len(structs), [field.name for field in structs.type]
    if not names:
        return pa.array([()] * rows, _PAIRS)
    by_field = pa.concat_arrays([values.cast(pa.string()) for values in structs.flatten()])
    order = np.arange(rows * len(names)).reshape(len(names), rows).T.ravel()
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * len(names))
    return pa.MapArray.from_arrays(offsets, pa.array(names * rows, pa.string()), by_field.take(pa.array(order)))


def topics_of(rows: SinkRows) -> list[str]:
    """Return the topics that rows name."""
    return [] if rows.topics is None else [topic for topic in rows.topics.dictionary.to_pylist() if topic]


def first_bad_row(batch: pa.RecordBatch, check: Callable[[pa.RecordBatch], object]) -> int:
    """Return the first row of a batch that `check` refuses by an error, as it does the batch as a whole."""
    good, bad = 0, len(batch)  # the first `good` rows are good; the bad row is before row `bad`
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            check(batch.slice(good, middle - good))
            good = middle
        except MaxQError:
            bad = middle
    return good


def numbers(values: Sequence[int]) -> Numbers:
    """Convert row numbers to an array of 64-bit integers."""
    return np.array(values, np.int64)


# --- what became of the rows -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowsOutcome:
    """What became of some rows.

    Attributes:
        rows: their numbers.
        first_key: the counted digits of the first row's unique key, from which the others count on.
        queue: broker name and queue id; None: they were not stored.
        first_offset: of the first; those of the others follow it.
        status: name of the send status.
        error: why they were not stored.
        may_be_stored: they may be, in spite of the error.
    """

    rows: Numbers
    first_key: int
    queue: tuple[str, int] | None = None
    first_offset: int = -1
    status: str = ""
    error: str = ""
    may_be_stored: bool = False


def result_table(count: int, key_prefix: str, outcomes: Iterable[RowsOutcome]) -> pa.RecordBatch:
    """Return the table of `count` rows (RESULT_SCHEMA). Rows that no outcome names are not stored."""
    keys, places = np.zeros(count, np.int64), np.full(count, -1, np.int32)
    ids, offsets = np.zeros(count, np.int32), np.zeros(count, np.int64)
    states, errors = np.full(count, -1, np.int32), np.full(count, -1, np.int32)
    unknown = np.zeros(count, np.bool_)
    brokers: dict[str, int] = {}
    statuses: dict[str, int] = {}
    reasons: dict[str, int] = {}
    for one in outcomes:
        rows, each = one.rows, np.arange(len(one.rows))
        keys[rows] = one.first_key + each
        if one.queue is None:
            errors[rows] = reasons.setdefault(one.error, len(reasons))
            unknown[rows] = one.may_be_stored
            continue
        places[rows] = brokers.setdefault(one.queue[0], len(brokers))
        ids[rows] = one.queue[1]
        offsets[rows] = one.first_offset + each
        states[rows] = statuses.setdefault(one.status, len(statuses))
    missing = places < 0
    return pa.RecordBatch.from_arrays(
        [
            _unique_keys(key_prefix, keys, keys == 0),
            _chosen(places, list(brokers)),
            pa.array(ids, mask=missing),
            pa.array(offsets, mask=missing),
            _chosen(states, list(statuses)),
            _chosen(errors, list(reasons)),
            pa.array(unknown, mask=~missing),
        ],
        schema=RESULT_SCHEMA,
    )


def _chosen(numbers: npt.NDArray[np.int32], texts: Sequence[str]) -> Any:
    """Return a column of the texts with these numbers; null for -1."""
    indices = pa.array(numbers, mask=numbers < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(texts, pa.string())).dictionary_decode()


def _unique_keys(prefix: str, numbers: Numbers, missing: npt.NDArray[np.bool_]) -> Any:
    size = len(prefix) + _ID_DIGITS
    data = np.empty((len(numbers), size), np.uint8)
    data[:, : len(prefix)] = np.frombuffer(prefix.encode(), np.uint8)
    digits = np.frombuffer(b"0123456789ABCDEF", np.uint8)
    for place in range(_ID_DIGITS):
        data[:, size - 1 - place] = digits[(numbers >> (4 * place)) & 15]
    offsets = np.arange(len(numbers) + 1, dtype=np.int32) * size
    made = pa.Array.from_buffers(pa.string(), len(numbers), [None, pa.py_buffer(offsets), pa.py_buffer(data)], 0)
    return pc.if_else(pa.array(missing), None, made) if missing.any() else made
