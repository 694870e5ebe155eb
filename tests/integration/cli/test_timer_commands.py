"""`maxq timer`: what is due when, where it lies, why it is late; from a running broker and from files."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from maxq.api import Message, async_producer
from maxq.testing.server_process import StandaloneProcess
from tests.integration.cli.harness import maxq
from tests.json_output import check_output

HOUR_MS = 3_600_000
MANY = 620  # more than a page


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    """A broker that fills its wheel and delivers nothing: what is due is late, and says why."""
    server = StandaloneProcess({"timerStopDequeue": "true"}, folder=tmp_path_factory.mktemp("timer"))
    with server:
        yield server


async def send(namesrv: str, topic: str, *dues_ms: int) -> list[str]:
    """Ids of messages that are due at these moments, sent in this order."""
    messages = [Message(topic, b"body") for _ in dues_ms]
    for message, due_ms in zip(messages, dues_ms, strict=True):
        message.deliver_time_ms = due_ms
    async with async_producer("PG_Timers", namesrv) as producer:
        return [result.msg_id for result in await producer.send_many(messages)]


def objects(*words: str, namesrv: str = "") -> Any:
    """What a command prints with --json, which is as its schema says."""
    done = maxq(*words, "--json", namesrv=namesrv)
    assert done.code == 0, done.err
    value = json.loads(done.out)
    check_output(" ".join(words[:2]), value)
    return value


def listed(count: int, *arguments: str, namesrv: str = "") -> list[dict[str, Any]]:
    """What `maxq timer list --json` prints, once that are so many messages."""
    deadline = time.monotonic() + 20
    while True:
        rows: list[dict[str, Any]] = objects("timer", "list", *arguments, namesrv=namesrv)
        if len(rows) == count or time.monotonic() > deadline:
            assert len(rows) == count, rows
            return rows


def now_ms() -> int:
    return int(time.time() * 1000)


def test_what_waits_is_listed_in_the_order_of_time_and_can_be_taken_back(
    server: StandaloneProcess, namesrv: str
) -> None:
    soon = now_ms() + HOUR_MS
    second, first = asyncio.run(send(namesrv, "TimerCli", soon + 60_000, soon))
    asyncio.run(send(namesrv, "TimerOther", soon + 30_000))
    broker = server.broker_address
    rows = listed(2, "-b", broker, "-t", "TimerCli", namesrv=namesrv)
    assert [row["msgId"] for row in rows] == [first, second]
    assert [row["dueMs"] for row in rows] == [-(-due // 1000) * 1000 for due in (soon, soon + 60_000)]
    assert {(row["state"], row["topic"], row.get("why")) for row in rows} == {("WAITING", "TimerCli", None)}
    (one,) = objects("timer", "inspect", first, "-c", "DefaultCluster", namesrv=namesrv)
    assert one == rows[0] and one["brokerName"] == "broker-a"
    assert listed(1, "-t", "TimerCli", "--end", str(soon + 10_000), "-b", broker, namesrv=namesrv) == rows[:1]
    assert listed(1, "-t", "TimerCli", "--begin", str(soon + 10_000), "-b", broker, namesrv=namesrv) == rows[1:]
    assert listed(1, "-t", "TimerCli", "--count", "1", "-b", broker, namesrv=namesrv) == rows[:1]
    done = maxq("timer", "cancel", first, "-b", broker, namesrv=namesrv)
    assert (done.code, done.out) == (0, f"{first} is taken back on {broker}\n"), done.err
    recalled = listed(3, "-t", "TimerCli", "-b", broker, namesrv=namesrv)
    assert sorted((row["msgId"], row["state"]) for row in recalled) == sorted(
        [(first, "WAITING"), (first, "MARKER"), (second, "WAITING")]
    )
    unknown = maxq("timer", "cancel", "7F" * 16, "-b", broker, namesrv=namesrv)
    assert (unknown.code, "no timer message 7F7F" in unknown.err) == (1, True)


def test_late_messages_say_why_and_files_tell_the_same(stopped: StandaloneProcess) -> None:
    namesrv, broker = stopped.namesrv_address, stopped.broker_address
    due = now_ms()
    dues = [due + 3_000 + number * 5 for number in range(MANY)] + [due + HOUR_MS]
    ids = asyncio.run(send(namesrv, "TimerLate", *dues))
    deadline = time.monotonic() + 30
    while True:
        live = listed(MANY + 1, "-b", broker, "--count", "1000", namesrv=namesrv)
        late = [row for row in live if row["state"] == "LATE"]
        if len(late) == MANY:
            break
        assert time.monotonic() < deadline, "they never become late"
    assert {row["why"] for row in late} == {"timerStopDequeue is true"}
    assert {row["msgId"] for row in live} == set(ids)
    assert [row["dueMs"] for row in live] == sorted(row["dueMs"] for row in live)
    table = maxq("timer", "list", "-b", broker, "--count", "1", namesrv=namesrv)
    assert f"broker-a: {MANY + 1} messages wait" in table.err + table.out
    assert "there may be more: only 1 are shown" in table.err + table.out
    stopped.kill()
    store = str(Path(stopped.store))
    files = listed(MANY + 1, "--store", store, "--count", "1000")
    places = ("msgId", "dueMs", "physicalOffset", "timerLogPosition", "state", "topic", "queueId")
    assert [[row[name] for name in places] for row in files] == [[row[name] for name in places] for row in live]
    assert {row.get("why") for row in files} == {"no broker delivers", None}
    (one,) = objects("timer", "inspect", ids[-1], "--store", store)
    assert (one["msgId"], one["state"]) == (ids[-1], "WAITING")
    gone = maxq("timer", "inspect", "7F" * 16, "--store", store)
    assert (gone.code, "no timer message 7F7F" in gone.err) == (1, True)


def test_a_message_that_is_not_in_the_wheel_yet_can_be_inspected_and_taken_back(tmp_path: Path) -> None:
    with StandaloneProcess({"timerStopEnqueue": "true"}, folder=tmp_path) as server:
        namesrv, broker = server.namesrv_address, server.broker_address
        (unread,) = asyncio.run(send(namesrv, "TimerUnread", now_ms() + HOUR_MS))
        (one,) = objects("timer", "inspect", unread, "-b", broker, namesrv=namesrv)
        assert (one["state"], one["why"]) == ("UNREAD", "timerStopEnqueue is true")
        assert objects("timer", "cancel", unread, "-b", broker, namesrv=namesrv)["msgId"] == unread


def test_a_store_and_a_broker_exclude_each_other(tmp_path: Path, namesrv: str) -> None:
    wrong = maxq("timer", "list", "--store", str(tmp_path), "-b", "127.0.0.1:1", namesrv=namesrv)
    assert (wrong.code, "--store reads files" in wrong.err) == (2, True)
    empty = maxq("timer", "list", "--store", str(tmp_path), namesrv=namesrv)
    assert (empty.code, "holds no store" in empty.err) == (2, True)
