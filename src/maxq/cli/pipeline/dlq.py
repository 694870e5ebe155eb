"""`maxq pipeline dlq show|export|redrive`: dead letters as a table."""

from pathlib import Path
from typing import Annotated, Any

import typer

from maxq.cli.connection import connected
from maxq.cli.help_pages import CommandApp
from maxq.cli.lazy import NearGroup
from maxq.cli.pipeline.common import (
    Begin,
    End,
    Key,
    Options,
    Tags,
    Where,
    need_name_server,
    print_result,
    print_rows,
    reading,
    time_ms,
)
from maxq.cli.pipeline.spark_run import (
    DRIVER_MEMORY,
    AsJson,
    DriverMemory,
    Master,
    need_spark,
    spark_run,
)
from maxq.errors import ConfigError

app = CommandApp(
    cls=NearGroup,
    no_args_is_help=True,
    help="Dead letters of consumer groups, with Spark.",
)

_SHOWN = ("group", "originTopic", "originMsgId", "tries", "cause", "tags", "keys", "bornTimestamp", "storeTimestamp")

Groups = Annotated[list[str] | None, typer.Argument(metavar="[GROUP]...", help="Consumer groups; none: all.")]
Origin = Annotated[list[str] | None, typer.Option("-t", "--topic", help="Only those that came from this topic.")]
Tries = Annotated[
    int | None, typer.Option("--tries", min=0, help="retryMaxTimes of the groups, where messages do not say it.")
]


def _config(
    groups: list[str] | None,
    namesrv: str,
    option: list[str] | None,
    topic: list[str] | None,
    begin: str | None,
    end: str | None,
    key: str | None,
    tag: list[str] | None,
    where: str | None,
    tries: int | None,
) -> Any:
    need_spark()
    from maxq.pipeline.jobs.dlq import DlqConfig
    from maxq.pipeline.transforms.replay import Chosen

    chosen = Chosen(tuple(topic or ()), time_ms(begin), time_ms(end), key, tuple(tag or ()), where)
    return DlqConfig(reading(namesrv, option), tuple(groups or ()), chosen, tries)


@app.command("show")
@connected
def show_letters(
    group: Groups = None,
    topic: Origin = None,
    begin: Begin = None,
    end: End = None,
    key: Key = None,
    tag: Tags = None,
    where: Where = None,
    tries: Tries = None,
    summary: Annotated[bool, typer.Option("--summary", help="Only how many, by group, topic and cause.")] = False,
    count: Annotated[int, typer.Option("-c", "--count", min=1, help="At most this many.")] = 128,
    option: Options = None,
    as_json: AsJson = False,
    master: Master = None,
    driver_memory: DriverMemory = DRIVER_MEMORY,
    *,
    namesrv: str,
) -> None:
    """Show dead letters, their original messages and, where known, why they died."""
    config = _config(group, namesrv, option, topic, begin, end, key, tag, where, tries)
    from maxq.pipeline.jobs.dlq import check_groups, dlq_counts, dlq_letters

    need_name_server(config.options)
    check_groups(config)
    with spark_run("dlq", master=master, driver_memory=driver_memory, quiet=as_json) as spark:
        letters = dlq_letters(spark, config)
        table = dlq_counts(letters) if summary else letters.select(*_SHOWN).orderBy("storeTimestamp").limit(count)
        names, rows = table.columns, table.collect()
    print_rows(rows, names, as_json)


@app.command("export")
@connected
def export(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A new folder, or a URI.")],
    group: Annotated[list[str] | None, typer.Option("-g", "--group", help="A consumer group; none: all.")] = None,
    topic: Origin = None,
    begin: Begin = None,
    end: End = None,
    key: Key = None,
    tag: Tags = None,
    where: Where = None,
    tries: Tries = None,
    kind: Annotated[str, typer.Option("--format", help="parquet, json or orc.")] = "parquet",
    option: Options = None,
    as_json: AsJson = False,
    master: Master = None,
    driver_memory: DriverMemory = DRIVER_MEMORY,
    *,
    namesrv: str,
) -> None:
    """Write the table of dead letters into files."""
    config = _config(group, namesrv, option, topic, begin, end, key, tag, where, tries)
    from maxq.pipeline.jobs.dlq import check_export, check_groups, dlq_export, dlq_letters

    check_export(folder, kind)
    need_name_server(config.options)
    check_groups(config)
    with spark_run("dlq export", master=master, driver_memory=driver_memory, quiet=as_json) as spark:
        dlq_export(dlq_letters(spark, config), folder, kind)
        rows = spark.read.format(kind).load(folder).count()
    print_result({"letters": rows, "folder": folder, "format": kind}, as_json)


@app.command("redrive")
@connected
def redrive(
    group: Annotated[list[str], typer.Argument(metavar="GROUP...", help="Consumer groups.")],
    record: Annotated[
        Path, typer.Option(dir_okay=False, help="File of the letters that were sent; none of them is sent again.")
    ],
    to: Annotated[
        str,
        typer.Option(help="retry: only the group gets them; origin: every group of the topics they came from does."),
    ] = "retry",
    to_topic: Annotated[str | None, typer.Option("--to-topic", help="To this topic instead.")] = None,
    topic: Origin = None,
    begin: Begin = None,
    end: End = None,
    key: Key = None,
    tag: Tags = None,
    where: Where = None,
    tries: Tries = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count those that would be sent.")] = False,
    option: Options = None,
    as_json: AsJson = False,
    master: Master = None,
    driver_memory: DriverMemory = DRIVER_MEMORY,
    *,
    namesrv: str,
) -> None:
    """Send dead letters again, with no tries counted; they stay where they are. Stop a group that consumes in order
    before: otherwise its broker makes the messages dead letters again."""
    if to not in ("retry", "origin"):
        raise ConfigError(f"--to is {to!r}; it must be retry or origin")
    config = _config(group, namesrv, option, topic, begin, end, key, tag, where, tries)
    from maxq.pipeline.jobs.dlq import RedriveConfig, check_groups, dlq_redrive

    target = to_topic if to_topic is not None else ("" if to == "origin" else None)
    wanted = RedriveConfig(config, record, target)
    need_name_server(config.options)
    check_groups(config)
    with spark_run("dlq redrive", master=master, driver_memory=driver_memory, quiet=as_json) as spark:
        result = dlq_redrive(spark, wanted, dry_run=dry_run)
    name = "letters" if dry_run else "sent"
    print_result({name: result.rows, "sentBefore": result.before}, as_json)
