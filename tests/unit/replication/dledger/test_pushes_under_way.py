"""What a leader has pushed and its system has not taken yet lies in its log's file, and goes out from there."""

import asyncio
from pathlib import PurePath

from maxq.protocol.dledger.dledger_messages import DLedgerEntry, EntryRun, PushRequest, PushType, Reply
from maxq.replication.dledger.config import dledger_config, parse_peers
from maxq.replication.dledger.dledger_server import DLedgerServer
from maxq.store.dledger.mmap_file_store import DLedgerMmapFileStore
from maxq.testing.sim_machine import SimMachine
from maxq.testing.simulation import SimWorld, run_simulation

PEERS = "n0-10.0.0.1:40911;n1-10.0.0.2:40911;n2-10.0.0.3:40911"


class Member:
    """A machine, its files and its member."""

    def __init__(self, world: SimWorld, name: str) -> None:
        address = parse_peers(PEERS)[name].partition(":")[0]
        self.name = name
        self.machine = SimMachine(world.loop, address, world.rng.fork(name))
        self.machine.boot()
        disk, clock = self.machine.disk, self.machine.clock
        self.store = DLedgerMmapFileStore(
            PurePath("/store"), name, disk=disk, clock=clock, data_file_size=1 << 20, index_file_size=32_000
        )
        self.store.load()
        self.store.remembered()  # the group was founded before: two of three elect a leader
        config = dledger_config("g", name, PEERS)
        self.server = DLedgerServer(config, self.store, clock=clock, rng=world.rng.fork(f"rng {name}"))

    async def start(self) -> None:
        self.store.start()
        await self.server.start("0.0.0.0", 40911)

    async def append(self, bodies: list[bytes]) -> None:
        for body in bodies:
            self.store.append(body)

    def entries(self) -> list[DLedgerEntry]:
        return [self.store.entry(index) for index in range(self.store.end_index + 1)]

    async def told(self, request: PushRequest) -> Reply:
        """Its answer to another leader's push."""
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.server.requested(answer, request)
        return await answer


def push(to: str, kind: PushType, term: int, entries: list[DLedgerEntry]) -> PushRequest:
    """Of n2, which leads `term`."""
    is_append = kind is PushType.APPEND
    return PushRequest(
        group="g", remote_id=to, local_id="n2", leader_id="n2", term=term, type=kind, commit_index=0,
        entries=() if is_append else tuple(entries),
        run=EntryRun.of(b"".join(entry.encode() for entry in entries)) if is_append else None,
    )  # fmt: skip


def test_what_a_leader_pushed_never_turns_into_its_successors_entries_on_its_way() -> None:
    """A follower stands still. Its leader is deposed meanwhile, cuts its log and takes the next leader's entries, which
    are as long as its own: in a push of the old term they would pass for the old leader's."""

    async def story(world: SimWorld) -> None:
        members = [Member(world, name) for name in ("n0", "n1")]
        for member in members:
            await member.machine.call(member.start)
        while not any(member.server.is_leader and member.store.committed_index >= 0 for member in members):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        leader, follower = sorted(members, key=lambda member: not member.server.is_leader)
        term = leader.server.node.term
        process = follower.machine.process
        process.pause()
        for number in range(8):  # one push each; the system takes the first of them
            body = b"%d of the old leader " % number * 3000
            await leader.machine.call(lambda body=body: leader.append([body]))  # type: ignore[misc]
            await asyncio.sleep(0.001)
        pushed = leader.entries()
        common, rest = pushed[0], pushed[1:]
        others = [
            DLedgerEntry(size=entry.size, index=entry.index, term=term + 1, pos=entry.pos, body=b"x" * len(entry.body))
            for entry in rest
        ]
        for kind, entries in ((PushType.TRUNCATE, [common]), (PushType.APPEND, others)):
            request = push(leader.name, kind, term + 1, entries)
            await leader.machine.call(lambda request=request: leader.told(request))  # type: ignore[misc]
        assert leader.entries()[1:] == others
        world.loop.reschedule(process.resume())
        await asyncio.sleep(0.5)
        taken = follower.entries()
        assert taken == pushed[: len(taken)]

    run_simulation(story, seed=1, time_limit_s=60)
