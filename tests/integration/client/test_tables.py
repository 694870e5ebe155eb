"""poll_arrow and send_arrow with a server: tables of whatever was sent, blocking and in an event loop."""

from collections.abc import Callable

import pyarrow as pa
import pytest

from maxq.aio import LitePullConsumer as AsyncLitePullConsumer
from maxq.aio import Producer as AsyncProducer
from maxq.api import LitePullConsumer, LocalTransactionState, Message, MessageExt, Producer, TransactionProducer
from tests.integration.client.helpers import FROM_FIRST

Name = Callable[[str], str]
TEXT = b"a body that is long enough to be compressed " * 200


class Local:
    """Local transactions whose bodies say how they end."""

    def execute_local_transaction(self, message: Message, arg: object) -> LocalTransactionState:
        is_good = message.body == b"committed"
        return LocalTransactionState.COMMIT_MESSAGE if is_good else LocalTransactionState.ROLLBACK_MESSAGE

    def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        return LocalTransactionState.UNKNOW


def rows_of(consumer: LitePullConsumer, count: int, columns: list[str] | None = None) -> pa.Table:
    batches: list[pa.RecordBatch] = []
    while sum(batch.num_rows for batch in batches) < count:
        batch = consumer.poll_arrow(10_000, columns=columns)
        assert batch.num_rows, f"{count} rows, got {sum(one.num_rows for one in batches)}"
        batches.append(batch)
    return pa.Table.from_batches(batches)


def test_a_table_has_every_kind_of_message_as_poll_has_it(namesrv: str, name: Name) -> None:
    topic = name("T")
    with TransactionProducer(name("P"), namesrv, Local()) as producer:
        producer.send(Message(topic, b"plain", {"TAGS": "a", "own": "1"}))
        producer.send(Message(topic, TEXT, {"TAGS": "b"}))
        producer.send_batch([Message(topic, b"first of a batch"), Message(topic, b"second of a batch", {"TAGS": "a"})])
        for body in (b"rolled back", b"committed"):
            producer.send_message_in_transaction(Message(topic, body))
        table = pa.table({"body": [b"row 1", TEXT, b"row 3"], "tags": ["a", None, "a"], "keys": [["k", "l"], None, []]})
        sent = producer.send_arrow(table, topic=topic).to_pylist()
    with LitePullConsumer(name("objects"), namesrv, consume_from_where=FROM_FIRST) as consumer:
        consumer.subscribe(topic)
        messages = [message for _, message in zip(range(8), consumer, strict=False)]
    with LitePullConsumer(name("tables"), namesrv, consume_from_where=FROM_FIRST) as consumer:
        consumer.subscribe(topic)
        rows = rows_of(consumer, 8).to_pylist()
        assert consumer.poll_arrow(0).num_rows == 0
    by_place = {(row["queueId"], row["queueOffset"]): row for row in rows}
    assert len(by_place) == 8
    for message in messages:
        row = by_place[message.queue_id, message.queue_offset]
        assert (row["body"], row["tags"], " ".join(row["keys"])) == (message.body, message.tags, message.keys or "")
        added = {"MIN_OFFSET", "MAX_OFFSET"}
        assert dict(row["properties"]) == {k: v for k, v in message.properties.items() if k not in added}
        assert row["storeTimestamp"].timestamp() * 1000 == pytest.approx(message.store_timestamp)
    for wanted, one in zip(table.to_pylist(), sent, strict=True):
        row = by_place[one["queueId"], one["queueOffset"]]
        assert (row["body"], row["tags"], row["uniqKey"]) == (wanted["body"], wanted["tags"], one["uniqKey"])


def test_what_was_given_out_last_comes_again_to_who_did_not_end_well(namesrv: str, name: Name) -> None:
    topic, group = name("T"), name("G")
    with Producer(name("P"), namesrv, default_topic_queue_nums=1) as producer:
        producer.send_arrow(pa.table({"body": [b"%d" % n for n in range(10)]}), topic=topic)
    with (
        pytest.raises(ZeroDivisionError),
        LitePullConsumer(group, namesrv, consume_from_where=FROM_FIRST) as consumer,
    ):
        consumer.subscribe(topic)
        assert rows_of(consumer, 10).num_rows == 10
        raise ZeroDivisionError
    with LitePullConsumer(group, namesrv, consume_from_where=FROM_FIRST) as consumer:
        consumer.subscribe(topic)
        assert rows_of(consumer, 10, ["queueOffset"]).column(0).to_pylist() == list(range(10))
        consumer.commit()
    with LitePullConsumer(group, namesrv, consume_from_where=FROM_FIRST) as consumer:
        consumer.subscribe(topic)
        consumer.wait_for_assignment()
        assert consumer.poll_arrow(500).num_rows == 0


async def test_a_loop_sends_and_polls_tables_by_tags(namesrv: str, name: Name) -> None:
    topic = name("T")
    table = pa.table({"body": [b"%d" % n for n in range(20_000)], "tags": ["even", "odd"] * 10_000})
    async with AsyncProducer(name("P"), namesrv) as producer:
        sent = await producer.send_arrow(table, topic=topic)
    assert sent.num_rows == 20_000 and sent.column("error").null_count == 20_000
    consumer = AsyncLitePullConsumer(name("G"), namesrv, consume_from_where=FROM_FIRST)
    await consumer.subscribe(topic, "odd")
    bodies: list[bytes] = []
    async with consumer:
        while len(bodies) < 10_000:
            batch = await consumer.poll_arrow(10_000, columns=["body"])
            assert batch.num_rows
            bodies += batch.column("body").to_pylist()
    assert sorted(bodies) == sorted(b"%d" % n for n in range(1, 20_000, 2))
