"""`maxq sql`: SQL over topics, what the cluster says of itself, and store directories."""

import base64
import csv
import datetime
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from maxq.cli.connection import connected, usual_name_servers
from maxq.cli.help_pages import OUTPUT, CommandApp
from maxq.cli.pipeline.common import Options, format_options, need_stores
from maxq.cli.pipeline.spark_run import DRIVER_MEMORY, DriverMemory, Master, need_spark, spark_run
from maxq.cli.terminal.report import Report, Style, show
from maxq.errors import ConfigError

app = CommandApp()

_ROWS = 1000

Query = Annotated[str, typer.Argument(help="What to ask; - reads it from standard input.")]
Stores = Annotated[
    list[str] | None,
    typer.Option("--store", metavar="DIR", help="A broker's store directory, broker up or down; may be repeated."),
]
BodyJson = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TOPIC[=SCHEMA]",
        help="Give a topic's view a column json made of the body; without 'id BIGINT, …' the schema is inferred.",
    ),
]
AsCsv = Annotated[bool, typer.Option("--csv", rich_help_panel=OUTPUT, help="Print CSV.")]
AsJson = Annotated[bool, typer.Option("--json", rich_help_panel=OUTPUT, help="Print a JSON array.")]
Parquet = Annotated[
    Path | None,
    typer.Option(metavar="DIR", rich_help_panel=OUTPUT, help="Write Parquet files into a new folder instead."),
]
Rows = Annotated[
    int,
    typer.Option(min=1, rich_help_panel=OUTPUT, help="At most this many rows of a table; --csv and --json print all."),
]


#: Statements that would change a table which no catalog has (its name has no dot): the view of a topic, that is.
_CHANGE = re.compile(
    r"\s*(DROP\s+(?:TABLE|VIEW)(?:\s+IF\s+EXISTS)?|TRUNCATE\s+TABLE|ALTER\s+(?:TABLE|VIEW)|DELETE\s+FROM|UPDATE)"
    r"\s+([\w%-]+|`[^`]+`)(?![\w`.])",
    re.IGNORECASE,
)


@app.command()
@connected
def sql(
    query: Query,
    store: Stores = None,
    body_json: BodyJson = None,
    option: Options = None,
    as_csv: AsCsv = False,
    as_json: AsJson = False,
    parquet: Parquet = None,
    rows: Rows = _ROWS,
    master: Master = None,
    driver_memory: DriverMemory = DRIVER_MEMORY,
    *,
    namesrv: str | None,
) -> None:
    """Ask SQL: every topic is a table, and so are topics, offsets, consumer_groups and, with --store, store_messages,
    store_consumequeue and others. Only the columns that the query uses are read."""
    if as_csv + as_json + (parquet is not None) > 1:
        raise typer.BadParameter("--csv, --json and --parquet exclude each other")
    if parquet is not None and parquet.exists():
        raise ConfigError(f"--parquet {parquet} is there already: name a new folder")
    text = (sys.stdin.read() if query == "-" else query).strip().rstrip(";")
    if not text:
        raise typer.BadParameter("the query is empty: give one, such as 'SELECT * FROM topics'")
    if change := _CHANGE.match(text):
        statement = " ".join(change[1].split()).upper()
        raise ConfigError(
            f"{statement} {change[2]}: a table here is a view of a topic, and SQL changes no topic; "
            "maxq admin deleteTopic and updateTopic do, maxq produce sends"
        )
    if namesrv is None and not store:
        namesrv = usual_name_servers()
    need_spark()
    need_stores(store or ())
    found: list[Any] = []
    streams = as_csv or as_json  # rows are printed as they come
    quiet = streams and sys.stdout.isatty()
    with spark_run("sql", master=master, driver_memory=driver_memory, quiet=quiet) as spark:
        from maxq.pipeline.sql.views import Views
        from maxq.pipeline.transforms.json_body import declared_schema

        views = Views(spark, namesrv, store or (), format_options(option))
        for declared in body_json or ():
            topic, _, schema = declared.partition("=")
            views.declare_json(topic.strip(), declared_schema(schema.strip()) if schema.strip() else None)
        frame = views.sql(text)
        if as_json:
            _check_names(frame.columns)
        if parquet is not None:
            frame.write.parquet(str(parquet))
        elif as_csv:
            _print_csv(frame.columns, frame.toLocalIterator())
        elif as_json:
            _print_json(frame.columns, frame.toLocalIterator())
        else:
            found = frame.take(rows + 1)
    if parquet is None and not streams:
        _print_table(frame.columns, found, rows)


def _print_table(columns: Sequence[str], found: Sequence[Any], rows: int) -> None:
    values = [[_text(value) for value in row] for row in found[:rows]]
    notes = [f"only the first {rows} rows: see --rows"] if len(found) > rows else []
    # numbers as keys, because two columns may have one name
    heads = {str(number): name for number, name in enumerate(columns)}
    show(Report(heads, values, notes=notes), Style.TABLE if sys.stdout.isatty() else Style.TEXT)


def _print_csv(columns: Sequence[str], found: Iterable[Any]) -> None:
    writer = csv.writer(sys.stdout)
    writer.writerow(columns)
    writer.writerows([_text(value) for value in row] for row in found)


def _check_names(columns: Sequence[str]) -> None:
    """Refuse two columns of one name, of which an object could have only one. Raises ConfigError."""
    twice = [name for name, count in Counter(columns).items() if count > 1]
    if twice:
        raise ConfigError(
            f"--json: {columns.count(twice[0])} columns are named {twice[0]}, and an object has one member of a name: "
            "name them with AS, or use --csv"
        )


def _print_json(columns: Sequence[str], found: Iterable[Any]) -> None:
    """Print one row a line, so that it can be read while rows arrive."""
    separator = "["
    for row in found:
        line = json.dumps(dict(zip(columns, map(_plain, row), strict=True)), ensure_ascii=False)
        sys.stdout.write(f"{separator}{line}")
        separator = ",\n"
    sys.stdout.write("[]\n" if separator == "[" else "]\n")


def _plain(value: Any) -> Any:
    """Convert a value for JSON; bytes become text, or {"base64": …} if they are not UTF-8; infinite numbers and NaN
    become text, as in Spark's to_json."""
    if isinstance(value, (bytes, bytearray)):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, (datetime.datetime, datetime.date)):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if hasattr(value, "asDict"):
        return {name: _plain(one) for name, one in value.asDict().items()}
    if isinstance(value, dict):
        return {str(_plain(name)): _plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)


def _text(value: Any) -> str:
    """Convert a value for a cell of a table or of CSV; empty for null."""
    if value is None:
        return ""
    plain = _plain(value)
    if isinstance(value, (bytes, bytearray)) and isinstance(plain, dict):
        return f"base64:{plain['base64']}"
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
