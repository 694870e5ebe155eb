"""AdminStoreProcessor: the store cleaned and looked into; thresholds for cold reads.

Source:
    broker/processor/AdminBrokerProcessor.java, broker/coldctr/ColdDataCgCtrService.java.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from maxq.broker.bundles import Clients, Environment, Messages
from maxq.broker.processors.support import RequestProcessor, body_reply, refuse_if
from maxq.codes import RequestCode, ResponseCode
from maxq.config.properties import parse_properties
from maxq.errors import RequestRefusedError
from maxq.protocol.body.broker_stats import ConsumeQueueData, QueryConsumeQueueResponseBody
from maxq.protocol.body.ha_runtime_info import HARuntimeInfo
from maxq.protocol.body.subscription import SubscriptionData
from maxq.protocol.frame.header_fields import HeaderFields, parse_long
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.json import json_dialect
from maxq.protocol.json.json_body import filled
from maxq.remoting.connection import Connection, Processor
from maxq.runtime.turns import Turns

log = logging.getLogger(__name__)

#: Most units of one answer to 321.
MAX_UNITS: Final = 10_000

READ_AHEAD_NORMAL: Final = 0
READ_AHEAD_RANDOM: Final = 1


class AdminStoreProcessor(RequestProcessor):
    """Answers requests 306, 321, 329, 907, 2001 to 2004."""

    def __init__(
        self, env: Environment, clients: Clients, messages: Messages, ha_runtime_info: Callable[[], HARuntimeInfo]
    ) -> None:
        self._settings = env.settings
        self._store = messages.store
        self._consumers = clients.consumers
        self._filters = clients.filters
        self._ha_runtime_info = ha_runtime_info
        self._cold_read_thresholds: dict[str, int] = {}  # group → bytes; kept, shown, and not acted on yet

    def routes(self) -> Mapping[int, Processor]:
        return {
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.clean_expired_consume_queue,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.delete_expired_commit_log,
            RequestCode.QUERY_CONSUME_QUEUE: self.query_consume_queue,
            RequestCode.GET_BROKER_HA_STATUS: self.get_broker_ha_status,
            RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: self.update_cold_data_flow_control,
            RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: self.remove_cold_data_flow_control,
            RequestCode.GET_COLD_DATA_FLOW_CTR_INFO: self.get_cold_data_flow_control,
            RequestCode.SET_COMMITLOG_READ_MODE: self.set_commit_log_read_mode,
        }

    # --- cleaning -----------------------------------------------------------------------------------------------------

    async def clean_expired_consume_queue(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer CLEAN_EXPIRED_CONSUMEQUEUE (306): delete queue files whose messages are gone from the log."""
        log.warning("clean expired consume queues, called by %s", connection.remote_address)
        await self._store.cleaner.clean_expired_consume_queues()
        return request.reply()

    def delete_expired_commit_log(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer DELETE_EXPIRED_COMMITLOG (329): delete log files older than fileReservedTime, at any hour."""
        log.warning("delete expired commit log, called by %s", connection.remote_address)
        self._store.cleaner.request()
        return request.reply()

    # --- looking ------------------------------------------------------------------------------------------------------

    async def query_consume_queue(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer QUERY_CONSUME_QUEUE (321) with units of one queue from `index` on, and whether a group's subscription
        matches them."""
        fields = HeaderFields(request.ext)
        topic, queue_id = fields.required_str("topic"), fields.required_int("queueId")
        index, count = fields.required_long("index"), fields.required_int("count")
        low, high = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        if high <= 0:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        body = QueryConsumeQueueResponseBody(max_queue_index=high, min_queue_index=low)
        group = fields.opt_str("consumerGroup")
        if group is not None:
            body.subscription_data = self._consumers.find_subscription_data(group, topic)
            entry = self._filters.get(topic, group)
            if body.subscription_data is None:
                body.filter_data = f"{group}@{topic} is not online!"
            elif entry is not None:
                body.filter_data = json_dialect.dumps_pretty(entry.data.to_json()).decode()
        if not low <= index < high:
            remark = f"Index {index} of {queue_id}@{topic} is not exist!"
            return request.reply(ResponseCode.SUCCESS, remark, body=body.encode())
        turns, rows = Turns(), []
        units = self._store.queue_units(topic, queue_id, index, max(0, min(count, MAX_UNITS)))
        for physical_offset, size, tags_code in units:
            is_wanted = self._matches(group, body.subscription_data, physical_offset, size, tags_code)
            rows.append(ConsumeQueueData(physical_offset, size, tags_code, eval=is_wanted).encode())
            await turns.rest()
        body.queue_data = []
        return request.reply(body=filled(body.encode(), "queueData", rows, b"[]"))

    def _matches(
        self,
        group: str | None,
        subscription: SubscriptionData | None,
        physical_offset: int,
        size: int,
        tags_code: int,
    ) -> bool:
        """Returns whether the group's subscription matches the message."""
        if group is None or subscription is None:
            return False
        if subscription.is_tag_type:
            return subscription.accepts_all or tags_code in subscription.code_set
        entry = self._filters.get(subscription.topic, group)
        record = self._store.commit_log.get(physical_offset, size)
        return entry is not None and record is not None and entry.wanted.predicate.matches_record(record, 0, size)

    def get_broker_ha_status(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_BROKER_HA_STATUS (907) with the state of replication."""
        return body_reply(request, self._ha_runtime_info())

    # --- cold reads ---------------------------------------------------------------------------------------------------

    def update_cold_data_flow_control(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer UPDATE_COLD_DATA_FLOW_CTR_CONFIG (2001). The body has properties `group=bytes`; all are applied, or
        none."""
        thresholds: dict[str, int] = {}
        for group, text in parse_properties(request.body_bytes, source="cold read thresholds").items():
            threshold = parse_long(text)
            if threshold is None:
                raise RequestRefusedError(
                    ResponseCode.INVALID_PARAMETER,
                    f"cold read threshold of {group} is {text!r:.40}, not a number of bytes",
                )
            thresholds[group] = threshold
        self._cold_read_thresholds.update(thresholds)
        return request.reply()

    def remove_cold_data_flow_control(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer REMOVE_COLD_DATA_FLOW_CTR_CONFIG (2002). The body is a group's name."""
        self._cold_read_thresholds.pop(request.body_bytes.decode("utf-8", "replace").strip(), None)
        return request.reply()

    def get_cold_data_flow_control(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_COLD_DATA_FLOW_CTR_INFO (2003)."""
        broker = self._settings.broker
        info: dict[str, Any] = {
            "cgColdReadThreshold": broker.accepted_value("cgColdReadThreshold"),
            "configTable": dict(self._cold_read_thresholds),
            "globalAcc": 0,
            "globalColdReadThreshold": broker.accepted_value("globalColdReadThreshold"),
            "runtimeTable": {},
        }
        return request.reply(body=json_dialect.dumps(info))

    def set_commit_log_read_mode(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer SET_COMMITLOG_READ_MODE (2004) with success and without an effect: in Java it is a hint for the
        kernel."""
        mode = HeaderFields(request.ext).opt_int("READ_AHEAD_MODE")
        if mode not in (READ_AHEAD_NORMAL, READ_AHEAD_RANDOM):
            refuse_if(f"set commitlog readahead mode param value error: {mode} is neither 0 (normal) nor 1 (random)")
        return request.reply(ResponseCode.SUCCESS, f"set commitlog readahead mode success, mode: {mode}")
