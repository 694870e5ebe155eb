"""Transactions on a running broker: what is stored, what is delivered, who is asked, and every refusal."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from maxq.broker.processors.refusal import Refusal
from maxq.broker.transaction.half_message import turn_away
from maxq.broker.transaction.transactional_message_service import TransactionalMessageService
from maxq.codes import RequestCode, ResponseCode
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.message.message import MessageExt, decode_record, encode_record
from maxq.protocol.message.message_id import decode_message_id, offset_message_id
from maxq.protocol.message.message_properties import encode_properties
from maxq.runtime.files.system import SystemClock
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.context.running_flags import DISK_FULL
from maxq.store.message_store import MessageStore
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import RunningBroker, until
from tests.integration.broker.transactions.transaction_world import (
    CALM,
    COMMIT,
    DISCARDED,
    HALF,
    OP,
    QUICK,
    ROLLBACK,
    UNKNOWN,
    TransactionClient,
)

GROUP = "CID_RMQ_SYS_TRANS"
YEAR_MS = 365 * 24 * 3_600_000


async def world(start_broker: Start, **settings: object) -> TransactionClient:
    broker = await start_broker(**(CALM | settings))
    broker.create_topic("T", queues=2)
    return TransactionClient(broker)


async def test_half_message_is_held_back_and_answered_with_the_real_queue(start_broker: Start) -> None:
    client = await world(start_broker)
    half = await client.prepare("T", b"held", queue_id=1, UNIQ_KEY="U1", TAGS="a")
    assert (half.queue_id, half.queue_offset, half.transaction_id) == (1, 0, "U1")
    (stored,) = await client.messages(HALF)
    assert (stored.body, stored.sys_flag & 0xC, stored.queue_id) == (b"held", 0, 0)
    assert stored.properties["REAL_TOPIC"] == "T"
    assert stored.properties["REAL_QID"] == "1"
    assert stored.properties["__transactionId__"] == "U1"
    assert stored.physical_offset == half.physical_offset
    assert await client.bodies("T", 1) == []


@pytest.mark.parametrize("is_oneway", [False, True])
async def test_an_end_is_of_the_transaction_that_its_id_names(start_broker: Start, is_oneway: bool) -> None:
    """After a change of master that lost the end of the log, another half message lies in its place."""
    client = await world(start_broker)
    half = await client.prepare("T", b"delivered", UNIQ_KEY="A" * 32)
    other = replace(half, transaction_id="B" * 32)
    if is_oneway:
        await client.end_oneway(other, COMMIT)
    reply = await client.end(other, COMMIT)
    assert (reply.code, "another" in (reply.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
    reply = await client.end(other, ROLLBACK)
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert await client.bodies("T") == []
    if is_oneway:
        await client.end_oneway(half, COMMIT)
        await until(lambda: client.broker.controller.store.max_offset("T", 0) == 1)
    assert (await client.end(half, COMMIT)).code == 0
    assert await client.bodies("T") == [b"delivered"]


async def test_commit_delivers_the_message_as_java_stores_it(start_broker: Start) -> None:
    client = await world(start_broker)
    half = await client.prepare("T", b"delivered", queue_id=1, UNIQ_KEY="U1", TAGS="a", color="grün")
    reply = await client.end(half, COMMIT)
    assert (reply.code, reply.remark) == (0, None)
    (message,) = await client.messages("T", 1)
    (stored,) = await client.messages(HALF)
    assert (message.body, message.queue_offset, message.sys_flag & 0xC) == (b"delivered", 0, 8)
    assert message.prepared_transaction_offset == half.physical_offset
    assert encode_properties(message.properties) == encode_properties(stored.properties)
    assert (message.born_timestamp, message.born_host, message.flag) == (
        stored.born_timestamp, stored.born_host, stored.flag,
    )  # fmt: skip
    found = client.broker.controller.store.query_message("T", "U1", 32, 0, 1 << 62)
    assert found.total_bytes > 0


async def test_rollback_delivers_nothing(start_broker: Start) -> None:
    client = await world(start_broker)
    half = await client.prepare("T")
    assert (await client.end(half, ROLLBACK)).code == 0
    assert await client.bodies("T") == []


@pytest.mark.parametrize("oneway", [False, True])
async def test_each_end_is_remembered_in_the_op_topic(start_broker: Start, oneway: bool) -> None:
    client = await world(start_broker, transactionOpBatchInterval=10)
    halves = [await client.prepare("T") for _ in range(4)]
    for half, how in zip(halves, (COMMIT, ROLLBACK, COMMIT, ROLLBACK), strict=True):
        await (client.end_oneway(half, how) if oneway else client.end(half, how))
    ledger = client.broker.controller.transactions.service.ledger
    await until(lambda: ledger.low == 4)

    async def named() -> bool:
        ops = await client.messages(OP)
        bodies = b"".join(op.body for op in ops)
        assert all(op.tags == "d" for op in ops)
        return sorted(bodies.split(b",")) == [b"", b"0", b"1", b"2", b"3"]

    await until(named)


async def test_a_rollback_that_cannot_be_written_down_is_not_answered_with_success(start_broker: Start) -> None:
    """A restart would not know of it: the producer would be asked again, or the transaction given up."""
    broker = await start_broker(**CALM)
    broker.create_topic("T")
    client, store = TransactionClient(broker), broker.controller.store
    half = await client.prepare("T")
    store.flags.set(DISK_FULL, "the disk is full")
    for _ in range(2):
        reply = await client.end(half, ROLLBACK)
        assert reply.code == ResponseCode.SYSTEM_ERROR and "the disk is full" in (reply.remark or "")
    store.flags.clear(DISK_FULL)
    assert (await client.end(half, ROLLBACK)).code == 0
    assert await client.bodies(OP) == [b"0,"]
    assert (await client.end(half, ROLLBACK)).code == 0
    assert (await client.end(half, COMMIT)).code != 0
    assert await client.bodies(OP) == [b"0,"] and await client.bodies("T") == []


async def test_ends_share_one_op_message(start_broker: Start) -> None:
    client = await world(start_broker, transactionOpBatchInterval=1_000)
    halves = [await client.prepare("T") for _ in range(20)]
    for half in halves:
        await client.end_oneway(half, ROLLBACK)

    async def written() -> bool:
        return [op.body for op in await client.messages(OP)] == [b"".join(b"%d," % n for n in range(20))]

    await until(written)


async def test_refusals_of_ends_name_what_is_wrong(start_broker: Start) -> None:
    client = await world(start_broker)
    half = await client.prepare("T")
    await client.broker.send("T", b"plain", queue_id=1)
    (plain,) = await client.messages("T", 1)
    wrong = client.end_request(half, COMMIT)
    cases = {
        "The producer group wrong": client.end_request(half, COMMIT, group="OTHER").ext,
        "The transaction state table offset wrong": wrong.ext | {"tranStateTableOffset": "7"},
        "Find prepared transaction message failed": wrong.ext | {"commitLogOffset": "1000000"},
        "Find prepared transaction message failed: ": wrong.ext | {"commitLogOffset": str(plain.physical_offset)},
    }
    for remark, ext in cases.items():
        reply = await client.broker.invoke(RemotingCommand(RequestCode.END_TRANSACTION, ext))
        assert (reply.code, (reply.remark or "").startswith(remark)) == (1, True), reply.remark
    assert await client.bodies("T") == []
    assert (await client.end(half, COMMIT)).code == 0  # it is still open


@pytest.mark.parametrize("queue_offset", [0, 1_000_000_000], ids=["of another transaction", "behind the end"])
async def test_a_half_message_within_a_body_ends_no_transaction(start_broker: Start, queue_offset: int) -> None:
    """A client knows from its last answer where the body of its next message will lie."""
    client = await world(start_broker)
    half = await client.prepare("T", b"order")
    store = client.broker.controller.store
    size, body = 0, b"z" * 400
    places = []
    for _ in range(2):
        reply = await client.broker.send("T", body, queue_id=1)
        _, place = decode_message_id(reply.ext["msgId"])
        record = bytes(store.select_one_message(place) or b"")
        if not places:
            real = decode_record(store.select_one_message(half.physical_offset) or b"")
            size, at = len(record), record.index(body)
            forged = replace(real, queue_offset=queue_offset, physical_offset=place + size + at, body=b"f")
            body = encode_record(forged).ljust(400, b"z")
        places.append(place)
    assert places[1] == places[0] + size
    evil = replace(half, queue_offset=queue_offset, physical_offset=forged.physical_offset)
    for end in (ROLLBACK, COMMIT):
        reply = await client.end(evil, end)
        assert (reply.code, reply.remark) == (1, f"Find prepared transaction message failed: {forged.physical_offset}")
        await client.end_oneway(evil, end)
    msg_id = offset_message_id(real.store_host, forged.physical_offset)
    resumed = await client.broker.invoke(RemotingCommand(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": msg_id}))
    assert (resumed.code, "is no message of" in (resumed.remark or "")) == (1, True)
    assert (await client.end(half, COMMIT)).code == 0
    assert await client.bodies("T") == [b"order"]


COMMITTED = {"consumerGroup": GROUP, "topic": HALF, "queueId": "0", "commitOffset": "9"}
READ = {"consumerGroup": GROUP, "topic": HALF, "queueId": "0", "maxMsgNums": "1", "expType": "TAG", "exp": "*"}


@pytest.mark.parametrize(
    ("code", "ext"),
    [
        (RequestCode.UPDATE_CONSUMER_OFFSET, COMMITTED),
        (RequestCode.UPDATE_CONSUMER_OFFSET, COMMITTED | {"maxqIfNone": "true"}),
        (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, {"group": GROUP, "topic": HALF, "timestamp": "-1"}),
        (RequestCode.CLONE_GROUP_OFFSET, {"srcGroup": "G", "destGroup": GROUP, "topic": HALF, "offline": "true"}),
        (RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": GROUP, "cleanOffset": "true"}),
        (
            RequestCode.PULL_MESSAGE,
            READ | {"queueOffset": "0", "sysFlag": "5", "commitOffset": "1", "suspendTimeoutMillis": "0",
                    "subscription": "*", "subVersion": "0"},
        ),
        (RequestCode.POP_MESSAGE, READ | {"invisibleTime": "1000", "pollTime": "0", "bornTime": "0", "initMode": "0"}),
    ],
)  # fmt: skip
async def test_no_client_moves_the_broker_s_own_progress(
    start_broker: Start, code: RequestCode, ext: dict[str, str]
) -> None:
    """Progress beyond an open transaction would make it one that has ended, from the next start on."""
    client = await world(start_broker)
    half = await client.prepare("T", b"order")
    before = client.broker.controller.offsets.query_offset(GROUP, HALF, 0)
    if code is RequestCode.POP_MESSAGE:
        ext = ext | {"bornTime": str(SystemClock().wall_ms())}
    reply = await client.broker.invoke(RemotingCommand(code, ext))
    assert (reply.code, f"group {GROUP} is the broker's own" in (reply.remark or "")) == (16, True), reply.remark
    assert client.broker.controller.offsets.query_offset(GROUP, HALF, 0) == before
    assert (await client.end(half, COMMIT)).code == 0


@pytest.mark.parametrize(
    ("properties", "code"),
    [
        ({"TIMER_DELAY_SEC": str(4 * 86_400)}, ResponseCode.MESSAGE_ILLEGAL),
        ({"TIMER_DELIVER_MS": "soon"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"TIMER_DEL_UNIQKEY": "T#x"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"TIMER_DELAY_MS": "60000", "filler": "x" * 32_550}, ResponseCode.MESSAGE_ILLEGAL),
    ],
)
async def test_a_timed_message_that_could_not_be_committed_opens_no_transaction(
    start_broker: Start, properties: dict[str, str], code: int
) -> None:
    """A commit is one-way as a rule: its producer would not hear that it was refused."""
    client = await world(start_broker)
    opens = {"TRAN_MSG": "true", "PGROUP": "PG"}
    reply = await client.broker.send("T", b"late", sys_flag=4, group="PG", **opens, **properties)
    assert reply.code == code, reply.remark
    assert await client.messages(HALF) == []


async def test_a_commit_comes_as_late_as_may_be_if_the_limit_was_lowered_meanwhile(start_broker: Start) -> None:
    client = await world(start_broker)
    half = await client.prepare("T", b"late", TIMER_DELAY_SEC="86400")
    request = RemotingCommand(RequestCode.UPDATE_BROKER_CONFIG, body=b"timerMaxDelaySec=2")
    assert (await client.broker.invoke(request)).code == 0
    assert (await client.end(half, COMMIT)).code == 0
    await until(lambda: client.broker.controller.store.max_offset("T", 0) == 1)


async def test_a_transaction_ends_once(start_broker: Start) -> None:
    client = await world(start_broker)
    committed, rolled_back = await client.prepare("T", b"c"), await client.prepare("T", b"r")
    assert [(await client.end(committed, how)).code for how in (COMMIT, COMMIT, ROLLBACK)] == [0, 0, 1]
    assert [(await client.end(rolled_back, how)).code for how in (ROLLBACK, ROLLBACK, COMMIT)] == [0, 0, 1]
    assert await client.bodies("T") == [b"c"]


async def test_unknown_has_no_answer_and_leaves_it_open(start_broker: Start) -> None:
    client = await world(start_broker)
    half = await client.prepare("T", b"c")
    await client.end_oneway(half, UNKNOWN)
    assert (await client.end(half, COMMIT)).code == 0
    assert await client.bodies("T") == [b"c"]


async def test_own_immunity_time_over_only_a_check_ends_it(start_broker: Start) -> None:
    client = await world(start_broker, transactionTimeOut=0)
    half = await client.prepare("T", b"late", CHECK_IMMUNITY_TIME_IN_SECONDS="0")

    async def is_over() -> bool:
        return client.broker.controller.env.clock.wall_ms() > (await client.messages(HALF))[0].store_timestamp

    await until(is_over)
    assert (await client.end(half, COMMIT)).code == 604
    assert (await client.end(half, ROLLBACK)).code == 604
    assert (await client.end(half, COMMIT, from_check=True)).code == 0
    assert await client.bodies("T") == [b"late"]


async def test_rejected_where_transactions_are_switched_off(start_broker: Start) -> None:
    client = await world(start_broker, rejectTransactionMessage="true")
    reply = await client.broker.send("T", b"x", sys_flag=4, TRAN_MSG="true", PGROUP="PG")
    assert reply.code == 16
    assert "sending transaction message is forbidden" in (reply.remark or "")


async def test_prepared_flag_without_the_property_is_refused(broker: RunningBroker) -> None:
    broker.create_topic("T")
    reply = await broker.send("T", b"x", sys_flag=4)
    assert reply.code == 13
    assert "TRAN_MSG is not true" in (reply.remark or "")


# --- checks ---


async def test_a_producer_of_the_group_is_asked_and_his_answer_counts(start_broker: Start) -> None:
    client = await world(start_broker, **QUICK)
    await client.come_online()
    half = await client.prepare("T", b"asked", queue_id=1, UNIQ_KEY="U1")
    question = await client.question()
    header = question.header
    assert (header.topic, header.msg_id, header.transaction_id) == (HALF, "U1", "U1")
    assert header.tran_state_table_offset == half.queue_offset + 1
    assert question.ext["bname"] == "broker-a"
    shown = question.message
    assert (shown.topic, shown.queue_id, shown.body) == ("T", 1, b"asked")
    assert shown.properties["TRANSACTION_CHECK_TIMES"] == "1"
    assert header.offset_msg_id == shown.offset_msg_id
    copies = await client.messages(HALF)
    assert [m.properties.get("TRANSACTION_CHECK_TIMES") for m in copies[:2]] == [None, "1"]
    assert (await client.answer(question, COMMIT)).code == 0
    (message,) = await client.messages("T", 1)
    assert message.prepared_transaction_offset == header.commit_log_offset


async def test_checks_go_on_until_it_is_given_up(start_broker: Start) -> None:
    client = await world(start_broker, **QUICK, transactionCheckMax=3)
    await client.come_online()
    half = await client.prepare("T", b"nobody knows", UNIQ_KEY="U1")
    assert [
        (await client.question()).message.properties["TRANSACTION_CHECK_TIMES"] for _ in range(3)
    ] == ["1", "2", "3"]  # fmt: skip
    await until(lambda: client.broker.controller.store.max_offset(DISCARDED, 0) == 1)
    (given_up,) = await client.messages(DISCARDED)
    assert (given_up.body, given_up.properties["REAL_TOPIC"]) == (b"nobody knows", "T")
    assert client.questions.empty()
    assert (await client.end(half, COMMIT)).code == 0  # its producer knows at last, as in Java
    assert (await client.end(half, COMMIT)).code == 0
    assert await client.bodies("T") == [b"nobody knows"]


def plant_half(client: TransactionClient, properties_size: int) -> int:
    """A half message as an older broker took it; its queue offset."""
    properties = {"TRAN_MSG": "true", "PGROUP": "PG", "UNIQ_KEY": "BAD"}
    now_ms = SystemClock().wall_ms()
    message = MessageExtBrokerInner("T", 0, b"bad", properties, born_timestamp=now_ms, born_host=bytes(8))
    assert turn_away(message)
    size = len(encode_properties(message.properties).encode())
    properties["filler"] = "x" * (properties_size - size - len("filler\x01\x02"))
    result = client.broker.controller.store.put_message(message)
    assert result.ok, result.remark
    return result.queue_offset


@pytest.mark.parametrize("bad", ["its copy is too large", "cannot be read", "a failure of ours"])
async def test_one_bad_half_message_keeps_no_other_from_being_asked_for(
    start_broker: Start, bad: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await world(start_broker, **QUICK, transactionCheckMax=3)
    controller = client.broker.controller
    planted = plant_half(client, 32_767 if "large" in bad else 1_000)
    if bad == "cannot be read":
        unit = controller.store.queue_units(HALF, 0, planted, 1)[0]
        record = controller.store.select_one_message(unit[0])
        view = controller.store.commit_log.files.files[0].view
        at = unit[0] + bytes(record).index(b"bad") - 4  # length of the body
        view[at : at + 4] = b"\x7f\xff\xff\xff"
    elif bad == "a failure of ours":
        real = TransactionalMessageService.copy

        def copy(service: TransactionalMessageService, half: MessageExt, times: int) -> MessageExt | Refusal:
            if half.body == b"bad":
                raise RuntimeError("a bug of ours")
            return real(service, half, times)

        monkeypatch.setattr(TransactionalMessageService, "copy", copy)
    for number in range(3):
        await client.prepare("T", b"%d" % number)
    await client.come_online()
    asked: set[bytes] = set()
    while not asked >= {b"0", b"1", b"2"}:
        question = await client.question()
        asked.add(question.message.body)
        if question.message.body != b"bad":
            assert (await client.answer(question, COMMIT)).code == 0
    assert sorted(await client.bodies("T")) == [b"0", b"1", b"2"]
    service = controller.transactions.service
    if "large" in bad:  # it is asked for as often as others, and given up
        assert b"bad" in asked
        await until(lambda: not service.ledger.is_open(planted))
    elif bad == "cannot be read":
        assert not service.ledger.is_open(planted)
    else:
        named = controller.transactions.checks.passed_over.reasons
        assert named.keys() == {f"the half message at queue offset {planted}"}


@pytest.mark.parametrize("extra", [{}, {"POP_CK": "x"}], ids=["fast path", "slow path"])
async def test_a_half_message_without_room_for_its_checks_is_refused(
    start_broker: Start, extra: dict[str, str]
) -> None:
    client = await world(start_broker)
    client.broker.controller.store.queues.open(HALF, 0)
    await client.prepare("T", b"x", UNIQ_KEY="U1", filler="x" * 32_000, **extra)
    properties = {"TRAN_MSG": "true", "PGROUP": "PG", "UNIQ_KEY": "U1", "filler": "x" * 32_450, **extra}
    reply = await client.broker.send("T", b"x", sys_flag=4, group="PG", **properties)
    assert reply.code == ResponseCode.MESSAGE_ILLEGAL
    assert "at most 32511 are allowed" in (reply.remark or "")


async def test_resumed_checks_begin_anew(start_broker: Start) -> None:
    client = await world(start_broker, **QUICK, transactionCheckMax=1)
    await client.come_online()
    await client.prepare("T", b"again")
    await client.question()
    await until(lambda: client.broker.controller.store.max_offset(DISCARDED, 0) == 1)
    (given_up,) = await client.messages(DISCARDED)
    request = RemotingCommand(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"topic": "T", "msgId": given_up.offset_msg_id})
    assert (await client.broker.invoke(request)).code == 0
    question = await client.question()
    assert question.message.properties["TRANSACTION_CHECK_TIMES"] == "1"
    assert (await client.answer(question, COMMIT)).code == 0
    assert await client.bodies("T") == [b"again"]


async def test_checks_are_not_resumed_for_a_message_of_a_deleted_topic(start_broker: Start) -> None:
    """The answer to the check would bring it into the topic that was made again."""
    client = await world(start_broker, **QUICK, transactionCheckMax=1)
    await client.come_online()
    await client.prepare("T", b"old")
    await client.question()
    await until(lambda: client.broker.controller.store.max_offset(DISCARDED, 0) == 1)
    (given_up,) = await client.messages(DISCARDED)
    deleted = await client.broker.invoke(RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}))
    assert deleted.code == ResponseCode.SUCCESS
    client.broker.create_topic("T")
    request = RemotingCommand(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"topic": "T", "msgId": given_up.offset_msg_id})
    refused = await client.broker.invoke(request)
    assert refused.code == ResponseCode.SYSTEM_ERROR and "topic was deleted" in (refused.remark or "")
    assert len(await client.messages(HALF)) == 2  # the first one, and its copy for the check


async def test_nobody_online_nothing_is_counted(start_broker: Start) -> None:
    client = await world(start_broker, **QUICK, transactionCheckMax=2)
    await client.prepare("T", b"patient")
    checks = client.broker.controller.transactions.checks
    for _ in range(5):
        assert await checks.check() == 0
    assert len(await client.messages(HALF)) == 1
    await client.come_online()
    assert (await client.question()).message.properties["TRANSACTION_CHECK_TIMES"] == "1"


async def test_late_end_of_the_first_half_message_counts_for_its_copy(start_broker: Start) -> None:
    """In Java the rolled-back message is delivered when the answer to the check commits the copy."""
    client = await world(start_broker, **QUICK)
    await client.come_online()
    half = await client.prepare("T", b"rolled back")
    question = await client.question()
    assert (await client.end(half, ROLLBACK)).code == 0
    assert (await client.answer(question, COMMIT)).code == 1
    committed = await client.prepare("T", b"committed")
    question = await client.question()
    while question.message.body != b"committed":
        question = await client.question()
    assert (await client.answer(question, COMMIT)).code == 0
    assert (await client.end(committed, COMMIT)).code == 0
    assert await client.bodies("T") == [b"committed"]


async def test_immunity_time_of_its_own_keeps_checks_away(start_broker: Start) -> None:
    client = await world(start_broker, **QUICK)
    await client.come_online()
    await client.prepare("T", b"immune", CHECK_IMMUNITY_TIME_IN_SECONDS="3600")
    await client.prepare("T", b"not immune")
    assert (await client.question()).message.body == b"not immune"


async def test_an_end_is_never_overtaken_by_a_check(start_broker: Start) -> None:
    """transactionTimeOut of 0 ms and a check after each rollback: Java asks, for it has not read the op message yet."""
    client = await world(start_broker, transactionTimeOut=0, transactionOpBatchInterval=60_000)
    await client.come_online()
    checks = client.broker.controller.transactions.checks
    for _ in range(50):
        half = await client.prepare("T", b"rolled back")
        await client.end(half, ROLLBACK)
        assert await checks.check() == 0
    assert client.questions.empty()


# --- restarts ---


async def test_open_transactions_outlive_a_restart(start_broker: Start) -> None:
    client = await world(start_broker)
    halves = [await client.prepare("T", b"%d" % n) for n in range(4)]
    await client.end(halves[0], COMMIT)
    await client.end(halves[2], ROLLBACK)
    await client.broker.stop()
    broker = await start_broker(**CALM)
    again = TransactionClient(broker)
    await broker.controller.transactions.checks.ready()
    ledger = broker.controller.transactions.service.ledger
    assert [ledger.is_open(n) for n in range(4)] == [False, True, False, True]
    assert broker.controller.transactions.metrics.open_transactions() == {"T": 2}
    assert (await again.end(halves[1], COMMIT)).code == 0
    assert (await again.end(halves[0], COMMIT)).code == 0
    assert (await again.end(halves[2], COMMIT)).code == 1
    assert await again.bodies("T") == [b"0", b"1"]


@pytest.mark.parametrize("evil", [COMMIT, ROLLBACK])
async def test_a_producer_cannot_name_another_transaction_as_the_one_its_half_message_is_of(
    start_broker: Start, evil: int
) -> None:
    """As one does that sends on, with all its properties, a message that it has consumed."""
    client = await world(start_broker)
    client.broker.create_topic("E")
    half = await client.prepare("T", b"somebody's")
    other = TransactionClient(client.broker, group="other")
    theirs = await other.prepare("E", b"another's", TRAN_PREPARED_QUEUE_OFFSET="0", TRANSACTION_CHECK_TIMES="15")
    stored = (await client.messages(HALF))[1].properties
    assert not {"TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES"} & stored.keys()
    await client.broker.stop()
    broker = await start_broker(**CALM)
    client.broker = other.broker = broker
    await broker.controller.transactions.checks.ready()
    assert (await other.end(theirs, evil)).code == 0
    assert (await client.end(half, COMMIT)).code == 0
    assert await client.bodies("T") == [b"somebody's"]


@pytest.mark.parametrize("off_ms", [-50 * YEAR_MS, 50 * YEAR_MS], ids=["behind", "ahead"])
async def test_transactions_of_producers_whose_clocks_are_years_off(start_broker: Start, off_ms: int) -> None:
    client = await world(start_broker, **QUICK)
    await client.come_online()
    born_ms = SystemClock().wall_ms() + off_ms
    immune: dict[str, str] = {"TRAN_MSG": "true", "PGROUP": "PG", "CHECK_IMMUNITY_TIME_IN_SECONDS": "0"}
    bodies = [b"plain", b"immune"]
    for body, properties in zip(bodies, ({"TRAN_MSG": "true", "PGROUP": "PG"}, immune), strict=True):
        request = client.broker.send_request("T", body, sys_flag=4, **properties)
        request.ext["g"] = str(born_ms)
        assert (await client.broker.invoke(request)).code == 0
    asked: set[bytes] = set()
    while asked < set(bodies):
        question = await client.question()
        asked.add(question.message.body)
        await client.answer(question, COMMIT)
    assert sorted(await client.bodies("T")) == sorted(bodies)
    assert await client.messages(DISCARDED) == []


# --- both ways: the compiled batch path, and the processors ---


def record_at(store: MessageStore, topic: str, queue_id: int, offset: int) -> bytes:
    queue = store.queue(topic, queue_id)
    assert queue is not None
    unit = queue.unit(offset)
    assert unit is not None
    record = store.select_one_message(unit[0])
    assert record is not None
    return bytes(record)


async def test_both_ways_store_the_same(start_broker: Start) -> None:
    """POP_CK, which is taken away, sends a half message along the slow path; an end with an answer takes it, too."""
    client = await world(start_broker)
    store = client.broker.controller.store
    for topic, queue_id in (("T", 0), ("T", 1), (HALF, 0)):
        store.queues.open(topic, queue_id)  # the first message of a queue takes the slow path, too
    scanned = store.commit_log.tail
    known = {"TAGS": "a", "KEYS": "k1 k2", "color": "grün"}
    plain = await client.prepare("T", b"body", queue_id=1, UNIQ_KEY="U1", **known)
    general = await client.prepare("T", b"body", queue_id=1, UNIQ_KEY="U2", POP_CK="x", **known)
    assert (plain.queue_id, plain.queue_offset, plain.transaction_id) == (1, 0, "U1")
    assert (general.queue_id, general.queue_offset, general.transaction_id) == (1, 1, "U2")
    assert scanned.final_topic is None
    await client.end_oneway(plain, COMMIT)
    await until(lambda: client.broker.controller.store.max_offset("T", 1) == 1)
    assert scanned.final_topic is not None
    assert (await client.end(general, COMMIT)).code == 0
    for topic, queue_id in ((HALF, 0), ("T", 1)):
        one, other = [bytearray(record_at(store, topic, queue_id, at)) for at in (0, 1)]
        prepared = [int.from_bytes(record[76:84], "big") for record in (one, other)]
        assert prepared == ([plain.physical_offset, general.physical_offset] if topic == "T" else [0, 0])
        for start, end in ((20, 36), (40, 48), (56, 64), (76, 84)):  # offsets, times, the half message's place
            one[start:end] = other[start:end] = bytes(end - start)
        assert one == other.replace(b"U2", b"U1")
    assert client.broker.controller.transactions.metrics.open_transactions() == {"T": 0}


async def test_what_the_batch_path_leaves_is_decided_by_the_processor(start_broker: Start) -> None:
    client = await world(start_broker, messageDelayLevel="1s")
    halves = {body: await client.prepare("T", body) for body in (b"twice", b"rolled back", b"wrong group")}
    delayed = await client.prepare("T", b"delayed", DELAY="1")
    await client.end_oneway(halves[b"wrong group"], COMMIT, group="OTHER")
    await client.end_oneway(halves[b"rolled back"], ROLLBACK)
    await client.end_oneway(halves[b"rolled back"], COMMIT)
    for _ in range(3):
        await client.end_oneway(halves[b"twice"], COMMIT)
    await client.end_oneway(delayed, COMMIT)
    await until(lambda: client.broker.controller.store.max_offset("SCHEDULE_TOPIC_XXXX", 0) == 1)
    assert await client.bodies("T") == [b"twice"]
    assert (await client.end(halves[b"wrong group"], COMMIT)).code == 0


async def test_settings_reach_the_batch_path_at_once(start_broker: Start) -> None:
    client = await world(start_broker)
    await client.prepare("T")
    body = b"rejectTransactionMessage=true"
    assert (await client.broker.invoke(RemotingCommand(RequestCode.UPDATE_BROKER_CONFIG, body=body))).code == 0
    reply = await client.broker.send("T", b"x", sys_flag=4, TRAN_MSG="true", PGROUP="PG", UNIQ_KEY="U")
    assert reply.code == 16


@pytest.mark.parametrize("way", [{}, {"POP_CK": "x"}], ids=["compiled", "general"])
async def test_half_messages_and_ends_are_answered_when_the_disk_has_them(
    start_broker: Start, way: dict[str, str]
) -> None:
    client = await world(start_broker, flushDiskType="SYNC_FLUSH")
    store = client.broker.controller.store
    for _ in range(2):  # the second one finds its queues open
        half = await client.prepare("T", b"x" * 100, **way)
        assert store.flushed_offset > half.physical_offset
        before = store.max_physical_offset
        assert (await client.end(half, COMMIT)).code == 0
        assert store.flushed_offset > before


@pytest.mark.parametrize("is_oneway", [False, True])
async def test_an_end_waits_until_the_queue_names_its_half_message(
    start_broker: Start, monkeypatch: pytest.MonkeyPatch, is_oneway: bool
) -> None:
    """A half message with WAIT=false is answered before the disk has it, and with SYNC_FLUSH dispatched only then."""
    client = await world(start_broker)
    half = await client.prepare("T", b"order")
    store, lags = client.broker.controller.store, True
    monkeypatch.setattr(store, "is_in_queue", lambda *place: not lags)
    monkeypatch.setattr(
        MessageStore,
        "confirm_offset",
        property(lambda self: half.physical_offset if lags else self.max_physical_offset),
    )
    end = client.end_oneway(half, COMMIT) if is_oneway else client.end(half, COMMIT)
    ending = asyncio.ensure_future(end)
    await client.broker.invoke(RemotingCommand(RequestCode.GET_BROKER_CONFIG))  # behind it, on the same connection
    lags = False
    reply = await ending
    assert reply is None or reply.code == 0
    await until(lambda: store.max_offset("T", 0) == 1)


async def test_half_messages_wait_for_replicas(start_broker: Start) -> None:
    """And those that would wait for too few are refused, on both ways."""
    client = await world(start_broker)
    store = client.broker.controller.store
    open_half = await client.prepare("T")
    replicas = Replicas()
    client.broker.controller.acknowledgement.set_replicas(replicas)
    for way in ({}, {"POP_CK": "x"}):
        waiting = asyncio.ensure_future(client.prepare("T", **way))
        await until(lambda: len(replicas.waiting) == 1)
        assert not waiting.done()
        end_offset, done = replicas.waiting.pop()
        assert end_offset == store.max_physical_offset
        done(True)
        await waiting
    replicas.too_few = "no replica"
    for way in ({}, {"POP_CK": "x"}):
        reply = await client.broker.send("T", b"x", sys_flag=4, TRAN_MSG="true", PGROUP="PG", UNIQ_KEY="U", **way)
        assert (reply.code, reply.remark) == (1, "no replica")
    await client.end_oneway(open_half, COMMIT)
    assert (await client.end(open_half, COMMIT)).remark == "no replica"
    assert await client.bodies("T") == []


class Replicas:
    """ReplicaAcks by hand."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, Callable[[bool], None]]] = []
        self.too_few: str | None = None

    def refusal(self) -> str | None:
        return self.too_few

    def asks(self) -> bool:
        return True

    def when(self, end_offset: int, done: Callable[[bool], None]) -> bool:
        self.waiting.append((end_offset, done))
        return True


async def test_counts_of_a_deleted_topic_are_forgotten(start_broker: Start) -> None:
    client = await world(start_broker)
    await client.end(await client.prepare("T", b"committed"), COMMIT)
    still_open = await client.prepare("T", b"open when the topic is deleted")
    metrics = client.broker.controller.transactions.metrics
    assert (metrics.committed, metrics.open_transactions()) == ({"T": 1}, {"T": 1})
    answer = await client.broker.invoke(RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}))
    assert answer.code == 0
    assert (metrics.committed, metrics.open_transactions()) == ({}, {})
    await client.end(still_open, COMMIT)
    assert metrics.open_transactions() == {}


async def test_a_transaction_ends_with_its_topic_though_its_producer_never_returns(start_broker: Start) -> None:
    client = await world(start_broker, **QUICK, transactionCheckMax=1_000_000)
    client.broker.create_topic("Other", queues=1)
    await client.prepare("T", b"its topic is deleted")
    kept = await client.prepare("Other", b"its producer may come back")
    answer = await client.broker.invoke(RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}))
    assert answer.code == 0
    transactions = client.broker.controller.transactions
    await until(lambda: transactions.service.ledger.low == kept.queue_offset)
    await until(lambda: not transactions.service.ops.waiting)
    assert transactions.metrics.open_transactions() == {"Other": 1}


async def test_transactions_whose_half_messages_went_with_the_log_are_counted_in_the_log(
    start_broker: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client = await world(start_broker, transactionOpBatchInterval=100)
    halves = [await client.prepare("T", b"%d" % n) for n in range(4)]
    await client.end(halves[0], ROLLBACK)
    offsets = client.broker.controller.offsets
    await until(lambda: offsets.query_offset(GROUP, HALF, 0) == 1)
    await client.broker.send("T", bytes(600_000))
    await client.broker.send("T", bytes(600_000))
    await client.prepare("T", b"kept")
    await client.broker.stop()
    (tmp_path / "store/commitlog" / f"{0:020d}").unlink()
    broker = await start_broker(**CALM)
    await broker.controller.transactions.checks.ready()
    assert broker.controller.transactions.service.ledger._base == 4, "no byte for each place that is gone"
    assert "up to 3 transactions are lost: their half messages (of queue offsets 1 to 3 of" in caplog.text
    assert broker.controller.transactions.metrics.open_transactions() == {"T": 1}
