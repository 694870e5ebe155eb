"""SQL92 filters of a running broker: by the request's own expression and by the heartbeat's, long polling, refusals."""

import asyncio
import json

import pytest

from maxq.broker.tables.filter import consumer_filter_manager
from maxq.codes import RequestCode
from maxq.filter.bloom_filter import has_bits
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.json import json_dialect
from maxq.protocol.message.java_hash import java_hash
from maxq.runtime.files.system import SystemMappedRegion
from maxq.store.store_results import GetMessageResult
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import SUBSCRIPTION, SUSPEND, RunningBroker, messages_of, until

ON = {"enablePropertyFilter": "true"}


@pytest.fixture
async def broker(start_broker: Start) -> RunningBroker:
    """With property filters on; queue 0 of T holds m0 … m99 whose property `n` is 0 … 99."""
    running = await start_broker(**ON)
    running.create_topic("T", queues=2)
    for number in range(100):
        await running.send("T", b"m%d" % number, n=str(number), color="red" if number % 2 else "blue")
    return running


def bodies(reply: RemotingCommand) -> list[bytes]:
    return [message.body for message in messages_of(reply)]


async def by_header(broker: RunningBroker, expression: str, offset: int = 0, **more: object) -> RemotingCommand:
    return await broker.pull("T", offset, tags=expression, expression_type="SQL92", **more)  # type: ignore[arg-type]


async def by_heartbeat(broker: RunningBroker, expression: str, version: int = 1, group: str = "G") -> None:
    reply = await broker.heartbeat(group, {"T": expression}, sub_version=version, expression_type="SQL92")
    assert reply.code == 0


# ---- what comes ---------------------------------------------------------------------------------------------------


async def test_the_expression_of_the_request_selects(broker: RunningBroker) -> None:
    reply = await by_header(broker, "n BETWEEN 10 AND 20 AND color = 'red'")
    assert bodies(reply) == [b"m11", b"m13", b"m15", b"m17", b"m19"]
    assert (reply.ext["nextBeginOffset"], reply.ext["maxOffset"]) == ("100", "100")


async def test_a_reader_gets_every_match_once_and_moves_on_past_the_rest(broker: RunningBroker) -> None:
    got: list[bytes] = []
    offset = 0
    while offset < 100:
        reply = await by_header(broker, "n >= 50", offset, max_nums=7)
        got += bodies(reply)
        assert int(reply.ext["nextBeginOffset"]) > offset
        offset = int(reply.ext["nextBeginOffset"])
    assert got == [b"m%d" % number for number in range(50, 100)]


async def test_the_answer_ends_behind_its_last_match_when_it_is_full(broker: RunningBroker) -> None:
    reply = await by_header(broker, "color = 'red'", max_nums=3)
    assert (bodies(reply), reply.ext["nextBeginOffset"]) == ([b"m1", b"m3", b"m5"], "6")


async def test_nothing_that_matches_is_20_and_says_where_to_go_on(broker: RunningBroker) -> None:
    reply = await by_header(broker, "n > 100")
    assert (reply.code, reply.remark, reply.ext["nextBeginOffset"]) == (20, "NO_MATCHED_MESSAGE", "100")


async def test_a_property_that_is_no_number_matches_nothing_and_disturbs_nothing(broker: RunningBroker) -> None:
    assert (await by_header(broker, "color > 5 OR n = 3")).code == 20
    assert bodies(await by_header(broker, "n = 3 OR color > 5")) == [b"m3"]


async def test_the_expression_of_the_heartbeat_selects(broker: RunningBroker) -> None:
    await by_heartbeat(broker, "n < 3")
    reply = await broker.pull("T", tags=None, sys_flag=0, sub_version=1)
    assert bodies(reply) == [b"m0", b"m1", b"m2"]


async def test_repeated_pulls_follow_a_changed_expression(broker: RunningBroker) -> None:
    await by_heartbeat(broker, "n < 3")
    for _ in range(3):
        assert len(bodies(await broker.pull("T", tags=None, sys_flag=0))) == 3
    await by_heartbeat(broker, "n < 5", version=2)
    assert len(bodies(await broker.pull("T", tags=None, sys_flag=0))) == 5


async def test_what_was_tested_and_not_taken_is_counted(broker: RunningBroker) -> None:
    for _ in range(2):
        await by_header(broker, "n < 10")
    item = broker.controller.stats.view("GROUP_FILTERED_NUMS", "T@G")
    assert item is not None and item.value == 180


async def test_tags_and_keys_are_properties_too(broker: RunningBroker) -> None:
    await broker.send("T", b"tagged", TAGS="TagX", KEYS="k1", n="-1")
    assert bodies(await by_header(broker, "TAGS = 'TagX' AND KEYS CONTAINS 'k'")) == [b"tagged"]


# ---- long polling -------------------------------------------------------------------------------------------------


async def test_a_parked_pull_is_woken_by_a_match_only(broker: RunningBroker) -> None:
    waiting = asyncio.create_task(by_header(broker, "n = 1000", 100, sys_flag=SUBSCRIPTION | SUSPEND, wait_ms=60_000))
    await broker.until_held("T")
    for number in range(5):
        await broker.send("T", b"other", n=str(number))
    await until(lambda: broker.controller.store.max_offset("T", 0) == 105)
    assert broker.controller.hold_service.held_on("T", 0) == 1
    await broker.send("T", b"match", n="1000")
    reply = await waiting
    assert (bodies(reply), reply.ext["nextBeginOffset"]) == ([b"match"], "106")


async def test_the_offset_of_a_parked_pull_moves_on_although_nothing_matches(broker: RunningBroker) -> None:
    waiting = asyncio.create_task(by_header(broker, "n = 1000", 100, sys_flag=SUBSCRIPTION | SUSPEND, wait_ms=60_000))
    await broker.until_held("T")
    await broker.send("T", b"other", n="1")
    await broker.controller.hold_service.check()
    reply = await waiting
    assert (reply.code, reply.ext["nextBeginOffset"]) == (20, "101")


# ---- refusals -----------------------------------------------------------------------------------------------------


async def test_a_bad_expression_is_refused_where_java_answers_with_all_messages(broker: RunningBroker) -> None:
    reply = await by_header(broker, "n >")
    assert (reply.code, reply.body_length) == (23, 0)
    assert "'n >' is wrong at its end: something is missing" in (reply.remark or "")


async def test_a_bad_expression_of_a_heartbeat_leaves_no_filter(broker: RunningBroker) -> None:
    await by_heartbeat(broker, "n < 3")
    await by_heartbeat(broker, "n <", version=2)
    reply = await broker.pull("T", tags=None, sys_flag=0, sub_version=2)
    assert (reply.code, reply.body_length) == (27, 0)
    assert "'n <'" in (reply.remark or "")


async def test_a_pull_that_is_ahead_of_its_heartbeat_is_told_so(broker: RunningBroker) -> None:
    await by_heartbeat(broker, "n < 3")
    assert (await broker.pull("T", tags=None, sys_flag=0, sub_version=2)).code == 25
    broker.controller.filters.register("G", [])  # only the filter lacks the version
    info = broker.controller.consumers.get_consumer_group_info("G")
    assert info is not None
    info.subscription_table["T"].sub_version = 2
    assert (await broker.pull("T", tags=None, sys_flag=0, sub_version=2)).code == 28


async def test_filters_are_off_unless_switched_on(start_broker: Start) -> None:
    running = await start_broker()
    running.create_topic("T")
    reply = await by_header(running, "n > 1")
    assert (reply.code, "enablePropertyFilter is false" in (reply.remark or "")) == (1, True)
    assert (await check(running, "n > 1")).code == 1


async def test_other_languages_and_class_filters_are_refused(broker: RunningBroker) -> None:
    other = await broker.pull("T", tags="x", expression_type="XPATH")
    assert (other.code, "'XPATH'" in (other.remark or "")) == (23, True)
    for reply in (await broker.pull("T", sys_flag=SUBSCRIPTION | 8), await check(broker, "*", "TAG", True)):
        assert (reply.code, "class filters do not exist any more" in (reply.remark or "")) == (23, True)


async def check(
    broker: RunningBroker, expression: str, kind: str = "SQL92", class_filter: bool = False
) -> RemotingCommand:
    """CHECK_CLIENT_CONFIG."""
    subscription = {"topic": "T", "subString": expression, "expressionType": kind, "classFilterMode": class_filter}
    body = json_dialect.dumps({"clientId": "c", "group": "G", "subscriptionData": subscription})
    return await broker.invoke(RemotingCommand(RequestCode.CHECK_CLIENT_CONFIG, body=body))


async def test_a_client_can_ask_beforehand(broker: RunningBroker) -> None:
    assert (await check(broker, "n > 1 AND color = 'red'")).code == 0
    wrong = await check(broker, "n >")
    assert (wrong.code, "is wrong" in (wrong.remark or "")) == (23, True)
    assert (await check(broker, "x", "XPATH")).code == 23


# ---- what is kept -------------------------------------------------------------------------------------------------


async def test_filters_outlive_a_restart_and_count_as_dead_until_the_heartbeat(
    broker: RunningBroker, start_broker: Start
) -> None:
    await by_heartbeat(broker, "n < 3", version=7)
    await broker.stop()
    written = json.loads((broker.folder / "config" / "consumerFilter.json").read_text())
    data = written["filterDataByTopic"]["T"]["groupFilterData"]["G"]
    assert (data["expression"], data["clientVersion"], data["bloomFilterData"]["bitNum"]) == ("n < 3", 7, 112)
    again = RunningBroker(broker.folder, ON)
    await again.start()
    try:
        entry = again.controller.filters.get("T", "G")
        assert entry is not None and entry.is_dead
        await by_heartbeat(again, "n < 3", version=7)
        entry = again.controller.filters.get("T", "G")
        assert entry is not None and not entry.is_dead
        assert len(bodies(await again.pull("T", tags=None, sys_flag=0))) == 3
    finally:
        await again.stop()


async def test_a_group_that_leaves_is_dead_and_forgotten_later(broker: RunningBroker) -> None:
    await by_heartbeat(broker, "n < 3")
    leave = RemotingCommand(RequestCode.UNREGISTER_CLIENT, {"clientID": "client-1", "consumerGroup": "G"})
    assert (await broker.invoke(leave)).code == 0
    filters = broker.controller.filters
    entry = filters.get("T", "G")
    assert entry is not None and entry.is_dead
    filters.clean_and_persist()
    assert filters.get("T", "G") is not None
    broker.settings.update({"filterDataCleanTimeSpan": "0"})
    filters.clean_and_persist()
    assert filters.get("T", "G") is None


async def test_units_of_a_queue_say_whether_the_group_takes_them(broker: RunningBroker) -> None:
    await by_heartbeat(broker, "n = 1")
    ext = {"topic": "T", "queueId": "0", "index": "0", "count": "3", "consumerGroup": "G"}
    reply = await broker.invoke(RemotingCommand(RequestCode.QUERY_CONSUME_QUEUE, ext))
    answer = json.loads(reply.body_bytes)
    assert [unit["eval"] for unit in answer["queueData"]] == [False, True, False]
    assert json.loads(answer["filterData"])["expression"] == "n = 1"


# ---- bit maps -----------------------------------------------------------------------------------------------------

EXT = ON | {"enableConsumeQueueExt": "true", "enableCalcFilterBitMap": "true", "mappedFileSizeConsumeQueueExt": "2048"}


async def with_bit_maps(start_broker: Start) -> RunningBroker:
    """m0 … m299, the first hundred before group G registered `n < 150`; tags TagA and TagB in turn."""
    broker = await start_broker(**EXT)
    broker.create_topic("T", queues=1)
    for number in range(300):
        if number == 100:
            await broker.controller.store.wait_for_dispatch()  # on a busy machine it lags behind the answers
            await by_heartbeat(broker, "n < 150")
        await broker.send("T", b"m%d" % number, n=str(number), TAGS="TagB" if number % 2 else "TagA")
    await broker.controller.store.wait_for_dispatch()
    return broker


async def all_of(broker: RunningBroker, **more: object) -> list[bytes]:
    got: list[bytes] = []
    offset = 0
    while offset < broker.controller.store.max_offset("T", 0):
        reply = await broker.pull("T", offset, **more)  # type: ignore[arg-type]
        got += bodies(reply)
        offset = int(reply.ext["nextBeginOffset"])
    return got


async def test_bit_maps_change_nothing_about_what_comes(start_broker: Start) -> None:
    broker = await with_bit_maps(start_broker)
    small = [b"m%d" % number for number in range(150)]
    assert await all_of(broker, tags=None, sys_flag=0) == small
    assert await all_of(broker, tags="n < 150", expression_type="SQL92", group="Other") == small
    assert await all_of(broker, tags="TagA") == [b"m%d" % number for number in range(0, 300, 2)]
    await by_heartbeat(broker, "n >= 150", version=2)  # the bit maps are of the expression before
    assert await all_of(broker, tags=None, sys_flag=0) == [b"m%d" % number for number in range(150, 300)]


async def test_bit_maps_spare_tests_of_what_came_since_the_group_registered(
    start_broker: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_filter_manager, "_MOST_TESTED_NS", 1 << 60)  # of tests that a busy machine interrupts
    broker = await with_bit_maps(start_broker)
    queue = broker.controller.store.queue("T", 0)
    assert queue is not None and queue.ext is not None
    entry = broker.controller.filters.get("T", "G")
    assert entry is not None
    marked = []
    for number in range(300):
        unit = queue.unit(number)
        assert unit is not None
        extension = queue.ext.get(unit[2])
        assert extension is not None
        marked.append(bool(extension.bit_map) and has_bits(extension.bit_map, entry.bits))
        assert queue.with_tags(unit)[2] == extension.tags_code == java_hash("TagB" if number % 2 else "TagA")
    assert marked == [100 <= number < 150 for number in range(300)]


async def test_extension_units_outlive_a_restart(start_broker: Start) -> None:
    broker = await with_bit_maps(start_broker)
    await broker.stop()
    again = RunningBroker(broker.folder, EXT)
    await again.start()
    try:
        await by_heartbeat(again, "n < 150")
        for number in range(300, 310):
            await again.send("T", b"m%d" % number, n="7", TAGS="TagA")
        wanted = [b"m%d" % number for number in (*range(150), *range(300, 310))]
        assert await all_of(again, tags=None, sys_flag=0) == wanted
        assert len(await all_of(again, tags="TagB")) == 150
    finally:
        await again.stop()


# ---- records that are not in memory ---------------------------------------------------------------------------------


async def test_records_on_the_disk_are_brought_in_before_they_are_tested(
    start_broker: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await start_broker(**ON, accessMessageInMemoryMaxRatio="0")
    broker.create_topic("T", queues=1)
    for number in range(200):
        await broker.send("T", b"m%d" % number, n=str(number))
    brought_in = 0

    def bring_in(self: GetMessageResult) -> None:
        nonlocal brought_in
        brought_in += 1

    monkeypatch.setattr(SystemMappedRegion, "is_resident", lambda region, start, end: False)
    monkeypatch.setattr(GetMessageResult, "bring_in", bring_in)
    assert await all_of(broker, tags="n >= 195", expression_type="SQL92") == [b"m%d" % n for n in range(195, 200)]
    assert brought_in >= 3  # 64 units at a time, and once for the messages themselves


# ---- retry topics ---------------------------------------------------------------------------------------------------


async def test_with_filter_support_retry_the_original_topics_expression_decides(start_broker: Start) -> None:
    broker = await start_broker(**ON, filterSupportRetry="true")
    broker.create_topic("T", queues=1)
    await broker.heartbeat("G", {"T": "n < 3"}, expression_type="SQL92")
    for number in range(5):
        await broker.send("%RETRY%G", b"m%d" % number, n=str(number), RETRY_TOPIC="T")
    await broker.send("%RETRY%G", b"other", n="9", RETRY_TOPIC="It's another")
    by_sql = await broker.pull("%RETRY%G", tags="TRUE", expression_type="SQL92")
    assert bodies(by_sql) == [b"m0", b"m1", b"m2", b"other"]
    assert len(bodies(await broker.pull("%RETRY%G", tags="*"))) == 6
