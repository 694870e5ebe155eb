"""Receipts that are renewed, in front of a cluster."""

import asyncio

import pytest

from maxq.codes import LanguageCode, RequestCode
from maxq.protocol.body.subscription import SubscriptionGroupConfig
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.grpc import messages as pb
from maxq.protocol.grpc.popped import Popped
from maxq.proxy.brokers import NotKnownYet
from maxq.proxy.handles import ReceiptHandle
from tests.unit.proxy.services_world import Call, World


async def _looked(world: World) -> None:
    """Wait until receipts were looked at twice."""
    looks = asyncio.Event()
    for _ in range(2):
        looks.clear()
        world.services.renewal.when_looked[1:] = [lambda now: looks.set()]
        await asyncio.wait_for(looks.wait(), 5)


async def test_a_group_that_is_not_known_now_does_not_end_the_renewals() -> None:
    world = World(renew_schedule_period_millis=10)
    known = asyncio.get_running_loop().create_future()

    def group(name: str) -> SubscriptionGroupConfig:
        if not known.done():
            raise NotKnownYet(known)
        return SubscriptionGroupConfig()

    world.brokers.group = group  # type: ignore[method-assign]
    clients, renewal = world.services.clients, world.services.renewal
    old, new = (
        clients.enter("c1", "", Call("c1").connection, LanguageCode.GO),
        clients.enter("c2", "", Call("c2").connection, LanguageCode.GO),
    )
    old.used_at = new.used_at = asyncio.get_running_loop().time()
    renewal.keep(old, "orders", "g", ReceiptHandle.decode(world.handle), 0)
    world.clock.now_ms += 3 * 3_600_000  # for so long a receipt is renewed at most
    renewal.keep(new, "orders", "g", ReceiptHandle.decode(world.handle), 0)
    world.clock.now_ms += 55_000
    renewal.start()
    await _looked(world)
    assert [command.ext["invisibleTime"] for command, _ in world.brokers.requests] == ["60000"]  # the new one's
    known.set_result(None)
    await _looked(world)
    assert [command.code for command, _ in world.brokers.requests] == [RequestCode.CHANGE_MESSAGE_INVISIBLETIME] * 2
    assert world.brokers.requests[1][0].ext["invisibleTime"] == "10000"  # by the group's policy
    world.services.stop()


@pytest.mark.parametrize("is_renewed", [True, False])
async def test_what_uses_a_receipt_waits_while_it_is_renewed(is_renewed: bool) -> None:
    world = World()
    client = world.services.clients.enter("c1", "", Call("c1").connection, LanguageCode.GO)
    client.used_at = asyncio.get_running_loop().time()
    given = world.handle
    world.services.renewal.keep(client, "orders", "g", ReceiptHandle.decode(given), 0)
    world.clock.now_ms += 55_000
    world.services.renewal._look()
    names = {"topic": pb.Resource(name="orders"), "group": pb.Resource(name="g")}
    call = world.call("AckMessage", pb.AckMessageRequest(**names, entries=[pb.AckMessageEntry(receipt_handle=given)]))
    change = pb.ChangeInvisibleDurationRequest(**names, receipt_handle=given, invisible_duration=pb.Duration(seconds=9))
    world.call("ChangeInvisibleDuration", change)
    forward = pb.ForwardMessageToDeadLetterQueueRequest(**names, receipt_handle=given, message_id="m")
    world.call("ForwardMessageToDeadLetterQueue", forward)
    ((_, on_reply),) = world.brokers.requests
    on_reply(world.changed() if is_renewed else None)
    await asyncio.sleep(0.01)
    acked, on_acked = world.brokers.requests[1]
    assert acked.code == RequestCode.ACK_MESSAGE
    now = world.clock.now_ms
    assert acked.ext["extraInfo"] == (f"5 {now} 60000 0 0 b 0 5" if is_renewed else given[: -len(" 77")])
    on_acked(RemotingCommand(0))
    assert pb.AckMessageResponse.FromString(call.answers[0]).status.code == pb.Code.OK
    assert len(world.brokers.requests) == 4
    world.services.stop()


async def test_messages_of_an_answer_that_its_client_did_not_get_are_given_to_others_soon() -> None:
    world = World()
    asked = pb.ReceiveMessageRequest(
        group=pb.Resource(name="g"), message_queue=pb.MessageQueue(topic=pb.Resource(name="orders")),
        filter_expression=pb.FilterExpression(type=pb.FilterType.TAG, expression="*"), auto_renew=True,
    )  # fmt: skip
    call = world.call("ReceiveMessage", asked)
    _, on_reply = world.brokers.requests.pop()
    handles = [world.handle, world.handle.replace(" 77", " 78")]
    world.services.receiving._messages = lambda pop, reply: [Popped(b"", one, "m", "", 0) for one in handles]  # type: ignore[method-assign]
    on_reply(RemotingCommand(0))
    client = world.services.clients.find("c1", "")
    assert client is not None
    world.services.renewal.take(client, "g", handles[0])  # that one came, and its client acknowledged it
    assert call.on_lost is not None
    call.on_lost()
    assert [command.code for command, _ in world.brokers.requests] == [RequestCode.CHANGE_MESSAGE_INVISIBLETIME]
    assert world.brokers.requests[0][0].ext["invisibleTime"] == "1000"
    assert not world.services.renewal.holds(client)
