"""SilentConsumers: groups that consume without heartbeats, and what they subscribe to.

Who pops through a proxy says in each request what it wants, and never registers. Tools and metrics ask here for what
such a group subscribes to; nobody counts as online for it.

Source:
    broker/client/ConsumerManager.java (compensateBasicConsumerInfo, compensateSubscribeData,
    removeExpireConsumerGroupInfo).
"""

from collections.abc import Callable, Collection

from maxq.config.settings import BrokerSettings
from maxq.protocol.body.subscription import SubscriptionData
from maxq.runtime.interfaces import Clock


class SilentConsumers:
    """Subscriptions by group and topic, each with the moment when it was said last."""

    def __init__(self, *, settings: BrokerSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._groups: dict[str, dict[str, tuple[SubscriptionData, int]]] = {}

    def says(self, group: str, subscription: SubscriptionData) -> None:
        """Note the subscription that a request of the group states for a topic."""
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
        """Drop what is kept of topics or groups that were deleted."""
        for group in groups:
            self._groups.pop(group, None)
        self._drop(lambda topic, said_ms: topic in topics)

    def expire(self) -> None:
        """Forget subscriptions that were not stated again within subscriptionExpiredTimeout."""
        oldest_ms = self._clock.monotonic_ms() - self._settings.broker.subscription_expired_timeout
        self._drop(lambda topic, said_ms: said_ms < oldest_ms)

    def _drop(self, is_gone: Callable[[str, int], bool]) -> None:
        for group, table in list(self._groups.items()):
            for topic in [topic for topic, (_, said_ms) in table.items() if is_gone(topic, said_ms)]:
                del table[topic]
            if not table:
                del self._groups[group]
