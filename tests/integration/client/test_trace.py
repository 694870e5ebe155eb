"""Message trace through a broker: sends, listener calls, ends of transactions and recalls are found by message id."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from maxq.api import (
    Admin,
    LocalTransactionState,
    Message,
    MessageExt,
    Producer,
    async_admin,
    async_lite_pull_consumer,
    async_producer,
    async_push_consumer,
    async_transaction_producer,
)
from maxq.client.admin.traces import TraceView
from maxq.protocol.message.message_trace import TracedMessageType, TraceType
from maxq.standalone import Standalone
from tests.integration.cli.harness import maxq
from tests.integration.client.helpers import FROM_FIRST, Collector

PUB, BEFORE, AFTER = TraceType.PUB, TraceType.SUB_BEFORE, TraceType.SUB_AFTER


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A name server whose broker has the trace topic and takes messages back."""
    settings = {"traceTopicEnable": "true", "recallMessageEnable": "true"}
    with Standalone(tmp_path_factory.mktemp("store"), settings=settings) as server:
        yield server.namesrv_address


async def views(namesrv: str, msg_id: str, **where: Any) -> list[TraceView]:
    async with async_admin(namesrv) as admin:
        return await admin.traces.of_message(msg_id, **where)


async def test_a_message_is_followed_from_the_send_to_both_kinds_of_consumers(traced: str) -> None:
    listener = Collector()
    pushed = async_push_consumer("CG_push", traced, listener, enable_trace=True, consume_from_where=FROM_FIRST)
    pushed.subscribe("Followed")
    async with async_producer("PG", traced, enable_trace=True) as producer:
        result = await producer.send(Message("Followed", b"hello", {"TAGS": "a", "KEYS": "order-1"}))
        async with pushed:
            await listener.wait_for(1)
        polled = async_lite_pull_consumer("CG_pull", traced, enable_trace=True, consume_from_where=FROM_FIRST)
        await polled.subscribe("Followed")
        async with polled:
            assert len(await polled.poll(20_000)) == 1
    found = await views(traced, result.msg_id)
    kinds = [(view.record.trace_type, view.record.group_name) for view in found]
    assert sorted(kinds, key=str) == sorted(
        [(PUB, "PG"), (BEFORE, "CG_push"), (AFTER, "CG_push"), (BEFORE, "CG_pull"), (AFTER, "CG_pull")], key=str
    )
    assert all(view.status == "success" and view.client_host == "127.0.0.1" for view in found)
    assert found[0].record.tags == "a" and found[0].record.body_length == 5
    assert [view.record.msg_id for view in await views(traced, "order-1")] == []  # a key is no id


async def test_a_message_of_a_batch_is_found_by_its_own_id(traced: str) -> None:
    async with async_producer("PG_batch", traced, enable_trace=True) as producer:
        result = await producer.send_batch([Message("Batched", b"1"), Message("Batched", b"2")])
    for msg_id in (result.msg_id, *result.msg_id.split(",")):
        (view,) = await views(traced, msg_id)
        assert view.record.msg_id == result.msg_id


class Commits:
    def execute_local_transaction(self, message: Message, arg: Any) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE

    def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE


async def test_the_end_of_a_transaction_is_traced(traced: str) -> None:
    producer = async_transaction_producer("PG_tx", traced, Commits(), enable_trace=True)
    async with producer:
        ended = await producer.send_message_in_transaction(Message("Transactional", b"x"))
    half, end = (view.record for view in await views(traced, ended.msg_id))
    assert (half.trace_type, half.message_type) == (PUB, TracedMessageType.TRANSACTION_HALF)
    assert (end.trace_type, end.transaction_state) == (TraceType.END_TRANSACTION, "COMMIT_MESSAGE")
    assert end.from_transaction_check is False and end.transaction_id == ended.transaction_id


async def test_a_recall_is_traced(traced: str) -> None:
    async with async_producer("PG_recall", traced, enable_trace=True) as producer:
        result = await producer.send(Message("Recalled", b"x", {"TIMER_DELAY_SEC": "600"}))
        assert result.recall_handle is not None
        await producer.recall_message("Recalled", result.recall_handle)
    sent, recalled = (view.record for view in await views(traced, result.msg_id))
    assert (sent.message_type, recalled.trace_type, recalled.success) == (
        TracedMessageType.DELAY, TraceType.RECALL, True,
    )  # fmt: skip


def test_blocking_clients_trace_and_look_too(traced: str) -> None:
    with Producer("PG_blocking", traced, enable_trace=True) as producer:
        result = producer.send(Message("Blocking", b"x"))
    with Admin(traced) as admin:
        (view,) = admin.traces.of_message(result.msg_id)
    assert (view.record.trace_type, view.record.group_name) == (PUB, "PG_blocking")


async def test_a_trace_topic_of_ones_own_is_used_and_the_command_reads_it(traced: str, tmp_path: Path) -> None:
    async with async_producer("PG_own", traced, enable_trace=True, trace_topic="MyTraces", namespace="N") as producer:
        result = await producer.send(Message("Own", b"x"))
    assert await views(traced, result.msg_id) == []
    (view,) = await views(traced, result.msg_id, trace_topic="MyTraces")
    assert (view.record.topic, view.record.group_name) == ("Own", "PG_own")
    command = ("admin", "queryMsgTraceById", "-i", result.msg_id, "-t", "MyTraces")
    head, line, *_ = maxq(*command, namesrv=traced).out.splitlines()
    assert head.split() == ["#Type", "#ProducerGroup", "#ClientHost", "#SendTime", "#CostTimes", "#Status"]
    assert line.split()[:3] == ["Pub", "PG_own", "127.0.0.1"] and line.split()[-1] == "success"
    (shown,) = json.loads(maxq(*command, "--json", namesrv=traced).out)
    assert (shown["traceType"], shown["msgId"], shown["topic"]) == ("Pub", result.msg_id, "Own")
    unknown = maxq("admin", "queryMsgTraceById", "-i", "7F00", "-t", "MyTraces", "--json", namesrv=traced)
    assert (unknown.code, unknown.out) == (1, "[]\n")
    assert unknown.err == "maxq: MyTraces: nothing is traced of message 7F00\n"
