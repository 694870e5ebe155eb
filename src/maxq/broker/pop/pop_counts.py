"""PopCounts: what pop consumption has done with the revive topic and the retry topics, for the metrics.

Source:
    broker/metrics/PopMetricsManager.java.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from typing import Final

SCAN_BOUNDS_MS: Final = (1, 10, 100, 1_000, 2_000, 3_000)


class PopCounts:
    """Counts since the start. Types of records are CK and ACK.

    Attributes:
        put: records for the revive topic, by group, topic, type and status of the put.
        got: records read from it, by group, topic, queue id and type.
        retried: messages put into retry topics, by group, topic and status of the put.
        scans: scans of the check points in memory, by duration (SCAN_BOUNDS_MS); scan_ms: their total duration in ms.
    """

    def __init__(self) -> None:
        self.put: Counter[tuple[str, ...]] = Counter()
        self.got: Counter[tuple[str, ...]] = Counter()
        self.retried: Counter[tuple[str, ...]] = Counter()
        self.scans = [0] * (len(SCAN_BOUNDS_MS) + 1)
        self.scan_ms = 0

    def forget(self, is_gone: Callable[[str, str], bool]) -> None:
        """Drop the counts for which `is_gone(topic, group)`."""
        for table in (self.put, self.got, self.retried):
            for key in [key for key in table if is_gone(key[1], key[0])]:
                del table[key]

    def scanned(self, took_ms: int) -> None:
        """Note how long a scan of all check points in memory took."""
        self.scans[bisect_left(SCAN_BOUNDS_MS, took_ms)] += 1
        self.scan_ms += took_ms
