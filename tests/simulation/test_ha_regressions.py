"""What stories of master and slaves found, each with a test of its own that does not depend on what a seed draws."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from maxq.codes import ResponseCode
from maxq.store.message_ext_broker_inner import MessageExtBrokerInner
from maxq.testing.simulation import SimWorld, run_simulation
from tests.simulation.ha_group import HaGroup, Rule
from tests.simulation.ha_node import HaNode
from tests.simulation.ha_story import draw_rule


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def group_of(world: SimWorld, **changes: Any) -> HaGroup:
    config = replace(draw_rule(world.rng).config, ha_flow_control_enable=False, ha_full_copy=False, **changes)
    group = HaGroup(world, world.rng, Rule("SYNC_MASTER", 2, config), Counter(), [])
    group.sending = False  # the tests do
    return group


async def put(node: HaNode, body: bytes) -> "asyncio.Future[ResponseCode] | None":
    async def in_process() -> "asyncio.Future[ResponseCode] | None":
        assert node.store is not None and node.acknowledgement is not None
        result = node.store.put_message(MessageExtBrokerInner("Orders", 0, body, {"KEYS": "k"}))
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
        assert slave.sealed == []
        await group.converge(30)
        assert slave.live_image() == master.live_image()

    run_simulation(main, seed=1)


def test_a_slave_with_the_true_bytes_does_not_join_a_master_that_sealed_them() -> None:
    """Seeds 372 and 1109: what lies behind the sealed range, and the ends, are equal."""

    async def main(world: SimWorld) -> None:
        group = group_of(world, flush_disk_type="ASYNC_FLUSH", in_sync_replicas=2)
        master, slave, other = group.nodes
        for node in group.nodes:
            await group.start(node)
        for n in range(30):  # several files
            future = await put(master, bytes([n]) * 700)
            assert future is None or await future == ResponseCode.SUCCESS
        await group.converge(30)
        whole = master.live_image()
        master.machine.kill()
        disk = master.machine.disk
        disk.flip_bit(disk.paths("store/commitlog/*")[0], 1000, 3)
        await master.start(master.ha_address)
        assert len(master.sealed) == 1
        await asyncio.sleep(20)
        for node in (slave, other):
            assert node.ha is not None and "has lost bytes" in node.ha.client.failure
            assert node.live_image() == whole
        future = await put(master, b"for nobody")
        assert future is not None and await future == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert slave.live_image() == other.live_image() == whole

    run_simulation(main, seed=1)


def test_an_old_master_gets_back_what_it_had_sealed_from_the_new_one() -> None:
    async def main(world: SimWorld) -> None:
        group = group_of(world, flush_disk_type="ASYNC_FLUSH", in_sync_replicas=2)
        master, slave, _ = group.nodes
        for node in group.nodes:
            await group.start(node)
        for n in range(30):
            future = await put(master, bytes([n]) * 700)
            assert future is None or await future == ResponseCode.SUCCESS
        await group.converge(30)
        whole = slave.live_image()
        master.machine.kill()
        disk = master.machine.disk
        disk.flip_bit(disk.paths("store/commitlog/*")[0], 1000, 3)
        await master.start(master.ha_address)
        await group.promote_the_longest(keep_old=True)
        assert master.sealed and master.live_image() != whole
        await group.converge(60)
        for node in group.nodes:
            assert node.live_image() == whole
            assert len(node.queue("Orders", 0)) == 30

    run_simulation(main, seed=1)
