"""Changes on the brokers of a cluster: who did not make them."""

from types import SimpleNamespace
from typing import cast

from maxq.cli.admin.command import change_each
from maxq.client.admin.admin import Admin
from maxq.protocol.body.route import BrokerData


class Brokers:
    """Two brokers of a cluster; of the second one only a slave is there."""

    async def masters_of_cluster(self, cluster: str) -> list[str]:
        return ["10.0.0.1:10911"]

    async def of_cluster(self, cluster: str) -> list[BrokerData]:
        return [
            BrokerData(cluster, "broker-a", {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}),
            BrokerData(cluster, "broker-b", {1: "10.0.0.3:10911"}),
        ]


async def test_a_broker_without_a_master_is_named_among_those_that_did_not_change() -> None:
    admin = cast(Admin, SimpleNamespace(brokers=Brokers()))

    async def change(address: str) -> str:
        return f"changed at {address}"

    done = await change_each(admin, None, "C", change)
    assert done.answers == {"10.0.0.1:10911": "changed at 10.0.0.1:10911"}
    assert done.failures == {"broker-b": "broker broker-b has no master now: nothing is changed there"}
    one = await change_each(admin, "10.0.0.1:10911", None, change)
    assert not one.failures
