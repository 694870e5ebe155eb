"""Listeners and waiters of commits: their order, and when they are told."""

import asyncio

from maxq.errors import StoreFailedError
from maxq.protocol.dledger.dledger_messages import DLedgerResponseCode
from maxq.replication.dledger.committer import Committer
from maxq.testing.memory_ledger import MemoryLedger


class World:
    """A committer over a log with three entries, and what was heard."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.failures: list[BaseException] = []
        self.store = MemoryLedger()
        self.store.begin_leading(1)
        for body in (b"a", b"b", b"c"):
            self.store.append(body)
        self.committer = Committer(self.store, self.failures.append)
        self.committer.add_listener(lambda index: self.heard.append(f"{index} of {self.store.committed_index}"))

    def wait_for(self, index: int) -> None:
        unit = self.store.unit(index)

        def done(code: DLedgerResponseCode) -> None:
            self.heard.append(f"{index} {code.name}")

        self.committer.waiters.wait(unit.position + unit.size, 1000, done)


async def test_the_store_hears_first_then_listeners_then_who_waits() -> None:
    world = World()
    world.wait_for(1)
    world.wait_for(2)
    world.committer.at_once(1)
    assert world.heard == ["1 of 1", "1 SUCCESS"]


async def test_what_is_told_soon_is_told_behind_what_this_turn_began_and_once() -> None:
    world = World()
    asyncio.get_running_loop().call_soon(world.heard.append, "a flush")
    world.committer.soon(0)
    world.committer.soon(2)
    assert world.heard == [] and world.store.committed_index == -1
    await asyncio.sleep(0)
    assert world.heard == ["a flush", "2 of 2"]


async def test_what_builds_on_it_has_it_told_before() -> None:
    world = World()
    world.committer.soon(1)
    world.committer.finish()
    assert world.heard == ["1 of 1"]
    world.committer.finish()
    await asyncio.sleep(0)
    assert world.heard == ["1 of 1"]


async def test_a_leader_that_commits_more_has_told_what_it_learnt_as_a_follower() -> None:
    world = World()
    world.committer.soon(1)
    world.committer.at_once(2)
    await asyncio.sleep(0)
    assert world.heard == ["2 of 2"]


async def test_a_store_that_cannot_go_on_ends_the_member() -> None:
    world = World()
    error = StoreFailedError("gone")

    def refuse(index: int) -> None:
        raise error

    world.committer.add_listener(refuse)
    world.committer.soon(0)
    await asyncio.sleep(0)
    assert world.failures == [error]
