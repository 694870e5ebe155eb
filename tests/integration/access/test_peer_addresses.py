"""peerAddresses: who may connect to the ports between brokers. Brokers are processes of their own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.access.peer_world import DLEDGER, HA, BrokerProcess, Stranger, is_served

LISTED, STRANGER = "127.0.0.2", "127.0.0.3"


@pytest.fixture(params=[HA, DLEDGER])
async def broker(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[BrokerProcess]:
    more = {"peerAddresses": f"{LISTED}, 10.0.0.0/8", "haSendHeartbeatInterval": "100"}
    running = BrokerProcess(tmp_path, request.param, more)
    await running.start()
    yield running
    await running.stop()


async def test_only_who_is_listed_is_served_and_others_are_counted_and_logged_once(broker: BrokerProcess) -> None:
    for _ in range(25):
        assert not await is_served(broker.kind, broker.peer_port, STRANGER)
    assert (await broker.runtime_info())["peerConnectionsRefused"] == "25"
    said = [line for line in broker.log_text().splitlines() if STRANGER in line]
    assert len(said) == 1 and "peerAddresses" in said[0] and "is disconnected" in said[0]
    assert await is_served(broker.kind, broker.peer_port, LISTED)
    assert (await broker.runtime_info())["peerConnectionsRefused"] == "25"
    assert (await broker.send(b"x")).code == 0  # its clients are not limited


@pytest.mark.parametrize("kind", [HA, DLEDGER])
@pytest.mark.parametrize("peers", ["", "127.0.0.0/8"])
async def test_a_start_that_everybody_can_connect_to_says_so(kind: str, peers: str, tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, kind, {"bindAddress": "0.0.0.0", "peerAddresses": peers})
    await broker.start()
    try:
        warned = [line for line in broker.log_text().splitlines() if "WARNING" in line and "peerAddresses" in line]
        assert len(warned) == (0 if peers else 1), warned
        if warned:
            assert str(broker.peer_port) in warned[0] and "set peerAddresses to" in warned[0]
        assert await is_served(kind, broker.peer_port, "127.0.0.1") or not peers
    finally:
        await broker.stop()


async def test_a_list_that_is_none_ends_the_start(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, HA, {"peerAddresses": "10.0.0.0/99"})
    with pytest.raises(Exception, match=r"peerAddresses='10\.0\.0\.0/99'"):
        await broker.start()


async def test_refusals_by_access_control_are_in_the_runtime_information(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, HA)
    await broker.start()
    try:
        assert (await broker.runtime_info())["accessRefused_wrongSignature"] == "0"
    finally:
        await broker.stop()


@pytest.mark.parametrize("kind", [HA, DLEDGER])
async def test_strangers_do_not_take_the_descriptors_that_files_need(kind: str, tmp_path: Path) -> None:
    """As many connections as the process may have open files: those above highestDescriptor are closed."""
    broker = BrokerProcess(tmp_path, kind)
    broker.command = ("prlimit", "--nofile=256:256")
    await broker.start()
    try:
        assert (await broker.send(b"x")).code == 0  # over a connection that stays
        async with contextlib.AsyncExitStack() as opened:
            strangers = [await opened.enter_async_context(Stranger.at(broker.peer_port)) for _ in range(300)]
            cut = [asyncio.ensure_future(one.is_cut()) for one in strangers]
            await asyncio.wait(cut, return_when=asyncio.FIRST_COMPLETED, timeout=20)
            for number in range(5):  # each topic has files of its own
                assert (await broker.send(b"x", f"T{number}")).code == 0
            closed = sum(one.done() for one in cut)
            assert 100 <= closed < 250, closed
            for one in cut:
                one.cancel()
    finally:
        await broker.stop()
