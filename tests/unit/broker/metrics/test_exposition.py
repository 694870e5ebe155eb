"""What a registry writes is read back as the same numbers."""

from maxq.broker.metrics.exposition import Buckets, Family, Point, families, portions
from maxq.runtime.metrics.registry import MetricsRegistry


def read(registry: MetricsRegistry) -> list[Family]:
    return list(families("".join(registry.lines()).splitlines()))


def test_counters_gauges_and_histograms_come_back_with_labels_and_values() -> None:
    registry = MetricsRegistry({"cluster": "C"})
    registry.counter("a_total", ("topic",)).add(3, 'odd " \\ \n, {topic}="x"')
    registry.number("b", lambda: -1.5)
    histogram = registry.histogram("c_milliseconds", (1, 10), ("kind",))
    for value in (1, 5, 7, 100):
        histogram.observe(value, "x")
    histogram.observe(2, "y")
    assert read(registry) == [
        Family("a_total", "counter", [Point({"cluster": "C", "topic": 'odd " \\ \n, {topic}="x"'}, 3.0)]),
        Family("b", "gauge", [Point({"cluster": "C"}, -1.5)]),
        Family(
            "c_milliseconds", "histogram", [],
            [
                Buckets({"cluster": "C", "kind": "x"}, [1.0, 10.0], [1, 2, 1], 113.0),
                Buckets({"cluster": "C", "kind": "y"}, [1.0, 10.0], [0, 1, 0], 2.0),
            ],
        ),
    ]  # fmt: skip


def test_metrics_without_numbers_are_not_there() -> None:
    registry = MetricsRegistry()
    registry.counter("a_total", ("topic",))
    assert read(registry) == []


def test_portions_cut_families_where_a_request_is_full() -> None:
    points = [Point({"n": str(number)}, number) for number in range(5)]
    buckets = [Buckets({"n": str(number)}, [1.0], [1, 0], 1.0) for number in range(2)]
    found = [Family("a", "gauge", points), Family("none", "gauge"), Family("b", "histogram", [], buckets)]
    assert list(portions(found, 3)) == [
        [Family("a", "gauge", points[:3])],
        [Family("a", "gauge", points[3:]), Family("b", "histogram", [], buckets[:1])],
        [Family("b", "histogram", [], buckets[1:])],
    ]
    assert list(portions(found, 100)) == [[found[0], found[2]]]
