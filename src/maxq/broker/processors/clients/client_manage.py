"""ClientManageProcessor: heartbeats (34), leaving (35), check of a subscription (46).

Source:
    broker/processor/ClientManageProcessor.java.
"""

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from typing import Final

from maxq.broker.bundles import Clients, Environment, Tables
from maxq.broker.processors.send.retry_topics import UNIT_SUB_FLAG
from maxq.broker.processors.support import RequestProcessor
from maxq.broker.tables.client.client_channel_info import ClientChannelInfo
from maxq.broker.tables.filter.filter_expressions import check_subscription, known_expression
from maxq.broker.tables.topic.topic_validator import retry_topic
from maxq.codes import RequestCode, ResponseCode
from maxq.protocol.body.heartbeat import ConsumerData, HeartbeatData
from maxq.protocol.body.subscription import CheckClientRequestBody, SubscriptionData
from maxq.protocol.body.topic_config import PERM_READ, PERM_WRITE
from maxq.protocol.enums import ConsumeType
from maxq.protocol.frame.header_fields import HeaderFields
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.message.java_hash import java_hash
from maxq.remoting.connection import Connection, Processor

log = logging.getLogger(__name__)

_WORK_AT_ONCE: Final = 100  # groups and subscriptions of a heart-beat that is worked off in one go
# groups and subscriptions of a longer heart-beat that are handled before other work gets its turn
_WORK_OF_SLICE: Final = 50


class ClientManageProcessor(RequestProcessor):
    """Keeps the tables of online clients, and makes the groups and retry topics that a heartbeat implies."""

    def __init__(self, env: Environment, tables: Tables, clients: Clients) -> None:
        self._settings = env.settings
        self._clock = env.clock
        self._topics = tables.topics
        self._groups = tables.groups
        self._consumers = clients.consumers
        self._producers = clients.producers
        self._filters = clients.filters
        self._guard = env.guard

    def routes(self) -> Mapping[int, Processor]:
        return {
            RequestCode.HEART_BEAT: self.heart_beat,
            RequestCode.UNREGISTER_CLIENT: self.unregister_client,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_client_config,
        }

    # --- 34 -----------------------------------------------------------------------------------------------------------

    def heart_beat(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand]:
        """Register all groups of the client. A fingerprint other than 0 is version 2, which may leave out the
        subscriptions when they did not change since the last full one."""
        heartbeat = HeartbeatData.decode(request.body_bytes)
        channel = ClientChannelInfo(
            connection,
            heartbeat.client_id,
            request.language,
            request.version,
            self._clock.monotonic_ms(),
            self._clock.wall_ms(),
            "" if self._guard is None else self._guard.client(connection),
        )
        if _work(heartbeat) > _WORK_AT_ONCE:
            return self._in_slices(request, heartbeat, channel)
        is_changed = heartbeat.heartbeat_fingerprint == 0
        for data in heartbeat.consumer_data_set:
            is_changed |= self._take(data, channel, heartbeat)
        return self._heard(request, heartbeat, channel, is_changed)

    async def _in_slices(
        self, request: RemotingCommand, heartbeat: HeartbeatData, channel: ClientChannelInfo
    ) -> RemotingCommand:
        """Process a long heartbeat in slices: the loop runs other tasks between groups, and between new expressions."""
        is_changed = heartbeat.heartbeat_fingerprint == 0
        done = 0
        for data in heartbeat.consumer_data_set:
            for subscription in data.subscription_data_set:
                if not subscription.is_tag_type:  # compiled here, one in each turn, and then found in a cache
                    known_expression(subscription.expression_type, subscription.sub_string)
                    await asyncio.sleep(0)
            if channel.connection.is_closed:
                break
            is_changed |= self._take(data, channel, heartbeat)
            done += 1 + len(data.subscription_data_set)
            if done >= _WORK_OF_SLICE:
                done = 0
                await asyncio.sleep(0)
        return self._heard(request, heartbeat, channel, is_changed)

    def _take(self, data: ConsumerData, channel: ClientChannelInfo, heartbeat: HeartbeatData) -> bool:
        """Register one consumer group. Returns True if its subscriptions may have changed."""
        if self._is_rejected(data):
            return False
        is_news = self._is_news(data.group_name, heartbeat)
        self._register_consumer(data, channel, heartbeat)
        return is_news

    def _heard(
        self, request: RemotingCommand, heartbeat: HeartbeatData, channel: ClientChannelInfo, is_changed: bool
    ) -> RemotingCommand:
        if not channel.connection.is_closed:
            for producer in heartbeat.producer_data_set:
                self._producers.register_producer(producer.group_name, channel)
        answer = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true" if is_changed else "false"}
        return request.reply(ResponseCode.SUCCESS, None, answer)

    def _is_rejected(self, data: ConsumerData) -> bool:
        is_pull = data.consume_type == ConsumeType.CONSUME_ACTIVELY
        return is_pull and self._settings.broker.reject_pull_consumer_enable

    def _is_news(self, group: str, heartbeat: HeartbeatData) -> bool:
        """Return whether the client has to send its subscriptions again: when they differ from the group's last
        heartbeat, or when it left them out although none were sent since the broker started."""
        info = self._consumers.get_consumer_group_info(group)
        if info is None:
            return heartbeat.without_sub
        return info.heartbeat_fingerprint != heartbeat.heartbeat_fingerprint

    def _register_consumer(self, data: ConsumerData, channel: ClientChannelInfo, heartbeat: HeartbeatData) -> None:
        group = self._groups.find_subscription_group_config(data.group_name)
        if group is None:
            return
        is_order = any(self._topics.is_order_topic(sub.topic) for sub in data.subscription_data_set)
        self._topics.create_topic_in_send_message_back_method(
            retry_topic(data.group_name),
            group.retry_queue_nums,
            PERM_READ | PERM_WRITE,
            UNIT_SUB_FLAG if data.unit_mode else 0,
            is_order,
        )
        is_short = heartbeat.heartbeat_fingerprint != 0 and heartbeat.without_sub
        subscriptions = None if is_short else [_with_codes(sub) for sub in data.subscription_data_set]
        if subscriptions is not None:
            self._filters.register(data.group_name, subscriptions)
        self._consumers.register_consumer(
            data,
            channel,
            subscriptions,
            notify=group.notify_consumer_ids_changed_enable,
            fingerprint=heartbeat.heartbeat_fingerprint,
        )

    # --- 35 -----------------------------------------------------------------------------------------------------------

    def unregister_client(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Remove the client on this connection from a group. An empty group name, as C++ clients send, counts as
        none."""
        fields = HeaderFields(request.ext)
        fields.required_str("clientID")
        producer_group = fields.opt_str("producerGroup")
        if producer_group:
            self._producers.unregister_producer(producer_group, connection)
        consumer_group = fields.opt_str("consumerGroup")
        if consumer_group:
            self._consumers.unregister_consumer(consumer_group, connection)
        return request.reply()

    # --- 46 -----------------------------------------------------------------------------------------------------------

    def check_client_config(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Check whether this broker accepts a subscription."""
        subscription = CheckClientRequestBody.decode(request.body_bytes).subscription_data
        if subscription is None or (subscription.is_tag_type and not subscription.class_filter_mode):
            return request.reply()
        if not self._settings.broker.enable_property_filter:
            return request.reply(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {subscription.expression_type}: "
                "its enablePropertyFilter is false; set it with updateBrokerConfig",
            )
        check_subscription(subscription)
        return request.reply()


def _work(heartbeat: HeartbeatData) -> int:
    """Return the work a heartbeat takes, in groups and subscriptions; an expression counts as a whole slice."""
    work = len(heartbeat.consumer_data_set)
    for data in heartbeat.consumer_data_set:
        for subscription in data.subscription_data_set:
            work += 1 if subscription.is_tag_type else _WORK_OF_SLICE
    return work


def _with_codes(subscription: SubscriptionData) -> SubscriptionData:
    """Compute the tag codes here, because C++ clients send zeros for them."""
    if not subscription.is_tag_type or not subscription.tags_set:
        return subscription
    return replace(subscription, code_set={java_hash(tag) for tag in subscription.tags_set})
