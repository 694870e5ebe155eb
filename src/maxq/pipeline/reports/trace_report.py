"""The page of the job `trace`."""

from collections.abc import Mapping
from typing import Any, Final

from maxq.pipeline.reports.page import Column, Plot, ReportPage
from maxq.pipeline.reports.plots import Series, bars, lines
from maxq.pipeline.reports.quantities import Unit, duration_text, grouped, time_text

_MEASURES: Final = {
    "send": ("Send", "From the call of send until the broker's answer, as the producer measured it."),
    "store": ("Store", "From the call of send until the message was in the broker's log."),
    "deliver": ("Delivery", "From when consumers could have the message until one began it, first try only."),
    "consume": ("Consumption", "The listener's time, per message."),
}
_LATENCY: Final = (
    Column("Messages", Unit.COUNT), Column("Failed", Unit.COUNT), Column("Median", Unit.MILLIS),
    Column("90 %", Unit.MILLIS), Column("99 %", Unit.MILLIS), Column("99.9 %", Unit.MILLIS),
    Column("Longest", Unit.MILLIS),
)  # fmt: skip
_LATENCY_KEYS: Final = ("count", "failed", "p50Ms", "p90Ms", "p99Ms", "p999Ms", "maxMs")
_NOBODY: Final = "(any group)"
_UNTRACED: Final = "(send not traced)"
_BARS: Final = 12


def trace_report(found: Mapping[str, Any], source: Mapping[str, str], *, made_ms: int | None = None) -> ReportPage:
    """Make the page of a trace analysis.

    Args:
        found: TraceResult.to_json().
        source: what was read, for people (MessageInput.describe).
    """
    report = ReportPage("Message trace", made_ms=made_ms)
    _summary(report, found, source)
    if found["settings"]["message_id"] is not None:
        _way(report, found)
    _latency(report, found)
    _undelivered(report, found)
    _slow(report, found)
    _read(report, found)
    return report


def _summary(report: ReportPage, found: Mapping[str, Any], source: Mapping[str, str]) -> None:
    first, last = found["first_ms"], found["last_ms"]
    read = sum(row["messages"] for row in found["queues"])
    report.facts(
        {
            **source,
            "Traced": "nothing" if first is None else f"{time_text(first)} – {time_text(last)}",
            "Trace messages": f"{grouped(read)} of {len(found['queues'])} queues, "
            f"{grouped(sum(row['count'] for row in found['records']))} records",
        }
    )
    overall = {row["measure"]: row for row in found["overall"]}
    report.figures(
        {
            "messages sent": (found["sent"], Unit.COUNT),
            "consumptions": (found["consumed"], Unit.COUNT),
            **{
                f"99 % of {_MEASURES[name][0].lower()}": (overall[name]["p99Ms"], Unit.MILLIS)
                for name in ("send", "deliver", "consume")
                if name in overall
            },
            "not consumed": (found["undelivered_count"], Unit.COUNT),
        }
    )
    if not found["records"]:
        report.warning(
            "There is nothing in the trace topic. Clients fill it if trace is switched on in them: enable_trace=True, "
            "in Java enableMsgTrace or enableTrace; brokers make the topic with traceTopicEnable=true."
        )
    if found["broken"]:
        report.warning(f"{grouped(found['broken'])} trace records are broken and are not counted below: see the end.")
    if found["backwards"]:
        report.warning(
            f"{grouped(found['backwards'])} messages were consumed before they were sent: clocks of clients differ by "
            f"{duration_text(found['backwards_ms'])} or more, and delivery times are off by as much."
        )
    report.paragraph(
        "Clients trace at their best effort: they drop traces that they can not send in time, and a send that fails "
        "with an exception leaves none. Delivery compares clocks of two machines."
    )


def _way(report: ReportPage, found: Mapping[str, Any]) -> None:
    report.heading("The way of one message")
    report.paragraph(f"Message id {found['settings']['message_id']}")
    columns = (
        Column("When", Unit.TIME), "Event", Column("Took", Unit.MILLIS), "Success", "Group", "Client", "Detail",
        Column("Retry", Unit.COUNT), "Topic", "Broker",
    )  # fmt: skip
    names = ("at", "event", "costMs", "success", "groupName", "client", "detail", "retryTimes", "topic", "storeHost")
    report.table(columns, [[row[name] for name in names] for row in found["way"]])


def _latency(report: ReportPage, found: Mapping[str, Any]) -> None:
    report.heading("Latency")
    overall = {row["measure"]: row for row in found["overall"]}
    rows = [[_MEASURES[name][0], *_numbers(overall[name])] for name in _MEASURES if name in overall]
    report.table(["", *_LATENCY], rows)
    if not found["store_measured"]:
        report.paragraph("Store is an estimate, half of send, as in Java's client: --store-times measures it.")
    if found["course"]:
        for share, name in (("p50Ms", "Median"), ("p99Ms", "99 %")):
            report.plot(
                lines(_course(found, share), y=Unit.MILLIS), f"{name} by {duration_text(found['step_ms'])} steps"
            )
        report.plot(_cumulative(found), "Share of messages that took at most so long")
    for name, (title, meaning) in _MEASURES.items():
        groups = [row for row in found["groups"] if row["measure"] == name]
        is_estimate = name == "store" and not found["store_measured"]
        if groups and not is_estimate:
            report.heading(f"{title} by topic, group and client")
            report.paragraph(meaning)
            table = [[row["topic"] or _UNTRACED, row["groupName"], row["client"], *_numbers(row)] for row in groups]
            report.table(["Topic", "Group", "Client", *_LATENCY], table)


def _numbers(row: Mapping[str, Any]) -> list[Any]:
    return [row[name] for name in _LATENCY_KEYS]


def _course(found: Mapping[str, Any], share: str) -> list[Series]:
    """Return lines that are interrupted where a step has no messages."""
    first, last = (function(row["stepMs"] for row in found["course"]) for function in (min, max))
    steps = range(first, last + 1, found["step_ms"])
    series = []
    for name, (title, _) in _MEASURES.items():
        values = {row["stepMs"]: row[share] for row in found["course"] if row["measure"] == name}
        if values and name != "store":
            series.append(Series(title, list(steps), [values.get(step) for step in steps]))
    return series


def _cumulative(found: Mapping[str, Any]) -> Plot:
    series = []
    for name, (title, _) in _MEASURES.items():
        steps = [row for row in found["distribution"] if row["measure"] == name]
        total, so_far = sum(row["count"] for row in steps), 0
        x, y = [], []
        for row in steps:
            so_far += row["count"]
            if row["belowMs"] is not None:
                x.append(row["belowMs"])
                y.append(so_far / total)
        if x and name != "store":
            series.append(Series(title, x, y))
    return lines(series, y=Unit.SHARE, x=Unit.MILLIS, logarithmic_x=True)


def _undelivered(report: ReportPage, found: Mapping[str, Any]) -> None:
    report.heading("Not consumed")
    grace = duration_text(found["settings"]["grace_ms"])
    report.paragraph(
        "A message is expected at every group that was given another one of the same topic and tags, or at any group "
        "if none was. Not expected: failed sends, delayed, recalled and batched messages, transactions that were not "
        f"committed, and the last {grace} of the trace. Groups that do not trace look like groups that do not consume."
    )
    states = found["not_consumed"]
    if states:
        top = states[:_BARS]
        bar_names = [f"{row['state']}: {row['groupName'] or _NOBODY}, {row['topic']}" for row in top]
        counts = [row["count"] for row in top]
        report.plot(bars(bar_names, counts, unit=Unit.COUNT), "Messages by state, group and topic")
    columns = (
        Column("Sent", Unit.TIME), "State", "Group", "Topic", "Message id", Column("Retry", Unit.COUNT),
        Column("Last begun", Unit.TIME), "Tags", "Keys",
    )  # fmt: skip
    names = ("sentAt", "state", "groupName", "topic", "messageId", "retryTimes", "lastAt", "tags", "keys")
    rows = [
        [row[name] if name != "groupName" else row[name] or _NOBODY for name in names] for row in found["undelivered"]
    ]
    report.table(columns, rows, "The oldest first", most=len(rows), total=found["undelivered_count"])


def _slow(report: ReportPage, found: Mapping[str, Any]) -> None:
    limit = duration_text(found["settings"]["slow_ms"])
    report.heading(f"Slow: {limit} or longer")
    counts = found["slow_count"]
    told = [f"{grouped(counts[name])} × {title.lower()}" for name, (title, _) in _MEASURES.items() if name in counts]
    report.paragraph(", ".join(told) if told else f"Nothing took {limit}.")
    if not counts:
        return
    columns = (
        Column("Took", Unit.MILLIS), "What", "Group", "Topic", "Client", Column("When", Unit.TIME), "Message id",
        "Success",
    )  # fmt: skip
    rows = [
        [row["ms"], _MEASURES[row["measure"]][0], row["groupName"], row["topic"] or _UNTRACED, row["client"],
         row["at"], row["messageId"], row["success"]]
        for row in found["slow"]
    ]  # fmt: skip
    report.table(columns, rows, "The slowest first", most=len(rows), total=sum(counts.values()))


def _read(report: ReportPage, found: Mapping[str, Any]) -> None:
    report.heading("What was read")
    columns = (
        "Broker", Column("Queue", Unit.COUNT), Column("First offset", Unit.COUNT), Column("Last offset", Unit.COUNT),
        Column("Messages", Unit.COUNT), Column("First stored", Unit.TIME), Column("Last stored", Unit.TIME),
    )  # fmt: skip
    names = ("brokerName", "queueId", "firstOffset", "lastOffset", "messages", "firstAt", "lastAt")
    report.table(columns, [[row[name] for name in names] for row in found["queues"]], "Queues of the trace topic")
    kinds = [[row["kind"] or "broken", row["fault"] or "", row["count"]] for row in found["records"]]
    report.table(["Record", "Fault", Column("Count", Unit.COUNT)], kinds, "Trace records")
