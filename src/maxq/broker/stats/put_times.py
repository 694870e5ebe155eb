"""How long appends took (StoreStatsService.java: putMessageDistributeTime, putLatency99 …)."""

#: Upper bounds of the buckets that tools print, in milliseconds, and their names.
_BUCKETS = (
    (0, "[<=0ms]"), (10, "[0~10ms]"), (50, "[10~50ms]"), (100, "[50~100ms]"), (200, "[100~200ms]"),
    (500, "[200~500ms]"), (1000, "[500ms~1s]"), (2000, "[1~2s]"), (3000, "[2~3s]"), (4000, "[3~4s]"),
    (5000, "[4~5s]"), (10_000, "[5~10s]"),
)  # fmt: skip
_REST = "[10s~]"
_FINE_BELOW_MS = 1000  # longer times are counted in steps of this, so that few different ones are kept


class PutTimes:
    """A histogram of the times of appends since the start, in milliseconds."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {0: 0}
        self.longest_ms = 0
        self.failed = 0  # puts that the store refused

    def took(self, milliseconds: int) -> None:
        """Count one append. Nearly all take 0 ms, so that case is the cheapest."""
        if milliseconds == 0:
            self._counts[0] += 1
            return
        if milliseconds > self.longest_ms:
            self.longest_ms = milliseconds
        if milliseconds > _FINE_BELOW_MS:
            milliseconds -= milliseconds % _FINE_BELOW_MS
        self._counts[milliseconds] = self._counts.get(milliseconds, 0) + 1

    def distribution(self) -> str:
        """Return `[<=0ms]:20 [0~10ms]:15 … [10s~]:0 `, with the blank at its end."""
        counts = dict.fromkeys([name for _, name in _BUCKETS], 0) | {_REST: 0}
        for milliseconds, count in self._counts.items():
            name = next((name for bound, name in _BUCKETS if milliseconds <= bound), _REST)
            counts[name] += count
        return "".join(f"{name}:{count} " for name, count in counts.items())

    def percentile(self, share: float) -> str:
        """Return the time that `share` of the appends did not exceed, such as `24.00`."""
        wanted = share * sum(self._counts.values())
        seen = 0
        for milliseconds in sorted(self._counts):
            seen += self._counts[milliseconds]
            if seen >= wanted:
                return f"{milliseconds:.2f}"
        return "0.00"
