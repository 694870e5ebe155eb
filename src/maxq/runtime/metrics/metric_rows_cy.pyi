from collections.abc import Sequence

class HistogramRows:
    """How the lines of one histogram look."""

    def __init__(self, name: str, bounds: Sequence[float]) -> None: ...
    def text(self, labels: str, counts: Sequence[int], total_value: float) -> str:
        """The lines of one label set: buckets, count, sum.

        Args:
            labels: what stands between the braces.
            counts: of each bucket, the last one above all bounds; none is negative.
            total_value: the sum of all values.
        """

def is_compiled() -> bool: ...
