"""What the services need of brokers: where topics are, what groups are, and connections.

A broker with a gRPC server gives them its own tables and connections inside the process (broker/assembly/grpc_door.py);
a proxy by itself has `cluster/cluster_brokers.py`.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Protocol

from maxq.lazy_dataclass import dataclass
from maxq.protocol.body.route import BrokerData, QueueData
from maxq.protocol.body.subscription import SubscriptionGroupConfig
from maxq.protocol.body.topic_config import PERM_READ, PERM_WRITE
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.connection import Connection

MESSAGE_TYPE_ATTRIBUTE: Final = "message.type"
NORMAL: Final = "NORMAL"
MIXED: Final = "MIXED"

#: Called with a broker's answer, or with None if there is none.
OnReply = Callable[[RemotingCommand | None], None]


class Asking(Protocol):
    """Interface of a client on whose behalf brokers are asked (clients.py).

    Attributes:
        address: where it is, host:port.
        links: its connections to brokers, by their names.
    """

    address: str
    links: dict[str, Connection]

    def linked(self, broker_name: str, link: Connection) -> None:
        """Keep a connection to a broker that was made for this client."""
        ...


class NotKnownYet(Exception):
    """Raised when what is asked of brokers has to be asked of others first. The call is served again after `ready`."""

    def __init__(self, ready: Awaitable[None]) -> None:
        super().__init__("it is not known yet")
        self.ready = ready


@dataclass(slots=True)
class TopicView:
    """Where the queues of a topic are, and what its messages are. A topic that changed has another view.

    Attributes:
        topic: its name for brokers.
        message_type: NORMAL, FIFO, DELAY, TRANSACTION, MIXED, …: what may be sent to it.
        write_queues: broker name and queue id of each queue that takes messages, in order.
        readable: names of the brokers that have queues to read.
        next_queue: counts the messages that were sent, to take the queues in turn.
    """

    topic: str
    message_type: str
    queues: list[QueueData]
    brokers: dict[str, BrokerData]
    write_queues: list[tuple[str, int]]
    readable: list[str]
    next_queue: int = 0

    def queue_in_turn(self) -> tuple[str, int]:
        """Return the broker name and the id of the queue for a message that may be in any."""
        self.next_queue += 1
        return self.write_queues[self.next_queue % len(self.write_queues)]

    def take_back_turn(self) -> None:
        """Let the next message have the queue that the last one did not use."""
        self.next_queue -= 1


def topic_view(topic: str, message_type: str, queues: list[QueueData], brokers: list[BrokerData]) -> TopicView:
    """Make the view of a topic with these queues on these brokers."""
    writable = [data for data in sorted(queues, key=lambda data: data.broker_name) if data.perm & PERM_WRITE]
    return TopicView(
        topic,
        message_type,
        queues,
        {data.broker_name: data for data in brokers},
        [(data.broker_name, queue_id) for data in writable for queue_id in data.write_queue_ids],
        [data.broker_name for data in queues if data.perm & PERM_READ and data.read_queue_nums > 0],
    )


class Brokers(Protocol):
    """Interface of the brokers behind the services. What it tells may not be known yet (NotKnownYet)."""

    def topic(self, name: str) -> TopicView | None:
        """Return the view of a topic, by its name for brokers; None if there is no such topic."""
        ...

    def group(self, name: str) -> SubscriptionGroupConfig | None:
        """Return the settings of a consumer group, by its name for brokers; None if there is no such group."""
        ...

    def grpc_address(self, broker: BrokerData) -> tuple[str, int]:
        """Return host and port at which gRPC clients reach the master of a broker group."""
        ...

    def ask(self, client: Asking, broker_name: str, command: RemotingCommand, on_reply: OnReply) -> bool:
        """Send a client's request to a broker. Returns False if there is no broker of that name."""
        ...

    def link(self, client: Asking, broker_name: str) -> Connection | None:
        """Return the open connection on which a client's requests reach a broker, if they need not name a user; None:
        it has to be made by `ask`."""
        ...

    def asked(self, link: Connection, opaque: int, on_reply: OnReply) -> None:
        """Take note of a request that is sent on a connection of `link`. Used where brokers do not know clients."""
        ...

    @property
    def knows_clients(self) -> bool:
        """Return whether brokers are told of each client, and ask it on its own connection."""
        ...

    def keep_producers(self, topics: Iterable[str]) -> None:
        """Be asked by brokers about open transactions of these topics. Used where brokers do not know clients."""
        ...

    @property
    def max_message_size(self) -> int:
        """Return the longest body, in bytes, that brokers store."""
        ...
