"""Messages of the trace topic → trace records, one a row.

The layout is that of protocol/message/message_trace.py; here records are columns.

Clients print null as `null`. A batch is one Pub whose msgId is the ids of its messages with commas between them.
Records at which Java's decoder would throw are rows with a `fault` here.

Source: apache/rocketmq client/trace/TraceDataEncoder.java, TraceView.java (the client's host is the sender's of the
trace message).
"""

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from maxq.protocol.message.message_trace import (
    CONTENT_SEPARATOR,
    FIELDS,
    LEAST_FIELDS,
    LONG_PUB,
    NULL,
    NUMBER,
    NUMBERS,
    OPTIONAL_NUMBERS,
    RECORD_SEPARATOR,
    ContextCode,
    TraceType,
)

#: Columns of messages that are needed.
TRACE_MESSAGE_COLUMNS: Final = ("body", "brokerName", "queueId", "queueOffset", "bornHost", "storeTimestamp")
SENT, BEGUN, ENDED = TraceType.PUB.value, TraceType.SUB_BEFORE.value, TraceType.SUB_AFTER.value
TRANSACTION, RECALL = TraceType.END_TRANSACTION.value, TraceType.RECALL.value
MESSAGE_TYPES: Final = ("Normal", "Trans", "TransCommit", "Delay", "Order")
OUTCOMES: Final = tuple(code.name for code in ContextCode)

_LAST_MS: Final = 253_402_300_799_999  # end of the year 9999
_RECORD_TEXT: Final = 200


def trace_records(messages: DataFrame) -> DataFrame:
    """Parse the records of trace messages.

    Args:
        messages: TRACE_MESSAGE_COLUMNS.

    Returns:
        One row a record: kind, at, region, groupName, topic, messageId, tags, keys, storeHost, bodyLength, costMs,
        messageType, offsetMessageId, success, requestId, retryTimes, outcome, transactionId, transactionState,
        fromCheck, client (host of the sender), reportedAt (store time of the trace message), brokerName, queueId,
        queueOffset (of the trace message), fault, record.

        `fault` says what is wrong with a broken record, of which `record` has the text; they are null otherwise. A
        message without any record is a row with the fault `no record`.
    """
    text = F.make_valid_utf8(F.col("body").cast("string"))
    records = F.filter(F.split(text, RECORD_SEPARATOR), lambda record: record != "")
    split = messages.select(
        F.regexp_replace("bornHost", r":\d+$", "").alias("client"),
        F.col("storeTimestamp").alias("reportedAt"),
        "brokerName",
        "queueId",
        "queueOffset",
        F.explode_outer(records).alias("record"),
    ).withColumn("fields", F.split("record", CONTENT_SEPARATOR))
    split = split.withColumn("kind", F.get("fields", F.lit(0)))
    return _decoded(split.withColumn("fault", _fault()))


def _decoded(split: DataFrame) -> DataFrame:
    is_long_sent = (F.col("kind") == SENT) & (F.size("fields") >= LONG_PUB)
    success = (
        F.when(is_long_sent, F.get("fields", F.lit(13)))
        .when(F.col("kind") == SENT, F.get("fields", F.lit(12)))
        .otherwise(_text("success"))
    )
    columns = {
        "kind": F.col("kind"),
        "at": F.timestamp_millis(_number("timestamp")),
        "region": _text("region"),
        "groupName": _text("groupName"),
        "topic": _text("topic"),
        "messageId": _text("messageId"),
        "tags": _text("tags"),
        "keys": _text("keys"),
        "storeHost": _text("storeHost"),
        "bodyLength": _number("bodyLength"),
        "costMs": _number("cost"),
        "messageType": _named(_number("messageType"), MESSAGE_TYPES),
        "offsetMessageId": F.when(is_long_sent, _present(F.get("fields", F.lit(12)))),
        "success": F.lower(success) == "true",
        "requestId": _text("requestId"),
        "retryTimes": _number("retryTimes"),
        "outcome": _named(_number("outcome"), OUTCOMES),
        "transactionId": _text("transactionId"),
        "transactionState": _text("transactionState"),
        "fromCheck": F.lower(_text("fromCheck")) == "true",
    }
    is_sound = F.col("fault").isNull()
    return split.select(
        *(F.when(is_sound, column).alias(name) for name, column in columns.items()),
        "client",
        "reportedAt",
        "brokerName",
        "queueId",
        "queueOffset",
        "fault",
        F.when(~is_sound, F.substring("record", 1, _RECORD_TEXT)).alias("record"),
    )


def _fault() -> Column:
    """Describe the fault of the record in `fields`; null if it has none."""
    least = _looked_up(LEAST_FIELDS, F.col("kind"))
    found = F.when(F.col("record").isNull(), "no record").when(least.isNull(), "unknown kind")
    found = found.when(F.size("fields") < least, "too few fields")
    for kind, names in NUMBERS.items():
        for name in names:
            raw = F.get("fields", F.lit(FIELDS[kind][name]))
            found = found.when((F.col("kind") == kind) & ~raw.rlike(NUMBER), f"{name} is no number")
    for kind, names in OPTIONAL_NUMBERS.items():
        for name in names:
            raw = F.get("fields", F.lit(FIELDS[kind][name]))
            is_wrong = (F.col("kind") == kind) & _present(raw).isNotNull() & ~raw.rlike(NUMBER)
            found = found.when(is_wrong, f"{name} is no number")
    return found.when(~_number("timestamp").between(0, _LAST_MS), "timestamp is no time")


def _raw(name: str) -> Column:
    """Return a field by its name; null if the kind of record does not have it.

    A look-up of its place, and not a question for each kind: every column of a record is made of several of these, and
    Spark makes one method of them all: 32 kB of it took seconds to plan and to compile.
    """
    places = {kind: names[name] for kind, names in FIELDS.items() if name in names}
    return F.get("fields", _looked_up(places, F.col("kind")))


def _looked_up(values: Mapping[Any, Any], key: Column) -> Column:
    """Return the value of a key; null for other keys."""
    return F.create_map(*(F.lit(one) for pair in values.items() for one in pair))[key]


def _present(text: Column) -> Column:
    return F.when(~text.isin("", NULL), text)


def _text(name: str) -> Column:
    return _present(_raw(name))


def _number(name: str) -> Column:
    return F.when(_raw(name).rlike(NUMBER), _raw(name)).cast("bigint")


def _named(ordinal: Column, names: tuple[str, ...]) -> Column:
    """Return the name of an ordinal; its number if a newer client has more of them."""
    known = _looked_up({str(number): name for number, name in enumerate(names)}, ordinal.cast("string"))
    return F.coalesce(known, ordinal.cast("string"))
