"""`maxq pipeline stats`: rates, sizes, hot keys and queues, lag, disk; as tables and as a page."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from maxq.cli.connection import connected
from maxq.cli.help_pages import CommandApp
from maxq.cli.options import finite
from maxq.cli.pipeline.common import Begin, End, Options, Stores, need_name_server, need_stores
from maxq.cli.pipeline.report_input import Html, input_of, need_reports
from maxq.cli.pipeline.spark_run import DRIVER_MEMORY, AsJson, DriverMemory, Master, spark_run
from maxq.cli.terminal.report import Report, Style, show
from maxq.runtime.files.system import SystemClock

app = CommandApp()

Topics = Annotated[
    list[str] | None, typer.Option("-t", "--topic", help="May be repeated; else all but the brokers' own.")
]
History = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", file_okay=False, help="Add a sample of committed offsets here, and show lag over all samples."
    ),
]


@app.command()
@connected
def stats(
    store: Stores = None,
    topic: Topics = None,
    begin: Begin = None,
    end: End = None,
    option: Options = None,
    most: Annotated[int, typer.Option(min=0, help="List this many keys and queues.")] = 50,
    history: History = None,
    disk_ratio: Annotated[
        int, typer.Option(min=1, max=100, help="With --store: percent of the disk that may be used.")
    ] = 75,
    reserved_hours: Annotated[
        float, typer.Option(min=0, callback=finite, help="With --store: how long messages are to be kept.")
    ] = 72,
    html: Html = None,
    as_json: AsJson = False,
    master: Master = None,
    driver_memory: DriverMemory = DRIVER_MEMORY,
    *,
    namesrv: str | None,
) -> None:
    """Rates and sizes by topic, hot keys and queues, lag of consumer groups, growth of the disk against retention; disk
    by topic of store directories."""
    need_reports()
    from maxq.pipeline.jobs.stats import StatsSettings, run_stats
    from maxq.pipeline.reports.stats_report import stats_report

    clock = SystemClock()
    source = input_of(tuple(topic or ()), namesrv, store, begin, end, option)
    settings = StatsSettings(source, most, history, disk_ratio / 100, reserved_hours)
    need_stores(source.stores)
    need_name_server(source.connection)
    with spark_run("stats", master=master, driver_memory=driver_memory, quiet=as_json) as spark:
        found = run_stats(spark, settings, now_ms=clock.wall_ms()).to_json()
        if html is not None:
            stats_report(found, source.describe(), made_ms=clock.wall_ms()).write(html)
    if as_json:
        sys.stdout.write(json.dumps(found, ensure_ascii=False) + "\n")
    else:
        _show(found)
        if html is not None:
            sys.stdout.write(f"\n{html}\n")


_TOPICS = {
    "topic": "#Topic", "messages": "#Messages", "perSecond": "#Per second", "bytes": "#Bytes", "meanBytes": "#Mean",
    "p50Bytes": "#P50", "p99Bytes": "#P99", "maxBytes": "#Max",
}  # fmt: skip
_KEYS = {"key": "#Key", "topic": "#Topic", "messages": "#Messages", "bytes": "#Bytes", "queues": "#Queues"}
_QUEUES = {
    "topic": "#Topic", "brokerName": "#Broker", "queueId": "#QID", "messages": "#Messages", "share": "#Share",
    "skew": "#Against mean",
}  # fmt: skip
_GROUPS = {"consumerGroup": "#Group", "topic": "#Topic", "lag": "#Lag", "lost": "#Deleted"}
_DISK = {"topic": "#Topic", "messages": "#Messages", "logBytes": "#Log bytes", "queueBytes": "#Queue bytes"}


def _show(found: dict[str, Any]) -> None:
    style = Style.TABLE if sys.stdout.isatty() else Style.TEXT
    if not found["topics"]:
        sys.stdout.write("no messages\n")
    tables = [(_TOPICS, found["topics"], "")]
    tables.append((_KEYS, found["keys"], f"{found['key_count']} keys of several messages"))
    tables.append((_QUEUES, found["queues"], f"{found['queue_count']} queues"))
    tables.append((_GROUPS, found["groups"] or [], ""))
    tables.append((_DISK, found["disk_topics"], ""))
    for heads, rows, note in tables:
        if rows:
            values = [["" if row[name] is None else row[name] for name in heads] for row in rows]
            show(Report(heads, values, notes=[note] if note else []), style)
