"""From a route to queues: where a topic can be sent to and read from, and the round robin over it.

Source: apache/rocketmq client/impl/producer/TopicPublishInfo.java, client/impl/factory/MQClientInstance.java
(topicRouteData2TopicPublishInfo, topicRouteData2TopicSubscribeInfo, brokerAddrTable).
"""

from collections.abc import Callable, Sequence

from maxq.errors import RemoteProtocolError
from maxq.protocol.body.route import MASTER_ID, TopicRouteData
from maxq.protocol.body.static_topic import global_queues
from maxq.protocol.body.topic_config import MAX_QUEUES, PERM_READ, PERM_WRITE
from maxq.protocol.message.message_queue import MessageQueue

QueueFilter = Callable[[MessageQueue], bool]


class TopicPublishInfo:
    """The queues of one topic that accept messages, and which of them is next.

    Attributes:
        is_used: it was asked for since TopicRoutes looked last.
    """

    __slots__ = ("index", "is_used", "queues")

    def __init__(self, queues: Sequence[MessageQueue], *, first: int) -> None:
        """`first` is a number behind which the round robin starts."""
        self.queues = tuple(queues)
        self.index = first
        self.is_used = True

    def select_one(self, queue_filter: QueueFilter | None = None) -> MessageQueue | None:
        """Return the next queue in turn that passes the filter; None if none does."""
        count = len(self.queues)
        if queue_filter is None:
            self.index += 1
            return self.queues[self.index % count] if count else None
        for _ in range(count):
            self.index += 1
            queue = self.queues[self.index % count]
            if queue_filter(queue):
                return queue
        return None


def publish_queues(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """Return the queues of a topic that messages may be sent to.

    Of a static topic its global queues, before those of brokers that have it as an ordinary one. With `orderTopicConf`
    (`brokerA:4;brokerB:4`): as many as it says, per listed broker. Otherwise writable brokers that have a master, in
    order of their names.

    Raises:
        RemoteProtocolError: the `orderTopicConf` is not in that form.
    """
    queues = sorted(global_queues(topic, route.topic_queue_mapping_by_broker or {}))
    if route.order_topic_conf and not route.topic_queue_mapping_by_broker:
        return _ordered_queues(topic, route.order_topic_conf)
    with_master = {data.broker_name for data in route.broker_datas if MASTER_ID in data.broker_addrs}
    for queue_data in sorted(route.ordinary_queue_datas, key=lambda data: data.broker_name):
        if queue_data.perm & PERM_WRITE and queue_data.broker_name in with_master:
            queues += [MessageQueue(topic, queue_data.broker_name, queue_id) for queue_id in queue_data.write_queue_ids]
    return queues


def _ordered_queues(topic: str, order_conf: str) -> list[MessageQueue]:
    queues = []
    for entry in filter(None, order_conf.split(";")):
        name, _, count = entry.partition(":")
        if not (count.isascii() and count.isdigit() and int(count) <= MAX_QUEUES):
            raise RemoteProtocolError(
                f"orderTopicConf of topic {topic} is {order_conf!r:.200}: write `brokerA:4;brokerB:4`, each number "
                f"{MAX_QUEUES} at most (`maxq admin updateOrderConf`)"
            )
        queues += [MessageQueue(topic, name, queue_id) for queue_id in range(int(count))]
    return queues


def subscribe_queues(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """Return the readable queues of a topic, sorted; a master is not needed. Of a static topic these are its global
    queues, and those of brokers that have it as an ordinary one."""
    ordinary = (
        MessageQueue(topic, data.broker_name, queue_id)
        for data in route.ordinary_queue_datas
        if data.perm & PERM_READ
        for queue_id in data.read_queue_ids
    )
    return sorted((*global_queues(topic, route.topic_queue_mapping_by_broker or {}), *ordinary))


def is_route_changed(old: TopicRouteData | None, new: TopicRouteData) -> bool:
    """Return whether two routes differ. The order inside an answer does not matter."""
    return old is None or _comparable(old) != _comparable(new)


def _comparable(route: TopicRouteData) -> tuple[object, ...]:
    return (
        route.order_topic_conf or "",
        sorted(
            (q.broker_name, q.read_queue_nums, q.write_queue_nums, q.perm, q.topic_sys_flag) for q in route.queue_datas
        ),
        sorted((b.broker_name, b.cluster, sorted(b.broker_addrs.items())) for b in route.broker_datas),
        route.topic_queue_mapping_by_broker or None,
    )
