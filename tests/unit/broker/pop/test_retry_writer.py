"""Messages that nobody acknowledged in time: what their copies keep, where they go, and which are not made."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from maxq.broker.pop.unfinished_revives import UnfinishedRevives
from maxq.broker.tables.topic.topic_config_manager import TopicConfigManager
from maxq.errors import MaxQError
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import Message, MessageExt, encode_batch
from maxq.protocol.message.message_sys_flag import MessageSysFlag
from maxq.store.store_results import PutMessageStatus
from tests.unit.broker.pop.pop_parts import CONFIG_DIR, GROUP, PopParts
from tests.unit.store.stores import delete_topics

RETRY = "%RETRY%G_T"


async def test_a_copy_is_its_message_tried_once_more(parts: PopParts) -> None:
    parts.fill([b"one"], KEYS="k", TAGS="t", DELAY="3")
    point = parts.point(0, 1)
    assert await parts.reviver.revive(point) == []
    (copy,) = parts.stored(RETRY)
    assert (copy.body, copy.reconsume_times, copy.queue_id) == (b"one", 1, 0)
    assert copy.properties.items() >= {"KEYS": "k", "TAGS": "t", const.PROPERTY_ORIGIN_GROUP: GROUP}.items()
    assert copy.properties[const.PROPERTY_FIRST_POP_TIME] == str(point.pop_time)
    assert const.PROPERTY_DELAY_TIME_LEVEL not in copy.properties  # it was delayed already
    assert parts.woken == [("T", GROUP)]


async def test_a_copy_of_a_copy_stays_in_its_topic_and_keeps_its_first_pop_time(parts: PopParts) -> None:
    parts.fill([b"one"])
    first = parts.point(0, 1)
    await parts.reviver.revive(first)
    parts.clock.now_ms += 5_000
    assert await parts.reviver.revive(parts.point(0, 1, topic=RETRY)) == []
    copies = parts.stored(RETRY)
    assert [copy.reconsume_times for copy in copies] == [1, 2]
    assert {copy.properties[const.PROPERTY_FIRST_POP_TIME] for copy in copies} == {str(first.pop_time)}


async def test_a_suspended_message_is_not_counted(parts: PopParts) -> None:
    parts.fill([b"one"])
    await parts.reviver.revive(parts.point(0, 1, suspend=True))
    assert [copy.reconsume_times for copy in parts.stored(RETRY)] == [0]


async def test_acknowledged_messages_and_those_that_are_gone_are_not_copied(parts: PopParts) -> None:
    parts.fill([b"0", b"1", b"2"])
    assert await parts.reviver.revive(parts.point(0, 5, bit_map=0b00010)) == [3, 4], "the queue has no such end yet"
    assert [copy.body for copy in parts.stored(RETRY)] == [b"0", b"2"]


@pytest.mark.parametrize(("was_slave", "is_deleted", "copies"), [(False, False, 0), (True, False, 1), (True, True, 0)])
async def test_a_slave_that_became_the_master_may_not_have_heard_of_a_group_that_it_has_not_deleted(
    parts: PopParts, was_slave: bool, is_deleted: bool, copies: int
) -> None:
    parts.fill([b"one"])
    parts.groups.begin(int(was_slave))
    if is_deleted:
        parts.groups.delete_subscription_group_config(GROUP)
    parts.groups.subscription_group_table.pop(GROUP, None)
    assert await parts.reviver.revive(parts.point(0, 1)) == []
    assert len(parts.stored(RETRY)) == copies
    assert parts.groups.contains_subscription_group(GROUP) == (copies > 0)


@pytest.mark.parametrize("is_read", [False, True])
async def test_messages_of_a_topic_that_is_deleted_while_they_are_read_are_not_copied(
    parts: PopParts, monkeypatch: pytest.MonkeyPatch, is_read: bool
) -> None:
    """Nor are those that a topic made again has in their places."""
    parts.fill([b"old"])

    async def deleted(*_: object) -> None:
        monkeypatch.undo()
        await delete_topics(parts.store, "T")
        parts.fill([b"new"])

    if is_read:
        read = parts.reviver._read

        async def then_deleted(*given: Any) -> None:
            await read(*given)
            await deleted()

        monkeypatch.setattr(parts.reviver, "_read", then_deleted)
    else:
        monkeypatch.setattr(parts.topics, "persisted", deleted)
    assert await parts.reviver.revive(parts.point(0, 1)) == []
    assert parts.stored(RETRY) == []


@pytest.mark.parametrize("gone", ["topic", "group"])
async def test_what_is_popped_of_a_topic_or_for_a_group_that_is_gone_is_done(parts: PopParts, gone: str) -> None:
    if gone == "topic":
        assert await parts.reviver.revive(parts.point(0, 2, topic="Gone")) == []
    else:
        parts.fill([b"0"])
        assert await parts.reviver.revive(replace(parts.point(0, 1), group="Gone")) == []
    assert not [topic for topic in parts.topics.topic_config_table if topic.startswith("%RETRY%")]


async def test_what_the_store_does_not_take_is_to_be_tried_again(parts: PopParts) -> None:
    parts.fill([b"0", b"1"])
    parts.refused = PutMessageStatus.OS_PAGE_CACHE_BUSY
    assert await parts.reviver.revive(parts.point(0, 2)) == [0, 1]
    assert parts.woken == []
    parts.refused = None
    assert await parts.reviver.revive(parts.point(0, 2)) == []
    assert [copy.body for copy in parts.stored(RETRY)] == [b"0", b"1"]


async def test_a_new_retry_topic_is_the_groups_from_its_begin_and_on_the_disk(parts: PopParts) -> None:
    parts.fill([b"0"])
    await parts.reviver.revive(parts.point(0, 1))
    assert parts.offsets.query_offset(GROUP, RETRY, 0) == 0
    topics = TopicConfigManager(parts.env.disk, CONFIG_DIR / "topics.json", settings=parts.settings, clock=parts.clock)
    topics.load()
    assert topics.select_topic_config(RETRY) is not None


@pytest.mark.parametrize(
    ("settings", "topic", "queues"),
    [({}, RETRY, [2, 0]), ({"useSeparateRetryQueue": "true"}, RETRY, [1, 1]),
     ({"enableRetryTopicV2": "true"}, "%RETRY%G+T", [2, 0])],
)  # fmt: skip
async def test_settings_choose_topic_and_queue_of_copies(
    make_parts: Callable[..., PopParts], settings: dict[str, str], topic: str, queues: list[int]
) -> None:
    parts = make_parts(**settings)
    parts.create(queues=2)
    for queue_id in range(2):
        parts.fill([b"x"], queue_id=queue_id)
        assert await parts.reviver.revive(parts.point(0, 1, queue_id=queue_id)) == []
    assert [len(parts.stored(topic, queue_id)) for queue_id in range(2)] == queues


async def test_messages_of_a_batch_come_one_by_one(parts: PopParts) -> None:
    body = encode_batch([Message("T", b"a", {"KEYS": "1"}), Message("T", b"b", {"KEYS": "2"})])
    parts.elsewhere["broker-b", "T", 0, 0] = MessageExt(
        topic="T", body=body, sys_flag=MessageSysFlag.INNER_BATCH, properties={const.PROPERTY_INNER_NUM: "2"}
    )
    assert await parts.reviver.revive(parts.point(0, 1, broker_name="broker-b")) == []
    copies = parts.stored(RETRY)
    assert [(copy.body, copy.properties["KEYS"]) for copy in copies] == [(b"a", "1"), (b"b", "2")]
    assert not any(copy.sys_flag & MessageSysFlag.INNER_BATCH for copy in copies)


@pytest.mark.parametrize(("name", "failed"), [("broker-b", []), ("silent", [7])])
async def test_what_another_broker_gave_is_read_there(parts: PopParts, name: str, failed: list[int]) -> None:
    parts.fill([b"0"])
    parts.elsewhere["broker-b", "T", 0, 7] = MessageExt(topic="T", body=b"theirs")
    assert await parts.reviver.revive(parts.point(7, 1, broker_name=name)) == failed
    assert [copy.body for copy in parts.stored(RETRY)] == ([] if failed else [b"theirs"])


async def test_a_message_that_is_acknowledged_while_another_is_read_is_not_copied(parts: PopParts) -> None:
    parts.fill([b"x"])
    point = parts.point(0, 2, broker_name="broker-b")

    class Slow(dict[tuple[str, str, int, int], MessageExt]):
        """What broker-b has; the first message is acknowledged while the second is read."""

        def get(self, key: Any, default: Any = None) -> Any:
            point.bit_map |= key[3]
            return self[key]

    parts.elsewhere = Slow({("broker-b", "T", 0, at): MessageExt(topic="T", body=b"%d" % at) for at in range(2)})
    assert await parts.reviver.revive(point) == []
    assert [copy.body for copy in parts.stored(RETRY)] == [b"1"]


async def test_a_message_that_cannot_be_read_and_is_acknowledged_meanwhile_is_not_tried_again(parts: PopParts) -> None:
    """It was opened again: its holder, whose ack was answered, got it once more."""
    parts.fill([b"x"])
    point = parts.point(0, 2, broker_name="broker-b")

    class Failing(dict[tuple[str, str, int, int], MessageExt]):
        """The first message cannot be read, and is acknowledged while the second is."""

        def get(self, key: Any, default: Any = None) -> Any:
            if key[3] == 0:
                raise MaxQError("not now")
            point.bit_map |= 1
            return self[key]

    parts.elsewhere = Failing({("broker-b", "T", 0, 1): MessageExt(topic="T", body=b"1")})
    assert await parts.reviver.revive(point) == []
    assert [copy.body for copy in parts.stored(RETRY)] == [b"1"]


async def test_a_copy_whose_properties_leave_no_room_is_made_without_more(parts: PopParts) -> None:
    parts.fill([b"0"], LONG="x" * 32_740)
    assert await parts.reviver.revive(parts.point(0, 1)) == []
    (copy,) = parts.stored(RETRY)
    assert const.PROPERTY_FIRST_POP_TIME not in copy.properties


async def test_copies_that_a_kill_left_without_a_note_are_not_made_again(parts: PopParts) -> None:
    parts.fill([b"0", b"1"])
    parts.journal.write({"e": []})
    await parts.reviver.revive(parts.point(0, 1))  # the first of two: then it was killed
    unfinished = UnfinishedRevives(parts.store, parts.journal, parts.clock, parts.store.max_physical_offset)
    unfinished.begin()
    parts.reviver.go_on_with(unfinished)
    assert await parts.reviver.revive(parts.point(0, 2)) == []
    assert [copy.body for copy in parts.stored(RETRY)] == [b"0", b"1"]
    parts.fill([b"0"])
    assert await parts.reviver.revive(parts.point(2, 1)) == []
    assert [copy.body for copy in parts.stored(RETRY)] == [b"0", b"1", b"0"], "another message, though it looks alike"
