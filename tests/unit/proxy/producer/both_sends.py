"""One request of SendMessage on the compiled way and on the general one, without a broker and a network."""

from itertools import count
from types import ModuleType
from typing import Any

from maxq.codes import LanguageCode
from maxq.config.proxy_config import ProxyConfig
from maxq.protocol.frame.remoting_command import RemotingCommand, decode_frame
from maxq.protocol.grpc import messages as pb
from maxq.protocol.message.message_properties import decode_properties
from maxq.proxy.brokers import MIXED, TopicView
from maxq.proxy.clients import Clients
from maxq.proxy.producer.sending import Sending
from maxq.proxy.statuses import CallRefusedError
from maxq.proxy.validation import is_legal_topic


class FakeCall:
    """Takes answers."""

    def __init__(self) -> None:
        self.metadata = {"x-mq-client-id": "c"}
        self.connection = self
        self.remote_address = "192.0.2.1:5"
        self.attributes: dict[str, Any] = {}
        self.on_close: list[Any] = []
        self.deadline = None
        self.is_over = False
        self.answers: list[bytes] = []

    def answer(self, message: bytes) -> None:
        self.answers.append(message)


class Link:
    """A connection to a broker that keeps what is sent."""

    def __init__(self) -> None:
        self.waiters: dict[int, Any] = {}
        self.frames: list[bytes] = []
        self.commands: list[RemotingCommand] = []
        self.attributes: dict[str, Any] = {}
        self.is_closed = False

    def send_requests(self, frames: bytes, count: int) -> None:
        while frames:
            size = 4 + int.from_bytes(frames[:4], "big")
            self.frames.append(frames[:size])
            frames = frames[size:]
            count -= 1
        assert count == 0

    def request(self, command: RemotingCommand, on_reply: Any) -> None:
        self.commands.append(command)
        self.waiters[-len(self.commands)] = on_reply


class Clock:
    """A clock that stands still."""

    def wall_ms(self) -> int:
        return 1_700_000_000_500


class World:
    """A client, a topic with one queue, and both ways to it."""

    max_message_size = 1 << 20

    def __init__(
        self, form: ModuleType, *, message_type: str = MIXED, knows_clients: bool = True, **settings: Any
    ) -> None:
        self.config = ProxyConfig(**settings)
        self.knows_clients = knows_clients
        self.noted: list[tuple[Link, int, Any]] = []
        self.view = TopicView("orders", message_type, [], {}, [("b", 3)], ["b"])
        self.to_broker = Link()
        self.clients = Clients(self)  # type: ignore[arg-type]
        client = self.clients.enter("c", "", FakeCall(), LanguageCode.GO)
        client.linked("b", self.to_broker)  # type: ignore[arg-type]
        self.sending = Sending(self, lambda: self.config, Clock())  # type: ignore[arg-type]
        self.general: list[tuple[Any, RemotingCommand | None]] = []
        self.plain = form.PlainSends(
            self,
            lambda: self.config,
            self.clients,
            is_legal_topic,
            lambda send, reply: self.general.append((send, reply)),
        )
        self.batch_path: Any = None
        self.next_opaque = count(1).__next__
        self.plain.use(self)

    def topic(self, name: str) -> TopicView | None:
        return self.view if name == "orders" else None

    def link(self, client: Any, broker_name: str) -> Link | None:
        return None if self.to_broker.is_closed else self.to_broker

    def asked(self, link: Link, opaque: int, on_reply: Any) -> None:
        self.noted.append((link, opaque, on_reply))

    def ask(self, client: Any, broker_name: str, command: RemotingCommand, on_reply: Any) -> bool:
        self.to_broker.request(command, on_reply)
        return True

    def by_plain_way(self, data: bytes) -> RemotingCommand | None:
        """The request to the broker; None if the send is not plain."""
        if not self.plain.take(FakeCall(), data):
            return None
        self.plain.flush()
        return decode_frame(memoryview(self.to_broker.frames.pop())[4:])

    def by_general_way(self, data: bytes) -> RemotingCommand:
        """The request to the broker. Raises CallRefusedError, or DecodeError."""
        context: Any = type(
            "Context", (), {"call": FakeCall(), "client": self.clients.find("c", ""), "answer": print}
        )()
        self.sending.send(context, pb.SendMessageRequest.FromString(data))
        return self.to_broker.commands.pop()


def compared(world: World, data: bytes) -> bool:
    """Compare both ways. Returns whether the send is plain."""
    plain = world.by_plain_way(data)
    if plain is None:
        return False
    try:
        general = world.by_general_way(data)
    except CallRefusedError as error:
        raise AssertionError(f"the general way refuses: {error}") from error
    fields, expected = dict(plain.ext), dict(general.ext)
    if not world.knows_clients:
        assert fields.pop("n") == "b"
    assert decode_properties(fields.pop("i")) == decode_properties(expected.pop("i"))
    assert expected.pop("m") == "false"
    assert fields == expected
    assert (plain.code, plain.flag, plain.language, plain.version) == (
        general.code, general.flag, general.language, general.version,
    )  # fmt: skip
    assert plain.body_bytes == general.body_bytes
    return True
