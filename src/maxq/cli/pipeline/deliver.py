"""`maxq pipeline deliver`: delivers the last decided batch of an application that ended before delivering it and will
not run again."""

from typing import Annotated

import typer

from maxq.cli.connection import connected
from maxq.cli.help_pages import CommandApp
from maxq.cli.pipeline.common import Options, need_name_server, print_result, reading
from maxq.cli.pipeline.spark_run import AsJson, need_spark

app = CommandApp()


@app.command()
@connected
def deliver(
    application: Annotated[
        str, typer.Argument(metavar="APPLICATION", help="The option applicationId; of streams without, the query's id.")
    ],
    coordinator: Annotated[
        str | None, typer.Option(help="The broker that keeps the application's decisions, if it was named.")
    ] = None,
    option: Options = None,
    as_json: AsJson = False,
    *,
    namesrv: str,
) -> None:
    """Make the last decided batch of an exactly-once application visible. May be repeated; starts no Spark."""
    need_spark()
    from maxq.pipeline.options.write_options import EXACTLY_ONCE, WriteOptions
    from maxq.pipeline.sink.sink_commit import deliver_last

    options = reading(namesrv, option)
    need_name_server(options)
    options |= {"delivery": EXACTLY_ONCE} | ({"coordinator": coordinator} if coordinator else {})
    print_result(deliver_last(WriteOptions.parse(options), application), as_json)
