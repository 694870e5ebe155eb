"""`maxq pipeline archive run|verify|compact`: topics or store files to Parquet, with a proof of coverage."""

import re
from collections.abc import Mapping
from typing import Annotated

import typer

from maxq.cli.connection import connected
from maxq.cli.help_pages import CommandApp
from maxq.cli.lazy import NearGroup
from maxq.cli.options import split_assignments
from maxq.cli.pipeline.common import (
    BrokerName,
    Options,
    Stores,
    need_archive,
    need_name_server,
    need_stores,
    print_result,
    reading,
)
from maxq.cli.pipeline.spark_run import DRIVER_MEMORY, AsJson, DriverMemory, Master, need_spark, spark_run
from maxq.cli.terminal.ends import ExitCode
from maxq.cli.terminal.report import Report, Style, show
from maxq.errors import ConfigError

app = CommandApp(
    cls=NearGroup,
    no_args_is_help=True,
    help="Archives of topics, and their proof.",
)

_MIB = 1 << 20
_TERM = r"\d+(\.\d+)?\s+(microsecond|millisecond|second|minute|hour|day|week)s?"
_INTERVAL = re.compile(rf"\s*(interval\s+)?{_TERM}(\s+{_TERM})*\s*", re.IGNORECASE)

To = Annotated[str, typer.Argument(metavar="ARCHIVE", help="The archive's folder, or a URI such as s3://bucket/path.")]
Topics = Annotated[list[str] | None, typer.Option("-t", "--topic", help="A topic; may be repeated.")]
Pattern = Annotated[str | None, typer.Option(help="All topics whose names match this regular expression instead.")]


def _interval(text: str | None) -> str | None:
    """Check an interval before Spark starts. Raises typer.BadParameter."""
    if text is not None and not _INTERVAL.fullmatch(text):
        raise typer.BadParameter(f"{text!r} is no time between triggers: give numbers with units, such as '10 seconds'")
    return text


def _selected(topics: list[str] | None, pattern: str | None) -> dict[str, str]:
    if bool(topics) == (pattern is not None):
        raise typer.BadParameter("name topics with --topic, or give a --pattern")
    return {"subscribePattern": pattern} if pattern is not None else {"subscribe": ",".join(topics or ())}


@app.command("run")
@connected
def run(
    archive: To,
    topic: Topics = None,
    pattern: Pattern = None,
    store: Stores = None,
    broker_name: BrokerName = "",
    option: Options = None,
    stream: Annotated[
        bool, typer.Option("--stream", help="As a stream with a checkpoint, as far as there is.")
    ] = False,
    every: Annotated[
        str | None,
        typer.Option(callback=_interval, help="As a stream without end, triggered this often, such as '10 seconds'."),
    ] = None,
    as_json: AsJson = False,
    master: Master = None,
    driver_memory: DriverMemory = DRIVER_MEMORY,
    *,
    namesrv: str,
) -> None:
    """Archive what is there and not in the archive yet. A run may be repeated, and others may run beside it."""
    need_spark()
    from maxq.pipeline.archive.folder import ArchiveFolder
    from maxq.pipeline.jobs.archive.job import ArchiveConfig, archive_once, archive_stream

    if store:
        if pattern is not None or stream or every is not None:
            raise ConfigError("--store goes with --topic, --broker-name and --option failOnDataLoss=false only")
        given = split_assignments(option or (), option="--option")
        config = ArchiveConfig(archive, given, tuple(store), tuple(topic or ()), broker_name)
        need_stores(store)
    else:
        config = ArchiveConfig(archive, {**reading(namesrv, option), **_selected(topic, pattern)})
    target = ArchiveFolder(archive)
    need_name_server(config.options)
    with spark_run("archive", master=master, driver_memory=driver_memory, quiet=as_json) as spark:
        if not stream and every is None:
            result = archive_once(spark, config).to_json()
        else:
            before = {entry.path for entry in target.manifest().files}
            query = archive_stream(spark, config, interval=every)
            query.awaitTermination()
            files = [entry for entry in target.manifest().files if entry.path not in before]
            rows, size = sum(entry.rows for entry in files), sum(entry.bytes for entry in files)
            result = {"messages": rows, "files": len(files), "bytes": size}
    print_result(result, as_json)


@app.command("verify")
@connected
def verify(
    archive: To,
    topic: Topics = None,
    pattern: Pattern = None,
    option: Options = None,
    offline: Annotated[bool, typer.Option("--offline", help="Ask no broker: look at the archive alone.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Look at the sizes of files, not into them.")] = False,
    complete: Annotated[
        bool, typer.Option("--complete", help="Messages that are not archived yet at the end of queues are faults.")
    ] = False,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Take missing and damaged files out, so that the next run writes them again."),
    ] = False,
    as_json: AsJson = False,
    master: Master = None,
    driver_memory: DriverMemory = DRIVER_MEMORY,
    *,
    namesrv: str,
) -> None:
    """Prove that the archive has every message that the brokers have, each once and whole. Exit code 1: it has not."""
    need_spark()
    from maxq.pipeline.archive.folder import ArchiveFolder
    from maxq.pipeline.jobs.archive.verify import VerifyConfig, archive_repair, archive_verify

    options: Mapping[str, str] = {}
    archived = ArchiveFolder(archive).existing()
    if not offline:
        if not topic and pattern is None:
            topic = archived.topics()
        options = {**reading(namesrv, option), **_selected(topic, pattern)}
    config = VerifyConfig(archive, options, quick, complete)
    need_name_server(options)
    with spark_run("archive verify", master=master, driver_memory=driver_memory, quiet=as_json) as spark:
        result = archive_verify(spark, config)
        removed = archive_repair(spark, config) if repair else 0
    summary = result.to_json()
    if repair:
        summary["removed"] = removed
    if as_json:
        show(Report({}, [], value=summary), Style.JSON)
    else:
        names = ("kind", "topic", "brokerName", "queueId", "firstOffset", "lastOffset", "file", "detail")
        notes = [
            f"{summary['messages']:,} messages in {summary['files']} files, {len(summary['queues'])} queues: "
            + ("all is well" if result.ok else "there are faults")
        ]
        if repair:
            notes.append(f"{removed} files were taken out (damaged ones are in _damaged): run the archive again")
        rows = [[finding[name] for name in names] for finding in summary["findings"]]
        show(Report({name: f"#{name}" for name in names}, rows, notes=notes), Style.TEXT)
    if not result.ok:
        raise typer.Exit(ExitCode.FAILED)


@app.command("compact")
def compact(
    archive: To,
    topic: Topics = None,
    target_mib: Annotated[int, typer.Option(min=1, help="Size of a file, about; half of it is not small.")] = 128,
    as_json: AsJson = False,
    master: Master = None,
    driver_memory: DriverMemory = DRIVER_MEMORY,
) -> None:
    """Make few files of the many small ones of a topic and day; they have the same messages, which is checked."""
    need_spark()
    from maxq.pipeline.jobs.archive.compact import CompactConfig, archive_compact

    config = CompactConfig(archive, target_mib * _MIB, tuple(topic or ()))
    need_archive(archive)
    with spark_run("archive compact", master=master, driver_memory=driver_memory, quiet=as_json) as spark:
        result = archive_compact(spark, config)
    print_result(result.to_json(), as_json)


@app.command("table")
def table(
    archive: To,
    name: Annotated[str, typer.Argument(metavar="TABLE", help="Its name in the session's catalog.")],
    kind: Annotated[str, typer.Option("--format", help="Of a new table: parquet, delta, iceberg …")] = "parquet",
    topic: Topics = None,
    as_json: AsJson = False,
    master: Master = None,
    driver_memory: DriverMemory = DRIVER_MEMORY,
) -> None:
    """Append what a table has not yet, such as one of Delta or Iceberg where the session (spark-submit) has them."""
    need_spark()
    from maxq.pipeline.jobs.archive.table import TableConfig, archive_table

    config = TableConfig(archive, name, kind, tuple(topic or ()))
    need_archive(archive)
    with spark_run("archive table", master=master, driver_memory=driver_memory, quiet=as_json) as spark:
        result = archive_table(spark, config)
    print_result(result.to_json(), as_json)
