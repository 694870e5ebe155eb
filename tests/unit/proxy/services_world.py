"""All services in front of brokers of a cluster that only note what they are asked, without a network."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from maxq.config.proxy_config import ProxyConfig
from maxq.protocol.body.route import BrokerData, QueueData
from maxq.protocol.body.subscription import SubscriptionGroupConfig
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.grpc import messages as pb
from maxq.proxy.brokers import TopicView, topic_view
from maxq.proxy.services import SERVICE, Services


class Call:
    """A call of one client that takes answers."""

    def __init__(self, client_id: str) -> None:
        self.path = ""
        self.metadata = {"x-mq-client-id": client_id}
        self.connection = SimpleNamespace(
            remote_address="192.0.2.1:5",
            local_address="192.0.2.7:8081",
            peer_ip="192.0.2.1",
            attributes={},
            on_close=[],
        )
        self.deadline = None
        self.is_over = False
        self.on_end: Callable[[], None] | None = None
        self.on_lost: Callable[[], None] | None = None
        self.answers: list[bytes] = []

    def answer(self, message: bytes) -> None:
        self.send(message)
        self.finish()

    def send(self, message: bytes) -> None:
        self.answers.append(message)

    def finish(self, status: object = None, text: str = "") -> None:
        self.is_over = True

    def breaks(self) -> None:
        """End as a stream that the client has reset."""
        self.is_over = True
        if self.on_end is not None:
            self.on_end()


class Cluster:
    """Brokers of a cluster."""

    max_message_size = 1 << 20

    def __init__(self, *names: str) -> None:
        self.knows_clients = False
        queues = [QueueData(name, 2, 2, 6, 0) for name in names]
        brokers = [
            BrokerData("c", name, {0: f"198.51.100.{number}:10911"}) for number, name in enumerate(names, start=1)
        ]
        self.view = topic_view("orders", "NORMAL", queues, brokers)
        self.requests: list[tuple[RemotingCommand, Callable[[RemotingCommand | None], None]]] = []
        self.producers: list[list[str]] = []

    def topic(self, name: str) -> TopicView | None:
        return self.view if name == "orders" else None

    def group(self, name: str) -> SubscriptionGroupConfig | None:
        return SubscriptionGroupConfig()

    def grpc_address(self, broker: BrokerData) -> tuple[str, int]:
        return (broker.master_address or "").partition(":")[0], 8081

    def ask(self, client: object, broker_name: str, command: RemotingCommand, on_reply: Any) -> bool:
        self.requests.append((command, on_reply))
        return True

    def link(self, client: object, broker_name: str) -> None:
        return None

    def asked(self, link: object, opaque: int, on_reply: object) -> None: ...

    def keep_producers(self, topics: Any) -> None:
        self.producers.append(list(topics))


class Clock:
    """A clock that stands still until a test moves it."""

    now_ms = 1_700_000_000_000

    def wall_ms(self) -> int:
        return self.now_ms


class World:
    """The services, with a topic `orders`."""

    def __init__(self, *brokers: str, **settings: Any) -> None:
        self.clock = Clock()
        self.config = ProxyConfig(**settings)
        self.brokers = Cluster(*brokers or ("b",))
        self.services = Services(self.brokers, lambda: self.config, self.clock, None)  # type: ignore[arg-type]
        self._methods = self.services.methods()

    def call(self, name: str, request: Any, client_id: str = "c1") -> Call:
        """Make a call; what it was answered so far is in the returned one."""
        call = Call(client_id)
        self._methods[f"/{SERVICE}/{name}"].handle(call, request.SerializeToString())  # type: ignore[union-attr,arg-type]
        return call

    def telemetry(self, settings: pb.Settings, client_id: str = "c1") -> Call:
        """Open a client's stream of commands, and say its settings."""
        call = Call(client_id)
        hears = self._methods[f"/{SERVICE}/Telemetry"].start(call)  # type: ignore[union-attr,arg-type]
        hears(pb.TelemetryCommand(settings=settings).SerializeToString())
        return call

    @property
    def handle(self) -> str:
        """A receipt handle of a message that was popped now, for a minute."""
        return f"0 {self.clock.now_ms} 60000 0 0 b 0 5 77"

    def changed(self, invisible_ms: int = 60_000) -> RemotingCommand:
        """A broker's answer to a change of an invisible time that is made now."""
        fields = {"popTime": str(self.clock.now_ms), "invisibleTime": str(invisible_ms), "reviveQid": "0"}
        return RemotingCommand(0, fields)
