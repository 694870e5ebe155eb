"""Topics as tables: SQL over a topic, and the same as a DataFrame."""

from pyspark.sql import SparkSession

from examples.clients import name_server
from maxq.api import Message, Producer
from maxq.pipeline import register
from maxq.pipeline.session import local_session

TOPIC = "ExampleSales"


def main(spark: SparkSession | None = None) -> None:
    with Producer("example-sales", name_server()) as producer:
        producer.send_many(Message(TOPIC, b"%d" % n, {"TAGS": ("tea", "bread", "jam")[n % 3]}) for n in range(300))

    session = spark or local_session()
    views = register(session, namesrv=name_server())
    query = f"SELECT tags, count(*) AS sales, sum(int(string(body))) AS amount FROM {TOPIC} GROUP BY tags ORDER BY tags"
    views.sql(query).show()

    frame = session.read.format("rocketmq").option("rocketmq.namesrv", name_server()).option("subscribe", TOPIC).load()
    print(frame.filter("tags = 'jam'").count(), "sales of jam")


if __name__ == "__main__":
    main()
