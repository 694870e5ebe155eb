"""Heartbeats, leaving, and the check of subscriptions."""

import asyncio

import pytest

from maxq.protocol.message.java_hash import java_hash
from tests.unit.broker.broker_world import BrokerWorld, FakeConnection, connection


async def test_a_heartbeat_makes_group_and_retry_topic_and_registers_all_groups() -> None:
    world, fake = BrokerWorld(), FakeConnection()
    changed: list[str] = []
    world.topics.add_change_listener(lambda configs, deleted: changed.extend(c.topic_name for c in configs))
    answer = await world.heartbeat(fake, "c1", producers=("P",))
    assert answer.code == 0
    assert answer.ext == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
    assert world.groups.contains_subscription_group("G")
    assert changed == ["%RETRY%G"], "the retry topic must reach the name servers at once"
    assert world.consumers.find_channel("G", "c1") is not None
    assert "P" in world.producers.group_channel_table


async def test_the_retry_topic_follows_the_settings_of_the_group_and_the_topics_it_consumes() -> None:
    world, fake = BrokerWorld(), FakeConnection()
    await world.call(200, None, {"groupName": "G", "retryQueueNums": 3})
    world.add_topic("T", order=True)
    await world.heartbeat(fake, "c1")
    retry = world.topics.topic_config_table["%RETRY%G"]
    assert (retry.write_queue_nums, retry.perm, retry.order) == (3, 6, True)


async def test_a_group_that_may_not_be_created_is_not_registered_and_the_others_are() -> None:
    world, fake = BrokerWorld({"autoCreateSubscriptionGroup": "false"}), FakeConnection()
    answer = await world.heartbeat(fake, "c1", producers=("P",))
    assert answer.code == 0
    assert world.consumers.get_consumer_group_info("G") is None
    assert not world.topics.contains_topic("%RETRY%G")
    assert "P" in world.producers.group_channel_table


async def test_pull_consumers_are_not_registered_where_they_are_rejected() -> None:
    world, fake = BrokerWorld({"rejectPullConsumerEnable": "true"}), FakeConnection()
    consumer = {"groupName": "G", "consumeType": "CONSUME_ACTIVELY", "subscriptionDataSet": []}
    await world.call(34, None, {"clientID": "c1", "consumerDataSet": [consumer]}, fake=fake)
    assert world.consumers.get_consumer_group_info("G") is None


async def test_tag_codes_are_computed_here_and_enums_may_be_ordinals() -> None:
    world, fake = BrokerWorld(), FakeConnection()
    tags = {"subString": "A || B", "tagsSet": ["A", "B"], "codeSet": ["0", "0"]}
    subscription = {"topic": "T", "subVersion": "7", **tags}
    consumer = {
        "groupName": "G", "consumeType": 1, "messageModel": 1, "consumeFromWhere": 0,
        "subscriptionDataSet": [subscription],
    }  # fmt: skip
    answer = await world.call(34, None, {"clientID": "cpp", "consumerDataSet": [consumer]}, fake=fake)
    assert answer.code == 0
    found = world.consumers.find_subscription_data("G", "T")
    assert found is not None
    assert found.code_set == {java_hash("A"), java_hash("B")}
    assert found.sub_version == 7


async def test_heartbeats_of_version_2_ask_for_subscriptions_only_when_they_are_needed() -> None:
    world, fake = BrokerWorld(), FakeConnection()

    async def beat(fingerprint: int, *, short: bool, topics: dict[str, int] | None = None) -> str:
        answer = await world.heartbeat(
            fake, "c1", topics={} if short else topics, heartbeatFingerprint=fingerprint, withoutSub=short
        )
        return answer.ext["IS_SUB_CHANGE"]

    assert await beat(11, short=True) == "true", "the broker was restarted: it knows no subscription"
    assert await beat(11, short=False, topics={"T": 1}) == "false"
    assert await beat(11, short=True) == "false"
    assert world.consumers.find_subscription_data("G", "T") is not None, "a short heartbeat keeps the subscription"
    assert await beat(12, short=True) == "true", "another member subscribes to something else"
    world.notifier.close()


async def test_an_empty_group_name_is_no_group() -> None:
    world, fake = BrokerWorld(), FakeConnection()
    await world.heartbeat(fake, "c1")
    answer = await world.call(35, {"clientID": "c1", "producerGroup": "", "consumerGroup": ""}, fake=fake)
    assert answer.code == 0
    assert not world.groups.contains_subscription_group("")
    assert world.consumers.find_channel("G", "c1") is not None
    world.notifier.close()


async def test_a_body_that_is_no_heartbeat_is_refused() -> None:
    answer = await BrokerWorld().call(34, None, b"[1,")
    assert answer.code == 1
    assert answer.remark is not None and "not JSON" in answer.remark


@pytest.mark.parametrize(("kind", "code"), [("TAG", 0), ("SQL92", 1)])
async def test_only_tag_subscriptions_are_taken_and_the_refusal_says_why(kind: str, code: int) -> None:
    body = {"clientId": "x@1", "group": "G", "subscriptionData": {"expressionType": kind, "subString": "a > 5"}}
    answer = await BrokerWorld().call(46, None, body)
    assert answer.code == code
    if code:
        assert "The broker does not support consumer to filter message by SQL92" in (answer.remark or "")


async def test_heartbeats_of_lite_consumers_are_taken() -> None:
    world, fake = BrokerWorld(), FakeConnection()
    assert (await world.heartbeat(fake, "c1", model="LITE_SELECTIVE")).code == 0
    assert world.consumers.find_channel("G", "c1") is not None
    world.notifier.close()


@pytest.mark.parametrize(
    "consumers",
    [
        [{"groupName": f"G{n}", "subscriptionDataSet": [{"topic": "T", "subString": "*"}]} for n in range(400)],
        [
            {
                "groupName": "G",
                "subscriptionDataSet": [
                    {"topic": f"T{n}", "subString": f"a = {n} OR b = 'x'", "expressionType": "SQL92", "subVersion": 1}
                    for n in range(8)
                ],
            }
        ],
    ],
    ids=["groups", "expressions"],
)
async def test_others_have_their_turns_while_a_long_heartbeat_is_worked_off(consumers: list[dict[str, object]]) -> None:
    world, fake = BrokerWorld(), FakeConnection()
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.ensure_future(others())
    answer = await world.call(34, None, {"clientID": "c1", "consumerDataSet": consumers}, fake=fake)
    task.cancel()
    assert answer.code == 0
    assert turns > 5
    for consumer in consumers:
        assert world.consumers.find_channel(str(consumer["groupName"]), "c1") is not None
    world.notifier.close()


async def test_a_client_that_goes_while_its_heartbeat_is_worked_off_leaves_no_member_behind() -> None:
    world, fake = BrokerWorld(), FakeConnection()
    consumers = [{"groupName": f"G{n}", "subscriptionDataSet": [{"topic": "T"}]} for n in range(400)]
    beat = asyncio.ensure_future(world.call(34, None, {"clientID": "c1", "consumerDataSet": consumers}, fake=fake))
    begun = asyncio.Event()
    world.topics.add_change_listener(lambda configs, deleted: begun.set())
    await begun.wait()
    fake.is_closed = True
    world.consumers.do_channel_close_event(connection(fake))
    await beat
    assert world.consumers.consumer_table == {}
    world.notifier.close()
