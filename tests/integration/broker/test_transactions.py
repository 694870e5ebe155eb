"""Transactions on a running broker: what is stored, what is delivered, who is asked, and every refusal."""

import pytest

from maxq.codes import RequestCode
from maxq.protocol.message_properties import encode_properties
from maxq.protocol.remoting_command import RemotingCommand
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import RunningBroker, until
from tests.integration.broker.transaction_world import (
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


async def test_ends_share_one_op_message(start_broker: Start) -> None:
    client = await world(start_broker, transactionOpBatchInterval=300)
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
        return client.broker.controller._clock.wall_ms() > (await client.messages(HALF))[0].born_timestamp

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
