"""Trace records (trace_records.py) → what was sent and consumed, how long it took, what did not arrive.

Sends and consumptions meet by message id. A record may come twice (trace messages are sent at least once) and in any
order; some do not come at all: clients drop traces that they can not send, and failed sends are not traced.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from maxq.pipeline.transforms.trace_records import BEGUN, ENDED, RECALL, SENT, TRANSACTION

#: Steps that are measured, in the order of a message's way.
SEND, STORE, DELIVER, CONSUME = "send", "store", "deliver", "consume"
_DELAY, _HALF = "Delay", "Trans"
_COMMITTED: Final = "COMMIT_MESSAGE"


def sent_messages(records: DataFrame) -> DataFrame:
    """Return one row a sent message; each message of a batch has its own row.

    Returns:
        messageId (the key), topic, tags, keys, groupName, client, storeHost, messageType, bodyLength (of the batch),
        sentAt, costMs, success, availableAt: when consumers could have it: when it was sent or, of a transaction,
        committed; null for a delayed message and for a transaction that was not committed. isBatched, isRecalled.
    """
    sent = (
        _sound(records, SENT)
        .select(
            F.explode(F.split("messageId", ",")).alias("messageId"),
            F.contains("messageId", F.lit(",")).alias("isBatched"),
            "topic", "tags", "keys", "groupName", "client", "storeHost", "messageType", "bodyLength",
            F.col("at").alias("sentAt"), "costMs", "success",
        )
        .withColumn("number", F.row_number().over(Window.partitionBy("messageId").orderBy(F.desc("success"), "sentAt")))
        .where("number = 1")
        .drop("number")
    )  # fmt: skip
    committed = (
        _sound(records, TRANSACTION)
        .where(F.col("transactionState") == _COMMITTED)
        .groupBy("messageId")
        .agg(F.min("at").alias("committedAt"))
    )
    recalled = _sound(records, RECALL).where("success").select("messageId", F.lit(True).alias("recalled")).distinct()
    available = (
        F.when(F.col("messageType") == _HALF, F.col("committedAt"))
        .when(F.col("messageType") == _DELAY, None)
        .otherwise(F.col("sentAt"))
    )
    return (
        sent.join(committed, "messageId", "left")
        .join(recalled, "messageId", "left")
        .select(
            *sent.columns,
            available.alias("availableAt"),
            F.coalesce("recalled", F.lit(False)).alias("isRecalled"),
        )
    )


def consumptions(records: DataFrame) -> DataFrame:
    """Return one row for each time that a consumer was given a message.

    Returns:
        requestId and messageId (the key), groupName, client, retryTimes, keys, begunAt; costMs, success, outcome: null
        if no end is traced.
    """
    begun = _once(
        _sound(records, BEGUN).select(
            "requestId", "messageId", "groupName", "client", "retryTimes", "keys", F.col("at").alias("begunAt")
        )
    )
    ended = _once(_sound(records, ENDED).select("requestId", "messageId", "costMs", "success", "outcome"))
    return begun.join(ended, ["requestId", "messageId"], "left")


def latencies(sent: DataFrame, consumed: DataFrame, stored: DataFrame | None = None) -> DataFrame:
    """Return durations in one long table with messageId, in the form that latency.py takes.

    send: until the producer had its answer. store: from the send until the broker's store time. deliver: from when a
    message was available until a consumer began it, at its first try. consume: the listener, per message.
    Sends of a batch count once for each of its messages. Delivery and store compare clocks of two machines.

    Args:
        sent, consumed: of `sent_messages` and `consumptions`.
        stored: messageId, storeTimestamp. Without it store is Java's estimate, half of send (TraceBean.storeTime).
    """
    whole = F.lit(True)
    sends = _measured(sent, SEND, F.col("sentAt"), F.col("costMs"), F.col("success"))
    if stored is None:
        stores = _measured(sent, STORE, F.col("sentAt"), F.floor(F.col("costMs") / 2), whole)
    else:
        times = stored.groupBy("messageId").agg(F.min("storeTimestamp").alias("storedAt"))
        stores = _measured(
            sent.join(times, "messageId", "inner"), STORE, F.col("sentAt"), _between("sentAt", "storedAt"), whole
        )
    of_message = sent.select("messageId", "topic", "availableAt")
    consumed = consumed.join(of_message, "messageId", "left")
    first = consumed.where((F.col("retryTimes") == 0) & F.col("availableAt").isNotNull())
    delivers = _measured(first, DELIVER, F.col("begunAt"), _between("availableAt", "begunAt"), whole)
    consumes = _measured(
        consumed.where(F.col("costMs").isNotNull()), CONSUME, F.col("begunAt"), F.col("costMs"), F.col("success")
    )
    return sends.unionByName(stores).unionByName(delivers).unionByName(consumes)


def undelivered(sent: DataFrame, consumed: DataFrame, *, until_ms: int, grace_ms: int) -> DataFrame:
    """Return the messages that a group should have consumed and, by the trace, has not.

    A message is expected at every group that was given another message of the same topic and tags, and at one group at
    least (groupName null) if nobody was given any. Failed sends, delayed messages, transactions that were not
    committed and recalled messages are expected nowhere, nor is what became available less than `grace_ms` before
    `until_ms`. Nor are messages of batches: brokers write no region on them, and consumers trace only what has one.

    Returns:
        messageId, topic, tags, keys, groupName, state (`not begun`, `not ended` or `failed`), sentAt, retryTimes,
        lastAt; oldest first.
    """
    due = F.timestamp_millis(F.lit(until_ms - grace_ms))
    wanted = sent.where(
        F.col("success")
        & ~F.col("isRecalled")
        & ~F.col("isBatched")
        & F.col("availableAt").isNotNull()
        & (F.col("availableAt") <= due)
    ).select("messageId", "topic", F.coalesce("tags", F.lit("")).alias("tags"), "keys", "sentAt")
    last = consumed.groupBy("messageId", "groupName").agg(
        F.max_by(F.struct("success", "retryTimes", "begunAt"), F.struct("retryTimes", "begunAt")).alias("last"),
        F.max(F.coalesce("success", F.lit(False))).alias("consumed"),
    )
    listeners = (
        last.join(sent, "messageId", "inner")
        .select("topic", F.coalesce("tags", F.lit("")).alias("tags"), last["groupName"])
        .distinct()
    )
    expected = wanted.join(listeners, ["topic", "tags"], "left")
    state = (
        F.when(F.col("last").isNull(), "not begun")
        .when(F.col("last.success").isNull(), "not ended")
        .otherwise("failed")
    )
    return (
        expected.join(last, ["messageId", "groupName"], "left")
        .where(~F.coalesce("consumed", F.lit(False)))
        .where(F.col("last").isNull() | (F.col("last.begunAt") <= due))
        .select(
            "messageId", "topic", F.when(F.col("tags") != "", F.col("tags")).alias("tags"), "keys", "groupName",
            state.alias("state"), "sentAt", F.col("last.retryTimes").alias("retryTimes"),
            F.col("last.begunAt").alias("lastAt"),
        )
        .orderBy("sentAt", "messageId", "groupName")
    )  # fmt: skip


def slow_messages(measured: DataFrame, slow_ms: int) -> DataFrame:
    """Return the rows of `latencies` that took `slow_ms` or longer, the slowest first; store is left out, because it is
    part of send."""
    return (
        measured.where((F.col("ms") >= slow_ms) & (F.col("measure") != STORE))
        .select("messageId", "measure", "topic", "groupName", "client", "at", "ms", "success")
        .orderBy(F.desc("ms"), "messageId", "measure", "groupName")
    )


def message_way(records: DataFrame, message_id: str) -> DataFrame:
    """Return everything that was traced of one message, in the order of time.

    Returns:
        at (that of the trace's arrival if a record has none), event, groupName, client, topic, storeHost, costMs,
        success, retryTimes, detail.
    """
    event = F.create_map(
        *(
            F.lit(text)
            for pair in (
                (SENT, "sent"),
                (BEGUN, "consumption begun"),
                (ENDED, "consumption ended"),
                (TRANSACTION, "transaction ended"),
                (RECALL, "recalled"),
            )
            for text in pair
        )
    )
    detail = F.concat_ws(
        ", ",
        F.when(F.col("kind") == SENT, F.concat_ws(" ", F.lit("type"), "messageType")),
        F.col("outcome"),
        F.col("transactionState"),
        F.when(F.col("fromCheck"), "after a check"),
        F.when(F.col("bodyLength").isNotNull(), F.concat_ws(" ", F.col("bodyLength").cast("string"), F.lit("bytes"))),
    )
    of_record = F.col("messageId")
    order = F.create_map(*(F.lit(value) for pair in _ORDER.items() for value in pair))
    return (
        records.where(F.col("fault").isNull() & F.array_contains(F.split(of_record, ","), message_id))
        .select(
            F.coalesce("at", "reportedAt").alias("at"), event[F.col("kind")].alias("event"), "groupName", "client",
            "topic", "storeHost", "costMs", "success", "retryTimes", detail.alias("detail"),
            order[F.col("kind")].alias("order"), "requestId",
        )
        .distinct()
        .orderBy("at", "order", "groupName", "requestId")
        .drop("order", "requestId")
    )  # fmt: skip


def record_counts(records: DataFrame) -> DataFrame:
    """Count records by kind and fault; sound records have no fault, broken ones no kind."""
    return records.groupBy("kind", "fault").count().orderBy(F.asc_nulls_last("kind"), "fault")


_ORDER: Final = {SENT: 0, RECALL: 1, TRANSACTION: 2, BEGUN: 3, ENDED: 4}


def _sound(records: DataFrame, kind: str) -> DataFrame:
    return records.where(F.col("fault").isNull() & (F.col("kind") == kind))


def _once(frame: DataFrame) -> DataFrame:
    return frame.dropDuplicates(["requestId", "messageId"])


def _between(first: str, last: str) -> Column:
    return F.unix_millis(last) - F.unix_millis(first)


def _measured(frame: DataFrame, measure: str, at: Column, ms: Column, success: Column) -> DataFrame:
    return frame.select(
        F.lit(measure).alias("measure"),
        "topic",
        "groupName",
        "client",
        "messageId",
        at.alias("at"),
        ms.cast("bigint").alias("ms"),
        success.alias("success"),
    )
