"""A stream goes on from its checkpoint, whoever died at whichever step of a trigger: each message is there once."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

import maxq
from maxq.api import Admin, Message, MessageQueue, Producer
from maxq.pipeline.options.read_options import ReadOptions
from maxq.pipeline.source.topic_source import RocketMQDataSource, SourcePartition, StreamReader
from maxq.protocol.body.topic_config import TopicConfig
from maxq.testing.server_process import StandaloneProcess
from tests.pipeline.deaths import Deaths, who_died

TOPIC, QUEUES, MORE = "Mortal", 2, 30
STEPS = ("source-latest", "source-planned", "reader-reading", "source-committing", "source-committed")
BROKER_STEPS = ("broker-latest", "broker-planned", "broker-reading", "broker-committing")


def killing(folder: Path) -> type[RocketMQDataSource]:
    """A source that carries out the deaths that are ordered in `folder`."""
    come_by = Deaths(folder).come_by

    class KillingReader(StreamReader):
        """Says where it is."""

        def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
            come_by("latest")
            return super().latestOffset(start, limit)

        def partitions(self, start: Any, end: Any) -> list[SourcePartition]:
            found = super().partitions(start, end)
            come_by("planned")
            return found

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            for batch in super().read(partition):
                yield batch
                come_by("reading")

        def commit(self, end: dict[str, Any]) -> None:
            come_by("committing")
            super().commit(end)
            come_by("committed")

    class KillingSource(RocketMQDataSource):
        """Under a name of its own."""

        @classmethod
        def name(cls) -> str:
            return "rocketmq-mortal"

        def streamReader(self, schema: StructType) -> KillingReader:
            return KillingReader(ReadOptions.parse(self.options, streaming=True))

    return KillingSource


def test_each_message_is_there_once_whoever_died(spark: SparkSession, tmp_path: Path) -> None:
    sent = 0

    def send() -> None:
        nonlocal sent
        with Producer("mortal", server.namesrv_address) as producer:
            for queue_id in range(QUEUES):
                batch = [Message(TOPIC, b"%d" % number) for number in range(sent, sent + MORE)]
                producer.send_batch(batch, queue=MessageQueue(TOPIC, "broker-a", queue_id))
                sent += MORE

    def run() -> None:
        reader = spark.readStream.format("rocketmq-mortal").option("rocketmq.namesrv", server.namesrv_address)
        frame = reader.options(
            subscribe=TOPIC, startingOffsets="earliest", maxOffsetsPerTrigger="40", groupId="mortals",
            columns="queueId,queueOffset,body",
        ).load()  # fmt: skip
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.option("path", str(tmp_path / "out")).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()

    deaths = Deaths(tmp_path / "deaths")
    spark.dataSource.register(killing(deaths.folder))
    with StandaloneProcess(folder=tmp_path / "server") as server:
        with Admin(server.namesrv_address) as admin:
            admin.topics.create(server.broker_address, TopicConfig(TOPIC, QUEUES, QUEUES))
        for steps in (*([step] for step in STEPS), BROKER_STEPS):
            send()
            assert who_died(server, deaths, steps, run) == [*steps]
        send()
        run()
        rows = spark.read.parquet(str(tmp_path / "out")).collect()
        assert sorted(int(row.body) for row in rows) == list(range(sent))
        with Admin(server.namesrv_address) as admin:
            stats = admin.groups.consume_stats("mortals", TOPIC)
        assert {one.consumer_offset for one in stats.offset_table.values()} == {sent // QUEUES}


def test_a_query_whose_first_trigger_died_begins_where_it_began(
    spark: SparkSession, standalone: maxq.Standalone, tmp_path: Path
) -> None:
    with Admin(standalone.namesrv_address) as admin:
        admin.topics.create(standalone.broker_address, TopicConfig("Later", 1, 1))
    with Producer("later", standalone.namesrv_address) as producer:
        for text in ("old", "new"):
            deaths = Deaths(tmp_path / text)
            spark.dataSource.register(killing(deaths.folder))
            batch = [Message("Later", b"%s %d" % (text.encode(), number)) for number in range(MORE)]
            producer.send_batch(batch, queue=MessageQueue("Later", "broker-a", 0))
            reader = spark.readStream.format("rocketmq-mortal").option("rocketmq.namesrv", standalone.namesrv_address)
            frame = reader.options(subscribe="Later", columns="body").load()  # startingOffsets is latest
            writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
            deaths.order(["source-planned"] if text == "old" else [])
            query = writer.option("path", str(tmp_path / "out")).trigger(availableNow=True).start()
            with contextlib.suppress(PySparkException) if text == "old" else contextlib.nullcontext():
                query.awaitTermination()
            query.stop()
            assert not deaths.withdraw(["source-planned"])
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(bytes(row.body) for row in rows) == sorted(b"new %d" % number for number in range(MORE))
