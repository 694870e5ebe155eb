"""What a proxy tells of routes: every queue is reached through it."""

import pytest

from maxq.protocol.grpc import messages as pb
from tests.unit.proxy.services_world import World

_ORDERS = pb.Resource(name="orders")
_USED = pb.Endpoints(
    scheme=pb.AddressScheme.DOMAIN_NAME, addresses=[pb.Address(host="proxy.example", port=443)]
)  # what the client has connected to
_ARRIVED = pb.Endpoints(scheme=pb.AddressScheme.IPv4, addresses=[pb.Address(host="192.0.2.7", port=8081)])


@pytest.mark.parametrize(("said", "told"), [(_USED, _USED), (pb.Endpoints(), _ARRIVED)])
async def test_all_queues_of_several_brokers_are_at_the_address_that_the_client_has_used(
    said: pb.Endpoints, told: pb.Endpoints
) -> None:
    world = World("a", "b")
    call = world.call("QueryRoute", pb.QueryRouteRequest(topic=_ORDERS, endpoints=said))
    queues = pb.QueryRouteResponse.FromString(call.answers[0]).message_queues
    assert [(queue.broker.name, queue.broker.endpoints) for queue in queues] == [
        ("a", told), ("a", told), ("b", told), ("b", told),
    ]  # fmt: skip
    asked = pb.QueryAssignmentRequest(topic=_ORDERS, group=pb.Resource(name="g"), endpoints=said)
    assignments = pb.QueryAssignmentResponse.FromString(world.call("QueryAssignment", asked).answers[0]).assignments
    assert [each.message_queue.broker.endpoints for each in assignments] == [told, told]


async def test_brokers_with_doors_of_their_own_are_told_with_their_own_addresses() -> None:
    world = World("a", "b")
    world.brokers.knows_clients = True
    call = world.call("QueryRoute", pb.QueryRouteRequest(topic=_ORDERS, endpoints=_USED))
    queues = pb.QueryRouteResponse.FromString(call.answers[0]).message_queues
    hosts = [queue.broker.endpoints.addresses[0].host for queue in queues]
    assert hosts == ["198.51.100.1"] * 2 + ["198.51.100.2"] * 2
