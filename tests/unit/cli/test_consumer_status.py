"""`maxq admin consumerStatus -i` in text and as JSON."""

import json
from types import SimpleNamespace
from typing import cast

import pytest

from maxq.cli.admin.groups import consumer_status
from maxq.cli.terminal.report import Report, Style, show
from maxq.client.admin.admin import Admin
from maxq.protocol.body.consumer_info import (
    ConsumerRunningInfo,
    ConsumeStatus,
    PopProcessQueueInfo,
    ProcessQueueInfo,
)
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
