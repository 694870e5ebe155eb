"""DeletedNames: what is remembered of a topic or a group ends with it, on a master and on its slaves."""

from collections.abc import Iterable

from maxq.broker.client.silent_consumers import SilentConsumers
from maxq.broker.filter.consumer_filter_manager import ConsumerFilterManager
from maxq.broker.processors.clients.message_request_mode_manager import MessageRequestModeManager
from maxq.broker.stats.broker_stats_manager import BrokerStatsManager
from maxq.broker.subscription.subscription_group_manager import SubscriptionGroupManager
from maxq.broker.topic.topic_config_manager import TopicConfigManager
from maxq.config.settings import BrokerSettings
from maxq.protocol.body.topic_config import TopicConfig


class DeletedNames:
    """Hears of deleted topics and groups, and tells those that are given here."""

    def __init__(
        self,
        settings: BrokerSettings,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        *,
        request_modes: MessageRequestModeManager,
        filters: ConsumerFilterManager,
        silent: SilentConsumers,
        stats: BrokerStatsManager,
    ) -> None:
        self._settings = settings
        self._groups = groups
        self._request_modes = request_modes
        self._filters = filters
        self._silent = silent
        self._stats = stats
        topics.add_change_listener(self._topics_changed)
        groups.add_change_listener(self._groups_changed)

    def _topics_changed(self, changed: list[TopicConfig], deleted: list[str]) -> None:
        if gone := frozenset(deleted):
            self._request_modes.forget(topics=gone)
            self._filters.forget(topics=gone)
            self._silent.forget(topics=gone)
            if self._settings.broker.auto_delete_unused_stats:
                self._stats.on_topics_deleted(gone)

    def _groups_changed(self, names: Iterable[str]) -> None:
        if gone := frozenset(names) - self._groups.subscription_group_table.keys():
            self._request_modes.forget(groups=gone)
            self._filters.forget(groups=gone)
            self._silent.forget(groups=gone)
            if self._settings.broker.auto_delete_unused_stats:
                self._stats.on_groups_deleted(gone)
