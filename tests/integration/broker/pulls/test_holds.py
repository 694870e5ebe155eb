"""Requests about all that a broker has: its loop serves others in between, however much that is.

The tables are filled directly, with more than enough rows for one walk over them to take several times as long as
anybody may be kept waiting; requests come over the network.
"""

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from maxq.broker.tables.client.client_channel_info import ClientChannelInfo
from maxq.broker.tables.offset.offset_table import KeyIndex
from maxq.codes import RequestCode as Code
from maxq.protocol.body.heartbeat import ConsumerData
from maxq.protocol.body.subscription import SubscriptionGroupConfig, build_subscription_data
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.message.message import BATCH_MOST, BATCH_MOST_BY_ITSELF, Message, encode_batch
from maxq.store.append.log_rows_cy import is_compiled
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import SUBSCRIPTION, SUSPEND, RunningBroker, messages_of, until
from tests.integration.broker.pop.pop_world import popped
from tests.short_form import long_form

TOPICS, GROUPS, QUEUES, MEMBERS = 3_000, 5_000, 1_024, 5_000


class FarMember:
    """A connection of a client whose bytes go nowhere."""

    is_closed = False
    close_reason = ""

    def __init__(self, number: int) -> None:
        self.remote_address = f"10.0.{number >> 8}.{number & 255}:1000"
        self.written = 0

    def write(self, buffers: list[bytes]) -> None:
        for _ in range(3_000):  # as long as a system call takes
            pass
        self.written += 1

    def send_oneway(self, command: RemotingCommand) -> None:
        self.write([command.encode()])


@pytest.fixture
async def big(start_broker: Start) -> AsyncIterator[RunningBroker]:
    """A broker with 3,000 topics, one of which has 1,024 queues, and 5,000 groups; one group stands in all topics and
    five in all queues of the wide one."""
    broker = await start_broker()
    parts = broker.controller
    parts.topics.topic_config_table.update({f"t-{i}": TopicConfig(f"t-{i}", 8, 8) for i in range(TOPICS)})
    broker.create_topic("wide", QUEUES)
    parts.groups.subscription_group_table.update({f"g-{i}": SubscriptionGroupConfig(f"g-{i}") for i in range(GROUPS)})
    table = parts.offsets.offset_table
    table.update({f"t-{i}@g-0": dict.fromkeys(range(8), 0) for i in range(TOPICS)})
    table.update({f"wide@g-{i}": dict.fromkeys(range(QUEUES), 0) for i in range(5)})
    table.update({f"t-{i % TOPICS}@g-{i}": {0: 0} for i in range(1, GROUPS)})
    parts.offsets._keys = KeyIndex(table)
    gc.collect()
    gc.freeze()  # as servers do with their tables (cli/gc_freeze.py)
    yield broker
    gc.unfreeze()


async def longest_ms(broker: RunningBroker, work: Callable[[], Awaitable[RemotingCommand]]) -> dict[Any, float]:
    """What held the loop of the broker for too long while `work` went on, by cause, in ms of fair processor time
    (tests/watched_loop.py); it succeeds. Garbage is collected before, and not while it goes on."""
    holds = broker.controller.server.holds
    holds.by_cause.clear()
    gc.collect()
    gc.disable()
    try:
        answer = await work()
    finally:
        gc.enable()
    assert answer.code == 0, answer.remark
    found = {cause: hold.longest_ns / 1e6 for cause, hold in holds.by_cause.items()}
    holds.by_cause.clear()
    return found


@pytest.mark.parametrize(
    ("code", "ext"),
    [
        (Code.GET_CONSUME_STATS, {"consumerGroup": "g-0"}),
        (Code.GET_CONSUME_STATS, {"consumerGroup": "g-0", "topicList": ";".join(["wide"] * 1_000)}),
        (Code.GET_BROKER_CONSUME_STATS, {"isOrder": "false"}),
        (Code.GET_ALL_TOPIC_CONFIG, {}),
        (Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {}),
        (Code.GET_ALL_CONSUMER_OFFSET, {}),
        (Code.QUERY_CORRECTION_OFFSET, {"topic": "wide", "compareGroup": "g-1"}),
        (Code.MAXQ_PURGE_TOPIC, {"topic": "wide", "dryRun": "true"}),
        (Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g-0", "cleanOffset": "true"}),
        (Code.DELETE_TOPIC_IN_BROKER, {"topic": "wide"}),
    ],
)
async def test_what_asks_for_all_rows_of_a_table_keeps_nobody_waiting(
    big: RunningBroker, code: Code, ext: dict[str, str]
) -> None:
    assert await longest_ms(big, lambda: big.invoke(RemotingCommand(code, dict(ext)))) == {}


@pytest.mark.parametrize(
    ("code", "ext", "remedy"),
    [
        (Code.GET_CONSUME_STATS, {"consumerGroup": "g-0"}, "name one topic, or fewer in topicList"),
        (Code.GET_BROKER_CONSUME_STATS, {"isOrder": "false"}, "ask for one group after the other (208)"),
        (Code.GET_ALL_TOPIC_CONFIG, {}, "ask for it in pages (topicSeq, maxTopicNum, dataVersion)"),
        (Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {}, "ask for it in pages (groupSeq, maxGroupNum, dataVersion)"),
        (Code.GET_ALL_CONSUMER_OFFSET, {}, "delete groups and topics that nobody uses (207, 215)"),
        (Code.GET_TOPIC_STATS_INFO, {"topic": "wide"}, "ask for less at once"),
    ],
)
async def test_an_answer_that_no_client_takes_is_an_error_with_size_limit_and_remedy(
    start_broker: Start, code: Code, ext: dict[str, str], remedy: str
) -> None:
    broker = await start_broker()
    parts = broker.controller
    parts.topics.topic_config_table.update({f"t-{i}": TopicConfig(f"t-{i}", 8, 8) for i in range(2_000)})
    parts.groups.subscription_group_table.update({f"g-{i}": SubscriptionGroupConfig(f"g-{i}") for i in range(2_000)})
    broker.create_topic("wide", QUEUES)
    parts.offsets.offset_table.update({f"t-{i}@g-0": dict.fromkeys(range(8), 0) for i in range(2_000)})
    parts.offsets._keys = KeyIndex(parts.offsets.offset_table)
    assert (await broker.invoke(RemotingCommand(code, dict(ext)))).code == 0
    parts.server.answer_limit = 70_000
    answer = await broker.invoke(RemotingCommand(code, dict(ext)))
    assert (answer.code, answer.body) == (1, None)
    said = answer.remark or ""
    assert "a client takes frames of 70000" in said and remedy in said, said
    assert said.endswith("or raise com.rocketmq.remoting.frameMaxLength at this server and its clients")
    assert int(said.split()[3]) > 70_000


async def test_thousands_of_topics_that_nobody_uses_go_in_turns(start_broker: Start) -> None:
    broker = await start_broker()
    store = broker.controller.store
    for number in range(1_500):
        store.queues.open(f"unused-{number}", 0)
    broker.create_topic("used")
    await broker.send("used", b"kept")
    ask = RemotingCommand(Code.CLEAN_UNUSED_TOPIC)
    assert await longest_ms(broker, lambda: broker.invoke(ask)) == {}
    assert await store.unused_topics({"used"}) == set()
    assert [one.body for one in await broker.pull_messages("used")] == [b"kept"]


async def test_thousands_of_members_are_listed_and_told_in_turns(start_broker: Start) -> None:
    broker = await start_broker()
    broker.create_topic("T")
    members = join(broker, MEMBERS)
    for code in (Code.GET_CONSUMER_CONNECTION_LIST, Code.GET_CONSUMER_LIST_BY_GROUP):
        ask = RemotingCommand(code, {"consumerGroup": "G"})
        assert await longest_ms(broker, lambda ask=ask: broker.invoke(ask)) == {}  # type: ignore[misc]
    ask = RemotingCommand(Code.GET_ALL_PRODUCER_INFO)
    assert await longest_ms(broker, lambda: broker.invoke(ask)) == {}
    assert await longest_ms(broker, lambda: broker.heartbeat("G", {"T": "*"}, client_id="new")) == {}
    await until(lambda: all(member.written for member in members))
    reset = {"topic": "T", "group": "G", "timestamp": "-1", "isForce": "true"}
    for queue_id in range(4):
        broker.controller.offsets.commit_offset("c", "G", "T", queue_id, 0)
    await broker.invoke(RemotingCommand(Code.UPDATE_BROKER_CONFIG, body=b"useServerSideResetOffset=false"))
    ask = RemotingCommand(Code.INVOKE_BROKER_TO_RESET_OFFSET, reset)
    assert await longest_ms(broker, lambda: broker.invoke(ask)) == {}


def join(broker: RunningBroker, count: int) -> list[FarMember]:
    """So many members of group G, who produce, too."""
    data = ConsumerData("G", subscription_data_set=[build_subscription_data("T", "*", "TAG", sub_version=1)])
    members = [FarMember(number) for number in range(count)]
    clock = broker.controller.consumers._clock
    for number, member in enumerate(members):
        channel = ClientChannelInfo(
            member, f"client-{number}", 0, 513, clock.monotonic_ms(), clock.wall_ms(), ""  # type: ignore[arg-type]
        )  # fmt: skip
        broker.controller.consumers.register_consumer(data, channel, data.subscription_data_set, notify=False)
        broker.controller.producers.register_producer("PG", channel)
    return members


async def test_the_first_batch_for_a_queue_is_stored_as_later_ones_are(broker: RunningBroker) -> None:
    """The queue is not open yet, so the batch takes the slow path; what it then stores and answers is the same."""
    broker.create_topic("T", queues=2)
    parts = [Message("T", b"x" * (number % 7 + 1), {"KEYS": f"k{number}"}, number) for number in range(2_000)]
    body = encode_batch(parts)
    first, second = [await broker.send("T", body, code=Code.SEND_BATCH_MESSAGE, batch=True) for _ in range(2)]
    found = await broker.pull_messages("T", max_nums=4_000)
    while len(found) < 4_000:
        found += await broker.pull_messages("T", len(found), max_nums=4_000)
    wanted = [(part.body, part.properties["KEYS"], part.flag) for part in parts]
    assert [(one.body, one.properties["KEYS"], one.flag) for one in found] == wanted * 2
    assert first.ext["msgId"].split(",") + second.ext["msgId"].split(",") == [one.offset_msg_id for one in found]
    assert (first.ext["queueOffset"], second.ext["queueOffset"]) == ("0", "2000")


@pytest.mark.skipif(not is_compiled(), reason="the uncompiled form takes 30 µs a message")
async def test_a_long_batch_for_a_new_queue_keeps_nobody_waiting(start_broker: Start) -> None:
    broker = await start_broker(mappedFileSizeCommitLog=16 << 20, mappedFileSizeConsumeQueue=20 * BATCH_MOST)
    broker.create_topic("T", queues=1)
    body = encode_batch([Message("T", b"x")] * BATCH_MOST)
    ask = broker.send_request("T", body, code=Code.SEND_BATCH_MESSAGE, batch=True)
    assert await longest_ms(broker, lambda: broker.invoke(ask)) == {}


@pytest.mark.skipif(not is_compiled(), reason="the uncompiled form takes 10 µs a key")
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", *long_form(["ASYNC_FLUSH"])])
async def test_a_batch_of_two_million_keys_is_indexed_in_turns(start_broker: Start, flush: str) -> None:
    broker = await start_broker(mappedFileSizeCommitLog=16 << 20, flushDiskType=flush)
    broker.create_topic("T", queues=1)
    keys = " ".join(["k"] * 15_900 + ["of-all"])
    body = encode_batch([Message("T", b"x", {"KEYS": f"{keys} m{number}"}) for number in range(125)])
    ask = broker.send_request("T", body, code=Code.SEND_BATCH_MESSAGE, batch=True)
    store = broker.controller.store

    async def stored() -> RemotingCommand:
        answer = await broker.invoke(ask)
        await broker.send("T", b"behind them")
        await until(lambda: store.max_offset("T", 0) == 126)
        return answer

    assert await longest_ms(broker, stored) == {}
    assert store.dispatch_behind_bytes == 0
    for key, count in (("of-all", 32), ("m0", 1), ("m124", 1)):
        assert len(store.query_message("T", key, 32, 0, 1 << 62).buffers) == count


async def test_a_batch_whose_messages_are_checked_one_by_one_is_short(broker: RunningBroker) -> None:
    broker.create_topic("T", queues=1)
    for count, code in ((BATCH_MOST_BY_ITSELF, 0), (BATCH_MOST_BY_ITSELF + 1, 13)):
        body = encode_batch([Message("T", b"not TRAN_MSG")] * count)
        broker.controller.store.fast_path_writer._queues.topic_write_state("T").is_fast_path_open = False
        answer = await broker.send("T", body, code=Code.SEND_BATCH_MESSAGE, batch=True)
        assert answer.code == code, answer.remark
    assert "checked by itself, because it says TRAN_MSG somewhere: the limit is then 3000" in (answer.remark or "")


async def test_properties_of_a_batch_that_is_checked_one_by_one_are_not_too_many(broker: RunningBroker) -> None:
    """500,000 of them held the loop for 100 ms."""
    broker.create_topic("T", queues=1)
    properties = {f"{number:x}": "v" for number in range(4_500)} | {"x": "TRAN_MSG"}
    for count, code in ((11, 0), (12, 13), (110, 13)):
        body = encode_batch([Message("T", b"x", properties)] * count)
        ask = broker.send_request("T", body, code=Code.SEND_BATCH_MESSAGE, batch=True)
        broker.controller.store.fast_path_writer._queues.topic_write_state("T").is_fast_path_open = False
        answer = await broker.invoke(ask)
        assert answer.code == code, answer.remark
    assert "more than 50000 properties together and each is checked by itself" in (answer.remark or "")


async def test_the_first_expression_finds_the_parser_of_sql92_made(start_broker: Start) -> None:
    """In a process of its own: another test of this one may have used it."""
    code = (
        "import asyncio, sys, tempfile, pathlib\n"
        "from tests.integration.broker.harness import RunningBroker\n"
        "from maxq.broker.tables.filter.filter_expressions import load_sql92\n"
        "from tests.watched_loop import watch\n"
        "async def main():\n"
        "    broker = RunningBroker(pathlib.Path(tempfile.mkdtemp()), {'enablePropertyFilter': 'true'})\n"
        "    await broker.start()\n"
        "    await asyncio.to_thread(load_sql92().join)\n"
        "    broker.create_topic('T')\n"
        "    watch(broker.controller.server.holds, 60)\n"
        "    await broker.heartbeat('G', {'T': 'a > 1'}, expression_type='SQL92')\n"
        "    await broker.stop()\n"
        "assert 'lark' not in sys.modules\n"
        "asyncio.run(main())\n"
    )
    await ended_well(code)


async def test_a_filter_that_takes_long_is_applied_in_pieces(start_broker: Start) -> None:
    """A search takes up to 0.35 ms; one pull made 1,900 of them, and the loop stood for half a second."""
    broker = await start_broker(enablePropertyFilter="true", mappedFileSizeCommitLog=16 << 20)
    broker.create_topic("T", queues=1)
    for number in range(30):
        await broker.send("T", b"m", p="z" * 29_900, n=str(number))
    searches = " OR ".join(f"p CONTAINS '{'z' * 96}{chr(65 + number % 26)}z'" for number in range(64))
    found: list[str] = []
    offset = 0

    async def all_pulled() -> RemotingCommand:
        nonlocal offset
        while offset < 30:
            answer = await broker.pull(
                "T", offset, tags=f"{searches} OR n IN ('3', '27')", expression_type="SQL92"
            )  # fmt: skip
            assert int(answer.ext["nextBeginOffset"]) > offset
            offset = int(answer.ext["nextBeginOffset"])
            found.extend(one.properties["n"] for one in messages_of(answer))
        return RemotingCommand(0)

    await broker.pull("T", 0, tags="n = '0'", expression_type="SQL92")  # the parser is there
    assert await longest_ms(broker, all_pulled) == {}
    assert found == ["3", "27"]


@pytest.mark.parametrize("queues", [30, *long_form([1])])
async def test_pulls_with_long_filters_that_wait_are_looked_at_in_turns(start_broker: Start, queues: int) -> None:
    """One message held the loop for 30 ms for each of them."""
    broker = await start_broker(enablePropertyFilter="true", mappedFileSizeCommitLog=16 << 20)
    broker.create_topic("T", queues=queues)
    searches = [f"p CONTAINS '{'z' * 96}{chr(65 + number % 26)}z'" for number in range(60)]

    async def pulled(number: int) -> list[str]:
        offset, found = 0, []
        while not found:
            answer = await broker.pull(
                "T", offset, queue_id=number % queues, expression_type="SQL92", sys_flag=SUSPEND | SUBSCRIPTION,
                tags=" OR ".join([*searches, f"n = '{number}'", "n = 'all'"]), wait_ms=60_000,
            )  # fmt: skip
            offset = int(answer.ext["nextBeginOffset"])
            found = [one.properties["n"] for one in messages_of(answer)]
        return found

    waiting = [asyncio.ensure_future(pulled(number)) for number in range(30)]
    for number in range(queues):
        await broker.until_held("T", number, 30 // queues)
    heavy = [broker.send_request("T", b"m", queue_id=number, p="z" * 29_900) for number in range(queues)]
    last = [broker.send_request("T", b"m", queue_id=number, n="all") for number in range(queues)]

    async def all_answered() -> RemotingCommand:
        await asyncio.gather(*(broker.invoke(request) for request in heavy))
        await asyncio.gather(*(broker.invoke(request) for request in last))
        assert await asyncio.gather(*waiting) == [["all"]] * 30
        return RemotingCommand(0)

    assert await longest_ms(broker, all_answered) == {}


async def test_a_pop_with_a_long_filter_goes_from_queue_to_queue_in_turns(start_broker: Start) -> None:
    """And does not wait for the next message where it has looked at some only."""
    broker = await start_broker(enablePropertyFilter="true", mappedFileSizeCommitLog=16 << 20)
    broker.create_topic("T", queues=40)
    for number in range(40):
        await broker.send("T", b"m", queue_id=number, p="z" * 29_900, n=str(number))
    searches = " OR ".join(f"p CONTAINS '{'z' * 96}{chr(65 + number % 26)}z'" for number in range(60))
    await popped(broker, exp="n = 'nothing'", exp_type="SQL92", consumer_group="other")
    found: list[str] = []

    async def found_in_time() -> RemotingCommand:
        ask = {"exp": f"{searches} OR n IN ('17', '39')", "exp_type": "SQL92", "poll_time": 60_000}
        while len(found) < 2:
            found.extend(one.properties["n"] for one in await popped(broker, max_msg_nums=1, **ask))
        return RemotingCommand(0)

    async with asyncio.timeout(30):
        assert await longest_ms(broker, found_in_time) == {}
    assert sorted(found) == ["17", "39"]


async def test_bit_maps_of_filters_that_take_long_hold_nobody_up(start_broker: Start) -> None:
    broker = await start_broker(
        enablePropertyFilter="true", enableCalcFilterBitMap="true", enableConsumeQueueExt="true",
        mappedFileSizeCommitLog=16 << 20,
    )  # fmt: skip
    broker.create_topic("T", queues=1)
    for group in range(8):
        searches = " OR ".join(f"p CONTAINS '{'z' * 96}{chr(65 + number % 26)}{group}z'" for number in range(60))
        await broker.heartbeat(f"G{group}", {"T": f"{searches} OR n = '1'"}, expression_type="SQL92")
    many = encode_batch([Message("T", b"m", {"p": "z" * 29_900, "n": str(number)}) for number in range(10)])
    ask = broker.send_request("T", many, code=Code.SEND_BATCH_MESSAGE, batch=True)
    assert await longest_ms(broker, lambda: broker.invoke(ask)) == {}
    found: list[str] = []
    offset = 0
    while offset < 10:
        answer = await broker.pull("T", offset, group="G3", tags=None, sys_flag=0, sub_version=1)
        offset = int(answer.ext["nextBeginOffset"])
        found.extend(one.properties["n"] for one in messages_of(answer))
    assert found == ["1"]


async def ended_well(code: str) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stderr=asyncio.subprocess.PIPE)
    _, said = await process.communicate()
    assert process.returncode == 0, said.decode()
