"""The table of consumer groups: creation on first use, changes, what is forbidden, and its file."""

import pytest

from maxq.broker.tables.subscription import subscription_group_manager
from maxq.broker.tables.subscription.subscription_group_manager import SYSTEM_GROUPS, SubscriptionGroupManager
from maxq.errors import InvalidAttributeError, RemoteProtocolError
from maxq.protocol.body.subscription import SubscriptionGroupConfig
from tests.unit.broker.broker_world import CONFIG_DIR, BrokerWorld


def reloaded(world: BrokerWorld) -> SubscriptionGroupManager:
    manager = SubscriptionGroupManager(
        world.disk, CONFIG_DIR / "subscriptionGroup.json", settings=world.settings, clock=world.clock
    )
    manager.load()
    return manager


def test_built_in_groups_are_there_from_the_start() -> None:
    assert set(BrokerWorld().groups.subscription_group_table) == set(SYSTEM_GROUPS)


def test_a_group_is_created_when_it_is_first_used() -> None:
    groups = BrokerWorld().groups
    found = groups.find_subscription_group_config("G")
    assert found == SubscriptionGroupConfig(group_name="G")
    assert groups.data_version.counter == 1
    assert groups.find_subscription_group_config("G") is found


@pytest.mark.parametrize("name", ["", " ", "bad name", "x" * 121])
def test_illegal_and_empty_names_never_become_groups(name: str) -> None:
    groups = BrokerWorld().groups
    assert groups.find_subscription_group_config(name) is None
    assert not groups.contains_subscription_group(name)


def test_only_the_systems_own_groups_are_created_when_creation_is_off() -> None:
    groups = BrokerWorld({"autoCreateSubscriptionGroup": "false"}).groups
    assert groups.find_subscription_group_config("G") is None
    assert groups.find_subscription_group_config("CID_RMQ_SYS_x") is not None


def test_light_message_queue_groups_exist_where_they_are_on() -> None:
    groups = BrokerWorld({"enableLmq": "true", "autoCreateSubscriptionGroup": "false"}).groups
    assert groups.contains_subscription_group("%LMQ%g")
    assert groups.find_subscription_group_config("%LMQ%g") is not None
    assert "%LMQ%g" not in groups.subscription_group_table


def test_attributes_known_since_5_5_are_taken_and_others_refused() -> None:
    groups = BrokerWorld().groups
    config = SubscriptionGroupConfig("G", attributes={"+priority.factor": "50", "+lite.sub.model": "Exclusive"})
    groups.update_subscription_group_config(config)
    assert groups.subscription_group_table["G"].attributes == {"priority.factor": "50", "lite.sub.model": "Exclusive"}
    for bad in ({"+priority.factor": "101"}, {"+lite.sub.model": "Other"}, {"+unknown": "1"}, {"plain": "1"}):
        with pytest.raises(InvalidAttributeError):
            groups.update_subscription_group_config(SubscriptionGroupConfig("H", attributes=bad))
    assert "H" not in groups.subscription_group_table


def test_a_shut_out_group_stays_shut_out_after_a_restart() -> None:
    world = BrokerWorld()
    world.groups.find_subscription_group_config("G")
    assert world.groups.disable_consume("G", "[CONSUMER_BEHIND]9 bytes behind")
    assert world.groups.why_disabled("G") == "[CONSUMER_BEHIND]9 bytes behind"
    assert not reloaded(world).subscription_group_table["G"].consume_enable


@pytest.mark.parametrize("auto", ["true", "false"])
def test_a_broker_that_was_a_slave_makes_groups_that_the_log_names_but_not_those_deleted_last(
    monkeypatch: pytest.MonkeyPatch, auto: str
) -> None:
    monkeypatch.setattr(subscription_group_manager, "MOST_DELETED", 2)
    groups = BrokerWorld({"autoCreateSubscriptionGroup": auto}).groups
    groups.begin(100)
    for name in ("A", "B", "A", "C"):
        groups.delete_subscription_group_config(name)
    assert groups.find_named_group("D", 100) is None
    found = {name: groups.find_named_group(name, 99) is not None for name in "ABCD"}
    assert found == {"A": False, "B": True, "C": False, "D": True}
    assert groups.find_named_group("D", 100) is not None
    assert groups.find_named_group("no name", 99) is None


@pytest.mark.parametrize(("slave_until", "is_known"), [(100, True), (200, False), (0, False)])
async def test_what_was_deleted_counts_after_a_start_as_long_as_the_broker_was_no_slave_since(
    slave_until: int, is_known: bool
) -> None:
    """Also if the group was not known when an administrator deleted it."""
    world = BrokerWorld()
    world.groups.begin(100)
    heard: list[str] = []
    world.groups.add_change_listener(heard.extend)
    assert (await world.call(207, {"groupName": "G"})).code == 0
    assert heard == ["G"]
    groups = reloaded(world)
    groups.begin(slave_until)
    assert ("deletedGroups" in groups.to_json()) == is_known
    assert (groups.find_named_group("G", 50) is None) == (is_known or not slave_until)


@pytest.mark.parametrize("value", [{"groups": ["G"]}, {"groups": 1, "slaveUntil": 1}, {"groups": [], "slaveUntil": []}])
def test_deleted_groups_that_are_none_are_refused(value: object) -> None:
    with pytest.raises(RemoteProtocolError, match="deletedGroups"):
        BrokerWorld().groups.from_json({"deletedGroups": value})


def test_deleting_a_group_forgets_what_it_was_forbidden() -> None:
    groups = BrokerWorld().groups
    groups.find_subscription_group_config("G")
    groups.update_forbidden("G", "T", 2, forbidden=True)
    assert groups.delete_subscription_group_config("G")
    assert not groups.is_forbidden("G", "T", 2)
    assert not groups.delete_subscription_group_config("G")


def test_opening_one_topic_leaves_the_others_shut() -> None:
    groups = BrokerWorld().groups
    groups.update_forbidden("G", "T", 2, forbidden=True)
    groups.update_forbidden("G", "U", 2, forbidden=True)
    groups.update_forbidden("G", "T", 2, forbidden=False)
    assert not groups.is_forbidden("G", "T", 2)
    assert groups.is_forbidden("G", "U", 2)
    assert not groups.is_forbidden("G", "U", 1)
    groups.update_forbidden("G", "U", 2, forbidden=False)
    assert groups.forbidden_table == {}


def test_the_table_survives_a_restart() -> None:
    world = BrokerWorld()
    world.groups.update_subscription_group_config(SubscriptionGroupConfig("G", retry_max_times=3, broker_id=1))
    world.groups.update_forbidden("G", "T", 2, forbidden=True)
    again = reloaded(world)
    assert again.subscription_group_table == world.groups.subscription_group_table
    assert again.forbidden_table == {"G": {"T": 4}}
    assert again.data_version == world.groups.data_version


def test_java_s_file_is_read() -> None:
    world = BrokerWorld()
    world.take_golden_config("clean", "subscriptionGroup.json")
    groups = reloaded(world)
    assert groups.subscription_group_table["Gd_G_Part"].retry_max_times == 3
    assert groups.subscription_group_table["Gd_G_Part"].group_retry_policy.type == "CUSTOMIZED"
    assert groups.data_version.counter == 6
