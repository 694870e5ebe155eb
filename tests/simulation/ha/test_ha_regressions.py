"""What stories of master and slaves found, each with a test of its own that does not depend on what a seed draws."""

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import PurePath
from typing import Any

import pytest

from maxq.codes import ResponseCode
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.testing.simulation import SimWorld, run_simulation
from tests.simulation.ha.ha_group import HaGroup, Rule
from tests.simulation.ha.ha_node import HaNode, Image
from tests.simulation.ha.ha_story import draw_rule

pytestmark = pytest.mark.usefixtures("quiet")


def group_of(world: SimWorld, **changes: Any) -> HaGroup:
    config = replace(draw_rule(world.rng).config, ha_flow_control_enable=False, ha_full_copy=False, **changes)
    group = HaGroup(world, world.rng, Rule("SYNC_MASTER", 2, config), Counter(), [])
    group.sending = False  # the tests do
    return group


async def put(node: HaNode, body: bytes, queue_id: int = 0) -> "asyncio.Future[ResponseCode] | None":
    async def in_process() -> "asyncio.Future[ResponseCode] | None":
        assert node.store is not None and node.acknowledgement is not None
        result = node.store.put_message(MessageExtBrokerInner("Orders", queue_id, body, {"KEYS": "k"}))
        assert result.ok
        return node.acknowledgement.outcome(result.end_offset)

    return await node.machine.call(in_process)


def test_an_empty_slave_acknowledges_nothing_below_the_file_it_begins_with() -> None:
    async def main(world: SimWorld) -> None:
        group = group_of(world, flush_disk_type="ASYNC_FLUSH", slave_timeout=3000, in_sync_replicas=2)
        master, slave, _ = group.nodes
        await group.start(master)
        waiting = [await put(master, bytes(1000)) for _ in range(12)]  # into the second file
        await group.start(slave)
        codes = [await future for future in waiting if future is not None]
        start = slave.live_image().start
        assert start > 0
        assert codes[:3] == [ResponseCode.FLUSH_SLAVE_TIMEOUT] * 3
        later = await put(master, b"later")
        assert later is None or await later == ResponseCode.SUCCESS

    run_simulation(main, seed=1)


def test_a_slave_leaves_a_torn_middle_of_its_log_to_its_master() -> None:
    async def main(world: SimWorld) -> None:
        group = group_of(world, flush_disk_type="ASYNC_FLUSH", in_sync_replicas=2)
        master, slave, _ = group.nodes
        for node in group.nodes:
            await group.start(node)
        for _ in range(3):
            future = await put(master, bytes(700))
            assert future is None or await future == ResponseCode.SUCCESS
        slave.machine.kill()
        log = slave.machine.disk.paths("store/commitlog/*")[0]
        slave.machine.disk.flip_bit(log, 700 + 300, 3)  # in the second record's body; the checkpoint was never flushed
        await slave.start(master.ha_address)
        assert slave.filled == []
        await group.converge(30)
        assert slave.live_image() == master.live_image()

    run_simulation(main, seed=1)


async def until_equal(group: HaGroup, image: Image | None = None) -> None:
    """Wait until all logs are one, or this one."""
    async with asyncio.timeout(60):
        while not all(node.live_image() == (image or group.master.live_image()) for node in group.nodes):  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def equal_group(world: SimWorld) -> HaGroup:
    """Three equal nodes with several files; the message at 4 × its size is the last of Orders/1."""
    group = group_of(world, flush_disk_type="ASYNC_FLUSH", in_sync_replicas=2)
    for node in group.nodes:
        await group.start(node)
    for n in range(30):
        future = await put(group.master, bytes([n]) * 700, queue_id=int(n < 5))
        assert future is None or await future == ResponseCode.SUCCESS
    await until_equal(group)
    return group


async def damage_and_start(node: HaNode, position: int, *, with_queues: bool = False) -> None:
    """The process is killed, a bit of its first file changes, the queues are lost; it starts again."""
    node.machine.kill()
    disk = node.machine.disk
    disk.flip_bit(disk.paths("store/commitlog/*")[0], position, 3)
    disk = node.machine.disk = disk.boot()
    for path in disk.paths("store/consumequeue/*") if with_queues else []:
        disk.delete(PurePath(path))
    await node.start(node.ha_address)
    assert len(node.filled) == 1


def test_a_slave_with_the_true_bytes_does_not_join_a_master_that_sealed_them_and_gave_their_places_away() -> None:
    """Seeds 372 and 1109: what lies behind the filled range, and the ends, are equal."""

    async def main(world: SimWorld) -> None:
        group = await equal_group(world)
        master, slave, other = group.nodes
        whole = slave.live_image()
        await damage_and_start(master, 4 * 804 + 6, with_queues=True)
        future = await put(master, b"in the place of the fifth", queue_id=1)
        assert future is not None and await future == ResponseCode.FLUSH_SLAVE_TIMEOUT
        await asyncio.sleep(20)
        for node in (slave, other):
            assert node.ha is not None and "has lost bytes 3216 … 4020" in node.ha.client.failure
        assert slave.live_image() == other.live_image() == whole
        assert master.care is not None
        assert "place 4 of Orders-1 was given to another message since" in master.care.repair.last_refusal

    run_simulation(main, seed=1)


@pytest.mark.parametrize("position", [1000, 4 * 804 + 6])
@pytest.mark.parametrize("with_queues", [False, True])
def test_a_master_takes_back_what_it_had_sealed_from_a_slave(position: int, with_queues: bool) -> None:
    async def main(world: SimWorld) -> None:
        group = await equal_group(world)
        master, slave, _ = group.nodes
        whole = slave.live_image()
        await damage_and_start(master, position, with_queues=with_queues)
        assert master.live_image() != whole
        await until_equal(group, whole)
        assert sorted(master.queue("Orders", 1)) == [0, 1, 2, 3, 4] and len(master.queue("Orders", 0)) == 25
        future = await put(master, b"more", queue_id=1)
        assert future is None or await future == ResponseCode.SUCCESS
        await until_equal(group)
        assert sorted(slave.queue("Orders", 1)) == [0, 1, 2, 3, 4, 5]

    run_simulation(main, seed=1)


def test_an_old_master_gets_back_what_it_had_sealed_from_the_new_one() -> None:
    async def main(world: SimWorld) -> None:
        group = await equal_group(world)
        master, slave, other = group.nodes
        whole = slave.live_image()
        for node in (slave, other):
            await node.stop()
        await damage_and_start(master, 1000)
        assert master.live_image() != whole
        await group.promote_the_longest(keep_old=True)
        assert group.master is not master
        await until_equal(group, whole)
        for node in group.nodes:
            assert len(node.queue("Orders", 0)) == 25 and len(node.queue("Orders", 1)) == 5

    run_simulation(main, seed=1)
