"""Peers that stall at the ports of replication, by real sockets: they are cut off, and nobody else waits for them."""

import asyncio
import contextlib
import itertools
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from maxq.client.instance.dledger_client import DLedgerClient
from maxq.config.netty_server_config import NettyServerConfig
from maxq.protocol.dledger.dledger_codec import encode_request, request_code
from maxq.protocol.dledger.dledger_messages import GetRequest, MetadataRequest, Request
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.replication.dledger.client_requests import ClientRequests
from maxq.replication.dledger.config import DLedgerConfig
from maxq.replication.dledger.dledger_server import DLedgerServer
from maxq.runtime.files.system import SystemClock, SystemRng
from maxq.testing.memory_ledger import MemoryLedger
from tests.integration.remoting.stalling_peer import Peer
from tests.integration.replication.pair import Member, member, until
from tests.interop.processes.servers import free_port_base

GRACE: Final = 1  # seconds
LARGE: Final = 1 << 20
MOST: Final = 60.0 * GRACE


# --- DLedger ---------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def group(live: str = "0", count: int = 1) -> AsyncIterator[dict[str, DLedgerServer]]:
    """Members of a group of `count` in this process, those whose numbers `live` has, by their ids."""
    base = free_port_base(count)
    peers = {f"n{number}": f"127.0.0.1:{base + number}" for number in range(count)}
    members: dict[str, DLedgerServer] = {}
    try:
        for number in map(int, live):
            own = f"n{number}"
            server = members[own] = DLedgerServer(
                DLedgerConfig(group="g", self_id=own, peers=peers, preferred_leader_ids=("n0",)),
                MemoryLedger(),
                clock=SystemClock(),
                rng=SystemRng(),
                server_config=NettyServerConfig(server_channel_max_idle_time_seconds=GRACE),
            )
            ClientRequests(server)
            await server.start("127.0.0.1", base + number)
        yield members
    finally:
        for server in members.values():
            await server.shutdown()


def frame(request: Request) -> bytes:
    return RemotingCommand(request_code(request), body=encode_request(request)).encode()


METADATA: Final = frame(MetadataRequest(group="g", remote_id="n0"))
BEGINNINGS: Final = {
    "half a frame": METADATA[:-1] + b" " * 1000,
    "half a push": RemotingCommand(51005, body=bytes(LARGE)).encode()[:1000],
    "half a length": b"\0\0" + bytes(1000),
}


@pytest.mark.parametrize("what", BEGINNINGS)
async def test_who_never_ends_its_first_frame_at_a_members_port_is_cut_off(what: str) -> None:
    async with group() as members:
        peer = Peer(members["n0"].port)
        await peer.drips(BEGINNINGS[what], every=GRACE / 10)
        await until(lambda: not members["n0"].server.connections)
        assert not members["n0"].server.unfinished.total


async def test_who_says_nothing_at_a_members_port_is_cut_off() -> None:
    async with group() as members:
        peer = Peer(members["n0"].port)
        await peer.sips(1, every=GRACE / 20, seconds=MOST)
        await until(lambda: not members["n0"].server.connections)


@pytest.mark.parametrize("sip", [0, 1])
async def test_who_asks_a_member_for_much_and_does_not_read_is_cut_off_and_the_member_goes_on(sip: int) -> None:
    async with group() as members:
        leader = members["n0"]
        await until(lambda: leader.is_leader)
        client = DLedgerClient("g", leader.config.peers, clock=SystemClock(), rng=SystemRng())
        index = (await client.append(bytes(LARGE))).index
        peer = Peer(leader.port)
        peer.socket.sendall(frame(GetRequest(group="g", remote_id="n0", begin_index=index)) * 20)
        stalling = asyncio.create_task(peer.sips(sip, every=GRACE / 20, seconds=MOST))
        appended = 0
        while not stalling.done():
            await client.append(b"others go on")
            appended += 1
            await asyncio.sleep(0.01)
        await stalling
        assert appended > 3, "others waited for it"
        await client.close()
        await until(lambda: not leader.server.connections)
        assert leader.is_leader


async def test_a_member_that_reads_nothing_holds_up_no_append_and_little_waits_for_it() -> None:
    """Instead of one member of three something listens that takes connections and reads nothing."""
    async with group("02", 3) as members:
        leader = members["n0"]
        held: list[asyncio.Transport] = []

        class Deaf(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                assert isinstance(transport, asyncio.Transport)
                transport.pause_reading()
                held.append(transport)

        host, port = leader.config.peers["n1"].split(":")
        deaf = await asyncio.get_running_loop().create_server(Deaf, host, int(port))
        await until(lambda: any(one.is_leader for one in members.values()))
        client = DLedgerClient("g", leader.config.peers, clock=SystemClock(), rng=SystemRng())
        most = 0
        for _ in range(100):
            await client.append(bytes(LARGE))
            most = max(most, *(one.unsent_bytes for server in members.values() for one in server.client.connections))
        assert most < 16 << 20, f"{most} bytes wait for a member that reads nothing"
        await client.close()
        deaf.close()
        for transport in held:
            transport.abort()


# --- HA --------------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def master(root: Path) -> AsyncIterator[Member]:
    times = {"ha_housekeeping_interval": GRACE * 1000, "ha_send_heartbeat_interval": 200}
    async with member(root, "ASYNC_MASTER", **times) as one:
        yield one


@pytest.mark.parametrize("data", [b"", bytes(1000)[:7], b"\0" * 7], ids=["nothing", "half-a-report", "half-a-report-2"])
async def test_who_says_nothing_whole_at_the_ha_port_is_cut_off(tmp_path: Path, data: bytes) -> None:
    async with master(tmp_path) as one:
        peer = Peer(one.ha.port)
        peer.socket.sendall(data)
        await peer.sips(1, every=GRACE / 20, seconds=MOST)
        await until(lambda: not one.ha.connection_count)


@pytest.mark.parametrize("sip", [0, 1])
async def test_a_slave_that_reports_and_does_not_read_is_cut_off_and_little_waits_for_it(
    tmp_path: Path, sip: int
) -> None:
    async with master(tmp_path) as one:
        one.put(4000, bytes(4000))
        peer = Peer(one.ha.port)

        async def report() -> None:
            with contextlib.suppress(OSError):
                while True:
                    peer.socket.sendall((0).to_bytes(8, "big"))
                    await asyncio.sleep(GRACE / 5)

        reporting = asyncio.create_task(report())
        await peer.sips(sip, every=GRACE / 20, seconds=MOST)
        await until(lambda: not one.ha.connection_count)
        reporting.cancel()


async def test_connections_to_the_ha_port_leave_descriptors_to_files(tmp_path: Path) -> None:
    async with member(tmp_path, "ASYNC_MASTER") as one:
        taken = set(map(int, os.listdir("/proc/self/fd")))
        free = (number for number in itertools.count() if number not in taken)
        one.settings.server = NettyServerConfig(highest_descriptor=next(itertools.islice(free, 25, None)))
        peers = [Peer(one.ha.port) for _ in range(20)]  # each takes a descriptor here, too
        await until(lambda: 0 < one.ha.connection_count < 15)
        for peer in peers:
            peer.close()
        await until(lambda: not one.ha.connection_count)
