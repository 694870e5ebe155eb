"""TimerMetrics: how many timer messages of each topic wait; the file `config/timermetrics` (TimerMetrics.java).

{"dataVersion":{…},"timingCount":{"T":{"count":3,"timeStamp":1795229006009}}}    on one line
"""

from collections.abc import Container
from pathlib import PurePath
from typing import Any, Final

from maxq.errors import RemoteProtocolError
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.json import json_dialect
from maxq.runtime.files.config_manager import ConfigManager
from maxq.runtime.interfaces import Disk

FILE_NAME: Final = "timermetrics"


class TimerMetrics(ConfigManager):
    """How many timer messages wait for their time, by topic; kept in the file timermetrics.

    Attributes:
        counts: topic → messages that wait.
        is_changed: a count has changed since the file was written.
    """

    MAY_BE_LOST = True

    def __init__(self, disk: Disk, path: PurePath) -> None:
        super().__init__(disk, path)
        self.counts: dict[str, int] = {}
        self.is_changed = False
        self._times: dict[str, int] = {}
        self._version = DataVersion()

    def add(self, topic: str, count: int, now_ms: int) -> None:
        """Add `count`, which may be negative, to the number of waiting messages of `topic`."""
        self.counts[topic] = self.counts.get(topic, 0) + count
        self._times[topic] = now_ms
        self._version.next_version(now_ms)
        self.is_changed = True

    def keep(self, topics: Container[str]) -> None:
        """Remove topics that are not among `topics` and have no waiting messages."""
        gone = [topic for topic, count in self.counts.items() if topic not in topics and count <= 0]
        for topic in gone:
            del self.counts[topic], self._times[topic]
            self.is_changed = True

    def encode(self) -> bytes:
        counts = {
            topic: {"count": count, "timeStamp": self._times.get(topic, 0)}
            for topic, count in sorted(self.counts.items())
        }
        return json_dialect.dumps({"dataVersion": self._version.to_json(), "timingCount": counts})

    def decode(self, data: bytes) -> None:
        value = json_dialect.loads(data)
        table: Any = value.get("timingCount") if isinstance(value, dict) else None
        if not isinstance(table, dict):
            raise RemoteProtocolError("timing counts are an object with the member timingCount")
        try:
            counts = {str(topic): int(metric["count"]) for topic, metric in table.items()}
            times = {str(topic): int(metric.get("timeStamp") or 0) for topic, metric in table.items()}
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise RemoteProtocolError(f"a timing count is an object with count and timeStamp: {error!r}") from None
        version = value.get("dataVersion")
        self._version = DataVersion() if version is None else DataVersion.from_json(version)
        self.counts, self._times = counts, times
