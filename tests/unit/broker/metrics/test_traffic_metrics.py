"""What a scrape tells of messages in, while topics are written, deleted and changed."""

import struct
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import cast
from unittest import mock

from prometheus_client.parser import text_string_to_metric_families

from maxq.broker.metrics.traffic_metrics import TrafficMetrics, _MessageSizes
from maxq.protocol.body.topic_config import TopicConfig
from maxq.runtime.metrics.packed_text import PackedText
from maxq.runtime.metrics.registry import MetricsRegistry
from maxq.store.log.tails_cy import QueueTail, TopicWriteState
from maxq.store.message_store import MessageStore
from maxq.store.queue.consume_queue import ConsumeQueue
from tests.unit.broker.broker_world import BrokerWorld

Labels = dict[str, str]


class Traffic:
    """Topics of a store that has no queues: sizes are taken to be alike."""

    def __init__(self, count: int) -> None:
        self.world = BrokerWorld()
        self.topics: dict[bytes, TopicWriteState] = {}
        self.registry = MetricsRegistry()
        store = cast(MessageStore, SimpleNamespace(topics=self.topics))
        TrafficMetrics(self.registry, store=store, stats=self.world.stats, topics=self.world.topics)
        for number in range(count):
            self.put(f"T{number}", 1)

    def put(self, topic: str, nums: int, size: int = 100) -> None:
        state = self.topics.setdefault(topic.encode(), TopicWriteState(topic))
        state.put_nums += nums
        state.put_bytes += nums * size

    def packed(self) -> list[PackedText]:
        return [piece for piece in self.registry.lines() if isinstance(piece, PackedText)]

    def scrape(self) -> dict[str, dict[str, float]]:
        """By sample name and topic."""
        return _samples("".join(_texts(self.registry)))


def _texts(registry: MetricsRegistry) -> Iterator[str]:
    for piece in registry.lines():
        yield piece.unpack().decode() if isinstance(piece, PackedText) else piece


def _samples(text: str) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.labels.get("le", "+Inf") == "+Inf":
                found.setdefault(sample.name, {})[sample.labels["topic"]] = sample.value
    return found


def test_a_put_shows_in_the_next_scrape_and_text_of_other_topics_is_kept() -> None:
    traffic = Traffic(300)
    assert set(traffic.scrape()["rocketmq_messages_in_total"].values()) == {1}
    before = traffic.packed()
    traffic.put("T150", 4)
    after = traffic.packed()
    assert sum(old is not new for old, new in zip(before, after, strict=True)) == 3  # one block in each of the metrics
    found = traffic.scrape()
    for name, value in (
        ("rocketmq_messages_in_total", 5),
        ("rocketmq_throughput_in_total", 500),
        ("rocketmq_message_size_bucket", 5),
        ("rocketmq_message_size_count", 5),
        ("rocketmq_message_size_sum", 500),
    ):
        assert found[name].pop("T150") == value
        assert set(found[name].values()) == {value / 5} and len(found[name]) == 299


def test_topics_come_and_go() -> None:
    traffic = Traffic(200)
    traffic.scrape()
    traffic.put("new", 7)
    del traffic.topics[b"T3"]
    traffic.topics[b"T4"] = TopicWriteState("T4")  # deleted and made again
    traffic.put("T4", 2)
    traffic.topics[b"T5"] = TopicWriteState("T5")
    found = traffic.scrape()
    for name in ("rocketmq_messages_in_total", "rocketmq_message_size_count"):
        assert found[name]["new"] == 7 and found[name]["T4"] == 2
        assert "T3" not in found[name] and "T5" not in found[name] and len(found[name]) == 199


def test_a_topic_whose_type_is_changed_has_the_new_label() -> None:
    traffic = Traffic(2)
    table = traffic.world.topics.topic_config_table
    table["T1"] = TopicConfig("T1")
    traffic.scrape()
    table["T1"] = replace(table["T1"], attributes={"message.type": "FIFO"})
    (family,) = (
        family
        for family in text_string_to_metric_families("".join(_texts(traffic.registry)))
        if family.name == "rocketmq_messages_in"
    )
    types = {sample.labels["topic"]: sample.labels["message_type"] for sample in family.samples}
    assert types == {"T0": "normal", "T1": "fifo"}


def test_all_that_a_scrape_shows_of_a_topic_is_of_one_moment() -> None:
    traffic = Traffic(100)
    traffic.scrape()
    traffic.put("T50", 1)
    texts = []
    for text in _texts(traffic.registry):
        traffic.put("T50", 1)
        traffic.put("T20", 1)
        texts.append(text)
    found = _samples("".join(texts))
    for topic in ("T20", "T50"):
        nums = found["rocketmq_messages_in_total"][topic]
        assert found["rocketmq_message_size_count"][topic] == found["rocketmq_message_size_bucket"][topic] == nums
        assert found["rocketmq_throughput_in_total"][topic] == found["rocketmq_message_size_sum"][topic] == 100 * nums
    last = traffic.scrape()["rocketmq_messages_in_total"]
    assert last["T50"] == traffic.topics[b"T50"].put_nums and last["T20"] == traffic.topics[b"T20"].put_nums


class _Queue(ConsumeQueue):
    """Holds all messages of a topic."""

    def __init__(self, topic: TopicWriteState) -> None:
        self._topic = topic
        self.files = mock.Mock()  # whatever it finds is mapped

    @property
    def max_offset(self) -> int:
        return self._topic.put_nums

    def units_from(self, queue_offset: int) -> tuple[memoryview, int, int]:
        units = struct.pack(">qiq", 0, 100, 0) * (self.max_offset - queue_offset)
        return memoryview(units), 0, len(units)


def test_two_scrapes_at_a_time_count_nothing_twice() -> None:
    traffic = Traffic(1)
    topic = traffic.topics[b"T0"]
    topic.set_queue(0, QueueTail("T0", 0, _Queue(topic)))
    traffic.put("T0", 40, 2000)
    scrapes, texts = [_texts(traffic.registry), _texts(traffic.registry)], ["", ""]
    for _ in range(20):
        for which in range(2):  # in turns
            texts[which] += next(scrapes[which], "")
            traffic.put("T0", 1)
    for text in texts:
        assert 40 < _samples(text)["rocketmq_message_size_count"]["T0"] <= topic.put_nums
    assert traffic.scrape()["rocketmq_message_size_count"]["T0"] == topic.put_nums


def test_a_scrape_maps_no_file_of_a_queue() -> None:
    """Of ten thousand topics not all files can be mapped at a time, and each mapping would end another one."""
    queue = mock.Mock(spec=ConsumeQueue, max_offset=5)
    queue.files = mock.Mock()
    queue.files.find.return_value = mock.Mock(is_mapped=False)
    state = TopicWriteState("T")
    state.queues[0] = QueueTail("T", 0, queue)
    sizes = _MessageSizes(state)
    for _ in sizes.look(5, 500):
        pass
    assert sum(sizes.counts) == 5
    queue.units_from.assert_not_called()
