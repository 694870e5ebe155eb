"""`maxq proxy`: a gRPC proxy in front of the brokers of a cluster."""

import json
import os
import time
from pathlib import Path
from typing import Annotated, Final

import typer

from maxq.cli.commands.servers import (
    ReadyFileOption,
    SetOption,
    VerboseOption,
    configure_logging,
    serve,
    warn,
)
from maxq.cli.help_pages import CommandApp
from maxq.cli.options import name_servers, split_assignments
from maxq.cli.terminal.server_lines import Ready
from maxq.config.host import is_loopback, proxy_on
from maxq.config.settings import ProxySettings
from maxq.errors import ConfigError
from maxq.machine import raise_file_limit, system_host
from maxq.runtime.files.system import SystemClock, SystemDisk, SystemRng

app = CommandApp()

#: Settings of RocketMQ's proxy that have another name here, because a broker has one of theirs with another meaning.
_NAMES: Final = {"enableTopicMessageTypeCheck": "grpcTopicMessageTypeCheck"}


@app.command()
def proxy(
    conf: Annotated[
        Path | None,
        typer.Option("-c", "--config", metavar="FILE", help="rmq-proxy.json: a JSON object by RocketMQ's names."),
    ] = None,
    namesrv: Annotated[
        str | None,
        typer.Option(
            "-n", "--namesrvAddr", callback=name_servers, help="Name servers, host or host:port separated by ';'."
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("-p", "--port", min=1, max=65535, help="Port for gRPC clients. 8081 if not given."),
    ] = None,
    ready_file: ReadyFileOption = None,
    set_: SetOption = None,
    verbose: VerboseOption = False,
) -> None:
    """A proxy for clients of RocketMQ 5.x, which speak gRPC, in front of the brokers of a cluster. Brokers of MaxQ
    answer such clients themselves (grpcServerPort)."""
    from maxq.proxy.cluster.controller import ProxyController
    from maxq.standalone import naming_port

    started = time.monotonic()
    configure_logging(verbose)
    raise_file_limit()
    settings, warnings = ProxySettings.from_properties(_settings_of(conf), source=f"file {conf}")
    given = {} if namesrv is None else {"namesrvAddr": namesrv}
    if port is not None:
        given["grpcServerPort"] = str(port)
    settings, more = settings.overlay(given | split_assignments(set_ or ()), source="--set")
    warn((*warnings, *more))
    settings = proxy_on(settings, system_host())
    host = system_host()
    server = ProxyController(
        settings, f"{host.address}@{os.getpid()}#proxy", disk=SystemDisk(), clock=SystemClock(), rng=SystemRng()
    )

    async def start() -> None:
        with naming_port(settings.server.bind_address, settings.proxy.grpc_server_port, "gRPC server", "-p"):
            await server.start()

    def ready() -> Ready:
        facts = {"port": str(server.port), "name servers": settings.cluster.namesrv_addr}
        if is_loopback(settings.server.bind_address):
            facts["listens on"] = f"{settings.server.bind_address} only; for other machines set bindAddress"
        return Ready("proxy", "", time.monotonic() - started, facts)

    serve("proxy", start, server.shutdown, ready, ready_file)


def _settings_of(conf: Path | None) -> dict[str, str]:
    """Return the settings of a file by their names here."""
    if conf is None:
        return {}
    try:
        found = json.loads(conf.read_bytes())
    except OSError as error:
        raise ConfigError(f"file {conf} can not be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"file {conf} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"file {conf}: a JSON object is expected, with settings by their names")
    texts = {str(name): value if isinstance(value, str) else json.dumps(value) for name, value in found.items()}
    return {_NAMES.get(name, name): text for name, text in texts.items()}
