"""A topic is deleted, and made again: what clients see on the broker, after a kill of it, and on its slave."""

import asyncio
import json
from pathlib import Path

import pytest

from maxq.api import async_admin
from maxq.client.admin.admin import Admin
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import BrokerError
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.json import json_dialect
from maxq.store.log.deletions import DELETED_TOPIC, decode_table
from maxq.store.recovery.damage_names import DAMAGED_PROPERTY
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import RunningBroker, copy_as_killed, until
from tests.integration.broker.slaves.test_slave import start_slave, synchronized, until_copied
from tests.integration.broker.transactions.transaction_world import CALM, COMMIT, TransactionClient

OLD, NEW = [b"old %d" % number for number in range(40)], [b"new %d" % number for number in range(7)]


async def delete(broker: RunningBroker, topic: str) -> None:
    answer = await broker.invoke(RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic}))
    assert answer.code == 0, answer.remark


async def send(broker: RunningBroker, topic: str, bodies: list[bytes], **more: object) -> None:
    for body in bodies:
        answer = await broker.send(topic, body, **more)
        assert answer.code == 0, answer.remark


async def commit(broker: RunningBroker, topic: str, offset: int, group: str = "G") -> None:
    broker.controller.groups.find_subscription_group_config(group)  # makes it
    ext = {"consumerGroup": group, "topic": topic, "queueId": "0", "commitOffset": str(offset)}
    assert (await broker.invoke(RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext))).code == 0


async def offsets(broker: RunningBroker, topic: str, queue_id: int = 0) -> dict[str, str]:
    """The answer to GET_MAX_OFFSET."""
    ext = {"topic": topic, "queueId": str(queue_id)}
    return (await broker.invoke(RemotingCommand(RequestCode.GET_MAX_OFFSET, ext))).ext


async def shown(broker: RunningBroker, topic: str) -> list[tuple[int, bytes]]:
    """(queue offset, body) of what a consumer gets from the beginning of queue 0."""
    found: list[tuple[int, bytes]] = []
    while messages := await broker.pull_messages(topic, len(found)):
        found += [(message.queue_offset, message.body) for message in messages]
    return found


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_the_new_topic_is_what_a_broker_has_after_a_kill(start_broker: Start, tmp_path: Path, flush: str) -> None:
    broker = await start_broker("store", flushDiskType=flush)
    broker.create_topic("T")
    broker.create_topic("Other")
    await send(broker, "T", OLD)
    await send(broker, "Other", OLD)
    await commit(broker, "T", 33)
    await delete(broker, "T")
    broker.create_topic("T")
    await send(broker, "T", NEW)
    incarnation = (await offsets(broker, "T"))["incarnation"]
    assert "incarnation" not in await offsets(broker, "Other")
    assert await shown(broker, "T") == list(enumerate(NEW))
    await broker.controller.topics.persisted()
    copy_as_killed(tmp_path / "store", tmp_path / "again")
    await broker.stop()
    again = await start_broker("again", flushDiskType=flush)
    assert not [fault for fault in again.controller.store.report.faults if "index file" not in fault]
    again.create_topic("T")
    assert await shown(again, "T") == list(enumerate(NEW))
    assert len(await shown(again, "Other")) == len(OLD)
    assert await offsets(again, "T") == {"offset": str(len(NEW)), "incarnation": incarnation}
    assert again.controller.offsets.query_offset("G", "T", 0) == -1


async def test_offsets_of_a_deletion_that_a_kill_cut_short_are_forgotten_at_the_start(
    start_broker: Start, tmp_path: Path
) -> None:
    broker = await start_broker("store")
    broker.create_topic("T")
    await send(broker, "T", OLD)
    await commit(broker, "T", 33)
    await commit(broker, "TBW102", 0)
    broker.controller.offsets.request_persist()
    await broker.controller.offsets.persisted()
    assert broker.controller.store.put_deletion(["T"]).ok
    copy_as_killed(tmp_path / "store", tmp_path / "again")
    again = await start_broker("again")
    assert again.controller.offsets.query_offset("G", "T", 0) == -1
    assert again.controller.offsets.query_offset("G", "TBW102", 0) == 0
    assert await shown(again, "T") == []


async def test_a_slave_deletes_where_the_log_does_and_keeps_no_offset(start_broker: Start, namesrv: str) -> None:
    master = await start_broker("master", namesrvAddr=namesrv, brokerRole="SYNC_MASTER", inSyncReplicas=2)
    master.create_topic("T")
    slave = await start_slave(start_broker, namesrv)
    await send(master, "T", OLD)
    await commit(master, "T", 33)
    await until_copied(master, slave)
    await synchronized(slave)
    assert slave.controller.offsets.query_offset("G", "T", 0) == 33
    await delete(master, "T")
    master.create_topic("T")
    await send(master, "T", NEW)
    await until_copied(master, slave)
    assert slave.controller.offsets.query_offset("G", "T", 0) == -1
    await synchronized(slave)
    assert slave.controller.offsets.query_offset("G", "T", 0) == -1
    assert await shown(slave, "T") == list(enumerate(NEW))
    assert await offsets(slave, "T") == await offsets(master, "T")
    await master.stop()
    await slave.controller.change_to_master("ASYNC_MASTER")
    await send(slave, "T", [b"on the slave"])
    assert await shown(slave, "T") == list(enumerate([*NEW, b"on the slave"]))


async def test_a_slave_that_was_killed_joins_again_after_the_deletion(
    start_broker: Start, namesrv: str, tmp_path: Path
) -> None:
    master = await start_broker("master", namesrvAddr=namesrv)
    master.create_topic("T")
    slave = await start_slave(start_broker, namesrv)
    await send(master, "T", OLD)
    await until_copied(master, slave)
    await delete(master, "T")
    master.create_topic("T")
    await send(master, "T", NEW[:3])
    await until_copied(master, slave)
    copy_as_killed(tmp_path / "slave", tmp_path / "killed")
    await slave.stop()
    await send(master, "T", NEW[3:])
    given = {"namesrvAddr": namesrv, "brokerRole": "SLAVE", "brokerId": 1, "slaveReadEnable": "true"}
    again = await start_broker("killed", **given)
    await until_copied(master, again)
    assert await shown(again, "T") == list(enumerate(NEW))
    assert again.controller.store.commit_log.get(0, 4096) == master.controller.store.commit_log.get(0, 4096)


async def test_a_slave_deletes_no_topic_itself(start_broker: Start, namesrv: str) -> None:
    master = await start_broker("master", namesrvAddr=namesrv)
    master.create_topic("T")
    slave = await start_slave(start_broker, namesrv)
    await send(master, "T", OLD)
    await until_copied(master, slave)
    for code, ext in ((RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}), (RequestCode.CLEAN_UNUSED_TOPIC, {})):
        slave.controller.topics.topic_config_table.pop("T", None)
        await slave.invoke(RemotingCommand(code, dict(ext)))  # refused, or it does nothing
    assert slave.controller.store.max_offset("T", 0) == len(OLD)
    await until(lambda: slave.controller.ha_service.is_client_connected)


async def test_a_topic_and_a_group_of_a_cluster_with_slaves_are_deleted(start_broker: Start, namesrv: str) -> None:
    master = await start_broker("master", namesrvAddr=namesrv, brokerRole="SYNC_MASTER", inSyncReplicas=2)
    master.create_topic("T")
    slave = await start_slave(start_broker, namesrv)
    await send(master, "T", OLD)
    await commit(master, "T", 33)
    await until_copied(master, slave)
    cluster = master.controller.address.cluster
    async with async_admin(namesrv) as admin:
        await until_members(admin, cluster, 2)
        await admin.topics.delete("T", cluster)
        await admin.groups.delete_in_cluster("G", cluster)
        assert "T" not in await admin.topics.names()
        with pytest.raises(BrokerError, match="is a SLAVE"):  # whoever asks the slave alone
            await admin.topics.delete_in_broker(slave.address, "T")
    assert master.controller.store.max_offset("T", 0) == 0
    await until_copied(master, slave)
    assert slave.controller.store.max_offset("T", 0) == 0


async def until_members(admin: Admin, cluster: str, count: int) -> None:
    """Until the name server knows so many brokers."""
    while len(await admin.brokers.addresses_of_cluster(cluster)) < count:  # noqa: ASYNC110 - another process' registration
        await asyncio.sleep(0.01)


async def test_no_client_deletes_a_topic_by_a_message(start_broker: Start) -> None:
    broker = await start_broker()
    broker.create_topic("T")
    await send(broker, "T", OLD)
    for name in ("T", "rmq_sys_maxq_deleted"):
        broker.create_topic(name)
    answer = await broker.send("rmq_sys_maxq_deleted", b'["T"]', sys_flag=0xC)
    assert answer.code != 0
    assert len(await shown(broker, "T")) == len(OLD)


async def test_what_waited_for_the_deleted_topic_goes_with_it(start_broker: Start) -> None:
    """Delayed messages, ones with a time, and half messages that are committed later."""
    broker = await start_broker(messageDelayLevel="1s 1h", timerPrecisionMs=100, **CALM)
    for name in ("T", "Other"):
        broker.create_topic(name)
    client = TransactionClient(broker)
    half = await client.prepare("T", b"half, old")
    for topic in ("T", "Other"):
        await send(broker, topic, [b"delayed, old"], DELAY="1")
        await send(broker, topic, [b"timed, old"], TIMER_DELAY_MS="1000", UNIQ_KEY=f"{topic}-old")
    await delete(broker, "T")
    broker.create_topic("T")
    await send(broker, "T", [b"delayed, new"], DELAY="1")
    await send(broker, "T", [b"timed, new"], TIMER_DELAY_MS="1000", UNIQ_KEY="T-new")
    assert "deleted after" in ((await client.end(half, COMMIT)).remark or "")
    store = broker.controller.store
    await until(lambda: store.max_offset("Other", 0) == 2 and store.max_offset("T", 0) == 2)
    assert {body for _, body in await shown(broker, "Other")} == {b"delayed, old", b"timed, old"}
    assert {body for _, body in await shown(broker, "T")} == {b"delayed, new", b"timed, new"}


@pytest.mark.parametrize("topic", ["T", DELETED_TOPIC])
async def test_a_client_writes_no_records_that_are_the_stores_own(start_broker: Start, topic: str) -> None:
    """A client must not write records that would empty a queue or delete a topic: fillers over damage, deletions."""
    broker = await start_broker()
    broker.create_topic("T")
    broker.create_topic(DELETED_TOPIC)
    await send(broker, "T", OLD)
    body = json.dumps(["T"]).encode()
    for properties in ({}, {DAMAGED_PROPERTY: "1"}):
        answer = await broker.send(topic, body, sys_flag=0xC, TRAN_MSG="true", **properties)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL, answer.remark
    await send(broker, "T", NEW)
    assert await shown(broker, "T") == list(enumerate(OLD + NEW))


async def test_a_delayed_message_with_the_property_of_a_filler_is_delivered(start_broker: Start) -> None:
    broker = await start_broker()
    broker.create_topic("T")
    await send(broker, "T", [b"delayed"], DELAY="1", **{DAMAGED_PROPERTY: "1"})

    async def is_there() -> bool:
        return await shown(broker, "T") == [(0, b"delayed")]

    await until(is_there)


async def test_a_slave_whose_log_begins_behind_the_deletion_knows_the_incarnation_and_keeps_it(
    start_broker: Start, namesrv: str, tmp_path: Path
) -> None:
    master = await start_broker("master", namesrvAddr=namesrv, mappedFileSizeCommitLog=65_536)
    master.create_topic("T")
    await send(master, "T", OLD)
    await delete(master, "T")
    master.create_topic("T")
    incarnation = (await offsets(master, "T"))["incarnation"]
    while master.controller.store.commit_log.files.files[-1].file_from_offset < 2 * 65_536:
        await send(master, "T", [bytes(10_000)])
    await send(master, "T", NEW)
    await commit(master, "T", 5)
    given = {
        "namesrvAddr": namesrv, "mappedFileSizeCommitLog": 65_536, "haFullCopy": "false", "brokerRole": "SLAVE",
        "brokerId": 1, "slaveReadEnable": "true",
    }  # fmt: skip
    slave = await start_broker("slave", **given)
    await until_copied(master, slave)
    await synchronized(slave)
    assert slave.controller.store.min_physical_offset > int(incarnation)
    assert await offsets(slave, "T") == await offsets(master, "T")
    await slave.stop()
    await master.stop()
    again = await start_broker("slave", **given)
    assert (await offsets(again, "T"))["incarnation"] == incarnation
    assert again.controller.offsets.query_offset("G", "T", 0) == 5
    await again.controller.change_to_master("ASYNC_MASTER")
    await send(again, "T", [b"on the slave"])
    assert (await offsets(again, "T"))["incarnation"] == incarnation


async def test_a_slave_that_has_lost_its_list_of_deletions_takes_it_from_the_master(
    start_broker: Start, namesrv: str
) -> None:
    small = {"namesrvAddr": namesrv, "mappedFileSizeCommitLog": 65_536}
    master = await start_broker("master", **small)
    master.create_topic("T")
    slave = await start_slave(start_broker, namesrv, mappedFileSizeCommitLog=65_536)
    await send(master, "T", OLD)
    await delete(master, "T")
    master.create_topic("T")
    incarnation = (await offsets(master, "T"))["incarnation"]
    while len(master.controller.store.commit_log.files.files) < 4:
        await send(master, "T", [bytes(10_000)])
    await until_copied(master, slave)
    await slave.stop()
    min((slave.folder / "commitlog").iterdir()).unlink()
    (slave.folder / "deletions.json").write_text("{torn")
    again = await start_broker("slave", **small, brokerRole="SLAVE", brokerId=1, slaveReadEnable="true")
    await until(lambda: again.controller.store.incarnation("T") == int(incarnation))
    await again.stop()
    assert decode_table((slave.folder / "deletions.json").read_bytes()) == {"T": int(incarnation)}


async def test_offsets_of_the_new_topic_stay_when_a_java_broker_has_run_on_the_store(start_broker: Start) -> None:
    """Which writes the table of offsets without what it does not know."""
    broker = await start_broker("store")
    broker.create_topic("T")
    await send(broker, "T", OLD)
    await delete(broker, "T")
    broker.create_topic("T")
    await send(broker, "T", NEW)
    await commit(broker, "T", 5)
    await broker.stop()
    path = broker.folder / "config" / "consumerOffset.json"
    table = json_dialect.loads(path.read_bytes())
    assert isinstance(table, dict)
    del table["deletions"]
    path.write_bytes(json_dialect.dumps(table))
    again = await start_broker("store")
    assert again.controller.offsets.query_offset("G", "T", 0) == 5


@pytest.mark.parametrize("queue_type", ["SimpleCQ", "BatchCQ"])
async def test_a_reader_of_the_deleted_topic_goes_on_at_the_beginning_of_the_new_one(
    start_broker: Start, queue_type: str
) -> None:
    """What is in the new topic is new to it, though it has read as many messages as that."""
    broker = await start_broker("store")
    broker.create_topic("T", attributes={"+queue.type": queue_type})
    await send(broker, "T", OLD)
    await broker.stop()
    broker = await start_broker("store")
    await delete(broker, "T")
    broker.create_topic("T", attributes={"+queue.type": queue_type})
    await send(broker, "T", NEW)
    answer = await broker.pull("T", len(OLD))
    assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "0")


@pytest.mark.parametrize("queue_type", ["SimpleCQ", "BatchCQ"])
async def test_a_topic_that_is_made_again_while_its_deletion_is_finished_has_its_own_type_of_queues(
    start_broker: Start, queue_type: str
) -> None:
    before = "SimpleCQ" if queue_type == "BatchCQ" else "BatchCQ"
    broker = await start_broker("store")
    broker.create_topic("T", attributes={"+queue.type": before})
    await send(broker, "T", OLD)
    deletion = asyncio.ensure_future(delete(broker, "T"))
    await until(lambda: broker.controller.topics.select_topic_config("T") is None)
    broker.create_topic("T", attributes={"+queue.type": queue_type})
    await send(broker, "T", NEW[:3])
    await deletion
    await send(broker, "T", NEW[3:])
    assert [record.body for record in await broker.pull_messages("T")] == NEW
    assert bool(broker.controller.store.queues.batch_queues) is (queue_type == "BatchCQ")


@pytest.mark.parametrize("what", ["the end of the log is lost", "the topic is deleted, and its table is not written"])
async def test_a_purge_hides_no_message_that_comes_after_a_start(start_broker: Start, what: str) -> None:
    """The queue ends before the place that was purged up to: new messages get places below it."""
    broker = await start_broker("store")
    broker.create_topic("T")
    await send(broker, "T", OLD)
    end = len(OLD) + (20 if what == "the end of the log is lost" else 0)
    broker.create_topic("T", attributes={"+purged.offsets": f"0:{end} 1:0"})
    await broker.controller.topics.persisted()
    path = broker.folder / "config" / "topics.json"
    before = path.read_bytes()
    if what != "the end of the log is lost":
        await delete(broker, "T")
    await broker.stop()
    path.write_bytes(before)
    for number in range(2):
        broker = await start_broker("store")
        await send(broker, "T", NEW)
        shown = await broker.pull_messages("T", len(OLD) if end > len(OLD) else 0)
        assert [message.body for message in shown] == NEW * (number + 1)
        await broker.stop()


async def test_a_slave_does_not_hide_messages_of_a_new_topic_that_the_old_one_had_purged(
    start_broker: Start, namesrv: str
) -> None:
    """The slave hears of the deletion by the log, and later of the new topic."""
    master = await start_broker("master", namesrvAddr=namesrv)
    master.create_topic("T")
    await send(master, "T", OLD)
    master.create_topic("T", attributes={"+purged.offsets": f"0:{len(OLD)}"})
    slave = await start_slave(start_broker, namesrv)
    await synchronized(slave)
    await until_copied(master, slave)
    purged = slave.controller.topics.topic_config_table["T"]
    assert purged.attributes == {"purged.offsets": f"0:{len(OLD)}"}
    slave.controller.slave_synchronize.set_master_address("")  # it hears of topics no more
    assert master.controller.store.put_deletion(["T"]).ok
    await until_copied(master, slave)
    assert slave.controller.topics.topic_config_table["T"].attributes == {}
    slave.controller.operations.retention.load()
    await send(master, "T", NEW)
    await until_copied(master, slave)
    assert slave.controller.store.min_offset("T", 0) == 0


async def test_a_slave_has_the_purge_of_a_new_topic_though_its_log_came_later_to_the_deletion_of_the_old_one(
    start_broker: Start, namesrv: str
) -> None:
    master = await start_broker("master", namesrvAddr=namesrv)
    master.create_topic("T")
    await send(master, "T", NEW)
    master.create_topic("T", attributes={"+purged.offsets": "0:1"})
    slave = await start_slave(start_broker, namesrv)
    await synchronized(slave)
    assert slave.controller.topics.topic_config_table["T"].attributes == {"purged.offsets": "0:1"}
    slave.controller._take_deletion(["T"], 1)
    await synchronized(slave)
    assert slave.controller.topics.topic_config_table["T"].attributes == {"purged.offsets": "0:1"}
    assert slave.controller.topics.data_version == master.controller.topics.data_version
    await until(lambda: slave.controller.store.min_offset("T", 0) == 1)


async def test_a_consumer_of_the_deleted_topic_commits_nothing_to_the_new_one(start_broker: Start) -> None:
    """It has not pulled since, and does not know yet."""
    broker = await start_broker("store")
    broker.create_topic("T")
    await send(broker, "T", OLD)
    await commit(broker, "T", len(OLD))
    await delete(broker, "T")
    broker.create_topic("T")
    await send(broker, "T", NEW)
    await commit(broker, "T", len(OLD))
    assert broker.controller.offsets.query_offset("G", "T", 0) == -1
    await commit(broker, "T", len(NEW))
    assert broker.controller.offsets.query_offset("G", "T", 0) == len(NEW)


async def test_a_consumer_goes_on_at_the_beginning_of_the_new_topic_though_that_has_the_place_that_it_had(
    start_broker: Start,
) -> None:
    broker = await start_broker("store")
    broker.create_topic("T")
    await send(broker, "T", OLD)
    offsets = broker.controller.offsets
    assert (await broker.pull("T", len(OLD) - 1)).code == ResponseCode.SUCCESS
    await delete(broker, "T")
    broker.create_topic("T")
    await send(broker, "T", [*OLD, *NEW])
    await commit(broker, "T", len(OLD))
    assert offsets.query_offset("G", "T", 0) == 0, "a member that takes the queue now begins there, too"
    answer = await broker.pull("T", len(OLD))
    assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "0")
    await commit(broker, "T", 2)
    assert offsets.query_offset("G", "T", 0) == 2
    assert (await broker.pull("T", 2)).code == ResponseCode.SUCCESS


async def test_where_readers_of_a_deleted_topic_go_on_is_forgotten_with_their_group(start_broker: Start) -> None:
    broker = await start_broker("store")
    broker.create_topic("T")
    await send(broker, "T", OLD)
    await broker.pull("T", 0)
    await delete(broker, "T")
    offsets = broker.controller.offsets
    assert offsets.query_offset("G", "T", 0) == 0
    offsets.remove_offset("G")
    assert offsets.query_offset("G", "T", 0) == -1
    assert not offsets.any_reset
