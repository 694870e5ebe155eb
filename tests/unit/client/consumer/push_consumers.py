"""Push consumers for tests, and a listener that remembers."""

from collections.abc import Callable

from maxq.client.client_config import PushConsumerConfig
from maxq.client.consumer.push_consumer import PushConsumer
from maxq.client.results.consume_result import ConsumeContext, ConsumeResult, MessageListener
from maxq.codes import RequestCode
from maxq.protocol.enums import ConsumeFromWhere
from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.message_queue import MessageQueue
from tests.unit.client.mock_broker import NAMESRV_ADDR, MockCluster

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
PULL, COMMIT, SEND_BACK = (
    RequestCode.PULL_MESSAGE,
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.CONSUMER_SEND_MSG_BACK,
)
Q0 = MessageQueue("T", "broker-a", 0)


class Got:
    """A listener that keeps bodies and answers as told."""

    def __init__(self, answer: Callable[[MessageExt, ConsumeContext], ConsumeResult | None] | None = None) -> None:
        self.bodies: list[bytes] = []
        self.messages: list[MessageExt] = []
        self._answer = answer

    def __call__(self, messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult | None:
        self.messages += messages
        self.bodies += [message.body for message in messages]
        return self._answer(messages[0], context) if self._answer else None


def make(cluster: MockCluster, listener: MessageListener, *, orderly: bool = False, **settings: object) -> PushConsumer:
    values: dict[str, object] = {"consume_from_where": FIRST, **settings}
    config = PushConsumerConfig(namesrv_addr=NAMESRV_ADDR, consumer_group="G", **values)  # type: ignore[arg-type]
    consumer = PushConsumer(config, cluster.environment(), listener, orderly=orderly)
    consumer.subscribe("T")
    return consumer


async def start(cluster: MockCluster, count: int = 0, queues: int = 1) -> None:
    await cluster.start()
    cluster.route("T", queues=queues)
    cluster.route("%RETRY%G")
    for n in range(count):
        cluster.broker.put("T", b"%d" % n, n % queues)
