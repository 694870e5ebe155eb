"""The periodic work of a broker (mission BR-09).

Waits are in seconds. Everything runs on the broker's loop; what writes files does so in the executor.

Source:
    broker/BrokerController.java, initializeBrokerScheduledTasks.
"""

import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo

from maxq.broker.bundles import Clients, Environment, Limits, Messages, Tables
from maxq.broker.longpolling.pull_request_hold_service import PullRequestHoldService
from maxq.broker.stats.broker_stats import BrokerStats
from maxq.broker.stats.broker_stats_manager import MINUTE_SAMPLE_SECONDS
from maxq.replication.ha.ha_service import HAService
from maxq.runtime.periodic import PeriodicTasks, Work
from maxq.runtime.refusals import Cause, explain

log = logging.getLogger(__name__)
water_mark_log = logging.getLogger("maxq.broker.watermark")

_FIRST = 10.0
_FILTER_PERSIST = 10.0
_PROTECT_BROKER = 180.0
_WATER_MARK = 1.0
_STORE_SAMPLE = 1.0
_DISPATCH_BEHIND = 60.0
_SLAVES_BEHIND = 60.0


class BrokerSchedule:
    """Starts the scheduled tasks and holds their state."""

    def __init__(
        self,
        env: Environment,
        tables: Tables,
        clients: Clients,
        messages: Messages,
        limits: Limits,
        broker_stats: BrokerStats,
        hold_service: PullRequestHoldService,
        ha_service: HAService,
    ) -> None:
        self._settings = env.settings
        self._clock = env.clock
        self._stats = env.stats
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._filters = clients.filters
        self._store = messages.store
        self._fast_failure = limits.fast_failure
        self._broker_stats = broker_stats
        self._hold_service = hold_service
        self._ha_service = ha_service
        self._tasks = PeriodicTasks()
        self._behind_before = 0
        self._slaves_behind_before: dict[str, int] = {}

    def start(self, others: Mapping[str, tuple[float, Work]]) -> None:
        """Start every task on the running loop. `others` are the tasks of other parts: name → seconds between two runs,
        and the function."""
        every = self._tasks.every
        every("statistics", MINUTE_SAMPLE_SECONDS, self._stats.sample)
        every("store statistics", _STORE_SAMPLE, self.sample_store)
        every("broker stats record", self._until_midnight, self._broker_stats.record)
        every("offset persist", self._offset_interval, self._offsets.request_persist, first=_FIRST)
        every("filter persist", _FILTER_PERSIST, self._filters.clean_and_persist, first=_FIRST)
        every("protect broker", _PROTECT_BROKER, self.protect_broker)
        every("water mark", _WATER_MARK, self.print_water_mark, first=_FIRST)
        every("dispatch behind", _DISPATCH_BEHIND, self.print_dispatch_behind, first=_FIRST)
        every("slaves behind", _SLAVES_BEHIND, self.print_slaves_behind, first=_FIRST)
        for name, (seconds, work) in others.items():
            every(name, seconds, work, first=_FIRST)

    async def stop(self) -> None:
        await self._tasks.stop()

    def names(self) -> list[str]:
        """Return the names of the tasks that the broker runs at intervals."""
        return self._tasks.names()

    # ---- the tasks --------------------------------------------------------------------------------------------

    def sample_store(self) -> None:
        """Sample the counters from which GET_BROKER_RUNTIME_INFO computes rates."""
        self._store.stats.sample(self._broker_stats.now().put)

    def protect_broker(self) -> None:
        """Disable groups that read so far behind that they push the other readers' data out of the page cache."""
        broker = self._settings.broker
        if not broker.disable_consume_if_consumer_read_slowly:
            return
        for group, behind in self._stats.groups_behind(broker.consumer_fallbehind_threshold).items():
            why = explain(
                Cause.CONSUMER_BEHIND,
                f"consumption of group {group} is switched off: it was {behind} bytes behind",
                limit=f"{broker.consumer_fallbehind_threshold} (consumerFallbehindThreshold)",
                remedy="switch it on again with updateSubGroup -s true",
            )
            if self._groups.disable_consume(group, why):
                log.warning("%s", why)

    def print_water_mark(self) -> None:
        """Log unfinished and refused requests; nothing if there are neither."""
        fast_failure, held = self._fast_failure, self._hold_service.held_count
        unfinished = fast_failure.unfinished()
        if unfinished:
            text = ", ".join(f"{kind.name} {kind.count} (peak {kind.peak})" for kind in unfinished)
            water_mark_log.info("[WATERMARK] unfinished: %s; parked pulls %d", text, held)
        fast_failure.report()

    def print_dispatch_behind(self) -> None:
        """Log how many bytes of the log are not dispatched yet; nothing if there are none."""
        behind = self._store.dispatch_behind_bytes
        if behind or self._behind_before:
            log.info("dispatch task is behind the log by %d bytes", behind)
        self._behind_before = behind

    def print_slaves_behind(self) -> None:
        """Log how many bytes each slave lags behind; nothing if none does (printMasterAndSlaveDiff)."""
        info = self._ha_service.runtime_info()
        behind = {slave.addr: slave.diff for slave in info.ha_connection_info if slave.diff > 0}
        caught_up = self._slaves_behind_before.keys() - behind.keys()
        for address, size in behind.items():
            log.info("slave %s is behind the log by %d bytes", address, size)
        for address in sorted(caught_up):
            log.info("slave %s has caught up with the log, or has disconnected", address)
        self._slaves_behind_before = behind

    # ---- when -------------------------------------------------------------------------------------------------

    def _offset_interval(self) -> float:
        return self._settings.broker.flush_consumer_offset_interval / 1000

    def _until_midnight(self) -> float:
        return seconds_until_midnight(self._clock.wall_ms())


def seconds_until_midnight(wall_ms: int, zone: tzinfo = UTC) -> float:
    """Returns the seconds from `wall_ms` (milliseconds since 1970) to the next local midnight, at least one."""
    now = datetime.fromtimestamp(wall_ms / 1000, zone)
    midnight = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    return max(1.0, (midnight - now).total_seconds())
