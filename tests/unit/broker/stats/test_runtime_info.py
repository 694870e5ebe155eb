"""Texts of the runtime table, and the puts that are sampled from the write states of topics."""

import weakref

from maxq.broker.stats.broker_stats_manager import BrokerStatsManager
from maxq.broker.stats.runtime_info import duration_text, size_text
from maxq.broker.stats.topic_puts import TopicPuts
from maxq.store.log.tails_cy import QueueTail, TopicWriteState
from maxq.testing.sim_clock import SimClock


def test_durations_read_as_tools_expect_them() -> None:
    assert duration_text(69_999) == "[ 0 days, 0 hours, 1 minutes, 9 seconds ]"
    assert duration_text(90_061_000) == "[ 1 days, 1 hours, 1 minutes, 1 seconds ]"


def test_sizes_are_in_binary_units_from_a_kibibyte_on() -> None:
    cases = {0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 5018: "4.9 KiB", 252 << 30: "252.0 GiB", 1 << 70: "1024.0 EiB"}
    assert {count: size_text(count) for count in cases} == cases


def puts_of(stats: BrokerStatsManager) -> int:
    """Messages put into the broker, as far as samples have collected them."""
    item = stats.view("BROKER_PUT_NUMS", "C")
    assert item is not None
    return item.value


def test_sampling_ten_thousand_topics_lets_the_loop_turn_often_and_misses_none() -> None:
    topics = {b"T%d" % number: TopicWriteState(f"T{number}") for number in range(10_000)}
    for topic in topics.values():
        topic.put_nums, topic.put_bytes = 1, 100
    stats = BrokerStatsManager("C", clock=SimClock(), is_system_topic=lambda topic: False, detail=lambda: True)
    turns = list(TopicPuts(lambda: topics).sample(stats))
    assert len(turns) >= 20
    assert puts_of(stats) == 10_000


def test_puts_of_topics_are_added_once_and_a_new_topic_starts_from_zero() -> None:
    topic = TopicWriteState("T")
    topics = {b"T": topic}
    stats = BrokerStatsManager("C", clock=SimClock(), is_system_topic=lambda topic: False, detail=lambda: True)
    puts = TopicPuts(lambda: topics)
    topic.put_nums, topic.put_bytes = 5, 500
    list(puts.sample(stats))
    list(puts.sample(stats))
    topic.put_nums, topic.put_bytes = 7, 700
    list(puts.sample(stats))
    topics[b"T"] = TopicWriteState("T")  # deleted and made again
    topics[b"T"].put_nums, topics[b"T"].put_bytes = 8, 800
    list(puts.sample(stats))
    assert [puts_of(stats), puts.total()] == [15, 8]
    size = stats.view("TOPIC_PUT_SIZE", "T")
    assert size is not None and size.value == 1500


class _Queue:
    """Stands for a ConsumeQueue."""


def test_nothing_is_kept_of_deleted_topics() -> None:
    topics = {b"T%d" % number: TopicWriteState(f"T{number}") for number in range(3)}
    queue = _Queue()
    of_deleted = weakref.ref(queue)
    topics[b"T1"].set_queue(0, QueueTail("T1", 0, queue))
    del queue
    for number in range(3):
        topics[b"T%d" % number].put_nums = 1
    stats = BrokerStatsManager("C", clock=SimClock(), is_system_topic=lambda topic: False, detail=lambda: True)
    puts = TopicPuts(lambda: topics)
    list(puts.sample(stats))
    del topics[b"T1"]
    list(puts.sample(stats))
    assert of_deleted() is None
    assert puts_of(stats) == 3


def test_a_view_of_a_topic_asks_for_what_was_put_there_only() -> None:
    topics = {b"T": TopicWriteState("T"), b"U": TopicWriteState("U")}
    for topic in topics.values():
        topic.put_nums, topic.put_bytes = 1, 100
    stats = BrokerStatsManager("C", clock=SimClock(), is_system_topic=lambda topic: False, detail=lambda: True)
    stats.add_source(TopicPuts(lambda: topics))
    item = stats.view("TOPIC_PUT_NUMS", "T")
    assert item is not None and item.value == 1
    assert dict(stats.totals("TOPIC_PUT_NUMS")) == {"T": 1}
    whole = stats.view("BROKER_PUT_NUMS", "C")
    assert whole is not None and whole.value == 2
