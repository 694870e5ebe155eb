"""`maxq admin purgeTopic` on several brokers of which one does not answer."""

from types import SimpleNamespace
from typing import Any

from maxq.cli.admin.operations import purge_topic
from maxq.errors import RemotingConnectError

UP = "up:1"
DOWN = ("down:1", "down:2")


class Operations:
    """Of brokers, of which those of `DOWN` are not there."""

    def __init__(self) -> None:
        self.purged: list[str] = []

    async def purge_topic(self, address: str, topic: str, *, dry_run: bool, **_: Any) -> dict[str, Any]:
        if address in DOWN:
            raise RemotingConnectError("Connection refused", address=address)
        if not dry_run:
            self.purged.append(address)
        return {"messages": 3, "queues": [], "groups": []}


def admin_of(operations: Operations, *masters: str) -> Any:
    async def masters_of_cluster(cluster: str) -> list[str]:
        return list(masters)

    return SimpleNamespace(operations=operations, brokers=SimpleNamespace(masters_of_cluster=masters_of_cluster))


async def test_a_broker_that_was_not_reached_is_told_though_the_others_did_it() -> None:
    operations = Operations()
    report = await purge_topic(admin_of(operations, UP, DOWN[0]), "T", cluster="C", yes=True)
    assert operations.purged == [UP]
    assert list(report.failures) == [DOWN[0]] and "Connection refused" in report.failures[DOWN[0]]


async def test_where_no_broker_answers_nobody_is_asked_whether_to_go_on() -> None:
    report = await purge_topic(admin_of(Operations(), *DOWN), "T", cluster="C")
    assert list(report.failures) == list(DOWN)
