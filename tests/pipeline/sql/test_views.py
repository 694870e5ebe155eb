"""Topics, the cluster's tables and store directories as views; what a query reads."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import maxq
from maxq.api import Admin, Message, Producer
from maxq.arrow.schemas import MESSAGE_COLUMNS, METADATA_COLUMNS, spark_schema
from maxq.errors import PipelineError
from maxq.pipeline import register
from maxq.pipeline.sql.views import Views
from maxq.protocol.body.subscription import SubscriptionGroupConfig
from tests.pipeline import query_campaign
from tests.short_form import times

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
        for tag in ("pad ", "pad", "pad "):
            padded = Message("Padded", b"x")
            padded.tags = tag
            producer.send(padded)
    with Admin(standalone.namesrv_address) as admin:
        admin.groups.create(standalone.broker_address, SubscriptionGroupConfig(group_name="readers"))
        admin.offsets.commit("readers", admin.offsets.queues("Orders")[0], 2)
    return standalone


@pytest.fixture(scope="module")
def views(spark: SparkSession, cluster: maxq.Standalone) -> Views:
    return register(spark, namesrv=cluster.namesrv_address)


def readings(frame: DataFrame) -> list[Any]:
    """The scans of sources in a query's optimized plan, its subqueries too."""
    plan = frame._jdf.queryExecution().optimizedPlan()
    subqueries = plan.subqueriesAll()
    plans = [plan, *(subqueries.apply(number) for number in range(subqueries.size()))]
    leaves = [leaf for one in plans for leaf in _sequence(one.collectLeaves())]
    return [leaf.scan() for leaf in leaves if leaf.getClass().getSimpleName() == "DataSourceV2ScanRelation"]


def read_columns(frame: DataFrame) -> list[str]:
    """What the one source of a query makes."""
    (scan,) = readings(frame)
    return list(scan.readSchema().fieldNames())


def predicates(frame: DataFrame) -> list[str]:
    """The option `predicate` of each source."""
    found = []
    for scan in readings(frame):
        (options,) = [field for field in scan.getClass().getDeclaredFields() if field.getName() == "options"]
        options.setAccessible(True)
        found.append(options.get(scan).getOrDefault("predicate", ""))
    return found


def _sequence(scala: Any) -> list[Any]:
    return [scala.apply(number) for number in range(scala.size())]


def test_every_topic_is_a_view_and_system_topics_are_not(spark: SparkSession, views: Views) -> None:
    made = set(views.create())
    topics = {f"{topic}{end}" for topic in ("Orders", "Re-funds", "Padded") for end in ("", "_metadata")}
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


TIME = 1_767_225_600_000_000


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT count(*) FROM T WHERE tags = 'paid' AND 5 <= queueOffset",
         ['["tags","=","paid"],["queueOffset",">=",5]']),
        ("SELECT body FROM T WHERE queueId IN (0, 2)", ['["queueId","in",[0,2]]']),
        ("SELECT body FROM T WHERE tags IN ('a', NULL)", ['["tags","in",["a"]]']),
        ("SELECT body FROM T WHERE tags <=> 'a\\'b\"'", ['["tags","=","a\'b\\""]']),
        ("SELECT body FROM T WHERE array_contains(keys, 'k') AND length(body) > 3", ['["keys","contains","k"]']),
        ("SELECT body FROM T WHERE keys = array('a', 'b')", ['["keys","contains","a"],["keys","contains","b"]']),
        ("SELECT body FROM T WHERE storeTimestamp < '2026-01-01 00:00:00+00:00'", [f'["storeTimestamp","<",{TIME}]']),
        ("SELECT body FROM T WHERE storeTimestamp < timestamp'+12345-01-01'", [""]),
        ("SELECT body FROM T WHERE tags COLLATE UTF8_LCASE = 'paid'", [""]),
        ("SELECT body FROM T WHERE tags = 'paid' OR queueId = 1", [""]),
        ("SELECT body FROM T WHERE tags = uniqKey", [""]),
        ("SELECT body FROM T WHERE queueId = 1 AND rand() < 0.5", ['["queueId","=",1]']),
        ("SELECT msgId FROM T WHERE queueId = 1 UNION ALL SELECT msgId FROM T WHERE queueId = 2",
         ['["queueId","=",1]', '["queueId","=",2]']),
        ("SELECT msgId FROM T WHERE queueId = 1 AND queueOffset > (SELECT min(queueOffset) FROM T WHERE tags = 'a')",
         ['["queueId","=",1]', '["tags","=","a"]']),
        ("SELECT count(*) FROM (SELECT tags FROM T LIMIT 5) WHERE tags = 'paid'", [""]),
    ],
)  # fmt: skip
def test_each_use_of_a_view_is_narrowed_by_its_own_conditions(
    spark: SparkSession, cluster: maxq.Standalone, query: str, expected: list[str]
) -> None:
    reader = spark.read.format("rocketmq").schema(spark_schema(tuple(MESSAGE_COLUMNS)))
    frame = reader.options(subscribe="Orders", **{"rocketmq.namesrv": cluster.namesrv_address}).load()
    frame.createOrReplaceTempView("T")
    try:
        assert predicates(spark.sql(query)) == [f"[{one}]" if one else "" for one in expected]
    finally:
        spark.catalog.dropTempView("T")


def test_blanks_at_the_ends_of_tags_count(views: Views) -> None:
    """Brokers take them off what they select by."""
    assert views.sql("SELECT count(*) FROM Padded WHERE tags = 'pad '").first()[0] == 2
    assert views.sql("SELECT count(*) FROM Padded WHERE tags IN ('pad ', 'pad')").first()[0] == 3


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT count(*) FROM (SELECT body, tags FROM Orders)", [20]),
        ("WITH o AS (SELECT msgId, tags FROM Orders) SELECT count(*) FROM o WHERE tags = 'paid'", [3]),
        ("SELECT count(*) FROM Orders a JOIN Orders b ON a.msgId = b.msgId WHERE a.body IS NOT NULL", [20]),
        ("SELECT count(*) FROM Orders WHERE tags = 'paid' OR 1 = 1", [20]),
        ("SELECT body, tags FROM Orders LIMIT 0", []),
        ("SELECT count(*) FROM (SELECT * FROM Orders_metadata UNION ALL SELECT * FROM `Re-funds_metadata`)", [21]),
    ],
)
def test_queries_whose_columns_are_optimized_away(views: Views, query: str, rows: list[Any]) -> None:
    assert [row[0] for row in views.sql(query).collect()] == rows


def test_what_comes_later_is_seen_by_the_next_query(
    spark: SparkSession, views: Views, cluster: maxq.Standalone
) -> None:
    """Spark keeps what it planned of a Python source for all uses of a view."""
    count = "SELECT count(*) FROM `Late-comers`"
    with Producer("views", cluster.namesrv_address) as producer:
        producer.send(Message("Late-comers", b"1"))
        assert views.sql(count).first()[0] == 1  # a topic that came since is found
        producer.send(Message("Late-comers", b"2"))
    assert spark.sql(count).first()[0] == 2
    assert views.sql("SELECT sum(maxOffset) FROM offsets WHERE topic = 'Late-comers'").first()[0] == 2
    with Producer("views", cluster.namesrv_address) as producer:
        producer.send(Message("Late-comers", b"3"))
    assert spark.sql("SELECT sum(maxOffset) FROM offsets WHERE topic = 'Late-comers'").first()[0] == 3


def test_random_queries_give_what_spark_gives(spark: SparkSession) -> None:
    """Some of `python -m tests.pipeline.query_campaign`."""
    with maxq.Standalone() as server:
        query_campaign.fill(server.namesrv_address)
        sides = query_campaign.two_sides(spark, namesrv=server.namesrv_address)
        assert query_campaign.compare(sides, range(times(20))).different == {}


def test_long_lists_are_conditions_too(spark: SparkSession, views: Views) -> None:
    wanted = ", ".join(str(number) for number in range(0, 40, 2))
    assert views.sql(f"SELECT count(*) FROM Orders WHERE queueOffset IN ({wanted})").first()[0] == sum(
        1 for row in spark.table("Orders").select("queueOffset").collect() if row.queueOffset % 2 == 0
    )


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
