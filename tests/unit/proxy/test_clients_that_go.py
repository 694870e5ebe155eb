"""Clients that end, or whose stream of commands breaks, and the messages that they have."""

import asyncio

from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.grpc import messages as pb
from maxq.protocol.grpc.popped import Popped
from maxq.proxy.handles import ReceiptHandle
from tests.unit.proxy.services_world import World

_CONSUMER = pb.Settings(
    client_type=pb.ClientType.PUSH_CONSUMER, subscription=pb.Subscription(group=pb.Resource(name="g"))
)


async def test_a_client_whose_stream_of_commands_breaks_keeps_its_messages_for_two_minutes() -> None:
    world = World()
    clients, renewal = world.services.clients, world.services.renewal
    stream = world.telemetry(_CONSUMER)
    client = clients.find("c1", "")
    assert client is not None
    given = world.handle
    renewal.keep(client, "orders", "g", ReceiptHandle.decode(given), 0)
    stream.breaks()
    now = asyncio.get_running_loop().time()
    clients.expire(now + 60)
    assert not world.brokers.requests
    again = world.telemetry(_CONSUMER)
    clients.expire(now + 3600)
    assert clients.find("c1", "") is client
    assert not world.brokers.requests
    again.breaks()
    clients.expire(now + 150)
    assert clients.find("c1", "") is None
    assert [command.ext["invisibleTime"] for command, _ in world.brokers.requests] == ["1000"]  # for others, soon


async def test_heart_beats_keep_a_client_without_a_stream_of_commands() -> None:
    world = World()
    clients = world.services.clients
    world.telemetry(_CONSUMER).breaks()
    client = clients.find("c1", "")
    assert client is not None
    client.used_at -= 119
    world.call("Heartbeat", pb.HeartbeatRequest(group=pb.Resource(name="g")))
    clients.expire(asyncio.get_running_loop().time() + 100)
    assert clients.find("c1", "") is client


async def test_a_consumer_that_has_said_its_end_is_forgotten_again_with_what_it_gets_afterwards() -> None:
    world = World()
    clients = world.services.clients
    world.telemetry(_CONSUMER)
    asked = pb.ReceiveMessageRequest(
        group=pb.Resource(name="g"), message_queue=pb.MessageQueue(topic=pb.Resource(name="orders")),
        filter_expression=pb.FilterExpression(type=pb.FilterType.TAG, expression="*"), auto_renew=True,
    )  # fmt: skip
    world.call("ReceiveMessage", asked)
    _, on_reply = world.brokers.requests.pop()
    world.call("NotifyClientTermination", pb.NotifyClientTerminationRequest(group=pb.Resource(name="g")))
    world.services.receiving._messages = lambda pop, reply: [Popped(b"", world.handle, "m", "", 0)]  # type: ignore[method-assign]
    on_reply(RemotingCommand(0))
    clients.expire(asyncio.get_running_loop().time() + 150)
    assert [command.ext["invisibleTime"] for command, _ in world.brokers.requests] == ["1000"]
