"""Pulls that were checked before, answered out of memory: is all as it was, read, tell, count, send.

A PullPlan holds what the checks of a reader's first pull found; broker/fast_path/pull_path.py makes the plans and finds
the one for a request.
"""

from typing import TYPE_CHECKING

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.maxq.store.read.cached_pull_reader_cy import CachedPullReader
else:
    from maxq.store.read.cached_pull_reader_cy import CachedPullReader

if TYPE_CHECKING:
    from maxq.broker.bundles import Clients, Environment, Tables
    from maxq.broker.processors.pull.pull_read_rules import ReadRules
    from maxq.config.broker_config import BrokerConfig
    from maxq.config.message_store_config import MessageStoreConfig
    from maxq.protocol.body.subscription import SubscriptionData, SubscriptionGroupConfig
    from maxq.protocol.body.topic_config import TopicConfig
    from maxq.remoting.server import Connection
    from maxq.store.message_store import MessageStore
    from maxq.store.queue.property_filter import PropertyFilter


_FORBIDDEN_READ = 2  # bit of a group's forbidden uses of a topic


@cython.cclass
class PullPlan:
    """What the checks of a reader's first pull found, kept so that its next pulls of the queue need not be checked
    again. It holds every object that the checks have looked at: as long as all of them are the same, the plan counts.

    Attributes:
        store: settings of the store, among them the broker's role.
        commits: the pull carries a consumer offset to commit.
        suspends, suspend_ms: whether the pull waits where there is no message, and how long, ms.
        wanted: filter on properties (SQL92); None: there is none.
        from_heartbeat: the subscription is the one of the group's heart-beats, not the request's own.
        codes: hashes of the tags that are wanted; None: all messages are.
        head: JSON header of the answer without its five numbers.
    """

    broker = cython.declare(object, visibility="readonly")  # type: BrokerConfig
    store = cython.declare(object, visibility="readonly")  # type: MessageStoreConfig
    group_name = cython.declare(str, visibility="readonly")
    topic_name = cython.declare(str, visibility="readonly")
    topic_bytes = cython.declare(bytes, visibility="readonly")
    queue_id = cython.declare(cython.longlong, visibility="readonly")
    max_msg_nums = cython.declare(cython.longlong, visibility="readonly")
    max_msg_bytes = cython.declare(cython.longlong, visibility="readonly")
    commits = cython.declare(cython.bint, visibility="readonly")
    suspends = cython.declare(cython.bint, visibility="readonly")
    suspend_ms = cython.declare(cython.longlong, visibility="readonly")
    topic = cython.declare(object, visibility="readonly")  # type: TopicConfig
    group = cython.declare(object, visibility="readonly")  # type: SubscriptionGroupConfig
    subscription = cython.declare(object, visibility="readonly")  # type: SubscriptionData
    wanted = cython.declare(object, visibility="readonly")  # type: PropertyFilter | None
    from_heartbeat = cython.declare(cython.bint, visibility="readonly")
    counter = cython.declare(object, visibility="public")  # its numbers, once there are some
    codes = cython.declare(object, visibility="readonly")  # type: frozenset[int] | None
    head = cython.declare(bytes, visibility="readonly")

    def __init__(
        self,
        *,
        broker,  # type: BrokerConfig
        store,  # type: MessageStoreConfig
        group_name,  # type: str
        topic_name,  # type: str
        queue_id,  # type: int
        max_msg_nums,  # type: int
        max_msg_bytes,  # type: int
        commits,  # type: bool
        suspends,  # type: bool
        suspend_ms,  # type: int
        topic,  # type: TopicConfig
        group,  # type: SubscriptionGroupConfig
        subscription,  # type: SubscriptionData
        wanted,  # type: PropertyFilter | None
        from_heartbeat,  # type: bool
        codes,  # type: frozenset[int] | None
        head,  # type: bytes
    ):
        self.broker = broker
        self.store = store
        self.group_name = group_name
        self.topic_name = topic_name
        self.topic_bytes = topic_name.encode()
        self.queue_id = queue_id
        self.max_msg_nums = max_msg_nums
        self.max_msg_bytes = max_msg_bytes
        self.commits = commits
        self.suspends = suspends
        self.suspend_ms = suspend_ms
        self.topic = topic
        self.group = group
        self.subscription = subscription
        self.wanted = wanted
        self.from_heartbeat = from_heartbeat
        self.counter = None
        self.codes = codes
        self.head = head


@cython.cclass
class PullAnswers:
    """One per broker.

    Attributes:
        waits: the last `answer` found nothing because the offset is where the queue's next message goes.
    """

    _rpc_latency = cython.declare(object)
    _settings = cython.declare(object)
    _store = cython.declare(object)
    _reader = cython.declare(CachedPullReader)
    _topics = cython.declare(object)
    _groups = cython.declare(object)
    _offsets = cython.declare(object)
    _consumers = cython.declare(object)
    _filters = cython.declare(object)
    _stats = cython.declare(object)
    _now_ms = cython.declare(object)
    _rules = cython.declare(object)

    def __init__(
        self,
        env,  # type: Environment
        tables,  # type: Tables
        clients,  # type: Clients
        store,  # type: MessageStore
        rules,  # type: ReadRules
    ):
        self._settings = env.settings
        self._store = store
        self._reader = store.cached_pull_reader
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._consumers = clients.consumers
        self._filters = clients.filters
        self._stats = env.stats
        self._now_ms = env.clock.monotonic_ms
        self._rules = rules
        self._rpc_latency = env.rpc_latency

    @property
    def waits(self):
        # type: (...) -> bool
        return self._reader.waits

    def holds(self, plan: PullPlan):
        # type: (...) -> bool
        """Is everything the checks looked at still as it was?"""
        if (
            self._settings.broker is not plan.broker
            or self._settings.store is not plan.store
            or self._topics.topic_config_table.get(plan.topic_name) is not plan.topic
            or self._groups.subscription_group_table.get(plan.group_name) is not plan.group
            or (
                self._offsets.any_reset
                and self._offsets.has_offset_reset(plan.topic_name, plan.group_name, plan.queue_id)
            )
        ):
            return False
        if not plan.from_heartbeat:
            return True
        if plan.wanted is not None and self._registered(plan.topic_name, plan.group_name) is not plan.wanted:
            return False
        info: object = self._consumers.get_consumer_group_info(plan.group_name)
        return (
            info is not None
            and info.find_subscription_data(plan.topic_name) is plan.subscription
            and not self._groups.is_forbidden(plan.group_name, plan.topic_name, _FORBIDDEN_READ)
        )

    def _registered(self, topic, group):
        """Return the filter on properties that the group has registered for the topic; None if there is none."""
        entry: object = self._filters.get(topic, group)
        return None if entry is None else entry.wanted

    def answer(
        self,
        connection,  # type: Connection
        plan: PullPlan,
        offset: cython.longlong,
        commit_offset: cython.longlong,
        opaque: cython.longlong,
        held_since_ms: cython.longlong,
    ):
        # type: (...) -> bool
        """Answer a pull from queue offset `offset` with messages that are in memory; what it commits is committed.

        Args:
            plan: a valid plan without a filter on properties.
            held_since_ms: monotonic time since which the pull has waited, in which case its offset is committed
                already; -1: it has just arrived.

        Returns:
            False: there are no such messages, or the pull needs the slow path. Nothing was answered, counted or
                committed.
        """
        reader: CachedPullReader = self._reader
        began_ms: object = self._now_ms()
        head: bytes
        found: cython.bint = reader.read(
            plan.topic_name, plan.topic_bytes, plan.queue_id, offset, plan.max_msg_nums, plan.max_msg_bytes, plan.codes
        )
        if not found:
            return False
        self._store.stats.count_get(reader.message_count)
        if plan.commits and held_since_ms < 0:
            self._offsets.commit_offset(
                connection.remote_address, plan.group_name, plan.topic_name, plan.queue_id, commit_offset
            )
        head = self.count(
            connection, plan, opaque, began_ms, held_since_ms, reader.message_count, reader.total_bytes,
            reader.next_index, reader.min_offset, reader.max_offset, reader.last_physical_offset, reader.is_behind,
        )  # fmt: skip
        connection.write_pieces(head, reader)
        reader.forget()
        return True

    @cython.ccall
    def count(
        self,
        connection: object,  # type: Connection
        plan: PullPlan,
        opaque: cython.longlong,
        began_ms: object,  # type: int
        held_since_ms: cython.longlong,
        messages: cython.longlong,
        size: cython.longlong,
        goes_on_at: cython.longlong,
        min_offset: cython.longlong,
        max_offset: cython.longlong,
        last_physical_offset: cython.longlong,
        is_behind: cython.bint,
    ) -> bytes:
        """These `messages` of `size` bytes are the answer: tell everybody who counts; the frame up to its body.

        Args:
            began_ms: monotonic, when the work on this pull began.
            goes_on_at: queue offset to ask for next; `min_offset` and `max_offset` are the queue's.
            is_behind: what was read lies further back than the memory.
        """
        stats: object = self._stats
        if plan.counter is None:
            plan.counter = stats.get_counter(plan.group_name, plan.topic_name, plan.queue_id)
        counter: object = plan.counter
        behind: cython.longlong
        head: bytes
        head_size: cython.longlong
        self._offsets.commit_pull_offset(
            connection.remote_address, plan.group_name, plan.topic_name, plan.queue_id, goes_on_at
        )
        now_ms: object = self._now_ms()
        latency_ms: object = now_ms - began_ms
        if latency_ms > stats.longest_get_ms:
            stats.longest_get_ms = latency_ms
        counter.add(messages, size, latency_ms, False)
        if self._rpc_latency is not None:
            if held_since_ms < 0:
                self._rpc_latency.pull(latency_ms)
            else:
                self._rpc_latency.held_pull(now_ms - held_since_ms)
        behind = self._store.max_physical_offset - last_physical_offset
        counter.fall_behind_bytes = behind if behind > 0 else 0
        head = plan.head % (self._rules.suggest(plan.group, is_behind), goes_on_at, min_offset, max_offset, opaque)
        head_size = len(head)
        return (4 + head_size + size).to_bytes(4, "big") + head_size.to_bytes(4, "big") + head


def is_compiled() -> bool:
    """Returns whether this module runs compiled by Cython."""
    return cython.compiled
