"""Messages put and got by this morning and by yesterday morning (BrokerStats.java)."""

from collections.abc import Callable

from maxq.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class MorningTotals:
    """How many messages were put and got between the start of the broker and one midnight."""

    put: int = 0
    got: int = 0


class BrokerStats:
    """Remembers the totals of the last two midnights; call `record` at each midnight."""

    def __init__(self, put_total: Callable[[], int], got_total: Callable[[], int]) -> None:
        self._put_total = put_total
        self._got_total = got_total
        self.yesterday_morning = MorningTotals()
        self.today_morning = MorningTotals()

    def record(self) -> None:
        """Record midnight: today's morning becomes yesterday's."""
        self.yesterday_morning = self.today_morning
        self.today_morning = self.now()

    def now(self) -> MorningTotals:
        return MorningTotals(self._put_total(), self._got_total())
