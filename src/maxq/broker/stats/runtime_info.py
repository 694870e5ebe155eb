"""The answer to GET_BROKER_RUNTIME_INFO (28): the store's numbers, and those of the broker around it.

Tools read these keys by name and fail on missing ones, so the ones of what is not there (timer wheel while it is off,
transient store pool) are told as idle.

Source:
    broker/processor/AdminBrokerProcessor.java, prepareRuntimeInfo.
"""

from collections.abc import Callable, Iterable
from pathlib import PurePath

from maxq.broker.bundles import Clients, Environment, Limits, Messages
from maxq.broker.longpolling.pull_request_hold_service import PullRequestHoldService
from maxq.broker.stats.broker_stats import BrokerStats
from maxq.codes import CURRENT_VERSION, MAXQ_VERSION
from maxq.replication.ha.ha_service import HAService

_NO_POOL = str(2**31 - 1)  # value that Java reports for the transient store pool while it is off
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


class RuntimeInfo:
    """Collects what GET_BROKER_RUNTIME_INFO answers (`maxq admin brokerStatus`)."""

    def __init__(
        self,
        env: Environment,
        clients: Clients,
        messages: Messages,
        limits: Limits,
        broker_stats: BrokerStats,
        hold_service: PullRequestHoldService,
        ha_service: HAService,
        sources: Iterable[Callable[[], dict[str, str]]],
    ) -> None:
        """`sources` return the entries of other parts; each is called at each collection, in this order."""
        settings = env.settings
        self._settings = settings
        self._disk = env.disk
        self._log_folder = PurePath(settings.store.store_path_commit_log or settings.store.store_path_root_dir)
        self._clock = env.clock
        self._stats = env.stats
        self._store = messages.store
        self._broker_stats = broker_stats
        self._fast_failure = limits.fast_failure
        self._hold_service = hold_service
        self._ha_service = ha_service
        self._consumers = clients.consumers
        self._sources = tuple(sources)
        self._boot_wall_ms = env.clock.wall_ms()
        self._boot_ms = env.clock.monotonic_ms()

    def collect(self) -> dict[str, str]:
        """Return every key; all values are texts."""
        return {
            **self._idle(),
            **self._store_numbers(),
            **self._broker_numbers(),
            **self._totals(),
            **self._queues(),
            **self._replication(),
            "peerConnectionsRefused": str(self._ha_service.peers.refused),
            **{key: value for source in self._sources for key, value in source().items()},
            "consumerGroupsSubscribingDifferently": ",".join(self._consumers.subscribing_differently()),
        }

    def _store_numbers(self) -> dict[str, str]:
        store, times = self._store, self._fast_failure.put_times
        numbers = store.runtime_info()
        ratio, _ = store.cleaner.disk_ratios()
        usage = self._disk.usage(self._log_folder)
        return {
            **numbers,
            "getTransferredTps": numbers["getTransferedTps"],  # both spellings have readers
            f"commitLogDiskRatio_{self._log_folder}": str(ratio),
            "commitLogDirCapacity": f"Total : {size_text(usage.total)}, Free : {size_text(usage.free)}.",
            "remainHowManyDataToFlush": size_text(store.max_physical_offset - store.flushed_offset),
            "dispatchMaxBuffer": "0",
            "putMessageFailedTimes": str(times.failed),
            "putMessageEntireTimeMax": str(times.longest_ms),
            "putMessageDistributeTime": times.distribution(),
            "putLatency99": times.percentile(0.99),
            "putLatency999": times.percentile(0.999),
            "getMessageEntireTimeMax": str(self._stats.longest_get_ms),
        }

    def _broker_numbers(self) -> dict[str, str]:
        broker = self._settings.broker
        return {
            "bootTimestamp": str(self._boot_wall_ms),
            "runtime": duration_text(self._clock.monotonic_ms() - self._boot_ms),
            "brokerActive": "true",
            "brokerRole": self._settings.store.broker_role,
            "masterAddress": self._store.master_address,
            "brokerVersion": str(int(CURRENT_VERSION)),
            "brokerVersionDesc": CURRENT_VERSION.name,
            "maxqVersion": MAXQ_VERSION,
            "startAcceptSendRequestTimeStamp": str(broker.start_accept_send_request_time_stamp),
            "pageCacheLockTimeMills": "0",  # an append is over before anybody can ask
            "refusedRequests": str(self._fast_failure.refused.total),
            "refusedOnewayRequests": str(self._fast_failure.refused.oneway_dropped),
        }

    def _totals(self) -> dict[str, str]:
        stats = self._broker_stats
        now = stats.now()
        return {
            "msgPutTotalYesterdayMorning": str(stats.yesterday_morning.put),
            "msgPutTotalTodayMorning": str(stats.today_morning.put),
            "msgPutTotalTodayNow": str(now.put),
            "msgGetTotalYesterdayMorning": str(stats.yesterday_morning.got),
            "msgGetTotalTodayMorning": str(stats.today_morning.got),
            "msgGetTotalTodayNow": str(now.got),
        }

    def _queues(self) -> dict[str, str]:
        broker, fast_failure = self._settings.broker, self._fast_failure
        waited = str(fast_failure.head_wait_ms())
        kinds = {
            "send": (fast_failure.sends.count, broker.send_thread_pool_queue_capacity),
            "pull": (fast_failure.pulls.count + self._hold_service.held_count, broker.pull_thread_pool_queue_capacity),
            "litePull": (0, broker.lite_pull_thread_pool_queue_capacity),
            "query": (0, broker.query_thread_pool_queue_capacity),
            "ack": (0, broker.accepted_value("ackThreadPoolQueueCapacity")),
        }
        table = {
            "EndTransactionQueueSize": "0",
            "EndTransactionThreadPoolQueueCapacity": str(broker.accepted_value("endTransactionPoolQueueCapacity")),
        }
        for kind, (size, capacity) in kinds.items():
            table[f"{kind}ThreadPoolQueueSize"] = str(size)
            table[f"{kind}ThreadPoolQueueCapacity"] = str(capacity)
            table[f"{kind}ThreadPoolQueueHeadWaitTimeMills"] = waited if size else "0"
        return table

    def _replication(self) -> dict[str, str]:
        """Return MaxQ's own keys, each one number that an alarm can watch."""
        info = self._ha_service.runtime_info()
        if not info.master:
            client = info.ha_client_runtime_info
            return {
                "haRole": "SLAVE",
                "haMasterAddress": client.master_addr or "",
                "haMasterConnected": str(self._ha_service.is_client_connected).lower(),
                "haTransferredBytesPerSecond": str(client.transferred_byte_in_second),
                "haLinkFailure": self._ha_service.client.failure,
                "haLinksRefused": str(self._ha_service.client.refused),
                "haLogIsAnother": str(self._ha_service.is_apart).lower(),
            }
        slaves = info.ha_connection_info
        return {
            "haRole": self._settings.store.broker_role,
            "haSlaves": str(len(slaves)),
            "haSlavesInSync": str(info.in_sync_slave_nums),
            "haSlavesSuspended": "; ".join(self._ha_service.suspended),
            "haLargestGapBytes": str(max((slave.diff for slave in slaves), default=0)),
            "haTransferredBytesPerSecond": str(sum(slave.transferred_byte_in_second for slave in slaves)),
        }

    @staticmethod
    def _idle() -> dict[str, str]:
        return {
            "timerReadBehind": "0",
            "timerOffsetBehind": "0",
            "timerCongestNum": "0",
            "timerEnqueueTps": "0.0",
            "timerDequeueTps": "0.0",
            "remainTransientStoreBufferNumbs": _NO_POOL,
        }


def duration_text(milliseconds: int) -> str:
    """`[ 0 days, 0 hours, 1 minutes, 9 seconds ]`, as Java's tools expect it."""
    seconds, minutes = milliseconds // 1000 % 60, milliseconds // 60_000 % 60
    hours, days = milliseconds // 3_600_000 % 24, milliseconds // 86_400_000
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def size_text(count: int) -> str:
    """Bytes in binary units: `0 B`, `4.9 KiB`, `252.0 GiB` (MixAll.humanReadableByteCount)."""
    if count < 1024:
        return f"{count} B"
    size, unit = float(count), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f} {_UNITS[unit]}"
