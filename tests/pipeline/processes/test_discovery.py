"""Where Spark discovers data source packages by itself, no call is needed."""

import json
import os
import subprocess
import sys

import maxq
from maxq.api import Message, Producer
from maxq.pipeline.spark.java import find_java, make_java_home
from tests.pipeline.spark_cluster import INTERPRETED, QUICK_START

SETTINGS = json.dumps({"spark.ui.enabled": "false", **INTERPRETED})
SCRIPT = """
import json, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config(map=json.loads(sys.argv.pop())).getOrCreate()
namesrv, store = sys.argv[1:]
topic = spark.read.format("rocketmq").option("rocketmq.namesrv", namesrv).option("subscribe", "Found").load()
files = spark.read.format("rocketmq-store").load(store)
cluster = spark.read.format("rocketmq-cluster").option("rocketmq.namesrv", namesrv).option("table", "offsets").load()
print(topic.where("tags = 'a'").count(), files.where("topic = 'Found'").count(),
      cluster.where("topic = 'Found'").groupBy().sum("maxOffset").first()[0])
"""

REGISTERED = """
import json, sys, threading
from pyspark.sql import SparkSession
from maxq.pipeline import register
spark = SparkSession.builder.master("local[1]").config(map=json.loads(sys.argv.pop())).getOrCreate()
register(spark)
options = {"rocketmq.namesrv": sys.argv[1]}
def write():
    rows = spark.range(3).selectExpr("cast(id AS STRING) AS value")
    rows.write.format("rocketmq").options(**options, topic="Thread").mode("append").save()
thread = threading.Thread(target=write)
thread.start()
thread.join()
print(spark.read.format("rocketmq").options(**options, subscribe="Thread").load().count())
"""


def test_formats_are_found_in_a_plain_session(standalone: maxq.Standalone) -> None:
    with Producer("found", standalone.namesrv_address) as producer:
        for tags in ("a", "a", "b"):
            message = Message("Found", b"x")
            message.tags = tags
            producer.send(message)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, standalone.namesrv_address, str(standalone.store), SETTINGS],
        env={
            **os.environ,
            "JAVA_HOME": str(make_java_home(find_java())),
            "PYSPARK_PYTHON": sys.executable,  # as an activated environment gives it
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": QUICK_START,
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[:3000]
    assert done.stdout.split() == ["2", "3", "3"]


def test_a_registered_session_runs_this_python_and_writes_from_any_thread(standalone: maxq.Standalone) -> None:
    """An interpreter whose environment is not activated, and no PYSPARK_PYTHON: Spark takes `python3` on PATH."""
    known = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    java = {
        "JAVA_HOME": str(make_java_home(find_java())), "SPARK_LOCAL_IP": "127.0.0.1", "PATH": "/usr/bin:/bin",
        "SPARK_SUBMIT_OPTS": QUICK_START,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", REGISTERED, standalone.namesrv_address, SETTINGS],
        env=known | java,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.split() == ["3"], done.stderr[:3000]
