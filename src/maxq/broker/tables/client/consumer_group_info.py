"""ConsumerGroupInfo: the members of a consumer group that are online, and what they subscribe to.

Source:
    broker/client/ConsumerGroupInfo.java.
"""

import logging
from collections.abc import Iterable

from maxq.broker.tables.client.client_channel_info import ClientChannelInfo
from maxq.broker.tables.client.member_subscriptions import MemberSubscriptions
from maxq.protocol.body.heartbeat import ConsumerData
from maxq.protocol.body.subscription import SubscriptionData
from maxq.protocol.enums import ConsumeFromWhere, ConsumeType, MessageModel
from maxq.remoting.connection import Connection

log = logging.getLogger(__name__)


class ConsumerGroupInfo:
    """One consumer group. All members are expected to have the same settings; those of the newest heartbeat count for
    all."""

    def __init__(self, data: ConsumerData) -> None:
        self.group_name: str = data.group_name
        self.consume_type: ConsumeType = data.consume_type
        self.message_model: MessageModel = data.message_model
        self.consume_from_where: ConsumeFromWhere = data.consume_from_where
        self.subscription_table: dict[str, SubscriptionData] = {}  # by topic
        self.members = MemberSubscriptions(data.group_name)  # what each of them subscribes to
        self.channel_info_table: dict[Connection, ClientChannelInfo] = {}
        self.heartbeat_fingerprint: int = 0  # fingerprint of the last heartbeat that named the group
        self.notify_enabled: bool = True  # notifyConsumerIdsChangedEnable of the group, as of the last heartbeat

    @property
    def is_broadcasting(self) -> bool:
        return self.message_model == MessageModel.BROADCASTING

    def client_ids(self) -> list[str]:
        return [info.client_id for info in self.channel_info_table.values()]

    def find_channel(self, client_id: str) -> ClientChannelInfo | None:
        for info in self.channel_info_table.values():
            if info.client_id == client_id:
                return info
        return None

    def find_subscription_data(self, topic: str) -> SubscriptionData | None:
        return self.subscription_table.get(topic)

    def update_channel(self, channel: ClientChannelInfo, data: ConsumerData) -> bool:
        """Refresh or add a member; True when it is new."""
        self._take_over(data, channel)
        known = self.channel_info_table.get(channel.connection)
        if known is not None and known.client_id == channel.client_id:
            known.last_update_ms = channel.last_update_ms
            known.last_update_timestamp = channel.last_update_timestamp
            return False
        if known is not None:
            log.error("group %s: %s was %s before on the same connection", self.group_name, channel, known.client_id)
        else:
            log.info("new consumer connected, group: %s %s", self.group_name, channel)
        self.channel_info_table[channel.connection] = channel
        return known is None

    def _take_over(self, data: ConsumerData, channel: ClientChannelInfo) -> None:
        old = (self.consume_type, self.message_model, self.consume_from_where)
        new = (data.consume_type, data.message_model, data.consume_from_where)
        if old == new:
            return
        if len(self.channel_info_table) > 1:
            log.warning("group %s: %s consumes as %s, the members before it as %s", self.group_name, channel, new, old)
        self.consume_type, self.message_model, self.consume_from_where = new

    def update_subscription(self, subscriptions: Iterable[SubscriptionData]) -> bool:
        """Adopt the group's newest subscription; returns True if a topic was added or removed.

        A topic's expression is replaced only by one with a greater subVersion.
        """
        changed = False
        listed: set[str] = set()
        for subscription in subscriptions:
            topic = subscription.topic
            listed.add(topic)
            known = self.subscription_table.get(topic)
            if known is None:
                log.info("subscription changed, add new topic, group: %s %s", self.group_name, topic)
                self.subscription_table[topic] = subscription
                changed = True
            elif subscription.sub_version > known.sub_version:
                self.subscription_table[topic] = subscription
        for topic in [topic for topic in self.subscription_table if topic not in listed]:
            log.warning("subscription changed, group: %s remove topic %s", self.group_name, topic)
            del self.subscription_table[topic]
            changed = True
        return changed
