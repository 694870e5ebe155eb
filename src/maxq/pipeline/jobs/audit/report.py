"""The HTML page that shows what an audit of a store has found."""

import re
from collections import Counter
from pathlib import Path, PurePath
from typing import Final

from maxq.pipeline.jobs.audit.job import AuditResult
from maxq.pipeline.reports.page import Column, ReportPage
from maxq.pipeline.reports.plots import Series, bars, lines
from maxq.pipeline.reports.quantities import Unit

_WORST_FILES: Final = 20
_KINDS: Final = {
    "log damaged": "bytes of the log that are no record, though good ones follow, or a torn tail",
    "unit missing": "a message that its ConsumeQueue does not have",
    "unit of no record": "a place in a ConsumeQueue that no message of the log claims",
    "unit overwritten": "a ConsumeQueue unit of which several fields are not its message's: something else is there",
    "unit has wrong offset": "a unit that points elsewhere than to its message",
    "unit has wrong size": "a unit whose size is not that of its message",
    "unit has wrong tags code": "a unit whose tags code is not that of its message",
    "entry missing": "a key that its index does not have",
    "entry of no key": "an index entry whose message does not have such a key",
    "entry has wrong time": "an index entry whose time is not that of its message",
    "index chain": "an index entry that does not lead to the one before it in its slot",
    "index slot": "a slot that does not lead to its newest entry",
    "index header": "a header that does not fit the entries",
    "copy differs": "bytes of a copy's log that are not the first store's",
}
_FILLING: Final = re.compile("/0{6,}(?=[0-9])")  # zeros in front of a file's name, which is a number


def write_report(result: AuditResult, path: Path, *, made_ms: int) -> Path:
    """Write one HTML page into an existing folder. Returns the page's path."""
    master = PurePath(result.stores[0].store)
    report = ReportPage(f"Audit of {master.name}", made_ms=made_ms)
    has_copies = len(result.stores) > 1
    figures = {
        "faults": (result.fault_count, Unit.COUNT),
        "bytes of log read": (sum(one.log_end - one.log_start for one in result.stores), Unit.BYTES),
        "queue units compared": (sum(one.units for one in result.stores), Unit.COUNT),
        "index entries compared": (sum(one.entries for one in result.stores), Unit.COUNT),
    }
    if has_copies:
        figures["bytes of copies compared"] = (sum(one.compared for one in result.stores), Unit.BYTES)
    report.figures(figures)
    if not result.fault_count:
        copies = ", and so do the copies as far as they reach" if has_copies else ""
        report.paragraph(f"Log, ConsumeQueues and index agree{copies}.")
    if any(one.is_live for one in result.stores):
        report.warning(
            "A broker was running: messages that it had not dispatched yet count as missing. Audit again to be sure."
        )
    _stores(report, result)
    if result.fault_count:
        _kinds(report, result)
        _places(report, result)
        _faults(report, result)
    return report.write(path)


def _stores(report: ReportPage, result: AuditResult) -> None:
    columns = [
        Column("Store"),
        Column("Log begins", Unit.COUNT, "physical offset"),
        Column("Log ends", Unit.COUNT, "physical offset behind the last record"),
        Column("Units", Unit.COUNT),
        Column("Index entries", Unit.COUNT),
        Column("Compared", Unit.BYTES, "with the first store's log"),
        Column("Faults", Unit.COUNT),
    ]
    counts: Counter[str] = Counter()
    for store, _, count in result.by_kind:
        counts[store] += count
    rows = [
        (one.store, one.log_start, one.log_end, one.units, one.entries, one.compared, counts[one.store])
        for one in result.stores
    ]
    report.heading("Stores").table(columns, rows)
    if len(result.stores) > 1:
        names = list(_labels(result).values())
        sizes = [one.log_end - one.log_start for one in result.stores]
        report.plot(bars(names, sizes, unit=Unit.BYTES), "Log, by store")


def _kinds(report: ReportPage, result: AuditResult) -> None:
    names = list(dict.fromkeys(kind for _, kind, _ in result.by_kind))
    stores = [one.store for one in result.stores]
    counts = {(store, kind): count for store, kind, count in result.by_kind}
    parts = [[counts.get((store, kind), 0) for kind in names] for store in stores]
    sums = [sum(column) for column in zip(*parts, strict=True)]
    labels = _labels(result)
    several = len(stores) > 1
    report.heading("Kinds of faults").plot(
        bars(
            names, sums, unit=Unit.COUNT, parts=parts if several else (),
            part_names=[labels[store] for store in stores] if several else (),
        ),
        "Faults, by kind",
    )  # fmt: skip
    report.table(["Kind", "What it is"], [(name, _KINDS.get(name, "")) for name in names])


def _places(report: ReportPage, result: AuditResult) -> None:
    """Write the files that have faults, and the positions in the file with most of them."""
    files = Counter((one["store"], one["file"]) for one in result.faults)
    worst = files.most_common(_WORST_FILES)
    several, labels = len(result.stores) > 1, _labels(result)
    names = []
    for (store, file), _ in worst:
        short = _FILLING.sub("/…", file)
        names.append(f"{labels[store]}: {short}" if several else short)
    shown = len(result.faults)
    note = "" if shown == result.fault_count else f", of the first {shown} faults"
    report.heading("Where they are")
    report.plot(bars(names, [count for _, count in worst], unit=Unit.COUNT), f"Faults, by file{note}")
    (store, file), count = worst[0]
    places = sorted(
        one["position"] for one in result.faults if (one["store"], one["file"]) == (store, file) and one["position"]
    )
    if count > 2 and places:
        grown = list(range(1, len(places) + 1))
        series = [Series("faults up to there", places, grown)]
        report.plot(lines(series, y=Unit.COUNT, x=Unit.BYTES), f"Along {file}")


def _faults(report: ReportPage, result: AuditResult) -> None:
    columns = [Column("Store"), Column("File"), Column("Byte", Unit.COUNT), Column("Kind"), Column("Expected")]
    labels = _labels(result)
    rows = [
        (labels[one["store"]], one["file"], one["position"], one["kind"], one["expected"], one["found"])
        for one in result.faults
    ]
    report.heading("Faults").table([*columns, Column("Found")], rows, total=result.fault_count)


def _labels(result: AuditResult) -> dict[str, str]:
    """Return store → the name of its folder; the whole path where two have the same name."""
    stores = [one.store for one in result.stores]
    names = [PurePath(store).name for store in stores]
    return dict(zip(stores, names if len(set(names)) == len(names) else stores, strict=True))
