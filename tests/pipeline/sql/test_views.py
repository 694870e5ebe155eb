"""Topics, the cluster's tables and store directories as views; what a query reads."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import EqualTo, Filter, GreaterThanOrEqual, In, LessThan
from pyspark.sql.types import StructType

import maxq
from maxq.api import Admin, Message, Producer
from maxq.errors import PipelineError
from maxq.pipeline import register
from maxq.pipeline.options.predicate import ArrayContains
from maxq.pipeline.records.schemas import MESSAGE_COLUMNS, METADATA_COLUMNS, spark_schema
from maxq.pipeline.sql.plan_columns import EmptyRelation
from maxq.pipeline.sql.plan_conditions import conditions_met
from maxq.pipeline.sql.views import Views
from maxq.protocol.body.subscription import SubscriptionGroupConfig

ORDERS = [b'{"id": %d, "price": %d.5}' % (number, number) for number in range(20)]


@pytest.fixture(scope="module")
def cluster(standalone: maxq.Standalone) -> maxq.Standalone:
    """With 20 orders, 3 of them paid, one refund, and a group that has read two messages."""
    with Producer("views", standalone.namesrv_address) as producer:
        for number, body in enumerate(ORDERS):
            message = Message("Orders", body)
            message.tags = "paid" if number < 3 else "open"
            producer.send(message)
        producer.send(Message("Re-funds", b"no JSON"))
    with Admin(standalone.namesrv_address) as admin:
        admin.groups.create(standalone.broker_address, SubscriptionGroupConfig(group_name="readers"))
        admin.offsets.commit("readers", admin.offsets.queues("Orders")[0], 2)
    return standalone


@pytest.fixture(scope="module")
def views(spark: SparkSession, cluster: maxq.Standalone) -> Views:
    return register(spark, namesrv=cluster.namesrv_address)


def read_columns(frame) -> list[str]:  # type: ignore[no-untyped-def]
    """What the one source of a query makes."""
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    assert leaves.size() == 1
    output = leaves.head().output()
    return [output.apply(index).name() for index in range(output.size())]


def test_every_topic_is_a_view_and_system_topics_are_not(spark: SparkSession, views: Views) -> None:
    made = set(views.create())
    topics = {"Orders", "Orders_metadata", "Re-funds", "Re-funds_metadata"}
    assert made == topics | {"topics", "offsets", "consumer_groups"}
    assert spark.sql("SELECT count(*) FROM Orders WHERE tags = 'paid'").first()[0] == 3
    assert [bytes(row.body) for row in spark.sql("SELECT body FROM `Re-funds`").collect()] == [b"no JSON"]
    assert spark.table("Orders").columns == list(MESSAGE_COLUMNS)
    assert spark.table("Orders_metadata").columns == list(METADATA_COLUMNS)


def test_query_reads_only_the_columns_that_it_uses(views: Views) -> None:
    count = views.sql("SELECT count(*) FROM orders")
    assert read_columns(count) == ["queueOffset"]
    assert count.first()[0] == 20
    grouped = views.sql("SELECT tags, count(*) c FROM Orders WHERE queueOffset >= 0 GROUP BY tags ORDER BY tags")
    assert sorted(read_columns(grouped)) == ["queueOffset", "tags"]
    assert [tuple(row) for row in grouped.collect()] == [("open", 17), ("paid", 3)]
    assert views.sql("SELECT * FROM Orders LIMIT 1").columns == list(MESSAGE_COLUMNS)


def test_conditions_of_several_uses_do_not_narrow_each_other(spark: SparkSession, views: Views) -> None:
    union = "SELECT tags FROM Orders WHERE tags = 'paid' UNION ALL SELECT tags FROM Orders WHERE tags = 'open'"
    assert views.sql(union).count() == spark.sql(union).count() == 20
    everything = views.sql("SELECT * FROM Orders")
    assert everything.where("tags = 'paid'").union(everything.where("tags = 'open'")).count() == 20
    assert everything.count() == 20


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT count(*) FROM T WHERE tags = 'paid' AND 5 <= queueOffset",
         [EqualTo(("tags",), "paid"), GreaterThanOrEqual(("queueOffset",), 5)]),
        ("SELECT body FROM T WHERE queueId IN (0, 2)", [In(("queueId",), (0, 2))]),
        ("SELECT body FROM T WHERE array_contains(keys, 'k') AND length(body) > 3", [ArrayContains(("keys",), "k")]),
        ("SELECT body FROM T WHERE storeTimestamp < '2026-01-01 00:00:00+00:00'",
         [LessThan(("storeTimestamp",), datetime(2026, 1, 1, tzinfo=UTC))]),
        ("SELECT body FROM T WHERE tags = 'paid' OR queueId = 1", []),
        ("SELECT body FROM T WHERE tags = uniqKey", []),
        ("SELECT a.body FROM T a JOIN T b ON a.msgId = b.uniqKey WHERE a.queueId = 1", []),
        ("SELECT body FROM T WHERE queueId = 1 UNION ALL SELECT msgId FROM T WHERE queueId = 1 AND tags = 'x'",
         [EqualTo(("queueId",), 1)]),
        ("SELECT body FROM T WHERE queueId = 1 AND queueOffset > (SELECT min(queueOffset) FROM T)", []),
        ("SELECT count(*) FROM (SELECT tags FROM T LIMIT 5) WHERE tags = 'paid'", []),
    ],
)  # fmt: skip
def test_conditions_that_all_uses_of_a_relation_meet(spark: SparkSession, query: str, expected: list[Filter]) -> None:
    schema = StructType.fromDDL(spark_schema(tuple(MESSAGE_COLUMNS)))
    assert isinstance(schema, StructType)
    relation = EmptyRelation(spark, schema)
    relation.frame.createOrReplaceTempView("T")
    try:
        assert conditions_met(spark.sql(query), relation) == expected
    finally:
        spark.catalog.dropTempView("T")


def test_long_lists_are_conditions_too(spark: SparkSession, views: Views) -> None:
    wanted = ", ".join(str(number) for number in range(0, 40, 2))
    assert views.sql(f"SELECT count(*) FROM Orders WHERE queueOffset IN ({wanted})").first()[0] == sum(
        1 for row in spark.table("Orders").select("queueOffset").collect() if row.queueOffset % 2 == 0
    )


def test_views_are_whole_again_after_a_query(spark: SparkSession, views: Views) -> None:
    views.sql("SELECT count(*) FROM Orders").collect()
    assert spark.table("Orders").columns == list(MESSAGE_COLUMNS)


def test_json_bodies_are_a_column_with_declared_and_with_inferred_schema(views: Views) -> None:
    assert views.declare_json("Orders") == "STRUCT<id: BIGINT, price: DOUBLE>"
    found = views.sql("SELECT json.id, json.price FROM Orders WHERE json.price > 17 ORDER BY json.id")
    assert "physicalOffset" not in read_columns(found)
    assert [tuple(row) for row in found.collect()] == [(17, 17.5), (18, 18.5), (19, 19.5)]
    views.declare_json("Orders", "price INT, id STRING")
    assert views.sql("SELECT sum(json.id) FROM Orders").first()[0] == sum(range(20))
    with pytest.raises(PipelineError, match="none of 1 bodies is a JSON object"):
        views.declare_json("Re-funds")


def test_body_json_function_needs_no_schema(views: Views) -> None:
    assert views.sql("SELECT sum(body_json(body):price::double) FROM Orders").first()[0] == sum(range(20)) + 10


def test_cluster_tells_of_topics_offsets_and_groups(views: Views) -> None:
    assert views.sql("SELECT DISTINCT topic FROM topics WHERE NOT isSystem AND topic LIKE 'O%'").first()[0] == "Orders"
    assert views.sql("SELECT sum(maxOffset) FROM offsets WHERE topic = 'Orders'").first()[0] == 20
    row = views.sql("SELECT consumerGroup, topic, consumerOffset, lag, maxOffset FROM consumer_groups").first()
    assert tuple(row)[:3] == ("readers", "Orders", 2)
    assert row.lag == row.maxOffset - 2


async def test_topics_are_asked_for_beside_a_running_loop(views: Views) -> None:
    """As in every notebook."""
    assert "Orders" in views.topics()


def test_unknown_topic_is_refused_with_near_names(views: Views) -> None:
    with pytest.raises(PipelineError, match="there is no table or topic Ordres: did you mean Orders"):
        views.sql("SELECT 1 FROM Ordres")


def test_store_directory_gives_its_tables_and_topics(spark: SparkSession, cluster: maxq.Standalone) -> None:
    files = Views(spark, store=[str(Path(cluster.store))])
    assert {"Orders", "Re-funds"} <= set(files.topics())
    assert files.sql("SELECT count(*) FROM Orders").first()[0] == 20
    assert files.sql("SELECT count(*) FROM store_messages WHERE topic = 'Re-funds'").first()[0] == 1
    assert files.sql("SELECT sum(maxOffset) FROM store_offsets WHERE topic = 'Orders'").first()[0] == 20
