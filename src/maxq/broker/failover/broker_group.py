"""BrokerGroup: one broker's knowledge of the brokers that share its name. Pure: facts in, changes out.

The live broker with the smallest id is the active one of the group: the master (0), or a slave that acts as master.
Two sources tell who it is: the member group that is fetched from a name server every second, and
NOTIFY_MIN_BROKER_ID_CHANGE (905).

Unlike the original, a new address behind the same smallest id is a change too (a master that moved), and every change
away from id 0 forgets the master, not only one that names the master's address.

Source:
    broker/BrokerController.java updateMinBroker, onMinBrokerChange, syncBrokerMemberGroup.
"""

from collections.abc import Mapping
from typing import NamedTuple

from maxq.broker.identity.broker_identity import BrokerAddress
from maxq.protocol.body.route import MASTER_ID


class MinBrokerChange(NamedTuple):
    """The news that another broker is the group's active one.

    `ha_address` is where it replicates from, if it is a master and was named together with it; else None.
    """

    min_broker_id: int
    min_broker_addr: str
    ha_address: str | None = None

    @property
    def has_master(self) -> bool:
        return self.min_broker_id == MASTER_ID


class BrokerGroup:
    """The knowledge of the broker `own`, whose id may change with its role, about its group.

    Attributes:
        members: id → address of the last fetch; empty before the first.
        min_broker_id: smallest living id; 0 until something else is known.
        min_broker_addr: its address; empty while unknown.
    """

    def __init__(self, own: BrokerAddress) -> None:
        self._own = own
        self.members: dict[int, str] = {}
        self.min_broker_id = MASTER_ID
        self.min_broker_addr = ""

    @property
    def own_id(self) -> int:
        return self._own.broker_id

    def alive_replicas(self, total_replicas: int) -> int:
        """Living brokers of the group, this one included; `total_replicas` until the first fetch."""
        if not self.members:
            return total_replicas
        return len(self.members) + (self.own_id not in self.members)

    @property
    def smallest(self) -> tuple[int, str]:
        """Return the smallest id of a living broker of the group, and its address."""
        return self.min_broker_id, self.min_broker_addr

    def on_online(self, min_broker_id: int, min_broker_addr: str) -> None:
        """Adopt the group's lowest broker id and its address, as found when this broker went online."""
        self.min_broker_id, self.min_broker_addr = min_broker_id, min_broker_addr

    def on_members(self, members: Mapping[int, str]) -> MinBrokerChange | None:
        """Apply a name server's list of members. An empty list is ignored: it comes from a name server that was just
        started."""
        if not members:
            return None
        self.members = dict(members)
        smallest = min(members)
        return self._on_smallest(MinBrokerChange(smallest, members[smallest]))

    def on_notice(self, min_broker_id: int, min_broker_addr: str, ha_address: str | None) -> MinBrokerChange | None:
        """Apply a name server's notice that the smallest id changed."""
        return self._on_smallest(MinBrokerChange(min_broker_id, min_broker_addr, ha_address or None))

    def pass_over(self, before: tuple[int, str], members: dict[int, str]) -> None:
        """Ignore the last change: `smallest` and `members` are restored, and the next news reports the change again."""
        self.min_broker_id, self.min_broker_addr = before
        self.members = members

    def _on_smallest(self, change: MinBrokerChange) -> MinBrokerChange | None:
        """Apply a new smallest id. A master never gives way to another broker."""
        if self.own_id == MASTER_ID:
            return None
        if change[:2] == self.smallest:
            return None
        self.min_broker_id, self.min_broker_addr = change.min_broker_id, change.min_broker_addr
        return change
