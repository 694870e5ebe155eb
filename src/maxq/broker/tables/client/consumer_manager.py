"""ConsumerManager: the consumer groups that are online.

In memory only: after a restart the members' heartbeats fill it again.

Source:
    broker/client/ConsumerManager.java.
"""

import logging
from collections.abc import Callable, Collection, Sequence

from maxq.broker.tables.client.client_channel_info import ClientChannelInfo
from maxq.broker.tables.client.consumer_group_info import ConsumerGroupInfo
from maxq.config.settings import BrokerSettings
from maxq.protocol.body.heartbeat import ConsumerData
from maxq.protocol.body.subscription import SubscriptionData
from maxq.remoting.connection import Connection
from maxq.runtime.interfaces import Clock

log = logging.getLogger(__name__)

#: Called with a clustering group when its members or its topics changed, also with the last member gone.
ConsumerChangeListener = Callable[[ConsumerGroupInfo], None]


# SilentConsumers: groups that consume without heartbeats, and what they subscribe to.
#
# Who pops through a proxy says in each request what it wants, and never registers. Tools and metrics ask here for what
# such a group subscribes to; nobody counts as online for it.
#
# Source:
#     broker/client/ConsumerManager.java (compensateBasicConsumerInfo, compensateSubscribeData,
#     removeExpireConsumerGroupInfo).


class SilentConsumers:
    """Subscriptions of groups that consume without heartbeats, by group and topic, each with the moment of its last
    request."""

    def __init__(self, *, settings: BrokerSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._groups: dict[str, dict[str, tuple[SubscriptionData, int]]] = {}

    def says(self, group: str, subscription: SubscriptionData) -> None:
        """Note the subscription to a topic that a request of the group states."""
        table = self._groups.get(group)
        if table is None:
            table = self._groups[group] = {}
        table[subscription.topic] = subscription, self._clock.monotonic_ms()

    def find(self, group: str, topic: str) -> SubscriptionData | None:
        found = self._groups.get(group, {}).get(topic)
        return None if found is None else found[0]

    def topics(self) -> dict[str, list[str]]:
        """Returns the topics that the groups subscribe to."""
        return {group: list(table) for group, table in self._groups.items()}

    def forget(self, topics: Collection[str] = (), groups: Collection[str] = ()) -> None:
        """Remove the subscriptions of topics or groups that were deleted."""
        for group in groups:
            self._groups.pop(group, None)
        self._drop(lambda topic, said_ms: topic in topics)

    def expire(self) -> None:
        """Remove subscriptions that were not stated again within subscriptionExpiredTimeout."""
        oldest_ms = self._clock.monotonic_ms() - self._settings.broker.subscription_expired_timeout
        self._drop(lambda topic, said_ms: said_ms < oldest_ms)

    def _drop(self, is_gone: Callable[[str, int], bool]) -> None:
        for group, table in list(self._groups.items()):
            for topic in [topic for topic, (_, said_ms) in table.items() if is_gone(topic, said_ms)]:
                del table[topic]
            if not table:
                del self._groups[group]


class ConsumerManager:
    """Members and subscriptions by group; groups by connection and by topic.

    Attributes:
        silent: groups that consume without heartbeats.
    """

    def __init__(self, *, settings: BrokerSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._groups: dict[str, ConsumerGroupInfo] = {}
        self._groups_of: dict[Connection, set[str]] = {}  # so that a closed connection costs only its own groups
        self._listeners: list[ConsumerChangeListener] = []
        self._offline_listeners: list[Callable[[str], None]] = []
        self.silent = SilentConsumers(settings=settings, clock=clock)

    @property
    def consumer_table(self) -> dict[str, ConsumerGroupInfo]:
        """Return the online groups by name. Callers must not change the result."""
        return self._groups

    def add_change_listener(self, listener: ConsumerChangeListener) -> None:
        self._listeners.append(listener)

    def add_offline_listener(self, listener: Callable[[str], None]) -> None:
        """Add a listener that is called with the name of each group whose last member has left."""
        self._offline_listeners.append(listener)

    def get_consumer_group_info(self, group: str) -> ConsumerGroupInfo | None:
        return self._groups.get(group)

    def find_channel(self, group: str, client_id: str) -> ClientChannelInfo | None:
        info = self._groups.get(group)
        return None if info is None else info.find_channel(client_id)

    def find_subscription_data(self, group: str, topic: str) -> SubscriptionData | None:
        """Returns the group's subscription to a topic from its heartbeats, else from its pops."""
        info = self._groups.get(group)
        found = None if info is None else info.subscription_table.get(topic)
        return self.silent.find(group, topic) if found is None else found

    def subscription_count(self, group: str) -> int:
        """Return the number of topics to which the group subscribes; 0 while it is offline."""
        info = self._groups.get(group)
        return 0 if info is None else len(info.subscription_table)

    def subscribing_differently(self) -> list[str]:
        """Return the groups whose members have different subscriptions."""
        return sorted(name for name, info in self._groups.items() if info.members.is_different)

    def query_topic_consume_by_who(self, topic: str) -> set[str]:
        """Return the online groups that subscribe to the topic."""
        return {name for name, info in self._groups.items() if topic in info.subscription_table}

    def register_consumer(
        self,
        data: ConsumerData,
        channel: ClientChannelInfo,
        subscriptions: Sequence[SubscriptionData] | None,
        *,
        notify: bool,
        fingerprint: int = 0,
    ) -> bool:
        """Register the part of a heartbeat that concerns one group.

        Args:
            subscriptions: what the group subscribes to now; None keeps it (heartbeat v2 `withoutSub`).
            notify: notifyConsumerIdsChangedEnable of the group.
            fingerprint: of the heartbeat; 0 for version 1.

        Returns:
            True when a member or a topic came or went.
        """
        group = data.group_name
        info = self._groups.get(group)
        if info is None:
            info = self._groups[group] = ConsumerGroupInfo(data)
        info.notify_enabled = notify
        info.heartbeat_fingerprint = fingerprint
        changed = info.update_channel(channel, data)
        self._groups_of.setdefault(channel.connection, set()).add(group)
        if subscriptions is not None:
            info.members.update(channel, subscriptions)
            changed |= info.update_subscription(subscriptions)
        if changed:
            self._on_change(info)
        return changed

    def unregister_consumer(self, group: str, connection: Connection) -> None:
        """Remove a client that leaves the group."""
        info = self._groups.get(group)
        if info is not None:
            self._remove(info, connection)

    def do_channel_close_event(self, connection: Connection) -> bool:
        """Remove the members on a connection that closed, failed or fell silent. Returns True if there was one."""
        groups = self._groups_of.pop(connection, None)
        for group in groups or ():
            info = self._groups.get(group)
            if info is not None:
                self._remove(info, connection)
        return bool(groups)

    def scan_not_active_channel(self) -> None:
        """Remove members that have been silent for longer than channelExpiredTimeout, and close their connections."""
        oldest_ms = self._clock.monotonic_ms() - self._settings.broker.channel_expired_timeout
        for info in list(self._groups.values()):
            expired = [channel for channel in info.channel_info_table.values() if channel.last_update_ms < oldest_ms]
            for channel in expired:
                log.warning("no heartbeat for too long: remove %s from consumer group %s", channel, info.group_name)
                self._remove(info, channel.connection)
                channel.connection.close()
        self.silent.expire()

    def _remove(self, info: ConsumerGroupInfo, connection: Connection) -> None:
        channel = info.channel_info_table.pop(connection, None)
        if channel is None:
            return
        info.members.remove(connection)
        log.info("unregister a consumer from group %s: %s", info.group_name, channel)
        groups = self._groups_of.get(connection)
        if groups is not None:
            groups.discard(info.group_name)
            if not groups:
                del self._groups_of[connection]
        if not info.channel_info_table:
            log.info("no member left, consumer group %s is offline", info.group_name)
            del self._groups[info.group_name]
            for listener in self._offline_listeners:
                listener(info.group_name)
        self._on_change(info)

    def _on_change(self, info: ConsumerGroupInfo) -> None:
        if not info.notify_enabled or info.is_broadcasting:
            return
        for listener in self._listeners:
            listener(info)
