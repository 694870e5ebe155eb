"""What all admin commands have in common: the name server, a connected Admin, the forms of output."""

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Concatenate, ParamSpec

import typer

from maxq.cli.report import Report, Style, show
from maxq.client.admin.admin import Admin
from maxq.client.client_config import ClientConfig
from maxq.errors import ConfigError
from maxq.machine import system_seams

P = ParamSpec("P")
Function = Callable[Concatenate[Admin, P], Awaitable[Report]]

DEFAULT_NAMESRV = "127.0.0.1:9876"
_TIMEOUT_MS = 15_000

Namesrv = Annotated[
    str,
    typer.Option("-n", "--namesrvAddr", envvar="NAMESRV_ADDR", help="Name servers, host:port separated by ';'."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AsTable = Annotated[bool, typer.Option("--table", help="Print a drawn table.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV.")]

Interval = Annotated[
    float | None, typer.Option("-i", "--interval", min=0.1, help="Ask again every so many seconds, until Ctrl-C.")
]

Topic = Annotated[str, typer.Option("-t", "--topic", help="Topic.")]
BrokerAddr = Annotated[str | None, typer.Option("-b", "--brokerAddr", help="One broker, host:port.")]
ClusterName = Annotated[str | None, typer.Option("-c", "--clusterName", help="All brokers of a cluster.")]
Via = Annotated[
    str | None, typer.Option("-c", "--cluster", help="Ask its brokers: a cluster's name, or an LMQ's parent topic.")
]

_COMMON = {
    "namesrv": (Namesrv, DEFAULT_NAMESRV),
    "as_json": (AsJson, False),
    "as_table": (AsTable, False),
    "as_csv": (AsCsv, False),
}
_INTERVAL = "interval"


def command(app: typer.Typer, name: str, *, repeats: bool = False) -> Callable[[Function[P]], Function[P]]:
    """Make `async def f(admin, *, options…) -> Report` the command `name`; its docstring is the help.

    Args:
        repeats: it has mqadmin's `-i SECONDS`: ask and print again and again.
    """

    def register(function: Function[P]) -> Function[P]:
        def run(**values: Any) -> None:
            namesrv = values.pop("namesrv")
            styles = {Style.JSON: "as_json", Style.TABLE: "as_table", Style.CSV: "as_csv"}
            wanted = [style for style, option in styles.items() if values.pop(option)]
            if len(wanted) > 1:
                raise typer.BadParameter("--json, --table and --csv exclude each other")
            style = wanted[0] if wanted else Style.TEXT
            asyncio.run(_ask(function, namesrv, values, values.pop(_INTERVAL, None), style))

        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        options = {_INTERVAL: (Interval, None), **_COMMON} if repeats else _COMMON
        common = [
            inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for option, (annotation, default) in options.items()
        ]
        parameters = [*(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own), *common]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__doc__ = function.__doc__
        app.command(name)(run)
        return function

    return register


async def _ask(
    function: Callable[..., Awaitable[Report]],
    namesrv: str,
    values: dict[str, Any],
    interval: float | None,
    style: Style,
) -> None:
    config = ClientConfig(namesrv_addr=namesrv, mq_client_api_timeout=_TIMEOUT_MS)
    async with Admin(config, system_seams(namesrv)) as admin:
        while True:
            show(await function(admin, **values), style)
            if interval is None:
                return
            sys.stdout.flush()
            await asyncio.sleep(interval)


async def addresses(admin: Admin, broker: str | None, cluster: str | None, *, masters: bool = True) -> list[str]:
    """The brokers that `-b` or `-c` mean: one address, or the masters (or all) of a cluster.

    Raises:
        ConfigError: neither or both are given.
    """
    if (broker is None) == (cluster is None):
        raise ConfigError("one of -b/--brokerAddr and -c/--clusterName is needed")
    if broker is not None:
        return [broker]
    assert cluster is not None
    if masters:
        return await admin.brokers.masters_of_cluster(cluster)
    return await admin.brokers.addresses_of_cluster(cluster)
