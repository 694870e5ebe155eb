"""`maxq pipeline audit`: queues and indexes against the log, and copies of a log against each other."""

from pathlib import Path
from typing import Annotated

import typer

from maxq.cli.help_pages import CommandApp
from maxq.cli.pipeline.report_input import Html, need_reports
from maxq.cli.pipeline.spark_run import DRIVER_MEMORY, AsJson, DriverMemory, Master, spark_run
from maxq.cli.terminal.ends import ExitCode
from maxq.cli.terminal.report import Report, Style, show
from maxq.runtime.files.system import SystemClock
from maxq.store.tools.store_files import StoreSettings

app = CommandApp()

_ROWS = 10_000
_SHOWN = 50
_COLUMNS = {
    "store": "#Store",
    "file": "#File",
    "position": "#Byte",
    "kind": "#Kind",
    "expected": "#Expected",
    "found": "#Found",
}


@app.command()
def audit(
    stores: Annotated[
        list[str],
        typer.Argument(metavar="DIR...", help="A store's root directory; further ones are copies: slaves, members."),
    ],
    html: Html = None,
    conf: Annotated[
        Path | None,
        typer.Option("--conf", "-c", exists=True, dir_okay=False, help="broker.conf, for settings that no file shows."),
    ] = None,
    hash_slots: Annotated[int, typer.Option(min=0, help="maxHashSlotNum of the index files.")] = 0,
    index_entries: Annotated[int, typer.Option(min=0, help="maxIndexNum of the index files.")] = 0,
    index_tags: Annotated[
        bool | None, typer.Option(help="Is every tag indexed, as RocketMQ 5.5 does? Else it is looked for.")
    ] = None,
    rows: Annotated[int, typer.Option(min=1, help="Keep this many faults; all are counted.")] = _ROWS,
    as_json: AsJson = False,
    master: Master = None,
    driver_memory: DriverMemory = DRIVER_MEMORY,
) -> None:
    """Compare every ConsumeQueue and index entry with the log and the reverse, check all CRCs, and compare the logs of
    copies byte by byte; exit 1 if anything is wrong. Never writes to a store; a broker may run meanwhile."""
    need_reports()
    from maxq.pipeline.jobs.audit.job import AuditOptions, audit, check_stores
    from maxq.pipeline.jobs.audit.report import write_report
    from maxq.pipeline.store.store_folder import open_store

    settings = None if conf is None else StoreSettings.from_properties(conf.read_bytes(), source=str(conf))
    opened = [open_store(path, settings, hash_slots=hash_slots, index_entries=index_entries) for path in stores]
    check_stores(opened)
    with spark_run("audit", master=master, driver_memory=driver_memory, quiet=as_json) as spark:
        result = audit(spark, opened, AuditOptions(index_tags, most=rows))
    notes = [f"{store}: {count} × {kind}" for store, kind, count in result.by_kind]
    if html is not None:
        write_report(result, html, made_ms=SystemClock().wall_ms())
        notes.append(f"report: {html}")
    looked = sum(one.units + one.entries for one in result.stores)
    notes.append(f"{looked} units and index entries expected; {result.fault_count or 'no'} faults")
    shown = [tuple(fault.values()) for fault in result.faults[:_SHOWN]]
    if len(shown) < result.fault_count:
        notes.insert(0, f"only the first {len(shown)} faults: see --json or --html")
    show(Report(_COLUMNS, shown, value=result.to_json(), notes=notes), Style.JSON if as_json else Style.TEXT)
    if result.fault_count:
        raise typer.Exit(ExitCode.FAILED)
