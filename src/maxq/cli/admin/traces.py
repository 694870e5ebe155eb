"""Trace commands of mqadmin."""

from typing import Annotated, Any

import typer

from maxq.cli.admin.command import command
from maxq.cli.help_pages import CommandApp
from maxq.cli.terminal.report import Report
from maxq.cli.terminal.times import format_time, parse_time
from maxq.client.admin.admin import Admin
from maxq.client.admin.traces import TraceView
from maxq.protocol.message.message_trace import TRACE_TOPIC, TraceType
from maxq.runtime.files.system import SystemClock

app = CommandApp()

_COLUMNS = {
    "type": "#Type",
    "group": "#Group",
    "clientHost": "#ClientHost",
    "time": "#Time",
    "costTimeMs": "#CostTimes",
    "status": "#Status",
}


@command(app, "queryMsgTraceById")
async def query_msg_trace_by_id(
    admin: Admin,
    msg_id: Annotated[str, typer.Option("-i", "--msgId", help="The id that the producer gave the message.")],
    topic: Annotated[str, typer.Option("-t", "--traceTopic", help="Where the clients trace.")] = TRACE_TOPIC,
    begin: Annotated[str | None, typer.Option("-b", "--beginTimestamp", help="Traced at this time or later.")] = None,
    end: Annotated[str | None, typer.Option("-e", "--endTimestamp", help="Traced at this time or earlier.")] = None,
    maximum: Annotated[int, typer.Option("-c", "--maxNum", min=1, help="How many trace messages to look into.")] = 64,
) -> Report:
    """Who sent a message, who consumed it, when, for how long and with what result."""
    clock = SystemClock()
    span = {"begin_ms": begin, "end_ms": end}
    given = {name: parse_time(text, clock) for name, text in span.items() if text is not None}
    views = await admin.traces.of_message(msg_id, trace_topic=topic, max_num=maximum, **given)
    rows = [
        (
            view.record.trace_type.value,
            view.record.group_name or "",
            view.client_host,
            format_time(view.record.timestamp or 0),
            view.record.cost_time_ms if view.record.cost_time_ms is not None else "",
            view.status,
        )
        for view in views
    ]
    failures = {} if views else {topic: f"nothing is traced of message {msg_id}"}
    return Report(_COLUMNS, rows, value=[_object(view) for view in views], text=_text(views), failures=failures)


def _object(view: TraceView) -> dict[str, Any]:
    record = view.record
    facts = {name: getattr(record, name) for name in type(record).__dataclass_fields__}
    facts |= {"trace_type": record.trace_type.value, "client_host": view.client_host, "status": view.status}
    return {_camel(name): value for name, value in facts.items() if value is not None}


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _text(views: list[TraceView]) -> str:
    """Format mqadmin's tables: one for a send, one for each consumer group; and what mqadmin leaves out, the ends of
    transactions."""
    lines: list[str] = []
    for view in views:
        if view.record.trace_type is TraceType.PUB:
            lines += [_head("ProducerGroup", "SendTime"), _line("Pub", view), ""]
    for kind, name in ((TraceType.END_TRANSACTION, "EndTransaction"), (TraceType.RECALL, "Recall")):
        of_kind = [view for view in views if view.record.trace_type is kind]
        if of_kind:
            lines += [_head("ProducerGroup", "Time"), *(_line(name, view) for view in of_kind), ""]
    groups: dict[str, list[TraceView]] = {}
    for view in views:
        if view.record.trace_type is TraceType.SUB_AFTER:
            groups.setdefault(view.record.group_name or "", []).append(view)
    for members in groups.values():
        lines += [_head("ConsumerGroup", "ConsumerTime"), *(_line("Sub", view) for view in members), ""]
    return "".join(line.rstrip() + "\n" for line in lines)


def _head(group: str, time: str) -> str:
    return _columns("#Type", f"#{group}", "#ClientHost", f"#{time}", "#CostTimes", "#Status")


def _line(name: str, view: TraceView) -> str:
    record = view.record
    status = record.transaction_state or view.status
    when = format_time(record.timestamp or 0)[:19]
    return _columns(name, record.group_name or "", view.client_host, when, f"{record.cost_time_ms or 0}ms", status)


def _columns(*cells: str) -> str:
    widths = (10, 20, 20, 20, 10, 10)
    return " ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
