"""A stream from one topic into another, exactly once: if it is killed, the next start finishes the batch."""

import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from examples.clients import name_server
from maxq.api import Message, Producer
from maxq.pipeline.session import local_session

SOURCE, TARGET = "ExampleClicks", "ExampleLongClicks"


def main(spark: SparkSession | None = None) -> None:
    with Producer("example-browsers", name_server()) as producer:
        producer.send_many(Message(SOURCE, b"%d" % (n % 100)) for n in range(1000))

    session = spark or local_session()
    address = name_server()
    clicks = (
        session.readStream.format("rocketmq")
        .option("rocketmq.namesrv", address)
        .option("subscribe", SOURCE)
        .option("startingOffsets", "earliest")
        .load()
    )
    with tempfile.TemporaryDirectory() as folder:  # in earnest: a place that outlives the program
        query = (
            clicks.selectExpr("body", "uniqKey AS keys")
            .where("CAST(CAST(body AS STRING) AS INT) >= 90")
            .writeStream.format("rocketmq")
            .option("rocketmq.namesrv", address)
            .option("topic", TARGET)
            .option("delivery", "exactly-once")
            .option("checkpointLocation", str(Path(folder) / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    written = session.read.format("rocketmq").option("rocketmq.namesrv", address).option("subscribe", TARGET).load()
    print(written.count(), "long clicks written")


if __name__ == "__main__":
    main()
