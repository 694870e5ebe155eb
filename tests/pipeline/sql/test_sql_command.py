"""`maxq sql`: what it prints and writes, and how it refuses."""

import csv
import io
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import maxq
from maxq.api import Message, Producer
from maxq.cli.app import run

pytestmark = pytest.mark.usefixtures("spark")  # the command takes the session that is there

QUERY = "SELECT tags, count(*) AS n FROM Lines GROUP BY tags ORDER BY tags"


@pytest.fixture(scope="module")
def lines(standalone: maxq.Standalone) -> maxq.Standalone:
    with Producer("sql", standalone.namesrv_address) as producer:
        for number in range(10):
            message = Message("Lines", b"\xff\x00" if number == 9 else f"line {number}, ä".encode())
            message.tags = "odd" if number % 2 else "even"
            message.keys = f"k{number}"
            producer.send(message)
    return standalone


def sql(server: maxq.Standalone, *arguments: str) -> int:
    return run(["sql", "-n", server.namesrv_address, "--master", "local[2]", *arguments])


def test_result_is_printed_as_a_table(lines: maxq.Standalone, capsys: pytest.CaptureFixture[str]) -> None:
    assert sql(lines, QUERY) == 0
    assert capsys.readouterr().out == "tags  n\neven  5\nodd   5\n"
    assert sql(lines, "SELECT keys FROM Lines ORDER BY keys", "--rows", "1") == 0
    assert capsys.readouterr().out.splitlines() == ["keys", '["k0"]', "only the first 1 rows: see --rows"]


def test_json_has_every_type_of_column(lines: maxq.Standalone, capsys: pytest.CaptureFixture[str]) -> None:
    columns = "body, keys, properties, queueId, storeTimestamp, struct(tags, queueId) AS s, NULL AS nothing"
    assert sql(lines, f"SELECT {columns} FROM Lines WHERE keys[0] IN ('k1', 'k9') ORDER BY keys", "--json") == 0
    first, second = json.loads(capsys.readouterr().out)
    assert first["body"] == "line 1, ä"
    assert second["body"] == {"base64": "/wA="}
    assert first["keys"] == ["k1"]
    assert first["properties"]["KEYS"] == "k1"
    assert first["s"] == {"tags": "odd", "queueId": first["queueId"]}
    assert first["nothing"] is None
    assert first["storeTimestamp"].startswith("20")
    assert sql(lines, "SELECT 1 FROM Lines WHERE false", "--json") == 0
    assert json.loads(capsys.readouterr().out) == []


def test_what_json_has_no_word_for_is_said_or_refused(
    lines: maxq.Standalone, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = "double('NaN') AS a, double('-Infinity') AS b, array(float('Infinity')) AS c"
    assert sql(lines, f"SELECT {numbers}", "--json") == 0

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    (row,) = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert row == {"a": "NaN", "b": "-Infinity", "c": ["Infinity"]}
    twice = "SELECT l.queueId, r.queueId FROM Lines l JOIN Lines r ON l.queueOffset = r.queueOffset"
    assert sql(lines, twice, "--json") == 2
    said = capsys.readouterr()
    assert said.out == "" and "2 columns are named queueId" in said.err


def test_csv_and_parquet_have_all_rows(
    lines: maxq.Standalone, spark: SparkSession, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert sql(lines, "SELECT keys[0] AS k, body FROM Lines ORDER BY 1", "--csv") == 0
    found = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert found[0] == ["k", "body"]
    assert found[1] == ["k0", "line 0, ä"]
    assert found[-1] == ["k9", "base64:/wA="]
    target = tmp_path / "out"
    assert sql(lines, "SELECT queueId, body FROM Lines", "--parquet", str(target)) == 0
    assert spark.read.parquet(str(target)).count() == 10
    assert sql(lines, QUERY, "--parquet", str(target)) == 2
    assert "is there already" in capsys.readouterr().err


def test_store_is_asked_without_a_name_server(lines: maxq.Standalone, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sql", "--store", str(lines.store), QUERY, "--csv"]) == 0
    assert capsys.readouterr().out.split() == ["tags,n", "even,5", "odd,5"]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT 1 FROM Line", "there is no table or topic Line: did you mean Lines?"),
        ("SELECT nothing FROM Lines", "`nothing` cannot be resolved"),
        ("SELECT (1", "[PARSE_SYNTAX_ERROR]"),
        ("SELECT raise_error('no') FROM Lines", "no"),
    ],
)
def test_refusal_is_one_line(lines: maxq.Standalone, query: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert sql(lines, query) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1
    assert said in printed.err and "== SQL" not in printed.err


def test_name_server_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sql", "-n", "127.0.0.1:1", "SELECT 1 FROM Lines"]) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err


def test_unknown_schema_of_a_body_is_refused(lines: maxq.Standalone, capsys: pytest.CaptureFixture[str]) -> None:
    assert sql(lines, "SELECT json FROM Lines", "--body-json", "Lines") == 1
    assert "is a JSON object: declare the schema" in capsys.readouterr().err
    assert sql(lines, "SELECT json FROM Lines", "--body-json", "Lines=no schema at all") == 2
    assert "'no schema at all' is no schema of JSON bodies: give fields" in capsys.readouterr().err
    assert sql(lines, "SELECT json FROM Lines", "--body-json", "Nowhere=id INT") == 1
    assert "there is no topic Nowhere" in capsys.readouterr().err


def test_empty_query_is_refused(lines: maxq.Standalone, capsys: pytest.CaptureFixture[str]) -> None:
    assert sql(lines, " ; ") == 2
    assert "the query is empty" in capsys.readouterr().err
