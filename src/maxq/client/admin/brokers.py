"""Brokers: state, settings, statistics, cleaning."""

from collections.abc import Sequence
from typing import Any

from maxq.client.admin.context import AdminContext
from maxq.client.instance.client_api import fields
from maxq.codes import RequestCode
from maxq.config.properties import format_properties, parse_properties
from maxq.errors import RemoteProtocolError
from maxq.protocol.body.broker_stats import BrokerStatsData
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.body.ha_runtime_info import HARuntimeInfo
from maxq.protocol.body.offsets import ConsumeStatsList
from maxq.protocol.body.route import BrokerData, ClusterInfo, KVTable
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.json import json_dialect


class BrokerAdmin:
    """Reads and changes settings and state of brokers; the attribute `brokers` of an Admin. Addresses are host:port."""

    def __init__(self, context: AdminContext) -> None:
        self._context = context
        self._api = context.api

    async def cluster_info(self) -> ClusterInfo:
        """Return all clusters and brokers that the name servers know (106)."""
        return await self._context.cluster_info()

    async def of_cluster(self, cluster: str) -> list[BrokerData]:
        """Return the broker groups of a cluster, by name."""
        return await self._context.brokers_of_cluster(cluster)

    async def masters_of_cluster(self, cluster: str) -> list[str]:
        """Return the addresses of the masters of a cluster."""
        return await self._context.masters_of_cluster(cluster)

    async def addresses_of_cluster(self, cluster: str) -> list[str]:
        """Return the addresses of all brokers of a cluster."""
        return await self._context.addresses_of_cluster(cluster)

    async def runtime_info(self, address: str) -> dict[str, str]:
        """Return state and statistics of a broker (28)."""
        response = await self._api.call(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        return KVTable.decode(response.body_bytes).table

    async def config(self, address: str) -> dict[str, str]:
        """Return all settings of one broker, as texts (26)."""
        response = await self._api.call(address, RequestCode.GET_BROKER_CONFIG)
        return parse_properties(response.body_bytes)

    async def config_version(self, address: str) -> DataVersion:
        """Return how often a broker's settings were changed (26)."""
        response = await self._api.call(address, RequestCode.GET_BROKER_CONFIG)
        return DataVersion.from_json(json_dialect.loads(response.ext.get("version", "{}")))

    async def update_config(self, address: str, properties: dict[str, str]) -> str:
        """Change settings (25). BrokerError names what may not be changed.

        Returns:
            The broker's remark; usually empty. A broker without a settings file says that the change is lost when it
            ends.
        """
        body = format_properties(properties).encode()
        return (await self._api.call(address, RequestCode.UPDATE_BROKER_CONFIG, None, body)).remark or ""

    async def stats(self, address: str, stats_name: str, stats_key: str) -> BrokerStatsData:
        """Return one counter by minute, hour and day (315); BrokerError 1 if nothing was counted under that key."""
        ext = fields(statsName=stats_name, statsKey=stats_key)
        response = await self._api.call(address, RequestCode.VIEW_BROKER_STATS_DATA, ext)
        return BrokerStatsData.decode(response.body_bytes)

    async def consume_stats(
        self, address: str, *, is_order: bool = False, timeout_ms: int = 50_000
    ) -> ConsumeStatsList:
        """Return the progress of all groups on one broker (317)."""
        response = await self._api.call(
            address, RequestCode.GET_BROKER_CONSUME_STATS, fields(isOrder=is_order), timeout_ms=timeout_ms
        )
        return ConsumeStatsList.decode(response.body_bytes)

    async def ha_status(self, address: str) -> HARuntimeInfo:
        """Return the state of replication as the broker sees it (907)."""
        response = await self._api.call(address, RequestCode.GET_BROKER_HA_STATUS)
        return HARuntimeInfo.decode(response.body_bytes)

    async def clean_expired_consume_queue(self, address: str) -> None:
        """Delete queue files whose messages are gone (306)."""
        await self._api.call(address, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)

    async def clean_unused_topic(self, address: str) -> None:
        """Delete queues of topics that are gone (316)."""
        await self._api.call(address, RequestCode.CLEAN_UNUSED_TOPIC)

    async def delete_expired_commit_log(self, address: str) -> None:
        """Delete log files whose time of retention is over (329)."""
        await self._api.call(address, RequestCode.DELETE_EXPIRED_COMMITLOG)

    # --- replication ---

    async def reset_master_flush_offset(self, address: str, offset: int) -> None:
        """Tell a slave how far its master has flushed (908), physical offset."""
        await self._api.call(address, RequestCode.RESET_MASTER_FLUSH_OFFSET, fields(masterFlushOffset=offset))

    async def epoch_cache(self, address: str) -> dict[str, Any]:
        """Return the epochs of a broker in controller mode (1007): clusterName, brokerName, brokerId, epochList,
        maxOffset."""
        return _object(await self._api.call(address, RequestCode.GET_BROKER_EPOCH_CACHE), address)

    # --- cold reads ---

    async def cold_data_flow_control(self, address: str) -> dict[str, Any] | None:
        """Return the thresholds of cold reads and what counts against them (2003); None if the broker has no such
        table."""
        response = await self._api.call(address, RequestCode.GET_COLD_DATA_FLOW_CTR_INFO)
        return _object(response, address) if response.body_bytes else None

    async def update_cold_data_flow_control(self, address: str, group: str, threshold: int) -> None:
        """Limit a group to so many cold bytes a second (2001)."""
        body = format_properties({group: str(threshold)}).encode()
        await self._api.call(address, RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, None, body)

    async def remove_cold_data_flow_control(self, address: str, group: str) -> None:
        """Reset the group to the common threshold (2002)."""
        await self._api.call(address, RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, None, group.encode())

    async def set_commit_log_read_ahead_mode(self, address: str, mode: int) -> str:
        """Set whether the kernel reads ahead (0) or not (1) (2004); returns the broker's remark."""
        ext = {"READ_AHEAD_MODE": str(mode)}
        return (await self._api.call(address, RequestCode.SET_COMMITLOG_READ_MODE, ext)).remark or ""

    # --- timers, RocksDB, containers ---

    async def switch_timer_engine(self, address: str, engine: str) -> None:
        """Keep delayed messages elsewhere (5001): ROCKSDB_TIMELINE or FILE_TIME_WHEEL."""
        await self._api.call(address, RequestCode.SWITCH_TIMER_ENGINE, {"E_T": engine})

    async def export_pop_records(self, address: str, *, timeout_ms: int = 30_000) -> None:
        """Move pop's records out of RocksDB into the revive topics (200056)."""
        await self._api.call(address, RequestCode.POP_ROLLBACK, timeout_ms=timeout_ms)

    async def check_rocksdb_cq_write_progress(self, address: str, topic: str, check_store_time: int) -> dict[str, Any]:
        """Compare the queues in files with those in RocksDB (354): checkStatus, checkResult."""
        ext = fields(topic=topic, checkStoreTime=check_store_time)
        return _object(await self._api.call(address, RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, ext), address)

    async def export_rocksdb_config(self, address: str, types: Sequence[str]) -> None:
        """Write the broker's settings in RocksDB to JSON files beside them (355).

        Args:
            types: of topics, subscriptionGroups, consumerOffsets.
        """
        ext = fields(configType=";".join(types))
        await self._api.call(address, RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON, ext)

    async def add_to_container(self, address: str, config_path: str) -> None:
        """Start a broker in a broker container (902); the path is on the container's machine."""
        await self._api.call(address, RequestCode.ADD_BROKER, fields(configPath=config_path))

    async def remove_from_container(self, address: str, cluster: str, broker_name: str, broker_id: int) -> None:
        """Stop a broker of a broker container (903)."""
        ext = fields(brokerClusterName=cluster, brokerName=broker_name, brokerId=broker_id)
        await self._api.call(address, RequestCode.REMOVE_BROKER, ext)


def _object(response: RemotingCommand, address: str) -> dict[str, Any]:
    found = json_dialect.loads(response.body_bytes)
    if not isinstance(found, dict):
        raise RemoteProtocolError(f"the answer of {address} is no JSON object: {response.body_bytes[:80]!r}")
    return found
