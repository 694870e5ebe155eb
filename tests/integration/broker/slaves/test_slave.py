"""Master, slave and name server in one process: what a slave copies, refuses, and becomes."""

import asyncio
from pathlib import Path

import pytest

from maxq.broker.slave import slave_synchronize
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import ConfigError, StoreRefusedError
from maxq.protocol.body.consumer_info import SetMessageRequestModeRequestBody
from maxq.protocol.body.offsets import DelayOffsetSerializeWrapper
from maxq.protocol.body.route import KVTable, TopicRouteData
from maxq.protocol.body.subscription import SubscriptionGroupConfig
from maxq.protocol.body.timer_checkpoint import TimerCheckpoint
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.json import json_dialect
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import TIMEOUT_MS, RunningBroker, until


@pytest.fixture
async def master(start_broker: Start, namesrv: str) -> RunningBroker:
    return await start_broker("master", namesrvAddr=namesrv)


async def start_slave(start_broker: Start, namesrv: str, **settings: object) -> RunningBroker:
    """One whose link to the master is open and whose first copy of the tables is made."""
    given = {"namesrvAddr": namesrv, "brokerRole": "SLAVE", "brokerId": 1, "slaveReadEnable": "true", **settings}
    slave = await start_broker("slave", **given)
    await until(lambda: slave.controller.ha_service.is_client_connected)
    await until(lambda: slave.controller.slave_synchronize.rounds > 0)
    return slave


async def synchronized(slave: RunningBroker) -> None:
    """Whole rounds, of which the last began after this call."""
    synchronize = slave.controller.slave_synchronize
    wanted = synchronize.rounds + 2  # one may be under way

    def is_over() -> bool:
        synchronize.wake()
        return synchronize.rounds >= wanted

    await until(is_over)


async def until_copied(master: RunningBroker, slave: RunningBroker) -> None:
    await until(lambda: slave.controller.store.confirm_offset == master.controller.store.max_physical_offset)


async def addresses_of(broker: RunningBroker, namesrv: str, topic: str) -> dict[int, str]:
    request = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    answer = await broker.client.invoke(namesrv, request, TIMEOUT_MS)
    return TopicRouteData.decode(answer.body_bytes).broker_datas[0].broker_addrs if answer.code == 0 else {}


# ---- starting -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("broker_id", [0, -1])
async def test_a_slave_without_an_id_of_its_own_is_refused_by_name(start_broker: Start, broker_id: int) -> None:
    with pytest.raises(ConfigError, match=f"brokerId={broker_id}: .*brokerRole=SLAVE.* at least 1"):
        await start_broker("slave", brokerRole="SLAVE", brokerId=broker_id)


async def test_the_id_of_a_master_is_0_whatever_was_configured(start_broker: Start, namesrv: str) -> None:
    broker = await start_broker(namesrvAddr=namesrv, brokerId=7)
    assert await addresses_of(broker, namesrv, "TBW102") == {0: broker.address}
    config = (await broker.invoke(RemotingCommand(RequestCode.GET_BROKER_CONFIG))).body_bytes.decode()
    assert "brokerId=0\n" in config


async def messages_of_a_slave(start_broker: Start, namesrv: str, master: RunningBroker) -> None:
    """Leaves a stopped slave's store that has messages of broker-a."""
    master.create_topic("T")
    await master.send("T", b"x")
    slave = await start_slave(start_broker, namesrv)
    await until_copied(master, slave)
    await slave.stop()


@pytest.mark.parametrize("other", [{"brokerName": "broker-b"}, {"brokerClusterName": "Elsewhere"}])
async def test_a_slave_refuses_the_store_of_another_group(
    start_broker: Start, namesrv: str, master: RunningBroker, other: dict[str, str]
) -> None:
    await messages_of_a_slave(start_broker, namesrv, master)
    with pytest.raises(StoreRefusedError, match=r"owner\.json.*broker-a of cluster DefaultCluster.*storePathRootDir"):
        await start_broker("slave", brokerRole="SLAVE", brokerId=1, **other)
    again = await start_slave(start_broker, namesrv)  # its own group's store it goes on with
    assert again.controller.store.max_physical_offset == master.controller.store.max_physical_offset


async def test_a_slave_takes_a_store_that_does_not_say_whose_it_is(
    start_broker: Start, namesrv: str, master: RunningBroker, tmp_path: Path
) -> None:
    await messages_of_a_slave(start_broker, namesrv, master)
    (tmp_path / "slave" / "owner.json").unlink()
    slave = await start_slave(start_broker, namesrv)
    assert json_dialect.loads((slave.folder / "owner.json").read_bytes()) == {
        "brokerId": 1, "brokerName": "broker-a", "clusterName": "DefaultCluster", "role": "SLAVE",
    }  # fmt: skip


async def test_a_slave_refuses_a_store_of_a_java_controller_group_by_its_identity_file(
    start_broker: Start, namesrv: str, master: RunningBroker, tmp_path: Path
) -> None:
    await messages_of_a_slave(start_broker, namesrv, master)
    (tmp_path / "slave" / "owner.json").unlink()
    (tmp_path / "slave" / "brokerIdentity").write_text("DefaultCluster#broker-z#2")
    with pytest.raises(StoreRefusedError, match=r"brokerIdentity.*broker-z"):
        await start_broker("slave", brokerRole="SLAVE", brokerId=1)


async def test_a_port_for_slaves_that_is_in_use_is_named(start_broker: Start, master: RunningBroker) -> None:
    taken = master.controller.ha_service.port
    with pytest.raises(ConfigError, match=f"haListenPort={taken}"):
        await start_broker("other", haListenPort=taken)


async def test_the_start_line_tells_role_and_rule(start_broker: Start, namesrv: str) -> None:
    waiting = await start_broker("sync", brokerRole="SYNC_MASTER", brokerName="broker-s")
    assert "SYNC_MASTER, inSyncReplicas is not given: sends wait for one slave" in waiting.controller.start_line()
    slave = await start_broker("slave", brokerRole="SLAVE", brokerId=3, haMasterAddress="127.0.0.1:1")
    assert "id 3, copies 127.0.0.1:1" in slave.controller.start_line()


# ---- finding the master -------------------------------------------------------------------------------------------


async def test_a_slave_registers_under_its_id_and_copies_the_master_that_the_name_server_tells(
    start_broker: Start, namesrv: str, master: RunningBroker
) -> None:
    slave = await start_slave(start_broker, namesrv)
    assert await addresses_of(slave, namesrv, "TBW102") == {0: master.address, 1: slave.address}
    assert slave.controller.slave_synchronize.master_address == master.address
    assert slave.controller.ha_service.client.master_address == f"127.0.0.1:{master.controller.ha_service.port}"


async def test_a_slave_that_is_first_finds_its_master_soon_after_that_came(start_broker: Start, namesrv: str) -> None:
    slave = await start_broker("slave", namesrvAddr=namesrv, brokerRole="SLAVE", brokerId=1)
    assert slave.controller.slave_synchronize.master_address == ""
    master = await start_broker("master", namesrvAddr=namesrv)
    await until(lambda: slave.controller.ha_service.is_client_connected)
    assert slave.controller.slave_synchronize.master_address == master.address


async def test_a_configured_ha_master_address_is_used_and_not_replaced(
    start_broker: Start, namesrv: str, master: RunningBroker
) -> None:
    other = await start_broker("other", brokerName="broker-a")  # not registered: only the setting leads to it
    address = f"127.0.0.1:{other.controller.ha_service.port}"
    slave = await start_slave(start_broker, namesrv, haMasterAddress=address)
    assert slave.controller.slave_synchronize.master_address == master.address  # registered, and answered
    assert slave.controller.ha_service.client.master_address == address
    assert other.controller.ha_service.connection_count == 1
    assert master.controller.ha_service.connection_count == 0


# ---- copies of the master's tables --------------------------------------------------------------------------------


async def test_topics_groups_offsets_and_modes_are_the_masters_at_once(
    start_broker: Start, namesrv: str, master: RunningBroker
) -> None:
    at_master = master.controller
    master.create_topic("T", queues=3)
    at_master.groups.update_subscription_group_config(SubscriptionGroupConfig("G", retry_max_times=3))
    at_master.groups.update_forbidden("G", "T", 2, forbidden=True)
    at_master.offsets.commit_offset("c", "G", "T", 1, 42)
    at_master.request_modes.set_message_request_mode(SetMessageRequestModeRequestBody("T", "G"))
    slave = await start_slave(start_broker, namesrv)
    copy = slave.controller
    assert copy.topics.topic_config_table == at_master.topics.topic_config_table
    assert copy.topics.data_version == at_master.topics.data_version
    assert copy.groups.subscription_group_table == at_master.groups.subscription_group_table
    assert copy.groups.forbidden_table == {"G": {"T": 4}}
    assert copy.groups.data_version == at_master.groups.data_version
    assert copy.offsets.query_offset("G", "T", 1) == 42
    assert copy.offsets.data_version == at_master.offsets.data_version
    assert copy.request_modes.get_message_request_mode("T", "G") is not None


async def test_what_changes_at_the_master_changes_at_the_slave_without_being_asked_for(
    start_broker: Start, namesrv: str, master: RunningBroker
) -> None:
    master.create_topic("Old")
    slave = await start_slave(start_broker, namesrv)
    master.create_topic("New")
    master.controller.topics.delete_topic_configs(["Old"])
    await until(lambda: slave.controller.topics.contains_topic("New"))
    assert not slave.controller.topics.contains_topic("Old")


async def test_a_change_on_the_slave_alone_is_undone(start_broker: Start, namesrv: str, master: RunningBroker) -> None:
    slave = await start_slave(start_broker, namesrv)
    slave.create_topic("Stray")
    await synchronized(slave)
    assert not slave.controller.topics.contains_topic("Stray")
    assert slave.controller.topics.data_version == master.controller.topics.data_version


async def test_offsets_are_taken_by_a_slave_and_the_masters_win(
    start_broker: Start, namesrv: str, master: RunningBroker
) -> None:
    for topic in ("T", "Other"):
        master.create_topic(topic)
    for _ in range(3):
        assert (await master.send("Other", b"x")).code == ResponseCode.SUCCESS
    master.controller.groups.update_subscription_group_config(SubscriptionGroupConfig("G"))
    master.controller.offsets.commit_offset("c", "G", "T", 0, 5)
    slave = await start_slave(start_broker, namesrv)
    await slave.controller.slave_synchronize.stop()  # a round at any moment would take the master's
    for queue_id, topic, offset in ((0, "T", 3), (0, "Other", 3)):
        ext = {"consumerGroup": "G", "topic": topic, "queueId": str(queue_id), "commitOffset": str(offset)}
        assert (await slave.invoke(RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext))).code == 0
    assert slave.controller.offsets.query_offset("G", "T", 0) == 3
    slave.controller.slave_synchronize.start()
    await synchronized(slave)
    assert slave.controller.offsets.query_offset("G", "T", 0) == 5
    assert slave.controller.offsets.query_offset("G", "Other", 0) == 3


async def test_tables_of_more_than_a_page_come_whole(start_broker: Start, namesrv: str) -> None:
    master = await start_broker("master", namesrvAddr=namesrv, splitMetadataSize=7)
    for i in range(40):
        master.create_topic(f"T{i}")
    groups = [SubscriptionGroupConfig(f"G{i}") for i in range(30)]
    master.controller.groups.update_subscription_group_config_list(groups)
    slave = await start_slave(start_broker, namesrv)
    assert slave.controller.topics.topic_config_table == master.controller.topics.topic_config_table
    assert slave.controller.groups.subscription_group_table == master.controller.groups.subscription_group_table


async def test_delay_offsets_and_the_timers_files_of_a_java_store_go_on_to_the_slave(
    start_broker: Start, namesrv: str, tmp_path: Path
) -> None:
    config = tmp_path / "master" / "config"
    config.mkdir(parents=True)
    (config / "delayOffset.json").write_text('{\n\t"dataVersion":{"counter":2},\n\t"offsetTable":{1:3,2:7\n\t}\n}')
    (config / "timermetrics").write_text('{"dataVersion":{"counter":7},"timingCount":{}}')
    checkpoint = TimerCheckpoint(1_700_000_000_000, 312, 7, 0)
    (config / "timercheck").write_bytes(checkpoint.encode().ljust(4096, b"\0"))
    master = await start_broker("master", namesrvAddr=namesrv)
    slave = await start_slave(start_broker, namesrv)
    copied = DelayOffsetSerializeWrapper.decode((slave.folder / "config" / "delayOffset.json").read_bytes())
    assert copied == DelayOffsetSerializeWrapper.decode(await said(master, RequestCode.GET_ALL_DELAY_OFFSET))
    assert copied.offset_table == {1: 0, 2: 0}  # the master has seen that its log has none of these messages
    metrics = await said(master, RequestCode.GET_TIMER_METRICS)
    assert json_dialect.loads(metrics)["dataVersion"]["counter"] == 7

    async def has_metrics() -> bool:
        return await said(slave, RequestCode.GET_TIMER_METRICS) == metrics

    await until(has_metrics)
    said_by_master = set()  # its timer runs, so it says something else every second

    async def has_checkpoint() -> bool:
        for broker in (slave, master):
            said_now = TimerCheckpoint.decode(await said(broker, RequestCode.GET_TIMER_CHECK_POINT))
            if broker is master:
                said_by_master.add(said_now.last_read_time_ms)
            elif said_now.last_read_time_ms in said_by_master:
                return True
        return False

    await until(has_checkpoint)
    assert min(said_by_master) >= checkpoint.last_read_time_ms


async def said(broker: RunningBroker, code: RequestCode) -> bytes:
    """The body of the answer to a request without fields."""
    return (await broker.invoke(RemotingCommand(code))).body_bytes


async def test_a_master_that_is_away_leaves_the_copies_as_they_are(
    start_broker: Start, namesrv: str, master: RunningBroker
) -> None:
    master.create_topic("T")
    slave = await start_slave(start_broker, namesrv)
    before = dict(slave.controller.topics.topic_config_table)
    await master.stop()
    assert not await slave.controller.slave_synchronize.sync_all()
    assert slave.controller.topics.topic_config_table == before
    again = await start_broker("master", namesrvAddr=namesrv)
    again.create_topic("More")
    await until(lambda: slave.controller.topics.contains_topic("More"))


async def test_a_topic_and_a_group_are_at_the_slave_before_its_next_round(
    start_broker: Start, namesrv: str, master: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slave_synchronize, "PERIOD", 1000.0)
    slave = await start_slave(start_broker, namesrv)
    for round_ in range(3):
        master.create_topic(f"T{round_}")
        master.controller.groups.update_subscription_group_config(SubscriptionGroupConfig(f"G{round_}"))
        await until(lambda name=f"T{round_}": slave.controller.topics.contains_topic(name))  # type: ignore[misc]
        await until(lambda name=f"G{round_}": slave.controller.groups.contains_subscription_group(name))  # type: ignore[misc]


# ---- what a slave refuses and tells -------------------------------------------------------------------------------


async def test_offsets_that_an_operator_has_set_are_at_the_slave_when_that_is_acknowledged(
    start_broker: Start, namesrv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = await start_broker(
        "master", namesrvAddr=namesrv, brokerRole="SYNC_MASTER", useServerSideResetOffset="true"
    )  # fmt: skip
    monkeypatch.setattr(slave_synchronize, "PERIOD", 3600.0)
    master.create_topic("T")
    master.controller.groups.update_subscription_group_config(SubscriptionGroupConfig("G"))
    slave = await start_slave(start_broker, namesrv)
    for queue in range(4):
        master.controller.offsets.commit_offset("a consumer", "G", "T", queue, 0)
    await synchronized(slave)
    assert slave.controller.offsets.query_offsets("G", "T") == dict.fromkeys(range(4), 0)
    reset = RemotingCommand(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, {"topic": "T", "group": "G", "timestamp": "-1", "isForce": "true"}
    )
    for queue in range(4):
        slave.controller.offsets.commit_offset("a consumer", "G", "T", queue, 7)
    assert (await master.invoke(reset)).code == ResponseCode.SUCCESS
    assert slave.controller.offsets.query_offsets("G", "T") == dict.fromkeys(range(4), 0)
    assert b"T@G" in (slave.folder / "config" / "consumerOffset.json").read_bytes()


async def test_a_send_to_a_slave_is_refused_with_the_masters_address(
    start_broker: Start, namesrv: str, master: RunningBroker
) -> None:
    master.create_topic("T")
    slave = await start_slave(start_broker, namesrv)
    answer = await slave.send("T", b"x")
    assert answer.code == 14
    assert answer.remark is not None
    assert f"it copies its master and takes no messages; send to the master {master.address}" in answer.remark
    assert slave.controller.store.max_physical_offset == 0


async def test_a_slave_tells_its_role(start_broker: Start, namesrv: str, master: RunningBroker) -> None:
    slave = await start_slave(start_broker, namesrv)
    config = (await slave.invoke(RemotingCommand(RequestCode.GET_BROKER_CONFIG))).body_bytes.decode()
    assert "brokerRole=SLAVE\n" in config and "brokerId=1\n" in config
    answer = await slave.invoke(RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))
    table = json_dialect.loads(answer.body_bytes)["table"]
    assert (table["brokerRole"], table["masterAddress"]) == ("SLAVE", master.address)


# ---- changing the role --------------------------------------------------------------------------------------------


async def test_a_slave_becomes_master_and_the_old_master_its_slave(start_broker: Start, namesrv: str) -> None:
    master = await start_broker("master", namesrvAddr=namesrv, slaveReadEnable="true")
    master.create_topic("T", queues=1)
    slave = await start_slave(start_broker, namesrv)
    await master.send("T", b"one")
    await until_copied(master, slave)
    await master.controller.change_to_slave(2)
    await slave.controller.change_to_master("ASYNC_MASTER")

    async def is_swapped() -> bool:
        return await addresses_of(slave, namesrv, "T") == {0: slave.address, 2: master.address}

    await until(is_swapped)
    assert (await master.send("T", b"no")).code == 14
    assert (await slave.send("T", b"two")).code == 0
    await until_copied(slave, master)
    assert [message.body for message in await master.pull_messages("T")] == [b"one", b"two"]
    config = (await slave.invoke(RemotingCommand(RequestCode.GET_BROKER_CONFIG))).body_bytes.decode()
    assert "brokerRole=ASYNC_MASTER\n" in config and "brokerId=0\n" in config
    owner = json_dialect.loads((slave.folder / "owner.json").read_bytes())
    assert (owner["role"], owner["brokerId"]) == ("ASYNC_MASTER", 0)


async def test_a_group_that_had_more_gets_what_comes_after_its_slave_became_the_master(
    start_broker: Start, namesrv: str, master: RunningBroker
) -> None:
    """Its master's messages were not all here; or this is a member of a DLedger group whose log begins behind them."""
    master.create_topic("T", queues=1)
    slave = await start_slave(start_broker, namesrv)
    assert (await master.send("T", b"one")).code == ResponseCode.SUCCESS
    await until_copied(master, slave)
    await synchronized(slave)
    slave.controller.offsets.commit_offset("c", "G", "T", 0, 5)
    await slave.controller.change_to_master("ASYNC_MASTER")
    answer = await slave.send("T", b"two")
    assert (answer.code, answer.ext["queueOffset"]) == (ResponseCode.SUCCESS, "1")
    assert slave.controller.offsets.query_offset("G", "T", 0) == 1


# ---- a master with another log ------------------------------------------------------------------------------------


async def test_a_master_whose_store_was_emptied_takes_no_topic_group_or_offset_from_its_slave(
    start_broker: Start, namesrv: str, master: RunningBroker
) -> None:
    master.create_topic("T", queues=1)
    master.controller.groups.update_subscription_group_config(SubscriptionGroupConfig("G", retry_max_times=3))
    master.controller.offsets.commit_offset("c", "G", "T", 0, 1)
    slave = await start_slave(start_broker, namesrv)
    for body in (b"one", b"two"):
        assert (await master.send("T", body)).code == ResponseCode.SUCCESS
    await until_copied(master, slave)
    await synchronized(slave)
    await master.stop()
    emptied = await start_broker("emptied", namesrvAddr=namesrv, brokerName="broker-a")
    copy = slave.controller
    await until(lambda: copy.slave_synchronize.master_address == emptied.address)
    await until(lambda: emptied.controller.ha_service.connection_count == 1)
    for _ in range(3):
        assert not await copy.slave_synchronize.sync_all()
    assert copy.topics.contains_topic("T")
    assert "G" in copy.groups.subscription_group_table
    assert copy.offsets.query_offset("G", "T", 0) == 1
    assert (await slave.pull("T", 0)).code == ResponseCode.SUCCESS


async def test_a_slave_of_another_master_takes_no_tables_of_this_one(
    start_broker: Start, namesrv: str, master: RunningBroker
) -> None:
    foreign = await start_broker("foreign")  # knows no name server
    foreign.create_topic("Foreign", queues=1)
    assert (await foreign.send("Foreign", b"theirs")).code == ResponseCode.SUCCESS
    await foreign.stop()
    master.create_topic("T", queues=1)
    assert (await master.send("T", b"ours, and longer")).code == ResponseCode.SUCCESS
    settings = {"namesrvAddr": namesrv, "brokerRole": "SLAVE", "brokerId": 1, "slaveReadEnable": "true"}
    slave = await start_broker("foreign", **settings)
    await until(lambda: slave.controller.ha_service.client.refused > 0)
    assert not await slave.controller.slave_synchronize.sync_all()
    assert slave.controller.topics.contains_topic("Foreign")
    assert not slave.controller.topics.contains_topic("T")
    assert slave.controller.store.max_offset("Foreign", 0) == 1  # kept, and given to no reader
    assert (await slave.pull("Foreign", 0)).code == ResponseCode.PULL_RETRY_IMMEDIATELY
    answer = await slave.invoke(RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))
    assert KVTable.decode(answer.body_bytes).table["haLogIsAnother"] == "true"


async def test_a_slave_of_another_broker_name_copies_nothing_and_says_why(
    start_broker: Start, namesrv: str, master: RunningBroker
) -> None:
    master.create_topic("T", queues=1)
    assert (await master.send("T", b"of broker-a")).code == ResponseCode.SUCCESS
    address = f"127.0.0.1:{master.controller.ha_service.port}"
    slave = await start_broker(
        "slave", namesrvAddr=namesrv, brokerName="broker-b", brokerRole="SLAVE", brokerId=1, haMasterAddress=address
    )
    await until(lambda: slave.controller.ha_service.client.refused > 0)
    assert "calls itself broker-a, this slave is broker-b" in slave.controller.ha_service.client.failure
    assert slave.controller.store.max_physical_offset == 0


async def test_a_slave_that_never_ends_its_first_report_is_cut_off(start_broker: Start) -> None:
    master = await start_broker("m", haHousekeepingInterval=500)
    ha = master.controller.ha_service
    _, writer = await asyncio.open_connection("127.0.0.1", ha.port)
    for _ in range(7):
        writer.write(b"\0")
        await asyncio.sleep(0.25)
    await until(lambda: ha.connection_count == 0)
    writer.close()
