"""TopicWriteStates: tells the fast path of sends what it may know of each topic.

The fast path (ARCHITECTURE.md, "The hot path") appends frames without asking a processor, so whatever a processor
would check of the topic is decided here, when the topic changes: `TopicWriteState.is_fast_path_open` is set when a
send to one of its queues needs no check beyond the queue id.

Source:
    the checks of broker/processor/SendMessageProcessor.java.
"""

from collections.abc import Callable
from typing import Final

from maxq.broker.tables.attributes import CLEANUP_POLICY, MESSAGE_TYPE, QUEUE_TYPE
from maxq.broker.tables.topic.topic_config_manager import TopicConfigManager
from maxq.broker.tables.topic.topic_validator import (
    DLQ_PREFIX,
    LMQ_PREFIX,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    is_not_allowed_send_topic,
    validate_topic,
)
from maxq.config.settings import BrokerSettings, Change
from maxq.protocol.body.topic_config import PERM_WRITE, TopicConfig
from maxq.protocol.enums import TopicFilterType
from maxq.store.log.tails_cy import TopicWriteState

_SETTINGS: Final = ("brokerPermission", "enableTopicMessageTypeCheck")
_GUARDED_PREFIXES: Final = (RETRY_PREFIX, DLQ_PREFIX, LMQ_PREFIX)


class TopicWriteStates:
    """Writes into the TopicWriteState of each topic what follows from its configuration in the TopicConfigManager."""

    def __init__(
        self,
        topics: TopicConfigManager,
        settings: BrokerSettings,
        state_of: Callable[[str], TopicWriteState],
        is_static: Callable[[str], bool],
        take_kind: Callable[[str], None],
    ) -> None:
        """
        Args:
            state_of: gives the store's TopicWriteState of a topic, made if it is not there yet.
            take_kind: brings the store's queues of a topic in step with its queue.type.
            is_static: are the queue ids of this topic global, so that sends to it are translated? Call refresh_all when
                that changes.
        """
        self._topics = topics
        self._settings = settings
        self._state_of = state_of
        self._is_static = is_static
        self._take_kind = take_kind
        self._shut: set[str] = set()

    def shut(self, topic: str) -> None:
        """Make every send to the topic take the slow path, whatever its configuration, until `open`."""
        self._shut.add(topic)
        self._refresh(topic)

    def open(self, topic: str) -> None:
        """Open a topic that `shut` has closed."""
        self._shut.discard(topic)
        self._refresh(topic)

    def _refresh(self, topic: str) -> None:
        config = self._topics.topic_config_table.get(topic)
        if config is not None:
            self.topics_changed([config], [])

    def refresh_all(self) -> None:
        """Refresh all topics, once topics and store are loaded."""
        self.topics_changed(list(self._topics.topic_config_table.values()), [])

    def settings_changed(self, changes: list[Change]) -> None:
        """Close or open topics after a live update of the settings."""
        if any(change.name in _SETTINGS for change in changes):
            self.refresh_all()

    def topics_changed(self, changed: list[TopicConfig], deleted: list[str]) -> None:
        """Bring the write states of these topics in step."""
        for topic in deleted:
            state = self._state_of(topic)
            state.is_fast_path_open, state.is_static, state.max_queue_id = False, False, -1
        is_writable = self._settings.broker.broker_permission & PERM_WRITE != 0
        checks_types = self._settings.broker.enable_topic_message_type_check
        for config in changed:
            state = self._state_of(config.topic_name)
            self._take_kind(config.topic_name)
            state.max_queue_id = max(config.read_queue_nums, config.write_queue_nums) - 1
            state.write_queue_nums = config.write_queue_nums
            state.multi_tags = config.topic_filter_type == TopicFilterType.MULTI_TAG
            state.is_delay_topic = config.topic_name == SCHEDULE_TOPIC
            takes_all = not checks_types or config.attributes.get(MESSAGE_TYPE) == "MIXED"
            state.is_static = self._is_static(config.topic_name)
            takes_all = takes_all and config.topic_name not in self._shut and not state.is_static
            state.is_fast_path_open = takes_all and _needs_no_check(config, is_writable=is_writable)


def _needs_no_check(config: TopicConfig, *, is_writable: bool) -> bool:
    topic = config.topic_name
    attributes = config.attributes
    return (
        not topic.startswith(_GUARDED_PREFIXES)
        and not is_not_allowed_send_topic(topic)
        and validate_topic(topic) is None
        and attributes.get(CLEANUP_POLICY, "DELETE") == "DELETE"
        and attributes.get(QUEUE_TYPE, "SimpleCQ") == "SimpleCQ"
        and (is_writable or not config.order)
        and config.write_queue_nums > 0
    )
