"""Receipts that are renewed, in front of a cluster."""

import asyncio

from maxq.codes import LanguageCode, RequestCode
from maxq.protocol.body.subscription import SubscriptionGroupConfig
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
