"""`maxq standalone`, `maxq namesrv`, `maxq broker`: processes that serve until SIGINT or SIGTERM.

The servers are imported by the command that runs them: a name server needs no store.
"""

import asyncio
import faulthandler
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from maxq.cli.gc_freeze import SurvivorFreeze
from maxq.cli.help_pages import CommandApp
from maxq.cli.options import folder, name_servers, split_assignments
from maxq.cli.terminal.server_lines import Ready, say
from maxq.cli.terminal.service_manager import tell_service_manager
from maxq.config import BrokerSettings, NamesrvSettings
from maxq.config.host import broker_on, has_access_control, is_loopback, namesrv_on, where_it_listens
from maxq.config.properties import format_properties, parse_properties
from maxq.config.settings import DEFAULT_BROKER_PORT, DEFAULT_GRPC_PORT, DEFAULT_NAMESRV_PORT
from maxq.errors import ConfigError, StoreFailedError
from maxq.machine import new_event_loop, raise_file_limit, system_host
from maxq.runtime.files.system import SystemClock, SystemDisk, SystemRng
from maxq.runtime.log_limits import LineLimit

app = CommandApp()

#: Called with the name of a service and the error by which it ended.
FailureListener = Callable[[str, BaseException], None]

log = logging.getLogger(__name__)

_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
#: Options of `maxq standalone`, and the properties of a settings file that they replace.
_STANDALONE_OPTIONS: Final = {
    "store": ("storePathRootDir",), "broker_port": ("listenPort", "haListenPort"), "host": ("bindAddress", "brokerIP1"),
    "grpc_port": ("grpcServerPort",),
}  # fmt: skip
#: Seconds after which a thread that writes a table gives the interpreter to the event loop; Python's default is 5 ms.
_SWITCH_SECONDS = 0.0001

SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A broker property by RocketMQ's name; may be repeated."),
]
ReadyFileOption = Annotated[
    Path | None, typer.Option(help="Created when clients can connect.", metavar="FILE", dir_okay=False)
]
EndWithInputOption = Annotated[
    bool, typer.Option("--end-with-input", help="Also end when standard input does: for supervisors.")
]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Log events, too, not only warnings and errors.")]


@app.command()
def standalone(
    context: typer.Context,
    conf: Annotated[
        Path | None, typer.Option("-c", "--config", metavar="FILE", help="broker.conf: properties by RocketMQ's names.")
    ] = None,
    store: Annotated[Path, typer.Option(parser=folder, help="Folder to keep messages in.", metavar="DIR")] = Path(
        "maxq-store"
    ),
    host: Annotated[
        str, typer.Option(help="Address to listen on and to give to clients; 0.0.0.0: all of this machine.")
    ] = "127.0.0.1",
    namesrv_port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = DEFAULT_NAMESRV_PORT,
    broker_port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = DEFAULT_BROKER_PORT,
    grpc_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="For clients of RocketMQ 5.x; 0 takes a free one. Not given: 8081, or none if that is taken.",
        ),
    ] = None,
    ready_file: ReadyFileOption = None,
    set_: SetOption = None,
    end_with_input: EndWithInputOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Name server and broker in one process: cluster DefaultCluster, broker broker-a, unless a settings file or --set
    says otherwise. Options come before the file."""
    from maxq.standalone import StandaloneServer

    started = time.monotonic()
    configure_logging(verbose)
    raise_file_limit()
    file = _file_properties(conf, "brokerConfigPath")
    for option, names in _STANDALONE_OPTIONS.items():
        source = context.get_parameter_source(option)
        if source is not None and source.name == "COMMANDLINE":
            for name in names:
                file.pop(name, None)
    if file.get("listenPort", "").isdecimal():
        broker_port = int(file.pop("listenPort"))  # its other ports lie beside it
    if file.pop("namesrvAddr", ""):
        warn([f"{_named(conf)}: namesrvAddr is not used: maxq standalone has a name server of its own"])
    given = split_assignments(set_ or ())
    takes_default = grpc_port is None and not (given.keys() | file.keys()) & {"grpcServerPort"}
    if takes_default:
        grpc_port = DEFAULT_GRPC_PORT
    server = StandaloneServer(
        store, host, namesrv_port, broker_port, given, file_settings=file, grpc_port=grpc_port, **_environment()
    )
    server.needs_grpc = not takes_default
    warn(server.warnings)

    def ready() -> Ready:
        facts = {"name server": server.namesrv_address, "broker": server.broker_address}
        taken = f"none: port {DEFAULT_GRPC_PORT} is taken; --grpc-port chooses another one"
        facts |= {"gRPC": server.grpc_address or (taken if takes_default else "none"), "store": str(server.store)}
        if not is_loopback(server.bind_address):
            facts |= where_it_listens(server.bind_address, server.is_guarded)
        return Ready("standalone", server.broker_name, time.monotonic() - started, facts)

    serve(
        "standalone", server.start, server.shutdown, ready, ready_file,
        set_failure_listener=server.set_failure_listener, end_with_input=end_with_input,
    )  # fmt: skip


@app.command()
def namesrv(
    port: Annotated[
        int | None,
        typer.Option("-p", "--port", min=0, max=65535, help="Port to listen on; 0: a free one. 9876 if not given."),
    ] = None,
    conf: Annotated[
        Path | None, typer.Option("-c", "--config", metavar="FILE", help="Properties by RocketMQ's names.")
    ] = None,
    ready_file: ReadyFileOption = None,
    verbose: VerboseOption = False,
) -> None:
    """A name server. Without --config it has the settings that were changed while an earlier one ran without."""
    from maxq.namesrv.controller import NamesrvController
    from maxq.standalone import naming_port

    started = time.monotonic()
    configure_logging(verbose)
    raise_file_limit()
    host = system_host()
    changed = Path(namesrv_on(NamesrvSettings(), host).namesrv.config_store_path)
    own = conf or (changed if changed.exists() else None)
    file = _file_properties(own, "configStorePath")
    if conf is None:  # a Java name server writes all its settings there, also on which address it listened
        file = NamesrvSettings().changeable(file)
    settings, warnings = NamesrvSettings.from_properties(file, source=f"file {own}")
    if port is not None:
        settings, _ = settings.overlay({"listenPort": str(port)}, source="-p")
    warn(warnings)
    settings = namesrv_on(settings, host)
    server = NamesrvController(settings, **_environment())

    async def start() -> None:
        with naming_port(settings.server.bind_address, settings.server.listen_port, "name server", "-p"):
            await server.start()

    def ready() -> Ready:
        guarded = has_access_control(settings.namesrv.acl_enable, settings.auth)
        facts = {"port": str(server.port), **where_it_listens(settings.server.bind_address, guarded)}
        if own is not None and conf is None:
            facts["settings"] = str(own)
        return Ready("namesrv", "", time.monotonic() - started, facts)

    serve("namesrv", start, server.shutdown, ready, ready_file)


@app.command()
def broker(
    conf: Annotated[
        Path | None, typer.Option("-c", "--config", metavar="FILE", help="broker.conf: properties by RocketMQ's names.")
    ] = None,
    namesrv: Annotated[
        str | None,
        typer.Option(
            "-n", "--namesrvAddr", callback=name_servers, help="Name servers, host or host:port separated by ';'."
        ),
    ] = None,
    print_settings: Annotated[
        bool, typer.Option("-p", "--printConfigItem", help="Print all settings and end.")
    ] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, max=256, metavar="N", help="Run N brokers, one process each.")
    ] = None,
    ready_file: ReadyFileOption = None,
    set_: SetOption = None,
    end_with_input: EndWithInputOption = False,
    settings_from_input: Annotated[
        bool,
        typer.Option(
            "--settings-from-input", help="Read properties, a JSON object in one line, from standard input first."
        ),
    ] = False,
    verbose: VerboseOption = False,
) -> None:
    """A broker, or with --workers several of them on this machine."""
    started = time.monotonic()
    configure_logging(verbose)
    raise_file_limit()
    settings, warnings = BrokerSettings.from_properties(
        _file_properties(conf, "brokerConfigPath"), source=f"file {conf}"
    )
    if namesrv is not None:
        settings, _ = settings.overlay({"namesrvAddr": namesrv}, source="-n")
    given = read_settings(sys.stdin.fileno()) if settings_from_input else {}
    given |= split_assignments(set_ or ())
    settings, more = settings.overlay(given, source="--set")
    warn((*warnings, *more))
    settings = broker_on(settings, system_host())
    if print_settings:
        print(format_properties(settings.snapshot()), end="")
        return
    if workers is not None:
        from maxq.cli.commands.workers import run_workers

        raise typer.Exit(run_workers(settings, workers, conf, namesrv, given, ready_file))
    from maxq.broker.controller import BrokerController
    from maxq.standalone import naming_port

    server = BrokerController(settings, **_environment())

    async def start() -> None:
        where = settings.server.bind_address, settings.server.listen_port
        with naming_port(*where, "broker", "--set listenPort=…"):
            await server.start()

    def ready() -> Ready:
        guarded = has_access_control(settings.broker.acl_enable, settings.auth)
        facts = {"port": str(server.port), "store": settings.store.store_path_root_dir}
        facts |= server.role.facts() | where_it_listens(settings.server.bind_address, guarded)
        return Ready("broker", settings.broker.broker_name, time.monotonic() - started, facts)

    serve(
        "broker", start, server.shutdown, ready, ready_file,
        set_failure_listener=server.set_failure_listener, end_with_input=end_with_input,
    )  # fmt: skip


def serve(
    command: str,
    start: Callable[[], Coroutine[Any, Any, None]],
    shutdown: Callable[[], Awaitable[None]],
    ready: Callable[[], Ready],
    ready_file: Path | None,
    *,
    set_failure_listener: Callable[[FailureListener], None] | None = None,
    end_with_input: bool = False,
) -> None:
    """Start the server `maxq command`, report that it is ready by the result of `ready`, by the ready file and to the
    service manager, wait for SIGINT or SIGTERM, shut down, and say why.

    The ready file is removed first and again at the end: it exists only while the server answers.

    Args:
        set_failure_listener: how the server is told whom to call when one of its services has failed.
        end_with_input: shut down as well when standard input ends, which it does when who held its other end is gone.

    Raises:
        ConfigError: the ready file cannot be made.
        StoreFailedError: a service failed. The server was shut down as far as it could be.
    """
    if ready_file is not None and not os.access(ready_file.parent, os.W_OK | os.X_OK):
        why = "may not be written to" if ready_file.parent.is_dir() else "is no folder"
        raise ConfigError(f"the ready file {ready_file} cannot be made: {ready_file.parent} {why}")

    async def run() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        failures: list[StoreFailedError] = []
        reasons: list[str] = []
        freeze = SurvivorFreeze()

        def failed(service: str, error: BaseException) -> None:
            failure = StoreFailedError(f"{service} failed, the server has ended: {error}")
            failure.__cause__ = error
            failures.append(failure)
            stop.set()

        def asked(why: str) -> None:
            reasons.append(why)
            stop.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, asked, number.name)
        if end_with_input:
            _watch_input(loop, partial(asked, "end of input"))
        if set_failure_listener is not None:
            set_failure_listener(failed)
        if ready_file is not None:
            ready_file.unlink(missing_ok=True)
        starting = asyncio.create_task(start())
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()  # raises the error of the start
                freeze.start()
                ready().say()
                if ready_file is not None:
                    ready_file.touch()
                tell_service_manager("READY=1")
                await stopping
            else:  # the server was told to end before its start, perhaps a long recovery, was finished
                starting.cancel()
                await asyncio.gather(starting, return_exceptions=True)
        finally:
            stopping.cancel()
            freeze.stop()
            tell_service_manager("STOPPING=1")
            try:
                await shutdown()
            except Exception as error:
                if not failures:
                    raise
                log.error("the shutdown after a failure failed too: %s", error, exc_info=error)
            if ready_file is not None:
                ready_file.unlink(missing_ok=True)
        if failures:
            raise failures[0]
        say("ended", f"maxq: the server has ended: {reasons[0]}", server=command, reason=reasons[0])

    with suppress(OSError, RuntimeError):  # without a standard error nobody reads it
        faulthandler.enable()  # a process that the system ends for what it touched says where that was
    sys.setswitchinterval(_SWITCH_SECONDS)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(run())


def _watch_input(loop: asyncio.AbstractEventLoop, ended: Callable[[], None]) -> None:
    """Call `ended` when standard input has ended; earlier input is discarded."""
    descriptor = sys.stdin.fileno()

    def readable() -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            ended()

    loop.add_reader(descriptor, readable)


def configure_logging(verbose: bool) -> None:
    """Configure logs to standard error: warnings and errors, or with `verbose` everything; no cause floods them."""
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, format=_LOG_FORMAT, stream=sys.stderr)
    logging.getLogger("maxq.audit").setLevel(logging.INFO)  # changes by administrators are always logged
    for handler in logging.getLogger().handlers:
        handler.addFilter(LineLimit(SystemClock(), complete=frozenset({"maxq.audit"})))


def warn(sentences: Iterable[str]) -> None:
    """Print each sentence as a line on standard error."""
    for sentence in sentences:
        print(f"maxq: warning: {sentence}", file=sys.stderr, flush=True)


def _environment() -> dict[str, Any]:
    return {"disk": SystemDisk(), "clock": SystemClock(), "rng": SystemRng()}


def read_settings(descriptor: int) -> dict[str, str]:
    """Read the properties that a supervisor writes into a pipe, as a JSON object in one line.

    Raises:
        ConfigError: it wrote something else. Secrets may stand there, so none of it is told.
    """
    line = bytearray()
    while not line.endswith(b"\n") and (piece := os.read(descriptor, 65_536)):
        line += piece
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ConfigError('--settings-from-input: standard input begins with a line such as {"brokerName": "b"}')
    return found


def _file_properties(conf: Path | None, path_setting: str) -> dict[str, str]:
    """Return the properties of a settings file and, under `path_setting`, its path; empty without a file."""
    if conf is None:
        return {}
    try:
        data = conf.read_bytes()
    except OSError as error:
        raise ConfigError(f"{_named(conf)} can not be read: {error.strerror}") from None
    return {**parse_properties(data, source=_named(conf)), path_setting: str(conf)}


def _named(conf: Path | None) -> str:
    return f"file {conf}" if conf else "defaults"
