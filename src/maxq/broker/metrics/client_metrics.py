"""Numbers of connected clients, by language and version.

Source:
    broker/metrics/BrokerMetricsManager.java initConnectionMetrics; common/MQVersion.java.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from maxq.broker.metrics.labels import flag, is_system_group
from maxq.broker.tables.client.consumer_manager import ConsumerManager
from maxq.broker.tables.client.producer_manager import ProducerManager
from maxq.codes import MQVersion
from maxq.protocol.enums import ConsumeType
from maxq.protocol.frame.remoting_command import language_name
from maxq.runtime.metrics.registry import MetricsRegistry, Sample

_MODES: Final = {
    ConsumeType.CONSUME_ACTIVELY: "pull",
    ConsumeType.CONSUME_PASSIVELY: "push",
    ConsumeType.CONSUME_POP: "pop",
}
_REMOTING: Final = "remoting"
_PATCHES: Final = 20  # ordinals of a minor version: ten patches, a snapshot and a release of each
_MINORS_OF_4: Final = 9  # 4.1 to 4.9; the majors behind it have ten


class ClientMetrics:
    """Registers its metrics with the registry it is given."""

    def __init__(self, registry: MetricsRegistry, *, consumers: ConsumerManager, producers: ProducerManager) -> None:
        self._consumers = consumers
        self._producers = producers
        registry.gauge(
            "rocketmq_producer_connections",
            "Connected producers, by language and version of the client",
            self._producer_connections,
            ("language", "version", "protocol_type"),
        )
        registry.gauge(
            "rocketmq_consumer_connections",
            "Connected consumers, by group, language and version of the client",
            self._consumer_connections,
            ("consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system"),
        )

    def _producer_connections(self) -> Iterator[Sample]:
        counts: Counter[tuple[int, int]] = Counter()
        for members in self._producers.group_channel_table.values():
            counts.update((info.language, info.version) for info in members.values())
        for (language, version), count in counts.items():
            yield (language_name(language).lower(), version_text(version), _REMOTING), count

    def _consumer_connections(self) -> Iterator[Sample]:
        for group, info in list(self._consumers.consumer_table.items()):
            counts = Counter((one.language, one.version) for one in info.channel_info_table.values())
            mode, system = _MODES[info.consume_type], flag(is_system_group(group))
            for (language, version), count in counts.items():
                labels = (group, language_name(language).lower(), version_text(version), mode, _REMOTING, system)
                yield labels, count


def version_text(ordinal: int) -> str:
    """`v5_3_3`, `v5_0_0_snapshot`; `v<ordinal>` of what is older than 4.1."""
    behind = ordinal - MQVersion.V4_1_0_SNAPSHOT
    if behind < 0:
        return f"v{ordinal}"
    minors, rest = divmod(behind, _PATCHES)
    major, minor = (4, minors + 1) if minors < _MINORS_OF_4 else (5 + (minors - _MINORS_OF_4) // 10, (minors - 9) % 10)
    return f"v{major}_{minor}_{rest // 2}" + ("" if rest % 2 else "_snapshot")
