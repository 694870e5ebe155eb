"""`maxq pipeline rebuild`: ConsumeQueue and IndexFile files from CommitLog files."""

from pathlib import Path, PurePath
from typing import Annotated

import typer

from maxq.cli.help_pages import CommandApp
from maxq.cli.options import folder
from maxq.cli.pipeline.common import print_result
from maxq.cli.pipeline.spark_run import DRIVER_MEMORY, AsJson, DriverMemory, Master, need_spark, spark_run
from maxq.errors import ConfigError
from maxq.store.tools.store_files import StoreSettings

app = CommandApp()

_PIECE_MIB = 128

Directory = Annotated[
    Path, typer.Argument(parser=folder, metavar="DIR", help="The store's root directory (storePathRootDir).")
]
Conf = Annotated[
    Path | None,
    typer.Option("--conf", "-c", exists=True, dir_okay=False, help="broker.conf, for settings that no file shows."),
]


@app.command()
def rebuild(
    directory: Directory,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", file_okay=False, help="A new folder for the files; the store stays as it is."),
    ] = None,
    in_place: Annotated[bool, typer.Option("--in-place", help="In place of the store's own files.")] = False,
    conf: Conf = None,
    hash_slots: Annotated[int, typer.Option(min=0, help="maxHashSlotNum of the index files.")] = 0,
    index_entries: Annotated[int, typer.Option(min=0, help="maxIndexNum of the index files.")] = 0,
    index_tags: Annotated[
        bool | None, typer.Option(help="Index tags, too, as RocketMQ 5.5 does; else as its own index has it.")
    ] = None,
    piece_mib: Annotated[int, typer.Option(min=1, help="MiB of log a task.")] = _PIECE_MIB,
    as_json: AsJson = False,
    master: Master = None,
    driver_memory: DriverMemory = DRIVER_MEMORY,
) -> None:
    """ConsumeQueue and IndexFile files from CommitLog files, in parallel, byte for byte what the broker would have
    written; a broker then starts on them without reading the log again. The broker must not be running."""
    if (output is None) != in_place:
        raise ConfigError("give --output DIR for a new folder, or --in-place to replace the store's queues and index")
    need_spark()
    from maxq.pipeline.jobs.rebuild.job import RebuildOptions, checked_config, rebuild
    from maxq.pipeline.store.store_folder import open_store

    settings = None if conf is None else StoreSettings.from_properties(conf.read_bytes(), source=str(conf))
    files = open_store(str(directory), settings, hash_slots=hash_slots, index_entries=index_entries)
    target = None if output is None else PurePath(output.absolute())
    options = RebuildOptions(target, index_tags, piece_mib << 20)
    checked_config(files, options)
    with spark_run("rebuild", master=master, driver_memory=driver_memory, quiet=as_json) as spark:
        report = rebuild(spark, files, options)
    print_result(report.to_json(), as_json)
