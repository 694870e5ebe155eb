"""Subscription groups made, changed, deleted and shown by administrators."""

from tests.unit.broker.broker_world import BrokerWorld, parsed


async def test_a_group_is_made_and_on_disk_before_the_answer() -> None:
    world = BrokerWorld()
    policy = {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1000, 5000]}}
    config = {"groupName": "G", "retryMaxTimes": 3, "groupRetryPolicy": policy, "attributes": {"+priority.factor": "9"}}
    assert (await world.call(200, None, config)).code == 0
    again = BrokerWorld(disk=world.disk)
    again.groups.load()
    shown = parsed(await again.call(352, {"group": "G"}))
    assert (shown["retryMaxTimes"], shown["groupRetryPolicy"]) == (3, policy)
    assert shown["attributes"] == {"priority.factor": "9"}
    assert shown["whichBrokerWhenConsumeSlowly"] == 1


async def test_illegal_groups_are_refused_and_a_list_is_made_whole_or_not_at_all() -> None:
    world = BrokerWorld()
    assert (await world.call(200, None, {"groupName": "bad name"})).code == 29
    assert (await world.call(200, None, {"groupName": "G", "retryQueueNums": -1})).code == 29
    assert (await world.call(200, None, {"groupName": "G", "attributes": {"+x": "1"}})).code == 1
    assert (await world.call(225, None, {"groupConfigList": [{"groupName": "A"}, {"groupName": ""}]})).code == 29
    assert not world.groups.contains_subscription_group("A")
    assert (await world.call(225, None, {"groupConfigList": [{"groupName": "A"}, {"groupName": "B"}]})).code == 0
    assert world.groups.contains_subscription_group("B")


async def test_no_body_is_no_group() -> None:
    assert (await BrokerWorld().call(200)).code == 0


async def test_a_deleted_group_keeps_its_offsets_unless_told() -> None:
    world = BrokerWorld()
    await world.call(200, None, {"groupName": "G"})
    world.offsets.commit_offset("c:1", "G", "T", 0, 5)
    assert (await world.call(207, {"groupName": "G"})).code == 0
    assert not world.groups.contains_subscription_group("G")
    assert world.offsets.query_offset("G", "T", 0) == 5
    assert (await world.call(207, {"groupName": "G", "cleanOffset": "true"})).code == 0
    assert world.offsets.query_offset("G", "T", 0) == -1


async def test_an_unknown_group_is_26_where_groups_are_not_created_on_use() -> None:
    answer = await BrokerWorld({"autoCreateSubscriptionGroup": "false"}).call(352, {"group": "G"})
    assert answer.code == 26
    assert "No group in this broker" in (answer.remark or "")


async def test_all_groups_come_in_one_answer_or_in_pages() -> None:
    world = BrokerWorld()
    world.groups.update_forbidden("TOOLS_CONSUMER", "T", 2, forbidden=True)
    whole = parsed(await world.call(201))
    assert set(whole) == {"dataVersion", "forbiddenTable", "subscriptionGroupTable"}
    assert whole["forbiddenTable"] == {"TOOLS_CONSUMER": {"T": 4}}
    page = await world.call(201, {"groupSeq": "0", "maxGroupNum": "3"})
    assert set(parsed(page)["subscriptionGroupTable"]) == set(sorted(whole["subscriptionGroupTable"])[:3])
    assert page.ext == {"totalGroupNum": "8"}


async def test_reading_a_topic_is_forbidden_and_allowed_again() -> None:
    world = BrokerWorld()
    place = {"group": "G", "topic": "T"}
    assert parsed(await world.call(353, place)) == {"group": "G", "readable": True, "topic": "T"}
    assert parsed(await world.call(353, {**place, "readable": "false"}))["readable"] is False
    assert world.groups.is_forbidden("G", "T", 2)
    assert parsed(await world.call(353, place))["readable"] is False
    assert parsed(await world.call(353, {**place, "readable": "true"}))["readable"] is True
