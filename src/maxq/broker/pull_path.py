"""The batch path of repeated pulls: what a reader asks again and again is checked once and remembered.

A consumer's pulls of one queue differ in offset and opaque only. When the PullMessageProcessor has let one through, it
teaches this path what the checks found (`learn`): a PullPlan under the key of the request
(protocol/request_scanners_cy, PULL_KEY_FIELDS). The next pull with that key is answered from the plan, as long as
everything the checks looked at is still the same object; settings, topic and group configs and subscriptions are
replaced on change, never mutated, so identity says it. Only pulls that find messages are answered here, on a master and
on a slave that may be read; each answer says which broker to ask next (processors/pull_read_rules.py). Whatever else
comes out (nothing there, offset moved, cold data, a pending reset) is left to the processor, which asks the store again
and knows what to say.
"""

from typing import NamedTuple

from maxq.access.guard import Guard
from maxq.broker.client.consumer_manager import ConsumerManager
from maxq.broker.filter.consumer_filter_manager import ConsumerFilterManager
from maxq.broker.metrics.rpc_latency import RpcLatency
from maxq.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from maxq.broker.processors.pull_read_rules import ReadRules
from maxq.broker.quota.quotas import Quotas
from maxq.broker.stats import names
from maxq.broker.stats.broker_stats_manager import BrokerStatsManager, GetCounter
from maxq.broker.subscription.subscription_group_manager import SubscriptionGroupManager
from maxq.broker.topic.topic_config_manager import TopicConfigManager
from maxq.codes import CURRENT_VERSION
from maxq.config.broker_config import BrokerConfig
from maxq.config.message_store_config import MessageStoreConfig
from maxq.config.settings import BrokerSettings
from maxq.protocol.body.subscription import SubscriptionData, SubscriptionGroupConfig
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.header.pull import PullMessageRequestHeader
from maxq.protocol.request_scanners_cy import PullScanner
from maxq.remoting.server import Connection
from maxq.runtime.interfaces import Clock
from maxq.store.message_store import MessageStore
from maxq.store.property_filter import PropertyFilter
from maxq.store.store_results import GetMessageStatus

_COMMIT_OFFSET = 1  # bits of a pull's sysFlag
_SUBSCRIPTION = 4
_MAX_BYTES = 128 << 20  # of a pull that names no limit
_MAX_PLANS = 50_000

_HEAD = (
    '{"code":0,"extFields":{"groupSysFlag":"%d","maxOffset":"%%d","minOffset":"%%d","nextBeginOffset":"%%d",'
    '"suggestWhichBrokerId":"%%d","topicSysFlag":"%d"},"flag":1,"language":"PYTHON","opaque":%%d,"remark":"FOUND",'
    '"serializeTypeCurrentRPC":"JSON","version":%d}'
)


class PullPlan(NamedTuple):
    """What the checks of one pull found."""

    broker: BrokerConfig
    store: MessageStoreConfig  # the role is in it
    group_name: str
    topic_name: str
    queue_id: int
    max_msg_nums: int
    max_msg_bytes: int
    commits: bool  # the pull carries an offset to commit
    topic: TopicConfig
    group: SubscriptionGroupConfig
    subscription: SubscriptionData
    wanted: PropertyFilter | None  # filter on properties
    from_heartbeat: bool  # the subscription is the group's, not the request's own
    counter: GetCounter
    head: str  # JSON header of the answer, but for five numbers


class PullPath:
    """One per broker."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        consumers: ConsumerManager,
        filters: ConsumerFilterManager,
        stats: BrokerStatsManager,
        clock: Clock,
        rules: ReadRules,
        quotas: Quotas,
        guard: Guard | None = None,
    ) -> None:
        self._settings = settings
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._consumers = consumers
        self._filters = filters
        self._stats = stats
        self._clock = clock
        self._rules = rules
        self._quotas = quotas
        self.rpc_latency: RpcLatency | None = None  # to be told of what is answered here
        self._guard = guard
        self._scanner = PullScanner()
        if guard is not None:
            self._scanner.expect_signatures()
        self._plans: dict[bytes, PullPlan] = {}

    def forget_all(self) -> None:
        """What was learned may be wrong now (a topic has become static)."""
        self._plans.clear()

    def learn(
        self,
        header: PullMessageRequestHeader,
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
        subscription: SubscriptionData,
        wanted: PropertyFilter | None,
    ) -> None:
        """A pull like this one passed every check and found messages."""
        broker = self._settings.broker
        from_heartbeat = not header.sys_flag & _SUBSCRIPTION
        if (
            (
                wanted is not None
                and from_heartbeat
                and self._registered(header.topic, header.consumer_group) is not wanted
            )
            or not group.consume_broadcast_enable
            or broker.reject_pull_consumer_enable
            or (self._rules.is_slave and not broker.slave_read_enable)  # it is acting master, for now
        ):
            return
        if len(self._plans) >= _MAX_PLANS:
            self._plans.clear()
        self._plans[plan_key(header)] = PullPlan(
            broker,
            self._settings.store,
            header.consumer_group,
            header.topic,
            header.queue_id,
            header.max_msg_nums,
            _MAX_BYTES if header.max_msg_bytes is None else header.max_msg_bytes,
            bool(header.sys_flag & _COMMIT_OFFSET),
            topic,
            group,
            subscription,
            wanted,
            from_heartbeat,
            self._stats.get_counter(header.consumer_group, header.topic, header.queue_id),
            _HEAD % (group.group_sys_flag, topic.topic_sys_flag, CURRENT_VERSION),
        )

    def __call__(self, connection: Connection, buffer: bytearray, start: int, end: int) -> int:
        """Answer the pull at `start` if there is a plan for it; the position behind it, or `start`."""
        scanner = self._scanner
        behind = scanner.scan(buffer, start, end)
        if behind == start or scanner.binary or connection.excluded_codes:
            return start
        plan = self._plans.get(scanner.key)
        if (
            plan is None
            or not self._holds(plan)
            or (self._guard is not None and not self._may(self._guard, connection))
        ):
            return start
        if self._quotas.limits_pulls and self._quotas.is_limited_reader(plan.group_name, connection):
            return start
        began_ms = self._clock.monotonic_ms()
        topic, group, queue_id = plan.topic_name, plan.group_name, plan.queue_id
        result = self._store.get_message(
            group,
            topic,
            queue_id,
            scanner.queue_offset,
            plan.max_msg_nums,
            plan.subscription,
            max_bytes=plan.max_msg_bytes,
            wanted=plan.wanted,
            may_wait=True,
        )
        if result.status is not GetMessageStatus.FOUND or result.cold:
            return start
        if plan.commits:
            self._offsets.commit_offset(connection.remote_address, group, topic, queue_id, scanner.commit_offset)
        self._offsets.commit_pull_offset(connection.remote_address, group, topic, queue_id, result.next_begin_offset)
        if result.filtered_count:
            self._stats.add(names.GROUP_FILTERED_NUMS, f"{topic}@{group}", result.filtered_count)
        latency_ms = self._clock.monotonic_ms() - began_ms
        if latency_ms > self._stats.longest_get_ms:
            self._stats.longest_get_ms = latency_ms
        plan.counter.add(result.message_count, result.total_bytes, latency_ms, False)
        if self.rpc_latency is not None:
            self.rpc_latency.pull(latency_ms)
        plan.counter.fall_behind_bytes = max(0, self._store.max_physical_offset - result.last_physical_offset)
        suggested_id = self._rules.suggest(plan.group, result.suggest_pulling_from_slave)
        head = plan.head % (
            result.max_offset, result.min_offset, result.next_begin_offset, suggested_id, scanner.opaque
        )  # fmt: skip
        size = len(head)
        lengths = (4 + size + result.total_bytes).to_bytes(4, "big") + size.to_bytes(4, "big")
        connection.write([lengths + head.encode(), *result.buffers])
        return behind

    def _may(self, guard: Guard, connection: Connection) -> bool:
        """Has the guard let such a pull through on this connection, and is this one signed by the same user?"""
        scanner = self._scanner
        group, topic, _ = scanner.key.split(b"\0", 2)
        return guard.session(connection).admits(scanner.code, scanner, group, topic)

    def _holds(self, plan: PullPlan) -> bool:
        """Is everything the checks looked at still as it was?"""
        if (
            self._settings.broker is not plan.broker
            or self._settings.store is not plan.store
            or self._topics.topic_config_table.get(plan.topic_name) is not plan.topic
            or self._groups.subscription_group_table.get(plan.group_name) is not plan.group
            or self._offsets.has_offset_reset(plan.topic_name, plan.group_name, plan.queue_id)
        ):
            return False
        if not plan.from_heartbeat:
            return True
        if plan.wanted is not None and self._registered(plan.topic_name, plan.group_name) is not plan.wanted:
            return False
        info = self._consumers.get_consumer_group_info(plan.group_name)
        return (
            info is not None
            and info.find_subscription_data(plan.topic_name) is plan.subscription
            and not self._groups.is_forbidden(plan.group_name, plan.topic_name, 2)
        )

    def _registered(self, topic: str, group: str) -> PropertyFilter | None:
        """The filter that the group's heartbeats registered."""
        entry = self._filters.get(topic, group)
        return None if entry is None else entry.wanted


def plan_key(header: PullMessageRequestHeader) -> bytes:
    """The key PullScanner reads off such a request."""
    fields = (
        header.consumer_group,
        header.topic,
        header.queue_id,
        header.max_msg_nums,
        header.sys_flag,
        header.suspend_timeout_millis,
        header.sub_version,
        header.subscription or "",
        header.expression_type or "",
        "" if header.max_msg_bytes is None else header.max_msg_bytes,
    )
    return "".join(f"{field}\0" for field in fields).encode()
