"""What all commands on Spark have in common: the session, the formats, a progress bar, errors in one line.

    with spark_run("archive", spark_options, quiet=as_json) as spark:
        …

pyspark is imported when the command runs, never by the command line's start.
"""

import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from maxq.errors import PipelineError

DEFAULT_NAMESRV = "127.0.0.1:9876"

Namesrv = Annotated[
    str,
    typer.Option("-n", "--namesrvAddr", envvar="NAMESRV_ADDR", help="Name servers, host:port separated by ';'."),
]
Master = Annotated[
    str | None,
    typer.Option(help="Spark's master, such as local[4] or spark://host:7077; else spark-submit's, else all cores."),
]
DriverMemory = Annotated[str, typer.Option(help="Heap of Spark's Java process.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

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
        quiet: no progress bar. There is none either if standard error is no terminal.

    Raises:
        PipelineError: Spark is not installed, finds no Java, or what failed in it, in one line.
    """
    need_spark()
    from maxq.pipeline.registration import register
    from maxq.pipeline.session import using_session
    from maxq.pipeline.spark.errors import SPARK_ERRORS, plain_text

    with using_session(f"maxq {title}", master=master, driver_memory=driver_memory) as spark:
        register(spark)
        try:
            with progress_bar(spark, title, quiet=quiet):
                yield spark
        except SPARK_ERRORS as error:
            raise PipelineError(plain_text(error)) from error


def need_spark(*others: str) -> None:
    """Raises PipelineError with the remedy if Spark, or one of the other packages, is not installed."""
    for package in ("pyspark", "pyarrow", "pandas", *others):
        if importlib.util.find_spec(package) is None:
            raise PipelineError(f"{package} is not installed: `pip install 'maxq[spark]'`")


@contextlib.contextmanager
def progress_bar(spark: Any, title: str, *, quiet: bool) -> Iterator[None]:
    """Tasks of the session's jobs, on standard error. Standard output is left alone: it may be a file."""
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
