"""BrokerWatch: notices brokers that stand still while requests wait for them.

A broker that ends closes its connections; one that hangs (paused, or cut off by its network) does not, and what waits
for it would wait for the whole of its timeout, a parked pull for half a minute, although another broker of its group
may have taken its place within a second. So:

    a request waits, and nothing has come from the broker for a moment    it is asked for something small
    that is not answered within PONG_MS either                            the broker is silent: the name servers are
                                                                          asked for its group, again and again
    it is silent, and no route names it as a master (any more)            its connection is closed: what waits fails,
                                                                          and is tried again where the route leads

A silent master that no other broker replaces keeps its connection: requests that it holds may still be answered. The
same holds for an attempt to connect to a master: a machine that is gone refuses nothing, and who has just come would
wait for it alone.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from maxq.client.instance.broker_table import BrokerTable
from maxq.client.instance.client_api import MQClientAPI, fields
from maxq.codes import RequestCode
from maxq.errors import RemotingSendError
from maxq.remoting.connection import Connection
from maxq.runtime.interfaces import Clock

log: Final = logging.getLogger(__name__)

LOOK_MS: Final = 100
LOOK_MS_MAX: Final = 500
ANSWER_MS: Final = 400  # time without any answer after a new request
PARKED_MS: Final = 1_000  # time without any answer while only requests wait that the broker was already holding
PONG_MS: Final = 300


@dataclass(slots=True)
class _Quiet:
    """The state of one connection at the last check. Times are monotonic milliseconds."""

    arrivals: int
    requests: int
    since_ms: int  # monotonic time since which nothing has arrived
    is_fresh: bool  # a request was sent since something arrived
    asked_ms: int | None = None


class BrokerWatch:
    """Finds brokers that hang, by the connections of one client."""

    def __init__(
        self, api: MQClientAPI, brokers: BrokerTable, clock: Clock, refresh: Callable[[str], None], probe_topic: str
    ) -> None:
        """
        Args:
            refresh: has a route of this broker group asked for; returns at once.
            probe_topic: whose end a silent broker is asked for; any answer will do.
        """
        self._api = api
        self._brokers = brokers
        self._clock = clock
        self._refresh = refresh
        self._probe_topic = probe_topic
        self._seen: dict[Connection, _Quiet] = {}
        self._attempts: dict[str, int] = {}  # address → monotonic ms at which its connection attempt was first seen
        self._masters: set[str] = set()  # masters that the routes named at the last look

    def look(self) -> int:
        """Check all connections to brokers. Returns in how many milliseconds to check again."""
        now_ms = self._clock.monotonic_ms()
        seen, self._seen = self._seen, {}
        remoting = self._api.remoting
        due_ms = now_ms + LOOK_MS_MAX
        for address, connection in remoting.open_connections():
            if connection.waiting and address not in remoting.name_servers:
                quiet = self._quiet(connection, seen.get(connection), now_ms)
                self._seen[connection] = quiet
                due_ms = min(due_ms, self._judge(address, connection, quiet, now_ms))
        return max(min(due_ms, self._look_at_attempts(now_ms)) - now_ms, LOOK_MS)

    def _look_at_attempts(self, now_ms: int) -> int:
        """Check attempts to connect to masters, or to brokers that were masters when the attempt began. Returns when to
        check again, monotonic ms."""
        remoting = self._api.remoting
        began, before = self._attempts, self._masters
        self._attempts = {address: began.get(address, now_ms) for address in remoting.open_attempts()}
        self._masters = {self._api.address(address) for _, broker_id, address in self._brokers.all() if not broker_id}
        due_ms = now_ms + LOOK_MS_MAX
        for address, since_ms in self._attempts.items():
            if address not in self._masters and address not in before:
                continue
            if address not in self._masters:
                log.warning("broker %s cannot be reached, and is no master any more", address)
                self._brokers.suspect(address)
                remoting.give_up_attempt(address, "it does not answer, and others serve in its place")
            elif now_ms >= since_ms + ANSWER_MS:
                name = self._brokers.name_of_master(address, self._api.address)
                assert name is not None, "routes name it"
                self._refresh(name)
                due_ms = min(due_ms, now_ms + LOOK_MS)
            else:
                due_ms = min(due_ms, since_ms + ANSWER_MS)
        return due_ms

    def _quiet(self, connection: Connection, before: _Quiet | None, now_ms: int) -> _Quiet:
        if before is None or before.arrivals != connection.arrivals:
            is_fresh = before is None or before.requests != connection.requests
            return _Quiet(connection.arrivals, connection.requests, now_ms, is_fresh)
        if before.requests != connection.requests and before.asked_ms is None:
            before.is_fresh = True
        before.requests = connection.requests
        return before

    def _judge(self, address: str, connection: Connection, quiet: _Quiet, now_ms: int) -> int:
        """Send a small request to a silent broker, or do nothing yet. Returns when to check again, in monotonic ms."""
        if quiet.asked_ms is None:
            due_ms = quiet.since_ms + (ANSWER_MS if quiet.is_fresh else PARKED_MS)
            if now_ms < due_ms:
                return due_ms
            self._ask(connection, quiet, now_ms)
            return now_ms + PONG_MS
        if now_ms - quiet.asked_ms < PONG_MS:
            return quiet.asked_ms + PONG_MS
        name = self._brokers.name_of_master(address, self._api.address)
        if name is not None:
            self._refresh(name)
        else:
            log.warning("broker %s is silent and no longer a master: its requests are tried elsewhere", address)
            self._brokers.suspect(address)
            connection.abort("it is silent, and others serve in its place")
        return now_ms + LOOK_MS

    def _ask(self, connection: Connection, quiet: _Quiet, now_ms: int) -> None:
        quiet.asked_ms = now_ms
        request = self._api.command(RequestCode.GET_MAX_OFFSET, fields(topic=self._probe_topic, queueId=0))
        try:
            connection.request(request, lambda reply: None)
        except RemotingSendError:
            return  # too many requests wait, so it is not asked; it counts as silent only if it stays silent
        quiet.requests = connection.requests
