"""Changes on the masters of a cluster of which one does not answer: the others are asked all the same."""

from typing import Any, cast

import pytest

from maxq.cli.admin.groups import delete_sub_group
from maxq.client.admin.context import AdminContext
from maxq.client.admin.groups import GroupAdmin
from maxq.client.admin.topics import TopicAdmin
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import ClientError, NoRouteError, RemotingConnectError
from maxq.protocol.body.route import BrokerData, ClusterInfo
from maxq.protocol.body.subscription import SubscriptionGroupConfig
from maxq.protocol.body.topic_config import TopicConfig
from maxq.runtime.files.system import SystemClock

ADDRESSES = {"broker-a": "a:1", "broker-b": "b:1", "broker-c": "c:1"}
LEFT = "broker a:1, c:1 was told, but not b:1: Connection refused"


class Api:
    """Requests to a cluster of three masters; those of `down` are not there.

    Attributes:
        asked: (request code, address) of all that were answered.
    """

    def __init__(self, *down: str) -> None:
        self.down = down
        self.asked: list[tuple[int, str]] = []

    async def call(self, address: str, code: int, *_: Any) -> None:
        if address in self.down:
            raise RemotingConnectError("Connection refused", address=address)
        self.asked.append((code, address))

    async def topic_route(self, topic: str) -> None:
        raise NoRouteError(ResponseCode.TOPIC_NOT_EXIST, f"no route of {topic}")

    def places(self, code: int) -> list[str]:
        return [address for asked, address in self.asked if asked == code]


class Context(AdminContext):
    """Of this cluster."""

    async def cluster_info(self) -> ClusterInfo:
        brokers = {name: BrokerData("C", name, {0: address}) for name, address in ADDRESSES.items()}
        return ClusterInfo(brokers, {"C": list(brokers)})


class Cluster:
    """An Admin of it, as far as the command needs one."""

    def __init__(self, *down: str) -> None:
        self.api = Api(*down)
        context = Context(cast(Any, self.api), ["ns:1"], SystemClock())
        self.groups, self.topics = GroupAdmin(context), TopicAdmin(context)
        self.brokers = self
        self.masters_of_cluster = context.masters_of_cluster
        self.of_cluster = context.brokers_of_cluster


async def test_topics_and_groups_are_made_on_those_that_answer() -> None:
    cluster = Cluster("b:1")
    with pytest.raises(ClientError, match=LEFT):
        await cluster.topics.create_in_cluster("C", TopicConfig("T"))
    with pytest.raises(ClientError, match=LEFT):
        await cluster.groups.create_in_cluster("C", SubscriptionGroupConfig("G"))
    assert [address for _, address in cluster.api.asked] == ["a:1", "c:1"] * 2


async def test_a_topic_is_deleted_on_those_that_answer_and_name_servers_keep_it() -> None:
    cluster = Cluster("b:1")
    with pytest.raises(ClientError, match=LEFT):
        await cluster.topics.delete("T", "C")
    assert cluster.api.asked == [
        (RequestCode.DELETE_TOPIC_IN_BROKER, "a:1"),
        (RequestCode.DELETE_TOPIC_IN_BROKER, "c:1"),
    ]


@pytest.mark.parametrize("how", ["api", "command"])
async def test_a_group_is_deleted_on_those_that_answer_and_its_topics_stay(how: str) -> None:
    cluster = Cluster("b:1")
    if how == "api":
        with pytest.raises(ClientError, match=LEFT):
            await cluster.groups.delete_in_cluster("G", "C")
    else:
        report = await delete_sub_group(cast(Any, cluster), "G", cluster="C")
        assert report.value["brokers"] == ["a:1", "c:1"] and list(report.failures) == ["b:1"]
        assert report.text.count("success") == 2
    assert cluster.api.places(RequestCode.DELETE_SUBSCRIPTIONGROUP) == ["a:1", "c:1"]
    assert cluster.api.places(RequestCode.DELETE_TOPIC_IN_BROKER) == []
