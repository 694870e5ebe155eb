"""Shared options of the commands that make reports: the page's file, and the messages that it covers."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from maxq.cli.connection import usual_name_servers
from maxq.cli.pipeline.common import format_options, time_ms
from maxq.cli.pipeline.spark_run import need_spark

if TYPE_CHECKING:
    from maxq.pipeline.jobs.message_input import MessageInput


def _page(path: Path | None) -> Path | None:
    """Check before all the work that the page can be written. Raises typer.BadParameter."""
    if path is not None and path.is_dir():
        raise typer.BadParameter(f"{path} is a folder: name a file in it, such as {path / 'report.html'}")
    if path is not None and not path.parent.is_dir():
        raise typer.BadParameter(f"{path} can not be written, for the folder {path.parent} is not there: make it first")
    return path


Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page with plots.", callback=_page)]


def need_reports() -> None:
    """Raise PipelineError with the remedy if the packages for pages are not installed."""
    need_spark("matplotlib")


def input_of(
    topics: tuple[str, ...],
    namesrv: str | None,
    stores: list[str] | None,
    begin: str | None,
    end: str | None,
    options: list[str] | None,
) -> "MessageInput":
    """Return the input that these options name. Raises ConfigError."""
    from maxq.pipeline.jobs.message_input import MessageInput

    if namesrv is None and not stores:
        namesrv = usual_name_servers()
    return MessageInput(topics, namesrv, tuple(stores or ()), time_ms(begin), time_ms(end), format_options(options))
