"""What the fast path of sends may know of a topic."""

import pytest

from maxq.broker.tables.topic.topic_write_states import TopicWriteStates
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.enums import TopicFilterType
from maxq.store.log.tails_cy import TopicTail
from tests.unit.broker.broker_world import BrokerWorld


class Tails(dict[str, TopicTail]):
    def get_or_make(self, topic: str) -> TopicTail:
        return self.setdefault(topic, TopicTail(topic))


def watched(mapping: dict[str, str] | None = None) -> tuple[BrokerWorld, Tails]:
    world, tails = BrokerWorld(mapping), Tails()
    made = TopicWriteStates(world.topics, world.settings, tails.get_or_make, lambda topic: False)
    world.topics.add_change_listener(made.topics_changed)
    world.settings.on_change(made.settings_changed)
    made.refresh_all()
    return world, tails


def test_a_topic_is_plain_as_soon_as_it_is_made_and_no_longer_when_it_is_deleted() -> None:
    world, tails = watched()
    world.topics.update_topic_config(TopicConfig("T", 4, 8, topic_filter_type=TopicFilterType.MULTI_TAG))
    tail = tails["T"]
    assert (tail.plain, tail.max_queue_id, tail.write_queue_nums, tail.multi_tags) == (True, 7, 8, True)
    world.topics.delete_topic_configs(["T"])
    assert not tail.plain


@pytest.mark.parametrize(
    "topic", ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT"]
)
def test_topics_that_clients_must_not_send_to_are_not_plain(topic: str) -> None:
    assert not watched()[1][topic].plain


@pytest.mark.parametrize("topic", ["%RETRY%G", "%DLQ%G", "%LMQ%q"])
def test_topics_with_rules_of_their_own_are_not_plain(topic: str) -> None:
    world, tails = watched()
    world.topics.create_topic_in_send_message_back_method(topic, 1, 6, 0)
    assert not tails[topic].plain


@pytest.mark.parametrize("attribute", [("+cleanup.policy", "COMPACTION"), ("+queue.type", "BatchCQ")])
def test_topics_with_another_kind_of_queue_are_not_plain(attribute: tuple[str, str]) -> None:
    world, tails = watched()
    world.add_topic("T", attributes=dict([attribute]))
    assert not tails["T"].plain


def test_order_topics_follow_the_brokers_permission() -> None:
    world, tails = watched()
    world.add_topic("Ordered", order=True)
    world.add_topic("Free")
    world.settings.update({"brokerPermission": "4"})
    assert (tails["Ordered"].plain, tails["Free"].plain) == (False, True)
    world.settings.update({"brokerPermission": "6"})
    assert tails["Ordered"].plain


def test_the_schedule_topic_is_marked_for_its_delay_levels() -> None:
    tails = watched()[1]
    assert tails["SCHEDULE_TOPIC_XXXX"].delay_levels
    assert not tails["BenchmarkTest"].delay_levels


def test_where_types_are_checked_only_mixed_topics_are_plain() -> None:
    world, tails = watched({"enableMixedMessageType": "true"})
    world.add_topic("Typed", attributes={"+message.type": "NORMAL"})
    world.add_topic("Mixed", attributes={"+message.type": "MIXED"})
    assert (tails["Typed"].plain, tails["Mixed"].plain) == (True, True)
    world.settings.update({"enableTopicMessageTypeCheck": "true"})
    assert (tails["Typed"].plain, tails["Mixed"].plain) == (False, True)
