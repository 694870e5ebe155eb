"""Shared parts of all commands on Spark: the session, the formats, a progress bar, errors in one line.

    with spark_run("archive", spark_options, quiet=as_json) as spark:
        …

pyspark is imported when the command runs, never by the command line's start.
"""

import contextlib
import importlib.util
import re
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from maxq.cli.help_pages import OUTPUT, SPARK
from maxq.cli.terminal.ctrl_c import ctrl_c_ends_start, ended_by_ctrl_c
from maxq.errors import PipelineError

_MASTER = re.compile(r"local(-cluster)?(\[[^]]+\])?|yarn|(spark|k8s)://.+")
_MEMORY = re.compile(r"\d+[kmgt]b?", re.IGNORECASE)


def master_of_spark(text: str | None) -> str | None:
    """Check the master before Java starts, which would print a stack trace about it. Used as a callback. Raises
    typer.BadParameter."""
    if text is not None and not _MASTER.fullmatch(text):
        raise typer.BadParameter(f"{text!r} is no master of Spark's: give local[2], spark://host:7077, yarn or k8s://…")
    return text


def java_memory(text: str) -> str:
    """Check the size of memory before Java starts. Used as a callback. Raises typer.BadParameter."""
    if not _MEMORY.fullmatch(text):
        raise typer.BadParameter(f"{text!r} is no size of memory: give a number with its unit, such as 512m or 2g")
    return text


Master = Annotated[
    str | None,
    typer.Option(
        callback=master_of_spark,
        rich_help_panel=SPARK,
        help="Spark's master, such as local[4] or spark://host:7077; else spark-submit's, else all cores.",
    ),
]
DriverMemory = Annotated[
    str, typer.Option(callback=java_memory, rich_help_panel=SPARK, help="Heap of Spark's Java process.")
]
AsJson = Annotated[bool, typer.Option("--json", rich_help_panel=OUTPUT, help="Print JSON.")]

DRIVER_MEMORY = "1g"


@contextlib.contextmanager
def spark_run(
    title: str, *, master: str | None = None, driver_memory: str = DRIVER_MEMORY, quiet: bool = False
) -> Iterator[Any]:
    """A Spark session with MaxQ's formats, ended with the block; yields the SparkSession.

    The progress bar draws over what is printed on the same terminal meanwhile: print results after the block.

    Args:
        title: of the application and the progress bar.
        master, driver_memory: as the options of these names.
        quiet: no progress bar. There is no progress bar either if standard error is not a terminal.

    Raises:
        KeyboardInterrupt: Ctrl-C, unless what it ended was a stream, for which that is the way.
        ConfigError: a setting that is wrong, wherever that was found.
        PipelineError: Spark is not installed, finds no Java, does not start, or what failed in it, in one line.
    """
    need_spark()
    from maxq.pipeline.registration import register
    from maxq.pipeline.session import using_session
    from maxq.pipeline.spark.errors import SPARK_ERRORS, as_ours
    from maxq.pipeline.spark.start import watching_start

    try:
        with contextlib.ExitStack() as stack:
            with watching_start() as java, ctrl_c_ends_start(java):
                session = using_session(f"maxq {title}", master=master, driver_memory=driver_memory)
                spark = stack.enter_context(session)
            stack.enter_context(ended_by_ctrl_c(spark))
            register(spark)
            stack.enter_context(progress_bar(spark, title, quiet=quiet))
            yield spark
    except SPARK_ERRORS as error:
        raise as_ours(error) from error


def need_spark(*others: str) -> None:
    """Raise PipelineError with the remedy if Spark, or one of the other packages, is not installed."""
    for package in ("pyspark", "pyarrow", "pandas", *others):
        if importlib.util.find_spec(package) is None:
            raise PipelineError(f"{package} is not installed: `pip install 'maxq[spark]'`")


@contextlib.contextmanager
def progress_bar(spark: Any, title: str, *, quiet: bool) -> Iterator[None]:
    """Show the tasks of the session's jobs on standard error. Standard output is left alone, because it may be a
    file."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from maxq.pipeline.jobs.progress import TaskCount, watching

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[tasks]}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as bar:
        row = bar.add_task(title, total=None, tasks="")

        def tell(count: TaskCount) -> None:
            text = f"{count.done}/{count.total} tasks" if count.total else ""
            bar.update(row, completed=count.done, total=count.total or None, tasks=text)

        with watching(spark, tell):
            yield
