"""Machines of a simulated DLedger group of whole brokers, and what must be true of it at any time."""

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from typing import Final
from unittest.mock import patch

from maxq.broker.controller import BrokerController
from maxq.replication.dledger.dledger_server import DLedgerServer
from maxq.replication.raft.outputs import Role
from maxq.store.timer import roll_window, timer_message_store, timer_wheel
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld
from tests.simulation.servers.sim_server import FallibleServer

BROKERS: Final = ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5")
MEMBER_PORT: Final = 40911
#: Of a wheel; the simulated disk looks at every page of a file to find those that changed.
SLOTS: Final = 2000


@contextlib.contextmanager
def small_wheel() -> Iterator[None]:
    """Brokers made in this block have timers that see a quarter of an hour ahead."""
    with (
        patch.multiple(timer_wheel, SLOTS=SLOTS, WHEEL_SIZE=SLOTS * timer_wheel.SLOT_SIZE),
        patch.object(timer_message_store, "SLOTS", SLOTS),
        patch.object(roll_window, "SLOTS_PER_LAP", SLOTS // 2),
    ):
        yield


class Server(FallibleServer):
    """A member, or the name server.

    Args:
        more: settings of its broker, beside those that all have.
    """

    def __init__(
        self, world: SimWorld, address: str, rng: SimRng, number: int, *, members: int = 3, **more: str
    ) -> None:
        super().__init__(world, address, rng, number)
        self._members = members
        self._more = more
        self.on_event: Callable[[], None] = lambda: None  # something was committed here, or its role changed

    @property
    def name(self) -> str:
        return "name server" if self.number < 0 else f"n{self.number}"

    @property
    def member(self) -> DLedgerServer | None:
        """Of a broker that runs."""
        if not self.machine.is_up or not isinstance(self.running, BrokerController) or self.running.dledger is None:
            return None
        return self.running.dledger.member

    @property
    def is_leader(self) -> bool:
        return self.member is not None and self.member.role is Role.LEADER

    @property
    def broker(self) -> BrokerController:
        """Of a member that runs."""
        assert isinstance(self.running, BrokerController), f"{self.name} runs"
        return self.running

    async def start(self, before: Callable[[], None] = lambda: None) -> None:
        """See FallibleServer."""
        await super().start(before)
        if self.member is not None:
            self.member.set_commit_listener(lambda index: self.on_event())
            self.member.set_role_listener(lambda change: self.on_event())

    def broker_properties(self) -> dict[str, str]:
        """A member of the group, with timers and transactions that do not take long."""
        return {
            "mappedFileSizeDLedgerIndex": "32000", "enableDLegerCommitLog": "true", "dLegerGroup": "g",
            "dLegerPeers": ";".join(f"n{n}-{BROKERS[n]}:{MEMBER_PORT}" for n in range(self._members)),
            "dLegerSelfId": self.name, "messageDelayLevel": "1s 2s 3s 4s 5s 6s 7s 8s", "timerPrecisionMs": "500",
            "flushDelayOffsetInterval": "1000", "transactionTimeOut": "3000", "transactionCheckInterval": "5000",
            "mappedFileSizeTimerLog": "5200", "cleanFileForciblyEnable": "false", **self._more,
        }  # fmt: skip


class CommittedHistory:
    """Everything that any member ever knew to be committed."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int, str]] = []  # term, position, MD5 of the body, by index
        self._leaders: dict[int, str] = {}
        self._seen: dict[DLedgerServer, int] = {}  # up to where each life of each member was compared

    def look(self, servers: list[Server]) -> None:
        """Compare what the members know now."""
        for server in servers:
            member = server.member
            if member is None:
                continue
            if member.role is Role.LEADER:
                other = self._leaders.setdefault(member.node.term, server.name)
                assert other == server.name, f"{other} and {server.name} lead in term {member.node.term}"
            self._compare(server, member)

    def _compare(self, server: Server, member: DLedgerServer) -> None:
        store = member.store
        begin, committed = max(store.begin_index, 0), store.committed_index
        shown = server.broker.store
        assert shown.confirm_offset <= max(store.committed_position, shown.min_physical_offset), (
            f"{server.name} shows more than is committed"
        )
        for index in range(max(self._seen.get(member, 0), begin), committed + 1):
            entry = store.entry(index)
            fact = (entry.term, entry.pos, hashlib.md5(entry.body).hexdigest())
            if index < len(self.entries):
                assert self.entries[index] == fact, f"{server.name} has another entry {index}: {fact}"
            else:
                assert index == len(self.entries), f"{server.name} knows entry {index}, nobody the one before"
                self.entries.append(fact)
        self._seen[member] = committed + 1
