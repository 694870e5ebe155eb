"""The page of the job `stats`."""

from collections.abc import Mapping
from typing import Any, Final

from maxq.pipeline.reports.page import Column, ReportPage
from maxq.pipeline.reports.plots import Series, bars, lines
from maxq.pipeline.reports.quantities import Unit, duration_text, grouped, size_text, time_text

_LINES: Final = 8
_BARS: Final = 16
_SKEWED: Final = 2.0


def stats_report(found: Mapping[str, Any], source: Mapping[str, str], *, made_ms: int | None = None) -> ReportPage:
    """Make the page of statistics.

    Args:
        found: StatsResult.to_json().
        source: what was read, for people (MessageInput.describe).
    """
    report = ReportPage("Message statistics", made_ms=made_ms)
    _summary(report, found, source)
    _rates(report, found)
    _sizes(report, found)
    _keys(report, found)
    _queues(report, found)
    _lag(report, found)
    _disk(report, found)
    return report


def _summary(report: ReportPage, found: Mapping[str, Any], source: Mapping[str, str]) -> None:
    first, last = found["first_ms"], found["last_ms"]
    report.facts(
        {
            **source,
            "Messages": "none" if first is None else f"{time_text(first)} – {time_text(last)}",
            "Offsets": f"those of {grouped(found['queue_count'])} queues, see hot queues",
        }
    )
    messages = sum(row["messages"] for row in found["topics"])
    seconds = ((last or 0) - (first or 0)) / 1000
    lag = None if found["groups"] is None else sum(row["lag"] for row in found["groups"])
    figures = {
        "messages": (messages, Unit.COUNT),
        "bodies": (sum(row["bytes"] for row in found["topics"]), Unit.BYTES),
        "on average": (messages / seconds if seconds else None, Unit.RATE),
        "topics": (len(found["topics"]), Unit.COUNT),
    }
    report.figures(figures if lag is None else {**figures, "lag of all groups": (lag, Unit.COUNT)})
    for row in found["forecasts"]:
        text = _forecast_warning(row)
        if text:
            report.warning(text)


def _rates(report: ReportPage, found: Mapping[str, Any]) -> None:
    report.heading("Rates")
    step = found["step_ms"]
    if found["rates"]:
        for name, unit, title in (("messages", Unit.RATE, "Messages"), ("bytes", Unit.BYTE_RATE, "Bytes of bodies")):
            report.plot(
                lines(_course(found, name), y=unit),
                f"{title} per second, mean of {duration_text(step)} steps{_only(found['topics'], 'topics')}",
            )
    peak: dict[str, int] = {}
    for row in found["rates"]:
        peak[row["topic"]] = max(peak.get(row["topic"], 0), row["messages"])
    columns = (
        Column("Topic"), Column("Messages", Unit.COUNT), Column("Rate", Unit.RATE, "between first and last message"),
        Column("Peak", Unit.RATE, f"mean of the busiest {duration_text(step)}"), Column("Bodies", Unit.BYTES),
        Column("First stored", Unit.TIME), Column("Last stored", Unit.TIME),
    )  # fmt: skip
    rows = [
        [row["topic"], row["messages"], row["perSecond"], peak[row["topic"]] * 1000 / step, row["bytes"],
         row["firstAt"], row["lastAt"]]
        for row in found["topics"]
    ]  # fmt: skip
    report.table(columns, rows)


def _only(rows: list[Any], what: str) -> str:
    return f" – the {_LINES} largest of {grouped(len(rows))} {what}" if len(rows) > _LINES else ""


def _course(found: Mapping[str, Any], name: str) -> list[Series]:
    """Return a line for each of the largest topics, ordered by name, so that each keeps its colour; a step without
    messages is a rate of 0."""
    step = found["step_ms"]
    first, last = (function(row["stepMs"] for row in found["rates"]) for function in (min, max))
    largest = [row["topic"] for row in sorted(found["topics"], key=lambda row: -row[name])[:_LINES]]
    series = []
    for topic in sorted(largest):
        values = {row["stepMs"]: row[name] * 1000 / step for row in found["rates"] if row["topic"] == topic}
        steps = list(range(first, last + 1, step))
        series.append(Series(topic, steps, [values.get(at, 0) for at in steps]))
    return series


def _sizes(report: ReportPage, found: Mapping[str, Any]) -> None:
    report.heading("Sizes of bodies")
    counts: dict[int, int] = {}
    for row in found["sizes"]:
        counts[row["belowBytes"]] = counts.get(row["belowBytes"], 0) + row["messages"]
    if counts:
        steps = [1 << power for power in range((min(counts)).bit_length() - 1, max(counts).bit_length())]
        names = [
            f"{size_text(end // 2) if end > 1 else 'empty'}{f' – {size_text(end - 1)}' if end > 2 else ''}"
            for end in steps
        ]
        report.plot(bars(names, [counts.get(end, 0) for end in steps], unit=Unit.COUNT), "Messages by size of the body")
    columns = (
        Column("Topic"), Column("Mean", Unit.BYTES), Column("Median", Unit.BYTES), Column("99 %", Unit.BYTES),
        Column("Largest", Unit.BYTES),
    )  # fmt: skip
    names = ["topic", "meanBytes", "p50Bytes", "p99Bytes", "maxBytes"]
    report.table(columns, [[row[name] for name in names] for row in found["topics"]])


def _keys(report: ReportPage, found: Mapping[str, Any]) -> None:
    report.heading("Hot keys")
    totals = {row["topic"]: row["messages"] for row in found["topics"]}
    columns = (
        "Key", "Topic", Column("Messages", Unit.COUNT), Column("Share", Unit.SHARE, "of the topic's messages"),
        Column("Bodies", Unit.BYTES), Column("Queues", Unit.COUNT, "that have messages of this key"),
    )  # fmt: skip
    rows = [
        [row["key"], row["topic"], row["messages"], row["messages"] / totals[row["topic"]], row["bytes"], row["queues"]]
        for row in found["keys"]
    ]
    report.paragraph("Keys that more than one message has.")
    report.table(columns, rows, most=len(rows), total=found["key_count"])


def _queues(report: ReportPage, found: Mapping[str, Any]) -> None:
    report.heading("Hot queues")
    hot = [row for row in found["queues"] if row["skew"] >= _SKEWED]
    if hot:
        report.warning(f"Queues with twice the mean of their topic or more: {len(hot)}.")
    top = found["queues"][:_BARS]
    if top:
        names = [f"{row['topic']} {row['brokerName']}:{row['queueId']}" for row in top]
        report.plot(
            bars(names, [row["messages"] for row in top], unit=Unit.COUNT), "Messages of the most uneven queues"
        )
    columns = (
        "Topic", "Broker", Column("Queue", Unit.COUNT), Column("Messages", Unit.COUNT), Column("Share", Unit.SHARE),
        Column("Against mean", Unit.NUMBER, "messages against the mean of the topic's queues: 1 is even"),
        Column("First offset", Unit.COUNT), Column("Last offset", Unit.COUNT),
    )  # fmt: skip
    names = ["topic", "brokerName", "queueId", "messages", "share", "skew", "firstOffset", "lastOffset"]
    rows = [[row[name] for name in names] for row in found["queues"]]
    report.table(columns, rows, "The most uneven first", most=len(rows), total=found["queue_count"])


def _lag(report: ReportPage, found: Mapping[str, Any]) -> None:
    report.heading("Lag of consumer groups")
    groups = found["groups"]
    if groups is None:
        report.paragraph("Committed offsets are the cluster's to tell; this report was made of store directories.")
        return
    columns = (
        "Group", "Topic", Column("Queues", Unit.COUNT), Column("Lag", Unit.COUNT, "messages not consumed"),
        Column("Oldest not consumed", Unit.TIME, "of the messages that were read"),
        Column("Behind", Unit.MILLIS, "the last message that was read"),
        Column("Deleted", Unit.COUNT, "messages not consumed that are gone"),
    )  # fmt: skip
    rows = [
        [row["consumerGroup"], row["topic"], row["queues"], row["lag"], row["oldestAt"],
         None if row["oldestAt"] is None else found["last_ms"] - row["oldestAt"], row["lost"]]
        for row in groups
    ]  # fmt: skip
    report.table(columns, rows)
    if found["lag"]:
        report.plot(lines(_lag_course(found), y=Unit.COUNT), "Lag over time, as sampled")
    elif groups:
        report.paragraph("Brokers keep no past of committed offsets: --history collects samples of it, run by run.")
    if found["waiting"]:
        report.plot(lines(_waiting(found), y=Unit.COUNT), "When the messages came that are not consumed: how lag grew")


def _lag_course(found: Mapping[str, Any]) -> list[Series]:
    series: dict[str, dict[int, int]] = {}
    for row in found["lag"]:
        series.setdefault(f"{row['consumerGroup']} · {row['topic']}", {})[row["sampledAt"]] = row["lag"]
    largest = sorted(series, key=lambda name: -max(series[name].values()))[:_LINES]
    return [Series(name, list(series[name]), list(series[name].values())) for name in largest]


def _waiting(found: Mapping[str, Any]) -> list[Series]:
    """Return running sums, so that the last point is the present lag of the messages that were read."""
    arrived: dict[str, dict[int, int]] = {}
    for row in found["waiting"]:
        arrived.setdefault(f"{row['consumerGroup']} · {row['topic']}", {})[row["stepMs"]] = row["messages"]
    largest = sorted(arrived, key=lambda name: -sum(arrived[name].values()))[:_LINES]
    step = found["step_ms"]
    first = min(at for steps in arrived.values() for at in steps)
    steps = list(range(first, found["last_ms"] + 1, step))
    series = []
    for name in largest:
        so_far, values = 0, []
        for at in steps:
            so_far += arrived[name].get(at, 0)
            values.append(so_far)
        series.append(Series(name, steps, values))
    return series


def _disk(report: ReportPage, found: Mapping[str, Any]) -> None:
    report.heading("Disk and retention")
    columns = (
        "Broker", Column("Log grew by", Unit.BYTES), Column("Growth", Unit.BYTE_RATE),
        Column("From", Unit.TIME), Column("To", Unit.TIME),
    )  # fmt: skip
    names = ["brokerName", "bytes", "bytesPerSecond", "firstAt", "lastAt"]
    rows = [[row[name] for name in names] for row in found["growth"]]
    report.table(columns, rows, "Growth of the log while these messages came, whatever topic")
    forecasts = list(found["forecasts"])
    if forecasts:
        report.paragraph(
            "If it goes on like this: the log grows until messages are as old as they are to be kept, or until the "
            "disk is at its limit and younger ones are deleted. Other files are taken to stay as they are."
        )
        heads = (
            "Broker", Column("Log now", Unit.BYTES), Column("Log in the end", Unit.BYTES, "growth × time to keep"),
            Column("Room for the log", Unit.BYTES, "until files are deleted early"), Column("At the limit in"),
            Column("To keep", Unit.MILLIS), Column("Kept", Unit.MILLIS),
        )  # fmt: skip
        report.table(heads, [_forecast_row(row) for row in forecasts], "Forecast")
        report.plot(
            bars(
                [row["disk"]["broker"] for row in forecasts],
                [row["steady_bytes"] for row in forecasts],
                unit=Unit.BYTES,
                parts=[
                    [min(row["disk"]["log_bytes"], row["steady_bytes"]) for row in forecasts],
                    [
                        max(min(row["steady_bytes"], row["limit_bytes"]) - row["disk"]["log_bytes"], 0)
                        for row in forecasts
                    ],
                    [
                        max(row["steady_bytes"] - max(row["limit_bytes"], row["disk"]["log_bytes"]), 0)
                        for row in forecasts
                    ],
                ],
                part_names=["there now", "still to come", "no room for it"],
                colours=[1, 7, 6],
            ),
            "What retention asks for",
        )
    if found["disk_topics"]:
        top = found["disk_topics"][:_BARS]
        report.plot(
            bars([row["topic"] for row in top], [row["logBytes"] for row in top], unit=Unit.BYTES), "Log by topic"
        )
        names = ["topic", "messages", "logBytes", "queueBytes", "store"]
        topic_heads = (
            "Topic",
            Column("Messages", Unit.COUNT),
            Column("Log", Unit.BYTES),
            Column("ConsumeQueue", Unit.BYTES),
            "Store",
        )
        report.table(topic_heads, [[row[name] for name in names] for row in found["disk_topics"]], "Disk by topic")


def _forecast_row(row: Mapping[str, Any]) -> list[Any]:
    disk = row["disk"]
    when = row["full_in_ms"]
    told = "never" if when is None else "is there" if when == 0 else duration_text(when)
    asked = int(disk["reserved_hours"] * 3_600_000)
    return [disk["broker"], disk["log_bytes"], row["steady_bytes"], row["limit_bytes"], told, asked, row["kept_ms"]]


def _forecast_warning(row: Mapping[str, Any]) -> str:
    disk, when = row["disk"], row["full_in_ms"]
    if when is None:
        return ""
    asked = duration_text(disk["reserved_hours"] * 3_600_000)
    limit = "is at its limit" if when == 0 else f"reaches its limit in {duration_text(when)}"
    held = f"it holds messages for {duration_text(row['kept_ms'])}" if row["kept_ms"] else "there is room for none"
    return (
        f"The disk of {disk['broker']} {limit}: at this rate {held}, and they are to be kept for {asked}. "
        "Give it more room or keep them for less (fileReservedTime)."
    )
