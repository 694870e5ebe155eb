"""Delayed messages when the roles change: the new master goes on where the old one was."""

import pytest

from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import RunningBroker, until
from tests.integration.broker.slaves.test_slave import start_slave, synchronized, until_copied
from tests.integration.broker.waiting.test_delay_levels import SHORT, delivered


@pytest.fixture
async def pair(start_broker: Start, namesrv: str) -> tuple[RunningBroker, RunningBroker]:
    """Master and slave."""
    master = await start_broker("master", namesrvAddr=namesrv, messageDelayLevel=SHORT)
    master.create_topic("T")
    return master, await start_slave(start_broker, namesrv, messageDelayLevel=SHORT)


async def test_slave_that_becomes_the_master_delivers_what_waits_and_nothing_twice(
    pair: tuple[RunningBroker, RunningBroker],
) -> None:
    master, slave = pair
    for number in range(5):
        await master.send("T", b"%d" % number, DELAY="1")
    await until(lambda: master.controller.store.max_offset("T", 0) == 5)
    await synchronized(slave)
    for number in range(5, 10):
        await master.send("T", b"%d" % number, DELAY="1")
    await until(lambda: master.controller.store.max_offset("T", 0) == 10)  # the slave's table does not say it
    await master.send("T", b"waits", DELAY="3")
    await until_copied(master, slave)
    assert slave.controller.store.max_offset("T", 0) == 10
    assert not slave.controller.delayed.service.is_running
    await master.stop()
    await slave.controller.change_to_master()
    await until(lambda: slave.controller.store.max_offset("T", 0) == 11)
    assert delivered(slave.controller, "T") == [*(b"%d" % number for number in range(10)), b"waits"]
    await slave.send("T", b"new", DELAY="1")
    await until(lambda: slave.controller.store.max_offset("T", 0) == 12)


async def test_master_that_becomes_a_slave_delivers_no_more(pair: tuple[RunningBroker, RunningBroker]) -> None:
    master, _ = pair
    await master.send("T", b"waits", DELAY="1")
    await master.controller.change_to_slave(2, "127.0.0.1:1", "127.0.0.1:1")
    await until(lambda: not master.controller.delayed.service.is_running)
    assert master.controller.store.max_offset("T", 0) == 0
    await master.controller.change_to_master()
    await until(lambda: master.controller.store.max_offset("T", 0) == 1)
    assert delivered(master.controller, "T") == [b"waits"]
