"""AdminGroupProcessor: subscription groups made, changed, deleted and shown.

Source:
    broker/processor/AdminBrokerProcessor.java.
"""

import logging
from collections.abc import Mapping
from typing import Final

from maxq.broker.bundles import Environment, Tables
from maxq.broker.processors.support import RequestProcessor, body_reply, page_of, refuse_if, refuse_queue_nums
from maxq.broker.tables.topic.topic_validator import validate_group, validate_reader
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import RequestRefusedError
from maxq.protocol.body.subscription import (
    GroupForbidden,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
)
from maxq.protocol.frame.header_fields import HeaderFields
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.connection import Connection, Processor
from maxq.runtime.turns import Turns

log = logging.getLogger(__name__)

INDEX_PERM_READ: Final = 2  # bit number (PermName.INDEX_PERM_READ)


class AdminGroupProcessor(RequestProcessor):
    """Answers UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200), GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201),
    DELETE_SUBSCRIPTIONGROUP (207), UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225), GET_SUBSCRIPTIONGROUP_CONFIG (352)
    and UPDATE_AND_GET_GROUP_FORBIDDEN (353)."""

    def __init__(self, env: Environment, tables: Tables) -> None:
        self._settings = env.settings
        self._groups = tables.groups
        self._offsets = tables.offsets

    def routes(self) -> Mapping[int, Processor]:
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update_and_create_group,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.update_and_create_group_list,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.get_all_groups,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.get_group,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete_group,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: self.update_and_get_group_forbidden,
        }

    async def update_and_create_group(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200)."""
        if not request.body_length:
            return request.reply()
        config = SubscriptionGroupConfig.decode(request.body_bytes)
        return await self._update([config], connection, request)

    async def update_and_create_group_list(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225). All groups are changed, or none."""
        configs = SubscriptionGroupList.decode(request.body_bytes).group_config_list
        return await self._update(configs, connection, request)

    async def _update(
        self, configs: list[SubscriptionGroupConfig], connection: Connection, request: RemotingCommand
    ) -> RemotingCommand:
        turns = Turns()
        for config in configs:
            await turns.rest()
            refuse_if(validate_group(config.group_name))
            what, most = f"retryQueueNums of group {config.group_name}", self._settings.broker.max_queues_of_topic
            refuse_queue_nums(what, config.retry_queue_nums, most)
        names = [config.group_name for config in configs]
        log.info("update or create subscription groups %s, called by %s", names, connection.remote_address)
        self._groups.update_subscription_group_config_list(configs)
        await self._groups.persisted()
        return request.reply()

    async def delete_group(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer DELETE_SUBSCRIPTIONGROUP (207). Retry and dead letter topics stay; tools delete them by 215."""
        fields = HeaderFields(request.ext)
        group = fields.required_str("groupName")
        refuse_if(validate_reader(group), ResponseCode.NO_PERMISSION)
        log.info("delete subscription group %s, called by %s", group, connection.remote_address)
        self._groups.delete_subscription_group_config(group)
        if fields.opt_bool("cleanOffset"):
            self._offsets.remove_offset(group)
        await self._groups.persisted()
        await self._offsets.set_is_kept()
        return request.reply()

    async def update_and_get_group_forbidden(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer UPDATE_AND_GET_GROUP_FORBIDDEN (353) with whether the group may read the topic. Without `readable`
        nothing is changed."""
        fields = HeaderFields(request.ext)
        group, topic = fields.required_str("group"), fields.required_str("topic")
        if fields.opt_str("readable") is not None:
            is_forbidden = not fields.opt_bool("readable")
            log.info("group %s, %s: forbidden=%s, by %s", group, topic, is_forbidden, connection.remote_address)
            self._groups.update_forbidden(group, topic, INDEX_PERM_READ, forbidden=is_forbidden)
            await self._groups.persisted()
        readable = not self._groups.is_forbidden(group, topic, INDEX_PERM_READ)
        return body_reply(request, GroupForbidden(topic=topic, group=group, readable=readable))

    async def get_all_groups(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201) with the whole table, or a page of it for slaves."""
        table = self._groups.subscription_group_table
        page = page_of(
            table,
            request.ext,
            sequence_field="groupSeq",
            count_field="maxGroupNum",
            version=self._groups.data_version,
            broker=self._settings.broker,
        )
        forbidden = {
            group: topics for group, topics in self._groups.forbidden_table.items() if topics and group in page
        }
        wrapper = SubscriptionGroupWrapper(forbidden_table=forbidden, data_version=self._groups.data_version)
        body = await self._groups.row_json.put_into(wrapper.encode(), page)
        return request.reply(ResponseCode.SUCCESS, None, {"totalGroupNum": str(len(table))}, body)

    def get_group(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_SUBSCRIPTIONGROUP_CONFIG (352). The request creates the group where groups are created on first
        use, as every other use does."""
        group = HeaderFields(request.ext).required_str("group")
        config = self._groups.find_subscription_group_config(group)
        if config is None:
            raise RequestRefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"No group in this broker. group: {group}"
            )
        return body_reply(request, config)
