"""The columns that a sink takes, and an Arrow batch of them as what a message is made of.

    body or value       binary or string; what is sent
    topic               string; without it the option `topic` says where
    tags                string
    keys                array<string>, or a string of words
    properties          map<string,string>; names that RocketMQ reserves are left out
    queueId             integer, with brokerName if several brokers have such a queue …
    shardingKey         string … or this: the same queue for the same key, as the Java client's SelectMessageQueueByHash
    delayTimeLevel      integer, 0 for none …
    deliverTimestamp    timestamp, or an integer of milliseconds since 1970 … or this
    sendAt              timestamp, or milliseconds since 1970: it leaves no earlier, nor do the task's rows behind it

and, as Spark's Kafka sink has them:

    key                 string, or binary that is UTF-8: keys, and the shardingKey where no queue is named
    partition           integer: queueId
    headers             array<struct<key:string,value:binary>>: properties; values are UTF-8

Texts are put together by Arrow, a column at a time; only the joining of a body and its text into a record is a loop
(batch_encode_cy).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from maxq.errors import PipelineError
from maxq.protocol.message import message_const as const

Numbers = npt.NDArray[np.int64]

_INTEGERS: Final = ("tinyint", "smallint", "int", "bigint")
#: Column → the Spark types it may have.
SINK_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "body": ("binary", "string"),
    "value": ("binary", "string"),
    "topic": ("string",),
    "tags": ("string",),
    "keys": ("array<string>", "string"),
    "properties": ("map<string,string>",),
    "queueId": _INTEGERS,
    "brokerName": ("string",),
    "shardingKey": ("string",),
    "delayTimeLevel": _INTEGERS,
    "deliverTimestamp": ("timestamp", "timestamp_ntz", "bigint"),
    "sendAt": ("timestamp", "timestamp_ntz", "bigint"),
    "key": ("binary", "string"),
    "partition": _INTEGERS,
    "headers": ("array<struct<key:string,value:binary>>",),
}
#: Columns that a read returns and that a producer cannot set.
_BROKERS_OWN: Final = {
    "timestamp": "a broker stores the time at which it takes a message (a delay is deliverTimestamp, a pace sendAt)",
    "offset": "a broker gives a message its place",
}
_TOGETHER: Final = (
    ("body", "value"), ("queueId", "shardingKey"), ("queueId", "partition"), ("partition", "shardingKey"),
    ("key", "keys"), ("key", "shardingKey"), ("headers", "properties"),
)  # fmt: skip
_PAIR: Final = const.NAME_VALUE_SEPARATOR
_END: Final = const.PROPERTY_SEPARATOR


@dataclass(frozen=True)
class Texts:
    """A column of bytes: row i is `data[offsets[i] : offsets[i + 1]]`; `data` has at least one byte."""

    offsets: Numbers
    data: npt.NDArray[np.uint8]

    @property
    def sizes(self) -> Numbers:
        return np.diff(self.offsets)


@dataclass(frozen=True)
class SinkRows:
    """The contents of a batch, row by row in its order.

    Attributes:
        texts: properties of each row as RocketMQ writes them, but for the unique key.
        topics, keys, brokers: dictionary arrays; None without such a column.
        queue_ids: -1 for rows without one; None without such a column.
        delayed: rows that are to be delivered later; None without such a column.
    """

    bodies: Texts
    texts: Texts
    topics: Any | None
    queue_ids: Numbers | None
    brokers: Any | None
    sharding_keys: Any | None
    delayed: npt.NDArray[np.bool_] | None

    def __len__(self) -> int:
        return len(self.bodies.offsets) - 1


def check_columns(columns: Iterable[tuple[str, str]], *, has_topic: bool) -> dict[str, str]:
    """Determine the meaning of each column.

    Args:
        columns: name and Spark type (simpleString) of each column that is written; upper and lower case alike.
        has_topic: the option `topic` is there.

    Returns:
        Our name → the name in the data.

    Raises:
        PipelineError: names the column and what is allowed.
    """
    spelled = {name.lower(): name for name in SINK_COLUMNS}
    found: dict[str, str] = {}
    for given, kind in columns:
        name = spelled.get(given.lower())
        if name is None and given.lower() in _BROKERS_OWN:
            raise PipelineError(f"column {given} is not written: {_BROKERS_OWN[given.lower()]}; leave it out")
        if name is None:
            raise PipelineError(f"messages have no column {given}; there are {', '.join(SINK_COLUMNS)}")
        if name in found:
            raise PipelineError(f"columns {found[name]} and {given} mean the same")
        if kind not in SINK_COLUMNS[name]:
            raise PipelineError(f"column {given} is {kind}; it must be {' or '.join(SINK_COLUMNS[name])}")
        found[name] = given
    for one, other in _TOGETHER:
        if one in found and other in found:
            raise PipelineError(f"columns {one} and {other} say the same thing twice; leave one of them away")
    if "body" not in found and "value" not in found:
        raise PipelineError("there is no column body (or value) for the messages' bodies")
    if "topic" not in found and not has_topic:
        raise PipelineError("neither a column topic nor the option topic says where the messages go")
    if "brokerName" in found and not found.keys() & {"queueId", "partition"}:
        raise PipelineError("column brokerName means nothing without queueId")
    return found


def sink_rows(batch: pa.RecordBatch, names: dict[str, str], keep: Iterable[str] = ()) -> SinkRows:
    """Split a batch into the fields of its rows.

    Args:
        names: as check_columns returns them.
        keep: reserved properties that may be set.

    Raises:
        PipelineError: a value that no message can have; says which.
    """
    columns = _own_columns({name: batch.column(given) for name, given in names.items()})
    body_name = "body" if "body" in columns else "value"
    bodies = _texts(columns[body_name])
    if columns[body_name].null_count or (len(batch) and int(bodies.sizes.min()) == 0):
        raise PipelineError(
            f"column {body_name} is null or empty in a row; RocketMQ has no message without a body: leave such rows "
            "away"
        )
    queue_ids = columns.get("queueId")
    return SinkRows(
        bodies,
        _properties(columns, len(batch), keep),
        _dictionary(columns, "topic"),
        None if queue_ids is None else _queue_ids(queue_ids),
        _dictionary(columns, "brokerName"),
        _dictionary(columns, "shardingKey"),
        _delayed(columns),
    )


def _own_columns(columns: dict[str, Any]) -> dict[str, Any]:
    """Rename the columns of Spark's Kafka sink to this sink's names."""
    if "partition" in columns:
        columns["queueId"] = columns.pop("partition")
    if "headers" in columns:
        columns["properties"] = pair_maps(columns.pop("headers"), "headers", "a header")
    if "key" in columns:
        columns["keys"] = _utf8(columns.pop("key"), "key")
        if "queueId" not in columns:
            columns["shardingKey"] = columns["keys"]
    return columns


def _utf8(column: Any, name: str) -> Any:
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        raise PipelineError(f"column {name} has bytes that are no UTF-8; RocketMQ keeps them as text") from None


def pair_maps(lists: Any, column: str, what: str) -> Any:
    """Convert a column of lists of (key, value) structs, of any kind of lists and texts, to a column of maps.

    Args:
        column, what: its name, and what a pair is called, for errors.

    Raises:
        PipelineError: a pair is null, has no key, or has a value that is not UTF-8.
    """
    lists = lists.cast(pa.list_(lists.type.value_type))
    pairs = lists.flatten()
    if pairs.null_count or pairs.field("key").null_count:
        raise PipelineError(f"{what} in column {column} is null, or has no key; leave it out")
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate(([0], np.cumsum(counts))), pa.int32())
    return pa.MapArray.from_arrays(offsets, _utf8(pairs.field("key"), column), _utf8(pairs.field("value"), column))


def send_times(batch: pa.RecordBatch, names: dict[str, str]) -> Numbers:
    """Return the column sendAt in ms since 1970; 0 where it is null."""
    return _numbers(_milliseconds(batch.column(names["sendAt"])), 0)


def _texts(column: Any) -> Texts:
    wide = column.cast(pa.large_binary())
    _, offsets, data = wide.buffers()
    count = len(wide) + 1
    numbers = np.zeros(1, np.int64) if offsets is None else np.frombuffer(offsets, np.int64)
    found = np.zeros(1, np.uint8) if data is None or not data.size else np.frombuffer(data, np.uint8)
    return Texts(numbers[wide.offset : wide.offset + count], found)


def _numbers(column: Any, missing: int) -> Numbers:
    wide = column.cast(pa.int64())
    found: Numbers = pc.fill_null(wide, missing).to_numpy(zero_copy_only=False)
    return found


def _queue_ids(column: Any) -> Numbers:
    lowest = pc.min(column).as_py()
    if lowest is not None and lowest < 0:
        raise PipelineError(f"column queueId is {lowest} in a row; the first queue is 0, and null stands for any queue")
    return _numbers(column, -1)


def _dictionary(columns: dict[str, Any], name: str) -> Any | None:
    column = columns.get(name)
    return None if column is None else column.dictionary_encode()


# --- properties ------------------------------------------------------------------------------------------------------


def _properties(columns: dict[str, Any], count: int, keep: Iterable[str]) -> Texts:
    parts = []
    if "tags" in columns:
        parts.append(_pair(const.PROPERTY_TAGS, "tags", columns["tags"]))
    if "keys" in columns:
        parts.append(_pair(const.PROPERTY_KEYS, "keys", _words(columns["keys"])))
    if "shardingKey" in columns:
        parts.append(_pair(const.PROPERTY_SHARDING_KEY, "shardingKey", columns["shardingKey"]))
    if "delayTimeLevel" in columns:
        levels = columns["delayTimeLevel"]
        parts.append(_pair(const.PROPERTY_DELAY_TIME_LEVEL, "delayTimeLevel", _positive(levels, "delayTimeLevel")))
    if "deliverTimestamp" in columns:
        times = _positive(_milliseconds(columns["deliverTimestamp"]), "deliverTimestamp")
        parts.append(_pair(const.PROPERTY_TIMER_DELIVER_MS, "deliverTimestamp", times))
    if "properties" in columns:
        parts.append(_map(columns["properties"], {name for name in ("tags", "keys") if name not in columns}, keep))
    if not parts:
        return Texts(np.zeros(count + 1, np.int64), np.zeros(1, np.uint8))
    whole = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, pa.scalar("", pa.large_string()))
    return _texts(whole)


def _pair(name: str, column: str, values: Any) -> Any:
    """Return `name\x01value\x02` of each row; empty where the value is null or empty."""
    values = values.cast(pa.large_string())
    _check_text(values, column)
    is_there = pc.fill_null(pc.greater(pc.binary_length(values), 0), False)
    empty = pa.scalar("", pa.large_string())
    start, end = pa.scalar(name + _PAIR, pa.large_string()), pa.scalar(_END, pa.large_string())
    return pc.if_else(is_there, pc.binary_join_element_wise(start, values, end, empty), empty)


def _check_text(values: Any, column: str) -> None:
    for separator in (_PAIR, _END):
        if pc.any(pc.match_substring(values, separator)).as_py():
            raise PipelineError(
                f"a value of column {column} contains {separator!r}, which RocketMQ puts between properties"
            )


def _words(keys: Any) -> Any:
    if not pa.types.is_nested(keys.type):
        return keys
    words = keys.flatten()
    if words.null_count:
        raise PipelineError("a key in column keys is null; leave it out")
    if pc.any(pc.match_substring(words, const.KEY_SEPARATOR)).as_py():
        raise PipelineError("a key in column keys has a blank, which RocketMQ puts between keys: it would be two keys")
    # Spark's type says that no element is null; Arrow's join does not know that
    lists = keys.cast(pa.large_list(pa.large_string()))
    return pc.binary_join(lists, pa.scalar(const.KEY_SEPARATOR, pa.large_string()))


def _milliseconds(times: Any) -> Any:
    if pa.types.is_timestamp(times.type):
        wanted = pc.CastOptions(pa.timestamp("ms", tz=times.type.tz), allow_time_truncate=True)
        return pc.cast(times, options=wanted).cast(pa.int64())
    return times


def _positive(numbers: Any, column: str) -> Any:
    """Return a column of numbers as texts; null where the number is 0. Raises PipelineError for negative numbers."""
    wide = numbers.cast(pa.int64())
    if pc.any(pc.less(wide, 0)).as_py():
        raise PipelineError(f"column {column} is {pc.min(wide).as_py()} in a row; it must be 0 (none) or above")
    return pc.if_else(pc.greater(wide, 0), wide, None).cast(pa.large_string())


def _map(column: Any, also: set[str], reserved_too: Iterable[str]) -> Any:
    """Return the properties of a map column. `also` means that tags and keys are taken from the map if they have no
    column."""
    names, values = column.keys.cast(pa.large_string()), column.items.cast(pa.large_string())
    offsets = np.asarray(column.offsets, np.int64)
    allowed = {const.PROPERTY_TAGS for _ in also & {"tags"}} | {const.PROPERTY_KEYS for _ in also & {"keys"}}
    reserved = pa.array(sorted(const.RESERVED_PROPERTIES - allowed - {*reserved_too}), pa.large_string())
    drop = pc.or_(pc.is_in(names, value_set=reserved), pc.fill_null(pc.equal(pc.binary_length(values), 0), True))
    if pc.any(drop).as_py():
        keep = pc.invert(drop)
        kept = np.concatenate(([0], np.cumsum(keep.to_numpy(zero_copy_only=False))))
        offsets, names, values = kept[offsets], names.filter(keep), values.filter(keep)
    _check_text(names, "properties")
    _check_text(values, "properties")
    pairs = pc.binary_join_element_wise(names, values, pa.scalar(_PAIR, pa.large_string()))
    lists = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), pairs)
    joined = pc.binary_join(lists, pa.scalar(_END, pa.large_string()))
    empty = pa.scalar("", pa.large_string())
    is_there = pc.and_(column.is_valid(), pc.greater(pc.binary_length(joined), 0))
    return pc.if_else(is_there, pc.binary_join_element_wise(joined, empty, pa.scalar(_END, pa.large_string())), empty)


def _delayed(columns: dict[str, Any]) -> npt.NDArray[np.bool_] | None:
    found: npt.NDArray[np.bool_] | None = None
    for name in ("delayTimeLevel", "deliverTimestamp"):
        if name not in columns:
            continue
        numbers = _numbers(_milliseconds(columns[name]), 0) > 0
        if found is not None and bool(np.any(found & numbers)):
            raise PipelineError("a row has both delayTimeLevel and deliverTimestamp; one of them says when")
        found = numbers if found is None else found | numbers
    return found
