"""The broker follows its member."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from maxq.broker.dledger import role_changes
from maxq.broker.dledger.role_changes import DLedgerRoleChangeHandler
from maxq.replication.raft.outputs import Role, RoleChange


class Member:
    """As much of DLedgerServer as the handler sees."""

    def __init__(self) -> None:
        self.terms: list[int] = []
        self.store = SimpleNamespace(begin_index=-1, committed_index=-1, term_of=lambda index: self.terms[index])
        self.role: Callable[[RoleChange], None] = lambda change: None
        self.commit: Callable[[int], None] = lambda index: None

    def set_role_listener(self, listener: Callable[[RoleChange], None]) -> None:
        self.role = listener

    def set_commit_listener(self, listener: Callable[[int], None]) -> None:
        self.commit = listener

    def committed(self, *terms: int) -> None:
        self.terms += terms
        self.store.begin_index, self.store.committed_index = 0, len(self.terms) - 1
        self.commit(len(self.terms) - 1)


class Follower:
    """Who is told to become what."""

    def __init__(self) -> None:
        self.became: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.refusals = 0

    def refuse(self) -> None:
        self.refusals += 1

    async def to_master(self) -> None:
        await self.gate.wait()
        self.became.append("master")

    async def to_slave(self, broker_id: int) -> None:
        await self.gate.wait()
        self.became.append(f"slave {broker_id}")


def handler_of(member: Member) -> tuple[DLedgerRoleChangeHandler, Follower]:
    handler = DLedgerRoleChangeHandler(member, 2)  # type: ignore[arg-type]
    follower = Follower()
    handler.start(follower.to_master, follower.to_slave, follower.refuse)
    return handler, follower


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_leader_is_master_only_when_an_entry_of_its_own_term_is_committed() -> None:
    member = Member()
    handler, follower = handler_of(member)
    member.committed(1, 1)
    member.role(RoleChange(Role.LEADER, 2, "n1"))
    await settle()
    assert follower.became == []
    member.committed(1)  # an old entry: more of them may follow
    await settle()
    assert follower.became == []
    member.committed(2)
    await settle()
    assert follower.became == ["master"]
    await handler.stop()


async def test_what_was_heard_before_it_began_counts() -> None:
    member = Member()
    handler = DLedgerRoleChangeHandler(member, 2)  # type: ignore[arg-type]
    member.role(RoleChange(Role.LEADER, 1, "n1"))
    member.committed(1)
    follower = Follower()
    handler.start(follower.to_master, follower.to_slave, follower.refuse)
    await settle()
    assert follower.became == ["master"]
    await handler.stop()


async def test_a_leadership_that_ended_before_its_first_commit_changes_nothing() -> None:
    member = Member()
    handler, follower = handler_of(member)
    member.role(RoleChange(Role.FOLLOWER, 1, "n0"))
    await settle()
    member.role(RoleChange(Role.LEADER, 2, "n1"))
    await settle()
    member.role(RoleChange(Role.CANDIDATE, 3, None))
    member.committed(2)
    await settle()
    assert follower.became == ["slave 2", "slave 2"]
    await handler.stop()


async def test_changes_while_one_is_carried_out_end_with_the_newest() -> None:
    member = Member()
    handler, follower = handler_of(member)
    follower.gate.clear()
    member.role(RoleChange(Role.LEADER, 1, "n1"))
    member.committed(1)
    await settle()
    member.role(RoleChange(Role.CANDIDATE, 2, None))
    member.role(RoleChange(Role.FOLLOWER, 2, "n2"))
    member.role(RoleChange(Role.LEADER, 3, "n1"))
    member.committed(3)
    await settle()
    follower.gate.set()
    await settle()
    assert follower.refusals > 0
    assert follower.became == ["master", "slave 2", "master"]  # what its services remember is of the first term
    await handler.stop()


async def test_a_master_that_falls_becomes_a_slave_and_a_slave_hears_of_each_new_leader() -> None:
    member = Member()
    handler, follower = handler_of(member)
    member.role(RoleChange(Role.LEADER, 1, "n1"))
    member.committed(1)
    await settle()
    for change in (
        RoleChange(Role.CANDIDATE, 2, None), RoleChange(Role.FOLLOWER, 2, "n2"), RoleChange(Role.FOLLOWER, 3, "n2"),
    ):  # fmt: skip
        member.role(change)
        await settle()
    assert follower.became == ["master", "slave 2", "slave 2"]
    await handler.stop()


async def test_a_master_that_falls_refuses_writes_before_anything_else_happens() -> None:
    member = Member()
    handler, follower = handler_of(member)
    member.role(RoleChange(Role.FOLLOWER, 1, "n0"))
    assert follower.refusals == 0
    member.role(RoleChange(Role.LEADER, 2, "n1"))
    member.committed(1, 2)
    await settle()
    assert follower.refusals == 0
    member.role(RoleChange(Role.CANDIDATE, 3, None))
    assert follower.refusals == 1
    await handler.stop()


async def test_a_step_that_fails_does_not_end_the_others() -> None:
    member = Member()
    handler = DLedgerRoleChangeHandler(member, 2)  # type: ignore[arg-type]
    follower = Follower()

    async def fails() -> None:
        raise OSError("no")

    handler.start(fails, follower.to_slave, follower.refuse)
    member.role(RoleChange(Role.LEADER, 1, "n1"))
    member.committed(1)
    await settle()
    member.role(RoleChange(Role.FOLLOWER, 2, "n2"))
    await settle()
    assert follower.became == ["slave 2"]
    await handler.stop()


async def test_a_step_that_failed_is_done_again_until_another_change_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(role_changes, "_RETRY_SECONDS", 0.0)
    member = Member()
    handler = DLedgerRoleChangeHandler(member, 2)  # type: ignore[arg-type]
    follower = Follower()
    failures = [OSError("no room"), OSError("still none")]

    async def fails_twice() -> None:
        if failures:
            raise failures.pop()
        await follower.to_master()

    handler.start(fails_twice, follower.to_slave, follower.refuse)
    member.role(RoleChange(Role.LEADER, 1, "n1"))
    member.committed(1)
    for _ in range(4):
        await settle()
    assert failures == [] and follower.became[-1] == "master"
    await handler.stop()
