"""A DLedger group of which all disks are full: who leads, what is answered, and how soon it goes on with room again."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from maxq.codes import ResponseCode
from maxq.config.netty_client_config import NettyClientConfig
from maxq.errors import MaxQError
from maxq.machine import system_environment
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.send import SendMessageRequestHeader
from maxq.remoting.client import RemotingClient
from tests.integration.processes.dledger_cluster import Cluster, Member

BODY = bytes(30_000)
SAYS_WHY = "[DISK_NO_ROOM]the disk is full: "


class Group:
    """Members with disks of their own, and a producer that tries all of them."""

    def __init__(self, cluster: Cluster, client: RemotingClient) -> None:
        self.cluster = cluster
        self._client = client

    async def send(self, but: Member | None = None) -> dict[str, tuple[int, str]]:
        """A message to each member that runs; code and remark of the answers."""
        header = SendMessageRequestHeader("PG", "Full", "TBW102", 4, 0, 0, 1, 0, "", 0, False, False)
        said = {}
        for member in self.cluster.members:
            if member.is_running and member is not but:
                request = RemotingCommand(310, header.encode_v2(), BODY)
                with contextlib.suppress(MaxQError):
                    answer = await self._client.invoke(f"{member.host}:{member.port}", request, 5_000)
                    said[member.name] = answer.code, answer.remark or ""
        return said

    async def is_taken(self) -> bool:
        return any(code == ResponseCode.SUCCESS for code, _ in (await self.send()).values())

    async def is_dispatched(self) -> bool:
        """Every member has made the files of queues and index: one that never did cannot start on a full disk."""
        return all(any((member.store / "index").glob("*")) for member in self.cluster.members)

    async def refuses(self) -> bool:
        """Nobody takes anything, and who leads says why."""
        said, leader = await self.send(), await self.cluster.leader()
        is_taken = any(code == ResponseCode.SUCCESS for code, _ in said.values())
        return not is_taken and leader is not None and SAYS_WHY in said.get(leader.name, (0, ""))[1]

    async def refuses_without(self, absent: Member) -> bool:
        """One of the others says why: it leads, or cannot, for the end of the log is on the disk of `absent` alone."""
        return any(SAYS_WHY in remark for _, remark in (await self.send(absent)).values())

    async def leader(self) -> Member:
        found: list[Member] = []

        async def leads() -> bool:
            leader = await self.cluster.leader()
            found.extend([] if leader is None else [leader])
            return bool(found)

        await until(leads)
        return found[0]

    async def term(self) -> int:
        terms = [int((await self.cluster.status(member)).get("term", "0")) for member in self.cluster.members]
        return max(terms)


async def until(holds: Callable[[], Awaitable[bool]], seconds: float = 60) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(seconds):
        while not await holds():  # noqa: ASYNC110 other processes
            await asyncio.sleep(0.02)


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    cluster = Cluster(tmp_path, has_disks=True, has_links=False)
    if cluster.why_no_disks:
        pytest.skip(cluster.why_no_disks)
    environment = system_environment()
    client = RemotingClient(NettyClientConfig(), clock=environment.clock, rng=environment.rng)
    try:
        await cluster.start()
        yield Group(cluster, client)
    finally:
        await client.close()
        await cluster.end()


async def test_with_all_disks_full_a_leader_says_so_and_room_is_enough_to_go_on(group: Group) -> None:
    members = group.cluster.members
    await until(group.is_taken)
    await until(group.is_dispatched)
    before = await group.term()
    for member in members:
        assert member.disk is not None
        member.disk.fill()
    await until(group.refuses)
    for _ in range(50):  # it goes on saying so, whoever asks
        await until(group.refuses)
        await asyncio.sleep(0.1)
    assert await group.term() <= before + 3, "the leadership goes round"
    leader = await group.leader()
    await leader.kill()
    await until(group.refuses)
    await leader.start()
    await until(group.refuses)
    for member in members:
        await member.kill()
    for member in members:
        await member.start()
    await until(group.refuses)
    leader = await group.leader()
    leader.pause()
    try:
        await until(lambda: group.refuses_without(leader))
    finally:
        leader.go_on()
    await until(group.refuses)
    for member in members:
        assert member.disk is not None
        member.disk.free()
    await until(group.is_taken)
    for member in members:
        member.check_alive()
