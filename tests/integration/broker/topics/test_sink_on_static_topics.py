"""The pipeline's sink on static topics: rows are where readers of the global queues look for them, once each, also when
the queues move while a write is under way."""

import asyncio
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest

from maxq.api import async_admin
from maxq.errors import DataLossError
from maxq.pipeline.options.read_options import ReadOptions
from maxq.pipeline.options.write_options import WriteOptions
from maxq.pipeline.sink.sink_commit import BatchName, WriteRun, commit
from maxq.pipeline.sink.sink_task import SinkTask, TaskResult
from maxq.pipeline.source.batch_source import Conditions, plan_batch
from maxq.pipeline.source.stream_source import TopicStream
from maxq.pipeline.wire.wire_client import WireClient
from maxq.pipeline.wire.wire_reader import WireReader
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import RunningBroker, until

QUICK = {"messageDelayLevel": "1s 2s 3s", "timerPrecisionMs": "100", "mappedFileSizeCommitLog": str(8 << 20)}
QUEUES, COUNT = 6, 600


@pytest.fixture
async def brokers(start_broker: Start, namesrv: str) -> dict[str, RunningBroker]:
    return {
        name: await start_broker(name, brokerName=name, namesrvAddr=namesrv, **QUICK)
        for name in ("broker-a", "broker-b")
    }


def options_of(namesrv: str, delivery: str = "exactly-once") -> WriteOptions:
    given = {"rocketmq.namesrv": namesrv, "topic": "Static", "delivery": delivery, "batchBytes": "4k"}
    return WriteOptions.parse(given | {"rocketmq.brokerWait": "10s"})


def rows(text: str, *, delayed: bool = False) -> list[pa.RecordBatch]:
    numbers = pa.array([number % QUEUES for number in range(COUNT)], pa.int32())
    columns = {"body": pa.array([f"{text}-{number}".encode() for number in range(COUNT)]), "queueId": numbers}
    if delayed:
        columns["delayTimeLevel"] = pa.array([1] * COUNT, pa.int32())
    return [pa.record_batch(columns)]


def write(options: WriteOptions, batches: list[pa.RecordBatch]) -> TaskResult:
    names = batches[0].schema.names
    return SinkTask(options, dict(zip(names, names, strict=True))).run(batches)


def seen(namesrv: str) -> Counter[tuple[str, int]]:
    """How often each body is in each global queue."""
    given = {"rocketmq.namesrv": namesrv, "subscribe": "Static", "columns": "body,queueId"}
    options = ReadOptions.parse(given, streaming=False)
    found: Counter[tuple[str, int]] = Counter()
    for partition in plan_batch(options, Conditions()):
        for batch in WireReader(options).read(partition.ranges):
            found.update((row["body"].decode(), row["queueId"]) for row in batch.to_pylist())
    return found


def expected(*texts: str) -> Counter[tuple[str, int]]:
    return Counter((f"{text}-{number}", number % QUEUES) for text in texts for number in range(COUNT))


@pytest.mark.parametrize("delayed", [False, True], ids=["plain", "delayed"])
@pytest.mark.parametrize("moved", ["stay", "move", "move away and back"])
async def test_staged_rows_are_in_their_global_queues(
    brokers: dict[str, RunningBroker], namesrv: str, moved: str, delayed: bool
) -> None:
    options = options_of(namesrv)
    async with async_admin(namesrv) as admin:
        await admin.static_topics.create("Static", QUEUES, ["broker-a", "broker-b"])
        result = await asyncio.to_thread(write, options, rows("staged", delayed=delayed))
        if moved != "stay":
            await admin.static_topics.remap("Static", ["broker-b"])
        if moved == "move away and back":
            await admin.static_topics.remap("Static", ["broker-a"])
        await asyncio.to_thread(commit, options, BatchName("job", 0), [result], WriteRun(0))

        async def all_there() -> bool:
            return (await asyncio.to_thread(seen, namesrv)).total() >= COUNT

        await until(all_there)
        assert await asyncio.to_thread(seen, namesrv) == expected("staged")


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
async def test_a_write_goes_on_when_the_queues_move_under_it(
    brokers: dict[str, RunningBroker], namesrv: str, delivery: str
) -> None:
    options = options_of(namesrv, delivery)
    async with async_admin(namesrv) as admin:
        await admin.static_topics.create("Static", QUEUES, ["broker-a"])
        loop = asyncio.get_running_loop()

        def batches() -> Iterator[pa.RecordBatch]:
            """The queues move when the sender knows the old route and has sent to it."""
            yield from rows("before")
            asyncio.run_coroutine_threadsafe(admin.static_topics.remap("Static", ["broker-b"]), loop).result(30)
            yield from rows("after")

        names = {"body": "body", "queueId": "queueId"}
        result = await asyncio.to_thread(SinkTask(options, names).run, batches())
        if delivery == "exactly-once":
            await asyncio.to_thread(commit, options, BatchName("job", 0), [result], WriteRun(0))

        async def all_there() -> bool:
            return (await asyncio.to_thread(seen, namesrv)).total() >= 2 * COUNT

        await until(all_there)
        assert await asyncio.to_thread(seen, namesrv) == expected("before", "after")


@pytest.mark.parametrize("moved", [False, True], ids=["stay", "move"])
async def test_a_stream_knows_a_static_topic_that_was_made_again(
    brokers: dict[str, RunningBroker], namesrv: str, moved: bool
) -> None:
    """With more messages than before: those up to the old offsets were left out, and nobody said so."""
    given = {"rocketmq.namesrv": namesrv, "subscribe": "Static", "startingOffsets": "earliest"}
    write_options = options_of(namesrv, "at-least-once")
    both = [ReadOptions.parse(given | {"failOnDataLoss": text}, streaming=True) for text in ("true", "false")]
    strict, lenient = (TopicStream(one, WireClient(one.connection, route_age_ms=0)) for one in both)
    async with async_admin(namesrv) as admin:
        await admin.static_topics.create("Static", QUEUES, ["broker-a"])
        await asyncio.to_thread(write, write_options, rows("old"))
        start = await asyncio.to_thread(strict.initial_offset)
        end = await asyncio.to_thread(strict.latest_offset, start, limited=False)
        if moved:  # that is no loss
            await admin.static_topics.remap("Static", ["broker-b"])
            await asyncio.to_thread(write, write_options, rows("moved"))
            end = await asyncio.to_thread(strict.latest_offset, end, limited=False)
        await admin.topics.delete("Static", "DefaultCluster")
        await admin.static_topics.create("Static", QUEUES, ["broker-a"])
        for text in ("again", "and again"):
            await asyncio.to_thread(write, write_options, rows(text))
        with pytest.raises(DataLossError, match="the topic was deleted and made again"):
            await asyncio.to_thread(strict.latest_offset, end, limited=False)
        after = await asyncio.to_thread(lenient.latest_offset, end, limited=False)
        parts = await asyncio.to_thread(lenient.partitions, end, after)
        assert sum(one.last - one.first for part in parts for one in part.ranges) == 2 * COUNT
        assert await asyncio.to_thread(strict.latest_offset, after, limited=False) == after
    for stream in (strict, lenient):
        stream.stop()
