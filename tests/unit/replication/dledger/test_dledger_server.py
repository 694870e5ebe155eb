"""Three members of a bare group, with the shipped driver, core, remoting and client, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from maxq.client.instance.dledger_client import DLedgerClient
from maxq.config.netty_client_config import NettyClientConfig
from maxq.errors import DLedgerError, RemotingError
from maxq.protocol.dledger.dledger_codec import encode_request, request_code
from maxq.protocol.dledger.dledger_messages import DLedgerResponseCode, VoteRequest
from maxq.protocol.dledger.ledger import HardState
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.client import RemotingClient
from maxq.replication.dledger.client_requests import ClientRequests
from maxq.replication.dledger.config import dledger_config, parse_peers
from maxq.replication.dledger.dledger_server import DLedgerServer
from maxq.replication.raft.outputs import Role
from maxq.testing.memory_ledger import MemoryLedger
from maxq.testing.sim_machine import SimMachine
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld, run_simulation
from tests.short_form import seeds

PEERS = "n0-10.0.0.1:40911;n1-10.0.0.2:40911;n2-10.0.0.3:40911"
ADDRESSES = parse_peers(PEERS)


class Member:
    """A machine, its log, and its member."""

    def __init__(self, world: SimWorld, name: str) -> None:
        self.name = name
        self.world = world
        self.machine = SimMachine(world.loop, ADDRESSES[name].partition(":")[0], world.rng.fork(name))
        self.ledger = MemoryLedger()
        self.server: DLedgerServer

    async def start(self, peers: str = PEERS) -> None:
        self.machine.boot()
        await self.machine.call(lambda: self._start(peers))

    async def _start(self, peers: str) -> None:
        config = dledger_config("g", self.name, peers)
        self.server = DLedgerServer(
            config, self.ledger, clock=self.machine.clock, rng=self.world.rng.fork(f"rng {self.name}")
        )
        ClientRequests(self.server)
        await self.server.start("0.0.0.0", 40911)


class Group:
    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.members = {name: Member(world, name) for name in ADDRESSES}
        client_machine = SimMachine(world.loop, "10.0.0.9", world.rng.fork("client"))
        client_machine.boot()
        self.client_machine = client_machine
        self.client = DLedgerClient("g", ADDRESSES, clock=client_machine.clock, rng=world.rng.fork("client rng"))

    async def start(self) -> None:
        for member in self.members.values():
            await member.start()

    async def leader(self) -> Member:
        while True:
            for member in self.members.values():
                if member.machine.is_up and member.server.role is Role.LEADER:
                    return member
            await asyncio.sleep(0.001)

    async def append(self, body: bytes) -> int:
        reply = await self.client_machine.call(lambda: self.client.append(body))
        return reply.index

    async def append_at_last(self, body: bytes) -> int:
        """Again and again: a connection that breaks leaves unknown what became of it."""
        while True:
            try:
                return await self.append(body)
            except (DLedgerError, RemotingError):
                await asyncio.sleep(0.01)

    async def get(self, index: int) -> bytes | None:
        entry = await self.client_machine.call(lambda: self.client.get(index))
        return None if entry is None else entry.body

    async def equal(self) -> None:
        up = [member for member in self.members.values() if member.machine.is_up]
        while len({(len(one.ledger.log), one.ledger.committed_index) for one in up}) > 1:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert all(one.ledger.log == up[0].ledger.log for one in up)


def simulate(story: Callable[[Group], Awaitable[None]], seed: int = 7) -> None:
    async def main(world: SimWorld) -> None:
        group = Group(world)
        await asyncio.wait_for(story(group), 120)

    run_simulation(main, seed=seed, time_limit_s=600)


def test_a_group_elects_appends_and_reads() -> None:
    async def story(group: Group) -> None:
        await group.start()
        indexes = [await group.append(b"entry %d" % number) for number in range(20)]
        assert indexes == list(range(indexes[0], indexes[0] + 20)) and indexes[0] >= 1  # behind the barrier
        assert await group.get(indexes[3]) == b"entry 3"
        assert await group.get(10_000) is None
        await group.equal()

    simulate(story)


@pytest.mark.parametrize("seed", seeds([0, 1], range(6)))
def test_a_killed_leader_is_replaced_within_a_fraction_of_its_heart_beats(seed: int) -> None:
    """Its system closes its connections, which its followers take for a hint."""

    async def story(group: Group) -> None:
        await group.start()
        first = await group.append(b"before")
        old = await group.leader()
        killed_at = group.world.loop.time()
        old.machine.kill()
        second = await group.append_at_last(b"after")
        took = group.world.loop.time() - killed_at
        assert took < 0.5, f"{took:.3f} s, a follower's patience is 1.2 s"
        assert await group.get(first) == b"before" and await group.get(second) == b"after"
        await old.start()
        await group.append_at_last(b"with three")
        await group.equal()

    simulate(story, seed)


@pytest.mark.parametrize("seed", seeds([0, 1], range(4)))
def test_a_leader_without_power_is_replaced_when_patience_ends(seed: int) -> None:
    async def story(group: Group) -> None:
        await group.start()
        await group.append(b"before")
        old = await group.leader()
        off_at = group.world.loop.time()
        old.machine.power_off()
        new = None
        while new is None:
            await asyncio.sleep(0.01)
            new = next((m for m in group.members.values() if m is not old and m.server.role is Role.LEADER), None)
        assert group.world.loop.time() - off_at < 2.5

    simulate(story, seed)


@pytest.mark.parametrize(("term", "within_s"), [(0, 0.3), (7, 1.5)], ids=["never elected", "of a later term"])
@pytest.mark.parametrize("seed", seeds([0, 1], range(4)))
def test_a_member_that_comes_late_is_no_candidate_for_long(seed: int, term: int, within_s: float) -> None:
    """The leader asks for it again and again; if it is in a later term, the others elect in one later still."""

    async def story(group: Group) -> None:
        *first, late = group.members.values()
        for member in first:
            await member.start()
        await group.append(b"without it")
        leader = await group.leader()
        late.ledger.store_term(HardState(term, late.name if term else None))
        await late.start()
        began = group.world.loop.time()
        while late.server.role is not Role.FOLLOWER:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert group.world.loop.time() - began < within_s
        assert late.server.node.term > term
        assert term or late.server.leader_id == leader.name, "it has disturbed nobody"
        await group.append_at_last(b"with three")
        await group.equal()

    simulate(story, seed)


def test_a_leader_cut_off_from_its_group_takes_nothing_and_who_waits_hears_so() -> None:
    async def story(group: Group) -> None:
        await group.start()
        await group.append(b"before")
        old = await group.leader()
        heard: list[DLedgerResponseCode] = []
        for member in group.members.values():
            if member is not old:
                group.world.network.partition(old.machine.address, member.machine.address)

        async def append_alone() -> None:
            index = old.ledger.append(b"nobody hears")
            unit = old.ledger.unit(index)
            assert old.server.when_committed(unit.position + unit.size, heard.append)

        await old.machine.call(append_alone)
        await asyncio.sleep(4)
        assert heard and heard[0] in (
            DLedgerResponseCode.TERM_CHANGED, DLedgerResponseCode.WAIT_QUORUM_ACK_TIMEOUT,
        )  # fmt: skip
        assert old.server.append_refusal() is DLedgerResponseCode.NOT_LEADER
        assert old.server.role is not Role.LEADER
        group.world.network.heal()
        await group.append_at_last(b"after")
        await group.equal()
        assert b"nobody hears" not in [entry.body for entry in old.ledger.log]

    simulate(story)


def test_leadership_is_handed_over_on_demand() -> None:
    async def story(group: Group) -> None:
        await group.start()
        await group.append(b"before")
        old = await group.leader()
        target = next(name for name in ADDRESSES if name != old.name)
        await group.client_machine.call(lambda: group.client.transfer(target))
        assert (await group.leader()).name == target
        assert await group.append(b"after") > 0
        with pytest.raises(DLedgerError):
            await group.client_machine.call(lambda: group.client.transfer("n9"))

    simulate(story)


@pytest.mark.parametrize("seed", seeds([0], range(3)))
def test_a_leader_that_goes_hands_over_first(seed: int) -> None:
    async def story(group: Group) -> None:
        await group.start()
        await group.append(b"before")
        old = await group.leader()
        began = group.world.loop.time()
        await old.machine.call(old.server.resign)
        assert old.server.role is not Role.LEADER and group.world.loop.time() - began < 0.3
        assert (await group.leader()) is not old
        await old.machine.call(old.server.shutdown)
        assert await group.append_at_last(b"after") > 0

    simulate(story, seed)


def test_a_leader_without_followers_goes_all_the_same() -> None:
    async def story(group: Group) -> None:
        await group.start()
        await group.append(b"before")
        old = await group.leader()
        for member in group.members.values():
            if member is not old:
                member.machine.power_off()
        began = group.world.loop.time()
        await old.machine.call(old.server.resign)
        await old.machine.call(old.server.shutdown)
        assert group.world.loop.time() - began < 3

    simulate(story)


def test_metadata_says_who_is_there_and_how_far_everybody_is() -> None:
    async def story(group: Group) -> None:
        await group.start()
        await group.append(b"one")
        leader = await group.leader()
        reply = await group.client_machine.call(lambda: group.client.metadata(leader.name))
        assert reply.peers == ADDRESSES and reply.leader_id == leader.name
        assert reply.status is not None and reply.status["role"] == "LEADER"
        assert int(reply.status["committedIndex"]) >= 1
        other = DLedgerClient("other", ADDRESSES, clock=group.client_machine.clock, rng=group.world.rng.fork("o"))
        with pytest.raises(DLedgerError, match="UNKNOWN_GROUP"):
            await group.client_machine.call(lambda: other.metadata(leader.name))

    simulate(story)


def test_a_member_that_does_not_lead_sends_clients_to_the_leader() -> None:
    async def story(group: Group) -> None:
        await group.start()
        await group.append(b"one")
        leader = await group.leader()
        follower = next(member for member in group.members.values() if member is not leader)
        group.client._leader = follower.name  # as a client that has not heard
        assert await group.append(b"two") == 2

    simulate(story)


def test_a_leader_that_nobody_reaches_and_that_reaches_the_others_leads_on() -> None:
    """Its followers answer it, and it promises on their word: they must not elect another one meanwhile."""

    async def story(group: Group) -> None:
        await group.start()
        await group.append(b"before")
        leader = await group.leader()
        term = leader.server.node.term
        followers = [member for member in group.members.values() if member is not leader]
        seen = set[tuple[str | None, int]]()
        for _ in range(200):
            for member in followers:
                link = member.server._links[leader.name]
                if link._connection is not None:
                    link._connection.abort("cut")
            await asyncio.sleep(0.02)
            seen |= {(member.server.leader_id, member.server.node.term) for member in group.members.values()}
            assert leader.server.promise_refusal() is None
        assert seen == {(leader.name, term)}

    simulate(story)


def test_whoever_names_the_leader_and_goes_changes_nothing() -> None:
    """That the leader may have ended is said by both connections, the one to it and the one from it."""

    async def story(group: Group) -> None:
        await group.start()
        await group.append(b"before")
        leader = await group.leader()
        term = leader.server.node.term
        followers = [member for member in group.members.values() if member is not leader]

        async def name_the_leader(address: str) -> None:
            client = RemotingClient(NettyClientConfig(), clock=group.client_machine.clock, rng=SimRng(1))
            request = VoteRequest(group="g", remote_id="", local_id=leader.name, leader_id=leader.name, term=0)
            command = RemotingCommand(request_code(request), body=encode_request(request))
            await client.invoke(address, command, 3_000)
            await client.close()

        seen = set[tuple[str | None, int]]()
        for member in followers:
            await group.client_machine.call(lambda member=member: name_the_leader(ADDRESSES[member.name]))
        for _ in range(100):
            await asyncio.sleep(0.001)
            seen |= {(member.server.leader_id, member.server.node.term) for member in followers}
        assert seen == {(leader.name, term)}

    simulate(story)


def test_a_follower_keeps_its_connection_to_a_leader() -> None:
    """Silent connections are closed after two minutes; this one is not silent, and the leader goes on leading."""

    async def story(group: Group) -> None:
        await group.start()
        await group.append(b"before")
        leader = await group.leader()
        term = leader.server.node.term
        await asyncio.sleep(300)
        assert (await group.leader(), leader.server.node.term) == (leader, term)

    async def main(world: SimWorld) -> None:
        await story(Group(world))

    run_simulation(main, seed=7, time_limit_s=2_000)
