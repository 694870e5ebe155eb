"""Latencies in logarithmic buckets: 64 per doubling, so a quantile is off by less than 1.6 %."""

_SUB = 64
_SUB_BITS = 6
_BUCKETS = 64 * _SUB
_UNIT_NS = 100


class Histogram:
    """Counts of durations in nanoseconds; quantiles in microseconds."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts = [0] * _BUCKETS

    def add(self, duration_ns: int) -> None:
        """Count one duration; a negative one (clock adjusted) counts as 0."""
        units = duration_ns // _UNIT_NS
        if units < _SUB:
            self.counts[units if units > 0 else 0] += 1
            return
        shift = units.bit_length() - _SUB_BITS - 1
        self.counts[(shift + 1) * _SUB + ((units >> shift) & (_SUB - 1))] += 1

    def merge(self, counts: list[int]) -> None:
        """Add another histogram's counts."""
        self.counts = [mine + other for mine, other in zip(self.counts, counts, strict=True)]

    def quantile(self, share: float) -> float:
        """The duration in µs that `share` of all do not exceed; 0 if there are none."""
        total = sum(self.counts)
        if not total:
            return 0.0
        wanted = max(1, -(-int(share * total * 1_000_000) // 1_000_000))
        seen = 0
        for bucket, count in enumerate(self.counts):
            seen += count
            if seen >= wanted:
                return _low_end(bucket) * _UNIT_NS / 1000
        return 0.0

    def summary(self) -> dict[str, float]:
        """p50, p99, p99.9 and max in µs."""
        names = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
        return {name: round(self.quantile(share), 1) for name, share in names.items()}


def _low_end(bucket: int) -> int:
    if bucket < _SUB:
        return bucket
    shift = bucket // _SUB - 1
    return (_SUB + bucket % _SUB) << shift
