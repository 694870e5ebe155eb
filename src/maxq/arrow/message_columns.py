"""Messages that are objects already → a batch of the same columns that columns_cy makes of their records.

This is the way of what is unusual: messages of an inner batch, of a static topic, or that a hook has seen.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from maxq.arrow.schemas import arrow_schema, base_column
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.message_id import host_text, offset_message_id

#: Properties that a consumer adds to each message that it hands out.
_OF_CONSUMERS: Final = (
    const.PROPERTY_MIN_OFFSET, const.PROPERTY_MAX_OFFSET, const.PROPERTY_CONSUME_START_TIMESTAMP,
)  # fmt: skip
_MOST_MS: Final = ((1 << 63) - 1) // 1000

_VALUES: Final[dict[str, Callable[[MessageExt], Any]]] = {
    "body": lambda one: one.body,
    "topic": lambda one: one.topic,
    "tags": lambda one: one.properties.get(const.PROPERTY_TAGS),
    "keys": lambda one: [word for word in one.properties.get(const.PROPERTY_KEYS, "").split(" ") if word],
    "properties": lambda one: _properties(one),
    "brokerName": lambda one: one.broker_name,
    "queueId": lambda one: one.queue_id,
    "queueOffset": lambda one: one.queue_offset,
    "physicalOffset": lambda one: one.physical_offset,
    "msgId": lambda one: offset_message_id(one.store_host, one.physical_offset),
    "uniqKey": lambda one: one.properties.get(const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX),
    "bornTimestamp": lambda one: _microseconds(one.born_timestamp),
    "storeTimestamp": lambda one: _microseconds(one.store_timestamp),
    "bornHost": lambda one: host_text(one.born_host),
    "storeHost": lambda one: host_text(one.store_host),
    "sysFlag": lambda one: _signed(one.sys_flag),
    "flag": lambda one: _signed(one.flag),
    "reconsumeTimes": lambda one: one.reconsume_times,
    "preparedTransactionOffset": lambda one: one.prepared_transaction_offset,
    "bodyCrc": lambda one: _signed(one.body_crc),
    "bodyFault": lambda one: one.body_fault or None,
    "key": lambda one: _bytes(one.properties.get(const.PROPERTY_KEYS)),
    "headers": lambda one: [{"key": name, "value": value.encode()} for name, value in _properties(one)],
}


def batch_of_messages(messages: Sequence[MessageExt], columns: Sequence[str]) -> pa.RecordBatch:
    """Make the batch of these messages with these columns (names of schemas)."""
    schema = arrow_schema(columns)
    arrays = []
    for name, kind in zip(columns, schema.types, strict=True):
        value = _VALUES.get(name) or _VALUES[base_column(name)]
        arrays.append(pa.array([value(message) for message in messages], kind))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _properties(message: MessageExt) -> list[tuple[str, str]]:
    return [(name, value) for name, value in message.properties.items() if name not in _OF_CONSUMERS]


def _microseconds(ms: int) -> int:
    return max(-_MOST_MS, min(ms, _MOST_MS)) * 1000


def _signed(number: int) -> int:
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
