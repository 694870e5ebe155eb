"""One seed, one story of whole servers: a name server, three or five brokers of one DLedger group, producers, a
consumer, each on a machine of its own, all of them the shipped code.

Whenever a member commits or changes its role, and in between: one leader a term; what one member knows to be committed
is the same entry on every member that knows so, now and later, whatever happens to machines; no queue shows more than
is committed. At the end: what a producer was told is SEND_OK is in every member's log and has reached the consumer; all
logs are equal, and so are the queues (dledger_clients.py has what clients may rely on). A topic that is deleted again
and again shows on every member what its log has behind the last deletion, numbered from 0.
"""

import asyncio
import contextlib
import hashlib
from collections import Counter
from typing import ClassVar, Final

from maxq.protocol.dledger.dledger_messages import DLedgerEntry
from maxq.protocol.message.message import decode_record
from maxq.protocol.message.record_layout import MIN_RECORD_SIZE
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.log.deletions import DELETED_TOPIC
from maxq.testing.sim_machine import MachineDiedError, SimMachine
from maxq.testing.sim_network import LinkSettings
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld, run_simulation
from tests.simulation.dledger.dledger_clients import Clients
from tests.simulation.dledger.dledger_faults import FAULTY_KINDS, KINDS, Faults
from tests.simulation.dledger.dledger_servers import BROKERS, CommittedHistory, Server, small_wheel
from tests.simulation.ha.ha_node import read_queue
from tests.simulation.servers.sim_server import CLIENT, NAMESRV, TOPIC

#: Registrations, rebalances, dead channels and reconnects all have had their turn by then.
REST_S: Final = 400.0
#: After the last fault so many sends are acknowledged, and the first of them within that time.
_ANSWERS: Final = 30
_ANSWERED_S: Final = 40.0
_LOOK_S: Final = 0.05
DOOMED: Final = "Doomed"


class DLedgerClusterStory:
    """Attributes:
    marks: how often each kind of thing happened.
    history: what happened, for whoever reads a failure.
    """

    KINDS: ClassVar[tuple[str, ...]] = KINDS  # of faults

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.marks: Counter[str] = Counter()
        self.history: list[str] = []
        self.committed = CommittedHistory()
        self._servers: list[Server] = []
        self._number = 0  # of the last message of DOOMED

    def run(self) -> None:
        """Tell it. AssertionError and whatever the code under test raises are failures."""
        with small_wheel():
            run_simulation(self._main, seed=self.seed, time_limit_s=7200, step_limit=30_000_000)

    async def _main(self, world: SimWorld) -> None:
        rng = SimRng(self.seed).fork("dledger cluster")
        world.network.default_link = LinkSettings(delay_ms=(0.1, 10), chunk_bytes=(1, 4000), whole=0.4, loss=0.005)
        is_timed = rng.chance(0.6)
        self._servers = self._make_servers(world, rng)
        for server in self._servers:
            await server.start()
        looking = world.loop.create_task(self._look())
        machine = SimMachine(world.loop, CLIENT, rng.fork("client"))
        machine.boot()
        clients = Clients(machine, rng, self.marks, timed=is_timed)
        await clients.start()
        await asyncio.sleep(3)
        deleting = world.loop.create_task(self._delete_again_and_again(rng.fork("deletions")))
        faults = Faults(world, self._servers, rng, self.marks, self.history, may_jump=not is_timed, kinds=self.KINDS)
        for _ in range(rng.between(3, 9)):
            await faults.one()
            self._raise_what_was_seen(looking)
            await asyncio.sleep(rng.choice((0.05, 1.0, 10.0)) * rng.uniform(0.5, 1.5))
        await faults.rest()
        await self._rest()
        deleting.cancel()
        await self._drain(world, clients)
        await clients.shutdown()
        await self._agree()
        looking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await looking
        clients.check(min(self._servers[1:], key=lambda server: server.broker.store.min_physical_offset))
        await self._check(clients)

    def _make_servers(self, world: SimWorld, rng: SimRng) -> list[Server]:
        beat = rng.choice((200, 400, 2000))
        members = rng.choice((3, 3, 3, 5))
        servers = [Server(world, NAMESRV, rng.fork("ns"), -1)]
        for n, address in enumerate(BROKERS[:members]):
            server = Server(world, address, rng.fork(address), n, members=members, dLegerHeartBeatInterval=str(beat))
            server.machine.clock.rate = rng.between(970, 1030)
            server.on_event = self._look_now
            servers.append(server)
        rates = [server.machine.clock.rate for server in servers[1:]]
        self.history.append(f"{members} members, a heart-beat every {beat} ms, clocks at {rates} of 1000")
        return servers

    async def _delete_again_and_again(self, rng: SimRng) -> None:
        pace = rng.choice((0.1, 1.0, 5.0))
        while True:
            await asyncio.sleep(pace * rng.uniform(0.5, 1.5))
            for server in self._servers[1:]:
                if server.is_leader:
                    server.machine.spawn(self._use_doomed(server, rng))

    async def _use_doomed(self, server: Server, rng: SimRng) -> None:
        """In the process of a leader, or of one that takes itself for it."""
        store = server.broker.store
        if rng.chance(0.2):
            if store.put_deletion([DOOMED]).ok:
                self.marks["topic deleted"] += 1
            return
        for _ in range(rng.between(1, 5)):
            self._number += 1
            store.put_message(MessageExtBrokerInner(DOOMED, self._number % 2, b"doomed %d" % self._number))

    async def _look(self) -> None:
        while True:
            self._look_now()
            await asyncio.sleep(_LOOK_S)

    def _look_now(self) -> None:
        self.committed.look(self._servers)

    @staticmethod
    def _raise_what_was_seen(looking: "asyncio.Task[None]") -> None:
        if looking.done():
            looking.result()

    # -- the end --

    async def _rest(self) -> None:
        sent = self.marks["answer: SEND_OK"]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ANSWERED_S):
                while self.marks["answer: SEND_OK"] < sent + _ANSWERS:  # noqa: ASYNC110 simulated time
                    await asyncio.sleep(0.5)
        assert self.marks["answer: SEND_OK"] > sent, f"nothing is acknowledged {_ANSWERED_S} s after the last fault"
        await asyncio.sleep(3)

    async def _drain(self, world: SimWorld, clients: Clients) -> None:
        sending = world.loop.create_task(clients.stop_sending())
        end = world.loop.time() + REST_S
        while not (sending.done() and clients.must_come <= clients.came) and world.loop.time() < end:  # noqa: ASYNC110
            await asyncio.sleep(1)
        missing = clients.must_come - clients.came
        assert not missing, f"{len(missing)} acknowledged messages were never consumed: {sorted(missing)[:5]}"
        await sending

    async def _agree(self) -> None:
        """What came last has a majority's word: the others are a moment behind, and so may be what queues show."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(120):
                while not self._is_agreed():  # noqa: ASYNC110 simulated time
                    await asyncio.sleep(0.01)

    def _is_agreed(self) -> bool:
        running = [server for server in self._servers[1:] if server.member is not None]
        if any(server.broker.store.dispatch.is_late for server in running):
            return False
        stores = [server.member.store for server in running if server.member is not None]
        return (
            len(stores) == len(self._servers) - 1
            and len({index for store in stores for index in (store.committed_index, store.end_index)}) == 1
        )

    # -- rules --

    def _check_deleted(self, server: Server) -> None:
        """The queues of DOOMED against the member's own log."""
        assert server.member is not None, f"{server.name} runs"
        store, ledger = server.broker.store, server.member.store
        wanted: list[list[bytes]] = [[], []]
        incarnation, is_known = 0, ledger.begin_index <= 0
        for index in range(max(ledger.begin_index, 0), ledger.end_index + 1):
            body = ledger.entry(index).body
            if len(body) < MIN_RECORD_SIZE:
                continue
            message = decode_record(memoryview(body))
            if message.topic == DELETED_TOPIC:
                wanted, incarnation, is_known = [[], []], message.physical_offset, True
            elif message.topic == DOOMED:
                wanted[message.queue_id].append(message.body)
                assert not is_known or message.queue_offset == len(wanted[message.queue_id]) - 1, (
                    f"{server.name}: {message.body!r} has queue offset {message.queue_offset}"
                )
        if not is_known:
            return
        assert store.incarnation(DOOMED) == incarnation, f"{server.name}: {store.incarnation(DOOMED)}, {incarnation}"
        for queue_id, bodies in enumerate(wanted):
            shown = list(read_queue(store, DOOMED, queue_id, 0, store.max_offset(DOOMED, queue_id)).values())
            assert shown == [hashlib.md5(body).hexdigest() for body in bodies], (
                f"{server.name}: queue {queue_id} shows {len(shown)} messages, the log has {len(bodies)}"
            )
            self.marks["deleted topic compared"] += 1

    async def _check(self, clients: Clients) -> None:
        logs: list[dict[int, DLedgerEntry]] = []
        ends = set()
        for server in self._servers[1:]:
            assert server.member is not None, f"{server.name} runs"
            store = server.member.store
            assert store.committed_index == store.end_index, f"{server.name}: not everything is committed at rest"
            assert store.amnesiac_until < 0, f"{server.name} still misses something"
            begin = max(store.begin_index, 0)  # above 0: its disk was full, old files went
            logs.append({index: store.entry(index) for index in range(begin, store.end_index + 1)})
            ends.add((store.end_index, *(server.broker.store.max_offset(TOPIC, queue) for queue in range(2))))
        assert len(ends) == 1, f"the ends of logs and queues differ: {ends}"
        longest = max(logs, key=len)
        for log in logs:
            assert log.items() <= longest.items(), "the logs differ"
        for server in self._servers[1:]:
            self._check_deleted(server)
        whole = b"".join(entry.body for entry in longest.values())
        for body in clients.must_come:
            assert body in whole or 0 not in longest, f"{body[:20]!r} was acknowledged and is not in the log"
        for server in reversed(self._servers):
            try:
                await server.stop()
            except MachineDiedError as error:
                raise AssertionError(f"{server.name} died by itself") from error


class FaultyDLedgerClusterStory(DLedgerClusterStory):
    """The same with disks of which every call can fail."""

    KINDS = FAULTY_KINDS
