"""The numbers of a registry, as exporters get them, are those of its text."""

from maxq.runtime.metrics.families import Buckets, Family, Point, portions
from maxq.runtime.metrics.registry import MetricsRegistry


def read(registry: MetricsRegistry) -> list[Family]:
    return [family for family in registry.families() if family is not None]


def shown(name: str, kind: str, points: list[Point], buckets: list[Buckets] | None = None) -> Family:
    """A family whose help text is About."""
    return Family(name, kind, points, buckets or [], "About")


def test_counters_gauges_and_histograms_come_back_with_labels_and_values() -> None:
    registry = MetricsRegistry({"cluster": "C"})
    registry.counter("a_total", "About", ("topic",)).add(3, 'odd " \\ \n, {topic}="x"')
    registry.number("b", "About", lambda: -1.5)
    histogram = registry.histogram("c_milliseconds", "About", (1, 10), ("kind",))
    for value in (1, 5, 7, 100):
        histogram.observe(value, "x")
    histogram.observe(2, "y")
    assert read(registry) == [
        shown("a_total", "counter", [Point({"cluster": "C", "topic": 'odd " \\ \n, {topic}="x"'}, 3.0)]),
        shown("b", "gauge", [Point({"cluster": "C"}, -1.5)]),
        shown(
            "c_milliseconds", "histogram", [],
            [
                Buckets({"cluster": "C", "kind": "x"}, [1.0, 10.0], [1, 2, 1], 113.0),
                Buckets({"cluster": "C", "kind": "y"}, [1.0, 10.0], [0, 1, 0], 2.0),
            ],
        ),
    ]  # fmt: skip


def test_metrics_without_numbers_are_not_there() -> None:
    registry = MetricsRegistry()
    registry.counter("a_total", "About", ("topic",))
    assert read(registry) == []


def test_numbers_that_are_counted_elsewhere_and_come_in_blocks_have_the_labels_of_the_text() -> None:
    registry = MetricsRegistry({"cluster": "C"}, limit=3)
    registry.observed_counter("a_total", "About", lambda: [(("T", ""), 1), (("U", "g"), 2)], ("topic", "group"))
    registry.counter_in_blocks(
        "b_total", "About", lambda: [[(("T",), 1), (("U",), 2)], [], [(("V",), 3), (("W",), 4)]], ("topic",)
    )
    registry.histogram_in_blocks("c", "About", (1,), lambda: [[(("T",), [2, 1], 9.0)]], ("topic",))
    registry.observed_histogram("d", "About", (1,), lambda: [(("T",), [0, 1], 5.0)], ("topic",))
    assert read(registry) == [
        shown("a_total", "counter", [Point({"cluster": "C", "topic": "T"}, 1.0),
                                      Point({"cluster": "C", "group": "g", "topic": "U"}, 2.0)]),
        shown("b_total", "counter", [Point({"cluster": "C", "topic": topic}, value)
                                      for topic, value in (("T", 1.0), ("U", 2.0), ("V", 3.0))]),
        shown("c", "histogram", [], [Buckets({"cluster": "C", "topic": "T"}, [1.0], [2, 1], 9.0)]),
        shown("d", "histogram", [], [Buckets({"cluster": "C", "topic": "T"}, [1.0], [0, 1], 5.0)]),
    ]  # fmt: skip


def test_label_sets_above_the_limit_are_one() -> None:
    registry = MetricsRegistry({"cluster": "C"}, limit=1)
    counter = registry.counter("a_total", "About", ("topic",))
    for topic in ("T", "U", "V"):
        counter.add(1, topic)
    assert read(registry) == [
        shown("a_total", "counter", [Point({"cluster": "C", "topic": "T"}, 1.0),
                                      Point({"cluster": "C", "otel_metric_overflow": "true"}, 2.0)])
    ]  # fmt: skip


def test_the_loop_may_turn_between_the_rows_of_a_long_family() -> None:
    registry = MetricsRegistry()
    registry.gauge("a", "About", lambda: [((str(number),), number) for number in range(2_000)], ("n",))
    *turns, family = registry.families()
    assert set(turns) == {None} and len(turns) >= 3
    assert family is not None and [point.value for point in family.points] == list(range(2_000))


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
