"""ConsumerIdsNotifier: tells the members of a group that it changed (one-way request 40), so that they rebalance now.

Members are told in the next turn of the loop: until they know, the old and the new owner of a queue both read it, and
both get what arrives. The answer to the heartbeat that changed the group leaves first: Java's consumer holds a lock
while it waits for that, and a rebalance in that moment leaves it without messages until its next heartbeat, 30 s later.
But a group of n members that all come at once changes n times, and telling everybody each time would be n² frames. So
while a group keeps changing, it is told at most one frame every FRAME_INTERVAL_MS: a group of 4 members again after 0.8
ms, one of 1,000 after 200 ms. The last change is always told. With realTimeNotifyConsumerChange=false changes are
collected for BATCH_INTERVAL_MS.

Source:
    broker/client/DefaultConsumerIdsChangeListener.java, broker/client/net/Broker2Client.java.
"""

import asyncio
from typing import Final

from maxq.broker.tables.client.consumer_group_info import ConsumerGroupInfo
from maxq.broker.tables.client.consumer_manager import ConsumerManager
from maxq.codes import RequestCode
from maxq.config.settings import BrokerSettings
from maxq.protocol.frame.remoting_command import ONEWAY_FLAG, RemotingCommand
from maxq.remoting.connection import Connection
from maxq.runtime.turns import Turns

FRAME_INTERVAL_MS: Final = 0.2
BATCH_INTERVAL_MS: Final = 15_000
_TOLD_AT_ONCE: Final = 100  # members


class ConsumerIdsNotifier:
    """Notifies the members of consumer groups that change. Needs a running loop when one does."""

    def __init__(self, consumers: ConsumerManager, *, settings: BrokerSettings) -> None:
        self._consumers = consumers
        self._settings = settings
        self._timers: dict[str, asyncio.TimerHandle] = {}  # groups told lately, or waiting for their batch
        self._changed: set[str] = set()  # … that changed since
        self._telling: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def close(self) -> None:
        """Send no more notices, also not those that wait."""
        self._is_closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._changed.clear()
        for task in self._telling:
            task.cancel()

    def group_changed(self, info: ConsumerGroupInfo) -> None:
        """Notify the members of a group that has changed, unless they were notified shortly before."""
        broker = self._settings.broker
        if self._is_closed or not broker.notify_consumer_ids_changed_enable:
            return
        group = info.group_name
        self._changed.add(group)
        if group not in self._timers:
            self._arm(group, 0 if broker.real_time_notify_consumer_change else BATCH_INTERVAL_MS)

    def _arm(self, group: str, delay_ms: float) -> None:
        loop = asyncio.get_running_loop()
        self._timers[group] = loop.call_later(delay_ms / 1000, self._on_timer, group)

    def _on_timer(self, group: str) -> None:
        del self._timers[group]
        if group in self._changed:
            self._changed.discard(group)
            self._arm(group, self._tell(group) * FRAME_INTERVAL_MS)

    def _tell(self, group: str) -> int:
        """Notify members. Returns the number of frames sent."""
        info = self._consumers.get_consumer_group_info(group)
        if info is None:
            return 0
        request = RemotingCommand(
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group}, flag=ONEWAY_FLAG
        ).encode()  # one frame for all: nobody answers it, so its opaque says nothing
        members = list(info.channel_info_table)
        if len(members) <= _TOLD_AT_ONCE:
            for connection in members:
                connection.write([request])
        else:
            task = asyncio.get_running_loop().create_task(_tell_in_turns(members, request))
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)
        return len(members)


async def _tell_in_turns(members: list[Connection], request: bytes) -> None:
    """Notify the members of a large group in several turns of the loop, because each notice costs a system call."""
    turns = Turns()
    for connection in members:
        connection.write([request])
        await turns.rest()
