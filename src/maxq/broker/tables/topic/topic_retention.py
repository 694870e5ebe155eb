"""TopicRetention: how much of a topic is shown, by the topic's own attributes.

    retention.ms      messages that were stored longer ago are hidden
    retention.bytes   of each queue the last so many bytes are shown
    purged.offsets    where each queue begins since it was purged (`purgeTopic` writes it)

Hidden is what lies below any of these bounds; it is looked at every cleanResourceInterval, and at once when a topic
changes. A bound that an attribute no longer sets is gone: what the log still has is shown again, except what was purged
(remove `purged.offsets` to undo a purge). Attributes are kept in topics.json and copied by slaves, so all of this holds
after a restart and on a slave, each by its own clock, unless that jumps ahead (store/retention/trusted_time.py). Files
of the log that only hold hidden messages are deleted (store/retention/hidden_messages.py).

Topics with batch queues and compaction topics keep what their own rules say.
"""

import asyncio
import logging
from collections.abc import Collection, Iterator
from typing import Final

from maxq.broker.tables.attributes import CLEANUP_POLICY, PURGED, QUEUE_TYPE, RETENTION_BYTES, RETENTION_MS
from maxq.broker.tables.topic.topic_config_manager import TopicConfigManager
from maxq.protocol.body.topic_config import TopicConfig
from maxq.store.message_store import MessageStore

log = logging.getLogger(__name__)

_TOPICS_AT_ONCE: Final = 20


class TopicRetention:
    """Hides messages that topics no longer keep; one per broker. Call `load` when topics and store are loaded."""

    def __init__(self, topics: TopicConfigManager, store: MessageStore) -> None:
        self._topics = topics
        self._store = store
        self._hidden = store.cleaner.hidden
        self._limited: dict[str, TopicConfig] = {}
        self._looking = False

    def load(self) -> None:
        """Hide messages by the topics' attributes, as far as their bounds are known quickly; the bounds in bytes follow
        with the first `look`."""
        self.topics_changed(list(self._topics.topic_config_table.values()), [])

    def end_purges(self) -> None:
        """Let no purge hide messages that are still to come: where a queue of this master ends before the place that it
        was purged up to, because a loss of power took the end of the log, or the table is from before the topic was
        deleted, the purge ends there. Call it before `load`."""
        purges = {}
        for topic, config in self._topics.topic_config_table.items():
            if PURGED in config.attributes:
                ends = {queue: min(offset, self._store.max_offset(topic, queue))
                        for queue, offset in purged_offsets(config).items()}  # fmt: skip
                purges[topic] = " ".join(f"{queue}:{end}" for queue, end in ends.items() if end > 0)
        if changed := self._topics.put_purges(purges):
            self._topics.update_data_version()
            log.warning("topics whose queues end before the places that they were purged up to: %s",
                        ", ".join(config.topic_name for config in changed))  # fmt: skip

    def take_deletion(self, topics: Collection[str]) -> bool:
        """Forget purges of topics that the log deletes: a slave's table may be from before the deletion, and would hide
        messages of the new topic. Returns whether there were any: it may also have been a purge of the new topic, as
        the table may be ahead of the log."""
        if changed := self._topics.put_purges(dict.fromkeys(topics, "")):
            self.topics_changed(changed, [])
        return bool(changed)

    @property
    def limited(self) -> list[str]:
        """Return the topics with a limit of their own by time, bytes or a purge."""
        return list(self._limited)

    def topics_changed(self, changed: list[TopicConfig], deleted: list[str]) -> None:
        """Hide messages by the attributes of these topics."""
        for topic in deleted:
            self._limited.pop(topic, None)
            self._hidden.forget(topic)
        for config in changed:
            topic = config.topic_name
            before = self._limited.pop(topic, None)
            if before is not None and _rules(before) != _rules(config):
                self._hidden.show_all(topic)  # a rule may have become wider: begin anew
            if any(_rules(config)) and _may_hide(config):
                self._limited[topic] = config
                self._set_bounds(config)

    def _set_bounds(self, config: TopicConfig) -> None:
        """Hide the messages of each queue of a topic that are older than its limit of time, or were purged."""
        purged = purged_offsets(config)
        for queue_id in _queues(config):
            self._hidden.hide_below(config.topic_name, queue_id, self._bound(config, queue_id, purged))

    def _bound(self, config: TopicConfig, queue_id: int, purged: dict[int, int]) -> int:
        bound = purged.get(queue_id, 0)
        limit_ms = _number(config.attributes.get(RETENTION_MS))
        if limit_ms:
            oldest_ms = self._store.time.now_ms() - limit_ms
            bound = max(bound, self._store.offset_by_time(config.topic_name, queue_id, oldest_ms))
        return bound

    async def look(self) -> None:
        """Advance the bounds. The loop runs other tasks in between."""
        if self._looking:
            return
        self._looking = True
        try:
            for position, config in enumerate(list(self._limited.values())):
                if self._limited.get(config.topic_name) is config:
                    await self._look_at(config)
                if position % _TOPICS_AT_ONCE == _TOPICS_AT_ONCE - 1:
                    await asyncio.sleep(0)
        finally:
            self._looking = False

    async def _look_at(self, config: TopicConfig) -> None:
        most = _number(config.attributes.get(RETENTION_BYTES))
        if not most:
            self._set_bounds(config)
            return
        purged = purged_offsets(config)
        for queue_id in _queues(config):
            by_size = await self._hidden.first_of_last_bytes(config.topic_name, queue_id, most)
            if self._limited.get(config.topic_name) is not config:
                return
            bound = max(by_size, self._bound(config, queue_id, purged))
            self._hidden.hide_below(config.topic_name, queue_id, bound)


def _rules(config: TopicConfig) -> tuple[str | None, ...]:
    return tuple(config.attributes.get(name) for name in (RETENTION_MS, RETENTION_BYTES, PURGED))


def _may_hide(config: TopicConfig) -> bool:
    attributes = config.attributes
    return attributes.get(QUEUE_TYPE) != "BatchCQ" and attributes.get(CLEANUP_POLICY) != "COMPACTION"


def why_not(config: TopicConfig) -> str:
    """Return why no message of this topic can be hidden; empty if messages can."""
    if _may_hide(config):
        return ""
    return f"topic {config.topic_name} has batch queues or is compacted: retention and purges do not apply to it"


def _queues(config: TopicConfig) -> Iterator[int]:
    return iter(range(max(config.read_queue_nums, config.write_queue_nums)))


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isascii() and text.isdigit() else 0


def purged_offsets(config: TopicConfig) -> dict[int, int]:
    """Return the first visible offset of each purged queue."""
    pairs = (part.partition(":") for part in config.attributes.get(PURGED, "").split())
    return {int(queue): int(offset) for queue, _, offset in pairs if queue.isdigit() and offset.isdigit()}
