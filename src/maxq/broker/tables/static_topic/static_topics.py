"""StaticTopics: what a broker needs for static topics, put together."""

from maxq.broker.bundles import Environment, Tables
from maxq.broker.fast_path.pull_plans import PullPlans
from maxq.broker.identity.role import SLAVE
from maxq.broker.longpolling.pull_request_hold_service import PullRequestHoldService
from maxq.broker.tables.client.rebalance_lock_manager import RebalanceLockManager
from maxq.broker.tables.static_topic.lock_hand_over import LockHandOver
from maxq.broker.tables.static_topic.other_brokers import OtherBrokers
from maxq.broker.tables.static_topic.static_topic_gate import StaticTopicGate
from maxq.broker.tables.static_topic.topic_queue_mapping_clean_service import TopicQueueMappingCleanService
from maxq.broker.tables.topic.topic_write_states import TopicWriteStates
from maxq.remoting.server import RemotingServer


class StaticTopics:
    """The mappings of one broker, and the parts that must know of their changes.

    The batch paths of sends and pulls answer without asking a processor, so they leave static topics alone: the
    fast path of their sends is not open, and none of their pulls is remembered.
    """

    def __init__(
        self,
        env: Environment,
        tables: Tables,
        locks: RebalanceLockManager,
        others: OtherBrokers,
        cleaner: TopicQueueMappingCleanService,
        write_states: TopicWriteStates,
        plans: PullPlans,
        hold_service: PullRequestHoldService,
    ) -> None:
        self._write_states = write_states
        self._plans = plans
        self._hold_service = hold_service
        self._cleaner = cleaner
        self._gate = StaticTopicGate(
            tables.mappings, others, tables.offsets, env.guard, lambda: env.settings.store.broker_role == SLAVE
        )

        self._lock_hand_over = LockHandOver(tables.mappings, others, locks)

    def register(self, server: RemotingServer) -> None:
        """Handle requests for queues of static topics before the processors that the server has for them now."""
        self._gate.place(server)
        self._lock_hand_over.place(server)

    async def load(self) -> None:
        """Load nothing: the table is loaded with the others."""

    def start(self) -> None:
        self._cleaner.start()

    async def shutdown(self) -> None:
        await self._cleaner.shutdown()

    def mappings_changed(self) -> None:
        """Note that a topic has become static, or that its queues have moved."""
        self._write_states.refresh_all()
        self._plans.forget_all()
        self._gate.mappings_changed()
        self._hold_service.notify_all()  # readers of a queue that has moved ask again, and are then told where it is
