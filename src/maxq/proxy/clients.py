"""Clients: who is connected, by client id and user, and each one's connections to brokers.

A client has a connection of its own to each broker that it uses, because brokers keep by connection who is a member of
a group and whom they ask about a transaction. The connection ends when nothing was asked on it for two minutes.
A client without connections, without telemetry and without calls for two minutes is forgotten. The ids that one gRPC
connection may bring are limited; those that have said nothing of themselves and hold nothing are forgotten as soon as
it closes.

Source:
    proxy/grpc/v2/channel/{GrpcChannelManager,GrpcClientChannel}.java.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from maxq.auth.signature import ACCESS_KEY
from maxq.codes import LanguageCode
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.grpc import messages as pb
from maxq.protocol.namespace import wrap
from maxq.proxy.brokers import Brokers, OnReply
from maxq.proxy.statuses import CallRefusedError
from maxq.remoting.connection import Connection
from maxq.remoting.grpc.calls import Call

_CLIENT: Final = "grpc client"
_CLIENTS: Final = "grpc clients"
_MOST_OF_CONNECTION: Final = 1024

_IDLE_SECONDS: Final = 120.0


class Door(Protocol):
    """Interface of a gRPC connection by which clients come."""

    attributes: dict[str, Any]
    remote_address: str
    on_close: list[Callable[[], None]]


class Client:
    """One client.

    Attributes:
        client_id: what it calls itself.
        user: the access key by which it was identified; empty without access control.
        settings: what it has told of itself over telemetry; None: nothing yet.
        telemetry: its stream of commands; None: it has none.
        links: its connections to brokers, by their names.
        used_at: when it made its last call, by the loop's time.
        entered_with: the clients that came by the same gRPC connection.
    """

    __slots__ = (
        "_brokers", "address", "client_id", "entered_with", "language", "links", "settings", "telemetry", "used_at",
        "user",
    )  # fmt: skip

    def __init__(self, brokers: Brokers, client_id: str, user: str, address: str, language: LanguageCode) -> None:
        self._brokers = brokers
        self.links: dict[str, Connection] = {}
        self.client_id = client_id
        self.user = user
        self.address = address
        self.language = language
        self.settings: pb.Settings | None = None
        self.telemetry: Call | None = None
        self.used_at = 0.0
        self.entered_with: dict[Client, None] = {}

    def __repr__(self) -> str:
        return f"<Client {self.client_id} at {self.address}>"

    @property
    def is_unused(self) -> bool:
        """Return whether nothing is left of it."""
        return not self.links and self.telemetry is None

    @property
    def is_a_bare_name(self) -> bool:
        """Return whether it has said nothing of itself over telemetry, and waits for no answer."""
        waits = any(link.waiters for link in self.links.values())
        return self.settings is None and self.telemetry is None and not waits

    def ask(self, broker_name: str, command: RemotingCommand, on_reply: OnReply) -> None:
        """Send a request to a broker.

        Raises:
            CallRefusedError: BAD_REQUEST: there is no broker of that name.
            RemotingSendError: too many requests wait for answers.
        """
        command.language = self.language
        if self.user:
            command.ext[ACCESS_KEY] = self.user
        if not self._brokers.ask(self, broker_name, command, on_reply):
            raise CallRefusedError(pb.Code.BAD_REQUEST, f"there is no broker {broker_name!r:.80} here")

    def linked(self, broker_name: str, link: Connection) -> None:
        """Keep a connection to a broker that was made for this client."""
        link.attributes[_CLIENT] = self
        self.links[broker_name] = link

    @property
    def broker_names(self) -> list[str]:
        """Return the brokers to which it has connections."""
        return list(self.links)

    def tell(self, command: pb.TelemetryCommand) -> bool:
        """Send a command over telemetry. Returns False if the client has no such stream now."""
        telemetry = self.telemetry
        if telemetry is None or telemetry.is_over:
            return False
        telemetry.send(command.SerializeToString())
        return True

    def leave(self) -> None:
        """Close its connections to brokers, which then forget it."""
        for link in list(self.links.values()):
            link.close("the gRPC client has left")

    def lost(self, link: Connection) -> None:
        """Forget a connection to a broker that has ended."""
        for name in [name for name, held in self.links.items() if held is link]:
            del self.links[name]


class Clients:
    """The table of clients. It is a listener of the connections to brokers.

    Attributes:
        when_gone: functions that are called with each client that is forgotten.
        holds: functions that say whether a client holds something that it would lose.
    """

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._clients: dict[tuple[str, str], Client] = {}
        self.when_gone: list[Callable[[Client], None]] = []
        self.holds: list[Callable[[Client], bool]] = []

    def __len__(self) -> int:
        return len(self._clients)

    def find(self, client_id: str, user: str) -> Client | None:
        """Return the client with this id that was identified as this user."""
        return self._clients.get((client_id, user))

    def enter(self, client_id: str, user: str, connection: Door, language: LanguageCode) -> Client:
        """Enter a client that is not there yet.

        Raises:
            CallRefusedError: TOO_MANY_REQUESTS: its connection has brought too many.
        """
        entered: dict[Client, None] | None = connection.attributes.get(_CLIENTS)
        if entered is None:
            entered = connection.attributes[_CLIENTS] = {}
            connection.on_close.append(partial(self._connection_closed, entered))
        elif len(entered) >= _MOST_OF_CONNECTION:
            raise CallRefusedError(
                pb.Code.TOO_MANY_REQUESTS, f"{len(entered)} clients came by one connection, which is the limit"
            )
        client = Client(self._brokers, client_id, user, connection.remote_address, language)
        client.entered_with = entered
        entered[client] = None
        self._clients[client_id, user] = client
        return client

    def _connection_closed(self, entered: dict[Client, None]) -> None:
        """Forget the clients of a gRPC connection that are no more than names."""
        for client in list(entered):
            if client.is_a_bare_name and not any(held(client) for held in self.holds):
                self.remove(client)
        entered.clear()

    def remove(self, client: Client) -> None:
        """Forget a client, and close its connections to brokers."""
        if self._clients.get((client.client_id, client.user)) is client:
            del self._clients[client.client_id, client.user]
            client.entered_with.pop(client, None)
            for hears in self.when_gone:
                hears(client)
        client.leave()

    def telemetry_ended(self, client: Client, call: Call) -> None:
        """Forget a client's stream of commands. The client may open another one soon, and go on with what it has."""
        if client.telemetry is call:
            client.telemetry = None
            client.used_at = asyncio.get_running_loop().time()

    def expire(self, now: float) -> None:
        """Forget clients of which nothing is left and that have made no call for two minutes, at `now` by the loop."""
        for client in [known for known in self._clients.values() if known.is_unused]:
            if now - client.used_at > _IDLE_SECONDS:
                self.remove(client)

    def producer_of(self, topic: str) -> Client | None:
        """Return a client that sends to a topic and can be asked now; None if there is none."""
        for client in self._clients.values():
            settings = client.settings
            if settings is None or client.telemetry is None or client.telemetry.is_over:
                continue
            if any(topic == wrap(each.resource_namespace, each.name) for each in settings.publishing.topics):
                return client
        return None

    def topics_sent_to(self) -> set[str]:
        """Return the topics that clients say they send to."""
        return {
            wrap(each.resource_namespace, each.name)
            for client in self._clients.values()
            if client.settings is not None
            for each in client.settings.publishing.topics
        }

    @staticmethod
    def behind(link: Connection) -> Client | None:
        """Return the client on whose behalf a connection to a broker was made."""
        found = link.attributes.get(_CLIENT)
        return found if isinstance(found, Client) else None

    # --- ConnectionListener ------------------------------------------------------------------------------------------

    def on_connect(self, connection: Connection) -> None: ...

    def on_idle(self, connection: Connection) -> None: ...

    def on_exception(self, connection: Connection) -> None: ...

    def on_close(self, connection: Connection) -> None:
        client = self.behind(connection)
        if client is not None:
            client.lost(connection)
            if client.is_unused:
                self.remove(client)
