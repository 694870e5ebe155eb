"""Shared parts of all admin commands: the name server, a connected Admin, the forms of output."""

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Concatenate, ParamSpec

import typer

from maxq.cli.admin.fan_out import Answer, Outcomes, ask_each
from maxq.cli.admin.values import refuse_unusable
from maxq.cli.connection import (
    CONNECTION_OPTIONS,
    connection_parameters,
    found_connection,
    use_connection,
    with_signature,
)
from maxq.cli.help_pages import OUTPUT
from maxq.cli.options import finite, server_address
from maxq.cli.terminal.confirm import Yes, confirm
from maxq.cli.terminal.ends import ExitCode
from maxq.cli.terminal.near_names import near_names
from maxq.cli.terminal.report import Report, Style, show
from maxq.client.admin.admin import Admin
from maxq.client.client_config import ClientConfig
from maxq.errors import ClientError, ConfigError
from maxq.machine import system_environment

P = ParamSpec("P")
Function = Callable[Concatenate[Admin, P], Awaitable[Report]]

_TIMEOUT_MS = 15_000

AsJson = Annotated[bool, typer.Option("--json", rich_help_panel=OUTPUT, help="Print JSON.")]
AsTable = Annotated[bool, typer.Option("--table", rich_help_panel=OUTPUT, help="Print a drawn table.")]
AsCsv = Annotated[bool, typer.Option("--csv", rich_help_panel=OUTPUT, help="Print CSV.")]

Interval = Annotated[
    float | None,
    typer.Option("-i", "--interval", min=0.1, callback=finite, help="Repeat after this many seconds, until Ctrl-C."),
]

Topic = Annotated[str, typer.Option("-t", "--topic", help="Topic.")]
BrokerAddr = Annotated[
    str | None, typer.Option("-b", "--brokerAddr", callback=server_address, help="One broker, host or host:port.")
]
ClusterName = Annotated[str | None, typer.Option("-c", "--clusterName", help="All brokers of a cluster.")]
Via = Annotated[
    str | None, typer.Option("-c", "--cluster", help="Ask its brokers: a cluster's name, or an LMQ's parent topic.")
]

_STYLES = {"as_json": AsJson, "as_table": AsTable, "as_csv": AsCsv}
_INTERVAL = "interval"
_YES = "yes"


def command(
    app: typer.Typer, name: str, *, summary: str | None = None, repeats: bool = False, asks: str | None = None
) -> Callable[[Function[P]], Function[P]]:
    """Make `async def f(admin, *, options…) -> Report` the command `name`; its docstring is the help.

    Args:
        summary: for the list of commands, where a line has no room for the docstring's first sentence.
        repeats: it has mqadmin's `-i SECONDS`: ask and print again and again.
        asks: it changes much: the question that is asked first, unless --yes is given. `{name}` stands for the value
            of the function's parameter of that name, `{where}` for the broker or the cluster that was given.
    """

    def register(function: Function[P]) -> Function[P]:
        def run(**values: Any) -> None:
            namesrv = use_connection(found_connection(**{name: values.pop(name) for name in CONNECTION_OPTIONS}))
            refuse_unusable(own, values)
            styles = {Style.JSON: "as_json", Style.TABLE: "as_table", Style.CSV: "as_csv"}
            wanted = [style for style, option in styles.items() if values.pop(option)]
            if len(wanted) > 1:
                raise typer.BadParameter("--json, --table and --csv exclude each other")
            style = wanted[0] if wanted else Style.TEXT
            if asks is not None:
                confirm(asks.format_map({**values, "where": _where(values)}), yes=values.pop(_YES))
            asyncio.run(_ask(function, namesrv, values, values.pop(_INTERVAL, None), style))

        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        more = [_option(option, annotation, False) for option, annotation in _STYLES.items()]
        if repeats:
            more.insert(0, _option(_INTERVAL, Interval, None))
        if asks is not None:
            more.insert(0, _option(_YES, Yes, False))
        with_signature(run, function, [*own, *more, *connection_parameters()])
        app.command(name, short_help=summary)(run)
        return function

    return register


def _option(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _where(values: Mapping[str, Any]) -> str:
    if values.get("broker"):
        return f"broker {values['broker']}"
    return f"all brokers of cluster {values['cluster']}" if values.get("cluster") else "all brokers"


async def _ask(
    function: Callable[..., Awaitable[Report]],
    namesrv: str,
    values: dict[str, Any],
    interval: float | None,
    style: Style,
) -> None:
    config = ClientConfig(namesrv_addr=namesrv, mq_client_api_timeout=_TIMEOUT_MS)
    async with Admin(config, system_environment(namesrv)) as admin:
        while True:
            async with near_names(admin, values.values()):
                report = await function(admin, **values)
            show(report, style)
            if report.failures:
                sys.stdout.flush()
            for server, reason in report.failures.items():
                print(f"maxq: {server}: {reason}", file=sys.stderr)
            if interval is None:
                if report.failures:
                    raise typer.Exit(ExitCode.FAILED)
                return
            sys.stdout.flush()
            await asyncio.sleep(interval)


async def addresses(admin: Admin, broker: str | None, cluster: str | None, *, masters: bool = True) -> list[str]:
    """Return the brokers that `-b` or `-c` names: one address, or the masters (or all) of a cluster.

    Raises:
        ConfigError: neither or both are given.
        ClientError: no broker of the cluster is a master now.
    """
    if (broker is None) == (cluster is None):
        raise ConfigError("one of -b/--brokerAddr and -c/--clusterName is needed")
    if broker is not None:
        return [broker]
    assert cluster is not None
    if masters:
        found = await admin.brokers.masters_of_cluster(cluster)
        if not found:
            raise ClientError(
                f"no broker of cluster {cluster} is a master now; maxq admin clusterList shows those that are there, "
                "and -b asks one of them"
            )
        return found
    return await admin.brokers.addresses_of_cluster(cluster)


async def change_each(
    admin: Admin, broker: str | None, cluster: str | None, change: Callable[[str], Awaitable[Answer]]
) -> Outcomes[Answer]:
    """Change something on the broker that `-b` names, or on the masters of the cluster `-c`. A broker of it that has no
    master now is among the failures.

    Raises:
        ConfigError, ClientError: as `addresses`.
        MaxQError: there is only one to ask, and it failed.
    """
    done = await ask_each(await addresses(admin, broker, cluster), change)
    for data in () if cluster is None else await admin.brokers.of_cluster(cluster):
        if data.master_address is None:
            done.failures[data.broker_name] = f"broker {data.broker_name} has no master now: nothing is changed there"
    return done
