"""Readers that ask for much at once (maxqMaxBytes) get it, less what they do not want; others notice nothing."""

import pytest

from maxq.codes import RequestCode
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.pull import PullMessageRequestHeader
from maxq.runtime.files.system import SystemMappedRegion
from maxq.store.read import message_reader
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import RunningBroker, messages_of


async def fill(broker: RunningBroker, count: int, size: int = 100) -> None:
    """Messages in two topics, in turn, so that no two of T are neighbours; of T every third has TagB."""
    broker.create_topic("T", queues=1)
    broker.create_topic("Other", queues=1)
    for i in range(count):
        tag = "TagA" if i % 3 else "TagB"
        await broker.send("T", b"%06d" % i + bytes(size), TAGS=tag, UNIQ_KEY=f"U{i}", a=str(i % 5))
        await broker.send("Other", b"other")


async def bulk(
    broker: RunningBroker, offset: int = 0, max_bytes: int = 1 << 20, omit: str | None = None, nums: int = 10_000,
    expression: str = "*", kind: str = "TAG",
) -> RemotingCommand:  # fmt: skip
    header = PullMessageRequestHeader(
        "TOOLS_CONSUMER", "T", 0, offset, nums, 4, 0, 0, 0, expression, kind, maxq_max_bytes=max_bytes, maxq_omit=omit
    )
    return await broker.invoke(RemotingCommand(RequestCode.PULL_MESSAGE, header.encode()))


async def test_an_answer_holds_as_much_as_asked_for(broker: RunningBroker) -> None:
    await fill(broker, 200)
    reply = await bulk(broker)
    assert (reply.ext["maxqCount"], reply.ext["nextBeginOffset"]) == ("200", "200")
    assert [message.body[:6] for message in messages_of(reply)] == [b"%06d" % i for i in range(200)]
    assert int(reply.ext["maxqBytes"]) == reply.body_length
    small = await bulk(broker, 7, max_bytes=2_000)
    assert 2 < len(messages_of(small)) < 20
    assert small.body_length <= 2_000
    assert messages_of(small)[0].queue_offset == 7
    assert (await bulk(broker, nums=50)).ext["nextBeginOffset"] == "50"


async def test_a_message_larger_than_asked_for_comes_alone(broker: RunningBroker) -> None:
    await fill(broker, 3, size=5_000)
    assert [message.queue_offset for message in messages_of(await bulk(broker, 1, max_bytes=200))] == [1]


@pytest.mark.parametrize(("omit", "body", "keeps"), [("body", b"", True), ("body,properties", b"", False)])
async def test_what_is_not_wanted_does_not_travel(broker: RunningBroker, omit: str, body: bytes, keeps: bool) -> None:
    await fill(broker, 40)
    whole, less = await bulk(broker), await bulk(broker, omit=omit)
    assert less.body_length < whole.body_length - 40 * 100
    assert less.ext["maxqBytes"] == whole.ext["maxqBytes"]
    for ours, original in zip(messages_of(less), messages_of(whole), strict=True):
        assert (ours.body, ours.physical_offset, ours.body_crc) == (body, original.physical_offset, original.body_crc)
        assert ours.properties == (original.properties if keeps else {})


async def test_places_only_are_told_without_records(broker: RunningBroker) -> None:
    await fill(broker, 40)
    reply = await bulk(broker, 10, omit="records", max_bytes=1_500)
    assert (reply.code, reply.body_length) == (0, 0)
    assert int(reply.ext["nextBeginOffset"]) == 10 + int(reply.ext["maxqCount"])
    assert 1_000 < int(reply.ext["maxqBytes"]) <= 1_500


async def test_places_are_told_of_records_that_stay_on_the_disk(
    start_broker: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await start_broker(accessMessageInMemoryMaxRatio="0")
    await fill(broker, 40)
    monkeypatch.setattr(SystemMappedRegion, "is_resident", lambda region, start, end: False)
    loaded: list[int] = []
    monkeypatch.setattr(SystemMappedRegion, "load", lambda region, start, end: loaded.append(end - start))
    assert (await bulk(broker, omit="records")).ext["maxqCount"] == "40"
    assert loaded == []


async def test_an_answer_from_the_disk_is_of_few_parts_of_the_log(
    start_broker: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop asks of each whether it is in memory. What is not asked of is not in the answer."""
    monkeypatch.setattr(message_reader, "_MOST_PARTS", 10)
    monkeypatch.setattr(message_reader, "_SMALL_GAP", 0)
    broker = await start_broker(accessMessageInMemoryMaxRatio="0")
    await fill(broker, 40)
    loaded: list[int] = []
    monkeypatch.setattr(SystemMappedRegion, "is_resident", lambda region, start, end: False)
    monkeypatch.setattr(SystemMappedRegion, "load", lambda region, start, end: loaded.append(end - start))
    reply = await bulk(broker, 7)
    assert [message.queue_offset for message in messages_of(reply)] == list(range(7, 17))
    assert (reply.ext["nextBeginOffset"], sum(loaded)) == ("17", reply.body_length)


async def test_filters_count_here_too(start_broker: Start) -> None:
    broker = await start_broker(enablePropertyFilter="true")
    await fill(broker, 100)
    tagged = await bulk(broker, expression="TagB")
    assert [message.queue_offset for message in messages_of(tagged)] == list(range(0, 100, 3))
    assert tagged.ext["nextBeginOffset"] == "100"
    selected = await bulk(broker, expression="a = '4'", kind="SQL92")
    assert [message.queue_offset for message in messages_of(selected)] == list(range(4, 100, 5))


async def test_the_setting_bounds_an_answer_and_zero_turns_them_off(start_broker: Start) -> None:
    broker = await start_broker(bulkPullMaxBytes=1_000)
    await fill(broker, 100)
    assert (await bulk(broker)).body_length <= 1_000
    other = await start_broker("plain", bulkPullMaxBytes=0)
    await fill(other, 100)
    reply = await bulk(other, omit="body")
    assert len(messages_of(reply)) == 32
    assert "maxqCount" not in reply.ext
    assert len(messages_of(reply)[0].body) == 106


async def test_an_ordinary_pull_after_a_large_one_is_an_ordinary_one(broker: RunningBroker) -> None:
    await fill(broker, 60)
    await bulk(broker)
    reply = await broker.pull("T", group="TOOLS_CONSUMER", max_nums=10_000)
    assert len(messages_of(reply)) == 32
    assert "maxqCount" not in reply.ext


async def test_an_answer_goes_on_in_the_next_file_of_the_log(broker: RunningBroker) -> None:
    await fill(broker, 150, size=10_000)
    assert len(list((broker.folder / "commitlog").iterdir())) > 1
    reply = await bulk(broker, max_bytes=4 << 20)
    assert [message.body[:6] for message in messages_of(reply)] == [b"%06d" % i for i in range(150)]
