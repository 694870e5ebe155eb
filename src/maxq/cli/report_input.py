"""What the commands `trace` and `stats` share: which messages their reports are made of."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from maxq.cli.options import split_assignments
from maxq.cli.pipeline_common import time_ms
from maxq.cli.spark_run import DEFAULT_NAMESRV

if TYPE_CHECKING:
    from maxq.pipeline.jobs.message_input import MessageInput

Namesrv = Annotated[
    str | None,
    typer.Option("-n", "--namesrvAddr", help="Name servers, host:port separated by ';'. Else NAMESRV_ADDR."),
]
Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page with plots.")]


def input_of(
    topics: tuple[str, ...],
    namesrv: str | None,
    stores: list[str] | None,
    begin: str | None,
    end: str | None,
    options: list[str] | None,
) -> "MessageInput":
    """What these options ask for. Raises ConfigError."""
    from maxq.pipeline.jobs.message_input import MessageInput

    if namesrv is None and not stores:
        namesrv = os.environ.get("NAMESRV_ADDR") or DEFAULT_NAMESRV
    extra = split_assignments(options or (), option="--option")
    return MessageInput(topics, namesrv, tuple(stores or ()), time_ms(begin), time_ms(end), extra)
