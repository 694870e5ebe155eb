"""Chains of physical queues: their rules, and what requests about global queues become."""

import asyncio
from typing import Any, cast

import pytest

from maxq.access.guard import Guard
from maxq.broker.tables.static_topic.other_brokers import OtherBrokers
from maxq.broker.tables.static_topic.pull_answers import STANDS_IN, global_pull_answer
from maxq.broker.tables.static_topic.static_topic_gate import StaticTopicGate, _Rewriting
from maxq.broker.tables.static_topic.topic_queue_mapping_manager import TopicQueueMappingManager
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import RequestRefusedError
from maxq.protocol.body.offsets import ResetOffsetBody
from maxq.protocol.body.static_topic import (
    NO_BROKER,
    LogicQueueMappingItem,
    TopicQueueMappingDetail,
    global_queues,
    item_after,
    item_at,
)
from maxq.protocol.body.topic_config import TopicQueueMappingInfo
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.message.message_queue import MessageQueue
from maxq.remoting.connection import Connection, Processor
from maxq.remoting.server import RemotingServer
from tests.unit.broker.broker_world import BrokerWorld, FakeConnection, connection

A, B = "wire-broker", "broker-b"
Item = LogicQueueMappingItem


def chain() -> list[Item]:
    """On A up to physical 100, then on B, then on A again, where its place is not decided yet."""
    return [Item(0, 3, A, 0, 0, 100), Item(1, 5, B, 10_000, 0), Item(2, 7, A, -1)]


def test_offsets_go_there_and_back() -> None:
    first, second, last = chain()
    assert (second.to_logic(7), second.to_physical(10_007)) == (10_007, 7)
    assert (first.to_logic_within(400), first.max_logic_offset, last.to_logic_within(3)) == (100, 100, -1)


@pytest.mark.parametrize(("offset", "gen"), [(0, 0), (100, 0), (9_999, 0), (10_000, 1), (1 << 40, 1)])
def test_an_offset_is_in_the_last_decided_item_that_begins_before_it(offset: int, gen: int) -> None:
    found = item_at(chain(), offset)
    assert found is not None and found.gen == gen


def test_an_undecided_item_holds_and_follows_nothing() -> None:
    items = chain()
    assert item_at([items[2]], 5) is None
    assert item_after(items, items[0]) is items[1]
    assert item_after(items, items[1]) is None


def test_clients_see_every_global_queue_and_the_newest_leader() -> None:
    old = TopicQueueMappingInfo("T", "__global__", 3, A, 1, False, {0: 0, 1: 1})
    new = TopicQueueMappingInfo("T", "__global__", 4, B, 2, False, {1: 0, 3: 2})
    queue = "__syslo__global__"
    assert global_queues("T", {A: old, B: new}) == {
        MessageQueue("T", queue, 0): A,
        MessageQueue("T", queue, 1): B,
        MessageQueue("T", queue, 2): NO_BROKER,
        MessageQueue("T", queue, 3): B,
    }


def test_an_impossible_number_of_queues_is_passed_over() -> None:
    """Whoever asked for the route made an object of each of them, and was busy with that for minutes."""
    wrong = TopicQueueMappingInfo("T", "__global__", (1 << 31) - 1, A, 2, False, {0: 0})
    right = TopicQueueMappingInfo("T", "__global__", 1, B, 1, False, {0: 0})
    assert global_queues("T", {A: wrong}) == {}
    assert global_queues("T", {A: wrong, B: right}) == {MessageQueue("T", "__syslo__global__", 0): B}


# --- the table ---


def manager() -> TopicQueueMappingManager:
    world = BrokerWorld()
    return TopicQueueMappingManager(world.disk, world.mappings._file, broker_name=A, clock=world.clock)


def detail(items: list[Item], epoch: int = 10, **more: Any) -> TopicQueueMappingDetail:
    return TopicQueueMappingDetail("T", "__global__", 1, A, epoch, False, None, {0: items}, **more)


def test_a_mapping_survives_its_file() -> None:
    table = manager()
    table.update(detail(chain()), force=False)
    again = manager()
    again.decode(table.encode())
    assert again.table == table.table
    assert again.infos(["T", "U"])["T"].curr_id_map == {0: 7}


@pytest.mark.parametrize(
    ("items", "remark"),
    [
        ([Item(1, 0, A, 0), Item(1, 1, A, 10)], "generation 1 comes after 1"),
        ([Item(0, 0, A, -1), Item(1, 1, A, 10)], "only the last item may have no logic offset"),
        ([Item(0, 0, A, 0, 0, 10), Item(1, 1, A, 10)], "begins before 0 has ended"),
        ([Item(0, -1, A, 0)], "are not negative"),
        ([Item(0, 0, A, 0, 5, 3)], "before its start"),
    ],
)
def test_chains_out_of_order_are_refused(items: list[Item], remark: str) -> None:
    with pytest.raises(RequestRefusedError, match=remark):
        manager().update(detail(items), force=False)


def test_what_is_known_cannot_be_contradicted_except_by_force() -> None:
    table = manager()
    table.update(detail(chain()), force=False)
    for wrong, remark in (
        (detail(chain(), epoch=9), "small epoch 9 < 10"),
        (detail([Item(0, 4, A, 0, 0, 100)], epoch=11), "it cannot become"),
        (detail(chain()[:2]), "leader is different but epoch equal"),
        (TopicQueueMappingDetail("T", "__global__", 1, A, 10), "equal epoch with null data"),
        (TopicQueueMappingDetail("T", "other", 1, A, 11), "unmatched scope"),
        (TopicQueueMappingDetail("T", "__global__", 1, B, 11), "this is wire-broker"),
    ):
        with pytest.raises(RequestRefusedError, match=remark):
            table.update(wrong, force=False)
    decided = chain()
    decided[2].logic_offset = 20_000
    table.update(detail(decided), force=False)  # a place may be decided
    table.update(detail(chain()[:1], epoch=1), force=True)
    assert len(table.table["T"].hosted_queues[0]) == 1


def test_a_topic_that_was_made_again_is_refused_by_a_broker_that_has_the_old_one() -> None:
    table = manager()
    table.update(detail([Item(0, 3, A, 0, time_of_start=5)]), force=False)
    for again in ([Item(0, 3, A, 0, time_of_start=7)], [Item(4, 3, A, 50_000, time_of_start=7)]):
        with pytest.raises(
            RequestRefusedError, match="has another topic T, made at 5 and not at 7: delete it there first"
        ):
            table.update(detail(again, epoch=20), force=False)
    table.update(detail([Item(0, 3, A, 0), Item(1, 0, B, 10_000)], epoch=20), force=False)  # as RocketMQ writes it
    table.update(detail(again, epoch=30), force=True)
    assert table.table["T"].made_at == 7


# --- pulls ---


def answer(code: int, following: int, low: int, high: int) -> RemotingCommand:
    ext = {"nextBeginOffset": str(following), "minOffset": str(low), "maxOffset": str(high)}
    return RemotingCommand(code, ext)


@pytest.mark.parametrize(
    ("code", "asked", "following", "low", "high", "expected"),
    [
        (ResponseCode.SUCCESS, 10, 42, 0, 100, (ResponseCode.SUCCESS, 42)),
        (ResponseCode.PULL_NOT_FOUND, 100, 100, 0, 100, (ResponseCode.PULL_RETRY_IMMEDIATELY, 10_000)),
        (ResponseCode.PULL_OFFSET_MOVED, 120, 100, 0, 100, (ResponseCode.PULL_RETRY_IMMEDIATELY, 10_000)),
        (ResponseCode.PULL_OFFSET_MOVED, 5, 40, 40, 100, (ResponseCode.PULL_OFFSET_MOVED, 40)),
    ],
)
def test_the_first_item_hands_over_to_the_next(
    code: int, asked: int, following: int, low: int, high: int, expected: tuple[int, int]
) -> None:
    items = chain()
    rewritten = global_pull_answer(answer(code, following, low, high), items, items[0], asked)
    assert (rewritten.code, int(rewritten.ext["nextBeginOffset"])) == expected
    assert rewritten.ext["maxOffset"] == "10000"


def test_the_end_of_an_item_whose_follower_has_no_place_yet_is_waited_at() -> None:
    items = chain()
    rewritten = global_pull_answer(answer(ResponseCode.PULL_OFFSET_MOVED, 50, 0, 50), items, items[1], 50)
    assert (rewritten.code, rewritten.ext["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, "10050")
    assert rewritten.ext["offsetDelta"] == "10000"


@pytest.mark.parametrize(
    ("high", "by_slave", "goes_on"), [(100, True, True), (60, True, False), (60, False, True)],
)  # fmt: skip
def test_a_stand_in_that_lacks_the_end_of_a_part_sends_nobody_on(high: int, by_slave: bool, goes_on: bool) -> None:
    """What it lacks its master has. A master that lacks it has lost it for good."""
    items = chain()
    reply = answer(ResponseCode.PULL_NOT_FOUND, high, 0, high)
    if by_slave:
        reply.ext[STANDS_IN] = "true"
    rewritten = global_pull_answer(reply, items, items[0], high)
    there = (ResponseCode.PULL_RETRY_IMMEDIATELY, "10000"), (ResponseCode.PULL_NOT_FOUND, str(high))
    assert (rewritten.code, rewritten.ext["nextBeginOffset"]) == there[not goes_on]


def test_the_leader_answers_for_itself() -> None:
    items = chain()[:2]
    rewritten = global_pull_answer(answer(ResponseCode.PULL_NOT_FOUND, 50, 0, 50), items, items[1], 50)
    assert (rewritten.code, rewritten.ext["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, "10050")


def test_a_refusal_stays_as_it_is() -> None:
    refusal = RemotingCommand(ResponseCode.NO_PERMISSION, {}, remark="no")
    assert global_pull_answer(refusal, chain(), chain()[0], 0) is refusal


# --- the gate ---


class Others:
    """What other brokers would answer, and what they were asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, int, dict[str, str]]] = []
        self.answers: list[RemotingCommand] = []
        self.has_only_slaves = False

    async def ask(
        self, broker_name: str, topic: str, code: int, ext: dict[str, str], *, or_slave: bool
    ) -> RemotingCommand:
        self.asked.append((broker_name, topic, code, dict(ext)))
        if not self.answers or (self.has_only_slaves and not or_slave):
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, f"{broker_name} is away")
        return self.answers.pop(0)


class Server:
    """The processors behind the gate, and the gate's."""

    def __init__(self, process: Processor) -> None:
        self.inner = process
        self.processors: dict[int, Processor] = {}

    def processor(self, code: int) -> Processor:
        return self.inner

    def register(self, code: int, processor: Processor) -> None:
        self.processors[int(code)] = processor


class World:
    def __init__(self, items: list[Item]) -> None:
        self.seen: list[RemotingCommand] = []
        self.late = False
        self.is_slave = False
        self.is_revoked = False
        self.reply: dict[str, str] = {}
        self.body: bytes | None = None
        self.code = 0
        self.connection = FakeConnection()
        self.sent: list[RemotingCommand] = []
        self.connection.send = self.sent.append  # type: ignore[attr-defined]
        self.others = Others()
        mappings = manager()
        mappings.update(detail(items), force=False)
        self.offsets = BrokerWorld().offsets
        self.server = Server(self.process)
        self.gate = StaticTopicGate(
            mappings, cast(OtherBrokers, self.others), self.offsets, cast(Guard, self), lambda: self.is_slave
        )
        self.gate.place(cast(RemotingServer, self.server))

    # --- its guard: what was let through is refused when another broker was asked meanwhile, and `is_revoked` ---

    @property
    def rules(self) -> object:
        return len(self.others.asked)

    def again(self, connection: Connection, request: RemotingCommand, since: object) -> RemotingCommand | None:
        is_refused = self.is_revoked and since != self.rules
        return request.reply(ResponseCode.NO_PERMISSION) if is_refused else None

    def process(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        self.seen.append(request)
        answer = request.reply(self.code, None, dict(self.reply), self.body)
        if self.late:
            connection.send(answer)
            return None
        return answer

    def ask(self, code: int, **ext: str) -> RemotingCommand | None:
        async def run() -> RemotingCommand | None:
            process = self.server.processors[int(code)]
            found = process(connection(self.connection), RemotingCommand(code, ext))
            return await found if asyncio.iscoroutine(found) else cast(RemotingCommand | None, found)

        return asyncio.run(run())


def led() -> list[Item]:
    return [Item(0, 3, B, 0), Item(1, 7, A, 10_000)]


def test_late_answers_of_one_connection_are_known_as_its_own() -> None:
    """Held pulls are dropped when their connection closes."""
    real = connection(FakeConnection())
    one, two = (_Rewriting(real, lambda reply: reply) for _ in range(2))
    held = {one: "held"}
    assert (held.get(two), held.get(real)) == ("held", "held")  # type: ignore[call-overload]
    assert _Rewriting(connection(FakeConnection()), lambda reply: reply) not in held


@pytest.mark.parametrize("late", [False, True])
def test_a_send_goes_to_the_leaders_physical_queue(late: bool) -> None:
    world = World(led())
    world.late, world.reply = late, {"queueId": "7", "queueOffset": "5"}
    reply = world.ask(RequestCode.SEND_MESSAGE_V2, b="T", e="0")
    reply = world.sent[0] if late else reply
    assert reply is not None
    assert (world.seen[0].ext["e"], world.seen[0].ext["lo"]) == ("7", "false")
    assert (reply.ext["queueId"], reply.ext["queueOffset"]) == ("0", "10005")


@pytest.mark.parametrize(("is_revoked", "code"), [(False, 0), (True, ResponseCode.NO_PERMISSION)])
def test_what_another_broker_answered_is_for_who_may_still_read(is_revoked: bool, code: int) -> None:
    world = World(led())
    world.is_revoked = is_revoked
    world.others.answers = [answer(ResponseCode.SUCCESS, 42, 0, 100)]
    reply = world.ask(RequestCode.PULL_MESSAGE, topic="T", queueId="0", queueOffset="10", maxMsgNums="9", sysFlag="4")
    assert reply is not None and reply.code == code


@pytest.mark.parametrize("ext", [{"topic": "U", "queueId": "9"}, {"topic": "T", "queueId": "9", "lo": "false"}])
def test_other_topics_and_translated_requests_pass(ext: dict[str, str]) -> None:
    world = World(led())
    world.ask(RequestCode.GET_MAX_OFFSET, **ext)
    assert world.seen[0].ext == ext


def test_a_send_is_translated_whatever_it_says_of_itself() -> None:
    """A physical queue that was passed on takes nothing any more: its readers have gone."""
    world = World(led())
    world.ask(RequestCode.SEND_MESSAGE_V2, b="T", e="0", lo="false")
    assert world.seen[0].ext["e"] == "7"


def test_who_does_not_lead_a_queue_says_so() -> None:
    world = World([Item(0, 3, A, 0), Item(1, 7, B, 10_000)])
    for queue in ("0", "1", "-1"):
        with pytest.raises(RequestRefusedError, match="does not exist in request process of current broker") as refused:
            world.ask(RequestCode.PULL_MESSAGE, topic="T", queueId=queue, queueOffset="0")
        assert refused.value.response_code == ResponseCode.NOT_LEADER_FOR_QUEUE


def test_a_pull_of_the_leaders_part_is_answered_here() -> None:
    world = World(led())
    world.reply = {"nextBeginOffset": "8", "minOffset": "0", "maxOffset": "8"}
    reply = world.ask(
        RequestCode.PULL_MESSAGE, topic="T", queueId="0", queueOffset="10003", maxMsgNums="32", sysFlag="3",
        commitOffset="10001",
    )  # fmt: skip
    assert reply is not None
    seen = world.seen[0].ext
    assert (seen["queueId"], seen["queueOffset"], seen["sysFlag"], seen["commitOffset"]) == ("7", "3", "3", "1")
    assert (reply.ext["nextBeginOffset"], reply.ext["offsetDelta"]) == ("10008", "10000")


def test_offsets_have_64_bits() -> None:
    far = 1 << 33
    world = World([Item(0, 3, B, 0), Item(1, 7, A, far)])
    world.reply = {"nextBeginOffset": str(far + 9), "minOffset": str(far), "maxOffset": str(far + 9)}
    reply = world.ask(
        RequestCode.PULL_MESSAGE, topic="T", queueId="0", queueOffset=str(2 * far + 3), maxMsgNums="32", sysFlag="3",
        commitOffset=str(2 * far + 1),
    )  # fmt: skip
    assert reply is not None
    seen = world.seen[0].ext
    assert (seen["queueOffset"], seen["sysFlag"], seen["commitOffset"]) == (str(far + 3), "3", str(far + 1))
    assert reply.ext["nextBeginOffset"] == str(2 * far + 9)
    world.reply = {}
    world.ask(RequestCode.UPDATE_CONSUMER_OFFSET, topic="T", queueId="0", consumerGroup="G", commitOffset=str(2 * far))
    assert world.seen[1].ext["commitOffset"] == str(far)


def test_a_reader_that_has_all_of_a_part_goes_on_without_asking_its_broker() -> None:
    """Who does not know that it has ended may have stored something behind its end."""
    world = World([Item(0, 3, B, 0, 0, 40), Item(1, 7, A, 10_000)])
    reply = world.ask(RequestCode.PULL_MESSAGE, topic="T", queueId="0", queueOffset="40", maxMsgNums="32", sysFlag="3")
    assert reply is not None
    assert (reply.code, reply.ext["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "10000")
    assert not world.others.asked


def test_a_part_that_never_took_a_message_holds_up_nobody_while_its_broker_is_away() -> None:
    world = World([Item(0, 3, B, 0, 0, 0), Item(1, 7, A, 10_000)])
    place = {"consumerGroup": "G", "topic": "T", "queueId": "0"}
    reply = world.ask(RequestCode.PULL_MESSAGE, **place, queueOffset="0", maxMsgNums="32", sysFlag="3")
    assert reply is not None
    assert (reply.code, reply.ext["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "10000")
    world.reply = {"offset": "0", "timestamp": "5"}
    for code in (RequestCode.GET_MIN_OFFSET, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP):
        reply = world.ask(code, **place, timestamp="0")
        assert reply is not None and reply.ext["offset"] == "10000"
    reply = world.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, **place)
    assert reply is not None and reply.ext["timestamp"] == "5"
    assert not world.others.asked
    world.code = ResponseCode.QUERY_NOT_FOUND
    reply = world.ask(RequestCode.QUERY_CONSUMER_OFFSET, **place)
    assert reply is not None and (reply.code, reply.ext["offset"]) == (ResponseCode.SUCCESS, "0")


def test_a_part_that_is_away_may_have_the_progress_of_a_group() -> None:
    world = World([Item(0, 3, B, 0, 0, 9), Item(1, 7, A, 10_000)])
    world.code = ResponseCode.QUERY_NOT_FOUND
    with pytest.raises(RequestRefusedError, match="is away"):
        world.ask(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="G", topic="T", queueId="0")


@pytest.mark.parametrize("topic", ["T", "Unknown"])
def test_a_slave_says_that_it_is_one_to_brokers_that_ask_for_a_physical_queue(topic: str) -> None:
    """Also where its mappings are older than theirs."""
    world = World(led())
    world.is_slave = True
    reply = world.ask(RequestCode.PULL_MESSAGE, topic=topic, queueId="3", queueOffset="40", lo="false")
    assert reply is not None
    assert reply.ext[STANDS_IN] == "true"
    assert world.seen[0].ext["queueId"] == "3"


def test_a_pull_of_an_older_part_is_answered_by_its_broker_without_waiting() -> None:
    world = World(led())
    world.others.answers = [answer(ResponseCode.PULL_NOT_FOUND, 40, 0, 40)]
    reply = world.ask(
        RequestCode.PULL_MESSAGE, topic="T", queueId="0", queueOffset="40", maxMsgNums="32", sysFlag="7",
        commitOffset="30",
    )  # fmt: skip
    assert reply is not None
    ((name, topic, code, ext),) = world.others.asked
    assert (name, topic, code) == (B, "T", RequestCode.PULL_MESSAGE)
    assert (ext["queueId"], ext["queueOffset"], ext["sysFlag"]) == ("3", "40", "4")
    assert (reply.code, reply.ext["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "10000")


@pytest.mark.parametrize("holder", [A, B])
async def test_a_reader_waits_at_the_end_of_a_part_until_the_next_one_has_its_place(holder: str) -> None:
    """It asks again at once when it is answered, and each time another broker is asked."""
    world = World([Item(0, 3, holder, 0), Item(1, 7, A, -1)])
    world.code, world.reply = ResponseCode.PULL_NOT_FOUND, answer(0, 40, 0, 40).ext
    world.others.answers = [answer(ResponseCode.PULL_NOT_FOUND, 40, 0, 40) for _ in range(2)]
    ext = {"topic": "T", "queueId": "0", "queueOffset": "40", "maxMsgNums": "9"}

    async def pull(flags: str) -> RemotingCommand:
        request = RemotingCommand(RequestCode.PULL_MESSAGE, {**ext, "sysFlag": flags})
        found = world.server.processors[int(RequestCode.PULL_MESSAGE)](connection(FakeConnection()), request)
        assert asyncio.iscoroutine(found)
        return cast(RemotingCommand, await found)

    assert (await pull("4")).code == ResponseCode.PULL_NOT_FOUND  # who does not want to wait
    reader = asyncio.create_task(pull("6"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not reader.done()
    world.gate.mappings_changed()
    assert (await reader).code == ResponseCode.PULL_NOT_FOUND


@pytest.mark.parametrize(("following", "waits"), [("40", True), ("41", False)])
async def test_a_reader_whom_a_stand_in_of_another_log_sends_nowhere_waits(following: str, waits: bool) -> None:
    """Its log is not its master's, so it gives no messages and sends readers to the master."""
    world = World([Item(0, 3, B, 0, 0, 100), Item(1, 7, A, 10_000)])
    reply = answer(ResponseCode.PULL_RETRY_IMMEDIATELY, int(following), 0, 90)
    reply.ext[STANDS_IN] = "true"
    world.others.answers = [reply]
    ext = {"topic": "T", "queueId": "0", "queueOffset": "40", "maxMsgNums": "9", "sysFlag": "6"}
    request = RemotingCommand(RequestCode.PULL_MESSAGE, ext)
    pull = world.server.processors[int(RequestCode.PULL_MESSAGE)](connection(FakeConnection()), request)
    assert asyncio.iscoroutine(pull)
    reader = asyncio.create_task(pull)
    for _ in range(3):
        await asyncio.sleep(0)
    assert reader.done() is not waits
    world.gate.mappings_changed()
    found = await reader
    assert (found.code, found.ext["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, following)


def test_no_reader_is_sent_to_a_slave_that_another_group_has() -> None:
    world = World(led())
    world.others.answers = [answer(ResponseCode.SUCCESS, 42, 0, 100)]
    world.others.answers[0].ext["suggestWhichBrokerId"] = "1"
    reply = world.ask(RequestCode.PULL_MESSAGE, topic="T", queueId="0", queueOffset="10", maxMsgNums="9", sysFlag="4")
    assert reply is not None and reply.ext["suggestWhichBrokerId"] == "0"


def test_progress_is_looked_for_from_the_leader_back() -> None:
    world = World(led())
    world.code = ResponseCode.QUERY_NOT_FOUND
    world.others.answers = [RemotingCommand(0, {"offset": "17"})]
    reply = world.ask(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="G", topic="T", queueId="0")
    assert reply is not None
    assert (reply.code, reply.ext["offset"]) == (0, "17")
    assert world.seen[0].ext["setZeroIfNotFound"] == "false"
    world.others.answers = [RemotingCommand(ResponseCode.QUERY_NOT_FOUND)]
    reply = world.ask(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="G", topic="T", queueId="0")
    assert reply is not None and reply.code == ResponseCode.QUERY_NOT_FOUND


def test_who_goes_back_is_forgotten_in_later_parts() -> None:
    world = World([Item(0, 3, B, 0), Item(1, 4, A, 5_000), Item(2, 7, A, 10_000)])
    ext = {"consumerGroup": "G", "topic": "T", "queueId": "0"}
    world.others.answers = [RemotingCommand(0), RemotingCommand(0), RemotingCommand(ResponseCode.NO_PERMISSION)]
    world.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **ext, commitOffset="17")
    assert [(seen.ext["queueId"], seen.ext["commitOffset"]) for seen in world.seen] == [("4", "-1"), ("7", "-1")]
    world.seen.clear()
    world.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **ext, commitOffset="17", maxqIfAhead="true")
    world.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **ext, commitOffset="17")
    assert not world.seen  # the first goes not back, the second was refused


def test_a_slave_of_another_group_answers_readers_and_takes_nothing() -> None:
    """Its master would not hear that the group has gone back, and the client would not repeat it."""
    world = World(led())
    world.others.has_only_slaves = True
    world.code = ResponseCode.QUERY_NOT_FOUND
    ext = {"consumerGroup": "G", "topic": "T", "queueId": "0"}
    world.others.answers = [RemotingCommand(0, {"offset": "17"})] * 2
    reply = world.ask(RequestCode.QUERY_CONSUMER_OFFSET, **ext)
    assert reply is not None and reply.ext["offset"] == "17"
    for code in (RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET):
        with pytest.raises(RequestRefusedError, match="is away"):
            world.ask(code, **ext, commitOffset="12", offset="12", timestamp="0")


def test_a_new_group_begins_where_its_first_member_has_said() -> None:
    """Another member may name another part."""
    world = World(led())
    ext = {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "0", "maxqIfNone": "true"}
    world.reply = {"offset": "8"}
    reply = world.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **ext)
    assert reply is not None and reply.code == 0
    assert [seen.code for seen in world.seen] == [RequestCode.QUERY_CONSUMER_OFFSET]
    assert not world.others.asked
    world.code = ResponseCode.QUERY_NOT_FOUND
    world.others.answers = [RemotingCommand(ResponseCode.QUERY_NOT_FOUND), RemotingCommand(0)]
    world.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **ext)
    assert world.others.asked[-1][2:] == (RequestCode.UPDATE_CONSUMER_OFFSET, {**ext, "queueId": "3"})


def parts_reset(world: World, *, ends: tuple[int, int], **ext: str) -> tuple[RemotingCommand, list[dict[str, str]]]:
    """Reset group G; its parts are reset to `ends`. Return the answer, and what their brokers were asked for."""
    elsewhere = ResetOffsetBody({MessageQueue("T", B, 3): ends[0]}).encode()
    world.others.answers = [RemotingCommand(0, {}, elsewhere)] * 2
    world.body = ResetOffsetBody({MessageQueue("T", A, 7): ends[1]}).encode()
    ext = {"topic": "T", "group": "G", "timestamp": "1700", **ext}
    reply = world.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **ext)
    assert reply is not None
    names = ("queueId", "timestamp", "offset", "maxqGoesBack")
    elsewhere_and_here = zip(
        (request[3] for request in world.others.asked), (request.ext for request in world.seen), strict=True
    )
    checks, asked = elsewhere_and_here
    assert all(request["maxqOnlyChecks"] == "true" for request in checks)
    return reply, [{name: request[name] for name in names if name in request} for request in asked]


@pytest.mark.parametrize(
    ("ends", "place", "back"),
    [((40, 0), 40, True), ((100, 0), 10_000, False), ((100, 9), 10_009, False), ((120, 9), 10_009, False)],
)
def test_a_reset_leads_into_the_part_that_has_its_time(ends: tuple[int, int], place: int, back: bool) -> None:
    world = World([Item(0, 3, B, 0, 0, 100), Item(1, 7, A, 10_000)])
    reply, asked = parts_reset(world, ends=ends)
    table = ResetOffsetBody.decode(reply.body_bytes).offset_table
    assert table == {MessageQueue("T", "__syslo__global__", 0): place}
    there = {"timestamp": "1700", "offset": "-1"}
    behind = {"maxqGoesBack": "true"} if back else {}
    assert asked == [{"queueId": "3", **there}, {"queueId": "7", **there, **behind}]


@pytest.mark.parametrize(
    ("offset", "first", "second"),
    [
        ("40", {"timestamp": "0", "offset": "40"}, {"timestamp": "0", "offset": "-1", "maxqGoesBack": "true"}),
        ("9000", {"timestamp": "0", "offset": "100"}, {"timestamp": "0", "offset": "-1", "maxqGoesBack": "true"}),
        ("10009", {"timestamp": "-1", "offset": "-1"}, {"timestamp": "0", "offset": "9"}),
    ],
)
def test_a_reset_to_an_offset_sets_earlier_parts_to_their_ends(
    offset: str, first: dict[str, str], second: dict[str, str]
) -> None:
    world = World([Item(0, 3, B, 0, 0, 100), Item(1, 7, A, 10_000)])
    _, asked = parts_reset(world, ends=(40 if offset == "40" else 100, 9), queueId="0", offset=offset)
    assert asked == [{"queueId": "3", **first}, {"queueId": "7", **second}]


class WithoutItsFirstPart(World):
    """The broker of the first part is away; in the leader's part, whose first message is at offset 2, the time of a
    reset is at `place`."""

    def __init__(self, place: int) -> None:
        super().__init__([Item(0, 3, B, 0, 0, 100), Item(1, 7, A, 10_000)])
        self.place = place
        self.body = ResetOffsetBody({MessageQueue("T", A, 7): 9}).encode()

    def process(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        is_min = request.code == RequestCode.GET_MIN_OFFSET
        self.reply = {"offset": "2" if is_min else str(self.place)}
        return super().process(connection, request)


@pytest.mark.parametrize(
    ("place", "ext", "is_left_out"),
    [
        (0, {"queueId": "0", "offset": "10009"}, True),
        (0, {"queueId": "0", "offset": "100"}, False),
        (0, {"timestamp": "-1"}, True),
        (3, {}, True),
        (2, {}, False),
    ],
    ids=["behind it", "in it", "the end", "a time behind it", "a time that may be in it"],
)
def test_a_reset_to_a_place_behind_an_older_part_does_not_need_its_broker(
    place: int, ext: dict[str, str], *, is_left_out: bool
) -> None:
    world = WithoutItsFirstPart(place)
    ext = {"topic": "T", "group": "G", "timestamp": "1700", **ext}
    if is_left_out:
        reply = world.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **ext)
        assert reply is not None and reply.code == 0
        assert list(ResetOffsetBody.decode(reply.body_bytes).offset_table.values()) == [10_009]
        assert "maxqGoesBack" not in world.seen[-1].ext
    else:
        with pytest.raises(RequestRefusedError, match=r"is away\. .*: start the broker, and reset again"):
            world.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **ext)


def test_a_reset_to_a_place_in_a_part_needs_the_brokers_of_the_later_ones() -> None:
    """What the group has committed there would count when they are back."""
    world = World([Item(0, 3, A, 0, 0, 100), Item(1, 3, B, 10_000, 0, 100), Item(2, 7, A, 20_000)])
    world.body = ResetOffsetBody({MessageQueue("T", A, 3): 9}).encode()
    world.reply = {"offset": "50"}
    with pytest.raises(RequestRefusedError, match="is away"):
        world.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, topic="T", group="G", timestamp="1700")


def test_a_reset_waits_until_a_moved_queue_has_its_place() -> None:
    world = World([Item(0, 3, B, 0), Item(1, 7, A, -1)])
    with pytest.raises(RequestRefusedError, match="reset the offset again"):
        parts_reset(world, ends=(0, 0))


def test_a_member_hears_of_a_reset_with_its_next_pull_of_any_part() -> None:
    world = World(led())
    world.offsets.assign_reset_offsets("T", "G", {7: 0}, {7: -1})
    ext = {"topic": "T", "queueId": "0", "consumerGroup": "G"}
    reply = world.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **ext, commitOffset="10005")
    assert reply is not None and reply.code == 0  # and is passed over
    assert not world.seen
    world.code = ResponseCode.QUERY_NOT_FOUND
    world.others.answers = [RemotingCommand(0, {"offset": "4"})]
    pull = {**ext, "queueOffset": "30", "maxMsgNums": "9", "sysFlag": "2", "commitOffset": "0"}
    reply = world.ask(RequestCode.PULL_MESSAGE, **pull)
    assert reply is not None
    assert (reply.code, reply.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "4")
    world.others.answers = [answer(ResponseCode.SUCCESS, 42, 0, 100)]
    reply = world.ask(RequestCode.PULL_MESSAGE, **pull)
    assert reply is not None and reply.code == ResponseCode.SUCCESS


@pytest.mark.parametrize(("commit", "queue", "physical"), [("17", B, "17"), ("10004", A, "4")])
def test_progress_is_kept_where_the_messages_are(commit: str, queue: str, physical: str) -> None:
    world = World(led())
    world.others.answers = [RemotingCommand(0)]
    world.ask(RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="G", topic="T", queueId="0", commitOffset=commit)
    ext = world.others.asked[0][3] if queue == B else world.seen[0].ext
    assert ext["commitOffset"] == physical


def test_ends_and_times_are_global() -> None:
    world = World(led())
    world.reply = {"offset": "12"}
    reply = world.ask(RequestCode.GET_MAX_OFFSET, topic="T", queueId="0")
    assert reply is not None and reply.ext["offset"] == "10012"
    world.others.answers = [RemotingCommand(0, {"offset": "6"})]
    reply = world.ask(RequestCode.GET_MIN_OFFSET, topic="T", queueId="0")
    assert reply is not None and reply.ext["offset"] == "6"
    world.others.answers = [RemotingCommand(0, {"timestamp": "99"})]
    reply = world.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, topic="T", queueId="0")
    assert reply is not None and reply.ext["timestamp"] == "99"
    world.others.answers = [RemotingCommand(0, {"offset": "30"})]
    reply = world.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, topic="T", queueId="0", timestamp="1")
    assert reply is not None and reply.ext["offset"] == "30"
