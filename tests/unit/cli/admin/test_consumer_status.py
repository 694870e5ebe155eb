"""`maxq admin consumerStatus`, and the members that `consumerProgress -s` shows, in text and as JSON."""

import json
from types import SimpleNamespace
from typing import cast

import pytest

from maxq.cli.admin.groups import consumer_progress, consumer_status
from maxq.cli.terminal.report import Report, Style, show
from maxq.client.admin.admin import Admin
from maxq.protocol.body.consumer_info import (
    ConsumerRunningInfo,
    ConsumeStatus,
    PopProcessQueueInfo,
    ProcessQueueInfo,
)
from maxq.protocol.body.heartbeat import ConnectionInfo, ConsumerConnection
from maxq.protocol.body.offsets import ConsumeStats, OffsetWrapper
from maxq.protocol.body.subscription import build_subscription_data
from maxq.protocol.message.message_queue import MessageQueue

MEMBER = ConsumerRunningInfo(
    mq_table={MessageQueue("Orders", "broker-a", 1): ProcessQueueInfo(commit_offset=7, cached_msg_count=3)},
    mq_pop_table={MessageQueue("Bills", "broker-a", 0): PopProcessQueueInfo()},
    status_table={"Orders": ConsumeStatus(1.5, 32.0, 512.25, 2.0, 0.5, 40)},
)


async def ask() -> Report:
    async def running_info(group: str, client_id: str, *, jstack: bool) -> ConsumerRunningInfo:
        return MEMBER

    admin = SimpleNamespace(groups=SimpleNamespace(running_info=running_info))
    return await consumer_status(cast(Admin, admin), "G", client_id="me")


async def test_json_lists_the_queues_of_a_member(capsys: pytest.CaptureFixture[str]) -> None:
    show(await ask(), Style.JSON)
    printed = json.loads(capsys.readouterr().out)
    (queue,) = printed["mqTable"]
    assert (queue["topic"], queue["brokerName"], queue["queueId"], queue["commitOffset"]) == (
        "Orders",
        "broker-a",
        1,
        7,
    )
    assert [queue["topic"] for queue in printed["mqPopTable"]] == ["Bills"]
    assert printed["statusTable"]["Orders"]["consumeRT"] == 512.25


async def test_text_has_how_long_calls_take_and_how_many_fail() -> None:
    lines = list((await ask()).notes)
    head = next(number for number, line in enumerate(lines) if line.startswith("#Topic"))
    assert lines[head].split("  ")[-1] == "#ConsumeFailedMsgsInHour"
    assert lines[head + 1].split() == ["Orders", "1.50", "32.00", "512.25", "2.00", "0.50", "40"]


MEMBERS = {"one@1": ("paid", "Thread worker\n  waits_for_a_database"), "two@2": ("open", "Thread worker\n  works")}


async def ask_all(*, jstack: bool) -> Report:
    async def running_info(group: str, client_id: str, *, jstack: bool) -> ConsumerRunningInfo:
        tags, stacks = MEMBERS[client_id]
        subscriptions = [build_subscription_data("Orders", tags)]
        return ConsumerRunningInfo(subscription_set=subscriptions, jstack=stacks if jstack else None)

    async def connections(group: str, broker: str | None) -> ConsumerConnection:
        return ConsumerConnection(connection_set=[ConnectionInfo(client_id=client_id) for client_id in MEMBERS])

    admin = SimpleNamespace(groups=SimpleNamespace(running_info=running_info, connections=connections))
    return await consumer_status(cast(Admin, admin), "G", jstack=jstack)


async def test_stacks_without_a_client_id_are_those_of_all_members(capsys: pytest.CaptureFixture[str]) -> None:
    show(await ask_all(jstack=True), Style.TEXT)
    printed = capsys.readouterr().out
    one, two = printed.index("Threads of one@1:"), printed.index("Threads of two@2:")
    assert one < printed.index("waits_for_a_database") < two
    show(await ask_all(jstack=True), Style.JSON)
    assert [row["jstack"] for row in json.loads(capsys.readouterr().out)] == [stacks for _, stacks in MEMBERS.values()]
    show(await ask_all(jstack=False), Style.TEXT)
    assert "Threads of" not in capsys.readouterr().out


async def test_json_has_what_each_member_subscribes_to(capsys: pytest.CaptureFixture[str]) -> None:
    show(await ask_all(jstack=False), Style.JSON)
    rows = json.loads(capsys.readouterr().out)
    assert [row["subscriptions"] for row in rows] == [{"Orders": "paid"}, {"Orders": "open"}]
    assert all("jstack" not in row for row in rows)


async def test_queues_are_shown_with_the_member_that_has_them() -> None:
    queues = [MessageQueue("Orders", "broker-a", number) for number in range(3)]
    held = {"me@1": [queues[0]], "me@2": [queues[1]]}

    async def consume_stats(group: str, topic: str | None, *, via: object) -> ConsumeStats:
        return ConsumeStats(offset_table={queue: OffsetWrapper(10, 4, 6) for queue in queues})

    async def running_info(group: str, client_id: str) -> ConsumerRunningInfo:
        return ConsumerRunningInfo(mq_table={queue: ProcessQueueInfo() for queue in held[client_id]})

    async def connections(group: str) -> ConsumerConnection:
        members = [ConnectionInfo(client_id=client_id, client_addr="10.0.0.1:4711") for client_id in held]
        return ConsumerConnection(connection_set=members)

    groups = SimpleNamespace(running_info=running_info, connections=connections, consume_stats=consume_stats)
    report = await consumer_progress(cast(Admin, SimpleNamespace(groups=groups)), "G", show_ip="true")
    rows = report.objects()
    assert [row["clientIp"] for row in rows] == ["10.0.0.1", "10.0.0.1", "N/A"]
    assert [row["clientId"] for row in rows] == ["me@1", "me@2", "N/A"]
