"""The examples of the how-to pages on Spark, and of the tutorial, do what they say: their Python, in its order, over
topics that are there.

The tables of latencies take Spark half a minute: jobs/test_trace.py has them.
"""

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import maxq
from maxq.api import Message, Producer

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / "howto" / name for name in ("spark.md", "spark-archive.md", "spark-reports.md")]
BLOCKS = [block for page in PAGES for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)]

_ORDERS = 20
#: What stands before a block in the head of its reader, by a word of the block.
BEFORE = {
    "offsets_behind(": """
query = (spark.readStream.format("rocketmq").option("rocketmq.namesrv", NAMESRV).option("subscribe", "orders")
         .option("startingOffsets", "earliest").load().writeStream.format("noop").start())
query.processAllAvailable()
""",
    "frame.write.format": """
frame = spark.createDataFrame([("one",), ("two",)], "body STRING")
stream = (spark.readStream.format("rocketmq").option("rocketmq.namesrv", NAMESRV).option("subscribe", "Orders")
          .load().select("body"))
""",
    "def write(": """
options = {"rocketmq.namesrv": NAMESRV, "topic": "orders"}
""",
    "Orders by hour": """
from pathlib import Path
rows, hours, counts = [("10", 5)], [10, 11], [5, 6]
""",
}
#: What is tried with it afterwards.
BEHIND = {
    "views.sql(": """
assert views.sql("SELECT tags, count(*) FROM Orders GROUP BY tags").count() == 2
""",
    "offsets_behind(": """
assert offsets_behind(query.lastProgress)[0]["maxOffsetsBehindLatest"] == 0
query.stop()
""",
    "def write(": """
write(frame, 0)
write(frame, 0)
assert stored("orders") == ORDERS + 2 + 2, "the block before wrote two, this one two, and the same again nothing"
""",
    "write_counts(": """
import json
found = spark.read.format("rocketmq").option("rocketmq.namesrv", NAMESRV).option("subscribe", "OrdersPerMinute").load()
results = [json.loads(row.body) for row in found.collect()]
assert sum(result["messages"] for result in results) == ORDERS
assert {result["tags"] for result in results} == {"paid", "open"}
""",
    "read_archive(": """
assert read_archive(spark, "/archive").count() == ORDERS
""",
    "Orders by hour": """
assert "Orders by hour" in Path("orders.html").read_text()
""",
}


@pytest.fixture
def scope(
    spark: SparkSession, standalone: maxq.Standalone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, Any]]:
    """The names that the blocks share, and topics with orders."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("maxq.pipeline.session.local_session", lambda: spark)
    with Producer("manual", standalone.namesrv_address) as producer:
        for topic in ("Orders", "orders"):
            bodies = (json.dumps({"id": number}).encode() for number in range(_ORDERS))
            producer.send_many(
                Message(topic, body, {"TAGS": ("paid", "open")[number % 2]}) for number, body in enumerate(bodies)
            )

    def stored(topic: str) -> int:
        frame = spark.read.format("rocketmq").option("rocketmq.namesrv", standalone.namesrv_address)
        return frame.option("subscribe", topic).load().count()

    yield {"spark": spark, "NAMESRV": standalone.namesrv_address, "ORDERS": _ORDERS, "stored": stored}
    for query in spark.streams.active:
        with contextlib.suppress(Exception):
            query.stop()


def test_all_python_of_the_pages_runs(scope: dict[str, Any], standalone: maxq.Standalone, tmp_path: Path) -> None:
    places = {
        "127.0.0.1:9876": standalone.namesrv_address,
        "/var/lib/rocketmq/store": str(standalone.store),
        '"/archive"': f'"{tmp_path / "archive"}"',
        "/checkpoints/orders": str(tmp_path / "checkpoint"),
        "frame.writeStream": "stream.writeStream",
    }
    assert len(BLOCKS) == 11
    for number, block in enumerate(BLOCKS):
        if "latency_table" in block:
            continue
        before = "".join(text for word, text in BEFORE.items() if word in block)
        behind = "".join(text for word, text in BEHIND.items() if word in block)
        code = before + block + behind
        for shown, real in places.items():
            code = code.replace(shown, real)
        exec(compile(code, f"how to use Spark, block {number + 1}", "exec"), scope)


def test_the_tutorial_prints_what_it_shows(
    scope: dict[str, Any], standalone: maxq.Standalone, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (DOCS / "tutorials/spark.md").read_text()
    steps = re.findall(r"```python\n(.*?)```\n\nIt prints:\n\n((?: {4}[^\n]*\n)+)", text, re.DOTALL)
    assert len(steps) == 4
    for code, shown in steps:
        exec(compile(code.replace("127.0.0.1:9876", standalone.namesrv_address), "spark.md", "exec"), scope)
        assert capsys.readouterr().out.split() == shown.split()
