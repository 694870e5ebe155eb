"""Written by `python -m tests.unit.compiled_stubs`; see pull_answers_cy.py."""

from typing import Any

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
    broker: BrokerConfig
    store: MessageStoreConfig
    group_name: str
    topic_name: str
    topic_bytes: bytes
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
    counter: Any
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
    def __init__(
        self, env: Environment, tables: Tables, clients: Clients, store: MessageStore, rules: ReadRules
    ) -> None: ...
    @property
    def waits(self) -> bool: ...
    def holds(self, plan: PullPlan) -> bool: ...
    def answer(
        self, connection: Connection, plan: PullPlan, offset: int, commit_offset: int, opaque: int, held_since_ms: int
    ) -> bool: ...
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
    ) -> bytes: ...

def is_compiled() -> bool: ...
