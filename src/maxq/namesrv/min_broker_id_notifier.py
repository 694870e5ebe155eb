"""Tells the members of a broker group, one-way, that their smallest id changed (905).

Source:
    apache/rocketmq namesrv/routeinfo/RouteInfoManager.java notifyMinBrokerIdChanged.
"""

import asyncio
import logging

from maxq.codes import RequestCode
from maxq.errors import RemotingError
from maxq.namesrv.broker_registration import MinBrokerIdChange
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.admin import NotifyMinBrokerIdChangeRequestHeader
from maxq.remoting.client import RemotingClient

_log = logging.getLogger(__name__)


class MinBrokerIdNotifier:
    """Sends the notices that RouteInfoManager returns; a broker that cannot be reached is skipped."""

    def __init__(self, client: RemotingClient) -> None:
        self._client = client
        self._sending: set[asyncio.Task[None]] = set()

    def notify(self, change: MinBrokerIdChange) -> None:
        """Send a change of the smallest broker id to every broker that it concerns, without waiting for them."""
        header = NotifyMinBrokerIdChangeRequestHeader(
            min_broker_id=change.min_broker_id,
            min_broker_addr=change.min_broker_addr,
            offline_broker_addr=change.offline_broker_addr,
            ha_broker_addr=change.ha_broker_addr,
        )
        for target in change.targets:
            command = RemotingCommand(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, header.encode())
            task = asyncio.get_running_loop().create_task(self._send(target, command))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _send(self, target: str, command: RemotingCommand) -> None:
        try:
            await self._client.invoke_oneway(target, command)
        except RemotingError as error:
            _log.warning("broker %s was not told of the new smallest broker id: %s", target, error)

    async def shutdown(self) -> None:
        """Forget the notices to brokers that are not sent yet."""
        for task in list(self._sending):
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)
