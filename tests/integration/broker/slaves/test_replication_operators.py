"""What operators see of master and slave, and what an empty slave gets."""

import logging

import pytest

from maxq.codes import RequestCode
from maxq.config.properties import format_properties
from maxq.protocol.body.ha_runtime_info import HARuntimeInfo
from maxq.protocol.body.route import KVTable
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import RunningBroker, until

FILE = 1 << 20
MESSAGES = 30


@pytest.fixture
async def master(start_broker: Start, namesrv: str) -> RunningBroker:
    """One whose log has more than three files."""
    master = await start_broker("master", namesrvAddr=namesrv)
    master.create_topic("T", queues=1)
    for number in range(MESSAGES):
        assert (await master.send("T", b"%02d" % number * 60_000)).code == 0
    assert master.controller.store.max_physical_offset > 3 * FILE
    return master


async def start_slave(start_broker: Start, **settings: object) -> RunningBroker:
    return await start_broker("slave", brokerRole="SLAVE", brokerId=1, **settings)


async def until_copied(master: RunningBroker, slave: RunningBroker) -> None:
    await until(lambda: slave.controller.store.confirm_offset == master.controller.store.max_physical_offset)


def log_of(broker: RunningBroker) -> bytes:
    store, log = broker.controller.store, b""
    while store.min_physical_offset + len(log) < store.max_physical_offset:
        log += bytes(store.log_bytes(store.min_physical_offset + len(log), FILE) or b"")
    return log


async def runtime_info(broker: RunningBroker) -> dict[str, str]:
    answer = await broker.invoke(RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))
    return KVTable.decode(answer.body_bytes).table


async def update(broker: RunningBroker, **settings: str) -> None:
    body = format_properties(settings).encode()
    assert (await broker.invoke(RemotingCommand(RequestCode.UPDATE_BROKER_CONFIG, body=body))).code == 0


def drop_first_file(master: RunningBroker) -> None:
    """As cleaning does when it has expired."""
    with master.controller.store.commit_log.without_first() as first:
        first.destroy()


# ---- what a master tells -------------------------------------------------------------------------------------------


async def test_slaves_that_are_behind_are_told_until_they_are_not(
    start_broker: Start, master: RunningBroker, namesrv: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="maxq.broker.assembly.schedule")
    tell = master.controller.schedule.print_slaves_behind

    def told() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == "maxq.broker.assembly.schedule"]

    tell()
    assert told() == []
    slave = await start_slave(start_broker, namesrvAddr=namesrv)
    await until_copied(master, slave)
    (connection,) = master.controller.ha_service.connections
    store, address = master.controller.store, connection.client_address
    await until(lambda: connection.slave_ack_offset == store.max_physical_offset)
    tell()
    assert told() == []
    size = store.put_message(MessageExtBrokerInner("T", 0, b"not there yet", {})).size
    tell()
    assert told() == [f"slave {address} is behind the log by {size} bytes"]
    await until(lambda: connection.slave_ack_offset == store.max_physical_offset)
    tell()
    tell()
    assert told()[1:] == [f"slave {address} has caught up with the log, or has disconnected"]


# ---- a new pair ----------------------------------------------------------------------------------------------------


async def test_a_new_pair_and_its_first_message_give_no_warning(
    start_broker: Start, namesrv: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The slave makes its link anew when it has its first record: nothing has failed."""
    caplog.set_level(logging.INFO)
    master = await start_broker("master", namesrvAddr=namesrv, brokerRole="SYNC_MASTER")
    slave = await start_slave(start_broker, namesrvAddr=namesrv)
    await until(lambda: slave.controller.ha_service.is_client_connected)
    master.create_topic("T", queues=1)
    assert (await master.send("T", b"first")).code == 0
    rounds = slave.controller.slave_synchronize.rounds
    await until(lambda: slave.controller.slave_synchronize.rounds > rounds)
    assert any("is made anew" in record.getMessage() for record in caplog.records)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert (await runtime_info(slave))["haLinkFailure"] == ""


# ---- full copy ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known_by", ["namesrvAddr", "haMasterAddress"])
async def test_an_empty_slave_takes_the_whole_log_from_its_first_byte(
    start_broker: Start, namesrv: str, master: RunningBroker, known_by: str
) -> None:
    known = {"namesrvAddr": namesrv, "haMasterAddress": master.controller.address.ha_address}
    slave = await start_slave(start_broker, **{known_by: known[known_by]})
    await until_copied(master, slave)
    assert slave.controller.store.min_physical_offset == 0
    assert log_of(slave) == log_of(master)
    assert slave.controller.store.max_offset("T", 0) == MESSAGES


@pytest.mark.parametrize("known_by", ["namesrvAddr", "haMasterAddress"])
async def test_of_a_log_that_begins_later_it_takes_all_there_is(
    start_broker: Start, namesrv: str, master: RunningBroker, known_by: str
) -> None:
    drop_first_file(master)
    known = {"namesrvAddr": namesrv, "haMasterAddress": master.controller.address.ha_address}
    slave = await start_slave(start_broker, **{known_by: known[known_by]})
    await until_copied(master, slave)
    assert slave.controller.store.min_physical_offset == FILE
    assert log_of(slave) == log_of(master)
    store = slave.controller.store
    assert store.min_offset("T", 0) == master.controller.store.min_offset("T", 0) > 0
    assert store.max_offset("T", 0) == MESSAGES


async def test_without_ha_full_copy_it_takes_the_last_file_as_in_java(
    start_broker: Start, namesrv: str, master: RunningBroker
) -> None:
    slave = await start_slave(start_broker, namesrvAddr=namesrv, haFullCopy="false")
    await until_copied(master, slave)
    end = master.controller.store.max_physical_offset
    assert slave.controller.store.min_physical_offset == end - end % FILE


# ---- seeing -------------------------------------------------------------------------------------------------------


async def test_ha_status_and_runtime_info_tell_gap_rate_and_addresses(
    start_broker: Start, namesrv: str, master: RunningBroker
) -> None:
    slave = await start_slave(start_broker, namesrvAddr=namesrv)
    await until_copied(master, slave)
    end = master.controller.store.max_physical_offset
    await until(lambda: master.controller.ha_service.push2_slave_max_offset == end)
    answer = await master.invoke(RemotingCommand(RequestCode.GET_BROKER_HA_STATUS))
    info = HARuntimeInfo.decode(answer.body_bytes)
    (seen,) = info.ha_connection_info
    assert (info.master, info.master_commit_log_max_offset, info.in_sync_slave_nums) == (True, end, 1)
    assert (seen.slave_ack_offset, seen.diff, seen.in_sync, seen.transfer_from_where) == (end, 0, True, end)
    assert seen.addr.startswith("127.0.0.1:")
    answer = await slave.invoke(RemotingCommand(RequestCode.GET_BROKER_HA_STATUS))
    client = HARuntimeInfo.decode(answer.body_bytes).ha_client_runtime_info
    assert (client.master_addr, client.max_offset) == (master.controller.address.ha_address, end)
    assert client.last_read_timestamp > 0
    told = await runtime_info(master)
    assert (told["haRole"], told["haSlaves"], told["haSlavesInSync"], told["haLargestGapBytes"]) == (
        "ASYNC_MASTER", "1", "1", "0",
    )  # fmt: skip
    told = await runtime_info(slave)
    assert (told["haRole"], told["haMasterConnected"], told["haMasterAddress"]) == ("SLAVE", "true", client.master_addr)
    assert told["haLogIsAnother"] == "false"


async def test_scrub_is_switched_on_while_running_and_repairs(
    start_broker: Start, namesrv: str, master: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    slave = await start_slave(start_broker, namesrvAddr=namesrv, slaveTimeout=1)
    await until_copied(master, slave)
    file = slave.controller.store.commit_log.files.files[1]
    file.view[300_000] ^= 1
    assert log_of(slave) != log_of(master)
    assert (await runtime_info(slave))["scrubPasses"] == "0"
    await update(slave, scrubBytesPerSecond=str(1 << 30), scrubEnable="true")
    await until(lambda: slave.controller.log_maintenance.scrub.passes > 0)
    assert log_of(slave) == log_of(master)
    told = await runtime_info(slave)
    assert (told["scrubDamageFound"], told["scrubDamageLeft"], told["repairedRanges"]) == ("1", "0", "1")
    assert f"commitlog/{FILE:020d}" in caplog.text
