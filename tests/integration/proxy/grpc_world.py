"""A broker, and gRPC clients of it."""

import itertools
from collections.abc import Sequence
from typing import Any

import grpc
import grpc.aio

from maxq.aio import Admin
from maxq.auth.info import UserInfo
from maxq.client.admin.access import custom_acl
from maxq.protocol.body.subscription import SubscriptionGroupConfig
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.grpc import messages as pb
from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.message_queue import MessageQueue
from maxq.standalone import StandaloneServer

_SERVICE = "/apache.rocketmq.v2.MessagingService/"
_NUMBERS = itertools.count(1)


class GrpcClient:
    """One client, by its id."""

    def __init__(self, address: str, client_id: str, metadata: Sequence[tuple[str, str]] = ()) -> None:
        self._channel = grpc.aio.insecure_channel(address, [("grpc.max_receive_message_length", -1)])
        self.metadata = [("x-mq-client-id", client_id), ("x-mq-language", "PYTHON"), *metadata]
        self.commands: Any = None  # its stream of commands
        self.endpoints = pb.Endpoints(scheme=pb.AddressScheme.DOMAIN_NAME, addresses=[pb.Address(host="h", port=1)])

    async def close(self) -> None:
        await self._channel.close()

    async def call(self, name: str, request: Any, timeout: float | None = 30, metadata: Any = None) -> Any:
        """Make a call with one answer; it may be given by the name of the call alone."""
        answer = getattr(pb, f"{name}Response")
        method = self._channel.unary_unary(
            _SERVICE + name, request_serializer=_encode, response_deserializer=answer.FromString
        )
        return await method(request, timeout=timeout, metadata=self.metadata if metadata is None else metadata)

    async def stream(self, name: str, request: Any, timeout: float | None = 30) -> list[Any]:
        """Make a call with several answers."""
        answer = getattr(pb, f"{name}Response")
        method = self._channel.unary_stream(
            _SERVICE + name, request_serializer=_encode, response_deserializer=answer.FromString
        )
        return [answer async for answer in method(request, timeout=timeout, metadata=self.metadata)]

    def telemetry(self) -> Any:
        """Begin the stream of commands."""
        method = self._channel.stream_stream(
            _SERVICE + "Telemetry", request_serializer=_encode, response_deserializer=pb.TelemetryCommand.FromString
        )
        return method(metadata=self.metadata)

    async def say_settings(self, settings: pb.Settings) -> pb.Settings:
        """Tell what this client is; returns what it is to keep to. The stream stays open until `close`."""
        self.commands = self.telemetry()
        await self.commands.write(pb.TelemetryCommand(settings=settings))
        answer = await self.commands.read()
        assert answer.status.code == pb.Code.OK
        told: pb.Settings = answer.settings
        return told

    def consumer_settings(
        self, group: str, *topics: str, kind: int = pb.ClientType.PUSH_CONSUMER, expression: str = "*"
    ) -> pb.Settings:
        """Make the settings of a consumer."""
        entries = [
            pb.SubscriptionEntry(
                topic=pb.Resource(name=topic),
                expression=pb.FilterExpression(type=pb.FilterType.TAG, expression=expression),
            )
            for topic in topics
        ]
        return pb.Settings(
            client_type=kind,
            access_point=self.endpoints,
            request_timeout=pb.Duration(seconds=3),
            subscription=pb.Subscription(group=pb.Resource(name=group), subscriptions=entries),
        )

    def producer_settings(self, *topics: str) -> pb.Settings:
        """Make the settings of a producer."""
        return pb.Settings(
            client_type=pb.ClientType.PRODUCER,
            access_point=self.endpoints,
            publishing=pb.Publishing(topics=[pb.Resource(name=topic) for topic in topics]),
        )

    # --- short forms -------------------------------------------------------------------------------------------------

    async def send(self, topic: str, *bodies: bytes, **system: Any) -> pb.SendMessageResponse:
        """Send messages to a topic."""
        messages = [message(topic, body, **system) for body in bodies]
        answer: pb.SendMessageResponse = await self.call("SendMessage", pb.SendMessageRequest(messages=messages))
        return answer

    async def receive(
        self, topic: str, group: str, /, *, timeout: float | None = 30, **fields: Any
    ) -> list[pb.Message]:
        """Ask for messages once; returns those that came."""
        answers = await self.receive_all(topic, group, timeout=timeout, **fields)
        return [answer.message for answer in answers if answer.WhichOneof("content") == "message"]

    async def receive_all(self, topic: str, group: str, /, *, timeout: float | None = 30, **fields: Any) -> list[Any]:
        """Ask for messages once; returns all answers."""
        given = {
            "group": pb.Resource(name=group),
            "message_queue": pb.MessageQueue(topic=pb.Resource(name=topic)),
            "filter_expression": pb.FilterExpression(type=pb.FilterType.TAG, expression="*"),
            "batch_size": 32,
            "invisible_duration": pb.Duration(seconds=10),
            "long_polling_timeout": pb.Duration(seconds=5),
            **fields,
        }
        return await self.stream("ReceiveMessage", pb.ReceiveMessageRequest(**given), timeout=timeout)

    async def ack(self, topic: str, group: str, *messages: pb.Message) -> pb.AckMessageResponse:
        """Acknowledge messages."""
        entries = [
            pb.AckMessageEntry(
                message_id=message.system_properties.message_id,
                receipt_handle=message.system_properties.receipt_handle,
            )
            for message in messages
        ]
        request = pb.AckMessageRequest(group=pb.Resource(name=group), topic=pb.Resource(name=topic), entries=entries)
        answer: pb.AckMessageResponse = await self.call("AckMessage", request)
        return answer

    async def begin(self, topic: str, group: str) -> None:
        """Have a group begin at the end of a topic, where new ones do."""
        await self.receive(topic, group, long_polling_timeout=pb.Duration())


def _encode(request: Any) -> bytes:
    encoded: bytes = request.SerializeToString()
    return encoded


def message(topic: str, body: bytes, *, properties: dict[str, str] | None = None, **system: Any) -> pb.Message:
    """Make a message with an id of its own."""
    given = {"message_id": f"{next(_NUMBERS):032X}", "message_type": pb.MessageType.NORMAL, **system}
    return pb.Message(
        topic=pb.Resource(name=topic),
        body=body,
        user_properties=properties or {},
        system_properties=pb.SystemProperties(**given),
    )


class World:
    """A broker, an administrator, and clients."""

    def __init__(self, server: StandaloneServer, **admin_settings: Any) -> None:
        self._admin_settings = admin_settings
        self.server = server
        self.address = server.grpc_address
        self._clients: list[GrpcClient] = []
        self._admin: Admin | None = None

    def client(self, client_id: str = "client", metadata: Sequence[tuple[str, str]] = ()) -> GrpcClient:
        """Make a client."""
        self._clients.append(GrpcClient(self.address, client_id, metadata))
        return self._clients[-1]

    @property
    def admin(self) -> Admin:
        """Return an administrator."""
        if self._admin is None:
            self._admin = Admin(self.server.namesrv_address, **self._admin_settings)
        return self._admin

    async def topic(self, name: str, message_type: str = "", queues: int = 4) -> str:
        """Make a topic for messages of this type; returns its name."""
        attributes = {"+message.type": message_type} if message_type else {}
        await self.admin.topics.create_in_cluster(
            "DefaultCluster", TopicConfig(name, queues, queues, attributes=attributes)
        )
        return name

    async def group(self, name: str, **settings: Any) -> str:
        """Make a consumer group with these settings; returns its name."""
        await self.admin.groups.create_in_cluster("DefaultCluster", SubscriptionGroupConfig(name, **settings))
        return name

    async def make_alice(self) -> None:
        """Make a user without policies."""
        user = UserInfo("alice", "alice-secret", "Normal")
        await self.admin.access.create_user(self.server.broker_address, user)

    async def change_password_of_alice(self) -> None:
        """Give her another password."""
        user = UserInfo("alice", "another-secret", "Normal")
        await self.admin.access.update_user(self.server.broker_address, user)

    async def allow_alice(self, resource: str, *actions: str) -> None:
        """Add an entry to her policies."""
        acl = custom_acl("User:alice", [resource], actions, [], "Allow")
        await self.admin.access.create_acl(self.server.broker_address, acl)

    async def admin_has_topic(self, topic: str) -> bool:
        """Return whether there is such a topic."""
        return topic in (await self.admin.topics.all_configs(self.server.broker_address)).topic_config_table

    async def stored(self, topic: str) -> list[MessageExt]:
        """Return all messages of a topic, as clients of the remoting protocol read them."""
        route = await self.admin.topics.route(topic)
        messages: list[MessageExt] = []
        for data in route.queue_datas:
            for queue_id in data.read_queue_ids:
                found = await self.admin.messages.pull(MessageQueue(topic, data.broker_name, queue_id), 0)
                messages += found.messages
        return sorted(messages, key=lambda stored: stored.physical_offset)

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        if self._admin is not None:
            await self._admin.close()
        await self.server.shutdown()
