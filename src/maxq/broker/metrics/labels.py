"""Labels of a broker's metrics, and its registry.

A part that has numbers to show takes `BrokerController.metrics` and makes its instruments once
(runtime/metrics/registry.py says how). `enable…Metrics` switches of a group of metrics are asked where the group is
registered.

Source:
    broker/metrics/{BrokerMetricsManager,BrokerMetricsConstant}.java; store/metrics/DefaultStoreMetricsConstant.java.
"""

import logging
from typing import Final

from maxq.broker.tables.topic.topic_config_manager import TopicConfigManager
from maxq.config.broker_config import BrokerConfig
from maxq.protocol.body.topic_config import TopicConfig
from maxq.runtime.metrics.registry import Counter, Histogram, MetricsRegistry

log = logging.getLogger(__name__)

#: Further labels of everything that the store shows.
STORE_LABELS: Final = {"storage_type": "local", "storage_medium": "disk"}

_SYSTEM_GROUP_PREFIX: Final = "cid_rmq_sys_"


def broker_registry(broker: BrokerConfig) -> MetricsRegistry:
    """Make an empty registry with the labels of this broker."""
    constant = _own_labels(broker.metrics_label)
    constant |= {
        "cluster": broker.broker_cluster_name,
        "node_id": broker.broker_name,
        "node_type": "broker",
        "otel_scope_name": "broker-meter",
    }
    if broker.metrics_in_delta:
        constant["aggregation"] = "delta"
    return MetricsRegistry(constant, limit=broker.metrics_otel_cardinality_limit)


def _own_labels(text: str) -> dict[str, str]:
    """Parse `instance_id:xxx,uid:xxx` of metricsLabel; a part of another form is left out and logged."""
    labels: dict[str, str] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition(":")
        if name and value and ":" not in value:
            labels[name] = value
        elif part.strip():
            log.warning("metricsLabel: %r is not of the form name:value, it is left out", part)
    return labels


def flag(value: bool) -> str:
    """Return `true` or `false`, as labels of RocketMQ have it."""
    return "true" if value else "false"


def is_system_group(group: str) -> bool:
    """Return whether the group belongs to the broker itself."""
    return group.lower().startswith(_SYSTEM_GROUP_PREFIX)


def forget_deleted(topics: TopicConfigManager, *instruments: Counter | Histogram) -> None:
    """Drop the time series of deleted topics at each deletion, including series that late requests have created again.
    The first label is the topic."""

    def changed(_: list[TopicConfig], deleted: list[str]) -> None:
        if deleted:
            table = topics.topic_config_table
            for instrument in instruments:
                instrument.forget(lambda labels: labels[0] not in table)

    topics.add_change_listener(changed)
