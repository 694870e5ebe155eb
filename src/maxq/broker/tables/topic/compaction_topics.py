"""CompactionTopics: tells the store which topics it keeps compacted (`cleanup.policy=COMPACTION`, `enableCompaction`).

Source:
    common/utils/CleanupPolicyUtils.java; store/DefaultMessageStore.java (getMessage).
"""

from typing import Final

from maxq.broker.tables.attributes import CLEANUP_POLICY
from maxq.broker.tables.topic.topic_config_manager import TopicConfigManager
from maxq.config.settings import BrokerSettings
from maxq.protocol.body.topic_config import TopicConfig

COMPACTION: Final = "COMPACTION"


def is_compacted(config: TopicConfig) -> bool:
    """Return whether this topic keeps one message for each key."""
    return config.attributes.get(CLEANUP_POLICY) == COMPACTION


class CompactionTopics:
    """Keeps the store's set of compaction topics in step with the TopicConfigManager."""

    def __init__(self, topics: TopicConfigManager, settings: BrokerSettings, compacted: set[str]) -> None:
        """`compacted` is the store's set of compacted topics."""
        self._topics = topics
        self._settings = settings
        self._compacted = compacted

    def refresh_all(self) -> None:
        """Refresh all topics, once they are loaded."""
        self.topics_changed(list(self._topics.topic_config_table.values()), [])

    def topics_changed(self, changed: list[TopicConfig], deleted: list[str]) -> None:
        """Update the store's set for these topics."""
        self._compacted.difference_update(deleted, (config.topic_name for config in changed))
        if self._settings.store.enable_compaction:
            self._compacted.update(config.topic_name for config in changed if is_compacted(config))
