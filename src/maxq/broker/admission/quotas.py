"""Quotas: limits of topics, groups and users, and what happens to requests above them.

A topic's quota limits the messages sent to it, a group's quota the messages delivered to it, and a user's quota (by the
access key of requests) both together. Topics and groups have theirs as attributes, users in the setting `userQuotas`;
all of them are kept in files that exist anyway, and live.

*Sends* to a topic above its quota are answered code 2 (SYSTEM_BUSY), which clients take for flow control. The path of
fast-path sends pays nothing: the store counts messages and bytes of each topic anyway; a timer, which exists only while
there are quotas, looks at the counters of limited topics every few milliseconds and takes a topic that is above its
quota off that path until its debt is over. Meanwhile its sends take the slow path, which refuses them.

*Pulls* of a group above its quota wait until the debt is over, at most as long as the client is willing to be held, and
are then answered as if they had come that moment, or PULL_NOT_FOUND.

Users are limited on the fast path by the connection on which their last other request (a heartbeat) came.

A debt is at most one arrival or one answer; a burst at most a second's worth (quota.py).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from maxq.broker.admission.quota import Quota, RateLimits, parse_user_quotas
from maxq.broker.processors.refusal import Refusal
from maxq.broker.tables.subscription.subscription_group_manager import SubscriptionGroupManager
from maxq.broker.tables.topic.topic_config_manager import TopicConfigManager
from maxq.broker.tables.topic.topic_write_states import TopicWriteStates
from maxq.codes import ResponseCode
from maxq.config.settings import BrokerSettings
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.connection import Connection
from maxq.runtime.interfaces import Clock
from maxq.runtime.metrics.registry import MetricsRegistry, Sample
from maxq.runtime.refusals import Cause, Refusals
from maxq.store.log.tails_cy import TopicWriteState

log = logging.getLogger(__name__)

ACCESS_KEY: Final = "AccessKey"
_USER: Final = "maxq.user"  # key of a connection's attribute: the user that it is charged to
_LOOK_MS: Final = 5
_TOPICS_PER_MS: Final = 100  # limited topics for which the time between two looks grows by a millisecond


class _TopicQuota:
    """A limited topic and how much of its counters has been charged."""

    __slots__ = ("is_shut", "nums", "quota", "size", "state")

    def __init__(self, quota: Quota, state: TopicWriteState) -> None:
        self.quota = quota
        self.state = state
        self.nums = state.put_nums
        self.size = state.put_bytes
        self.is_shut = False

    def charge_new(self, now_ms: int) -> int:
        """Charge the messages put since the last call. Returns the ms to wait now."""
        state = self.state
        nums, size = state.put_nums - self.nums, state.put_bytes - self.size
        self.nums, self.size = state.put_nums, state.put_bytes
        if nums > 0:
            self.quota.charge(nums, size, now_ms)
        return self.quota.wait_ms(now_ms)


class Quotas:
    """All quotas of a broker.

    Attributes:
        limits_pulls: some group or user has a quota: repeated pulls must ask.
        limits_users: some user has: connections must be told apart.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        clock: Clock,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        write_states: TopicWriteStates,
        write_state_of: Callable[[str], TopicWriteState],
        refusals: Refusals,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._topics = topics
        self._groups = groups
        self._write_states = write_states
        self._write_state_of = write_state_of
        self._refusals = refusals
        self._of_topic: dict[str, _TopicQuota] = {}
        self._of_group: dict[str, Quota] = {}
        self._of_user: dict[str, Quota] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.limits_pulls = False
        self.limits_users = False

    def register(self, registry: MetricsRegistry) -> None:
        """Register the metrics that show the limits of topics, groups and users, and what was charged."""
        labels = ("kind", "name", "unit")
        registry.gauge(
            "maxq_quota_per_second",
            "Quota of a topic, group or user a second; the label unit says of what",
            self._limits,
            labels,
        )
        registry.observed_counter(
            "maxq_quota_charged_total",
            "What a topic, group or user has used of its quota; the label unit says of what",
            self._charged,
            labels,
        )

    def load(self) -> None:
        """Read the quotas from the tables, which must be loaded."""
        self.topics_changed(list(self._topics.topic_config_table.values()), [])
        self.groups_changed(self._groups.subscription_group_table)
        self.users_changed()

    def close(self) -> None:
        """Stop the timer that blocks and unblocks topics by their quotas."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ---- what is limited --------------------------------------------------------------------------------------

    def topics_changed(self, changed: list[TopicConfig], deleted: list[str]) -> None:
        """Read the quotas of changed topics again, and forget those of deleted ones."""
        for topic in deleted:
            self._forget_topic(topic)
        for config in changed:
            limits = RateLimits.of_attributes(config.attributes)
            known = self._of_topic.get(config.topic_name)
            if known is not None and known.quota.limits == limits:
                continue
            self._forget_topic(config.topic_name)
            if any(limits):
                quota = self._quota(f"topic {config.topic_name}", limits, "attribute quota.%s of the topic")
                self._of_topic[config.topic_name] = _TopicQuota(quota, self._write_state_of(config.topic_name))
        if self._of_topic and self._timer is None:
            self._check_later()

    def _forget_topic(self, topic: str) -> None:
        known = self._of_topic.pop(topic, None)
        if known is not None and known.is_shut:
            self._write_states.open(topic)

    def groups_changed(self, names: Iterable[str]) -> None:
        """Read the quotas of these consumer groups again, and forget those of groups that are gone."""
        for group in names:
            config = self._groups.subscription_group_table.get(group)
            limits = RateLimits.of_attributes(config.attributes) if config is not None else RateLimits()
            known = self._of_group.get(group)
            if known is not None and known.limits == limits:
                continue
            self._of_group.pop(group, None)
            if any(limits):
                self._of_group[group] = self._quota(f"group {group}", limits, "attribute quota.%s of the group")
        self.limits_pulls = bool(self._of_group or self._of_user)

    def users_changed(self) -> None:
        """Read the quotas of users from the settings again."""
        quotas: dict[str, Quota] = {}
        for user, limits in parse_user_quotas(self._settings.broker.user_quotas).items():
            known = self._of_user.get(user)
            if known is not None and known.limits == limits:
                quotas[user] = known
            elif any(limits):
                quotas[user] = self._quota(f"user {user}", limits, "%s of userQuotas")
        self._of_user = quotas
        self.limits_users = bool(quotas)
        self.limits_pulls = bool(quotas or self._of_group)

    def _quota(self, what: str, limits: RateLimits, source: str) -> Quota:
        log.info("quota of %s: %d bytes, %d messages a second (0: no limit)", what, *limits)
        return Quota(what, limits, source, self._clock.monotonic_ms())

    # ---- sends ------------------------------------------------------------------------------------------------

    def _check_later(self) -> None:
        delay_ms = _LOOK_MS + len(self._of_topic) // _TOPICS_PER_MS
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._check_topics)

    def _check_topics(self) -> None:
        """Block the topics that exceed their quota, and unblock those that no longer do."""
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        for topic, limited in self._of_topic.items():
            must_wait = limited.charge_new(now_ms) > 0
            if must_wait != limited.is_shut:
                limited.is_shut = must_wait
                if must_wait:
                    self._write_states.shut(topic)
                else:
                    self._write_states.open(topic)
        if self._of_topic:
            self._check_later()

    def send_refusal(self, topic: str, request: RemotingCommand) -> Refusal | None:
        """Returns why a send must wait; None if it need not."""
        if not self._of_topic and not self._of_user:
            return None
        now_ms = self._clock.monotonic_ms()
        limited = self._of_topic.get(topic)
        if limited is not None and limited.charge_new(now_ms) > 0:
            return Refusal(ResponseCode.SYSTEM_BUSY, limited.quota.remark(now_ms))
        user = self._of_user.get(request.ext.get(ACCESS_KEY, ""))
        if user is not None:
            if user.wait_ms(now_ms) > 0:
                return Refusal(ResponseCode.SYSTEM_BUSY, user.remark(now_ms))
            user.charge(1, request.body_length, now_ms)
        return None

    # ---- pulls ------------------------------------------------------------------------------------------------

    def pull_wait_ms(self, group: str, request: RemotingCommand) -> int:
        """Returns the ms that a pull must wait; 0 for not at all."""
        if not self.limits_pulls:
            return 0
        now_ms = self._clock.monotonic_ms()
        quota, user = self._of_group.get(group), self._of_user.get(request.ext.get(ACCESS_KEY, ""))
        wait_ms = max(0 if quota is None else quota.wait_ms(now_ms), 0 if user is None else user.wait_ms(now_ms))
        if wait_ms > 0:
            over = quota if quota is not None and quota.wait_ms(now_ms) >= wait_ms else user
            assert over is not None, "somebody must be waited for"
            self._refusals.count(Cause.QUOTA, over.remark(now_ms))
        return wait_ms

    def pull_remark(self, group: str, request: RemotingCommand) -> str:
        """Returns the remark for a pull that was not served."""
        quota = self._of_group.get(group) or self._of_user.get(request.ext.get(ACCESS_KEY, ""))
        return "" if quota is None else quota.remark(self._clock.monotonic_ms())

    def delivered(self, group: str, request: RemotingCommand, messages: int, size: int) -> None:
        """Charge the messages delivered to a reader."""
        if not self.limits_pulls:
            return
        now_ms = self._clock.monotonic_ms()
        for quota in (self._of_group.get(group), self._of_user.get(request.ext.get(ACCESS_KEY, ""))):
            if quota is not None:
                quota.charge(messages, size, now_ms)

    def is_limited_reader(self, group: str, connection: Connection) -> bool:
        """Returns whether pulls of this group on this connection are limited and must go to the processor."""
        return group in self._of_group or self._user_of(connection) is not None

    # ---- users on the fast path -----------------------------------------------------------------------------

    def note_user(self, connection: Connection, request: RemotingCommand) -> None:
        """Remember the user of this connection from a decoded request. Call it while `limits_users`."""
        user = request.ext.get(ACCESS_KEY)
        if user:
            connection.attributes[_USER] = user

    def _user_of(self, connection: Connection) -> Quota | None:
        return self._of_user.get(connection.attributes.get(_USER, "")) if self.limits_users else None

    def must_wait(self, connection: Connection) -> bool:
        """Returns whether the user of this connection exceeds their quota; their sends then go to the processor."""
        user = self._user_of(connection)
        return user is not None and user.wait_ms(self._clock.monotonic_ms()) > 0

    def sent(self, connection: Connection, messages: int, size: int) -> None:
        """Charge the sends of this connection that were stored. Call it only while `limits_users`."""
        user = self._user_of(connection)
        if user is not None:
            user.charge(messages, size, self._clock.monotonic_ms())

    # ---- showing ----------------------------------------------------------------------------------------------

    def _each(self) -> Iterator[tuple[str, str, Quota]]:
        for topic, limited in list(self._of_topic.items()):
            yield "topic", topic, limited.quota
        for group, quota in list(self._of_group.items()):
            yield "group", group, quota
        for user, quota in list(self._of_user.items()):
            yield "user", user, quota

    def _limits(self) -> Iterator[Sample]:
        for kind, name, quota in self._each():
            if quota.limits.size:
                yield (kind, name, "bytes"), quota.limits.size
            if quota.limits.messages:
                yield (kind, name, "messages"), quota.limits.messages

    def _charged(self) -> Iterator[Sample]:
        for kind, name, quota in self._each():
            yield (kind, name, "bytes"), quota.charged_bytes
            yield (kind, name, "messages"), quota.charged_messages
