"""`format("rocketmq-store")`: a store directory as tables, while its broker writes and after it has gone."""

import json
import shutil
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

import maxq
from maxq.api import Message, Producer
from maxq.pipeline.store.store_tables import TABLES
from tests.short_form import long_form
from tests.unit.store_tools.golden_stores import STORES, expected


@pytest.fixture(scope="module")
def sent(standalone: maxq.Standalone) -> Path:
    """The store of a running broker with 500 messages of two topics."""
    with Producer("g", standalone.namesrv_address) as producer:
        for number in range(500):
            properties = {"TAGS": f"tag{number % 3}", "KEYS": f"key{number} all"}
            producer.send(Message(f"Topic{number % 2}", b"body %d" % number, properties))
    return Path(standalone.store)


def test_messages_of_a_broker_that_runs(spark: SparkSession, sent: Path) -> None:
    frame = spark.read.format("rocketmq-store").option("brokerName", "broker-a").load(str(sent))
    rows = frame.filter("topic like 'Topic%'").collect()
    assert sorted(bytes(row.body).decode() for row in rows) == sorted(f"body {number}" for number in range(500))
    row = next(row for row in rows if bytes(row.body) == b"body 7")
    assert (row.topic, row.tags, row["keys"], row.brokerName) == ("Topic1", "tag1", ["key7", "all"], "broker-a")
    assert row.properties["UNIQ_KEY"] == row.uniqKey


@pytest.mark.parametrize("table", ["messages", *long_form(TABLES)])
def test_a_store_to_which_nothing_was_sent_is_read_as_empty(spark: SparkSession, tmp_path: Path, table: str) -> None:
    """Spark has a task even where there is nothing to read. The checkpoint is one row, whatever the store has."""
    with maxq.Standalone(store=tmp_path / "store"):
        rows = spark.read.format("rocketmq-store").option("table", table).load(str(tmp_path / "store")).collect()
    assert len(rows) == (table == "checkpoint")


def test_filters_reach_the_reader_and_agree_with_spark(spark: SparkSession, sent: Path) -> None:
    frame = spark.read.format("rocketmq-store").option("columns", "topic,queueId,queueOffset,storeTimestamp")
    where = "topic = 'Topic0' and queueId in (0, 1) and queueOffset >= 3 and storeTimestamp > timestamp'2020-01-01'"
    found = frame.load(str(sent)).filter(where)
    everything = frame.load(str(sent)).collect()
    chosen = [r for r in everything if r.topic == "Topic0" and r.queueId in (0, 1) and r.queueOffset >= 3]
    assert sorted(found.collect()) == sorted(chosen)
    assert chosen


def test_uses_of_one_frame_do_not_see_the_filters_of_each_other(spark: SparkSession, sent: Path) -> None:
    frame = spark.read.format("rocketmq-store").option("columns", "topic,queueId").load(str(sent))
    everything = frame.count()
    one, other = frame.where("topic = 'Topic0'"), frame.where("topic = 'Topic1'")
    assert one.union(other).count() == one.count() + other.count() == 500
    assert frame.count() == everything


def test_rows_outside_of_the_option_predicate_are_not_read(spark: SparkSession, sent: Path) -> None:
    def load(**options: str) -> DataFrame:
        return spark.read.format("rocketmq-store").options(**options).load(str(sent))

    everything = load(columns="topic,queueOffset")
    narrow = load(columns="topic,queueOffset", predicate='[["topic", "in", ["Topic0"]], ["queueOffset", "<", 3]]')
    wanted = everything.where("topic = 'Topic0' and queueOffset < 3").collect()
    assert wanted and sorted(narrow.collect()) == sorted(wanted)
    with pytest.raises(Exception, match="option predicate is for the table messages, not for offsets"):
        load(table="offsets", predicate="[]").count()


def test_other_tables(spark: SparkSession, sent: Path) -> None:
    reader = spark.read.format("rocketmq-store")
    offsets = reader.option("table", "offsets").load(str(sent)).filter("topic = 'Topic0'")
    assert sum(row.maxOffset - row.minOffset for row in offsets.collect()) == 250
    assert reader.option("table", "corruption").load(str(sent)).count() == 0
    assert reader.option("table", "timer").load(str(sent)).count() == 0


def test_damage_is_an_error_or_rows_of_a_table(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(STORES / "crashed-flip", store)
    reader = spark.read.format("rocketmq-store").option("columns", "physicalOffset")
    with pytest.raises(Exception, match="failOnDataLoss"):
        reader.load(str(store)).count()
    reader = reader.option("failOnDataLoss", "false")
    found = {row.physicalOffset for row in reader.load(str(store)).collect()}
    assert found >= {record["physicalOffset"] for record in expected("crashed-flip")["records"]}
    (row,) = reader.option("table", "corruption").load(str(store)).filter("reason not like 'torn%'").collect()
    assert row.file.endswith(row.file[-20:]) and row.position < row.end


def test_several_stores_are_one_table(spark: SparkSession, sent: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(sent, copy)
    frame = spark.read.format("rocketmq-store").option("paths", json.dumps([str(sent), str(copy)])).load()
    counts = {row.brokerName: row["count"] for row in frame.groupBy("brokerName").count().collect()}
    assert counts[sent.name] == counts["copy"]


@pytest.mark.parametrize(
    ("options", "named"),
    [({}, "path is missing"), ({"path": "/nowhere"}, "holds no store"), ({"path": "/tmp", "tabel": "x"}, "tabel")],
)
def test_wrong_options_are_named(spark: SparkSession, options: dict[str, str], named: str) -> None:
    with pytest.raises(AnalysisException, match=named):
        spark.read.format("rocketmq-store").options(**options).load().collect()
