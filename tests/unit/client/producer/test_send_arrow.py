"""send_arrow against scripted brokers, in virtual time: rows become the messages that send would make of them, where
the result says, in the order that is promised, and what is not sent is told."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from types import ModuleType
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maxq.client.client_config import ProducerConfig
from maxq.client.errors import ArrowSendError, NotRunningError, WrongArgumentError
from maxq.client.hooks import SendMessageContext
from maxq.client.producer.producer import Producer
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import ClientError, MaxQError
from maxq.protocol.frame.remoting_command import RemotingCommand, decode_frame
from maxq.protocol.message.message import MessageExt, decode_batch
from maxq.protocol.message.message_queue import MessageQueue
from tests.short_form import times
from tests.unit.both_forms import both
from tests.unit.client.mock_broker import NAMESRV_ADDR, MockCluster, simulate
from tests.unit.client.producer.test_fast_sends import frames, warm

SEND, BATCH = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE
FORMS = list(zip(both("maxq.client.producer.fast_sends_cy"), both("maxq.arrow.batch_encode_cy"), strict=True))
QUIETLY = settings(max_examples=times(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=FORMS, ids=["uncompiled", "installed"])
def form(request: pytest.FixtureRequest) -> Iterator[tuple[ModuleType, ModuleType]]:
    sends, encoder = request.param
    with (
        mock.patch("maxq.client.producer.message_sender.FastSends", sends.FastSends),
        mock.patch("maxq.client.producer.message_sender.SendAnswers", sends.SendAnswers),
        mock.patch("maxq.arrow.row_encoder.encode_rows", encoder.encode_rows),
    ):
        yield request.param


def make(cluster: MockCluster, **more: Any) -> Producer:
    return Producer(ProducerConfig(namesrv_addr=NAMESRV_ADDR, producer_group="P", **more), cluster.environment())


def stored(cluster: MockCluster) -> dict[tuple[str, int, int], MessageExt]:
    return {
        (queue.broker_name, queue.queue_id, offset): message
        for broker in cluster.brokers.values()
        for queue, messages in broker.queues.items()
        for offset, message in enumerate(messages)
    }


def of_row(row: dict[str, Any], result: dict[str, Any], namespace: str = "") -> dict[str, str]:
    """The properties that a message of this row has."""
    found = {"UNIQ_KEY": result["uniqKey"]}
    if namespace:
        found["INSTANCE_ID"] = namespace
    if row.get("tags"):
        found["TAGS"] = row["tags"]
    if row.get("keys"):
        keys = row["keys"]
        found["KEYS"] = keys if isinstance(keys, str) else " ".join(keys)
    if row.get("shardingKey"):
        found["__SHARDINGKEY"] = row["shardingKey"]
    found |= {name: value for name, value in dict(row.get("properties") or []).items() if value}
    return found


def check(
    cluster: MockCluster, rows: list[dict[str, Any]], result: pa.RecordBatch, namespace: str = "", first: int = 0
) -> None:
    """Each row is one message, at the place that the result says, and nothing else is there."""
    result.validate(full=True)
    found, there = result.to_pylist(), stored(cluster)
    assert len(found) == len(rows)
    assert len({one["uniqKey"] for one in found}) == len(rows)
    for row, one in zip(rows, found, strict=True):
        assert (one["sendStatus"], one["error"]) == ("SEND_OK", None)
        message = there.pop((one["brokerName"], one["queueId"], one["queueOffset"]))
        body = row["body"]
        assert message.body == (body.encode() if isinstance(body, str) else body)
        properties = dict(message.properties)
        assert properties == of_row(row, one, namespace)
    assert len(there) == first, "something else was sent"


TEXT = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\x01\x02"), max_size=12)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "body": st.binary(min_size=1, max_size=40),
            "tags": st.none() | TEXT,
            "keys": st.none() | st.lists(TEXT.filter(lambda word: word and " " not in word), max_size=3),
            "properties": st.none()
            | st.dictionaries(st.sampled_from(["own", "ж", "a b"]), TEXT, max_size=3).map(
                lambda one: list(one.items())
            ),
        }
    ),
    min_size=1,
    max_size=8,
)
BODY_TYPES = [pa.binary(), pa.large_binary(), pa.binary_view()]
TEXT_TYPES = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]


def table_of(rows: list[dict[str, Any]], kinds: dict[str, Any], cuts: list[int]) -> pa.Table:
    """The rows in chunks that are slices of larger arrays, of these types."""
    schema = {"keys": pa.list_(pa.string()), "properties": pa.map_(pa.string(), pa.string()), **kinds}
    chunks = []
    for first, last in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        padded = [*rows[-1:], *rows[first:last], *rows[:1]]
        columns = {name: _array([row[name] for row in padded], schema[name]) for name in rows[0]}
        chunks.append(pa.RecordBatch.from_pydict(columns).slice(1, last - first))
    return pa.Table.from_batches(chunks)


def _array(values: list[Any], kind: pa.DataType) -> Any:
    if pa.types.is_dictionary(kind):
        return pa.array(values, pa.string()).dictionary_encode()
    return pa.array(values, kind)


@pytest.mark.parametrize("namespace", ["", "ns"])
@pytest.mark.parametrize("is_warm", [False, True])
@QUIETLY
@given(
    rows=ROWS, body=st.sampled_from(BODY_TYPES), text=st.sampled_from(TEXT_TYPES),
    cuts=st.lists(st.integers(0, 8), max_size=3),
)  # fmt: skip
def test_rows_of_any_types_chunks_and_slices_are_stored_where_the_result_says(
    form: Any, namespace: str, is_warm: bool, rows: list[dict[str, Any]], body: Any, text: Any, cuts: list[int]
) -> None:
    cuts = sorted(min(cut, len(rows)) for cut in cuts)

    async def story(cluster: MockCluster) -> None:
        await cluster.start("broker-a", "broker-b")
        cluster.route("ns%T" if namespace else "T", queues=2)
        async with make(cluster, namespace=namespace) as producer:
            if is_warm:
                await warm(cluster, producer, "T")
            first = len(stored(cluster))
            table = table_of(rows, {"body": body, "tags": text}, cuts)
            check(cluster, rows, await producer.send_arrow(table, topic="T"), namespace, first)

    simulate(story)


def _pairs_of(text: pa.DataType, value: pa.DataType) -> pa.DataType:
    return pa.struct({"key": text, "value": value})


@pytest.mark.parametrize(
    "list_of", [pa.list_, pa.large_list, lambda kind: pa.list_(kind, 2)], ids=["list", "large", "fixed"]
)
@pytest.mark.parametrize("text", TEXT_TYPES, ids=str)
@pytest.mark.parametrize("value", BODY_TYPES, ids=str)
def test_lists_of_any_kind_belong_to_their_rows(list_of: Any, text: pa.DataType, value: pa.DataType) -> None:
    """Polars hands over large lists of views, DuckDB lists of plain texts, Spark what it is told."""

    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T", queues=2)
        pairs = [[("a", "1"), ("b", "22")], [("c", "3"), ("d", "ж")], [("e", "5"), ("f", "6")]]
        rows = [
            {"body": b"%d" % number, "keys": [f"k{number}", f"l{number}"], "properties": of_row}
            for number, of_row in enumerate(pairs)
        ]
        texts = pa.string() if pa.types.is_dictionary(text) else text
        named = [[{"key": name, "value": one.encode()} for name, one in of_row] for of_row in pairs]
        table = pa.table(
            {
                "body": pa.array([row["body"] for row in rows]),
                "keys": pa.array([row["keys"] for row in rows], list_of(text)),
                "headers": pa.array(named, list_of(_pairs_of(texts, value))),
            }
        )
        async with make(cluster) as producer:
            check(cluster, rows[1:], await producer.send_arrow(table.slice(1), topic="T"))

    simulate(story)


@QUIETLY
@given(rows=ROWS)
def test_a_request_is_byte_by_byte_that_of_the_general_way(form: Any, rows: list[dict[str, Any]]) -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T", queues=3)
        async with make(cluster) as producer:
            await warm(cluster, producer, "T")
            sender = producer._sender
            with frames() as sent:
                await producer.send_arrow(table_of(rows, {"body": pa.binary(), "tags": pa.string()}, []), topic="T")
            for frame in sent:
                command = decode_frame(frame[4:])
                if command.code != BATCH:
                    continue
                queue = MessageQueue(command.ext["b"], command.ext["n"], int(command.ext["e"]))
                wanted = sender.request(sender.preparer.prepare_encoded("T", command.body_bytes), queue)
                wanted.opaque, wanted.ext["g"] = command.opaque, command.ext["g"]
                assert frame == wanted.encode()

    simulate(story)


def test_large_tables_go_in_batches_and_several_at_a_time() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start("broker-a", "broker-b")
        cluster.route("T", queues=2)
        rows = [{"body": b"%06d" % n + bytes(1000)} for n in range(5000)]
        async with make(cluster, max_message_size=256 << 10) as producer:
            check(cluster, rows, await producer.send_arrow(pa.Table.from_pylist(rows), topic="T"))
        sizes = [len(one.body_bytes) for broker in cluster.brokers.values() for one in broker.requests(BATCH)]
        assert 20 <= len(sizes) < 30
        assert max(sizes) <= 256 << 10
        assert all(len(broker.requests(BATCH)) > 5 for broker in cluster.brokers.values()), "in turn"

    simulate(story)


def test_small_rows_go_in_requests_of_which_none_holds_a_broker_for_long() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        rows = [{"body": b"%d" % n} for n in range(5000)]
        async with make(cluster) as producer:
            check(cluster, rows, await producer.send_arrow(pa.Table.from_pylist(rows), topic="T"))
        counts = [len(decode_batch(one.body_bytes, "T")) for one in cluster.broker.requests(BATCH)]
        assert sum(counts) == 5000
        assert max(counts) < 2000

    simulate(story)


def test_topics_of_rows_count_before_the_one_of_the_call() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T"), cluster.route("U")
        rows = [{"body": b"1", "topic": "U"}, {"body": b"2", "topic": None}, {"body": b"3", "topic": "T"}]
        async with make(cluster) as producer:
            await producer.send_arrow(pa.Table.from_pylist(rows), topic="T")
        found = {queue.topic: [one.body for one in held] for queue, held in cluster.broker.queues.items() if held}
        assert found == {"T": [b"2", b"3"], "U": [b"1"]}

    simulate(story)


@pytest.mark.parametrize("by", ["queueId", "shardingKey"])
def test_rows_for_a_queue_stay_in_order_whatever_brokers_refuse(by: str) -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T", queues=3)
        refused = iter([False, True, True, False, True] * 20)

        def answer(request: RemotingCommand) -> RemotingCommand:
            if next(refused, False):
                return request.reply(ResponseCode.SYSTEM_BUSY, "busy")
            return cluster.broker._send(None, request)  # type: ignore[arg-type]

        cluster.broker.scripts[BATCH] = answer
        rows = [
            {"body": b"%06d" % n + bytes(2000), by: n % 3 if by == "queueId" else "abc"[n % 3]} for n in range(3000)
        ]
        async with make(cluster, retry_times_when_send_failed=50, max_message_size=256 << 10) as producer:
            result = await producer.send_arrow(pa.Table.from_pylist(rows), topic="T")
        check(cluster, [{k: v for k, v in row.items() if k != "queueId"} for row in rows], result)
        places: dict[Any, set[int]] = {}
        for queue, held in cluster.broker.queues.items():
            numbers = [int(one.body[:6]) for one in held]
            assert numbers == sorted(numbers), queue
            for number in numbers:
                places.setdefault(rows[number][by], set()).add(queue.queue_id)
        assert all(len(queues) == 1 for queues in places.values())
        if by == "queueId":
            assert places == {0: {0}, 1: {1}, 2: {2}}

    simulate(story)


def test_delayed_rows_go_by_themselves() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        due = datetime(2030, 1, 1, tzinfo=UTC)
        rows = [{"body": b"%d" % n, "deliverTimestamp": due if n % 2 else None} for n in range(10)]
        async with make(cluster) as producer:
            result = await producer.send_arrow(pa.Table.from_pylist(rows), topic="T")
        there = stored(cluster)
        for n, one in enumerate(result.to_pylist()):
            message = there[one["brokerName"], one["queueId"], one["queueOffset"]]
            assert (message.body, message.uniq_key) == (b"%d" % n, one["uniqKey"])
            timed = str(int(due.timestamp() * 1000)) if n % 2 else None
            assert message.properties.get("TIMER_DELIVER_MS") == timed
        assert (len(cluster.broker.requests(SEND)), len(cluster.broker.requests(BATCH))) == (5, 1)

    simulate(story)


def test_a_batch_that_cannot_be_sent_in_the_common_way_goes_the_general_one() -> None:
    class Hook:
        name = "hook"

        def __init__(self) -> None:
            self.seen: list[tuple[bytes, str | None]] = []

        def send_message_before(self, context: SendMessageContext) -> None:
            self.seen += [(message.body, message.tags) for message in context.messages]

        def send_message_after(self, context: SendMessageContext) -> None:
            assert context.send_result is not None

    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        hook = Hook()
        rows = [{"body": b"%d" % n, "tags": "t"} for n in range(5)]
        async with make(cluster, send_message_hooks=(hook,)) as producer:
            check(cluster, rows, await producer.send_arrow(pa.Table.from_pylist(rows), topic="T"))
        assert hook.seen == [(b"%d" % n, "t") for n in range(5)]

    simulate(story)


def test_a_batch_whose_own_properties_cannot_be_written_is_refused(form: Any) -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        producer = make(cluster, heartbeat_broker_interval=1_000)
        object.__setattr__(producer._config, "namespace", "a\x02")  # none that settings take
        async with producer:
            producer._sender.preparer.legal_topics["T"] = "T"
            rows = pa.table({"body": [b"a", b"b"], "shardingKey": ["k", "k"]})
            for _ in range(3):
                with pytest.raises(MaxQError, match="INSTANCE_ID"):
                    await producer.send_arrow(rows, topic="T")
                await asyncio.sleep(2)  # after a heartbeat the broker is connected

    simulate(story)


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad_at", [0, 4096, 4999])
@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ("body", b"", "column body is null or empty"),
        ("body", None, "column body is null or empty"),
        ("body", bytes(70_000), "has 70000 bytes, more than the 65536 of max_message_size"),
        ("tags", "a\x02b", r"column tags contains '\\x02'"),
        ("tags", "t" * 40_000, "properties of a row have 40006 bytes"),
        ("topic", "", "column topic is null or empty"),
        ("topic", "no/topic", "topic"),
        ("queueId", 7, "queue 7 of topic T, which takes messages in broker-a:0"),
        ("queueId", -1, "queueId is -1"),
        ("delayTimeLevel", -1, "delayTimeLevel is -1"),
        ("keys", ["a", "b c"], "a key in column keys has a blank"),
        ("keys", ["a", None], "a key in column keys is null"),
    ],
)
def test_rows_before_a_bad_one_are_sent_and_the_error_names_it(bad_at: int, column: str, value: Any, text: str) -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T", queues=2)
        plain = {"body": b"x", "tags": "t", "topic": "T", "queueId": 1, "delayTimeLevel": None, "keys": ["k"]}
        names = {"body", "topic", column}
        rows = [{name: plain[name] for name in names} for _ in range(5_000)]
        rows[bad_at] = {**rows[bad_at], column: value}
        kinds = {
            "body": pa.binary(), "tags": pa.string(), "topic": pa.string(), "queueId": pa.int32(),
            "delayTimeLevel": pa.int8(), "keys": pa.list_(pa.string()),
        }  # fmt: skip
        schema = pa.schema({name: kinds[name] for name in names})
        async with make(cluster, max_message_size=65_536) as producer:
            with pytest.raises(ArrowSendError, match=f"row {bad_at} cannot be sent: .*{text}") as raised:
                await producer.send_arrow(pa.Table.from_pylist(rows, schema=schema))
        assert raised.value.is_wrong_value and not raised.value.retriable
        assert raised.value.sent.num_rows == len(stored(cluster)) == bad_at
        assert raised.value.sent.column("queueOffset").null_count == 0

    simulate(story)


NO_UTF8 = pa.array([b"\xff"]).view(pa.string())


@pytest.mark.parametrize(
    ("column", "bad", "text"),
    [
        ("deliverTimestamp", pa.array([(1 << 63) + 5], pa.uint64()), "9223372036854775813 not in range"),
        ("deliverTimestamp", pa.array([1 << 62], pa.timestamp("s")), "out of bounds timestamp"),
        ("queueId", pa.array([(1 << 63) + 5], pa.uint64()), "9223372036854775813 not in range"),
        ("shardingKey", NO_UTF8, "can't decode byte 0xff"),
        ("topic", NO_UTF8, "can't decode byte 0xff"),
    ],
)
def test_rows_before_one_that_arrow_cannot_convert_are_told(column: str, bad: Any, text: str) -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T", queues=2)
        column_of = pa.concat_arrays([pa.nulls(4_500, bad.type), bad, pa.nulls(10, bad.type)])
        table = pa.table({"body": [b"x"] * len(column_of), column: column_of})
        async with make(cluster) as producer:
            with pytest.raises(ArrowSendError, match=f"row 4500 cannot be sent: .*{text}") as raised:
                await producer.send_arrow(table, topic="T")
        assert raised.value.sent.num_rows == len(stored(cluster)) == 4_500
        assert raised.value.sent.column("queueOffset").null_count == 0

    simulate(story)


def test_a_failed_batch_ends_the_call_and_its_rows_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maxq.client.producer.arrow_sends._BATCH_BYTES", 8 << 10)
    monkeypatch.setattr("maxq.client.producer.arrow_sends._MOST_BYTES", 64 << 10)

    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T", queues=2)
        count = 0

        def answer(request: RemotingCommand) -> RemotingCommand:
            nonlocal count
            count += 1
            if count == 3:
                return request.reply(ResponseCode.MESSAGE_ILLEGAL, "not this one")
            return cluster.broker._send(None, request)  # type: ignore[arg-type]

        cluster.broker.scripts[BATCH] = answer
        rows = [{"body": b"%06d" % n + bytes(100)} for n in range(12_000)]
        async with make(cluster) as producer:
            with pytest.raises(ArrowSendError, match=r"rows from row \d+ on failed: CODE: 13") as raised:
                await producer.send_arrow(pa.Table.from_pylist(rows), topic="T")
        sent = raised.value.sent.to_pylist()
        assert len(sent) < 12_000, "no more rows are taken"
        there = stored(cluster)
        assert len(there) == sum(one["queueOffset"] is not None for one in sent)
        for row, one in zip(rows, sent, strict=False):
            if one["queueOffset"] is not None:
                assert there[one["brokerName"], one["queueId"], one["queueOffset"]].body == row["body"]
        errors = {one["error"] for one in sent if one["queueOffset"] is None}
        assert any(error and "not this one" in error for error in errors)
        assert {(one["queueOffset"] is None, one["mayBeStored"]) for one in sent} == {(False, None), (True, False)}
        assert not raised.value.may_be_stored

    simulate(story)


@pytest.mark.parametrize("rows", [1, 10])
def test_rows_of_which_nobody_knows_whether_they_are_stored_are_told(rows: int) -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        cluster.broker.scripts[BATCH] = cluster.broker.scripts[SEND] = lambda request: None  # no answer comes
        async with make(cluster, send_msg_timeout=500) as producer:
            with pytest.raises(ArrowSendError) as raised:
                await producer.send_arrow(pa.table({"body": [b"x"] * rows}), topic="T")
        assert raised.value.may_be_stored
        sent = raised.value.sent.to_pylist()
        assert [(one["queueOffset"], one["mayBeStored"]) for one in sent] == [(None, True)] * rows

    simulate(story)


def test_what_follows_a_failed_batch_in_its_queue_is_not_sent() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T", queues=2)

        def answer(request: RemotingCommand) -> RemotingCommand:
            if request.ext["e"] == "1" and cluster.broker.queues[MessageQueue("T", "broker-a", 1)]:
                return request.reply(ResponseCode.MESSAGE_ILLEGAL, "no more here")
            return cluster.broker._send(None, request)  # type: ignore[arg-type]

        cluster.broker.scripts[BATCH] = answer
        rows = [{"body": b"%06d" % n + bytes(1000), "queueId": n % 2} for n in range(4000)]
        async with make(cluster, max_message_size=256 << 10) as producer:
            with pytest.raises(ArrowSendError, match="no more here") as raised:
                await producer.send_arrow(pa.Table.from_pylist(rows), topic="T")
        for queue, held in cluster.broker.queues.items():
            numbers = [int(one.body[:6]) for one in held]
            assert numbers == [n for n in range(4000) if n % 2 == queue.queue_id][: len(numbers)], "a gap"
        errors = {one["error"] for one in raised.value.sent.to_pylist()}
        assert any(error and "rows of the same queue before it failed" in error for error in errors)

    simulate(story)


def test_a_stream_that_breaks_is_sent_as_far_as_it_came() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"body": [b"1", b"2"]})
        raise OSError("the disk is gone")

    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        reader = pa.RecordBatchReader.from_batches(pa.schema({"body": pa.binary()}), batches())
        async with make(cluster) as producer:
            with (
                mock.patch("maxq.client.producer.arrow_sends.asyncio.to_thread", _here),
                pytest.raises(ArrowSendError, match="from row 2 on could not be read: the disk is gone") as raised,
            ):
                await producer.send_arrow(reader, topic="T")
        assert raised.value.sent.num_rows == len(stored(cluster)) == 2

    simulate(story)


def test_a_cancelled_call_leaves_nothing_behind() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        async with make(cluster, max_message_size=256 << 10) as producer:
            await warm(cluster, producer, "T")
            cluster.broker.is_paused = True
            table = pa.table({"body": [bytes(1000)] * 20_000})
            task = asyncio.create_task(producer.send_arrow(table, topic="T"))
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not [one for one in asyncio.all_tasks() if one.get_name() == "maxq-send-arrow"]

    simulate(story)


# --- wrong use --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "topic", "text"),
    [
        ([{"body": b"x"}], "T", "a table of messages is a pyarrow Table.*not list"),
        (pa.table({"text": ["x"]}), "T", "messages have no column text"),
        (pa.table({"tags": ["x"]}), "T", "there is no column body"),
        (pa.table({"body": [1]}), "T", "column body is int64; it must be binary or string: encode its values, as JSON"),
        (pa.table({"body": ["x"], "queueId": [1.0]}), "T", "column queueId is double; it must be integer: .*astype"),
        (pa.table({"body": ["x"], "tags": [["x"]]}), "T", "column tags is list<.*>; it must be string: cast it"),
        (
            pa.table({"body": ["x"], "properties": [{"n": 1}]}),
            "T",
            "column properties is struct<n: int64>; it must be map",
        ),
        (pa.table({"body": ["x"], "Body": ["x"]}), "T", "columns body and Body mean the same"),
        (pa.table({"body": ["x"], "queueOffset": [1]}), "T", "column queueOffset cannot be sent: .*; leave it out"),
        (pa.table({"body": ["x"]}), None, "neither a column topic nor the option topic"),
        (pa.table({"body": ["x"], "sendAt": [1]}), "T", "column sendAt is for Spark's sink"),
        (pa.table({"body": ["x"], "offset": [1]}), "T", "column offset cannot be sent: the broker"),
        (pa.table({"body": ["x"], "value": ["x"]}), "T", "say the same thing twice"),
        (pa.table({"body": ["x"]}), "no/topic", "no/topic"),
        (pa.table({"body": ["x"]}), "", "topic"),
    ],
)
def test_wrong_tables_are_refused_before_anything_is_sent(data: Any, topic: Any, text: str) -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        async with make(cluster) as producer:
            with pytest.raises(ClientError, match=text) as raised:
                await producer.send_arrow(data, topic=topic)
            assert not isinstance(raised.value, ArrowSendError)
        assert not stored(cluster)

    simulate(story)


def frame_of(values: dict[str, Any]) -> Any:
    return pytest.importorskip("pandas").DataFrame(values)


def _here(call: Any, *arguments: Any) -> Any:
    """What is read in a thread beside the loop is read on it: its time is no real one."""

    async def at_once() -> Any:
        return call(*arguments)

    return at_once()


def test_rows_of_pandas_may_be_chosen_and_have_dicts_and_columns_without_values() -> None:
    """Chosen rows hand over the index as a column, dicts are structs, and columns of None alone have no type."""

    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        dicts = [{"a": "1", "b": "2"}, {"b": ""}, None, {"c": "ж"}]
        frame = frame_of(
            {"body": list("wxyz"), "tags": None, "properties": dicts, "keys": [["k"], None, [], ["1", "2"]]}
        )
        with mock.patch("maxq.client.producer.arrow_sends.asyncio.to_thread", _here):
            async with make(cluster) as producer:
                result = await producer.send_arrow(frame[frame["body"] != "x"], topic="T")
        rows = [
            {"body": body, "properties": properties, "keys": keys}
            for body, properties, keys in [("w", dicts[0], ["k"]), ("y", None, []), ("z", dicts[3], ["1", "2"])]
        ]
        check(cluster, rows, result)

    simulate(story)


def test_bodies_that_are_all_null_are_told_as_a_row_that_is() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        async with make(cluster) as producer:
            with pytest.raises(ArrowSendError, match="row 0 cannot be sent: column body is null or empty"):
                await producer.send_arrow(pa.table({"body": [None]}), topic="T")

    simulate(story)


@pytest.mark.parametrize("bodies", [["x", 1], ["x", b"y", 1.5]])
def test_a_frame_that_arrow_cannot_hold_is_refused_by_the_name_of_its_column(bodies: list[Any]) -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        with mock.patch("maxq.client.producer.arrow_sends.asyncio.to_thread", _here):
            async with make(cluster) as producer:
                with pytest.raises(WrongArgumentError, match=r"DataFrame cannot be read as Arrow: .*column body"):
                    await producer.send_arrow(frame_of({"body": bodies}), topic="T")
        assert not stored(cluster)

    simulate(story)


def test_no_rows_are_no_error() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        async with make(cluster) as producer:
            result = await producer.send_arrow(pa.table({"body": pa.array([], pa.binary())}), topic="T")
        assert result.num_rows == 0 and not stored(cluster)

    simulate(story)


def test_without_pyarrow_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    import maxq.arrow

    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        async with make(cluster) as producer:
            monkeypatch.setattr(maxq, "arrow", maxq.arrow)  # so that other tests find it again
            for name in [name for name in sys.modules if name.startswith("maxq.arrow")]:
                monkeypatch.delitem(sys.modules, name)
            monkeypatch.setitem(sys.modules, "pyarrow", None)
            with pytest.raises(ClientError, match=r"send_arrow needs pyarrow.*pip install 'maxq\[arrow\]'"):
                await producer.send_arrow(None, topic="T")

    simulate(story)


def test_a_producer_that_does_not_run_says_so() -> None:
    async def story(cluster: MockCluster) -> None:
        with pytest.raises(NotRunningError):
            await make(cluster).send_arrow(None, topic="T")

    simulate(story)


def test_wrong_arguments_are_client_errors() -> None:
    assert issubclass(WrongArgumentError, ClientError) and issubclass(ArrowSendError, ClientError)
