"""StaticTopics: what a broker needs for static topics, put together."""

from collections.abc import Callable

from maxq.access.guard import Guard
from maxq.broker.fast_path.pull_path import PullPath
from maxq.broker.identity.registration import BrokerRegistration
from maxq.broker.longpolling.pull_request_hold_service import PullRequestHoldService
from maxq.broker.static_topic.other_brokers import OtherBrokers
from maxq.broker.static_topic.static_topic_gate import StaticTopicGate
from maxq.broker.static_topic.topic_queue_mapping_clean_service import TopicQueueMappingCleanService
from maxq.broker.static_topic.topic_queue_mapping_manager import TopicQueueMappingManager
from maxq.broker.topic.topic_tails import TopicTails
from maxq.protocol.body.subscription import SubscriptionData, SubscriptionGroupConfig
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.header.pull import PullMessageRequestHeader
from maxq.remoting.server import RemotingServer
from maxq.store.queue.property_filter import PropertyFilter


class StaticTopics:
    """The mappings of one broker, and those who must know of them.

    The batch paths of sends and pulls answer without asking a processor, so they leave static topics alone: their tails
    are not plain, and none of their pulls is learned.
    """

    def __init__(
        self,
        mappings: TopicQueueMappingManager,
        others: OtherBrokers,
        *,
        registration: BrokerRegistration,
        tails: TopicTails,
        pulls: PullPath,
        hold_service: PullRequestHoldService,
        cleaner: TopicQueueMappingCleanService,
        guard: Guard | None,
        is_slave: Callable[[], bool],
    ) -> None:
        self._mappings = mappings
        self._tails = tails
        self._pulls = pulls
        self._hold_service = hold_service
        self._cleaner = cleaner
        self._gate = StaticTopicGate(mappings, others, guard, is_slave)
        registration.set_mappings(mappings.infos)
        tails.set_static_topics(mappings.is_static)
        mappings.add_change_listener(self._on_mappings_changed)
        self._on_mappings_changed()

    def register(self, server: RemotingServer) -> None:
        """Stand before the processors that are registered now."""
        self._gate.place(server)

    async def load(self) -> None:
        """The table is loaded with the others."""

    def start(self) -> None:
        self._cleaner.start()

    async def shutdown(self) -> None:
        await self._cleaner.shutdown()

    def _on_mappings_changed(self) -> None:
        self._tails.refresh_all()
        self._pulls.forget_all()
        self._hold_service.notify_all()  # who waits for a queue that has moved asks again, and learns it

    def learn(
        self,
        header: PullMessageRequestHeader,
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
        subscription: SubscriptionData,
        wanted: PropertyFilter | None,
    ) -> None:
        """A pull passed every check: the pull path remembers it, unless its queue id is not what the reader sends."""
        if not self._mappings.is_static(header.topic):
            self._pulls.learn(header, topic, group, subscription, wanted)
