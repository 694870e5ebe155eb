"""A DLedger group of brokers, each Java's or ours, a name server of ours, and their logs read from outside."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from maxq.client.instance.dledger_client import DLedgerClient
from maxq.errors import MaxQError
from maxq.protocol.dledger.dledger_messages import MetadataReply
from maxq.runtime.files.system import SystemClock, SystemRng
from tests.integration.processes.dledger_cluster import EntryLog
from tests.interop.processes.servers import Broker, JavaBroker, MaxqBroker, MaxqNamesrv, free_port_base, wait_until

T = TypeVar("T")
GROUP = "broker-a"
ELECTION_SECONDS = 60  # Java's followers are patient, and their back-off may collide several times
CATCH_UP_SECONDS = 60
#: After ours is elected in a group with Java members it still needs their votes' answers and a registration.
_POLL = 0.1


class DLedgerGroup:
    """`kinds`: of n0, n1, n2: "java" or "maxq". `more`: settings of all brokers."""

    def __init__(
        self, folder: Path, kinds: tuple[str, str, str], jars: Path, more: Mapping[str, str] | None = None
    ) -> None:
        self.kinds = dict(zip(("n0", "n1", "n2"), kinds, strict=True))
        self._jars = jars
        self._folder = folder
        self._more = more or {}
        self.names = MaxqNamesrv(folder / "namesrv", free_port_base())
        self._ports = {member: free_port_base() for member in self.kinds}
        self.peers = {member: f"127.0.0.1:{free_port_base()}" for member in self.kinds}
        self.brokers = self._brokers()

    def _brokers(self) -> dict[str, Broker]:
        return {
            member: (JavaBroker if kind == "java" else MaxqBroker)(self._folder / member, self._ports[member])
            for member, kind in self.kinds.items()
        }

    @property
    def namesrv(self) -> str:
        return self.names.address

    def start(self) -> None:
        self.names.start()
        self._of_all(self.start_member)

    def _of_all(self, do: Callable[[str], None]) -> None:
        """Do it for all members at once: a Java broker needs its seconds to start and to stop, mostly asleep."""
        with ThreadPoolExecutor(len(self.kinds)) as pool:
            list(pool.map(do, self.kinds))

    def start_member(self, member: str) -> None:
        broker = self.brokers[member]
        settings = {
            "enableDLegerCommitLog": "true",
            "dLegerGroup": GROUP,
            "dLegerPeers": ";".join(f"{peer}-{address}" for peer, address in self.peers.items()),
            "dLegerSelfId": member,
            "brokerId": "-1" if isinstance(broker, JavaBroker) else "0",
            **self._more,
        }
        if isinstance(broker, JavaBroker):
            broker.start(self._jars, self.namesrv, settings)
        else:
            assert isinstance(broker, MaxqBroker)
            broker.start(self.namesrv, settings)

    def stop(self) -> None:
        for server in (*self.brokers.values(), self.names):
            with contextlib.suppress(AssertionError):
                server.discard()

    def exchange(self, *, is_killed: bool) -> None:
        """End all members; each starts again as the other kind, on the files it has."""

        def end(member: str) -> None:
            broker = self.brokers[member]
            if is_killed:
                broker.kill()
            else:
                broker.stop()

        self._of_all(end)
        self.kinds = {member: "maxq" if kind == "java" else "java" for member, kind in self.kinds.items()}
        self.brokers = self._brokers()
        self._of_all(self.start_member)
        self.leader()

    # -- asking --

    def ask(self, question: Callable[[DLedgerClient], Awaitable[T]]) -> T:
        """The answer of the group to one question."""

        async def run() -> T:
            client = DLedgerClient(GROUP, self.peers, clock=SystemClock(), rng=SystemRng(), timeout_ms=5000)
            try:
                return await question(client)
            finally:
                await client.close()

        return asyncio.run(run())

    def metadata(self, member: str) -> MetadataReply | None:
        try:
            return self.ask(lambda client: client.metadata(member))
        except MaxQError:
            return None

    def leader(self, *, but: str | None = None) -> str:
        """Whom all living members take for the leader, and who is master at the name server."""

        def agreed() -> str | None:
            replies = [self.metadata(member) for member in self.kinds if self.brokers[member].process is not None]
            leaders = {reply.leader_id if reply else None for reply in replies}
            leader = leaders.pop() if len(leaders) == 1 else None
            return leader if leader not in (None, but) else None

        return str(wait_until(agreed, ELECTION_SECONDS, "all members name one leader"))

    def make_leader(self, kind: str) -> str:
        """Hand over until a member of this kind leads."""
        end = time.monotonic() + ELECTION_SECONDS
        while self.kinds[leader := self.leader()] != kind:
            to = next(member for member, its in self.kinds.items() if its == kind)
            with contextlib.suppress(MaxQError):
                self.ask(lambda client, to=to: client.transfer(to))  # type: ignore[misc]
            assert time.monotonic() < end, f"no {kind} member becomes leader"
            time.sleep(_POLL)
        return leader

    def hand_over(self, to: str) -> None:
        """This member leads afterwards. One that lags is not elected, so it is tried again."""
        end = time.monotonic() + ELECTION_SECONDS
        while self.leader() != to:
            with contextlib.suppress(MaxQError):
                self.ask(lambda client: client.transfer(to))
            assert time.monotonic() < end, f"{to} does not become leader"
            time.sleep(_POLL)

    # -- logs --

    def log(self, member: str) -> EntryLog:
        return EntryLog.of(self.brokers[member].store, member)

    def equal_logs(self) -> EntryLog:
        """Wait until all members have the same entries, byte for byte; nothing is sent."""

        def equal() -> EntryLog | None:
            first, *others = (self.log(member) for member in self.kinds)
            same = all(
                other.entries == first.entries
                and other.between(other.start, other.end) == first.between(first.start, first.end)
                for other in others
            )
            return first if same and first.entries else None

        log: EntryLog = wait_until(equal, CATCH_UP_SECONDS, "all logs are equal")
        return log
