"""The registry of metrics, read by Prometheus' own parser."""

from prometheus_client.parser import text_string_to_metric_families

from maxq.runtime.metrics.packed_text import PackedText
from maxq.runtime.metrics.registry import HistogramSample, MetricsRegistry, Sample


def _families(registry: MetricsRegistry) -> dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]]:
    return {
        family.name: {(s.name, tuple(sorted(s.labels.items()))): s.value for s in family.samples}
        for family in text_string_to_metric_families(_text(registry))
    }


def _text(registry: MetricsRegistry) -> str:
    return "".join(piece.unpack().decode() if isinstance(piece, PackedText) else piece for piece in registry.lines())


def _packed(registry: MetricsRegistry) -> list[PackedText]:
    return [piece for piece in registry.lines() if isinstance(piece, PackedText)]


def test_counters_are_read_by_the_official_parser() -> None:
    registry = MetricsRegistry({"cluster": "c1", "node_id": "b"})
    counter = registry.counter("rocketmq_messages_in_total", "About", ("topic", "is_system"))
    counter.add(3, "orders", "false")
    counter.add(2, "orders", "false")
    samples = _families(registry)["rocketmq_messages_in"]
    labels = (("cluster", "c1"), ("is_system", "false"), ("node_id", "b"), ("topic", "orders"))
    assert samples == {("rocketmq_messages_in_total", labels): 5.0}


def test_labels_are_in_alphabetical_order_and_le_comes_last() -> None:
    registry = MetricsRegistry({"node_id": "b"})
    sizes = registry.histogram("rocketmq_message_size", "Sizes", (1024, 4096), ("topic", "message_type"))
    sizes.observe(2000, "t", "normal")
    lines = _text(registry).splitlines()
    assert lines[0] == "# HELP rocketmq_message_size Sizes"
    assert lines[1] == "# TYPE rocketmq_message_size histogram"
    assert lines[2] == 'rocketmq_message_size_bucket{message_type="normal",node_id="b",topic="t",le="1024.0"} 0.0'


def test_a_histogram_counts_values_up_to_each_bound() -> None:
    registry = MetricsRegistry()
    latency = registry.histogram("rocketmq_rpc_latency_milliseconds", "About", (1, 5), ("code",))
    for value in (0, 1, 5, 6):
        latency.observe(value, "pull")
    latency.observe(2, "pull", count=10)
    samples = _families(registry)["rocketmq_rpc_latency_milliseconds"]
    buckets = {dict(labels)["le"]: value for (name, labels), value in samples.items() if name.endswith("_bucket")}
    assert buckets == {"1.0": 2, "5.0": 13, "+Inf": 14}
    assert samples["rocketmq_rpc_latency_milliseconds_sum", (("code", "pull"),)] == 32


def test_values_of_labels_are_escaped() -> None:
    registry = MetricsRegistry({"cluster": '100% "x"'})
    registry.gauge("g", "About", lambda: [(('a"b\\c\nd%s',), 1)], ("topic",))
    [((_, labels), _)] = _families(registry)["g"].items()
    assert dict(labels) == {"cluster": '100% "x"', "topic": 'a"b\\c\nd%s'}


def test_a_label_without_a_value_is_left_out() -> None:
    registry = MetricsRegistry({"zone": "z"})
    counter = registry.counter("maxq_out_total", "About", ("a", "b", "zz"))
    counter.add(1, "", 'x,b="",', "")
    counter.add(2, "1", "", "2")
    assert list(registry.lines())[1:] == [
        'maxq_out_total{b="x,b=\\"\\",",zone="z"} 1.0\n', 'maxq_out_total{a="1",zone="z",zz="2"} 2.0\n',
    ]  # fmt: skip


def test_label_sets_above_the_limit_are_counted_together() -> None:
    registry = MetricsRegistry(limit=2)
    counter = registry.counter("c_total", "About", ("topic",))
    for number in range(5):
        counter.add(1, f"t{number}")
    samples = _families(registry)["c"]
    assert samples["c_total", (("otel_metric_overflow", "true"),)] == 3
    assert len(samples) == 3


def test_what_has_no_number_is_not_shown() -> None:
    registry = MetricsRegistry()
    registry.counter("a_total", "About", ("topic",))
    registry.gauge("b", "About", list, ("topic",))
    registry.counter_in_blocks("c_total", "About", lambda: [[], []], ("topic",))
    assert _text(registry) == ""
    assert list(registry.helps()) == ["a_total", "b", "c_total"]


def test_what_is_forgotten_is_not_shown() -> None:
    registry = MetricsRegistry()
    counter = registry.counter("a_total", "About", ("topic",))
    counter.add(1, "gone")
    counter.add(1, "here")
    counter.forget(lambda labels: labels[0] == "gone")
    assert [labels for _, labels in _families(registry)["a"]] == [(("topic", "here"),)]


def test_text_of_a_block_is_made_again_when_another_one_stands_in_its_place() -> None:
    registry = MetricsRegistry()
    blocks: list[list[Sample]] = [[(("a",), 1), (("b",), 2)], [(("c",), 3)]]
    registry.counter_in_blocks("n_total", "About", lambda: blocks, ("topic",))
    first, second = _packed(registry)
    assert _packed(registry) == [first, second]
    blocks[1] = [(("c",), 4)]
    again, changed = _packed(registry)
    assert again is first and changed is not second
    blocks.insert(0, [(("new",), 9)])
    assert {dict(labels)["topic"]: value for (_, labels), value in _families(registry)["n"].items()} == {
        "new": 9, "a": 1, "b": 2, "c": 4,
    }  # fmt: skip
    del blocks[:2]
    assert list(_families(registry)["n"].values()) == [4]


def test_histograms_may_come_in_blocks() -> None:
    registry = MetricsRegistry()
    blocks: list[list[HistogramSample]] = [[(("a",), (1, 2), 30.0)], [(("b",), (0, 1), 9.0)]]
    registry.histogram_in_blocks("sizes", "Sizes", (10,), lambda: blocks, ("topic",))
    assert _text(registry).startswith("# HELP sizes Sizes\n# TYPE sizes histogram\n")
    samples = _families(registry)["sizes"]
    assert {dict(labels)["topic"]: value for (name, labels), value in samples.items() if name == "sizes_count"} == {
        "a": 3, "b": 1,
    }  # fmt: skip


def test_of_blocks_as_many_label_sets_are_shown_as_the_limit_says() -> None:
    registry = MetricsRegistry(limit=3)
    blocks: list[list[Sample]] = [[(("a",), 1), (("b",), 2)], [(("c",), 3), (("d",), 4)], [(("e",), 5)]]
    registry.counter_in_blocks("n_total", "About", lambda: blocks, ("topic",))
    assert [float(value) for value in _families(registry)["n"].values()] == [1, 2, 3]
    blocks[0] = [(("a",), 1)]
    assert [float(value) for value in _families(registry)["n"].values()] == [1, 3, 4]
    blocks[0] = [(("a",), 1), (("b",), 7)]
    assert [float(value) for value in _families(registry)["n"].values()] == [1, 7, 3]


def test_text_of_labels_that_are_gone_is_not_kept_for_ever() -> None:
    registry = MetricsRegistry()
    look = 0
    registry.gauge("messages", "About", lambda: [((f"topic-{look}",), 1.0)], ("topic",))
    for look in range(1000):
        assert f"topic-{look}" in "".join(map(str, registry.lines()))
    assert sum(map(len, registry._texts.values())) <= 100
