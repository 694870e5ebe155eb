"""Offsets of queues and groups, consume statistics, resets."""

from typing import Any

import pytest

from maxq.broker.processors.admin.admin_offset import LONG_MAX
from maxq.codes import LanguageCode, RequestCode
from maxq.errors import RemotingTimeoutError
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.json import json_dialect
from maxq.protocol.message.message_queue import MessageQueue
from tests.unit.broker.broker_world import BrokerWorld, FakeConnection, parsed

QUEUE = {"topic": "T", "queueId": "0"}


def world_with_messages() -> BrokerWorld:
    """T has 5 messages in queue 0 (offsets 0 to 4, stored at 1000, 2000 …) and none in queue 1."""
    world = BrokerWorld()
    world.add_topic("T", 2)
    world.store.fill("T", 0, [1000, 2000, 3000, 4000, 5000])
    return world


def by_queue(table: dict[MessageQueue, Any]) -> dict[int, Any]:
    assert all((queue.topic, queue.broker_name) == ("T", "broker-w") for queue in table)
    return {queue.queue_id: row for queue, row in table.items()}


async def test_the_ends_of_a_queue_and_places_in_time() -> None:
    world = world_with_messages()
    assert (await world.call(30, QUEUE)).ext == {"offset": "5"}
    assert (await world.call(31, QUEUE)).ext == {"offset": "0"}
    assert (await world.call(32, QUEUE)).ext == {"timestamp": "1000"}
    assert (await world.call(32, {**QUEUE, "queueId": "1"})).ext == {"timestamp": "-1"}
    assert (await world.call(29, {**QUEUE, "timestamp": "2500"})).ext == {"offset": "2"}
    assert (await world.call(29, {**QUEUE, "timestamp": "2500", "boundaryType": "upper"})).ext == {"offset": "1"}
    missing = await world.call(30, {"topic": "T"})
    assert (missing.code, missing.remark) == (1, "the custom field <queueId> is null")


async def test_the_answer_names_the_topics_incarnation_once_it_was_deleted() -> None:
    world = BrokerWorld()
    world.store.incarnations["T"] = 4711
    assert (await world.call(30, QUEUE)).ext == {"offset": "0", "incarnation": "4711"}
    assert (await world.call(31, QUEUE)).ext == {"offset": "0", "incarnation": "4711"}


async def test_all_offsets_and_delay_offsets_are_given_to_slaves() -> None:
    world = world_with_messages()
    world.offsets.commit_offset("c:1", "G", "T", 0, 5)
    everything = parsed(await world.call(43))
    assert everything["offsetTable"] == {"T@G": {"0": 5}}
    assert everything["groupTopicMap"] == {"G": ["T"]}
    assert parsed(await world.call(45))["offsetTable"] == {}


async def test_corrections_mark_queues_in_which_the_compared_group_is_behind() -> None:
    world = world_with_messages()
    for queue_id, (mine, theirs) in enumerate([(1, 3), (4, 2)]):
        world.offsets.commit_offset("c:1", "Mine", "T", queue_id, mine)
        world.offsets.commit_offset("c:1", "Theirs", "T", queue_id, theirs)
    ext = {"topic": "T", "compareGroup": "Mine", "filterGroups": "Mine"}
    assert parsed(await world.call(308, ext)) == {"correctionOffsets": {"0": LONG_MAX, "1": 2}}


async def test_cloning_takes_one_topic_or_all_that_exist() -> None:
    world = world_with_messages()
    world.add_topic("U")
    for topic in ("T", "U", "Gone"):
        world.offsets.commit_offset("c:1", "G", topic, 0, 3)
    assert (await world.call(314, {"srcGroup": "G", "destGroup": "H", "topic": "T"})).code == 0
    assert world.offsets.which_topic_by_consumer("H") == {"T"}
    await world.call(314, {"srcGroup": "G", "destGroup": "I"})
    assert world.offsets.which_topic_by_consumer("I") == {"T", "U"}
    await world.heartbeat(FakeConnection(), "c1", topics={"T": 1})
    await world.call(314, {"srcGroup": "G", "destGroup": "J", "offline": "false"})
    assert world.offsets.which_topic_by_consumer("J") == {"T"}
    await world.call(314, {"srcGroup": "G", "destGroup": "K", "offline": "true"})
    assert world.offsets.which_topic_by_consumer("K") == {"T", "U"}
    world.notifier.close()


# --- 208, 317, 303 ---------------------------------------------------------------------------------------------------


async def test_consume_stats_show_every_queue_with_its_lag() -> None:
    world = world_with_messages()
    world.offsets.commit_offset("c:1", "G", "T", 0, 3)
    world.offsets.commit_pull_offset("c:1", "G", "T", 0, 4)
    answer = await world.call(208, {"consumerGroup": "G"})
    assert b'{{"brokerName":"broker-w","queueId":0,"topic":"T"}:{"brokerOffset":5' in answer.body_bytes
    rows = by_queue(parsed(answer)["offsetTable"])
    assert rows[0] == {"brokerOffset": 5, "consumerOffset": 3, "lastTimestamp": 3000, "pullOffset": 4}
    assert rows[1] == {"brokerOffset": 0, "consumerOffset": 0, "lastTimestamp": 0, "pullOffset": 0}


async def test_consume_stats_leave_out_what_the_group_no_longer_subscribes_to_unless_listed() -> None:
    world = world_with_messages()
    world.add_topic("U", 1)
    for topic in ("T", "U"):
        world.offsets.commit_offset("c:1", "G", topic, 0, 1)
    await world.heartbeat(FakeConnection(), "c1", topics={"T": 1})

    async def topics(**ext: str) -> set[str]:
        table = parsed(await world.call(208, {"consumerGroup": "G", **ext}))["offsetTable"]
        return {queue.topic for queue in table}

    assert await topics() == {"T"}
    assert await topics(topic="U") == set()
    assert await topics(topicList="U;T") == {"T", "U"}
    world.notifier.close()


async def test_the_whole_broker_sums_up_what_is_behind() -> None:
    world = world_with_messages()
    world.offsets.commit_offset("c:1", "TOOLS_CONSUMER", "T", 0, 3)
    world.offsets.commit_pull_offset("c:1", "TOOLS_CONSUMER", "T", 0, 4)
    value = parsed(await world.call(317, {"isOrder": "false"}))
    assert (value["brokerAddr"], value["totalDiff"], value["totalInflightDiff"]) == ("127.0.0.2:20911", 2, 1)
    groups = {group: stats for row in value["consumeStatsList"] for group, stats in row.items()}
    assert set(groups) == set(world.groups.subscription_group_table)
    assert len(groups["TOOLS_CONSUMER"][0]["offsetTable"]) == 2
    assert parsed(await world.call(317, {"isOrder": "true"}))["totalDiff"] == 0


async def test_time_spans_tell_how_long_the_next_message_waits() -> None:
    world = world_with_messages()
    world.offsets.commit_offset("c:1", "G", "T", 0, 3)
    spans = parsed(await world.call(303, {"topic": "T", "group": "G"}))["consumeTimeSpanSet"]
    assert spans[0]["messageQueue"] == {"brokerName": "broker-w", "queueId": 0, "topic": "T"}
    assert (spans[0]["minTimeStamp"], spans[0]["maxTimeStamp"], spans[0]["consumeTimeStamp"]) == (1000, 5000, 3000)
    assert spans[0]["delayTime"] == world.clock.wall_ms() - 4000
    assert spans[1]["delayTime"] == 0
    assert (await world.call(303, {"topic": "Unknown", "group": "G"})).code == 17


# --- 222 at the broker -----------------------------------------------------------------------------------------------

RESET = {"topic": "T", "group": "G", "timestamp": "2500", "isForce": "true", "queueId": "-1", "offset": "-1"}


def world_to_reset(**settings: str) -> BrokerWorld:
    world = world_with_messages()
    if settings:
        world.settings.update(settings)
    world.groups.find_subscription_group_config("G")
    for queue_id, offset in enumerate((5, 0)):
        world.offsets.commit_offset("c:1", "G", "T", queue_id, offset)
    return world


async def test_a_reset_to_a_time_reaches_every_read_queue_and_waits_for_the_next_pull() -> None:
    world = world_to_reset()
    answer = await world.call(222, RESET)
    assert by_queue(parsed(answer)["offsetTable"]) == {0: 2, 1: 0}
    assert answer.body_bytes.startswith(b'{"offsetTable":{{"brokerName":"broker-w"')
    assert world.offsets.query_then_erase_reset_offset("T", "G", 0) == 2
    again = BrokerWorld(disk=world.disk)
    again.offsets.load()
    assert again.offsets.query_offset("G", "T", 0) == 2, "the reset must outlive a crash after the answer"


async def test_a_negative_time_is_the_end_of_the_queue() -> None:
    table = parsed(await world_to_reset().call(222, {**RESET, "timestamp": "-1"}))["offsetTable"]
    assert by_queue(table) == {0: 5, 1: 0}


@pytest.mark.parametrize(("offset", "place"), [("4", 4), ("5", 5), ("6", 5)])
async def test_one_queue_is_reset_to_one_offset(offset: str, place: int) -> None:
    """Java takes the place behind the end, too, and the group passes over the next message."""
    world = world_to_reset()
    table = parsed(await world.call(222, {**RESET, "queueId": "0", "offset": offset}))["offsetTable"]
    assert by_queue(table) == {0: place}
    assert not world.offsets.has_offset_reset("T", "G", 1)


@pytest.mark.parametrize(
    ("change", "code", "remark"),
    [
        ({"topic": "Unknown"}, 17, "Topic Unknown does not exist"),
        ({"group": "Unknown"}, 26, "Group Unknown does not exist"),
        ({"queueId": "0", "offset": "7"}, 1, "Target offset 7 not in consume queue range [0-5]"),
        ({"queueId": "9", "offset": "0"}, 29, "queueId 9 of topic T does not exist, it has 2 read queues"),
    ],
)
async def test_impossible_resets_are_refused(change: dict[str, str], code: int, remark: str) -> None:
    world = world_to_reset()
    answer = await world.call(222, {**RESET, **change})
    assert (answer.code, answer.remark) == (code, remark)
    assert not world.offsets.has_offset_reset("T", "G", 0)


# --- 222 at the clients, 223 -----------------------------------------------------------------------------------------


async def test_members_are_told_to_reset_each_in_its_language() -> None:
    world = world_to_reset(useServerSideResetOffset="false")
    java, cpp = FakeConnection("a:1"), FakeConnection("b:1")
    await world.heartbeat(java, "j")
    await world.heartbeat(cpp, "c", language=LanguageCode.CPP)
    answer = await world.call(222, RESET)
    assert by_queue(parsed(answer)["offsetTable"]) == {0: 2, 1: 0}
    # beside them each is told, sooner or later, that the group has another member (40)
    (to_java,), (to_cpp,) = (
        [frame for frame in member.sent if frame.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET]
        for member in (java, cpp)
    )
    assert to_java.is_oneway
    assert to_java.body_bytes == answer.body_bytes
    rows = json_dialect.loads(to_cpp.body_bytes)["offsetTable"]
    assert rows[0] == {"brokerName": "broker-w", "offset": 2, "queueId": 0, "topic": "T"}
    assert not world.offsets.has_offset_reset("T", "G", 0)
    asked_by_cpp = await world.call(222, RESET, language=LanguageCode.CPP)
    assert isinstance(parsed(asked_by_cpp)["offsetTable"], list)
    world.notifier.close()


async def test_without_force_no_queue_moves_forward() -> None:
    world = world_to_reset(useServerSideResetOffset="false")
    world.offsets.commit_offset("c:1", "G", "T", 0, 1)
    await world.heartbeat(FakeConnection(), "c1")
    table = parsed(await world.call(222, {**RESET, "isForce": "false"}))["offsetTable"]
    assert by_queue(table) == {0: 1, 1: 0}
    world.notifier.close()


@pytest.mark.parametrize(("change", "expected"), [({"offset": "4"}, {0: 4}), ({"offset": "0"}, {0: 0}), ({}, {0: 2})])
async def test_members_are_told_to_reset_one_queue_only(change: dict[str, str], expected: dict[int, int]) -> None:
    """The command went to all queues, and with an offset to their ends."""
    world = world_to_reset(useServerSideResetOffset="false")
    world.offsets.commit_offset("c:1", "G", "T", 0, 3)
    member = FakeConnection()
    await world.heartbeat(member, "c1")
    answer = await world.call(222, {**RESET, "isForce": "false", "queueId": "0", **change})
    assert by_queue(parsed(answer)["offsetTable"]) == expected
    (told,) = [frame for frame in member.sent if frame.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET]
    assert told.body_bytes == answer.body_bytes
    world.notifier.close()


async def test_clients_must_be_online_and_young_enough_to_be_told() -> None:
    world = world_to_reset(useServerSideResetOffset="false")
    assert (await world.call(222, RESET)).code == 206
    old = {"clientID": "old", "consumerDataSet": [{"groupName": "G", "subscriptionDataSet": []}]}
    await world.call(34, None, old, version=27)
    answer = await world.call(222, RESET)
    assert answer.code == 1
    assert "does not support this feature" in (answer.remark or "")
    world.notifier.close()


def status(offset: int) -> RemotingCommand:
    table = {MessageQueue("T", "broker-w", 0): offset}
    return RemotingCommand(0, body=json_dialect.dumps({"messageQueueTable": table, "consumerTable": {}}), flag=1)


async def test_the_status_of_all_members_is_put_together_and_silent_ones_are_left_out() -> None:
    world = world_to_reset()
    first, second, silent = FakeConnection("a:1"), FakeConnection("b:1"), FakeConnection("c:1")
    first.answers, second.answers = [status(5)], [status(6)]
    silent.answers = [RemotingTimeoutError("timeout")]
    for fake, name in ((first, "c1"), (second, "c2"), (silent, "c3")):
        await world.heartbeat(fake, name)
    table = parsed(await world.call(223, {"topic": "T", "group": "G", "clientAddr": ""}))["consumerTable"]
    assert {name: by_queue(row) for name, row in table.items()} == {"c1": {0: 5}, "c2": {0: 6}}
    second.answers = [status(7)]
    one = parsed(await world.call(223, {"topic": "T", "group": "G", "clientAddr": "c2"}))["consumerTable"]
    assert list(one) == ["c2"]
    nobody = await world.call(223, {"topic": "T", "group": "H"})
    assert (nobody.code, nobody.remark) == (1, "No Any Consumer online in the consumer group: [H]")
    world.notifier.close()


async def test_a_queue_without_messages_begins_at_0() -> None:
    """The store says -1 for a queue without files; mqadmin's printMsg refuses less than 0."""
    world = BrokerWorld()
    world.store.first["T", 3] = -1
    assert (await world.call(31, {"topic": "T", "queueId": "3"})).ext["offset"] == "0"
