"""One changed bit in a table of the broker or the name server: the start gets along with it, or says which file."""

from pathlib import Path, PurePath

import pytest

from maxq.client.admin.admin import Admin
from maxq.client.client_config import ClientConfig, ClientEnvironment, ProducerConfig
from maxq.client.producer.producer import Producer
from maxq.errors import MaxQError
from maxq.protocol.body.consumer_info import SetMessageRequestModeRequestBody
from maxq.protocol.body.subscription import SubscriptionGroupConfig
from maxq.protocol.enums import MessageRequestMode
from maxq.protocol.message.message import Message
from maxq.protocol.message.message_queue import MessageQueue
from maxq.standalone import StandaloneServer
from maxq.store.tools.check import StoreCheck
from maxq.store.tools.store_files import StoreFiles
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import SimDisk
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld, run_simulation
from tests.short_form import long_form

pytestmark = pytest.mark.usefixtures("quiet")

HOST = "10.0.0.1"
NAMES = f"{HOST}:9876"
STORE = Path("/store")
SETTINGS = {
    "mappedFileSizeCommitLog": "65536", "mappedFileSizeConsumeQueue": "2000", "maxHashSlotNum": "100",
    "maxIndexNum": "400",
}  # fmt: skip
FLIPS = 12


def new_server(world: SimWorld) -> StandaloneServer:
    return StandaloneServer(STORE, HOST, 9876, 10911, SETTINGS, disk=world.disk, clock=world.clock, rng=world.rng)


def environment(world: SimWorld) -> ClientEnvironment:
    return ClientEnvironment(world.clock, world.rng, world.disk, HOST, 1, PurePath("/home"))


async def send(world: SimWorld, topic: str) -> int:
    """Physical offset of a message."""
    config = ProducerConfig(namesrv_addr=NAMES, producer_group="g", instance_name=topic)
    async with Producer(config, environment(world)) as producer:
        result = await producer.send(Message(topic, b"body"))
    return int(result.offset_msg_id[16:], 16)


async def fill_every_table(world: SimWorld) -> None:
    """Write every table twice, so that each file has its .bak."""
    for turn in range(2):
        server = new_server(world)
        with world.network.on_host(HOST):
            await server.start()
            await send(world, f"T{turn}")
            async with Admin(ClientConfig(namesrv_addr=NAMES), environment(world)) as admin:
                broker = server.broker_address
                await admin.groups.create(broker, SubscriptionGroupConfig(f"G{turn}"))
                await admin.groups.set_message_request_mode(
                    broker, SetMessageRequestModeRequestBody("T0", f"G{turn}", MessageRequestMode.PULL)
                )
                await admin.offsets.commit(f"G{turn}", MessageQueue("T0", "broker-a", 0), 1)
                await admin.name_servers.put_kv("space", f"key{turn}", "value")
        await server.shutdown()


async def use(world: SimWorld) -> int:
    server = new_server(world)
    with world.network.on_host(HOST):
        await server.start()
        after = await send(world, "Another")
    await server.shutdown()
    return after


@pytest.fixture(scope="module")
def filled() -> SimDisk:
    disk = SimDisk(SimRng(1), SimClock())
    run_simulation(fill_every_table, seed=1, disk=disk, clock=SimClock())
    return disk.boot()


TABLES = (
    "config/topics.json", "config/subscriptionGroup.json", "config/consumerOffset.json",
    "config/messageRequestMode.json", "namesrv/kvConfig.json", "owner.json",
)  # fmt: skip


@pytest.mark.parametrize("name", [*TABLES[::4], *long_form(TABLES, TABLES[::4])])
def test_a_changed_bit_is_lived_with_or_named(name: str, filled: SimDisk) -> None:
    rng = SimRng(TABLES.index(name))
    unreadable = 0
    end = StoreCheck(StoreFiles(filled, STORE, hash_slots=100, index_entries=400)).run().log_end
    for flip in range(FLIPS):
        disk = filled.boot()
        position = rng.below(disk.stat(STORE / name).size)
        disk.flip_bit(STORE / name, position, rng.below(8))
        try:
            after = run_simulation(use, seed=flip, disk=disk, clock=SimClock())
        except MaxQError as error:
            assert str(STORE / name) in str(error), f"byte {position}: {error}"
            unreadable += 1
            continue
        unreadable += disk.exists(STORE / f"{name}.broken")
        assert after >= end, f"byte {position}"
        report = StoreCheck(StoreFiles(disk, STORE, hash_slots=100, index_entries=400)).run()
        assert not [fault for fault in report.faults if not fault.file.startswith(("config", "namesrv"))]
    assert unreadable or name == "owner.json"  # which is written anew
