"""SlaveSynchronize against a master that is a table of answers."""

import asyncio
import itertools
import logging
from collections.abc import Callable
from typing import cast

import pytest

from maxq.broker.slave import slave_synchronize
from maxq.broker.slave.master_api import MasterApi
from maxq.broker.slave.replicated_config_files import ReplicatedConfigFiles
from maxq.broker.slave.slave_synchronize import SlaveSynchronize, SlaveTables
from maxq.codes import RequestCode
from maxq.errors import RemoteProtocolError, RemotingConnectError, RemotingTimeoutError
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.body.offsets import DelayOffsetSerializeWrapper
from maxq.protocol.body.subscription import SubscriptionGroupConfig
from maxq.protocol.body.timer_checkpoint import TimerCheckpoint
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.frame.remoting_command import FRAME_MAX_LENGTH, RemotingCommand
from maxq.protocol.json import json_dialect
from maxq.remoting.client import RemotingClient
from maxq.store.compaction.compaction_store import CompactionStore, LackingQueue
from maxq.store.log.deletions import Deletions
from maxq.store.message_store import MessageStore
from tests.unit.broker.broker_world import CONFIG_DIR, BrokerWorld, FakeConnection

MASTER = "10.0.0.1:10911"
Answer = Callable[[RemotingCommand], RemotingCommand]


class Client:
    """Stands for RemotingClient: sends everything to the processors of another broker, but what the test answers."""

    def __init__(self, master: BrokerWorld) -> None:
        self.master = master
        self.asked: list[RemotingCommand] = []
        self.answers: dict[int, Answer] = {}
        self.failure: Exception | None = None
        self.answer_limit = FRAME_MAX_LENGTH
        self.longest_answer = 0

    async def invoke(self, address: str, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        assert address == MASTER
        self.asked.append(command)
        if self.failure is not None:
            raise self.failure
        if command.code in self.answers:
            return self.answers[command.code](command)
        connection = FakeConnection()
        connection.answer_limit = self.answer_limit
        answer = await self.master.send(command, connection)
        self.longest_answer = max(self.longest_answer, answer.body_length)
        return answer

    def codes(self) -> list[int]:
        return [command.code for command in self.asked]


class Scene:
    def __init__(self, **settings: str) -> None:
        self.master = BrokerWorld(settings)
        self.master.store.max_physical_offset = 0
        self.master.store.least_taken = 1_000
        self.slave = BrokerWorld({name: text for name, text in settings.items() if name == "enableLmq"})
        self.client = Client(self.master)
        self.own_address = "10.0.0.2:10911"
        self.timer_wheel = True
        self.log = self.slave.store
        self.log.max_physical_offset = 0
        self.joins_master = True
        self.tables_in_log = False
        self.files = ReplicatedConfigFiles(self.slave.disk, CONFIG_DIR)
        slave = self.slave
        self.synchronize = SlaveSynchronize(
            MasterApi(cast(RemotingClient, self.client)),
            SlaveTables(
                topics=slave.topics,
                mappings=slave.mappings,
                groups=slave.groups,
                offsets=slave.offsets,
                request_modes=slave.modes,
                files=self.files,
                deletions=Deletions(self.slave.disk, CONFIG_DIR),
            ),
            clock=slave.clock,
            own_address=lambda: self.own_address,
            timer_wheel=lambda: self.timer_wheel,
            own_log=cast(MessageStore, self.log),
            joins_master=lambda: self.joins_master,
            tables_in_log=lambda: self.tables_in_log,
        )
        self.synchronize.set_master_address(MASTER)


async def test_an_unchanged_table_costs_one_entry() -> None:
    scene = Scene()
    scene.master.add_topic("T")
    assert await scene.synchronize.sync_all()
    scene.client.asked.clear()
    assert await scene.synchronize.sync_all()
    tables = [command for command in scene.client.asked if command.code in (21, 201)]
    assert [(command.code, command.ext.get("maxTopicNum"), command.ext.get("maxGroupNum")) for command in tables] == [
        (21, "1", None), (201, None, "1"),
    ]  # fmt: skip
    assert scene.synchronize.rounds == 2


async def test_a_slave_that_acts_as_master_copies_no_offsets_until_it_does_no_more() -> None:
    """A master that comes back says where to copy from before it asks what was consumed here."""
    scene = Scene()
    scene.master.offsets.commit_offset("c", "G", "T", 0, 1)
    scene.slave.offsets.commit_offset("c", "G", "T", 1, 7)
    scene.slave.offsets.owns_offsets = True
    assert await scene.synchronize.sync_all()
    assert scene.slave.offsets.query_offsets("G", "T") == {1: 7}
    scene.slave.offsets.owns_offsets = False
    assert await scene.synchronize.sync_all()
    assert scene.slave.offsets.query_offsets("G", "T") == {0: 1}


async def test_a_master_that_knows_no_pages_is_understood() -> None:
    scene = Scene()
    scene.master.add_topic("T")

    def whole(request: RemotingCommand) -> RemotingCommand:  # RocketMQ 5.3
        return request.reply(body=scene.master.topics.encode_compact())

    scene.client.answers[21] = whole
    assert await scene.synchronize.sync_all()
    assert scene.slave.topics.topic_config_table == scene.master.topics.topic_config_table
    assert scene.client.codes().count(21) == 1


async def test_a_table_that_changes_between_two_pages_is_read_anew() -> None:
    scene = Scene(splitMetadataSize="5")
    for i in range(20):
        scene.master.add_topic(f"T{i:02}")
    changes = iter(range(1000))

    async def invoke(address: str, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        scene.client.asked.append(command)
        if command.ext.get("topicSeq") == "10" and next(changes) == 0:
            scene.master.topics.delete_topic_configs(["T00"])
        return await scene.master.send(command)

    scene.client.invoke = invoke  # type: ignore[method-assign]
    assert await scene.synchronize.sync_all()
    assert scene.slave.topics.topic_config_table == scene.master.topics.topic_config_table
    assert scene.slave.topics.data_version == scene.master.topics.data_version


async def test_a_table_that_never_stands_still_is_a_failure_that_changes_nothing() -> None:
    scene = Scene(splitMetadataSize="5")
    before = dict(scene.slave.topics.topic_config_table)

    async def invoke(address: str, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        scene.master.topics.update_data_version()
        return await scene.master.send(command)

    scene.client.invoke = invoke  # type: ignore[method-assign]
    assert await scene.synchronize.sync_all()
    assert (scene.slave.topics.topic_config_table, scene.synchronize.rounds) == (before, 0)


async def test_a_master_that_names_more_entries_than_it_sends_is_told_off() -> None:
    scene = Scene()

    def short(request: RemotingCommand) -> RemotingCommand:
        topics = {"T": TopicConfig("T").to_json()}
        body = json_dialect.dumps({"dataVersion": DataVersion(9).to_json(), "topicConfigTable": topics})
        return request.reply(ext={"totalTopicNum": "7"}, body=body)

    scene.client.answers[21] = short
    with pytest.raises(RemoteProtocolError, match="says it has 7 entries, but sent only 1"):
        await MasterApi(cast(RemotingClient, scene.client)).topics(MASTER, DataVersion(1))


async def test_an_empty_table_of_topics_is_not_taken() -> None:
    scene = Scene()
    before = dict(scene.slave.topics.topic_config_table)
    empty = b'{"dataVersion":{"counter":99},"topicConfigTable":{}}'
    scene.client.answers[21] = lambda request: request.reply(body=empty)
    assert await scene.synchronize.sync_all()
    assert scene.slave.topics.topic_config_table == before


async def test_topics_that_went_or_changed_are_told_to_the_listeners_and_others_are_not() -> None:
    scene = Scene()
    scene.master.add_topic("Same")
    scene.master.add_topic("Gone")
    await scene.synchronize.sync_all()
    told: list[tuple[list[str], list[str]]] = []
    scene.slave.topics.add_change_listener(
        lambda changed, deleted: told.append(([config.topic_name for config in changed], deleted))
    )
    scene.master.topics.delete_topic_configs(["Gone"])
    scene.master.add_topic("New")
    await scene.synchronize.sync_all()
    assert told == [(["New"], ["Gone"])]
    scene.master.topics.update_data_version()
    await scene.synchronize.sync_all()
    assert told == [(["New"], ["Gone"])]
    assert scene.slave.topics.data_version == scene.master.topics.data_version


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Of the slave alone: what other tests left behind complains when it is collected."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.WARNING and record.name.startswith("maxq.broker.slave.")
    ]


async def test_what_a_master_does_not_have_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    for code in (402, 61, 60):
        scene.client.answers[code] = lambda request: request.reply(3, "request type not supported")
    assert await scene.synchronize.sync_all()
    await scene.synchronize.sync_timer_check_point()
    assert scene.synchronize.rounds == 1
    assert _warnings(caplog) == []


async def test_a_failure_is_logged_when_it_begins_and_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.client.failure = RemotingConnectError("refused", address=MASTER)
    for _ in range(3):
        assert not await scene.synchronize.sync_all()
    scene.client.failure = None
    assert await scene.synchronize.sync_all()
    texts = _warnings(caplog)
    assert len(texts) == 2
    assert "failed, trying again: connection: refused" in texts[0] and "works again" in texts[1]


async def test_a_replication_link_that_is_made_anew_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()

    def ends_the_link(request: RemotingCommand) -> RemotingCommand:
        scene.joins_master = False
        return request.reply(body=scene.master.topics.encode_compact())

    scene.client.answers[21] = ends_the_link
    assert await scene.synchronize.sync_all()
    assert not await scene.synchronize.sync_all()
    scene.joins_master = True
    del scene.client.answers[21]
    assert await scene.synchronize.sync_all()
    assert _warnings(caplog) == []


async def test_a_replication_link_that_ends_each_time_a_table_is_asked_for_is_a_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()

    def ends_the_link(request: RemotingCommand) -> RemotingCommand:
        scene.joins_master = False
        return request.reply(body=scene.master.topics.encode_compact())

    scene.client.answers[21] = ends_the_link
    for _ in range(5):
        scene.joins_master = True
        await scene.synchronize.sync_all()
        scene.slave.clock.advance_ms(3_000)
    failed = [text.partition("trying again: ")[2] for text in _warnings(caplog)]
    assert "topics: the replication link ended before the master answered, each time for 10 s or longer" in failed
    del scene.client.answers[21]
    scene.joins_master = True
    assert await scene.synchronize.sync_all()
    assert "works again: topics" in _warnings(caplog)[len(failed)]


async def test_logs_that_do_not_join_for_ten_seconds_are_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.joins_master = False
    for _ in range(5):
        assert not await scene.synchronize.sync_all()
        scene.slave.clock.advance_ms(3_000)
    (text,) = _warnings(caplog)
    assert "while the replication link to the master stands and the two logs join" in text and "haLinkFailure" in text


async def test_a_master_that_dies_before_the_last_question_of_a_round_is_one_that_cannot_be_reached(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    assert await scene.synchronize.sync_all()
    scene.client.failure = RemotingConnectError("refused", address=MASTER)
    await scene.synchronize.sync_timer_check_point()
    scene.client.failure = None
    assert await scene.synchronize.sync_all()
    texts = _warnings(caplog)
    assert len(texts) == 2 and "connection" in texts[0] and "refused" in texts[0] and "again" in texts[1]


async def test_one_table_that_fails_leaves_the_others_to_be_taken() -> None:
    scene = Scene()
    scene.master.add_topic("T")
    scene.master.offsets.commit_offset("c", "G", "T", 0, 7)

    def late(request: RemotingCommand) -> RemotingCommand:
        raise RemotingTimeoutError("no answer", address=MASTER, timeout_ms=1)

    scene.client.answers[21] = late
    assert await scene.synchronize.sync_all()
    assert scene.slave.offsets.query_offset("G", "T", 0) == 7
    assert (scene.slave.topics.contains_topic("T"), scene.synchronize.rounds) == (False, 0)


async def test_what_clients_committed_here_is_with_the_master_and_still_here_after_a_round() -> None:
    scene = Scene()
    scene.master.add_topic("T")
    scene.master.groups.update_subscription_group_config(SubscriptionGroupConfig("G"))
    scene.master.offsets.commit_offset("c", "G", "T", 0, 7)
    scene.slave.offsets.commit_offset("c", "G", "T", 0, 12)
    scene.slave.offsets.slave_commits.note("G", "T", 0, 12)
    assert await scene.synchronize.sync_all()
    assert scene.master.offsets.query_offset("G", "T", 0) == 12
    assert scene.slave.offsets.query_offset("G", "T", 0) == 12
    assert len(scene.slave.offsets.slave_commits) == 0


@pytest.mark.parametrize("settings", [{}, {"enableLmq": "true"}])
async def test_a_table_of_offsets_that_is_longer_than_a_frame_comes_in_pages(settings: dict[str, str]) -> None:
    scene = Scene(**settings)
    scene.client.answer_limit = 1 << 20
    groups = ["G", "%LMQ%G"] if settings else ["G"]
    for number in range(10_000):
        for group in groups:
            scene.master.offsets.commit_offset("c", group, f"{'T' * 100}{number}", 0, number)
    assert await scene.synchronize.sync_all()
    assert scene.synchronize.rounds == 1
    for number in range(10_000):
        for group in groups:
            assert scene.slave.offsets.query_offset(group, f"{'T' * 100}{number}", 0) == number
    assert scene.slave.offsets.data_version == scene.master.offsets.data_version
    asked = scene.client.codes().count(RequestCode.GET_ALL_CONSUMER_OFFSET)
    assert asked > 4
    assert scene.client.longest_answer < 1 << 19


@pytest.mark.parametrize("fails", [False, True])
async def test_what_says_how_much_of_a_journal_is_read_is_never_copied_newer_than_groups_offsets(fails: bool) -> None:
    """Pages may be seconds apart. A start would not read of what was acknowledged meanwhile."""
    scene = Scene()
    master, slave = scene.master.offsets, scene.slave.offsets
    readers = ("reader", "late")
    master.oldest_keys = slave.oldest_keys = tuple(f"journal@{reader}" for reader in readers)
    numbers = itertools.count(1)

    def move_on() -> None:
        number = next(numbers)
        for topic, group in (("T", "G"), *(("journal", reader) for reader in readers[: number // 2 + 1])):
            master.commit_offset("c", group, topic, 0, number)

    master.commit_offset("c", "G", "T", 0, 0)
    for other in range(10_000):
        master.commit_offset("c", "Other", f"{'T' * 100}{other}", 0, 1)
    move_on()
    assert await scene.synchronize.sync_all()

    async def invoke(address: str, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        if command.code == RequestCode.GET_ALL_CONSUMER_OFFSET and command.ext["page"]:
            move_on()
        answer = await scene.master.send(command)
        if fails and command.code == RequestCode.GET_ALL_CONSUMER_OFFSET and "nextPage" not in (answer.ext or {}):
            raise RemotingTimeoutError("too late")
        return answer

    scene.client.invoke = invoke  # type: ignore[method-assign]
    for turn in range(3):
        await scene.synchronize.sync_all()
        assert 1 <= slave.query_offset("reader", "journal", 0) <= slave.query_offset("G", "T", 0)
        late = slave.query_offset("late", "journal", 0)
        assert late <= slave.query_offset("G", "T", 0) and (late < 0) == (fails or not turn)
    assert (slave.query_offset("reader", "journal", 0) > 1) == (not fails)


def with_commit_for_master(offset: int) -> Scene:
    """A slave to which a client committed what its master does not know."""
    scene = Scene()
    for broker in (scene.master, scene.slave):
        broker.add_topic("T")
        broker.groups.update_subscription_group_config(SubscriptionGroupConfig("G"))
    scene.slave.offsets.commit_offset("c", "G", "T", 0, offset)
    scene.slave.offsets.slave_commits.note("G", "T", 0, offset)
    return scene


async def test_what_is_handed_over_takes_nothing_back_that_was_committed_at_the_master_meanwhile() -> None:
    scene = with_commit_for_master(5)

    def overtaken(request: RemotingCommand) -> RemotingCommand:
        del scene.client.answers[RequestCode.GET_ALL_CONSUMER_OFFSET]
        page = request.reply(body=scene.master.offsets.encode_compact())
        scene.master.offsets.commit_offset("c", "G", "T", 0, 9)
        return page

    scene.client.answers[RequestCode.GET_ALL_CONSUMER_OFFSET] = overtaken
    assert await scene.synchronize.sync_all()
    for broker in (scene.master, scene.slave):
        assert broker.offsets.query_offset("G", "T", 0) == 9
    assert len(scene.slave.offsets.slave_commits) == 0


@pytest.mark.parametrize("group", ["G", "%LMQ%G"])
async def test_what_is_committed_here_while_the_masters_table_comes_is_not_taken_back(group: str) -> None:
    """Who asks this slave in the meantime, or after it has become the master, goes on where he was."""
    scene = Scene(enableLmq="true")
    scene.master.offsets.commit_offset("c", group, "T", 0, 5)

    def meanwhile(request: RemotingCommand) -> RemotingCommand:
        page = request.reply(body=scene.master.offsets.encode_compact())
        scene.slave.offsets.commit_offset("c", group, "T", 0, 9)
        scene.slave.offsets.slave_commits.note(group, "T", 0, 9)
        return page

    scene.client.answers[RequestCode.GET_ALL_CONSUMER_OFFSET] = meanwhile
    assert await scene.synchronize.sync_all()
    assert scene.slave.offsets.query_offset(group, "T", 0) == 9


def view(masters: dict[int, bytes]) -> Answer:
    """Answers VIEW_MESSAGE_BY_ID from `masters`, by physical offset."""

    def answer(request: RemotingCommand) -> RemotingCommand:
        record = masters.get(int(request.ext["offset"]))
        return request.reply(1, "can not find message by the offset") if record is None else request.reply(body=record)

    return answer


async def test_a_master_whose_log_parts_from_the_slaves_is_told_the_commits_of_messages_that_both_have(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = with_commit_for_master(5)
    scene.joins_master = False
    scene.log.fill("T", 0, [1] * 9)
    scene.log.fill("T", 1, [1] * 9)
    scene.log.messages = {offset: b"slave's %d" % offset for offset in range(0, 900, 100)}
    masters = {offset: record for offset, record in scene.log.messages.items() if offset <= 500}
    masters[600] = b"another"  # the seventh of each queue
    scene.client.answers[RequestCode.VIEW_MESSAGE_BY_ID] = view(masters)
    scene.slave.offsets.slave_commits.note("G", "T", 1, 7)
    assert not await scene.synchronize.sync_all()
    assert scene.master.offsets.query_offsets("G", "T") == {0: 5}
    assert scene.slave.offsets.slave_commits.table() == {"T@G": {1: 7}}, "its master would pass over another message"
    scene.slave.offsets.slave_commits.note("G", "T", 0, 6)
    for _ in range(2):
        assert not await scene.synchronize.sync_all()
    assert scene.master.offsets.query_offsets("G", "T") == {0: 6}
    assert caplog.text.count("1 of them belong to messages that differ on the master") == 1
    assert scene.client.codes().count(RequestCode.GET_ALL_TOPIC_CONFIG) == 0, "its tables are of another log"


@pytest.mark.parametrize(
    ("offset", "has_it", "taken"), [(0, False, True), (3, False, False), (10, True, False), (3, True, True)]
)
async def test_of_a_message_that_is_not_on_both_sides_nothing_is_handed_over_while_logs_do_not_join(
    offset: int, has_it: bool, taken: bool
) -> None:
    scene = with_commit_for_master(offset)
    scene.joins_master = False
    scene.log.fill("T", 0, [1] * 9)
    scene.log.messages = {offset: b"%d" % offset for offset in range(0, 900, 100)}
    scene.client.answers[RequestCode.VIEW_MESSAGE_BY_ID] = view(scene.log.messages if has_it else {})
    assert not await scene.synchronize.sync_all()
    assert (scene.master.offsets.query_offset("G", "T", 0) == offset) is taken
    assert len(scene.slave.offsets.slave_commits) == (not taken)


@pytest.mark.parametrize("unknown", [0, 20])
async def test_a_commit_behind_a_message_that_is_not_here_holds_up_no_other_one(unknown: int) -> None:
    """The message was deleted for its age, or the commit lies behind the end of its queue."""
    scene = with_commit_for_master(5)
    scene.joins_master = False
    scene.log.fill("T", 0, [1] * 9)
    scene.log.messages = {offset: b"%d" % offset for offset in range(0, 900, 100)}
    scene.client.answers[RequestCode.VIEW_MESSAGE_BY_ID] = view(scene.log.messages)
    scene.slave.offsets.slave_commits.note("G", "T", 1, unknown or 3)
    assert not await scene.synchronize.sync_all()
    assert scene.master.offsets.query_offsets("G", "T") == {0: 5}
    assert scene.slave.offsets.slave_commits.table() == {"T@G": {1: unknown or 3}}


async def test_a_slave_that_acts_hands_nothing_over() -> None:
    scene = with_commit_for_master(0)
    scene.joins_master, scene.slave.offsets.owns_offsets = False, True
    assert not await scene.synchronize.sync_all()
    assert scene.client.asked == []


async def test_a_master_that_cannot_be_reached_is_told_what_was_committed_here_later() -> None:
    scene = with_commit_for_master(0)
    scene.joins_master = False
    scene.client.failure = RemotingConnectError("refused", address=MASTER)
    assert not await scene.synchronize.sync_all()
    scene.client.failure = None
    assert not await scene.synchronize.sync_all()
    assert scene.master.offsets.query_offset("G", "T", 0) == 0


async def test_what_a_master_does_not_take_now_is_handed_over_later() -> None:
    """It is not sure of its role, say; only what it knows no more is let go."""
    scene = with_commit_for_master(5)
    scene.client.answers[RequestCode.UPDATE_CONSUMER_OFFSET] = lambda request: request.reply(14, "not sure")
    await scene.synchronize.sync_all()
    assert len(scene.slave.offsets.slave_commits) == 1
    del scene.client.answers[RequestCode.UPDATE_CONSUMER_OFFSET]
    await scene.synchronize.sync_all()
    assert scene.master.offsets.query_offset("G", "T", 0) == 5
    assert len(scene.slave.offsets.slave_commits) == 0


async def test_what_is_handed_over_of_a_static_topic_is_of_the_physical_queue() -> None:
    scene = with_commit_for_master(5)
    await scene.synchronize.sync_all()
    (told,) = (command for command in scene.client.asked if command.code == RequestCode.UPDATE_CONSUMER_OFFSET)
    assert told.ext["lo"] == "false"  # StaticTopicGate takes the number for a global one else


async def test_offsets_are_handed_over_where_the_masters_page_says_less_or_no_page_says_anything() -> None:
    scene = Scene()
    for group in ("G", "H"):
        scene.master.groups.update_subscription_group_config(SubscriptionGroupConfig(group))
    for number in range(5000):
        scene.master.add_topic(name := f"{'T' * 100}{number}")
        scene.master.offsets.commit_offset("c", "G", name, 0, 7)
    first, last = "T" * 100 + "0", "T" * 100 + "4999"
    for group, topic, offset in (("G", first, 5), ("G", last, 5), ("G", "T" * 100 + "4998", 9), ("H", last, 3)):
        scene.slave.offsets.commit_offset("c", group, topic, 0, offset)
        scene.slave.offsets.slave_commits.note(group, topic, 0, offset)
    assert await scene.synchronize.sync_all()
    told = [command.ext for command in scene.client.asked if command.code == RequestCode.UPDATE_CONSUMER_OFFSET]
    assert [(ext["consumerGroup"], ext["topic"], ext["commitOffset"]) for ext in told if ext is not None] == [
        ("G", "T" * 100 + "4998", "9"),
        ("H", last, "3"),
    ]
    for broker in (scene.master, scene.slave):
        assert broker.offsets.query_offset("G", first, 0) == broker.offsets.query_offset("G", last, 0) == 7
        assert broker.offsets.query_offset("G", "T" * 100 + "4998", 0) == 9
        assert broker.offsets.query_offset("H", last, 0) == 3
    assert len(scene.slave.offsets.slave_commits) == 0


async def test_a_light_groups_commit_that_its_master_knows_better_is_not_handed_over() -> None:
    scene = Scene(enableLmq="true")
    scene.master.offsets.commit_offset("c", "%LMQ%g", "%LMQ%q", 0, 12)
    scene.slave.offsets.slave_commits.note("%LMQ%g", "%LMQ%q", 0, 9)
    assert await scene.synchronize.sync_all()
    assert RequestCode.UPDATE_CONSUMER_OFFSET not in scene.client.codes()
    assert scene.slave.offsets.query_offset("%LMQ%g", "%LMQ%q", 0) == 12


async def test_what_the_master_does_not_take_is_offered_once() -> None:
    scene = Scene()
    scene.slave.offsets.slave_commits.note("gone", "T", 0, 12)
    for _ in range(2):
        assert await scene.synchronize.sync_all()
    assert scene.client.codes().count(RequestCode.UPDATE_CONSUMER_OFFSET) == 1


# --- changes between rounds ---


class WaitingClient(Client):
    """Its master answers 30090, too, when there is something to say."""

    async def invoke(self, address: str, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        if command.code != RequestCode.MAXQ_AWAIT_TABLE_CHANGE or command.code in self.answers:
            return await super().invoke(address, command, timeout_ms)
        self.asked.append(command)
        connection = FakeConnection()
        await self.master.send(command, connection)
        return connection.sent[0]


async def watched() -> Scene:
    """A slave after its first round, which waits for a change."""
    scene = Scene()
    scene.client.__class__ = WaitingClient
    scene.synchronize.start()
    await until(lambda: scene.synchronize.rounds > 0 and RequestCode.MAXQ_AWAIT_TABLE_CHANGE in scene.client.codes())
    return scene


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_so():  # noqa: ASYNC110 - a turn of the loop, no time
            await asyncio.sleep(0)


@pytest.fixture
def no_further_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slave_synchronize, "PERIOD", 1000.0)


@pytest.mark.usefixtures("no_further_rounds")
async def test_what_changes_at_the_master_is_taken_before_the_next_round() -> None:
    scene = await watched()
    scene.master.add_topic("T")
    await until(lambda: scene.slave.topics.contains_topic("T"))
    scene.master.groups.update_subscription_group_config(SubscriptionGroupConfig("G"))
    await until(lambda: scene.slave.groups.contains_subscription_group("G"))
    assert scene.synchronize.rounds == 1
    assert scene.slave.topics.data_version == scene.master.topics.data_version
    await scene.synchronize.stop()


@pytest.mark.usefixtures("no_further_rounds")
async def test_a_master_that_is_back_is_asked_for_changes_as_soon_as_the_logs_have_joined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until it is asked it does not know that somebody copies what it promises."""
    monkeypatch.setattr(slave_synchronize, "_RETRY", 1000.0)
    scene = await watched()
    asked: list[RemotingCommand] = []

    def refuse(request: RemotingCommand) -> RemotingCommand:
        asked.append(request)
        return request.reply(1, "it is gone")

    scene.client.answers[RequestCode.MAXQ_AWAIT_TABLE_CHANGE] = refuse
    scene.master.add_topic("T")
    await until(lambda: len(asked) == 1)
    del scene.client.answers[RequestCode.MAXQ_AWAIT_TABLE_CHANGE]
    scene.client.asked.clear()
    scene.synchronize.wake()
    await until(lambda: RequestCode.MAXQ_AWAIT_TABLE_CHANGE in scene.client.codes())
    await scene.synchronize.stop()


@pytest.mark.parametrize("slow", [1, 100], ids=["a master that stood still once", "a master that is always slow"])
async def test_a_round_that_took_long_puts_off_no_others(monkeypatch: pytest.MonkeyPatch, slow: int) -> None:
    """A slave that took over meanwhile would have the offsets of many minutes ago."""
    monkeypatch.setattr(slave_synchronize, "PERIOD", 0.001)
    if slow > 1:
        monkeypatch.setattr(slave_synchronize, "_LONGEST", 0.001)
    scene = Scene()

    def late(request: RemotingCommand) -> RemotingCommand:
        if scene.client.codes().count(RequestCode.GET_ALL_DELAY_OFFSET) <= slow:
            scene.slave.clock.advance_ms(30_000)
        return request.reply(body=b"{}")

    scene.client.answers[RequestCode.GET_ALL_DELAY_OFFSET] = late
    scene.synchronize.start()
    await until(lambda: scene.client.codes().count(RequestCode.GET_ALL_DELAY_OFFSET) > 3)
    await scene.synchronize.stop()


@pytest.mark.usefixtures("no_further_rounds")
async def test_a_master_of_java_is_asked_once_for_changes() -> None:
    scene = Scene()
    scene.client.answers[RequestCode.MAXQ_AWAIT_TABLE_CHANGE] = lambda request: request.reply(3, "not supported")
    scene.synchronize.start()
    await until(lambda: scene.synchronize.rounds > 0)
    watching = scene.synchronize._watch_task
    assert watching is not None
    await asyncio.wait_for(watching, 20)
    assert scene.client.codes().count(RequestCode.MAXQ_AWAIT_TABLE_CHANGE) == 1
    await scene.synchronize.stop()


@pytest.mark.usefixtures("no_further_rounds")
async def test_a_slave_that_follows_nobody_any_more_takes_no_changes() -> None:
    scene = await watched()
    watching = scene.synchronize._watch_task
    assert watching is not None
    scene.synchronize.set_master_address("")
    await until(watching.cancelled)
    await scene.synchronize.stop()
    assert scene.synchronize._watch_task is None


@pytest.mark.parametrize("address", ["", MASTER])
async def test_nobody_is_asked_without_a_master_or_if_it_is_ourselves(address: str) -> None:
    scene = Scene()
    scene.own_address = MASTER
    scene.synchronize.set_master_address(address)
    assert not await scene.synchronize.sync_all()
    await scene.synchronize.sync_timer_check_point()
    assert scene.client.asked == []


async def test_nothing_of_the_timer_is_asked_for_without_the_wheel() -> None:
    scene = Scene()
    scene.timer_wheel = False
    await scene.synchronize.sync_all()
    await scene.synchronize.sync_timer_check_point()
    assert not {60, 61} & set(scene.client.codes())


async def test_a_slave_that_becomes_master_counts_versions_on_from_the_masters() -> None:
    scene = Scene()
    scene.master.add_topic("T")
    await scene.synchronize.sync_all()
    scene.slave.add_topic("U")
    assert scene.slave.topics.data_version.counter == scene.master.topics.data_version.counter + 1


async def test_the_timers_place_is_the_masters_and_the_own_wheel_stays() -> None:
    scene = Scene()
    scene.slave.disk.make_dirs(CONFIG_DIR)
    own = TimerCheckpoint(1, 2, 3, 4, DataVersion(5, 6, 7))
    scene.slave.disk.write(CONFIG_DIR / "timercheck", own.encode().ljust(4096, b"\0"))
    master = TimerCheckpoint(100, 200, 300, 400, DataVersion(500, 600, 700))
    scene.client.answers[60] = lambda request: request.reply(body=master.encode())
    await scene.synchronize.sync_timer_check_point()
    data = scene.slave.disk.read(CONFIG_DIR / "timercheck")
    assert len(data) == 4096
    assert TimerCheckpoint.decode(data) == TimerCheckpoint(100, 2, 3, 400, DataVersion(500, 600, 700))


async def test_a_file_that_says_what_the_master_says_is_not_written_again() -> None:
    scene = Scene()
    assert scene.files.write_delay_offsets(b'{"offsetTable":{1:3}}')
    assert not scene.files.write_delay_offsets(b'{"offsetTable":{1:3}}')
    assert not ReplicatedConfigFiles(scene.slave.disk, CONFIG_DIR).write_delay_offsets(b'{"offsetTable":{1:3}}')
    assert scene.files.write_delay_offsets(b'{"offsetTable":{1:4}}')
    assert scene.slave.disk.read(CONFIG_DIR / "delayOffset.json.bak") == b'{"offsetTable":{1:3}}'


async def test_what_the_master_calls_delivered_is_believed_when_the_log_has_it() -> None:
    scene = Scene()
    table = DelayOffsetSerializeWrapper({1: 3}, DataVersion(0, 0, 1), 5000).encode()
    scene.client.answers[45] = lambda request: request.reply(body=table)
    scene.log.max_physical_offset = 4999
    assert await scene.synchronize.sync_all()
    assert scene.files.read_delay_offsets() is None
    scene.log.max_physical_offset = 5000
    assert await scene.synchronize.sync_all()
    assert scene.files.read_delay_offsets() == table


async def test_offsets_that_rest_on_more_log_than_is_here_are_taken_when_it_is_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The group is beyond a popped message because the master's log has a copy of it."""
    monkeypatch.setattr(slave_synchronize, "_LOOK_SECONDS", 0)
    scene = Scene()
    scene.master.offsets.commit_offset("c", "G", "T", 0, 1)
    table = (await scene.master.send(RemotingCommand(RequestCode.GET_ALL_CONSUMER_OFFSET))).body_bytes
    end, scene.log.max_physical_offset = 100, 99
    row = {**json_dialect.loads(table), "logEnd": end}
    scene.client.answers[RequestCode.GET_ALL_CONSUMER_OFFSET] = lambda request: request.reply(
        body=json_dialect.dumps(row)
    )
    assert await scene.synchronize.sync_all()
    assert scene.slave.offsets.query_offsets("G", "T") == {}
    scene.log.max_physical_offset = end
    assert await scene.synchronize.sync_all()
    assert scene.slave.offsets.query_offsets("G", "T") == {0: 1}


async def test_a_master_says_how_far_its_log_went_when_its_offsets_were_so() -> None:
    scene = Scene()
    scene.master.store.max_physical_offset = 7
    answer = await scene.master.send(
        RemotingCommand(RequestCode.GET_ALL_CONSUMER_OFFSET, {"deletions": "false", "page": ""})
    )
    assert json_dialect.loads(answer.body_bytes)["logEnd"] == 7
    of_java = await scene.master.send(RemotingCommand(RequestCode.GET_ALL_CONSUMER_OFFSET))
    assert "logEnd" not in json_dialect.loads(of_java.body_bytes)


async def test_where_the_masters_log_begins_is_known_or_is_not() -> None:
    scene = Scene()
    scene.master.runtime = {"commitLogMinOffset": "1073741824"}
    assert await scene.synchronize.master_min_offset() == 1 << 30
    scene.master.runtime = {}
    assert await scene.synchronize.master_min_offset() is None
    scene.client.failure = RemotingConnectError("refused", address=MASTER)
    assert await scene.synchronize.master_min_offset() is None


async def test_the_answers_of_a_master_without_delayed_messages_let_a_java_slave_start_its_wheel_now() -> None:
    master = BrokerWorld()
    answer = await master.call(RequestCode.GET_TIMER_CHECK_POINT)
    checkpoint = TimerCheckpoint.decode(answer.body_bytes)
    assert (len(answer.body_bytes), answer.code) == (56, 0)
    assert 0 <= master.clock.wall_ms() - checkpoint.last_read_time_ms < 1000
    assert checkpoint.last_read_time_ms % 1000 == 0
    metrics = json_dialect.loads((await master.call(RequestCode.GET_TIMER_METRICS)).body_bytes)
    assert (metrics["timingCount"], set(metrics["dataVersion"])) == ({}, {"counter", "stateVersion", "timestamp"})


@pytest.mark.parametrize("code", [60, 61])
async def test_a_master_without_the_wheel_says_so(code: int) -> None:
    answer = await BrokerWorld({"timerWheelEnable": "false"}).call(code)
    assert answer.code == 1 and "timerWheelEnable is false" in (answer.remark or "")


async def test_tables_of_a_new_master_do_not_wait_for_the_answer_of_one_that_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    scene.master.add_topic("T")
    invoke, asked_the_dead = scene.client.invoke, asyncio.Event()

    async def of_one_that_is_gone(address: str, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        if address == MASTER:
            asked_the_dead.set()
            await asyncio.Event().wait()
        return await invoke(MASTER, command, timeout_ms)

    monkeypatch.setattr(scene.client, "invoke", of_one_that_is_gone)
    scene.synchronize.start()
    await asked_the_dead.wait()
    scene.synchronize.set_master_address("10.0.0.3:10911")
    await until(lambda: scene.slave.topics.contains_topic("T"))
    await scene.synchronize.stop()


# --- a member of a DLedger group --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_further_rounds")
async def test_where_the_log_says_what_tables_are_nobody_is_asked_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slave_synchronize, "_RETRY", 0.001)
    scene = Scene()
    scene.client.__class__ = WaitingClient
    scene.tables_in_log = True
    scene.master.add_topic("T")
    scene.master.groups.update_subscription_group_config(SubscriptionGroupConfig("G"))
    scene.master.offsets.commit_offset("c", "G", "T", 0, 1)
    scene.synchronize.start()
    await until(lambda: scene.synchronize.rounds > 0)
    await asyncio.sleep(0.01)
    assert not scene.slave.topics.contains_topic("T")
    assert not scene.slave.groups.contains_subscription_group("G")
    assert scene.slave.offsets.query_offsets("G", "T") == {0: 1}
    tables = {
        RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, RequestCode.MAXQ_AWAIT_TABLE_CHANGE,
    }  # fmt: skip
    assert not tables & set(scene.client.codes())
    scene.tables_in_log = False  # a Java member leads now
    await until(lambda: scene.slave.topics.contains_topic("T") and scene.slave.groups.contains_subscription_group("G"))
    await scene.synchronize.stop()


async def test_offsets_without_what_the_log_says_that_an_operator_has_set_are_not_taken() -> None:
    """A reset would be undone by an answer that comes late, or from a broker that was the leader and lost its power."""
    scene = Scene()
    scene.tables_in_log = True
    scene.master.store.max_physical_offset = scene.log.max_physical_offset = 1000
    scene.master.offsets.commit_offset("c", "G", "T", 0, 7)
    scene.master.offsets.has_set(100)
    assert scene.slave.offsets.take_set({"T@G": {0: 2}}, 500)
    assert await scene.synchronize.sync_all()
    assert scene.synchronize.rounds == 0
    assert scene.slave.offsets.query_offsets("G", "T") == {0: 2}
    scene.master.offsets.take_set({"T@G": {0: 2}}, 500)
    scene.master.offsets.commit_offset("c", "G", "T", 0, 3)
    assert await scene.synchronize.sync_all()
    assert scene.synchronize.rounds == 1
    assert scene.slave.offsets.query_offsets("G", "T") == {0: 3}


async def test_offsets_of_a_member_that_knows_of_less_of_the_log_are_not_taken() -> None:
    """It was the leader, lost its power, and is there again with what it had written to the disk by then."""
    scene = Scene()
    scene.tables_in_log = True
    scene.master.store.max_physical_offset, scene.log.max_physical_offset = 999, 1000
    scene.master.offsets.commit_offset("c", "G", "T", 0, 3)
    scene.slave.offsets.commit_offset("c", "G", "T", 0, 7)
    assert await scene.synchronize.sync_all()
    assert scene.synchronize.rounds == 0
    assert scene.slave.offsets.query_offsets("G", "T") == {0: 7}
    scene.master.store.max_physical_offset = 1000
    assert await scene.synchronize.sync_all()
    assert scene.synchronize.rounds == 1
    assert scene.slave.offsets.query_offsets("G", "T") == {0: 3}


class Compacted:
    """Stands for the compacted queues of a slave that lacks the messages of one below offset 6."""

    topics = frozenset({"T"})

    def __init__(self) -> None:
        self.next_offset = 0
        self.copied: list[bytes] = []
        self.master_log_begins = 0

    def lacking(self) -> list[LackingQueue]:
        return [LackingQueue("T", 0, self.next_offset, 6)] if self.next_offset < 6 else []

    def adopt(self, queue: LackingQueue, records: memoryview, next_offset: int) -> None:
        self.copied.append(bytes(records))
        self.next_offset = next_offset

    async def copy_anew(self, queue: LackingQueue) -> None:
        self.copied.clear()
        self.next_offset = 0


@pytest.mark.parametrize("fails", [False, True])
async def test_a_compacted_queue_that_the_master_compacts_meanwhile_is_copied_anew(fails: bool) -> None:
    """What deletes a key may be gone there, and its message was copied."""
    scene, compacted = Scene(), Compacted()
    scene.log.compaction = cast(CompactionStore, compacted)
    compacted_to, pulls = 10, itertools.count(1)

    def min_offset(request: RemotingCommand) -> RemotingCommand:
        return request.reply(ext={"offset": "0", "maxqCompactedTo": str(compacted_to)})

    def pull(request: RemotingCommand) -> RemotingCommand:
        nonlocal compacted_to
        offset, number = int(request.ext["queueOffset"]), next(pulls)
        if number == 2 and fails:
            raise RemotingConnectError("the master is away for a moment")
        compacted_to = 20 if number >= 2 else 10
        ext = {"suggestWhichBrokerId": "0", "nextBeginOffset": str(offset + 3), "minOffset": "0", "maxOffset": "9"}
        return request.reply(ext=ext, body=b"%d from %d;" % (offset, compacted_to))

    scene.client.answers |= {31: min_offset, 11: pull}
    for _ in range(3):
        await scene.synchronize.sync_all()
    assert compacted.copied == [b"0 from 20;", b"3 from 20;"]


async def test_the_third_copy_of_a_queue_is_kept_though_the_master_compacted_it_during_each_of_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene, compacted = Scene(), Compacted()
    scene.log.compaction = cast(CompactionStore, compacted)
    compactions = itertools.count(1)

    def min_offset(request: RemotingCommand) -> RemotingCommand:
        return request.reply(ext={"offset": "0", "maxqCompactedTo": str(next(compactions))})

    def pull(request: RemotingCommand) -> RemotingCommand:
        offset = int(request.ext["queueOffset"])
        ext = {"suggestWhichBrokerId": "0", "nextBeginOffset": str(offset + 3), "minOffset": "0", "maxOffset": "9"}
        return request.reply(ext=ext, body=b"%d;" % offset)

    scene.client.answers |= {31: min_offset, 11: pull}
    for _ in range(2):
        await scene.synchronize.sync_all()
        assert compacted.lacking()
    await scene.synchronize.sync_all()
    assert not compacted.lacking()
    assert compacted.copied == [b"0;", b"3;"]
    assert "T-0: the master compacted this queue during each of 3 copies of it" in caplog.text


async def test_a_slave_with_compaction_topics_knows_where_its_masters_log_begins() -> None:
    scene, compacted = Scene(), Compacted()
    scene.log.compaction = cast(CompactionStore, compacted)
    compacted.next_offset = 6
    table = json_dialect.dumps({"table": {"commitLogMinOffset": "4096"}})
    scene.client.answers[28] = lambda request: request.reply(body=table)
    for _ in range(3):
        assert await scene.synchronize.sync_all()
    assert compacted.master_log_begins == 4096
    assert scene.client.codes().count(28) == 1
