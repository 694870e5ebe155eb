"""The subscriptions of each member of a group, and whether they agree.

A group has one subscription: the newest heartbeat's. A member that subscribes otherwise gets queues like everybody
else, so messages that it alone wants are not delivered from the others' queues, and are lost to the group in silence.
RocketMQ shows it in consumerStatus only. MaxQ also logs it when it begins, and once more when members begin to want
different messages of one topic: a program that subscribes after its start differs for a moment by lacking the topic.
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

#: Topic → the subscription in words.
Wanted = Mapping[str, str]


class MemberSubscriptions:
    """The members of one group.

    Attributes:
        is_different: not all of them subscribe alike.
    """

    def __init__(self, group: str) -> None:
        self._group = group
        # connection of a member → its client id and subscriptions
        self._members: dict[Connection, tuple[str, Wanted]] = {}
        # set of subscriptions → members that have exactly these
        self._views: Counter[frozenset[tuple[str, str]]] = Counter()
        self.is_different = False
        self._is_conflict_logged = False  # a conflict about the same topic was logged since `is_different` became true

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
            f"{client_id}: " + ", ".join(f"{topic} {_choice(wanted.get(topic))}" for topic in differing)
            for client_id, wanted in members
        )

    def _some_members(self) -> Iterable[tuple[str, Wanted]]:
        """Returns all members; of a large group, the newest ones and one that subscribes differently."""
        members = list(islice(reversed(self._members.values()), _DESCRIBED))
        if len(self._members) > _DESCRIBED:
            newest = members[0][1]
            members += islice((one for one in self._members.values() if one[1] != newest), 1)
        return members

    def _has_conflict(self) -> bool:
        """Returns whether two members want different messages of one topic."""
        wanted: dict[str, str] = {}
        return any(wanted.setdefault(topic, choice) != choice for view in self._views for topic, choice in view)

    def _judge(self) -> None:
        was_different = self.is_different
        self.is_different = len(self._views) > 1
        if not self.is_different:
            self._is_conflict_logged = False
            if was_different:
                log.info("the members of consumer group %s subscribe alike again", self._group)
            return
        has_new_conflict = not self._is_conflict_logged and self._has_conflict()
        self._is_conflict_logged |= has_new_conflict
        if has_new_conflict or not was_different:  # logged once, not for each of 400 members that follow
            log.error(
                "the members of consumer group %s subscribe differently, so they do not get all messages that they "
                "want: %.2000s; let all members of a group subscribe alike, or give them groups of their own",
                self._group, self.describe(),
            )  # fmt: skip


def _choice(wanted: str | None) -> str:
    return "not subscribed" if wanted is None else f"({wanted})"
