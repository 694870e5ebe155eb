"""Telemetry, Heartbeat, NotifyClientTermination: settings, and what clients are asked."""

import asyncio

import grpc
import pytest

from maxq.protocol.body.consumer_info import ConsumeMessageDirectlyResult
from maxq.protocol.enums import CMResult
from maxq.protocol.grpc import messages as pb
from tests.integration.proxy.grpc_world import World


async def test_a_producer_is_told_limits_and_its_back_off(world: World) -> None:
    await world.topic("orders")
    client = world.client()
    told = await client.say_settings(client.producer_settings("orders"))
    assert (told.publishing.max_body_size, told.publishing.validate_message_type) == (4 * 1024 * 1024, True)
    policy = told.backoff_policy
    assert (policy.max_attempts, policy.exponential_backoff.multiplier) == (3, 2)
    assert policy.exponential_backoff.initial == pb.Duration(nanos=10_000_000)
    assert policy.exponential_backoff.max == pb.Duration(seconds=1)


async def test_a_consumer_is_told_its_groups_policy(world: World) -> None:
    await world.topic("orders")
    await world.group("in-order", consume_message_orderly=True, retry_max_times=4)
    client = world.client()
    told = await client.say_settings(client.consumer_settings("in-order", "orders"))
    assert told.subscription.fifo
    assert told.subscription.receive_batch_size == 32
    assert told.subscription.long_polling_timeout == pb.Duration(seconds=20)
    assert told.backoff_policy.max_attempts == 5
    assert told.backoff_policy.customized_backoff.next[0] == pb.Duration(seconds=1)


async def test_a_client_is_a_member_of_its_group_until_it_leaves(world: World) -> None:
    await world.topic("orders")
    client = world.client("member")
    await client.say_settings(client.consumer_settings("g", "orders", expression="a || b"))
    connections = await world.admin.groups.connections("g")
    assert [member.client_id for member in connections.connection_set] == ["member"]
    assert connections.subscription_table["orders"].tags_set == {"a", "b"}
    beat = pb.HeartbeatRequest(group=pb.Resource(name="g"))
    assert (await client.call("Heartbeat", beat)).status.code == pb.Code.OK
    ended = pb.NotifyClientTerminationRequest(group=pb.Resource(name="g"))
    assert (await client.call("NotifyClientTermination", ended)).status.code == pb.Code.OK
    while await world.admin.groups.is_online("g"):
        pass


async def test_who_has_said_nothing_of_itself_is_not_recognized(world: World) -> None:
    client = world.client()
    for name, request in (
        ("Heartbeat", pb.HeartbeatRequest(group=pb.Resource(name="g"))),
        ("NotifyClientTermination", pb.NotifyClientTerminationRequest(group=pb.Resource(name="g"))),
    ):
        assert (await client.call(name, request)).status.code == pb.Code.UNRECOGNIZED_CLIENT_TYPE


@pytest.mark.parametrize(
    "settings",
    [
        pb.Settings(client_type=pb.ClientType.PRODUCER),
        pb.Settings(publishing=pb.Publishing(topics=[pb.Resource(name="a b")])),
        pb.Settings(client_type=pb.ClientType.PUSH_CONSUMER, subscription=pb.Subscription(group=pb.Resource(name=""))),
        pb.Settings(
            client_type=pb.ClientType.PUSH_CONSUMER,
            subscription=pb.Subscription(
                group=pb.Resource(name="g"),
                subscriptions=[
                    pb.SubscriptionEntry(
                        topic=pb.Resource(name="t"), expression=pb.FilterExpression(type=pb.FilterType.SQL)
                    )
                ],
            ),
        ),
        pb.Settings(publishing=pb.Publishing(topics=[pb.Resource(name=f"t{number}") for number in range(1025)])),
    ],
    ids=["nothing", "topic", "group", "expression", "many"],
)
async def test_bad_settings_end_the_stream(world: World, settings: pb.Settings) -> None:
    commands = world.client().telemetry()
    await commands.write(pb.TelemetryCommand(settings=settings))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await commands.read()
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


async def test_a_consumer_is_asked_for_its_threads(world: World) -> None:
    await world.topic("orders")
    client = world.client("member")
    await client.say_settings(client.consumer_settings("g", "orders"))
    asking = asyncio.ensure_future(world.admin.groups.running_info("g", "member", jstack=True))
    command = await client.commands.read()
    trace = pb.ThreadStackTrace(
        nonce=command.print_thread_stack_trace_command.nonce, thread_stack_trace="main: at home"
    )
    status = pb.Status(code=pb.Code.OK)
    await client.commands.write(pb.TelemetryCommand(status=status, thread_stack_trace=trace))
    assert (await asking).jstack == "main: at home"


async def test_a_consumer_is_given_one_message_by_an_administrator(world: World) -> None:
    await world.topic("orders")
    client = world.client("member")
    await client.say_settings(client.consumer_settings("g", "orders"))
    await client.send("orders", b"x")
    (stored,) = await world.stored("orders")
    asking = asyncio.ensure_future(world.admin.messages.consume_directly("g", "member", "orders", stored.offset_msg_id))
    command = await client.commands.read()
    assert command.verify_message_command.message.body == b"x"
    result = pb.VerifyMessageResult(nonce=command.verify_message_command.nonce)
    status = pb.Status(code=pb.Code.FAILED_TO_CONSUME_MESSAGE)
    await client.commands.write(pb.TelemetryCommand(status=status, verify_message_result=result))
    told: ConsumeMessageDirectlyResult = await asking
    assert told.consume_result == CMResult.CR_LATER


async def test_a_stream_that_is_begun_again_gets_the_commands(world: World) -> None:
    await world.topic("orders")
    client = world.client("member")
    await client.say_settings(client.consumer_settings("g", "orders"))
    first = client.commands
    await client.say_settings(client.consumer_settings("g", "orders"))
    first.cancel()
    asking = asyncio.ensure_future(world.admin.groups.running_info("g", "member", jstack=True))
    command = await client.commands.read()
    assert command.print_thread_stack_trace_command.nonce
    asking.cancel()
