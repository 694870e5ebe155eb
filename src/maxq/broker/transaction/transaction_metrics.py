"""TransactionMetrics: open transactions by real topic (config/transactionMetrics).

Source:
    broker/transaction/{TransactionMetrics,TransactionMetricsFlushService}.java.
"""

from collections.abc import Callable, Iterable
from pathlib import PurePath
from typing import Any, Final

from maxq.broker.tables.persistent_manager import PeriodicManager, next_version, object_member
from maxq.errors import RemoteProtocolError
from maxq.protocol.body.data_version import DataVersion
from maxq.runtime.interfaces import Clock, Disk

FILE_NAME: Final = "transactionMetrics"


class TransactionMetrics(PeriodicManager):
    """Counts of transactions. They are rebuilt from the half topic when a broker begins to run checks, so a crash does
    not make them wrong."""

    MAY_BE_LOST = True

    def __init__(self, disk: Disk, path: PurePath, *, clock: Clock) -> None:
        super().__init__(disk, path)
        self._clock = clock
        self._version = DataVersion(timestamp=clock.wall_ms())
        self._counts: dict[str, int] = {}
        self._changed_ms: dict[str, int] = {}
        self.committed: dict[str, int] = {}  # real topic → transactions committed since the start
        self.rolled_back: dict[str, int] = {}
        self.on_committed: Callable[[str, int], None] | None = None  # (topic, born timestamp in milliseconds)

    def ended(self, topic: str, *, committed: bool, born_ms: int = 0) -> None:
        """Count the end of a transaction of `topic` whose message was born at `born_ms`."""
        counts = self.committed if committed else self.rolled_back
        counts[topic] = counts.get(topic, 0) + 1
        if committed and self.on_committed is not None:
            self.on_committed(topic, born_ms)

    def add(self, topic: str, change: int) -> None:
        """Change the number of open transactions of `topic`."""
        if change < 0 and topic not in self._counts:
            return  # the topic was deleted while the transaction was open
        self._counts[topic] = max(0, self._counts.get(topic, 0) + change)
        self._changed_ms[topic] = 0  # 0 means "now": the clock is read when the file is written
        self._is_dirty = True

    def forget(self, topics: Iterable[str]) -> None:
        """Remove the counts of open transactions of deleted topics."""
        for topic in topics:
            if self._counts.pop(topic, None) is not None:
                self._is_dirty = True
            for table in (self._changed_ms, self.committed, self.rolled_back):
                table.pop(topic, None)

    def open_transactions(self) -> dict[str, int]:
        """Return the number of open transactions by real topic."""
        return dict(self._counts)

    def start_anew(self) -> None:
        """Set all counts to 0, before all open transactions are counted again."""
        self._counts.clear()
        self._changed_ms.clear()
        self._is_dirty = True

    def persist(self) -> None:
        """Write the file, with the next version, if anything changed."""
        if self._is_dirty:
            self._version = next_version(self._version, self._clock.wall_ms())
        super().persist()

    def encode(self) -> bytes:
        return self.encode_compact()

    def to_json(self) -> dict[str, Any]:
        now_ms = self._clock.wall_ms()
        return {
            "dataVersion": self._version.to_json(),
            "transactionCount": {
                topic: {"count": count, "timeStamp": self._changed_ms.get(topic) or now_ms}
                for topic, count in list(self._counts.items())
            },
        }

    def from_json(self, value: dict[str, Any]) -> None:
        counts = object_member(value, "transactionCount")
        try:
            found = {topic: int(metric["count"]) for topic, metric in counts.items()}
            changed_ms = {topic: int(metric["timeStamp"]) for topic, metric in counts.items()}
        except (KeyError, TypeError, ValueError) as error:
            raise RemoteProtocolError(f"transactionCount is not counts by topic: {error!r}") from None
        if value.get("dataVersion") is not None:
            self._version = DataVersion.from_json(value["dataVersion"])
        self._counts, self._changed_ms = found, changed_ms
