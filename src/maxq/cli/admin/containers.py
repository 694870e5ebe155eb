"""Commands of mqadmin for RocketMQ's broker container: several brokers in one process. MaxQ has `--workers` instead."""

from typing import Annotated

import typer

from maxq.cli.admin.command import command
from maxq.cli.terminal.report import Report, done_report
from maxq.client.admin.admin import Admin
from maxq.errors import ConfigError

app = typer.Typer(rich_markup_mode=None)

Container = Annotated[str, typer.Option("-c", "--brokerContainerAddr", help="The container, host:port.")]


@command(app, "addBroker")
async def add_broker(
    admin: Admin,
    container: Container,
    path: Annotated[str, typer.Option("-b", "--brokerConfigPath", help="Settings file, on the container's machine.")],
) -> Report:
    """Start a broker in a broker container."""
    await admin.brokers.add_to_container(container, path)
    return done_report(f"add broker to {container} success", container=container, configPath=path)


@command(app, "removeBroker", asks="Stop broker {identity} of the container {container}?")
async def remove_broker(
    admin: Admin,
    container: Container,
    identity: Annotated[str, typer.Option("-b", "--brokerIdentity", help="cluster:brokerName:id")],
) -> Report:
    """Stop a broker of a broker container."""
    cluster, _, rest = identity.partition(":")
    name, _, number = rest.rpartition(":")
    if not cluster or not name or not number.isdecimal():
        raise ConfigError(f"-b {identity!r} is not allowed: it must be cluster:brokerName:id, the id a number")
    await admin.brokers.remove_from_container(container, cluster, name, int(number))
    return done_report(f"remove broker from {container} success", container=container, broker=identity)
