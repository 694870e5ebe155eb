"""`maxq pipeline replay`: messages of an archive or of store directories back into topics."""

from pathlib import Path
from typing import Annotated

import typer

from maxq.cli.connection import connected
from maxq.cli.help_pages import CommandApp
from maxq.cli.options import finite, split_assignments
from maxq.cli.pipeline.common import (
    Begin,
    BrokerName,
    End,
    Key,
    Options,
    Stores,
    Tags,
    Where,
    need_archive,
    need_name_server,
    need_stores,
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

app = CommandApp()


@app.command()
@connected
def replay(
    archive: Annotated[str | None, typer.Argument(metavar="[ARCHIVE]", help="The archive's folder or URI.")] = None,
    store: Stores = None,
    broker_name: BrokerName = "",
    topic: Annotated[list[str] | None, typer.Option("-t", "--topic", help="Only messages of this topic.")] = None,
    begin: Begin = None,
    end: End = None,
    key: Key = None,
    tag: Tags = None,
    where: Where = None,
    to: Annotated[
        list[str] | None,
        typer.Option(metavar="[TOPIC=]TOPIC", help="Where to: all messages, or those of one topic (may be repeated)."),
    ] = None,
    queues: Annotated[str, typer.Option(help="any, same (by number), or key (by the first key).")] = "any",
    queue_map: Annotated[
        list[str] | None, typer.Option("--queue-map", metavar="FROM=TO", help="With --queues same: another number.")
    ] = None,
    drop_keys: Annotated[bool, typer.Option("--drop-keys", help="Send them without keys.")] = False,
    drop_tags: Annotated[bool, typer.Option("--drop-tags", help="Send them without tags.")] = False,
    set_property: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A property that each message gets.")
    ] = None,
    drop_property: Annotated[
        list[str] | None, typer.Option("--drop", metavar="NAME", help="A property that is left out.")
    ] = None,
    origin: Annotated[
        bool, typer.Option("--origin", help="Properties ORIGIN_… tell when and where each message was stored.")
    ] = False,
    rate: Annotated[float | None, typer.Option(callback=finite, help="At most this many messages a second.")] = None,
    speed: Annotated[
        float | None, typer.Option(callback=finite, help="Of the pace at which they were stored; 1 is the original.")
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="File that records what was sent: another run sends only the rest."),
    ] = None,
    exactly_once: Annotated[
        bool, typer.Option("--exactly-once", help="MaxQ brokers take each piece of the work once, whatever fails.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be sent.")] = False,
    option: Options = None,
    as_json: AsJson = False,
    master: Master = None,
    driver_memory: DriverMemory = DRIVER_MEMORY,
    *,
    namesrv: str,
) -> None:
    """Send messages of an archive or of store directories again, those of a queue in their order."""
    need_spark()
    from maxq.pipeline.jobs.replay import ReplayConfig, replay, replay_counts
    from maxq.pipeline.transforms.pace import Pace
    from maxq.pipeline.transforms.replay import Chosen, Mapped

    one, several = _targets(to or [])
    mapped = Mapped(
        several, one, queues, _numbers(queue_map), tuple(drop_property or ()),
        split_assignments(set_property or (), option="--set"),
        keep_keys=not drop_keys, keep_tags=not drop_tags, keep_timestamps=origin,
    )  # fmt: skip
    config = ReplayConfig(
        reading(namesrv, option),
        archive,
        tuple(store or ()),
        broker_name,
        Chosen(tuple(topic or ()), time_ms(begin), time_ms(end), key, tuple(tag or ()), where),
        mapped,
        Pace(rate, speed),
        record,
        exactly_once,
    )
    need_stores(config.store)
    if config.archive is not None:
        need_archive(config.archive)
    if not dry_run:
        need_name_server(config.options)
    with spark_run("replay", master=master, driver_memory=driver_memory, quiet=as_json) as spark:
        if dry_run:
            counts = replay_counts(spark, config)
            names, rows = counts.columns, counts.collect()
        else:
            result = replay(spark, config).to_json()
    if dry_run:
        print_rows(rows, names, as_json, messages=sum(row.messages for row in rows))
    else:
        print_result(result, as_json)


def _targets(to: list[str]) -> tuple[str | None, dict[str, str]]:
    single = [target for target in to if "=" not in target]
    if single and len(to) > 1:
        raise ConfigError("--to names one topic for all messages, or pairs TOPIC=TOPIC, not both")
    return (single[0] if single else None), split_assignments([pair for pair in to if "=" in pair], option="--to")


def _numbers(pairs: list[str] | None) -> dict[int, int]:
    found = split_assignments(pairs or (), option="--queue-map")
    try:
        return {int(old): int(new) for old, new in found.items()}
    except ValueError:
        raise ConfigError(f"--queue-map {', '.join(pairs or ())}: queues are numbers") from None
