"""The shipped name server, broker and client in virtual time: bad network, power loss, nothing acknowledged is lost."""

import asyncio
from collections.abc import Mapping
from pathlib import Path, PurePath
from types import MappingProxyType

import pytest

from maxq.client.client_config import ClientEnvironment, ProducerConfig
from maxq.client.producer.producer import Producer
from maxq.client.results.send_result import SendStatus
from maxq.errors import MaxQError
from maxq.protocol.message.message import Message
from maxq.standalone import StandaloneServer
from maxq.store.tools.check import StoreCheck
from maxq.store.tools.log_walk import LogWalk
from maxq.store.tools.message_lines import messages_of
from maxq.store.tools.store_files import StoreFiles
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import PowerLoss, SimDisk
from maxq.testing.sim_network import LinkSettings
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld, run_simulation
from tests.short_form import seeds

pytestmark = pytest.mark.usefixtures("quiet")

BROKER, CLIENT = "10.0.0.1", "10.0.0.2"
NAMESRV_PORT, BROKER_PORT = 9876, 10911
STORE = Path("/store")
SETTINGS = {
    "flushDiskType": "SYNC_FLUSH",
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
    "defaultTopicQueueNums": "2",
}


def new_server(world: SimWorld, settings: Mapping[str, str] = MappingProxyType({})) -> StandaloneServer:
    """One with these settings beside those of all stories."""
    return StandaloneServer(
        STORE, BROKER, NAMESRV_PORT, BROKER_PORT, {**SETTINGS, **settings},
        disk=world.disk, clock=world.clock, rng=world.rng,
    )  # fmt: skip


def new_producer(world: SimWorld, number: int) -> Producer:
    config = ProducerConfig(
        namesrv_addr=f"{BROKER}:{NAMESRV_PORT}", producer_group=f"g{number}", instance_name=f"producer-{number}"
    )
    environment = ClientEnvironment(world.clock, world.rng, world.disk, CLIENT, 1, PurePath("/home"))
    return Producer(config, environment)


async def send_for_ever(world: SimWorld, number: int, acknowledged: dict[int, bytes]) -> None:
    async with new_producer(world, number) as producer:
        while True:
            body = world.rng.bytes(world.rng.between(1, 2000))
            try:
                result = await producer.send(Message("Simulated", body, {"KEYS": f"k{number}"}))
            except MaxQError:
                await asyncio.sleep(0.1)
                continue
            if result.send_status is SendStatus.SEND_OK:
                acknowledged[int(result.offset_msg_id[16:], 16)] = body


async def weather(world: SimWorld) -> None:
    """Partitions and resets, again and again."""
    rng = world.rng.fork("weather")
    while True:
        await asyncio.sleep(rng.uniform(0.3, 2))
        if rng.chance(0.5):
            world.network.partition(BROKER, CLIENT, both_ways=rng.chance(0.5))
            await asyncio.sleep(rng.uniform(0.1, 4))
            world.network.heal()
        else:
            world.network.reset(CLIENT)


@pytest.mark.parametrize("seed", seeds([0], range(6)))
def test_acknowledged_messages_survive_a_power_loss_of_the_broker(seed: int) -> None:
    rng = SimRng(seed)
    clock = SimClock()
    disk = SimDisk(rng.fork("disk"), clock)
    acknowledged: dict[int, bytes] = {}

    async def first_life(world: SimWorld) -> None:
        world.network.default_link = LinkSettings(delay_ms=(0.1, 20), chunk_bytes=(1, 3000), whole=0.3, loss=0.01)
        with world.network.on_host(BROKER):
            await new_server(world).start()
        with world.network.on_host(CLIENT):
            tasks = [asyncio.ensure_future(send_for_ever(world, n, acknowledged)) for n in range(3)]
        tasks.append(asyncio.ensure_future(weather(world)))
        world.disk.cut_power_after(rng.between(50, 700))
        done, _ = await asyncio.wait(tasks, timeout=120, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        world.disk.cut_power()

    async def second_life(world: SimWorld) -> int:
        server = new_server(world)
        with world.network.on_host(BROKER):
            await server.start()
        with world.network.on_host(CLIENT):
            async with new_producer(world, 9) as producer:
                result = await producer.send(Message("Simulated", b"after"))
        await server.shutdown()
        return int(result.offset_msg_id[16:], 16)

    with pytest.raises(PowerLoss):
        run_simulation(first_life, seed=seed, disk=disk, clock=clock)
    disk = disk.boot()
    after = run_simulation(second_life, seed=seed + 1000, disk=disk, clock=clock)
    files = StoreFiles(disk, STORE, hash_slots=100, index_entries=400)
    walk = LogWalk(files)
    found = {message["physicalOffset"]: message for batch in walk.batches() for message in messages_of(batch)}
    assert len(acknowledged) > 10
    assert set(acknowledged) <= set(found)
    assert after in found and after > max(acknowledged)
    report = StoreCheck(files).run()
    assert report.faults == []
    assert not disk.exists(STORE / "abort")
