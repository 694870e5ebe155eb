"""poll_arrow against a scripted broker, in virtual time: its rows are the messages of poll, and so are its promises."""

import asyncio
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxq.arrow.message_columns import batch_of_messages
from maxq.arrow.schemas import MESSAGE_COLUMNS
from maxq.client.client_config import LitePullConsumerConfig
from maxq.client.consumer.lite_pull_consumer import LitePullConsumer
from maxq.client.errors import NotRunningError, WrongArgumentError
from maxq.client.hooks import FilterMessageContext
from maxq.errors import ClientError
from maxq.protocol.enums import ConsumeFromWhere
from maxq.protocol.message.compression import CompressionType, compress, compression_flag
from maxq.protocol.message.message import Message, encode_batch
from maxq.protocol.message.message_queue import MessageQueue
from tests.short_form import times
from tests.unit.arrow.test_columns_cy import rows_of
from tests.unit.client.mock_broker import NAMESRV_ADDR, MockCluster, simulate, until

Q0 = MessageQueue("T", "broker-a", 0)
COLUMNS = tuple(MESSAGE_COLUMNS)


def make(cluster: MockCluster, group: str = "G", **settings: object) -> LitePullConsumer:
    values: dict[str, object] = {"consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, **settings}
    config = LitePullConsumerConfig(namesrv_addr=NAMESRV_ADDR, consumer_group=group, **values)  # type: ignore[arg-type]
    return LitePullConsumer(config, cluster.environment())


async def start(cluster: MockCluster, count: int, queues: int = 1, topic: str = "T") -> None:
    await cluster.start()
    cluster.route(topic, queues=queues)
    for n in range(count):
        cluster.broker.put(topic, b"%d" % n, n % queues, properties={"TAGS": "AB"[n % 2], "n": str(n)})


async def drain(consumer: LitePullConsumer, count: int, **arguments: Any) -> list[pa.RecordBatch]:
    found: list[pa.RecordBatch] = []
    while sum(batch.num_rows for batch in found) < count:
        batch = await consumer.poll_arrow(**arguments)
        assert batch.num_rows, "nothing came in time"
        found.append(batch)
    return found


def bodies(batches: list[pa.RecordBatch]) -> list[bytes]:
    return [body for batch in batches for body in batch.column("body").to_pylist()]


# --- rows -------------------------------------------------------------------------------------------------------------

texts = st.sampled_from(["", "a", "k1 k2", "ж", "x" * 40])
messages = st.fixed_dictionaries(
    {
        "body": st.binary(min_size=1, max_size=30),
        "kind": st.sampled_from([None, None, "zlib", "damaged", "batch"]),
        "flag": st.integers(-3, 3),
        "properties": st.dictionaries(st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "own"]), texts, max_size=4),
    }
)


def put(cluster: MockCluster, topic: str, one: dict[str, Any]) -> None:
    body, flag = one["body"], 0
    if one["kind"] == "zlib":
        body, flag = compress(body, CompressionType.ZLIB), compression_flag(CompressionType.ZLIB)
    elif one["kind"] == "damaged":
        flag = compression_flag(CompressionType.ZSTD)
    elif one["kind"] == "batch":
        body, flag = encode_batch([Message(topic, body), Message(topic, b"second", {"TAGS": "a"})]), 0xC0
    properties = {name: value for name, value in one["properties"].items() if value}
    cluster.broker.put(topic, body, properties=properties, sys_flag=flag, flag=one["flag"])


@settings(max_examples=times(60), deadline=None)
@given(
    st.lists(messages, min_size=1, max_size=12), st.sampled_from(["", "ns"]), st.sampled_from(["*", "a"]),
    st.integers(1, 5), st.booleans(),
)  # fmt: skip
def test_rows_are_the_messages_of_poll(
    given_messages: list[dict[str, Any]], namespace: str, tags: str, pull_batch_size: int, hooked: bool
) -> None:
    class Hook:
        name = "hook"

        def filter_message(self, context: FilterMessageContext) -> None:
            """Look at what was pulled."""

    async def story(cluster: MockCluster) -> None:
        topic = f"{namespace}%T" if namespace else "T"
        await cluster.start()
        cluster.route(topic)
        for one in given_messages:
            put(cluster, topic, one)
        more: dict[str, Any] = {"filter_message_hooks": (Hook(),)} if hooked else {}
        settings_: dict[str, Any] = {"namespace": namespace, "pull_batch_size": pull_batch_size, **more}
        objects, columns = make(cluster, "objects", **settings_), make(cluster, "columns", **settings_)
        wanted, found = [], []
        for consumer in (objects, columns):
            await consumer.subscribe("T", tags)
        async with objects:
            while one := await objects.poll(500):
                wanted += one
        async with columns:
            while (batch := await columns.poll_arrow(500)).num_rows:
                found.append(batch)
        rows = [row for batch in found for row in rows_of(batch)]
        assert rows == rows_of(batch_of_messages(wanted, COLUMNS))

    simulate(story)


def test_no_message_becomes_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("messages were made")

    async def story(cluster: MockCluster) -> None:
        await start(cluster, 300, queues=3)
        consumer = make(cluster, namespace="")
        await consumer.subscribe("T", "A || B")
        async with consumer:
            first = await consumer.poll_arrow()
            monkeypatch.setattr("maxq.client.instance.pull_api.read_records", refuse)
            found = [first, *await drain(consumer, 300 - first.num_rows)]
        assert sorted(bodies(found)) == sorted(b"%d" % n for n in range(300))

    simulate(story)


def test_a_batch_has_several_pulls_and_queues_each_in_order() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 600, queues=3)
        consumer = make(cluster, pull_batch_size=10)
        await consumer.subscribe("T")
        async with consumer:
            await consumer.poll_arrow(0)
            await asyncio.sleep(1)
            first = await consumer.poll_arrow(columns=["queueId", "queueOffset", "topic"])
            assert first.num_rows > 100
            assert first.schema.names == ["queueId", "queueOffset", "topic"]
            rows = first.to_pylist()
            assert {row["queueId"] for row in rows} == {0, 1, 2}
            for queue_id in range(3):
                offsets = [row["queueOffset"] for row in rows if row["queueId"] == queue_id]
                assert offsets == list(range(len(offsets)))

    simulate(story)


@pytest.mark.parametrize("columns", [["body"], ["value", "queueOffset"]])
@pytest.mark.parametrize("hooked", [False, True])
def test_a_batch_has_no_more_than_the_memory_can_hold(
    monkeypatch: pytest.MonkeyPatch, columns: list[str], hooked: bool
) -> None:
    """Some kilobytes may be gigabytes when they are not compressed any more: the next poll goes on where this one ends,
    and only what was returned is done."""

    class Hook:
        name = "hook"

        def filter_message(self, context: FilterMessageContext) -> None:
            """Look at what was pulled."""

    async def story(cluster: MockCluster) -> None:
        monkeypatch.setattr("maxq.client.results.arrow_batches._ENOUGH", 100_000)
        await cluster.start()
        cluster.route("T")
        sent = [bytes([n]) * 40_000 for n in range(11)]
        for body in sent:
            flag = compression_flag(CompressionType.ZLIB)
            cluster.broker.put("T", compress(body, CompressionType.ZLIB), sys_flag=flag)
        more: dict[str, Any] = {"filter_message_hooks": (Hook(),)} if hooked else {}
        consumer = make(cluster, pull_batch_size=4, auto_commit=False, **more)
        await consumer.assign([Q0])
        got: list[bytes] = []
        async with consumer:
            while len(got) < len(sent):
                batch = await consumer.poll_arrow(columns=columns)
                assert 0 < batch.num_rows <= 3
                got += batch.column(columns[0]).to_pylist()
                await consumer.commit()
                assert cluster.broker.committed[("G", Q0)] == len(got)
        assert got == sent

    simulate(story)


# --- promises ---------------------------------------------------------------------------------------------------------


def test_rows_given_out_last_are_not_committed_before_the_next_poll() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 3)
        consumer = make(cluster, auto_commit=False)
        await consumer.subscribe("T")
        await consumer.start()
        await consumer.poll_arrow()
        await asyncio.sleep(30)
        assert cluster.broker.committed.get(("G", Q0), -1) <= 0
        await consumer.commit()
        assert cluster.broker.committed["G", Q0] == 3
        await consumer.shutdown()

    simulate(story)


def test_progress_is_committed_every_five_seconds_of_polling() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 70)
        consumer = make(cluster)
        await consumer.subscribe("T")
        async with consumer:
            await drain(consumer, 70)
            for _ in range(30):
                assert (await consumer.poll_arrow(500)).num_rows == 0
            await until(lambda: cluster.broker.committed.get(("G", Q0)) == 70, "the commit", 10)

    simulate(story)


def test_who_leaves_by_an_exception_gets_the_rows_again() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 5)
        with pytest.raises(ZeroDivisionError):
            async with make(cluster) as consumer:
                await consumer.assign([Q0])
                await consumer.poll_arrow()
                raise ZeroDivisionError
        async with make(cluster) as again:
            await again.assign([Q0])
            assert bodies([await again.poll_arrow()]) == [b"0", b"1", b"2", b"3", b"4"]

    simulate(story)


def test_poll_and_poll_arrow_take_turns_and_lose_nothing() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 2000, queues=2)
        consumer = make(cluster, pull_batch_size=8, auto_commit=False)
        await consumer.subscribe("T")
        seen: list[bytes] = []
        async with consumer:
            turn = 0
            while len(seen) < 2000:
                turn += 1
                if turn % 3 == 0:
                    polled = await consumer.poll(2000)
                    assert 0 < len(polled) <= 8, "messages of one pull"
                    seen += [message.body for message in polled]
                elif turn % 7 == 0:
                    async for message in consumer:
                        seen.append(message.body)
                        break
                else:
                    seen += bodies([await consumer.poll_arrow(2000, linger_ms=turn % 2)])
            await consumer.commit()
            committed = [cluster.broker.committed["G", MessageQueue("T", "broker-a", n)] for n in range(2)]
        assert sorted(seen) == sorted(b"%d" % n for n in range(2000))
        assert committed == [1000, 1000]

    simulate(story)


def test_a_poll_of_what_was_pulled_for_columns_gives_no_more_than_its_batch_size() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 500)
        consumer = make(cluster, pull_batch_size=8)
        await consumer.subscribe("T")
        seen: list[bytes] = []
        async with consumer:
            assert (await consumer.poll_arrow(0)).num_rows == 0, "nothing was pulled yet"
            await asyncio.sleep(5)  # of virtual time
            while len(seen) < 500:
                polled = await consumer.poll(2000)
                assert 0 < len(polled) <= 8
                seen += [message.body for message in polled]
        assert seen == [b"%d" % n for n in range(500)]

    simulate(story)


def test_a_seek_throws_away_what_was_pulled_before_it_and_a_paused_queue_gives_nothing() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 100)
        consumer = make(cluster, pull_batch_size=10)
        await consumer.assign([Q0])
        async with consumer:
            assert bodies([await consumer.poll_arrow(linger_ms=0)])[0] == b"0"
            await asyncio.sleep(1)
            await consumer.seek(Q0, 90)
            assert bodies(await drain(consumer, 10)) == [b"%d" % n for n in range(90, 100)]
            cluster.broker.put("T", b"later")
            await asyncio.sleep(1)
            consumer.pause([Q0])
            assert (await consumer.poll_arrow(300)).num_rows == 0
            consumer.resume([Q0])
            assert bodies([await consumer.poll_arrow()]) == [b"later"]

    simulate(story)


def test_pulling_ahead_stops_at_the_threshold_and_goes_on_when_rows_are_done() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 500)
        consumer = make(cluster, pull_threshold_for_queue=100)
        await consumer.assign([Q0])
        async with consumer:
            await consumer.poll_arrow(0)
            await asyncio.sleep(5)
            first = await consumer.poll_arrow(columns=["body"])
            assert 100 < first.num_rows <= 400
            await asyncio.sleep(5)
            assert consumer.running_info().mq_table[Q0].cached_msg_count == first.num_rows, "not done yet"
            await drain(consumer, 500 - first.num_rows)

    simulate(story)


def test_a_poll_that_is_cancelled_gives_nothing_out() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 0)
        consumer = make(cluster)
        await consumer.assign([Q0])
        async with consumer:
            task = asyncio.create_task(consumer.poll_arrow(linger_ms=100))
            await asyncio.sleep(0.5)
            cluster.broker.put("T", b"x")
            await asyncio.sleep(0.05)  # it lingers
            assert not task.done()
            task.cancel()
            assert [type(one) for one in await asyncio.gather(task, return_exceptions=True)] == [asyncio.CancelledError]
            assert bodies([await consumer.poll_arrow()]) == [b"x"]

    simulate(story)


def test_a_batch_that_cannot_be_made_is_given_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 4)
        consumer = make(cluster, auto_commit=False)
        await consumer.assign([Q0])
        async with consumer:
            await consumer.poll_arrow(0)
            with monkeypatch.context() as broken:
                broken.setattr("maxq.arrow.columns_cy.ColumnBuilder", lambda *_: 1 / 0)
                with pytest.raises(ZeroDivisionError):
                    await consumer.poll_arrow()
            await consumer.commit()
            assert cluster.broker.committed.get(("G", Q0), 0) <= 0
            assert bodies([await consumer.poll_arrow()]) == [b"0", b"1", b"2", b"3"]

    simulate(story)


# --- wrong use --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"columns": "body"}, "columns is a list of names"),
        ({"columns": []}, "columns is a list of names"),
        ({"columns": ["body", 7]}, "columns is a list of names"),
        ({"columns": ["bodies"]}, "'bodies' is no column of a message; there are body, topic"),
        ({"columns": ["body", "Body"]}, "body is named twice"),
        ({"timeout_ms": -1}, "timeout_ms"),
        ({"linger_ms": -1}, "linger_ms"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], text: str) -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 1)
        async with make(cluster) as consumer:
            await consumer.assign([Q0])
            with pytest.raises(WrongArgumentError, match=text):
                await consumer.poll_arrow(**arguments)
            assert (await consumer.poll_arrow()).num_rows == 1

    simulate(story)


def test_without_pyarrow_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    import maxq.arrow

    async def story(cluster: MockCluster) -> None:
        await start(cluster, 1)
        async with make(cluster) as consumer:
            await consumer.assign([Q0])
            monkeypatch.setattr(maxq, "arrow", maxq.arrow)  # so that other tests find it again
            for name in [name for name in sys.modules if name.startswith("maxq.arrow")]:
                monkeypatch.delitem(sys.modules, name)
            monkeypatch.setitem(sys.modules, "pyarrow", None)
            with pytest.raises(ClientError, match=r"poll_arrow needs pyarrow.*pip install 'maxq\[arrow\]'"):
                await consumer.poll_arrow()
            assert len(await consumer.poll()) == 1

    simulate(story)


def test_a_consumer_that_does_not_run_says_so() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 1)
        with pytest.raises(NotRunningError):
            await make(cluster).poll_arrow()

    simulate(story)
