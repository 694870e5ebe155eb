"""A disk without room under a member's driver: it waits, and does not end."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from errno import EIO, ENOSPC

import pytest

from maxq.errors import DLedgerError, MaxQError, StoreFailedError
from maxq.protocol.dledger.dledger_messages import EntryRun
from maxq.protocol.dledger.ledger import HardState
from maxq.replication.raft.outputs import Role
from maxq.testing.memory_ledger import MemoryLedger
from maxq.testing.simulation import SimWorld, run_simulation
from tests.unit.replication.dledger.test_dledger_server import Group


class FullLedger(MemoryLedger):
    """Refuses what needs room while `error` is set."""

    error = 0

    def _need_room(self) -> None:
        if self.error:
            raise OSError(self.error, "no room")

    def store_term(self, state: HardState) -> None:
        self._need_room()
        super().store_term(state)

    def append(self, body: bytes) -> int:
        self._need_room()
        return super().append(body)


class FullGroup(Group):
    def __init__(self, world: SimWorld) -> None:
        super().__init__(world)
        self.failures: list[BaseException] = []
        for member in self.members.values():
            member.ledger = FullLedger()

    async def start(self) -> None:
        await super().start()
        for member in self.members.values():
            member.server.set_service_failed(lambda name, error: self.failures.append(error))

    def set_error(self, name: str, error: int) -> None:
        ledger = self.members[name].ledger
        assert isinstance(ledger, FullLedger)
        ledger.error, ledger.has_room = error, not error


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while True:
            if holds():
                return
            await asyncio.sleep(0.01)


async def until_handed_over(group: FullGroup, name: str) -> None:
    """Hand the leadership over as soon as the leader has heard the member again, which answered nothing for a while."""
    async with asyncio.timeout(60):
        while True:
            with suppress(DLedgerError):
                await group.client_machine.call(lambda: group.client.transfer(name))
                return
            await asyncio.sleep(0.01)


def test_leader_without_room_hands_over_and_is_a_member_like_others_when_it_has_room_again() -> None:
    async def story(world: SimWorld) -> None:
        group = FullGroup(world)
        await group.start()
        await group.append_at_last(b"before")
        old = await group.leader()
        group.set_error(old.name, ENOSPC)
        others = [member.server for member in group.members.values() if member is not old]
        await until(lambda: any(server.is_leader for server in others))
        await group.append_at_last(b"meanwhile")
        group.set_error(old.name, 0)
        await until(lambda: "lacksRoom" not in old.server.status())
        await until_handed_over(group, old.name)
        assert old.server.is_leader
        await group.append_at_last(b"after")
        assert group.failures == []

    run_simulation(story, seed=1)


def test_members_without_room_elect_nobody_until_there_is_some_and_none_of_them_ends() -> None:
    async def story(world: SimWorld) -> None:
        group = FullGroup(world)
        for name in group.members:
            group.set_error(name, ENOSPC)
        await group.start()
        await asyncio.sleep(20)
        assert all(member.server.role is not Role.LEADER for member in group.members.values())
        for name in group.members:
            group.set_error(name, 0)
        await group.append_at_last(b"at last")
        assert group.failures == []

    run_simulation(story, seed=2)


def test_elected_without_room_for_its_first_entry_it_appends_that_later() -> None:
    class Reluctant(FullLedger):
        """Has room for terms."""

        def store_term(self, state: HardState) -> None:
            MemoryLedger.store_term(self, state)

    async def story(world: SimWorld) -> None:
        group = FullGroup(world)
        for name, member in group.members.items():
            member.ledger = Reluctant()
            group.set_error(name, ENOSPC)
        await group.start()
        await group.leader()
        with pytest.raises(MaxQError):
            await group.append(b"refused")
        for name in group.members:
            group.set_error(name, 0)
        await until(lambda: any(member.ledger.log for member in group.members.values()))
        await group.append_at_last(b"taken")
        assert group.failures == []

    run_simulation(story, seed=3)


def test_disk_that_fails_otherwise_ends_the_member() -> None:
    async def story(world: SimWorld) -> None:
        group = FullGroup(world)
        group.set_error("n0", EIO)
        await group.start()
        await until(lambda: bool(group.failures))

    run_simulation(story, seed=4)


class BrokenLedger(MemoryLedger):
    """Its device refuses while `is_broken`: to write what a leader pushes, or to read what a follower lacks."""

    is_broken = False

    def append_entries(self, run: EntryRun) -> int:
        if self.is_broken:
            raise OSError(EIO, "the device refuses")
        return super().append_entries(run)

    def entries(self, first: int, max_bytes: int) -> EntryRun:
        if self.is_broken:
            raise StoreFailedError(f"entry {first} cannot be read any more")
        return super().entries(first, max_bytes)


@pytest.mark.parametrize("is_leader", [False, True])
def test_a_member_whose_disk_fails_within_a_push_ends_and_the_others_go_on(is_leader: bool) -> None:
    """It went on before, and failed at every push, or sent none any more."""

    async def story(world: SimWorld) -> None:
        group = Group(world)
        ledgers = {name: BrokenLedger() for name in group.members}
        for name, member in group.members.items():
            member.ledger = ledgers[name]
        await group.start()
        await group.append_at_last(b"before")
        failed: list[str] = []
        leader = await group.leader()
        broken = next(member for member in group.members.values() if (member is leader) == is_leader)
        broken.server.set_service_failed(lambda service, error: failed.append(service))
        ledgers[broken.name].is_broken = True
        push = group.world.loop.create_task(group.append_at_last(b"pushed"))
        await until(lambda: bool(failed))
        broken.machine.kill()  # what the listener has the process do
        await push
        await group.equal()
        assert failed == ["DLedger"]

    run_simulation(story, seed=5)
