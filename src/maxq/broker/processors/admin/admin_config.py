"""AdminConfigProcessor: settings shown and changed (26, 25), and what the broker tells of itself (28, 315).

Only settings that are marked live can be changed while the broker runs; a request that names any other is refused whole
and by name. So no request reaches a file name, a command or an address (CVE-2023-33246).

Source:
    broker/processor/AdminBrokerProcessor.java.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import PurePath

from maxq.broker.bundles import Environment, Tables
from maxq.broker.processors.support import RequestProcessor, body_reply
from maxq.broker.stats.stats_item import StatsSnapshot
from maxq.broker.tables.persistent_manager import next_version
from maxq.codes import RequestCode, ResponseCode
from maxq.config.properties import format_properties, parse_properties
from maxq.config.settings import Change, persist
from maxq.errors import RequestRefusedError
from maxq.protocol.body.broker_stats import BrokerStatsData, BrokerStatsItem
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.body.route import KVTable
from maxq.protocol.frame.header_fields import HeaderFields
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.connection import Connection, Processor
from maxq.runtime.blocking import TABLES

log = logging.getLogger(__name__)


class AdminConfigProcessor(RequestProcessor):
    """Answers UPDATE_BROKER_CONFIG (25), GET_BROKER_CONFIG (26), GET_BROKER_RUNTIME_INFO (28) and
    VIEW_BROKER_STATS_DATA (315)."""

    def __init__(
        self,
        env: Environment,
        tables: Tables,
        runtime_info: Callable[[], dict[str, str]],
        on_permission_changed: Callable[[], None],
    ) -> None:
        """`on_permission_changed` makes the broker register again at the name servers."""
        self._settings = env.settings
        self._disk = env.disk
        self._clock = env.clock
        self._topics = tables.topics
        self._stats = env.stats
        self._runtime_info = runtime_info
        self._on_permission_changed = on_permission_changed
        self._version = DataVersion(timestamp=env.clock.wall_ms())

    def routes(self) -> Mapping[int, Processor]:
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self.update_broker_config,
            RequestCode.GET_BROKER_CONFIG: self.get_broker_config,
            RequestCode.GET_BROKER_RUNTIME_INFO: self.get_broker_runtime_info,
            RequestCode.VIEW_BROKER_STATS_DATA: self.view_broker_stats_data,
        }

    # --- settings -----------------------------------------------------------------------------------------------------

    async def update_broker_config(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer UPDATE_BROKER_CONFIG (25). All of the properties are applied, or none; then they are written back to
        the file with which the broker was started. If there is none, the remark says so."""
        source = f"UPDATE_BROKER_CONFIG from {connection.remote_address}"
        changes = self._settings.update(parse_properties(request.body_bytes, source=source), source=source)
        for change in changes:
            log.warning("%s: %s is %s now, was %s", source, change.name, change.new, change.old)
        path = self._settings.broker.broker_config_path
        if changes and path:
            await self._write_back(PurePath(path), changes)
        if _changes_permission(changes):
            await self._topics.published()
        ends = "in effect until this broker ends: it was started without a settings file"
        return request.reply(remark=ends if changes and not path else None)

    async def _write_back(self, path: PurePath, changes: list[Change]) -> None:
        try:
            await TABLES.run(persist, self._disk, path, changes)
        except OSError as error:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"the settings are changed, but they are lost with the next start: {path} cannot be written: {error}",
            ) from error

    def settings_changed(self, changes: list[Change]) -> None:
        """Give the settings a new version; register the broker again if its permission changed."""
        self._version = next_version(self._version, self._clock.wall_ms())
        if _changes_permission(changes):
            self._topics.update_data_version()
            self._on_permission_changed()

    def get_broker_config(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_BROKER_CONFIG (26) with all settings by RocketMQ's names, sorted."""
        body = format_properties(self._settings.snapshot()).encode()
        return request.reply(ext={"version": self._version.encode().decode()}, body=body)

    # --- state --------------------------------------------------------------------------------------------------------

    def get_broker_runtime_info(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_BROKER_RUNTIME_INFO (28)."""
        return body_reply(request, KVTable(self._runtime_info()))

    def view_broker_stats_data(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer VIEW_BROKER_STATS_DATA (315). Tools read code 1 as zero."""
        fields = HeaderFields(request.ext)
        name, key = fields.required_str("statsName"), fields.required_str("statsKey")
        item = self._stats.view(name, key)
        if item is None:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
        return body_reply(request, BrokerStatsData(_item(item.minute), _item(item.hour), _item(item.day)))


def _changes_permission(changes: list[Change]) -> bool:
    return any(change.name == "brokerPermission" for change in changes)


def _item(snapshot: StatsSnapshot) -> BrokerStatsItem:
    return BrokerStatsItem(snapshot.sum, snapshot.tps, snapshot.avgpt)
