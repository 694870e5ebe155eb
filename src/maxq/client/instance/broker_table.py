"""BrokerTable: the addresses of each broker group, and which of them could not be reached lately.

Which broker of a group is asked for what:

    send                                   the master only
    pull                                   the one that the last answer suggested (RW-02), else the master
    commit, query, and search of offsets   the master
    queue locks                            the master only: two brokers would lock a queue twice

Where that one is in no route any more, or could not be reached lately, another of the group serves, sends and locks
excepted. So a consumer continues to read from another broker when its own dies, before the name server has noticed, and
returns when the broker is back: with the next route, the next heartbeat that it answers, or when it is no longer
suspect. A broker is suspect for SUSPECT_MS, and twice as long with each failure that follows soon (to SUSPECT_MS_MAX):
one that hangs costs a reader the whole timeout of a pull each time.

Source: apache/rocketmq client/impl/factory/MQClientInstance.java (brokerAddrTable, findBrokerAddressInSubscribe).
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from maxq.protocol.body.route import MASTER_ID, TopicRouteData
from maxq.runtime.interfaces import Clock

SUSPECT_MS = 10_000
SUSPECT_MS_MAX = 60_000


@dataclass(frozen=True, slots=True)
class BrokerTarget:
    """A broker to ask: its address, whether it is a slave, and its version (0: unknown)."""

    address: str
    is_slave: bool
    version: int


class BrokerTable:
    """The brokers that one client knows, from the routes of its topics.

    Attributes:
        addresses: broker name → broker id → host:port.
        changes: how often they became others.
        versions: host:port → version, as the last heartbeat was answered.
    """

    def __init__(self, clock: Clock, *, on_move: Callable[[], None] = lambda: None) -> None:
        """`on_move` is called when the master of a group has a new address."""
        self._clock = clock
        self._on_move = on_move
        self.addresses: dict[str, dict[int, str]] = {}
        self.versions: dict[str, int] = {}
        # address → (monotonic ms until which it is avoided, for how long)
        self._suspects: dict[str, tuple[int, int]] = {}
        self._replaced = asyncio.Event()
        self.changes = 0

    # --- who is there ---

    def replace(self, broker_name: str, addresses: Mapping[int, str]) -> None:
        """Note the brokers of a group as a route names them."""
        before = self.addresses.get(broker_name)
        if before == addresses:
            return
        self.addresses[broker_name] = dict(addresses)
        self.changes += 1
        master = addresses.get(MASTER_ID)
        if before is not None and master is not None and before.get(MASTER_ID) != master:
            self.trust(master)  # a refusal as a slave means nothing for it as a master
            self._on_move()
        self._replaced.set()
        self._replaced = asyncio.Event()

    async def wait_for_change(self, limit_ms: int, *, since: int | None = None) -> None:
        """Return as soon as a route names other brokers than before (if `since` is given: than when `changes` was
        `since`), or after `limit_ms`."""
        if since is not None and since != self.changes:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_ms / 1000):
                await self._replaced.wait()

    def forget_offline(self, routes: Iterable[TopicRouteData]) -> None:
        """Forget the brokers that no route mentions."""
        alive: dict[str, set[str]] = {}
        for route in routes:
            for data in route.broker_datas:
                alive.setdefault(data.broker_name, set()).update(data.broker_addrs.values())
        for name, addresses in list(self.addresses.items()):
            kept = {broker_id: address for broker_id, address in addresses.items() if address in alive.get(name, ())}
            if kept:
                self.addresses[name] = kept
            else:
                del self.addresses[name]
        known = set().union(*alive.values())
        self.versions = {address: version for address, version in self.versions.items() if address in known}
        self._suspects = {
            address: suspect for address, suspect in self._suspects.items()
            if address in known or self.is_suspect(address)
        }  # fmt: skip

    def all(self) -> list[tuple[str, int, str]]:
        """Return (name, id, address) of every broker, sorted."""
        return [
            (name, broker_id, address)
            for name, addresses in sorted(self.addresses.items())
            for broker_id, address in sorted(addresses.items())
        ]

    def _broker(self, broker_id: int, address: str) -> BrokerTarget:
        return BrokerTarget(address, broker_id != MASTER_ID, self.versions.get(address, 0))

    # --- whom to ask ---

    def name_of_master(self, address: str, port_of: Callable[[str], str]) -> str | None:
        """Return the group whose master is at this address, or whose master has the port there that `port_of` gives for
        its own; None if there is no such group."""
        for name, addresses in self.addresses.items():
            master = addresses.get(MASTER_ID)
            if master is not None and address in (master, port_of(master)):
                return name
        return None

    def master(self, broker_name: str) -> str | None:
        """Return the address of the master of a group; None if no route names one."""
        return self.addresses.get(broker_name, {}).get(MASTER_ID)

    def find_in_subscribe(self, broker_name: str, broker_id: int, only_this_broker: bool) -> BrokerTarget | None:
        """Return the broker of a group from which to read.

        The asked broker of the group; if a slave was asked that is not there, the next id; else, unless
        `only_this_broker`, any of the group.
        """
        addresses = self.addresses.get(broker_name)
        if not addresses:
            return None
        found_id: int | None = broker_id
        if broker_id not in addresses and broker_id != MASTER_ID:
            found_id = broker_id + 1
        if found_id not in addresses:
            found_id = None if only_this_broker else min(addresses)
        return None if found_id is None else self._broker(found_id, addresses[found_id])

    def reader(self, broker_name: str, broker_id: int) -> BrokerTarget | None:
        """Return the broker from which to pull: as `find_in_subscribe`, but instead of a suspected one the first of the
        group that is not suspected."""
        found = self.find_in_subscribe(broker_name, broker_id, False)
        if found is None or not self.is_suspect(found.address):
            return found
        others = self.candidates(broker_name)
        return others[0] if others and not self.is_suspect(others[0].address) else found

    def candidates(self, broker_name: str) -> list[BrokerTarget]:
        """Return all brokers of a group: the master first, suspected ones last."""
        addresses = sorted(self.addresses.get(broker_name, {}).items())
        found = [self._broker(broker_id, address) for broker_id, address in addresses]
        return sorted(found, key=lambda broker: self.is_suspect(broker.address)) if self._suspects else found

    # --- who could not be reached ---

    def suspect(self, address: str) -> None:
        """Note that a broker could not be reached, or does not serve readers: others are asked first for a while."""
        now_ms = self._clock.monotonic_ms()
        until_ms, length_ms = self._suspects.get(address, (0, 0))
        if now_ms < until_ms:
            return  # requests that failed together count once
        length_ms = min(max(2 * length_ms, SUSPECT_MS), SUSPECT_MS_MAX)
        self._suspects[address] = now_ms + length_ms, length_ms

    def trust(self, address: str) -> None:
        """Note that a broker has answered and is no longer suspected."""
        self._suspects.pop(address, None)

    def is_suspect(self, address: str) -> bool:
        """Return whether a broker could not be reached, or did not serve, a short while ago."""
        until_ms, _ = self._suspects.get(address, (0, 0))
        return self._clock.monotonic_ms() < until_ms
