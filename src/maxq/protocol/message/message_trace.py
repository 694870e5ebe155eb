"""Trace records: what clients say of sends, consumptions, ends of transactions and recalls, in Java's text form.

The body of a message of the trace topic is records, each ended by U+0002, of fields with U+0001 between them:

    Pub             timestamp region group topic msgId tags keys storeHost bodyLength cost msgType offsetMsgId success
    SubBefore       timestamp region group requestId msgId retryTimes keys
    SubAfter        requestId msgId cost success keys contextCode [timestamp group]
    EndTransaction  timestamp region group topic msgId tags keys storeHost msgType transactionId state fromCheck
    Recall          timestamp region group topic msgId success

Null is written `null`. A Pub of older clients lacks offsetMsgId, one of some has the client's host behind success; a
SubAfter of older ones ends with keys, and one for the cloud has no timestamp and group. A batch is one Pub whose msgId
is the ids of its messages with commas between them. A listener call with several messages is a record for each.

`FIELDS`, `LEAST_FIELDS` and `NUMBERS` are the layout for readers of columns, too
(pipeline/transforms/trace_records.py).

Source: apache/rocketmq client/trace/{TraceDataEncoder,TraceContext,TraceBean,TraceType}.java.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Final

from maxq.errors import LocalProtocolError, RemoteProtocolError

CONTENT_SEPARATOR: Final = "\u0001"
RECORD_SEPARATOR: Final = "\u0002"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
DEFAULT_REGION: Final = "DefaultRegion"
NULL: Final = "null"


class TraceType(Enum):
    """The event of a trace record (TraceType.java); the first field of every record."""

    PUB = "Pub"
    SUB_BEFORE = "SubBefore"
    SUB_AFTER = "SubAfter"
    END_TRANSACTION = "EndTransaction"
    RECALL = "Recall"


class TracedMessageType(IntEnum):
    """Kind of a traced message: the ordinals of MessageType.java."""

    NORMAL = 0
    TRANSACTION_HALF = 1
    TRANSACTION_COMMIT = 2
    DELAY = 3
    ORDER = 4


class ContextCode(IntEnum):
    """How a listener call ended: the ordinals of ConsumeReturnType.java."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURNNULL = 3
    FAILED = 4


#: Kind → field → its place. The success of a Pub is at 12 or 13, which `success_place` tells.
FIELDS: Final[Mapping[str, Mapping[str, int]]] = {
    "Pub": {
        "timestamp": 1, "region": 2, "groupName": 3, "topic": 4, "messageId": 5, "tags": 6, "keys": 7, "storeHost": 8,
        "bodyLength": 9, "cost": 10, "messageType": 11,
    },
    "SubBefore": {
        "timestamp": 1, "region": 2, "groupName": 3, "requestId": 4, "messageId": 5, "retryTimes": 6, "keys": 7,
    },
    "SubAfter": {
        "requestId": 1, "messageId": 2, "cost": 3, "success": 4, "keys": 5, "outcome": 6, "timestamp": 7,
        "groupName": 8,
    },
    "EndTransaction": {
        "timestamp": 1, "region": 2, "groupName": 3, "topic": 4, "messageId": 5, "tags": 6, "keys": 7, "storeHost": 8,
        "messageType": 9, "transactionId": 10, "transactionState": 11, "fromCheck": 12,
    },
    "Recall": {"timestamp": 1, "region": 2, "groupName": 3, "topic": 4, "messageId": 5, "success": 6},
}  # fmt: skip
LEAST_FIELDS: Final = {"Pub": 13, "SubBefore": 8, "SubAfter": 6, "EndTransaction": 13, "Recall": 7}
NUMBERS: Final[Mapping[str, tuple[str, ...]]] = {
    "Pub": ("timestamp", "bodyLength", "cost", "messageType"),
    "SubBefore": ("timestamp", "retryTimes"),
    "SubAfter": ("cost",),
    "EndTransaction": ("timestamp", "messageType"),
    "Recall": ("timestamp",),
}
OPTIONAL_NUMBERS: Final[Mapping[str, tuple[str, ...]]] = {"SubAfter": ("outcome", "timestamp")}
NUMBER: Final = r"^[+-]?[0-9]{1,18}$"
#: Fields of a Pub record from which on offsetMsgId is field 12 and success field 13; in shorter ones success is field
#: 12.
LONG_PUB: Final = 14
_CLIENT_HOST_PLACE: Final = 14

_is_number = re.compile(NUMBER).fullmatch
_ATTRIBUTE_OF: Final = {
    "timestamp": "timestamp", "region": "region_id", "groupName": "group_name", "topic": "topic",
    "messageId": "msg_id", "tags": "tags", "keys": "keys", "storeHost": "store_host", "bodyLength": "body_length",
    "cost": "cost_time_ms", "messageType": "message_type", "requestId": "request_id", "retryTimes": "retry_times",
    "success": "success", "outcome": "context_code", "transactionId": "transaction_id",
    "transactionState": "transaction_state", "fromCheck": "from_transaction_check",
}  # fmt: skip
_FLAGS: Final = ("success", "fromCheck")


@dataclass(slots=True)
class TraceRecord:
    """One trace record. A field is None if its kind does not have it, or if the writer did not know it.

    Attributes:
        timestamp: wall clock ms at the client: a Pub's and SubBefore's begin, else the end.
        region_id: of the broker.
        group_name: producer or consumer group, without a namespace.
        msg_id: the client's id (UNIQ_KEY); of a batch its messages' ids, joined by commas.
        cost_time_ms: of the send; of a listener call divided by its number of messages.
        request_id: the same in a SubBefore and its SubAfter.
        message_type: ordinal, see TracedMessageType; newer clients may have more.
        context_code: ordinal, see ContextCode.
        transaction_state: COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW.
    """

    trace_type: TraceType
    timestamp: int | None = None
    region_id: str | None = None
    group_name: str | None = None
    topic: str | None = None
    msg_id: str | None = None
    tags: str | None = None
    keys: str | None = None
    store_host: str | None = None
    body_length: int | None = None
    cost_time_ms: int | None = None
    message_type: int | None = None
    offset_msg_id: str | None = None
    success: bool | None = None
    client_host: str | None = None
    request_id: str | None = None
    retry_times: int | None = None
    context_code: int | None = None
    transaction_id: str | None = None
    transaction_state: str | None = None
    from_transaction_check: bool | None = None

    @property
    def msg_ids(self) -> list[str]:
        """Return the message ids that the record names."""
        return [msg_id for msg_id in (self.msg_id or "").split(",") if msg_id]

    def encode(self) -> str:
        """Encode the record with its separator, as Java's newest clients write it.

        Raises:
            LocalProtocolError: a field has one of the separators in it.
        """
        kind = self.trace_type.value
        values = [kind, *(getattr(self, _ATTRIBUTE_OF[name]) for name in FIELDS[kind])]
        if self.trace_type is TraceType.PUB:
            values += [self.offset_msg_id, self.success]
        texts = [_text(value) for value in values]
        record = CONTENT_SEPARATOR.join(texts)
        if RECORD_SEPARATOR in record or record.count(CONTENT_SEPARATOR) != len(texts) - 1:
            raise LocalProtocolError(f"a field of a trace record has U+0001 or U+0002 in it: {record!r:.200}")
        return record + RECORD_SEPARATOR


@dataclass(frozen=True, slots=True)
class TraceFault:
    """A text that is not a trace record: the fault, and its beginning."""

    reason: str
    text: str


def decode_record(text: str) -> TraceRecord:
    """Decode one record, without its separator.

    Raises:
        RemoteProtocolError: an unknown kind, too few fields, or an invalid number.
    """
    fields = text.split(CONTENT_SEPARATOR)
    kind = fields[0]
    layout = FIELDS.get(kind)
    if layout is None:
        raise RemoteProtocolError(f"a trace record is of the unknown kind {kind!r:.40}")
    if len(fields) < LEAST_FIELDS[kind]:
        raise RemoteProtocolError(f"a {kind} record has {len(fields)} fields, at least {LEAST_FIELDS[kind]} are needed")
    numbers, optional = NUMBERS[kind], OPTIONAL_NUMBERS.get(kind, ())
    values: dict[str, Any] = {}
    for name, place in layout.items():
        raw = fields[place] if place < len(fields) else ""
        value: object
        if name in numbers or (name in optional and _present(raw) is not None):
            value = _number(kind, name, raw)
        elif name in optional:
            value = None
        elif name in _FLAGS:
            value = raw.lower() == "true"
        else:
            value = _present(raw)
        values[_ATTRIBUTE_OF[name]] = value
    if kind == TraceType.PUB.value:
        is_long = len(fields) >= LONG_PUB
        values["success"] = fields[13 if is_long else 12].lower() == "true"
        values["offset_msg_id"] = _present(fields[12]) if is_long else None
        values["client_host"] = _present(fields[_CLIENT_HOST_PLACE]) if len(fields) > _CLIENT_HOST_PLACE else None
    return TraceRecord(TraceType(kind), **values)


def decode_traces(body: bytes | memoryview) -> tuple[list[TraceRecord], list[TraceFault]]:
    """Decode the records of a trace message, in order, and return the faults of those that are invalid. Bytes that are
    not UTF-8 are replaced."""
    records: list[TraceRecord] = []
    faults: list[TraceFault] = []
    for text in str(body, "utf-8", "replace").split(RECORD_SEPARATOR):
        if not text:
            continue
        try:
            records.append(decode_record(text))
        except RemoteProtocolError as error:
            faults.append(TraceFault(str(error), text[:200]))
    return records, faults


def _text(value: object) -> str:
    if value is None:
        return NULL
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, int) else str(value)


def _present(text: str) -> str | None:
    return text if text and text != NULL else None


def _number(kind: str, name: str, text: str) -> int:
    if not _is_number(text):
        raise RemoteProtocolError(f"{name} of a {kind} record is no number: {text!r:.40}")
    return int(text)
