"""What the fast path of sends may know of a topic."""

import pytest

from maxq.broker.tables.topic.topic_write_states import TopicWriteStates
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.enums import TopicFilterType
from maxq.store.log.tails_cy import TopicWriteState
from tests.unit.broker.broker_world import BrokerWorld


class States(dict[str, TopicWriteState]):
    def get_or_make(self, topic: str) -> TopicWriteState:
        return self.setdefault(topic, TopicWriteState(topic))


def watched(mapping: dict[str, str] | None = None) -> tuple[BrokerWorld, States]:
    world, states = BrokerWorld(mapping), States()
    made = TopicWriteStates(world.topics, world.settings, states.get_or_make, lambda topic: False, lambda topic: None)
    world.topics.add_change_listener(made.topics_changed)
    world.settings.on_change(made.settings_changed)
    made.refresh_all()
    return world, states


def test_a_topic_is_plain_as_soon_as_it_is_made_and_no_longer_when_it_is_deleted() -> None:
    world, states = watched()
    world.topics.update_topic_config(TopicConfig("T", 4, 8, topic_filter_type=TopicFilterType.MULTI_TAG))
    state = states["T"]
    assert (state.is_fast_path_open, state.max_queue_id, state.write_queue_nums, state.multi_tags) == (True, 7, 8, True)
    world.topics.delete_topic_configs(["T"])
    assert not state.is_fast_path_open


@pytest.mark.parametrize(
    "topic", ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT"]
)
def test_topics_that_clients_must_not_send_to_are_not_plain(topic: str) -> None:
    assert not watched()[1][topic].is_fast_path_open


@pytest.mark.parametrize("topic", ["%RETRY%G", "%DLQ%G", "%LMQ%q"])
def test_topics_with_rules_of_their_own_are_not_plain(topic: str) -> None:
    world, states = watched()
    world.topics.create_topic_in_send_message_back_method(topic, 1, 6, 0)
    assert not states[topic].is_fast_path_open


@pytest.mark.parametrize("attribute", [("+cleanup.policy", "COMPACTION"), ("+queue.type", "BatchCQ")])
def test_topics_with_another_kind_of_queue_are_not_plain(attribute: tuple[str, str]) -> None:
    world, states = watched()
    world.add_topic("T", attributes=dict([attribute]))
    assert not states["T"].is_fast_path_open


def test_order_topics_follow_the_brokers_permission() -> None:
    world, states = watched()
    world.add_topic("Ordered", order=True)
    world.add_topic("Free")
    world.settings.update({"brokerPermission": "4"})
    assert (states["Ordered"].is_fast_path_open, states["Free"].is_fast_path_open) == (False, True)
    world.settings.update({"brokerPermission": "6"})
    assert states["Ordered"].is_fast_path_open


def test_the_schedule_topic_is_marked_for_its_delay_levels() -> None:
    states = watched()[1]
    assert states["SCHEDULE_TOPIC_XXXX"].is_delay_topic
    assert not states["BenchmarkTest"].is_delay_topic


def test_where_types_are_checked_only_mixed_topics_are_plain() -> None:
    world, states = watched({"enableMixedMessageType": "true"})
    world.add_topic("Typed", attributes={"+message.type": "NORMAL"})
    world.add_topic("Mixed", attributes={"+message.type": "MIXED"})
    assert (states["Typed"].is_fast_path_open, states["Mixed"].is_fast_path_open) == (True, True)
    world.settings.update({"enableTopicMessageTypeCheck": "true"})
    assert (states["Typed"].is_fast_path_open, states["Mixed"].is_fast_path_open) == (False, True)
