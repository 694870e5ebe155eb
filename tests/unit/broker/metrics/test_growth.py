"""What a collector is told in delta adds up to what was counted, whatever it takes and refuses."""

from maxq.broker.metrics.growth import Growth
from maxq.runtime.metrics.families import Buckets, Family, Point


def counted(value: float, topic: str = "T") -> Family:
    return Family("in_total", "counter", [Point({"topic": topic}, value)])


def told(growth: Growth, *part: Family, taken: bool = True) -> list[float]:
    """Values of a round of one part."""
    found = growth.of(part)
    if taken:
        growth.taken()
    growth.end_round(complete=taken)
    return [point.value for family in found for point in family.points]


def test_a_counter_is_told_by_what_it_grew() -> None:
    growth = Growth()
    assert [told(growth, counted(value)) for value in (3, 3, 10)] == [[3], [0], [7]]


def test_what_was_not_taken_is_told_again() -> None:
    growth = Growth()
    assert told(growth, counted(3)) == [3]
    assert told(growth, counted(5), taken=False) == [2]
    assert told(growth, counted(9)) == [6]


def test_of_a_round_in_parts_only_those_that_were_taken_are_done() -> None:
    growth = Growth()
    growth.of([counted(3, "A")])
    growth.taken()
    growth.of([counted(4, "B")])  # refused
    growth.end_round(complete=False)
    assert told(growth, counted(5, "A"), counted(6, "B")) == [2, 6]


def test_a_counter_that_began_anew_is_new() -> None:
    growth = Growth()
    assert [told(growth, counted(value)) for value in (5, 2, 3)] == [[5], [2], [1]]
    assert told(growth) == []  # the topic is gone,
    assert told(growth, counted(4)) == [4]  # and there again


def test_histograms_grow_by_bucket_and_gauges_do_not_grow() -> None:
    growth = Growth()
    gauge = Family("held", "gauge", [Point({}, 7.0)])

    def sizes(counts: list[int], total: float) -> Family:
        return Family("size", "histogram", [], [Buckets({}, [1.0, 10.0], counts, total)])

    growth.of([gauge, sizes([1, 2, 0], 9.0)])
    growth.taken()
    growth.end_round(complete=True)
    again, grown = growth.of([gauge, sizes([1, 3, 1], 40.0)])
    assert again == gauge
    assert grown.buckets == [Buckets({}, [1.0, 10.0], [0, 1, 1], 31.0)]
    assert all(isinstance(count, int) for count in grown.buckets[0].counts)
