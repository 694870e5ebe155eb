"""Controllers: who leads, who is in sync, elections. MaxQ has none; Java's answer these.

Source: apache/rocketmq client/impl/MQClientAPIImpl.java (getControllerMetaData, electMaster, …).
"""

from collections.abc import Sequence
from typing import Any

from maxq.client.admin.context import AdminContext
from maxq.client.instance.client_api import fields
from maxq.codes import RequestCode
from maxq.config.properties import format_properties, parse_properties
from maxq.protocol.json import json_dialect


class ControllerAdmin:
    """Asks and configures controllers; the attribute `controllers` of an Admin. Addresses are host:port of controllers;
    what only the leader answers is asked of it."""

    def __init__(self, context: AdminContext) -> None:
        self._api = context.api

    async def metadata(self, address: str) -> dict[str, str]:
        """Group, leader and peers (1005): group, controllerLeaderId, controllerLeaderAddress, isLeader, peers."""
        return dict((await self._api.call(address, RequestCode.CONTROLLER_GET_METADATA_INFO)).ext)

    async def leader(self, address: str) -> str:
        """Return the address of the leader; that of the controller that was asked if it names none."""
        return (await self.metadata(address)).get("controllerLeaderAddress") or address

    async def sync_state(self, address: str, broker_names: Sequence[str]) -> dict[str, Any]:
        """Return broker name → masterBrokerId, masterAddress, masterEpoch, syncStateSetEpoch, inSyncReplicas,
        notInSyncReplicas (1006)."""
        body = json_dialect.dumps(list(broker_names))
        leader = await self.leader(address)
        response = await self._api.call(leader, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, None, body)
        found = json_dialect.loads(response.body_bytes)
        table = found.get("replicasInfoTable") if isinstance(found, dict) else None
        return table if isinstance(table, dict) else {}

    async def config(self, address: str) -> dict[str, str]:
        """Return the settings of a controller (1010)."""
        response = await self._api.call(address, RequestCode.GET_CONTROLLER_CONFIG)
        return parse_properties(response.body_bytes)

    async def update_config(self, address: str, properties: dict[str, str]) -> None:
        """Change settings of a controller (1009)."""
        body = format_properties(properties).encode()
        await self._api.call(address, RequestCode.UPDATE_CONTROLLER_CONFIG, None, body)

    async def elect_master(
        self, address: str, cluster: str, broker_name: str, broker_id: int
    ) -> tuple[dict[str, str], dict[str, Any]]:
        """Make a broker the master of its group (1002). Returns masterAddress, masterEpoch, syncStateSetEpoch, and the
        group."""
        ext = fields(clusterName=cluster, brokerName=broker_name, brokerId=broker_id, designateElect=True)
        response = await self._api.call(await self.leader(address), RequestCode.CONTROLLER_ELECT_MASTER, ext)
        group = json_dialect.loads(response.body_bytes) if response.body_bytes else {}
        return dict(response.ext), group if isinstance(group, dict) else {}

    async def clean_broker_data(
        self, address: str, cluster: str | None, broker_name: str, broker_ids: str | None, *, clean_living: bool
    ) -> None:
        """Make the controller forget a broker group, or some of its brokers (1011).

        Args:
            broker_ids: separated by ';'; None: all.
            clean_living: also those that are alive.
        """
        ext = fields(
            clusterName=cluster,
            brokerName=broker_name,
            brokerControllerIdsToClean=broker_ids,
            isCleanLivingBroker=clean_living,
        )
        await self._api.call(await self.leader(address), RequestCode.CLEAN_BROKER_DATA, ext)
