"""`maxq pipeline trace`: message traces as tables and as a page."""

import json
import sys
from typing import Annotated, Any

import typer

from maxq.cli.connection import connected
from maxq.cli.help_pages import CommandApp
from maxq.cli.pipeline.common import Begin, End, Options, Stores, need_name_server, need_stores
from maxq.cli.pipeline.report_input import Html, input_of, need_reports
from maxq.cli.pipeline.spark_run import DRIVER_MEMORY, AsJson, DriverMemory, Master, spark_run
from maxq.cli.terminal.report import Report, Style, show
from maxq.cli.terminal.times import format_time
from maxq.runtime.files.system import SystemClock

app = CommandApp()

_TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"

TraceTopic = Annotated[list[str] | None, typer.Option("-t", "--topic", help="Trace topic; may be repeated.")]
MessageId = Annotated[str | None, typer.Option("-i", "--message-id", help="Tell the way of this message.")]


@app.command()
@connected
def trace(
    store: Stores = None,
    topic: TraceTopic = None,
    begin: Begin = None,
    end: End = None,
    option: Options = None,
    message_id: MessageId = None,
    slow_ms: Annotated[int, typer.Option(min=0, help="Operations that take this long are slow.")] = 1000,
    grace_ms: Annotated[
        int, typer.Option(min=0, help="Messages this close to the end of the trace do not count as missing.")
    ] = 60_000,
    most: Annotated[int, typer.Option(min=0, help="List this many undelivered and slow messages.")] = 100,
    store_times: Annotated[
        bool, typer.Option("--store-times", help="Read the traced topics, too, and measure store latency.")
    ] = False,
    html: Html = None,
    as_json: AsJson = False,
    master: Master = None,
    driver_memory: DriverMemory = DRIVER_MEMORY,
    *,
    namesrv: str | None,
) -> None:
    """Latencies of send, store, delivery and consumption per topic, group and client; what did not arrive, what was
    slow, and the way of one message, from the messages that clients with message trace send."""
    need_reports()
    from maxq.pipeline.jobs.trace import TraceSettings, run_trace
    from maxq.pipeline.reports.trace_report import trace_report

    source = input_of(tuple(topic or (_TRACE_TOPIC,)), namesrv, store, begin, end, option)
    settings = TraceSettings(source, slow_ms, grace_ms, most, store_times, message_id)
    need_stores(source.stores)
    need_name_server(source.connection)
    with spark_run("trace", master=master, driver_memory=driver_memory, quiet=as_json) as spark:
        found = run_trace(spark, settings).to_json()
        if html is not None:
            trace_report(found, source.describe(), made_ms=SystemClock().wall_ms()).write(html)
    if as_json:
        sys.stdout.write(json.dumps(found, ensure_ascii=False) + "\n")
    else:
        _show(found)
        if html is not None:
            sys.stdout.write(f"\n{html}\n")


_LATENCY = {
    "measure": "#Measure", "topic": "#Topic", "groupName": "#Group", "client": "#Client", "count": "#Count",
    "failed": "#Failed", "p50Ms": "#P50 ms", "p90Ms": "#P90 ms", "p99Ms": "#P99 ms", "p999Ms": "#P99.9 ms",
    "maxMs": "#Max ms",
}  # fmt: skip
_MISSING = {
    "sentAt": "#Sent", "messageId": "#Message Id", "topic": "#Topic", "groupName": "#Group", "state": "#State",
    "retryTimes": "#Retry",
}  # fmt: skip
_SLOW = {
    "ms": "#Took ms", "measure": "#Measure", "messageId": "#Message Id", "topic": "#Topic", "groupName": "#Group",
    "client": "#Client", "at": "#When",
}  # fmt: skip
_WAY = {
    "at": "#When", "event": "#Event", "groupName": "#Group", "client": "#Client", "topic": "#Topic",
    "costMs": "#Took ms", "success": "#Success", "retryTimes": "#Retry", "detail": "#Detail",
}  # fmt: skip
_TIMES = ("at", "sentAt")


def _show(found: dict[str, Any]) -> None:
    style = Style.TABLE if sys.stdout.isatty() else Style.TEXT
    broken, missing, slow = found["broken"], found["undelivered_count"], sum(found["slow_count"].values())
    notes = [f"{found['sent']} messages sent, {found['consumed']} consumptions, {broken} broken trace records"]
    if not found["store_measured"]:
        notes.append("store is an estimate, half of send: --store-times measures it")
    show(_table(_LATENCY, found["groups"], notes), style)
    if missing:
        show(_table(_MISSING, found["undelivered"], [f"{missing} messages not consumed"]), style)
    if slow:
        show(_table(_SLOW, found["slow"], [f"{slow} slow"]), style)
    if found["settings"]["message_id"] is not None:
        show(_table(_WAY, found["way"], []), style)


def _table(heads: dict[str, str], rows: list[dict[str, Any]], notes: list[str]) -> Report:
    values = [[format_time(row[name]) if name in _TIMES and row[name] else row[name] for name in heads] for row in rows]
    return Report(heads, [["" if value is None else value for value in row] for row in values], notes=notes)
