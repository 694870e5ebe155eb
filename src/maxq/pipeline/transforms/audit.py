"""Compares the entries that the log requires with those of queues and index, and returns the faults.

Faults: store, file, position (byte in the file; null where there is no place), kind, expected, found.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from maxq.store.queue.unit_scan_cy import DAMAGED_TAGS_CODE
from maxq.store.tools.queue_files import MAX_EXT_ADDRESS

FAULT_COLUMNS: Final = ("store", "file", "position", "kind", "expected", "found")
_UNIT_KEY: Final = ("topic", "queueId", "queueOffset")
_ENTRY_KEY: Final = ("keyHash", "physicalOffset")
_MOST_SECONDS: Final = 0x7FFF_FFFF


def log_faults(damage: DataFrame, *, store: str) -> DataFrame:
    """Return the damaged places of a store's log as rows of faults.

    Args:
        damage: columns file, position (bytes in that file) and found: a text that says what is there instead of a
            record.
        store: name of the store in the rows.
    """
    found = damage.withColumn("kind", F.lit("log damaged"))
    return _faults(found, store, F.col("file"), F.col("position"), F.lit("records"), F.col("found"))


def unit_faults(expected: DataFrame, found: DataFrame, *, store: str, log_start: int, log_end: int) -> DataFrame:
    """Return the faults of ConsumeQueue units.

    Args:
        expected: topic, queueId, queueOffset, physicalOffset, size, tagsCode; key: the first three.
        found: the same with `file`: whatever stands in the place of a unit, were it no unit at all.
        log_start, log_end: a place without a message is not looked at if its unit points outside: the record has
            expired, or came meanwhile, which it does not where no broker runs: there nothing lies behind `log_end`.
    """
    ours = expected.where(F.col("tagsCode") != DAMAGED_TAGS_CODE).select(
        *_UNIT_KEY,
        F.col("physicalOffset").alias("expectedOffset"),
        F.col("size").alias("expectedSize"),
        F.col("tagsCode").alias("expectedTags"),
    )
    theirs = found.select(*_UNIT_KEY, "physicalOffset", "size", "tagsCode", "file")
    both = ours.join(theirs, list(_UNIT_KEY), "full_outer")
    is_of_the_log = F.col("physicalOffset").between(log_start, log_end - 1) & (F.col("size") > 0)
    wrong_offset = F.col("physicalOffset") != F.col("expectedOffset")
    wrong_size = F.col("size") != F.col("expectedSize")
    wrong_tags = (F.col("tagsCode") != F.col("expectedTags")) & (F.col("tagsCode") > MAX_EXT_ADDRESS)
    wrong = wrong_offset.cast("int") + wrong_size.cast("int") + wrong_tags.cast("int")
    kind = (
        F.when(F.col("physicalOffset").isNull(), "unit missing")
        .when(
            F.col("expectedOffset").isNull(),
            F.when(is_of_the_log & (F.col("tagsCode") != DAMAGED_TAGS_CODE), "unit of no record"),
        )
        .when(wrong > 1, "unit overwritten")
        .when(wrong_offset, "unit has wrong offset")
        .when(wrong_size, "unit has wrong size")
        .when(wrong_tags, "unit has wrong tags code")
    )
    queue = F.concat_ws("/", F.lit("consumequeue"), "topic", F.col("queueId").cast("string"))
    file_start = F.element_at(F.split("file", "/"), -1).cast("bigint")
    is_batch = F.startswith("file", F.lit("batchconsumequeue/"))
    position = F.when(~is_batch, F.col("queueOffset") * 20 - file_start)
    message = F.concat(F.lit("message "), F.col("queueOffset").cast("string"), F.lit(": "))
    return _faults(
        both.withColumn("kind", kind).where(F.col("kind").isNotNull()),
        store,
        F.coalesce(F.col("file"), queue),
        position,
        F.concat(message, _unit("expectedOffset", "expectedSize", "expectedTags")),
        F.concat(message, _unit("physicalOffset", "size", "tagsCode")),
    )


def entry_faults(expected: DataFrame, found: DataFrame, *, store: str, log_start: int, log_end: int) -> DataFrame:
    """Return the faults of index entries.

    Args:
        expected: keyHash, physicalOffset, storeTimestamp (milliseconds).
        found: file, position, number, keyHash, physicalOffset, seconds, begin (milliseconds).
        log_start, log_end: as in `unit_faults`.
    """
    ours = expected.dropDuplicates(list(_ENTRY_KEY)).select(*_ENTRY_KEY, "storeTimestamp")
    theirs = found.where(F.col("physicalOffset").between(log_start, log_end - 1))
    both = ours.join(theirs, list(_ENTRY_KEY), "full_outer")
    after = F.greatest(F.lit(0), F.floor((F.col("storeTimestamp") - F.col("begin")) / 1000))
    seconds = F.least(F.lit(_MOST_SECONDS), after)
    # The seconds of a file's first entry count from the end time of the file before it.
    wrong_time = (F.col("number") > 1) & (F.col("seconds") != seconds)
    kind = (
        F.when(F.col("number").isNull(), "entry missing")
        .when(F.col("storeTimestamp").isNull(), "entry of no key")
        .when(wrong_time, "entry has wrong time")
    )
    key = F.concat(
        F.lit("hash "), F.col("keyHash").cast("string"), F.lit(" at "), F.col("physicalOffset").cast("string")
    )
    return _faults(
        both.withColumn("kind", kind).where(F.col("kind").isNotNull()),
        store,
        F.coalesce(F.col("file"), F.lit("index")),
        F.col("position"),
        F.when(F.col("storeTimestamp").isNotNull(), _timed(key, seconds)),
        F.when(F.col("number").isNotNull(), _timed(key, F.col("seconds"))),
    )


def faults_by_kind(faults: DataFrame) -> DataFrame:
    """Return store, kind and number of faults, most first."""
    return faults.groupBy("store", "kind").agg(F.count(F.lit(1)).alias("faults")).orderBy(F.desc("faults"), "kind")


def _faults(rows: DataFrame, store: str, file: Column, position: Column, expected: Column, found: Column) -> DataFrame:
    return rows.select(
        F.lit(store).alias("store"),
        file.alias("file"),
        position.alias("position"),
        F.col("kind"),
        F.coalesce(expected, F.lit("nothing")).alias("expected"),
        F.coalesce(found, F.lit("nothing")).alias("found"),
    )


def _unit(offset: str, size: str, tags: str) -> Column:
    """Return a column that describes the unit of a queue in words; null if there is none."""
    parts = (F.lit("at "), F.col(offset), F.lit(", "), F.col(size), F.lit(" bytes, tags code "), F.col(tags))
    return F.concat(*(part.cast("string") for part in parts))


def _timed(key: Column, seconds: Column) -> Column:
    """Return a column with a key in words, and the second for which it was stored, where that is known."""
    return F.concat(key, F.coalesce(F.concat(F.lit(", second "), seconds.cast("string")), F.lit("")))
