"""What the commands on Spark print with --json is what `maxq schema` says of them."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import maxq
from maxq.api import Message, Producer
from maxq.cli.app import run
from maxq.testing.server_process import StandaloneProcess
from tests.json_output import check_output
from tests.short_form import long_form

TOPIC, LETTERS = "JsonOutput", "%DLQ%G_json"
OFFLINE = ("pipeline archive compact", "pipeline archive table", "pipeline audit", "pipeline rebuild")


@pytest.fixture(scope="module")
def namesrv(standalone: maxq.Standalone) -> str:
    send(standalone.namesrv_address, TOPIC)
    send(standalone.namesrv_address, LETTERS)
    return standalone.namesrv_address


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Path]:
    """A folder with `store`, which no server uses, and `lake`, where the tables of the database json_lake are."""
    folder = tmp_path_factory.mktemp("json")
    with StandaloneProcess(folder=folder / "ended") as server:
        send(server.namesrv_address, TOPIC)
        server.stop()
        shutil.move(server.store, folder / "store")
    spark.sql(f"CREATE DATABASE json_lake LOCATION '{folder / 'lake'}'")
    yield folder
    spark.sql("DROP DATABASE json_lake CASCADE")


def send(namesrv: str, topic: str) -> None:
    with Producer("PG_json", namesrv) as producer:
        for number in range(4):
            producer.send(Message(topic, b"body %d" % number, {"KEYS": f"k{number}", "TAGS": "t"}))


# In this order: some need what those before them have made.
@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("sql", f"'SELECT tags, queueId, body, properties FROM {TOPIC}'"),
        *long_form([("sql", f"'SELECT 1 FROM {TOPIC} WHERE false'")]),
        ("pipeline archive run", f"{{folder}}/archive --topic {TOPIC}"),
        ("pipeline archive table", "{folder}/archive json_lake.archived"),
        ("pipeline archive verify", "{folder}/archive"),
        *long_form([("pipeline archive compact", "{folder}/archive")]),
        ("pipeline audit", "{folder}/store"),
        ("pipeline rebuild", "{folder}/store --output {folder}/built"),
        *long_form([("pipeline replay", f"{{folder}}/archive --to {TOPIC}Again --dry-run")]),
        ("pipeline replay", f"--store {{folder}}/store --to {TOPIC}Again"),
        ("pipeline dlq show", "G_json"),
        *long_form([("pipeline dlq show", "--summary")]),
        ("pipeline dlq export", "{folder}/letters -g G_json"),
        *long_form([("pipeline dlq redrive", "G_json --record {folder}/record --dry-run")]),
        ("pipeline dlq redrive", "G_json --record {folder}/record"),
    ],
)
def test_a_real_output_is_as_its_schema_says(
    command: str, arguments: str, namesrv: str, folder: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [arguments.strip("'")] if command == "sql" else arguments.format(folder=folder).split()
    value = output(command, given, namesrv, capsys)
    if arguments.endswith("false'"):
        assert value == []


def test_so_is_what_was_delivered(namesrv: str, spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"rocketmq.namesrv": namesrv, "topic": TOPIC, "delivery": "exactly-once", "applicationId": "json-app"}
    frame = spark.createDataFrame([(b"once",)], "body binary")
    frame.write.format("rocketmq").options(**options).mode("append").save()
    assert output("pipeline deliver", ["json-app"], namesrv, capsys)["application"] == "json-app"


def output(command: str, arguments: list[str], namesrv: str, capsys: pytest.CaptureFixture[str]) -> Any:
    capsys.readouterr()
    servers = [] if command in OFFLINE else ["-n", namesrv]
    code = run([*command.split(), *arguments, "--json", *servers])
    said = capsys.readouterr()
    assert code == 0, said.err
    value = json.loads(said.out)
    check_output(command, value)
    return value
