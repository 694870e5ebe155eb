"""Typed face of the compiled answers to pulls that were checked before. See pull_answers_cy.py."""

from maxq.broker.bundles import Clients, Environment, Tables
from maxq.broker.processors.pull.pull_read_rules import ReadRules
from maxq.config.broker_config import BrokerConfig
from maxq.config.message_store_config import MessageStoreConfig
from maxq.protocol.body.subscription import SubscriptionData, SubscriptionGroupConfig
from maxq.protocol.body.topic_config import TopicConfig
from maxq.remoting.server import Connection
from maxq.store.message_store import MessageStore
from maxq.store.queue.property_filter import PropertyFilter

class PullPlan:
    """What the checks of one pull found. A record of all that was looked at: it has as many fields, by name, as the
    checks have objects and results.

    Attributes:
        store: the role is in it.
        commits: the pull carries an offset to commit.
        suspends, suspend_ms: it waits, so long, where there is nothing.
        wanted: filter on properties.
        from_heartbeat: the subscription is the group's, not the request's own.
        codes: hashes of the tags that are wanted; None: all.
        head: JSON header of the answer, but for five numbers.
    """

    broker: BrokerConfig
    store: MessageStoreConfig
    group_name: str
    topic_name: str
    queue_id: int
    max_msg_nums: int
    max_msg_bytes: int
    commits: bool
    suspends: bool
    suspend_ms: int
    topic: TopicConfig
    group: SubscriptionGroupConfig
    subscription: SubscriptionData
    wanted: PropertyFilter | None
    from_heartbeat: bool
    codes: frozenset[int] | None
    head: bytes

    def __init__(
        self,
        *,
        broker: BrokerConfig,
        store: MessageStoreConfig,
        group_name: str,
        topic_name: str,
        queue_id: int,
        max_msg_nums: int,
        max_msg_bytes: int,
        commits: bool,
        suspends: bool,
        suspend_ms: int,
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
        subscription: SubscriptionData,
        wanted: PropertyFilter | None,
        from_heartbeat: bool,
        codes: frozenset[int] | None,
        head: bytes,
    ) -> None: ...

class PullAnswers:
    """One per broker.

    Attributes:
        waits: the last `answer` found nothing because the offset is where the queue's next message goes.
    """

    def __init__(
        self, env: Environment, tables: Tables, clients: Clients, store: MessageStore, rules: ReadRules
    ) -> None: ...
    @property
    def waits(self) -> bool: ...
    def holds(self, plan: PullPlan) -> bool:
        """Is everything the checks looked at still as it was?"""

    def answer(
        self,
        connection: Connection,
        plan: PullPlan,
        offset: int,
        commit_offset: int,
        opaque: int,
        held_since_ms: int,
    ) -> bool:
        """Answer a pull from queue offset `offset` with messages that are in memory; what it commits is committed.

        Args:
            plan: one without a filter on properties, that holds.
            held_since_ms: since when it waited (monotonic), and what it commits is committed; -1: it came just now.

        Returns:
            False: there are none, or it is not that simple. Nothing was answered, counted or committed.
        """

    def count(
        self,
        connection: Connection,
        plan: PullPlan,
        opaque: int,
        began_ms: int,
        held_since_ms: int,
        messages: int,
        size: int,
        goes_on_at: int,
        min_offset: int,
        max_offset: int,
        last_physical_offset: int,
        is_behind: bool,
    ) -> bytes:
        """These `messages` of `size` bytes are the answer: tell everybody who counts; the frame up to its body.

        Args:
            began_ms: monotonic, when the work on this pull began.
            goes_on_at: queue offset to ask for next; `min_offset` and `max_offset` are the queue's.
            is_behind: what was read lies further back than the memory.
        """

def is_compiled() -> bool: ...
