"""PullPlans: what repeated pulls were checked for, by the key of the request.

PullMessageProcessor adds what it has checked (`remember`), PullPath answers the next pull with the same key from it.
"""

from collections.abc import Iterable
from typing import Final

from maxq.broker.bundles import Clients, Environment, Tables
from maxq.broker.fast_path.pull_answers_cy import PullPlan
from maxq.broker.processors.pull.pull_read_rules import ReadRules
from maxq.codes import CURRENT_VERSION
from maxq.protocol.body.subscription import SubscriptionData, SubscriptionGroupConfig
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.header.pull import (
    PULL_FLAG_COMMIT_OFFSET,
    PULL_FLAG_SUBSCRIPTION,
    PULL_FLAG_SUSPEND,
    PullMessageRequestHeader,
)
from maxq.runtime.bounded_cache import BoundedCache
from maxq.store.queue.property_filter import PropertyFilter
from maxq.store.read.message_reader import tags_codes

_MAX_BYTES: Final = 128 << 20  # most bytes of a pull that states no limit
_MAX_PLANS: Final = 50_000
# bytes; the number of longer keys is limited by their total size, because expressions can be long
_SHORT_KEY: Final = 512
_LONG_KEYS: Final = 1 << 20

_HEAD = (
    '{"code":0,"extFields":{"suggestWhichBrokerId":"%%d","nextBeginOffset":"%%d","minOffset":"%%d","maxOffset":"%%d",'
    '"topicSysFlag":"%d","groupSysFlag":"%d"},"flag":1,"language":"PYTHON","opaque":%%d,"remark":"FOUND",'
    '"serializeTypeCurrentRPC":"JSON","version":%d}'
)


class PullPlans:
    """The plans of one broker.

    Attributes:
        rules: decides which readers are served here, and which are sent to another broker.
    """

    def __init__(self, env: Environment, tables: Tables, clients: Clients, rules: ReadRules) -> None:
        self._settings = env.settings
        self._groups = tables.groups
        self._is_static = tables.mappings.is_static
        self._filters = clients.filters
        self._plans: BoundedCache[bytes, PullPlan] = BoundedCache(
            _MAX_PLANS, _LONG_KEYS, lambda key: max(0, len(key) - _SHORT_KEY)
        )
        self.rules = rules

    def get(self, key: bytes) -> PullPlan | None:
        """Return the plan for requests with this key (PullScanner.key), None if there is none."""
        return self._plans.get(key)

    def forget_all(self) -> None:
        """Drop all plans, because they may be wrong (a topic has become static)."""
        self._plans.clear()

    def topics_changed(self, changed: list[TopicConfig], deleted: list[str]) -> None:
        """Remove what is remembered of pulls from deleted topics."""
        if gone := frozenset(deleted):
            self._plans.forget(lambda _, plan: plan.topic_name in gone)

    def groups_changed(self, names: Iterable[str]) -> None:
        """Remove what is remembered of the pulls of deleted consumer groups."""
        if gone := frozenset(names) - self._groups.subscription_group_table.keys():
            self._plans.forget(lambda _, plan: plan.group_name in gone)

    def remember(
        self,
        header: PullMessageRequestHeader,
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
        subscription: SubscriptionData,
        wanted: PropertyFilter | None,
    ) -> None:
        """Remember a pull that passed every check, and found messages or may wait for some. Pulls of static topics are
        not remembered: their queue ids are not what the reader sends."""
        if self._is_static(header.topic):
            return
        broker = self._settings.broker
        from_heartbeat = not header.sys_flag & PULL_FLAG_SUBSCRIPTION
        if (
            (
                wanted is not None
                and from_heartbeat
                and self._registered(header.topic, header.consumer_group) is not wanted
            )
            or not group.consume_broadcast_enable
            or broker.reject_pull_consumer_enable
            or (self.rules.is_slave and not broker.slave_read_enable)  # readable only while it acts as master
        ):
            return
        codes = tags_codes(subscription)
        plan = PullPlan(
            broker=broker,
            store=self._settings.store,
            group_name=header.consumer_group,
            topic_name=header.topic,
            queue_id=header.queue_id,
            max_msg_nums=header.max_msg_nums,
            max_msg_bytes=_MAX_BYTES if header.max_msg_bytes is None else header.max_msg_bytes,
            commits=bool(header.sys_flag & PULL_FLAG_COMMIT_OFFSET),
            suspends=bool(header.sys_flag & PULL_FLAG_SUSPEND),
            suspend_ms=header.suspend_timeout_millis,
            topic=topic,
            group=group,
            subscription=subscription,
            wanted=wanted,
            from_heartbeat=from_heartbeat,
            codes=None if codes is None else frozenset(codes),
            head=(_HEAD % (topic.topic_sys_flag, group.group_sys_flag, CURRENT_VERSION)).encode(),
        )
        self._plans.keep(plan_key(header), plan)

    def _registered(self, topic: str, group: str) -> PropertyFilter | None:
        """Return the filter that the group's heartbeats registered."""
        entry = self._filters.get(topic, group)
        return None if entry is None else entry.wanted


def plan_key(header: PullMessageRequestHeader) -> bytes:
    """Return the key that PullScanner reads from this request's header."""
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
