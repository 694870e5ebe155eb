"""The topic table: built-in topics, automatic creation, changes, and its file."""

import pytest

from maxq.broker.tables.topic.topic_config_manager import TopicConfigManager
from maxq.errors import InvalidAttributeError
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.enums import TopicFilterType
from tests.unit.broker.broker_world import CONFIG_DIR, BrokerWorld


def names(world: BrokerWorld) -> dict[str, tuple[int, int]]:
    return {name: (c.write_queue_nums, c.perm) for name, c in world.topics.topic_config_table.items()}


def test_built_in_topics_are_java_s() -> None:
    found = names(BrokerWorld())
    assert found["TBW102"] == (8, 7)
    assert found["BenchmarkTest"] == (1024, 6)
    assert found["WireCluster"] == (16, 7)
    assert found["broker-w"] == (1, 7)
    assert found["SCHEDULE_TOPIC_XXXX"] == (18, 6)
    assert found["WireCluster_REPLY_TOPIC"] == (1, 6)
    assert found["rmq_sys_REVIVE_LOG_WireCluster"] == (8, 6)
    assert found["rmq_sys_SYNC_BROKER_MEMBER_broker-w"] == (1, 1)
    assert "RMQ_SYS_TRACE_TOPIC" not in found


def test_settings_decide_which_built_in_topics_there_are() -> None:
    found = names(
        BrokerWorld({"autoCreateTopicEnable": "false", "clusterTopicEnable": "false", "traceTopicEnable": "true"})
    )
    assert "TBW102" not in found
    assert found["WireCluster"] == (16, 1)
    assert found["RMQ_SYS_TRACE_TOPIC"] == (1, 6)


def test_topics_named_after_cluster_and_broker_count_as_system_topics() -> None:
    topics = BrokerWorld().topics
    assert topics.is_system_topic("WireCluster")
    assert topics.is_system_topic("WireCluster_REPLY_TOPIC")
    assert not topics.is_system_topic("OtherCluster")


def test_a_sent_to_topic_takes_queues_and_permission_from_its_template() -> None:
    world = BrokerWorld()
    world.add_topic("Template", 6, perm=7, topic_filter_type=TopicFilterType.MULTI_TAG)
    created = world.topics.create_topic_in_send_message_method("New", "Template", "c:1", 4, 1)
    assert created == TopicConfig("New", 4, 4, 6, TopicFilterType.MULTI_TAG, topic_sys_flag=1)
    many = world.topics.create_topic_in_send_message_method("Many", "Template", "c:1", 100, 0)
    assert many is not None and many.read_queue_nums == 6
    none = world.topics.create_topic_in_send_message_method("None", "Template", "c:1", -5, 0)
    assert none is not None and none.write_queue_nums == 0


def test_no_topic_is_created_from_a_template_that_is_unknown_or_not_passed_on() -> None:
    world = BrokerWorld()
    world.add_topic("Plain", perm=6)
    assert world.topics.create_topic_in_send_message_method("New", "Plain", "c:1", 4, 0) is None
    assert world.topics.create_topic_in_send_message_method("New", "Nowhere", "c:1", 4, 0) is None
    assert not world.topics.contains_topic("New")


def test_automatic_creation_can_be_switched_off_while_running() -> None:
    world = BrokerWorld()
    assert world.topics.create_topic_in_send_message_method("A", "TBW102", "c:1", 4, 0) is not None
    world.settings.update({"autoCreateTopicEnable": "false"})
    assert world.topics.create_topic_in_send_message_method("B", "TBW102", "c:1", 4, 0) is None
    world.settings.update({"autoCreateTopicEnable": "true"})
    assert world.topics.create_topic_in_send_message_method("B", "TBW102", "c:1", 4, 0) is not None


def test_an_existing_topic_is_returned_as_it_is() -> None:
    world = BrokerWorld()
    made = world.add_topic("T", 3)
    version = world.topics.data_version
    assert world.topics.create_topic_in_send_message_method("T", "TBW102", "c:1", 8, 0) == made
    assert world.topics.data_version == version


def test_retry_topics_follow_the_order_flag() -> None:
    world = BrokerWorld()
    topic = world.topics.create_topic_in_send_message_back_method("%RETRY%G", 1, 6, 2)
    assert (topic.topic_sys_flag, topic.order) == (2, False)
    again = world.topics.create_topic_in_send_message_back_method("%RETRY%G", 5, 6, 0, is_order=True)
    assert (again.write_queue_nums, again.order) == (1, True)


def test_every_change_moves_the_version_and_reaches_the_listeners_with_the_table_already_changed() -> None:
    world = BrokerWorld()
    seen: list[tuple[list[str], list[str], int, bool]] = []

    def listener(changed: list[TopicConfig], deleted: list[str]) -> None:
        topics = world.topics
        names = [config.topic_name for config in changed]
        seen.append((names, deleted, topics.data_version.counter, topics.contains_topic("T")))

    world.topics.add_change_listener(listener)
    world.add_topic("T")
    world.topics.update_topic_config_list([TopicConfig("U", 1, 1), TopicConfig("V", 1, 1)])
    world.topics.delete_topic_configs(["T", "Unknown"])
    assert seen == [(["T"], [], 1, True), (["U", "V"], [], 2, True), ([], ["T"], 3, False)]


def test_an_unchanged_topic_is_no_change() -> None:
    world = BrokerWorld()
    config = world.add_topic("T", 3)
    version = world.topics.data_version
    assert world.topics.update_topic_config(config) is False
    assert world.topics.data_version == version


def test_attributes_are_merged_and_stored_without_sign() -> None:
    world = BrokerWorld()
    world.add_topic("T", attributes={"+message.type": "FIFO", "+lite.topic.expiration": "30"})
    world.add_topic("T", attributes={"+message.type": "DELAY", "-lite.topic.expiration": ""})
    stored = world.topics.select_topic_config("T")
    assert stored is not None and stored.attributes == {"message.type": "DELAY"}


def test_a_list_with_one_bad_topic_changes_nothing() -> None:
    world = BrokerWorld()
    with pytest.raises(InvalidAttributeError, match=r"unsupported key: no\.such"):
        world.topics.update_topic_config_list(
            [TopicConfig("A", 1, 1), TopicConfig("B", 1, 1, attributes={"+no.such": "x"})]
        )
    assert not world.topics.contains_topic("A")


def test_order_topics_of_the_name_server_become_ordered() -> None:
    world = BrokerWorld()
    world.add_topic("T")
    world.topics.update_order_topic_config({"T": "broker-w:4", "Elsewhere": "broker-a:4"})
    assert world.topics.is_order_topic("T")
    assert not world.topics.contains_topic("Elsewhere")


def reloaded(world: BrokerWorld) -> TopicConfigManager:
    manager = TopicConfigManager(world.disk, CONFIG_DIR / "topics.json", settings=world.settings, clock=world.clock)
    manager.load()
    return manager


def test_the_table_survives_a_restart() -> None:
    world = BrokerWorld()
    world.add_topic("T", 3, attributes={"+message.type": "FIFO"}, order=True)
    again = reloaded(world)
    assert again.topic_config_table == world.topics.topic_config_table
    assert again.data_version == world.topics.data_version


async def test_what_was_awaited_is_on_disk_and_changes_meanwhile_share_one_write() -> None:
    world = BrokerWorld()
    writes = 0
    persist = world.topics.persist

    def counting() -> None:
        nonlocal writes
        writes += 1
        persist()

    world.topics.persist = counting  # type: ignore[method-assign]
    for number in range(100):
        world.add_topic(f"T{number}")
    await world.topics.persisted()
    assert writes <= 2
    assert reloaded(world).contains_topic("T99")


async def test_a_table_that_cannot_be_written_says_so_and_is_written_with_the_next_change() -> None:
    world = BrokerWorld()
    persist = world.topics.persist

    def refusing() -> None:
        raise OSError("no space left on device")

    world.topics.persist = refusing  # type: ignore[method-assign]
    world.add_topic("T")
    with pytest.raises(OSError, match="no space"):
        await world.topics.persisted()
    world.topics.persist = persist  # type: ignore[method-assign]
    world.add_topic("U")
    await world.topics.persisted()
    assert reloaded(world).contains_topic("T")


def test_what_the_file_says_of_a_built_in_topic_stays() -> None:
    world = BrokerWorld()
    world.topics.update_topic_config(TopicConfig("BenchmarkTest", 4, 4))
    again = reloaded(world)
    again.create_system_topics()
    assert again.topic_config_table["BenchmarkTest"].write_queue_nums == 4


def test_light_message_queues_count_as_topics_where_they_are_on() -> None:
    assert BrokerWorld().topics.select_topic_config("%LMQ%q") is None
    topic = BrokerWorld({"enableLmq": "true"}).topics.select_topic_config("%LMQ%$P$q")
    assert topic is not None and (topic.read_queue_nums, topic.perm) == (1, 6)


def test_java_s_file_is_read() -> None:
    world = BrokerWorld()
    world.take_golden_config("clean", "topics.json")
    topics = reloaded(world)
    assert topics.topic_config_table["Gd_Simple"] == TopicConfig("Gd_Simple", 4, 4)
    assert topics.topic_config_table["Gd_Order"].order
    assert topics.topic_config_table["Gd_Bcq"].attributes == {"queue.type": "BatchCQ"}
    assert topics.data_version.counter > 0
