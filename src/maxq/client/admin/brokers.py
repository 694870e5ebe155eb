"""Brokers: state, settings, statistics, cleaning."""

from maxq.client.admin.context import AdminContext
from maxq.client.client_api import fields
from maxq.codes import RequestCode
from maxq.config.properties import format_properties, parse_properties
from maxq.protocol import json_dialect
from maxq.protocol.body.broker_stats import BrokerStatsData
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.body.ha_runtime_info import HARuntimeInfo
from maxq.protocol.body.offsets import ConsumeStatsList
from maxq.protocol.body.route import BrokerData, ClusterInfo, KVTable


class BrokerAdmin:
    """`admin.brokers`. Addresses are host:port."""

    def __init__(self, context: AdminContext) -> None:
        self._context = context
        self._api = context.api

    async def cluster_info(self) -> ClusterInfo:
        """All clusters and brokers (106)."""
        return await self._context.cluster_info()

    async def of_cluster(self, cluster: str) -> list[BrokerData]:
        """Broker groups of a cluster, by name."""
        return await self._context.brokers_of_cluster(cluster)

    async def masters_of_cluster(self, cluster: str) -> list[str]:
        """Addresses of the masters of a cluster."""
        return await self._context.masters_of_cluster(cluster)

    async def addresses_of_cluster(self, cluster: str) -> list[str]:
        """Addresses of all brokers of a cluster."""
        return await self._context.addresses_of_cluster(cluster)

    async def runtime_info(self, address: str) -> dict[str, str]:
        """State and statistics (28)."""
        response = await self._api.call(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        return KVTable.decode(response.body_bytes).table

    async def config(self, address: str) -> dict[str, str]:
        """All settings (26)."""
        response = await self._api.call(address, RequestCode.GET_BROKER_CONFIG)
        return parse_properties(response.body_bytes)

    async def config_version(self, address: str) -> DataVersion:
        """How often settings were changed (26)."""
        response = await self._api.call(address, RequestCode.GET_BROKER_CONFIG)
        return DataVersion.from_json(json_dialect.loads(response.ext.get("version", "{}")))

    async def update_config(self, address: str, properties: dict[str, str]) -> None:
        """Change settings (25). BrokerError names what may not be changed."""
        body = format_properties(properties).encode()
        await self._api.call(address, RequestCode.UPDATE_BROKER_CONFIG, None, body)

    async def stats(self, address: str, stats_name: str, stats_key: str) -> BrokerStatsData:
        """One counter by minute, hour and day (315); BrokerError 1 if nothing was counted under that key."""
        ext = fields(statsName=stats_name, statsKey=stats_key)
        response = await self._api.call(address, RequestCode.VIEW_BROKER_STATS_DATA, ext)
        return BrokerStatsData.decode(response.body_bytes)

    async def consume_stats(
        self, address: str, *, is_order: bool = False, timeout_ms: int = 50_000
    ) -> ConsumeStatsList:
        """Progress of all groups on one broker (317)."""
        response = await self._api.call(
            address, RequestCode.GET_BROKER_CONSUME_STATS, fields(isOrder=is_order), timeout_ms=timeout_ms
        )
        return ConsumeStatsList.decode(response.body_bytes)

    async def ha_status(self, address: str) -> HARuntimeInfo:
        """Replication as the broker sees it (907)."""
        response = await self._api.call(address, RequestCode.GET_BROKER_HA_STATUS)
        return HARuntimeInfo.decode(response.body_bytes)

    async def clean_expired_consume_queue(self, address: str) -> None:
        """Delete queue files whose messages are gone (306)."""
        await self._api.call(address, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)

    async def clean_unused_topic(self, address: str) -> None:
        """Delete queues of topics that are gone (316)."""
        await self._api.call(address, RequestCode.CLEAN_UNUSED_TOPIC)

    async def delete_expired_commit_log(self, address: str) -> None:
        """Delete log files that are older than they must be kept (329)."""
        await self._api.call(address, RequestCode.DELETE_EXPIRED_COMMITLOG)
