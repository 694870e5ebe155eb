"""Latencies in one long table, and what is made of it: percentiles, distribution, course over time.

Such a table has a row for each measured duration: measure, topic, groupName, client, at, ms, success.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from maxq.pipeline.transforms.time_steps import step_start_ms

PERCENTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
#: Upper bounds of the histogram's steps in milliseconds; the last step has none.
STEPS_MS: Final = tuple(digit * 10**power for power in range(6) for digit in (1, 2, 5))
_ACCURACY: Final = 10_000  # a rank is off by at most one ten-thousandth of all


def latency_table(latencies: DataFrame, by: Sequence[str]) -> DataFrame:
    """Return count, failed, meanMs, minMs, percentiles (p50Ms, …) and maxMs of each group; most frequent first.

    Args:
        by: columns to group by.
    """
    percentiles = F.percentile_approx("ms", list(PERCENTILES.values()), _ACCURACY)
    return (
        latencies.groupBy(*by)
        .agg(
            F.count("ms").alias("count"),
            F.count(F.when(~F.col("success"), True)).alias("failed"),
            F.avg("ms").alias("meanMs"),
            F.min("ms").alias("minMs"),
            percentiles.alias("percentiles"),
            F.max("ms").alias("maxMs"),
        )
        .where(F.col("count") > 0)
        .select(
            *by, "count", "failed", "meanMs", "minMs",
            *(F.get("percentiles", F.lit(at)).alias(f"{name}Ms") for at, name in enumerate(PERCENTILES)),
            "maxMs",
        )
        .orderBy(F.desc("count"), *by)
    )  # fmt: skip


def latency_over_time(latencies: DataFrame, by: Sequence[str], step_ms: int) -> DataFrame:
    """Return count, p50Ms and p99Ms of each group in each step that has any: columns of `by`, stepMs (where it
    begins)."""
    return (
        latencies.groupBy(*by, step_start_ms(F.col("at"), step_ms).alias("stepMs"))
        .agg(F.count("ms").alias("count"), F.percentile_approx("ms", [0.5, 0.99], _ACCURACY).alias("percentiles"))
        .where(F.col("count") > 0)
        .select(
            *by,
            "stepMs",
            "count",
            F.get("percentiles", F.lit(0)).alias("p50Ms"),
            F.get("percentiles", F.lit(1)).alias("p99Ms"),
        )
        .orderBy(*by, "stepMs")
    )


def latency_distribution(latencies: DataFrame, by: Sequence[str]) -> DataFrame:
    """Return the count of each group in each of STEPS_MS: columns of `by`, belowMs (upper end, exclusive; null is the
    last)."""
    return (
        latencies.where(F.col("ms").isNotNull())
        .groupBy(*by, _step_end(F.col("ms")).alias("belowMs"))
        .count()
        .select(*by, "belowMs", "count")
        .orderBy(*by, F.asc_nulls_last("belowMs"))
    )


def _step_end(value: Column) -> Column:
    found = F.lit(None).cast("bigint")
    for end in reversed(STEPS_MS):
        found = F.when(value < end, F.lit(end).cast("bigint")).otherwise(found)
    return found
