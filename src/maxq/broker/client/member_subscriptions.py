"""What each member of a group subscribes to, and whether they agree.

A group has one subscription: the newest heartbeat's. A member that subscribes otherwise gets queues like everybody
else, so messages that it alone wants are not delivered from the others' queues, and are lost to the group in silence.
RocketMQ shows it in consumerStatus only, to who looks; here it is said when it begins.
"""

import logging
from collections.abc import Iterable, Mapping

from maxq.broker.client.client_channel_info import ClientChannelInfo
from maxq.protocol.body.subscription import SubscriptionData, subscription_text
from maxq.remoting.connection import Connection

log = logging.getLogger(__name__)

#: Topic → what is wanted of it.
Wanted = Mapping[str, str]


class MemberSubscriptions:
    """The members of one group.

    Attributes:
        is_different: not all of them subscribe alike.
    """

    def __init__(self, group: str) -> None:
        self._group = group
        self._members: dict[Connection, tuple[str, Wanted]] = {}  # client id, and what it wants
        self.is_different = False

    def update(self, channel: ClientChannelInfo, subscriptions: Iterable[SubscriptionData]) -> None:
        """A heartbeat lists what a member subscribes to."""
        wanted = {subscription.topic: subscription_text(subscription) for subscription in subscriptions}
        if self._members.get(channel.connection) != (channel.client_id, wanted):
            self._members[channel.connection] = (channel.client_id, wanted)
            self._judge()

    def remove(self, connection: Connection) -> None:
        """A member is gone."""
        if self._members.pop(connection, None) is not None:
            self._judge()

    def describe(self) -> str:
        """Who wants what, as far as they differ."""
        topics = sorted({topic for _, wanted in self._members.values() for topic in wanted})
        differing = [topic for topic in topics if len({wanted.get(topic) for _, wanted in self._members.values()}) > 1]
        members = sorted(self._members.values(), key=lambda member: member[0])
        return "; ".join(
            f"{client_id} wants " + ", ".join(f"of {topic} {wanted.get(topic, 'nothing')}" for topic in differing)
            for client_id, wanted in members
        )

    def _judge(self) -> None:
        was_different = self.is_different
        views = [wanted for _, wanted in self._members.values()]
        self.is_different = any(view != views[0] for view in views)
        if self.is_different and not was_different:  # said when it begins: each member of 400 that follows is no news
            log.error(
                "the members of consumer group %s subscribe differently, so messages are lost to them: %.2000s; let "
                "all members of a group subscribe alike, or give them groups of their own",
                self._group, self.describe(),
            )  # fmt: skip
        elif was_different and not self.is_different:
            log.info("the members of consumer group %s subscribe alike again", self._group)
