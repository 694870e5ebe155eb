"""ProducerManager: the producer groups that are online, and which connection a client id is on.

Source:
    broker/client/ProducerManager.java.
"""

import logging
from collections.abc import Callable

from maxq.broker.tables.client.client_channel_info import ClientChannelInfo
from maxq.config.settings import BrokerSettings
from maxq.remoting.connection import Connection
from maxq.runtime.interfaces import Clock

log = logging.getLogger(__name__)

_BUSY_BYTES = 64 << 10  # not taken by the peer yet (Netty's high water mark)


class ProducerManager:
    """Members by group, groups and client ids by connection, clients by id. In memory only."""

    def __init__(self, *, settings: BrokerSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._groups: dict[str, dict[Connection, ClientChannelInfo]] = {}
        self._client_ids: dict[Connection, dict[str, str]] = {}  # by group
        self._clients: dict[str, ClientChannelInfo] = {}
        self._turn = 0

    @property
    def group_channel_table(self) -> dict[str, dict[Connection, ClientChannelInfo]]:
        """Return the members by group, which callers must not change."""
        return self._groups

    def find_channel(self, client_id: str) -> Connection | None:
        """Returns the connection of the producer with this client id, to which replies are pushed."""
        channel = self._clients.get(client_id)
        return None if channel is None else channel.connection

    def get_available_channel(
        self, group: str, may: Callable[[Connection], bool] = lambda member: True
    ) -> Connection | None:
        """Return the connection of a member of the group that `may` accepts, in turn; one whose peer does not read only
        if there is no other. None if no member is online."""
        members = [member for member in self._groups.get(group, ()) if not member.is_closed and may(member)]
        if not members:
            return None
        self._turn += 1
        start = self._turn % len(members)
        in_turn = members[start:] + members[:start]
        return next((member for member in in_turn if member.unsent_bytes < _BUSY_BYTES), in_turn[0])

    def register_producer(self, group: str, channel: ClientChannelInfo) -> None:
        """Register one producer group of a heartbeat. A client id in use by another user stays theirs while its
        connection lives."""
        members = self._groups.get(group, {})
        known = members.get(channel.connection)
        if known is not None:
            known.last_update_ms = channel.last_update_ms
            known.last_update_timestamp = channel.last_update_timestamp
            return
        broker = self._settings.broker
        if not broker.enable_register_producer and broker.reject_transaction_message:
            return  # producers without transactions are never asked anything
        log.info("new producer connected, group: %s %s", group, channel)
        self._groups.setdefault(group, members)[channel.connection] = channel
        self._client_ids.setdefault(channel.connection, {})[group] = channel.client_id
        owner = self._clients.get(channel.client_id)
        # replies for a client id go only to the user who has it
        if owner is None or owner.connection.is_closed or owner.user == channel.user:
            self._clients[channel.client_id] = channel

    def unregister_producer(self, group: str, connection: Connection) -> None:
        """Remove a client that leaves the group."""
        self._remove(group, connection)

    def do_channel_close_event(self, connection: Connection) -> bool:
        """Remove the members on a connection that closed, failed or fell silent. Returns True if there was one."""
        client_ids = self._client_ids.pop(connection, {})
        for group in client_ids:
            self._leave(group, connection)
        for client_id in set(client_ids.values()):
            self._forget(client_id, connection)
        return bool(client_ids)

    def scan_not_active_channel(self) -> None:
        """Remove members that have been silent for longer than channelExpiredTimeout, and close their connections."""
        oldest_ms = self._clock.monotonic_ms() - self._settings.broker.channel_expired_timeout
        for group, members in list(self._groups.items()):
            for channel in [channel for channel in members.values() if channel.last_update_ms < oldest_ms]:
                log.warning("no heartbeat for too long: remove %s from producer group %s", channel, group)
                self._remove(group, channel.connection)
                channel.connection.close()

    def _remove(self, group: str, connection: Connection) -> None:
        client_ids = self._client_ids.get(connection, {})
        client_id = client_ids.pop(group, None)
        if client_id is None:
            return
        self._leave(group, connection)
        if client_id not in client_ids.values():
            self._forget(client_id, connection)
        if not client_ids:
            del self._client_ids[connection]

    def _leave(self, group: str, connection: Connection) -> None:
        members = self._groups[group]
        log.info("unregister a producer from group %s: %s", group, members.pop(connection))
        if not members:
            del self._groups[group]

    def _forget(self, client_id: str, connection: Connection) -> None:
        known = self._clients.get(client_id)
        if known is not None and known.connection is connection:
            del self._clients[client_id]
