"""Retention by topic and purges on a running broker."""

import asyncio
import json
from pathlib import Path

from maxq.codes import RequestCode
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.frame.remoting_command import RemotingCommand
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import RunningBroker, until


async def fill(broker: RunningBroker, topic: str, count: int, size: int = 100) -> None:
    for _ in range(count):
        assert (await broker.send(topic, b"x" * size)).code == 0


async def purge(broker: RunningBroker, topic: str, **ext: object) -> dict[str, object]:
    request = RemotingCommand(
        RequestCode.MAXQ_PURGE_TOPIC, {"topic": topic, **{name: str(value) for name, value in ext.items()}}
    )
    reply = await broker.invoke(request)
    assert reply.code == 0, reply.remark
    body: dict[str, object] = json.loads(reply.body_bytes)
    return body


def set_attributes(broker: RunningBroker, topic: str, **changes: str) -> None:
    signed = {
        name.replace("add_", "+", 1).replace("del_", "-", 1).replace("_", "."): text for name, text in changes.items()
    }
    broker.controller.topics.update_topic_config(TopicConfig(topic, 1, 1, 6, attributes=signed))


async def test_a_purge_hides_what_is_there_and_readers_are_sent_on(broker: RunningBroker) -> None:
    broker.create_topic("orders", queues=1)
    await fill(broker, "orders", 5)
    broker.controller.offsets.commit_offset("h", "billing", "orders", 0, 2)
    planned = await purge(broker, "orders", dryRun="true")
    assert planned["messages"] == 5 and planned["dryRun"] is True
    assert planned["groups"] == [{"group": "billing", "unread": 3}]
    assert len(await broker.pull_messages("orders")) == 5

    assert (await purge(broker, "orders"))["messages"] == 5
    reply = await broker.pull("orders", 2)
    assert (reply.code, reply.remark) == (21, "OFFSET_TOO_SMALL")
    assert (reply.ext["nextBeginOffset"], reply.ext["minOffset"]) == ("5", "5")
    await fill(broker, "orders", 1)
    assert [message.queue_offset for message in await broker.pull_messages("orders", 5)] == [5]


async def test_a_purge_up_to_an_offset_or_a_time_of_one_queue(broker: RunningBroker) -> None:
    broker.create_topic("orders", queues=2)
    await fill(broker, "orders", 4)
    body = await purge(broker, "orders", queueId=0, beforeOffset=3)
    assert body["queues"] == [{"queueId": 0, "minOffset": 0, "maxOffset": 4, "newMinOffset": 3, "messages": 3}]
    assert broker.controller.store.min_offset("orders", 0) == 3
    stored_ms = broker.controller.store.store_time_at("orders", 0, 3)
    assert (await purge(broker, "orders", beforeTimestamp=stored_ms))["messages"] == 0


async def test_a_purge_holds_after_a_restart(start_broker: Start) -> None:
    first = await start_broker()
    first.create_topic("orders", queues=1)
    await fill(first, "orders", 5)
    await purge(first, "orders", beforeOffset=4)
    await first.stop()
    second = await start_broker()
    assert [message.queue_offset for message in await second.pull_messages("orders", 4)] == [4]
    assert (await second.pull("orders", 0)).code == 21


async def test_what_was_purged_is_not_found_by_key_or_id(broker: RunningBroker) -> None:
    broker.create_topic("orders", queues=1)
    sent = await broker.send("orders", b"x", KEYS="k1", UNIQ_KEY="u1")
    (message,) = await broker.pull_messages("orders")
    view = RemotingCommand(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(message.physical_offset)})
    query = RemotingCommand(
        RequestCode.QUERY_MESSAGE,
        {"topic": "orders", "key": "k1", "maxNum": "10", "beginTimestamp": "0", "endTimestamp": str(1 << 60)},
    )
    assert sent.code == (await broker.invoke(view)).code == (await broker.invoke(query)).code == 0
    await purge(broker, "orders")
    assert (await broker.invoke(view)).code == 1
    assert (await broker.invoke(query)).code == 22


async def test_system_topics_and_wrong_queues_are_not_purged(broker: RunningBroker) -> None:
    broker.create_topic("orders", queues=1)
    for ext, part in (
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "system topic"),
        ({"topic": "nowhere"}, "not exist"),
        ({"topic": "orders", "queueId": "7"}, "has queues 0 to 0"),
        ({"topic": "orders", "beforeOffset": "1", "beforeTimestamp": "1"}, "exclude each other"),
    ):
        reply = await broker.invoke(RemotingCommand(RequestCode.MAXQ_PURGE_TOPIC, ext))
        assert reply.code != 0 and part in (reply.remark or "")


async def test_retention_in_bytes_shows_the_last_messages_of_a_queue(broker: RunningBroker) -> None:
    broker.create_topic("orders", queues=1)
    await fill(broker, "orders", 20, size=1000)
    set_attributes(broker, "orders", add_retention_bytes="5000")
    await broker.controller.operations.retention.look()
    store = broker.controller.store
    shown = await broker.pull_messages("orders", store.min_offset("orders", 0))
    size = store.queue_units("orders", 0, 19, 1)[0][1]
    assert len(shown) == 5000 // size and shown[-1].queue_offset == 19
    await fill(broker, "orders", 3, size=1000)
    await broker.controller.operations.retention.look()
    assert store.max_offset("orders", 0) - store.min_offset("orders", 0) == 5000 // size
    set_attributes(broker, "orders", del_retention_bytes="")
    assert store.min_offset("orders", 0) == 0


async def test_retention_by_time_hides_what_is_older(broker: RunningBroker) -> None:
    broker.create_topic("orders", queues=1)
    await fill(broker, "orders", 2)
    set_attributes(broker, "orders", add_retention_ms="2000")
    store = broker.controller.store
    assert store.min_offset("orders", 0) == 0
    retention = broker.controller.operations.retention
    async with asyncio.timeout(30):
        while store.min_offset("orders", 0) == 0:
            await asyncio.sleep(0.05)
            await retention.look()
    assert (await broker.pull("orders", 0)).code == 21


async def test_files_that_hold_only_hidden_messages_are_deleted(start_broker: Start, tmp_path: Path) -> None:
    broker = await start_broker(mappedFileSizeCommitLog=64 * 1024)
    broker.create_topic("orders", queues=1)
    broker.create_topic("kept", queues=1)
    store = broker.controller.store
    await fill(broker, "orders", 200, size=1000)
    await fill(broker, "kept", 1)
    await fill(broker, "orders", 200, size=1000)
    files = len(store.commit_log.files.files)
    await purge(broker, "orders")
    assert files > 6
    assert await store.cleaner.clean() > 0
    while await store.cleaner.clean():
        pass
    kept = store.queue_units("kept", 0, 0, 1)[0][0]
    assert store.commit_log.min_offset <= kept < store.commit_log.min_offset + 64 * 1024
    assert (await broker.pull_messages("kept"))[0].queue_offset == 0
    await purge(broker, "kept")
    while await store.cleaner.clean():
        pass
    assert len(store.commit_log.files.files) == 1


async def test_files_that_a_slave_still_copies_are_kept(start_broker: Start) -> None:
    broker = await start_broker(mappedFileSizeCommitLog=64 * 1024)
    broker.create_topic("orders", queues=1)
    await fill(broker, "orders", 200, size=1000)
    await purge(broker, "orders")
    store = broker.controller.store
    behind = 100_000
    store.cleaner.hidden.needed_from = lambda: behind
    while await store.cleaner.clean():
        pass
    assert store.commit_log.min_offset == 64 * 1024


async def test_a_slave_hides_what_its_master_purged_before_anybody_could_read_it(start_broker: Start) -> None:
    """It has the topics before the log: its queues come with the messages that nobody is to see."""
    master = await start_broker("m", brokerRole="ASYNC_MASTER", haListenPort=0)
    master.create_topic("orders", queues=1)
    await fill(master, "orders", 3)
    await purge(master, "orders", beforeOffset=2)
    slave = await start_broker(
        "s", brokerRole="SLAVE", brokerId=1, haListenPort=0, slaveReadEnable="true", cleanResourceInterval=3_600_000
    )
    store = slave.controller.store
    slave.controller.topics.take_from_master(
        dict(master.controller.topics.topic_config_table), master.controller.topics.data_version
    )
    slave.controller.ha_service.update_master_ha_address(f"127.0.0.1:{master.controller.ha_service.port}")
    await until(lambda: store.max_offset("orders", 0) == 3)
    assert store.min_offset("orders", 0) == 2
