"""`maxq bench`: load of several kinds against any RocketMQ-compatible broker; one JSON object a measurement.

Without --address a standalone server of our own is started on a temporary store, and its CPU and memory measured.
The names of options and results are those of the neutral instrument (a Go program) that our figures are judged by.
"""

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from maxq import __version__
from maxq.cli.lazy import NearGroup
from maxq.cli.load.measure import LoadError, measure
from maxq.cli.load.request import RefusedError, Target
from maxq.cli.load.server_process import StandaloneProcess
from maxq.cli.load.worker import Plan
from maxq.cli.load.workloads import WORKLOADS, plan_of
from maxq.cli.options import split_assignments
from maxq.errors import ConfigError, MaxQError

app = typer.Typer(
    cls=NearGroup,
    help="Generate load and measure: one JSON object a line.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)

_GENERATOR_CORES_MAX = 0.9  # of each process; above it the generator may be what limits

Address = Annotated[
    str | None, typer.Option("--address", help="Broker, host:port; without it a server of our own is started.")
]
Pids = Annotated[str, typer.Option("--pid", help="Processes of the server, comma separated: CPU and memory.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Broker property of our own server.")
]
Conns = Annotated[int, typer.Option(min=1, max=900, help="Connections.")]
Inflight = Annotated[int, typer.Option(min=1, max=4096, help="Requests outstanding on each.")]
Size = Annotated[int, typer.Option(min=16, max=1 << 22, help="Body bytes.")]
Batch = Annotated[int, typer.Option(min=1, max=4096, help="Messages a send.")]
Rate = Annotated[float, typer.Option(min=0, help="Sends a second in all, whatever the answers (open loop); 0: closed.")]
Maximum = Annotated[int, typer.Option("--max", min=1, max=32, help="Messages a pull.")]
Secs = Annotated[float, typer.Option(min=0.1, help="Measured seconds.")]
Warm = Annotated[float, typer.Option(min=0, help="Seconds before that are not measured.")]
Ser = Annotated[str, typer.Option(help="Header form: json or rocketmq.")]
Topic = Annotated[str, typer.Option(help="Topic, created if need be.")]
Queues = Annotated[int, typer.Option(min=1, max=10, help="Its queues.")]
Processes = Annotated[int, typer.Option(min=1, max=64, help="Generator processes for each of sending and pulling.")]


@app.command(short_help="Send as fast as it goes, or at a fixed rate.")
def send(
    address: Address = None,
    pid: Pids = "",
    set_: Settings = None,
    conns: Conns = 8,
    inflight: Inflight = 32,
    size: Size = 1024,
    batch: Batch = 1,
    rate: Rate = 0.0,
    secs: Secs = 10.0,
    warm: Warm = 3.0,
    ser: Ser = "json",
    topic: Topic = "bench",
    queues: Queues = 8,
    processes: Processes = 1,
) -> None:
    """Send: pipelined, one at a time (--inflight 1), in batches, or at a fixed rate."""
    form = _header_form(ser)
    with _server(address, pid, set_) as (target, pids):
        plan = Plan(
            mode="send",
            target=target,
            conns=conns,
            inflight=inflight,
            size=size,
            batch=batch,
            rate=rate,
            secs=secs,
            warm=warm,
            ser=form,
            topic=topic,
            queues=queues,
            processes=processes,
        )
        _report("send", plan, pids)


@app.command(short_help="Pull what is there.")
def consume(
    address: Address = None,
    pid: Pids = "",
    conns: Conns = 8,
    maximum: Maximum = 32,
    secs: Secs = 10.0,
    warm: Warm = 3.0,
    ser: Ser = "json",
    topic: Topic = "bench",
    queues: Queues = 8,
    processes: Processes = 1,
    fill: Annotated[int, typer.Option(min=0, help="MiB sent before, if the server is our own.")] = 256,
) -> None:
    """Pull what is there, again from the start at the end of each queue."""
    form = _header_form(ser)
    with _server(address, pid, None) as (target, pids):
        if address is None and fill:
            _fill(target, topic, queues, fill)
        plan = Plan(
            mode="consume",
            target=target,
            conns=conns,
            max=maximum,
            secs=secs,
            warm=warm,
            ser=form,
            topic=topic,
            queues=queues,
            processes=processes,
        )
        _report("consume", plan, pids)


@app.command(short_help="Send and long-poll at once.")
def both(
    address: Address = None,
    pid: Pids = "",
    set_: Settings = None,
    conns: Conns = 4,
    inflight: Inflight = 32,
    size: Size = 1024,
    rate: Rate = 0.0,
    maximum: Maximum = 32,
    secs: Secs = 10.0,
    warm: Warm = 3.0,
    ser: Ser = "json",
    topic: Topic = "bench",
    queues: Queues = 8,
    processes: Processes = 1,
) -> None:
    """Send and long-poll at once; the end-to-end latency is from before the send to after the pull."""
    form = _header_form(ser)
    with _server(address, pid, set_) as (target, pids):
        plan = Plan(
            mode="both",
            target=target,
            conns=conns,
            inflight=inflight,
            size=size,
            rate=rate,
            max=maximum,
            secs=secs,
            warm=warm,
            ser=form,
            topic=topic,
            queues=queues,
            processes=processes,
        )
        _report("both", plan, pids)


@app.command(short_help="The workloads of the published figures.")
def suite(
    address: Address = None,
    pid: Pids = "",
    set_: Settings = None,
    only: Annotated[str, typer.Option(help="Names, comma separated; all of them if empty.")] = "",
    secs: Secs = 8.0,
    warm: Warm = 3.0,
) -> None:
    """The workloads that figures are published for, one after the other."""
    names = [name for name in only.split(",") if name] or list(WORKLOADS)
    unknown = [name for name in names if name not in WORKLOADS]
    if unknown:
        raise typer.BadParameter(f"unknown workload {', '.join(unknown)}: there are {', '.join(WORKLOADS)}")
    with _server(address, pid, set_) as (target, pids):
        for name in names:
            if sys.stderr.isatty():
                print(f"{name} …", file=sys.stderr)
            _report(name, plan_of(name, target, secs=secs, warm=warm), pids)


@contextlib.contextmanager
def _server(address: str | None, pids: str, settings: list[str] | None) -> Iterator[tuple[Target, Sequence[int]]]:
    """The broker under load and its processes; one of our own if no address is given."""
    if address is None:
        if pids:
            raise typer.BadParameter("--pid goes with --address: the processes of a server of our own are known")
        with StandaloneProcess(split_assignments(settings or ())) as server:
            yield server.target, [server.pid]
        return
    if settings:
        raise typer.BadParameter("--set is for a server of our own; a running one is set with `maxq admin`")
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal():
        raise typer.BadParameter(f"--address {address!r} is not host:port")
    try:
        numbers = [int(pid) for pid in pids.split(",") if pid]
    except ValueError:
        raise typer.BadParameter(f"--pid {pids!r} is not a list of process numbers") from None
    yield Target(host, int(port)), numbers


def _fill(target: Target, topic: str, queues: int, mebibytes: int) -> None:
    while sum(target.max_offset(topic, queue) for queue in range(queues)) < mebibytes << 10:
        plan = Plan(
            mode="send", target=target, topic=topic, queues=queues, batch=32, conns=4, inflight=8, secs=1, warm=0
        )
        measure(plan, [])


def _report(name: str, plan: Plan, pids: Sequence[int]) -> None:
    try:
        result = measure(plan, pids)
    except (LoadError, RefusedError) as error:
        raise MaxQError(f"{name}: {error}") from None
    print(json.dumps({"workload": name, "maxq": __version__} | result), flush=True)
    generator = result["generator"]
    if generator["cores"] > _GENERATOR_CORES_MAX * generator["processes"]:
        print(f"maxq: warning: the generator itself used {generator['cores']} cores: try --processes", file=sys.stderr)


def _header_form(name: str) -> str:
    if name not in ("json", "rocketmq"):
        raise ConfigError(f"--ser {name!r} is not allowed: it must be json or rocketmq")
    return name
