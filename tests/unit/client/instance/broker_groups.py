"""A master and a slave that a client knows, scripted."""

from maxq.codes import RequestCode
from maxq.protocol.message.message_queue import MessageQueue
from tests.unit.client.consumer.push_consumers import PULL
from tests.unit.client.mock_broker import MockBroker, MockCluster

Q1 = MessageQueue("T", "broker-a", 1)
COMMIT, QUERY = RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.QUERY_CONSUMER_OFFSET


class Group:
    """A master and a slave with the same messages."""

    def __init__(self, cluster: MockCluster) -> None:
        self.cluster = cluster
        self.master: MockBroker = cluster.brokers["broker-a", 0]
        self.slave: MockBroker = cluster.brokers["broker-a", 1]

    def put(self, *bodies: bytes) -> None:
        """Both have it: replication is quick."""
        for body in bodies:
            self.master.put("T", body)
            self.slave.put("T", body)

    def route(self, *, master: bool = True) -> None:
        """What the name server says."""
        for topic in ("T", "%RETRY%G"):
            route = self.cluster.route(topic)
            if not master:
                route.broker_datas[0].broker_addrs.pop(0)


async def group_of(cluster: MockCluster, count: int = 0) -> Group:
    await cluster.start(slaves=1)
    group = Group(cluster)
    group.route()
    group.put(*(b"%d" % n for n in range(count)))
    return group


def pulls(broker: MockBroker) -> list[dict[str, str]]:
    return [
        request.ext
        for code in (PULL, RequestCode.LITE_PULL_MESSAGE)
        for request in broker.requests(code)
        if request.ext["topic"] == "T"
    ]
