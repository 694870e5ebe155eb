"""`maxq dlq`: what a group gave up, seen, exported and sent again."""

import asyncio
import json
import stat
from pathlib import Path

import pytest

from maxq.api import (
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    MessageExt,
    async_admin,
    async_producer,
    async_push_consumer,
)
from maxq.protocol.body.topic_config import TopicConfig
from tests.integration.broker.harness import until
from tests.integration.cli.harness import maxq

COUNT = 5


async def _kill_messages(namesrv: str, topic: str) -> str:
    """COUNT messages of `topic` become dead letters of the group that is returned."""
    group = f"CG_{topic}"
    async with async_producer("PG", namesrv) as producer:
        for number in range(COUNT):
            message = Message(topic, b"%d" % number)
            message.keys, message.tags = f"key-{number}", "A"
            message.put_user_property("number", str(number))
            await producer.send(message)

    def give_up(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        context.delay_level_when_next_consume = -1
        return ConsumeResult.RECONSUME_LATER

    consumer = async_push_consumer(
        group, namesrv, give_up, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    consumer.subscribe(topic)
    async with consumer, async_admin(namesrv) as admin:

        async def all_dead() -> bool:
            return any(found.group == group and found.count == COUNT for found in await admin.dead_letters.groups())

        await until(all_dead)
    return group


async def _received(namesrv: str, group: str, topic: str, count: int) -> list[MessageExt]:
    inbox: list[MessageExt] = []
    full = asyncio.Event()

    def listen(messages: list[MessageExt], _: ConsumeContext) -> None:
        inbox.extend(messages)
        if len(inbox) >= count:
            full.set()

    consumer = async_push_consumer(
        group, namesrv, listen, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    consumer.subscribe(topic)
    async with consumer, asyncio.timeout(30):
        await full.wait()
    return inbox


@pytest.fixture
async def dead(namesrv: str, request: pytest.FixtureRequest) -> tuple[str, str]:
    """Topic, group."""
    topic = f"Dlq{abs(hash(request.node.name)) % 10_000_000}"
    async with async_admin(namesrv) as admin:
        (broker,) = [
            address
            for data in (await admin.cluster_info()).broker_addr_table.values()
            for address in data.broker_addrs.values()
        ]
        await admin.topics.create(broker, TopicConfig(topic, 1, 1))
    return topic, await _kill_messages(namesrv, topic)


def _run(namesrv: str, *arguments: str) -> str:
    done = maxq("dlq", *arguments, namesrv=namesrv)
    assert done.code == 0, done.err
    return done.out


async def test_dead_letters_are_listed_shown_and_exported(namesrv: str, dead: tuple[str, str], tmp_path: Path) -> None:
    topic, group = dead
    (row,) = [row for row in json.loads(_run(namesrv, "list", "--json")) if row["group"] == group]
    assert (row["count"], row["redriven"]) == (COUNT, 0)
    shown = json.loads(_run(namesrv, "show", group, "--json"))
    assert sorted(letter["body"] for letter in shown) == [str(number) for number in range(COUNT)]
    assert {(letter["topic"], letter["originTopic"], letter["reconsumeTimes"]) for letter in shown} == {
        (f"%DLQ%{group}", topic, 1)
    }
    assert "only 2 are shown" in _run(namesrv, "show", group, "-c", "2")
    (one,) = json.loads(_run(namesrv, "show", group, "--key", "key-3", "--json"))
    assert one["body"] == "3"
    (same,) = json.loads(_run(namesrv, "show", group, "--msgId", one["originMsgId"], "--json"))
    assert same == one
    file = tmp_path / "letters.jsonl"
    assert f"{COUNT} dead letters" in _run(namesrv, "export", group, "--file", str(file))
    assert sorted(json.loads(line)["body"] for line in file.read_text().splitlines()) == [str(n) for n in range(COUNT)]
    link, other = tmp_path / "link", tmp_path / "letters.jsonl.part"
    link.symlink_to(file)
    file.chmod(0o600)
    other.write_text("a file of the user's")
    _run(namesrv, "export", group, "--file", str(link), "--key", "key-3")
    assert link.is_symlink() and json.loads(file.read_text())["body"] == "3"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert other.read_text() == "a file of the user's"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["letters.jsonl", "letters.jsonl.part", "link"]


async def test_redriven_letters_reach_their_group_once(namesrv: str, dead: tuple[str, str]) -> None:
    topic, group = dead
    assert f"{COUNT} dead letters of {group} would be sent" in _run(namesrv, "redrive", group, "--dry-run")
    assert f"{COUNT} dead letters of {group} were sent" in _run(namesrv, "redrive", group)
    nothing = _run(namesrv, "redrive", group)
    assert f"0 dead letters of {group} were sent again" in nothing and "--again" in nothing
    inbox = await _received(namesrv, group, topic, COUNT)
    assert sorted(message.body for message in inbox) == [b"%d" % number for number in range(COUNT)]
    assert {(message.topic, message.reconsume_times, message.tags) for message in inbox} == {(topic, 0, "A")}
    assert sorted(message.properties["number"] for message in inbox) == [str(number) for number in range(COUNT)]
    (row,) = [row for row in json.loads(_run(namesrv, "list", "--json")) if row["group"] == group]
    assert (row["count"], row["redriven"]) == (COUNT, COUNT)
    assert "1 dead letters" in _run(namesrv, "redrive", group, "--key", "key-1")
    assert f"{COUNT} dead letters" in _run(namesrv, "redrive", group, "--again", "--dry-run")


async def test_redrive_to_the_topics_the_letters_came_from(namesrv: str, dead: tuple[str, str]) -> None:
    topic, group = dead
    assert "1 dead letters" in _run(namesrv, "redrive", group, "--to", "origin", "--key", "key-2")
    inbox = await _received(namesrv, f"{group}_other", topic, COUNT + 1)
    assert sorted(message.body for message in inbox) == sorted([*(b"%d" % n for n in range(COUNT)), b"2"])
    again = max(inbox, key=lambda message: message.queue_offset)
    assert "RETRY_TOPIC" not in again.properties
    assert again.keys == "key-2"


async def test_letters_that_may_not_be_read_are_no_secret(namesrv: str, dead: tuple[str, str]) -> None:
    _, group = dead
    async with async_admin(namesrv) as admin:
        (broker,) = [
            address
            for data in (await admin.cluster_info()).broker_addr_table.values()
            for address in data.broker_addrs.values()
        ]
        await admin.topics.create(broker, TopicConfig(f"%DLQ%{group}", 1, 1, 2))

        async def is_shut() -> bool:
            return (await admin.topics.route(f"%DLQ%{group}")).queue_datas[0].perm == 2

        await until(is_shut)
    done = maxq("dlq", "show", group, namesrv=namesrv)
    assert done.code == 1
    assert "its perm is 2" in done.err and "updateTopicPerm" in done.err


def test_a_failed_export_leaves_the_letters_of_an_earlier_one(namesrv: str, tmp_path: Path) -> None:
    """The broker may have deleted them meanwhile."""
    file = tmp_path / "letters.jsonl"
    file.write_text("earlier letters\n")
    for words in (["Nobody"], ["G", "-n", "127.0.0.1:1"]):
        assert maxq("dlq", "export", *words, "-f", str(file), namesrv=namesrv).code == 1
        assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("letters.jsonl", "earlier letters\n")]


@pytest.mark.parametrize("arguments", [("show", "Nobody"), ("export", "Nobody", "-f", "-"), ("redrive", "Nobody")])
def test_a_group_without_dead_letters_is_said_to_have_none(namesrv: str, arguments: tuple[str, ...]) -> None:
    done = maxq("dlq", *arguments, namesrv=namesrv)
    assert (done.code, done.out) == (1, "")
    assert "group Nobody has no dead letters" in done.err


@pytest.mark.parametrize(
    "words", [["show", "Nobody"], ["export", "letters", "-g", "Nobody"], ["redrive", "Nobody", "--record", "r.jsonl"]]
)
def test_the_jobs_on_spark_know_a_group_without_dead_letters_before_they_make_anything(
    namesrv: str, tmp_path: Path, words: list[str]
) -> None:
    done = maxq("pipeline", "dlq", *words, namesrv=namesrv, cwd=tmp_path)
    assert done.code == 1 and done.err.count("\n") == 1 and "group Nobody has no dead letters" in done.err
    assert not list(tmp_path.iterdir())
