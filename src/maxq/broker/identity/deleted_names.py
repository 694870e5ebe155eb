"""DeletedNames: what is remembered of a topic or a group ends with it, on a master and on its slaves."""

from collections.abc import Iterable

from maxq.broker.bundles import Clients, Environment, Tables
from maxq.protocol.body.topic_config import TopicConfig


class DeletedNames:
    """Listens for deleted topics and groups, and removes them from tables, clients and statistics."""

    def __init__(self, env: Environment, tables: Tables, clients: Clients) -> None:
        self._settings = env.settings
        self._stats = env.stats
        self._groups = tables.groups
        self._request_modes = tables.request_modes
        self._filters = clients.filters
        self._silent = clients.consumers.silent

    def topics_changed(self, changed: list[TopicConfig], deleted: list[str]) -> None:
        """Remove everything that the broker remembers of deleted topics: offsets, filters, statistics, …."""
        if gone := frozenset(deleted):
            self._request_modes.forget(topics=gone)
            self._filters.forget(topics=gone)
            self._silent.forget(topics=gone)
            if self._settings.broker.auto_delete_unused_stats:
                self._stats.on_topics_deleted(gone)

    def groups_changed(self, names: Iterable[str]) -> None:
        """Remove everything that the broker remembers of deleted consumer groups."""
        if gone := frozenset(names) - self._groups.subscription_group_table.keys():
            self._request_modes.forget(groups=gone)
            self._filters.forget(groups=gone)
            self._silent.forget(groups=gone)
            if self._settings.broker.auto_delete_unused_stats:
                self._stats.on_groups_deleted(gone)
