"""The pace of a replay: a number of messages per second, or the original distances in time.

The rows of a queue stay in their order. Tasks share the rate, so one that has more than its share of the rows takes
longer: the rate is an upper bound. The sink holds the rows back (sink_task).
"""

from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from maxq.errors import ConfigError
from maxq.pipeline.transforms.archive import QUEUE_KEY

_LATEST: Final = "_latestStoreTimestamp"


@dataclass(frozen=True)
class Pace:
    """How fast messages are sent; without either, as fast as possible.

    Attributes:
        rate: messages a second.
        speed: of the original pace; 2: in half the time.
    """

    rate: float | None = None
    speed: float | None = None

    def __post_init__(self) -> None:
        if self.rate is not None and self.speed is not None:
            raise ConfigError("a rate and a speed exclude each other")
        for name, value in (("rate", self.rate), ("speed", self.speed)):
            if value is not None and value <= 0:
                raise ConfigError(f"{name} is {value}; it must be above 0")

    def sink_options(self, tasks: int) -> dict[str, str]:
        """Return the options that make each of `tasks` tasks send at its share of the rate."""
        return {} if self.rate is None else {"rowsPerSecond": repr(self.rate / tasks)}


def in_order(messages: DataFrame, tasks: int) -> DataFrame:
    """Return the same rows, each queue in one task and in its order, with unchanged columns.

    A task's queues are merged by store time. Where a broker's clock went back, messages count as stored when the latest
    one before them in their queue was.
    """
    so_far = Window.partitionBy(*QUEUE_KEY).orderBy("queueOffset").rowsBetween(Window.unboundedPreceding, 0)
    keyed = messages.repartition(tasks, *QUEUE_KEY).withColumn(_LATEST, F.max("storeTimestamp").over(so_far))
    return keyed.sortWithinPartitions(_LATEST, *QUEUE_KEY, "queueOffset").drop(_LATEST)


def timed(messages: DataFrame, speed: float, *, start_ms: int, first_ms: int) -> DataFrame:
    """Return the same rows with the sink's column sendAt.

    Args:
        start_ms: wall time at which the row of `first_ms` is due.
        first_ms: of storing, since 1970.
    """
    since_ms = F.unix_millis("storeTimestamp") - F.lit(first_ms)
    return messages.withColumn("sendAt", (F.lit(start_ms) + since_ms / F.lit(speed)).cast("bigint"))
