"""What each member of a group subscribes to, and whether they agree.

A group has one subscription: the newest heartbeat's. A member that subscribes otherwise gets queues like everybody
else, so messages that it alone wants are not delivered from the others' queues, and are lost to the group in silence.
RocketMQ shows it in consumerStatus only, to who looks; here it is said when it begins.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final

from maxq.broker.tables.client.client_channel_info import ClientChannelInfo
from maxq.protocol.body.subscription import SubscriptionData, subscription_text
from maxq.remoting.connection import Connection

log = logging.getLogger(__name__)

#: Members that `describe` names at most.
_DESCRIBED: Final = 100

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
        self._views: Counter[frozenset[tuple[str, str]]] = Counter()  # how many members want just that
        self.is_different = False

    def update(self, channel: ClientChannelInfo, subscriptions: Iterable[SubscriptionData]) -> None:
        """Adopt a member's subscriptions from its heartbeat."""
        wanted = {subscription.topic: subscription_text(subscription) for subscription in subscriptions}
        known = self._members.get(channel.connection)
        if known != (channel.client_id, wanted):
            self._members[channel.connection] = (channel.client_id, wanted)
            self._views[frozenset(wanted.items())] += 1
            if known is not None:
                self._forget(known[1])
            self._judge()

    def remove(self, connection: Connection) -> None:
        """Forget the subscriptions of a consumer that leaves its group."""
        known = self._members.pop(connection, None)
        if known is not None:
            self._forget(known[1])
            self._judge()

    def _forget(self, wanted: Wanted) -> None:
        view = frozenset(wanted.items())
        self._views[view] -= 1
        if not self._views[view]:
            del self._views[view]

    def describe(self) -> str:
        """Return text about which members subscribe to what, where they differ."""
        views = [dict(view) for view in islice(self._views, _DESCRIBED)]
        topics = sorted({topic for wanted in views for topic in wanted})
        differing = [topic for topic in topics if len({wanted.get(topic) for wanted in views}) > 1]
        members = sorted(self._some_members(), key=lambda member: member[0])
        return "; ".join(
            f"{client_id} wants " + ", ".join(f"of {topic} {wanted.get(topic, 'nothing')}" for topic in differing)
            for client_id, wanted in members
        )

    def _some_members(self) -> Iterable[tuple[str, Wanted]]:
        """Returns all members; of a large group, the newest ones and one that subscribes differently."""
        members = list(islice(reversed(self._members.values()), _DESCRIBED))
        if len(self._members) > _DESCRIBED:
            newest = members[0][1]
            members += islice((one for one in self._members.values() if one[1] != newest), 1)
        return members

    def _judge(self) -> None:
        was_different = self.is_different
        self.is_different = len(self._views) > 1
        if self.is_different and not was_different:  # said when it begins: each member of 400 that follows is no news
            log.error(
                "the members of consumer group %s subscribe differently, so messages are lost to them: %.2000s; let "
                "all members of a group subscribe alike, or give them groups of their own",
                self._group, self.describe(),
            )  # fmt: skip
        elif was_different and not self.is_different:
            log.info("the members of consumer group %s subscribe alike again", self._group)
