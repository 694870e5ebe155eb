"""Which topics the store keeps compacted."""

from maxq.broker.tables.topic.compaction_topics import CompactionTopics
from maxq.protocol.body.topic_config import TopicConfig
from tests.unit.broker.broker_world import BrokerWorld

COMPACTED = TopicConfig("T", attributes={"cleanup.policy": "COMPACTION"})


def test_a_topic_that_its_master_has_made_again_without_compaction_is_no_longer_compacted() -> None:
    """A slave hears of the new topic alone if it was made before the slave asked again. Messages without keys would be
    lost to its readers."""
    world, compacted = BrokerWorld(), set[str]()
    topics = CompactionTopics(world.topics, world.settings, compacted)
    world.topics.add_change_listener(topics.topics_changed)
    for config, expected in ((COMPACTED, {"T"}), (TopicConfig("T"), set()), (COMPACTED, {"T"})):
        world.topics.take_from_master({"T": config}, world.topics.data_version)
        assert compacted == expected


def test_without_compaction_no_topic_is_compacted() -> None:
    world, compacted = BrokerWorld({"enableCompaction": "false"}), set[str]()
    world.add_topic("T", attributes={"+cleanup.policy": "COMPACTION"})
    CompactionTopics(world.topics, world.settings, compacted).refresh_all()
    assert compacted == set()
