"""What a broker does from time to time (mission BR-09).

Waits are in seconds. Everything runs on the broker's loop; what writes files does so in the executor.

Source:
    broker/BrokerController.java, initializeBrokerScheduledTasks.
"""

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo

from maxq.broker.client.housekeeping import ClientHousekeepingService
from maxq.broker.fast_failure import FastFailure
from maxq.broker.filter.consumer_filter_manager import ConsumerFilterManager
from maxq.broker.identity.registration import BrokerRegistration
from maxq.broker.longpolling.pull_request_hold_service import PullRequestHoldService
from maxq.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from maxq.broker.periodic import PeriodicTasks
from maxq.broker.stats.broker_stats import BrokerStats
from maxq.broker.stats.broker_stats_manager import MINUTE_SAMPLE_SECONDS, BrokerStatsManager
from maxq.broker.subscription.subscription_group_manager import SubscriptionGroupManager
from maxq.config.settings import BrokerSettings
from maxq.lazy_dataclass import dataclass
from maxq.replication.ha.ha_service import HAService
from maxq.runtime.interfaces import Clock
from maxq.runtime.refusals import Cause, explain
from maxq.store.message_store import MessageStore

log = logging.getLogger(__name__)
water_mark_log = logging.getLogger("maxq.broker.watermark")

_FIRST = 10.0
_FILTER_PERSIST = 10.0
_PROTECT_BROKER = 180.0
_WATER_MARK = 1.0
_STORE_SAMPLE = 1.0
_DISPATCH_BEHIND = 60.0
_SLAVES_BEHIND = 60.0
_CHANNEL_SCAN = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledParts:
    """What the tasks work on."""

    settings: BrokerSettings
    clock: Clock
    store: MessageStore
    stats: BrokerStatsManager
    broker_stats: BrokerStats
    offsets: ConsumerOffsetManager
    groups: SubscriptionGroupManager
    filters: ConsumerFilterManager
    registration: BrokerRegistration
    refresh_name_servers: Callable[[], None]
    housekeeping: ClientHousekeepingService
    hold_service: PullRequestHoldService
    fast_failure: FastFailure
    ha_service: HAService


class BrokerSchedule:
    """Starts the scheduled tasks and holds what little state they have."""

    def __init__(self, parts: ScheduledParts) -> None:
        self._parts = parts
        self._tasks = PeriodicTasks()
        self._behind_before = 0
        self._slaves_behind_before: dict[str, int] = {}

    def start(self) -> None:
        """Start every task on the running loop."""
        parts, every = self._parts, self._tasks.every
        broker = parts.settings.broker
        every("statistics", MINUTE_SAMPLE_SECONDS, parts.stats.sample)
        every("store statistics", _STORE_SAMPLE, self.sample_store)
        every("broker stats record", self._until_midnight, parts.broker_stats.record)
        every("offset persist", self._offset_interval, parts.offsets.request_persist, first=_FIRST)
        every("filter persist", _FILTER_PERSIST, parts.filters.clean_and_persist, first=_FIRST)
        every("protect broker", _PROTECT_BROKER, self.protect_broker)
        every("water mark", _WATER_MARK, self.print_water_mark, first=_FIRST)
        every("dispatch behind", _DISPATCH_BEHIND, self.print_dispatch_behind, first=_FIRST)
        every("slaves behind", _SLAVES_BEHIND, self.print_slaves_behind, first=_FIRST)
        every("name server address", broker.update_name_server_addr_period / 1000, parts.refresh_name_servers,
              first=_FIRST)  # fmt: skip
        every("register", broker.register_name_server_period / 1000, parts.registration.register_now, first=_FIRST)
        every("client channels", _CHANNEL_SCAN, parts.housekeeping.scan, first=_FIRST)

    async def stop(self) -> None:
        await self._tasks.stop()

    def names(self) -> list[str]:
        """What is scheduled."""
        return self._tasks.names()

    # ---- the tasks --------------------------------------------------------------------------------------------

    def sample_store(self) -> None:
        """The rates that GET_BROKER_RUNTIME_INFO shows."""
        self._parts.store.stats.sample(self._parts.broker_stats.now().put)

    def protect_broker(self) -> None:
        """Switch off groups that read so far behind that they cost everybody else the page cache."""
        broker = self._parts.settings.broker
        if not broker.disable_consume_if_consumer_read_slowly:
            return
        for group, behind in self._parts.stats.groups_behind(broker.consumer_fallbehind_threshold).items():
            why = explain(
                Cause.CONSUMER_BEHIND,
                f"consumption of group {group} is switched off: it was {behind} bytes behind",
                limit=f"{broker.consumer_fallbehind_threshold} (consumerFallbehindThreshold)",
                remedy="switch it on again with updateSubGroup -s true",
            )
            if self._parts.groups.disable_consume(group, why):
                log.warning("%s", why)

    def print_water_mark(self) -> None:
        """Log what is unfinished and what was refused; nothing while there is neither."""
        fast_failure, held = self._parts.fast_failure, self._parts.hold_service.held_count
        unfinished = fast_failure.unfinished()
        if unfinished:
            text = ", ".join(f"{kind.name} {kind.count} (peak {kind.peak})" for kind in unfinished)
            water_mark_log.info("[WATERMARK] unfinished: %s; parked pulls %d", text, held)
        fast_failure.report()

    def print_dispatch_behind(self) -> None:
        """Log how much of the log is not in the queues yet, while that is so."""
        behind = self._parts.store.dispatch_behind_bytes
        if behind or self._behind_before:
            log.info("dispatch task is behind the log by %d bytes", behind)
        self._behind_before = behind

    def print_slaves_behind(self) -> None:
        """Log which slaves lack how much of the log, while that is so (printMasterAndSlaveDiff)."""
        info = self._parts.ha_service.runtime_info()
        behind = {slave.addr: slave.diff for slave in info.ha_connection_info if slave.diff > 0}
        caught_up = self._slaves_behind_before.keys() - behind.keys()
        for address, size in behind.items():
            log.info("slave %s is behind the log by %d bytes", address, size)
        for address in sorted(caught_up):
            log.info("slave %s is no longer behind the log, or gone", address)
        self._slaves_behind_before = behind

    # ---- when -------------------------------------------------------------------------------------------------

    def _offset_interval(self) -> float:
        return self._parts.settings.broker.flush_consumer_offset_interval / 1000

    def _until_midnight(self) -> float:
        return seconds_until_midnight(self._parts.clock.wall_ms())


def seconds_until_midnight(wall_ms: int, zone: tzinfo = UTC) -> float:
    """From `wall_ms` (milliseconds since 1970) to the next midnight, at least a second."""
    now = datetime.fromtimestamp(wall_ms / 1000, zone)
    midnight = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    return max(1.0, (midnight - now).total_seconds())
