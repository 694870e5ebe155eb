"""A slave that joins when its master's log no longer reaches back: it has the newest message of each key all the
same."""

from pathlib import Path

from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import until
from tests.integration.broker.slaves.test_slave import addresses_of, start_slave, until_copied
from tests.integration.broker.topics.test_compaction import SMALL, create, everything, latest

LATE = {**SMALL, "mappedFileSizeCommitLog": 65_536, "haFullCopy": "false"}


async def test_a_late_slave_serves_old_keys_when_its_master_is_gone(
    start_broker: Start, namesrv: str, tmp_path: Path
) -> None:
    master = await start_broker("master", namesrvAddr=namesrv, **LATE)
    await create(master)
    prices: dict[str, bytes] = {}
    for number in range(200):  # some files of log; keys of the first are not sent again
        key, body = f"k{number // 40}-{number % 3}", b"price %d " % number + b"x" * 1000
        assert (await master.send("Prices", body, KEYS=key)).code == 0
        prices[key] = body
    await until(lambda: master.controller.store.compaction.compactions > 0)
    assert await latest(master) == prices
    slave = await start_slave(start_broker, namesrv, **LATE)
    await until_copied(master, slave)
    log_begins = slave.controller.store.min_physical_offset
    assert log_begins > 0, "it has the last file only"
    assert (await master.send("Prices", b"new", KEYS="k0-1")).code == 0
    prices["k0-1"] = b"new"
    await until_copied(master, slave)
    await until(lambda: not slave.controller.store.compaction.lacking())
    assert await latest(slave) == prices
    offsets = [message.queue_offset for message in await everything(slave)]
    assert offsets == sorted(set(offsets)) and offsets[-1] == 200
    await master.stop()
    await until(lambda: slave.controller.ha_service.is_client_connected is False)
    assert await latest(slave) == prices
    await slave.stop()
    settings = {"namesrvAddr": namesrv, "brokerRole": "SLAVE", "brokerId": 1, "slaveReadEnable": "true", **LATE}
    again = await start_broker("slave", **settings)
    assert await latest(again) == prices, "what it took outlives it"
    assert again.controller.store.min_physical_offset == log_begins
    assert await addresses_of(again, namesrv, "Prices") == {1: again.address}
