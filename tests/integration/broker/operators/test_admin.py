"""Administration of a running broker: answers that come from the store, resets, clients that are asked, restarts."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from maxq.broker.tables.topic.topic_config_manager import TopicConfigManager
from maxq.codes import RequestCode
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.json import json_dialect
from maxq.protocol.message.java_hash import java_hash
from maxq.remoting.connection import Connection
from maxq.runtime.files.system import SystemClock, SystemDisk
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import RunningBroker, copy_as_killed, until

QUEUE = {"topic": "T", "queueId": "0"}


async def call(
    broker: RunningBroker, code: int, ext: dict[str, str] | None = None, body: bytes | None = None
) -> RemotingCommand:
    return await broker.invoke(RemotingCommand(code, ext or {}, body))


async def ask(broker: RunningBroker, code: int, ext: dict[str, str] | None = None) -> Any:
    answer = await call(broker, code, ext)
    assert answer.code == 0, answer.remark
    return json_dialect.loads(answer.body_bytes)


async def commit(broker: RunningBroker, offset: int) -> None:
    """Group G, which exists from now on, is at `offset` of QUEUE."""
    assert (await call(broker, 200, None, b'{"groupName":"G","retryMaxTimes":3}')).code == 0
    assert (await call(broker, 15, {**QUEUE, "consumerGroup": "G", "commitOffset": str(offset)})).code == 0


@pytest.fixture
async def topic(broker: RunningBroker) -> str:
    """Queue 0 holds m0 … m4; queue 1 is empty."""
    broker.create_topic("T", queues=2)
    for i in range(5):
        await broker.send("T", b"m%d" % i, TAGS="TagA", UNIQ_KEY=f"U{i}")
    return "T"


async def test_offsets_and_times_of_a_queue(broker: RunningBroker, topic: str) -> None:
    assert (await call(broker, 30, QUEUE)).ext == {"offset": "5"}
    assert (await call(broker, 31, QUEUE)).ext == {"offset": "0"}
    first = int((await call(broker, 32, QUEUE)).ext["timestamp"])
    assert broker.controller.store.store_time_at("T", 0, 0) == first
    assert (await call(broker, 29, {**QUEUE, "timestamp": str(first)})).ext == {"offset": "0"}
    assert (await call(broker, 29, {**QUEUE, "timestamp": str(first + 3600_000)})).ext == {"offset": "5"}
    assert (await call(broker, 32, {**QUEUE, "queueId": "1"})).ext == {"timestamp": "-1"}


async def test_a_new_group_starts_at_0_only_where_there_are_messages(broker: RunningBroker, topic: str) -> None:
    place = {**QUEUE, "consumerGroup": "G"}
    assert (await call(broker, 14, place)).ext == {"offset": "0"}
    assert (await call(broker, 14, {**place, "queueId": "1"})).code == 22
    assert (await call(broker, 14, {**place, "topic": "Unknown"})).code == 22


async def test_statistics_of_topic_and_group_follow_the_messages(broker: RunningBroker, topic: str) -> None:
    await commit(broker, 3)
    rows = (await ask(broker, 202, {"topic": "T"}))["offsetTable"]
    topic_table = {queue.queue_id: row for queue, row in rows.items()}
    assert (topic_table[0]["minOffset"], topic_table[0]["maxOffset"]) == (0, 5)
    assert topic_table[0]["lastUpdateTimestamp"] == broker.controller.store.store_time_at("T", 0, 4)
    assert topic_table[1] == {"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0}
    group_table = (await ask(broker, 208, {"consumerGroup": "G"}))["offsetTable"]
    row = {queue.queue_id: row for queue, row in group_table.items()}[0]
    assert (row["brokerOffset"], row["consumerOffset"]) == (5, 3)
    assert row["lastTimestamp"] == broker.controller.store.store_time_at("T", 0, 2)


async def test_units_of_a_queue(broker: RunningBroker, topic: str) -> None:
    value = await ask(broker, 321, {**QUEUE, "index": "3", "count": "10"})
    assert (value["minQueueIndex"], value["maxQueueIndex"]) == (0, 5)
    assert [row["tagsCode"] for row in value["queueData"]] == [java_hash("TagA")] * 2
    store = broker.controller.store
    assert store.look_message_by_offset(value["queueData"][0]["physicOffset"]).body == b"m3"  # type: ignore[union-attr]


async def test_a_reset_moves_the_next_pull_once(broker: RunningBroker, topic: str) -> None:
    await commit(broker, 5)
    reset = {"topic": "T", "group": "G", "timestamp": "0", "isForce": "true", "queueId": "0", "offset": "2"}
    assert (await call(broker, 222, reset)).code == 0
    moved = await broker.pull("T", 5)
    assert (moved.code, moved.ext["nextBeginOffset"]) == (21, "2")
    assert [message.body for message in await broker.pull_messages("T", 2)] == [b"m2", b"m3", b"m4"]


async def test_a_deleted_topic_starts_anew(broker: RunningBroker, topic: str) -> None:
    await commit(broker, 5)
    assert (await call(broker, 215, {"topic": "T"})).code == 0
    assert (await call(broker, 202, {"topic": "T"})).code == 17
    assert (await broker.pull("T", 0)).code == 17
    broker.create_topic("T", queues=2)
    assert (await broker.send("T", b"again")).ext["queueOffset"] == "0"
    assert (await call(broker, 14, {**QUEUE, "consumerGroup": "G"})).ext == {"offset": "0"}


async def test_cleaning_harms_no_message(broker: RunningBroker, topic: str) -> None:
    for code in (306, 316, 329):
        assert (await call(broker, code)).code == 0
    assert len(await broker.pull_messages("T", 0)) == 5


async def test_what_was_answered_survives_a_broker_that_never_shuts_down(broker: RunningBroker, tmp_path: Path) -> None:
    create = {"topic": "New", "readQueueNums": "3", "writeQueueNums": "3", "perm": "6", "topicFilterType": "SINGLE_TAG"}
    assert (await call(broker, 17, create)).code == 0
    copied = tmp_path / "copy"
    copy_as_killed(broker.folder / "config", copied)
    topics = TopicConfigManager(SystemDisk(), copied / "topics.json", settings=broker.settings, clock=SystemClock())
    topics.load()
    assert topics.topic_config_table["New"].write_queue_nums == 3


async def test_topics_groups_offsets_and_modes_survive_a_restart(start_broker: Start) -> None:
    first = await start_broker()
    first.create_topic("T", queues=3, attributes={"+message.type": "FIFO"})
    for number in range(7):
        assert (await first.send("T", b"m%d" % number, queue_id=0)).code == 0
    await commit(first, 7)
    await call(first, 401, None, b'{"topic":"T","consumerGroup":"G","mode":"PULL","popShareQueueNum":0}')
    await first.stop()
    again = await start_broker()
    assert (await ask(again, 351, {"topic": "T"}))["attributes"] == {"message.type": "FIFO"}
    assert (await ask(again, 352, {"group": "G"}))["retryMaxTimes"] == 3
    assert (await call(again, 14, {**QUEUE, "consumerGroup": "G"})).ext == {"offset": "7"}
    assert "G" in (await ask(again, 402))["messageRequestModeMap"]["T"]


async def test_members_are_told_of_changes_and_asked_for_their_state(broker: RunningBroker, topic: str) -> None:
    told: list[str] = []
    asked: list[RemotingCommand] = []

    def on_change(connection: Connection, request: RemotingCommand) -> None:
        told.append(request.ext["consumerGroup"])

    def on_running_info(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        asked.append(request)
        return request.reply(body=b'{"jstack":"none"}')

    broker.client.register(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, on_change)
    broker.client.register(RequestCode.GET_CONSUMER_RUNNING_INFO, on_running_info)
    await broker.heartbeat("G", {"T": "*"})
    await until(lambda: told == ["G"])
    connections = await ask(broker, 203, {"consumerGroup": "G"})
    assert [row["clientId"] for row in connections["connectionSet"]] == ["client-1"]
    info = await ask(broker, 307, {"consumerGroup": "G", "clientId": "client-1", "jstackEnable": "true"})
    assert info == {"jstack": "none"}
    assert asked[0].ext["jstackEnable"] == "true"


async def test_a_closed_connection_ends_the_membership(broker: RunningBroker, topic: str) -> None:
    await broker.heartbeat("G", {"T": "*"})
    consumers, producers = broker.controller.consumers, broker.controller.producers
    assert consumers.find_channel("G", "client-1") is not None
    await broker.client.close()
    await until(lambda: consumers.get_consumer_group_info("G") is None and producers.find_channel("client-1") is None)


async def test_many_topics_at_once_are_all_made(broker: RunningBroker) -> None:
    def create(number: int) -> dict[str, str]:
        return {"topic": f"T{number}", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}

    answers = await asyncio.gather(*(call(broker, 17, create(number)) for number in range(300)))
    assert {answer.code for answer in answers} == {0}
    listed = await ask(broker, 21)
    assert {f"T{number}" for number in range(300)} <= set(listed["topicConfigTable"])


async def test_a_setting_changed_while_running_counts_at_once(broker: RunningBroker) -> None:
    assert (await call(broker, 25, None, b"autoCreateTopicEnable=false\n")).code == 0
    assert (await broker.send("Fresh", b"x")).code == 17
    assert (await call(broker, 25, None, b"autoCreateTopicEnable=true\n")).code == 0
    assert (await broker.send("Fresh", b"x")).code == 0


async def test_runtime_info_names_the_broker(broker: RunningBroker) -> None:
    table = (await ask(broker, 28))["table"]
    assert table["brokerActive"] == "true"
    assert "putTps" in table
