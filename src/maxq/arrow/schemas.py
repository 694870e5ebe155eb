"""The contract of a message as a row: columns in order, with their types in Arrow and in Spark.

One table serves Spark's source over the wire, the source from files, `rocketmq-store` and `poll_arrow` of the client:
the rows are the same whichever way they came.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from maxq.errors import ConfigError

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")

#: Column → (Arrow type, Spark type).
MESSAGE_COLUMNS: Final[dict[str, tuple[pa.DataType, str]]] = {
    "body": (pa.binary(), "binary"),
    "topic": (pa.string(), "string"),
    "tags": (pa.string(), "string"),
    "keys": (pa.list_(pa.field("element", pa.string())), "array<string>"),
    "properties": (pa.map_(pa.string(), pa.string()), "map<string,string>"),
    "brokerName": (pa.string(), "string"),
    "queueId": (pa.int32(), "int"),
    "queueOffset": (pa.int64(), "bigint"),
    "physicalOffset": (pa.int64(), "bigint"),
    "msgId": (pa.string(), "string"),
    "uniqKey": (pa.string(), "string"),
    "bornTimestamp": (_TIMESTAMP, "timestamp"),
    "storeTimestamp": (_TIMESTAMP, "timestamp"),
    "bornHost": (pa.string(), "string"),
    "storeHost": (pa.string(), "string"),
    "sysFlag": (pa.int32(), "int"),
    "flag": (pa.int32(), "int"),
    "reconsumeTimes": (pa.int32(), "int"),
    "preparedTransactionOffset": (pa.int64(), "bigint"),
    "bodyCrc": (pa.int32(), "int"),
}

#: Columns under the names and types of Spark's Kafka source, made only where they are asked for: name → (column, Arrow
#: type, Spark type).
KAFKA_COLUMNS: Final[dict[str, tuple[str, pa.DataType, str]]] = {
    "key": ("keys", pa.binary(), "binary"),
    "value": ("body", pa.binary(), "binary"),
    "partition": ("queueId", pa.int32(), "int"),
    "offset": ("queueOffset", pa.int64(), "bigint"),
    "timestamp": ("storeTimestamp", _TIMESTAMP, "timestamp"),
    "headers": (
        "properties",
        pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        "array<struct<key:string,value:binary>>",
    ),
}
#: Column that is made only on request: why a compressed body could not be decompressed; or, where inner batches are
#: split (by consumers and over the wire, not in files of a store), why a message that is marked as a batch is not one;
#: null for all other messages.
BODY_FAULT: Final = "bodyFault"
_TYPES: Final = (
    MESSAGE_COLUMNS
    | {BODY_FAULT: (pa.string(), "string")}
    | {name: (arrow, spark) for name, (_, arrow, spark) in KAFKA_COLUMNS.items()}
)

#: Columns that can be told without the bytes of bodies.
METADATA_COLUMNS: Final = tuple(name for name in MESSAGE_COLUMNS if name != "body")


def message_columns(text: str | None) -> tuple[str, ...]:
    """Return the columns that the option `columns` names, in the order of the option; all of them if it is absent.

    Args:
        text: a comma list, upper and lower case alike.

    Raises:
        ConfigError: a name that is not a column, or one named twice.
    """
    if text is None or not text.strip():
        return tuple(MESSAGE_COLUMNS)
    return checked_columns([part.strip() for part in text.split(",")])


def checked_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of these names, upper and lower case alike, in their order.

    Raises:
        ConfigError: a name that is not a column, or one named twice.
    """
    spelled = {name.lower(): name for name in _TYPES}
    found: list[str] = []
    for asked in names:
        name = spelled.get(asked.lower())
        if name is None:
            raise ConfigError(f"columns: {asked!r} is no column of a message; there are {', '.join(_TYPES)}")
        if name in found:
            raise ConfigError(f"columns: {name} is named twice")
        found.append(name)
    return tuple(found)


def base_column(name: str) -> str:
    """Return the column from which one of KAFKA_COLUMNS is made; any other column is returned unchanged."""
    return KAFKA_COLUMNS[name][0] if name in KAFKA_COLUMNS else name


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of these message columns."""
    return pa.schema([pa.field(name, _TYPES[name][0]) for name in columns])


def spark_schema(columns: Sequence[str]) -> str:
    """Return the schema of these message columns as Spark's DDL."""
    return ", ".join(f"`{name}` {_TYPES[name][1]}" for name in columns)
