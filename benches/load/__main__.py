"""Load of several kinds against any RocketMQ-compatible broker; prints one JSON object a measurement.

    python -m benches.load send --conns 8 --inflight 32 --size 1024

Without --address a standalone server of our own is started on a temporary store, and its CPU and memory measured.
The names of options and results are those of the neutral instrument (a Go program) that our figures are judged by.
"""

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benches.load.measure import LoadError, measure
from benches.load.request import RefusedError, Target
from benches.load.worker import Plan
from benches.load.workloads import WORKLOADS, plan_of
from maxq import __version__
from maxq.errors import MaxQError
from maxq.testing.server_process import StandaloneProcess

_GENERATOR_CORES_MAX = 0.9  # of each process; above it the generator may be what limits


def number(kind: type[int] | type[float], low: float, high: float = float("inf")) -> Callable[[str], float]:
    """A parser of numbers from `low` to `high`."""

    def parse(text: str) -> float:
        value = kind(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text} is not from {low} to {high}")
        return value

    parse.__name__ = "number"
    return parse


def assignment(text: str) -> tuple[str, str]:
    """A parser of KEY=VALUE."""
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


OPTIONS: dict[str, dict[str, Any]] = {
    "conns": {"type": number(int, 1, 900), "help": "connections"},
    "inflight": {"type": number(int, 1, 4096), "help": "requests outstanding on each"},
    "size": {"type": number(int, 16, 1 << 22), "help": "body bytes"},
    "batch": {"type": number(int, 1, 4096), "help": "messages a send"},
    "rate": {"type": number(float, 0), "help": "sends a second in all, whatever the answers (open loop); 0: closed"},
    "max": {"type": number(int, 1, 32), "help": "messages a pull"},
    "secs": {"type": number(float, 0.1), "help": "measured seconds"},
    "warm": {"type": number(float, 0), "help": "seconds before that are not measured"},
    "ser": {"choices": ("json", "rocketmq"), "help": "header form"},
    "topic": {"help": "topic, created if need be"},
    "queues": {"type": number(int, 1, 10), "help": "its queues"},
    "processes": {"type": number(int, 1, 64), "help": "generator processes for each of sending and pulling"},
}
COMMON = ("conns", "secs", "warm", "ser", "topic", "queues", "processes")
SENDING = ("inflight", "size", "rate")
#: Mode: its summary, its options, and the defaults that are not the Plan's.
MODES: dict[str, tuple[str, tuple[str, ...], dict[str, Any]]] = {
    "send": ("send as fast as it goes, or at a fixed rate", (*COMMON, *SENDING, "batch"), {}),
    "consume": ("pull what is there, again from the start at the end of each queue", (*COMMON, "max"), {}),
    "both": ("send and long-poll at once; end to end from before the send", (*COMMON, *SENDING, "max"), {"conns": 4}),
}


def arguments() -> argparse.ArgumentParser:
    """The command line: a command for each mode, and `suite`."""
    parser = argparse.ArgumentParser(prog="benches.load", description="Generate load and measure.")
    commands = parser.add_subparsers(dest="command", required=True)
    server = argparse.ArgumentParser(add_help=False)
    server.add_argument("--address", help="broker, host:port; without it a server of our own is started")
    server.add_argument("--pid", default="", help="processes of the server, comma separated: CPU and memory")
    server.add_argument(
        "--set", metavar="KEY=VALUE", action="append", type=assignment, default=[], help="of our own server"
    )
    for mode, (summary, names, defaults) in MODES.items():
        command = commands.add_parser(mode, help=summary, description=summary, parents=[server])
        for name in names:
            default = defaults.get(name, getattr(Plan, name))
            command.add_argument(f"--{name}", default=default, **OPTIONS[name])
        if mode == "consume":
            fill = "MiB sent before, if the server is our own"
            command.add_argument("--fill", type=number(int, 0), default=256, help=fill)
    suite = commands.add_parser("suite", help="the workloads that figures are published for", parents=[server])
    suite.add_argument("--only", default="", help="names, comma separated; all of them if empty")
    suite.add_argument("--secs", default=8.0, **OPTIONS["secs"])
    suite.add_argument("--warm", default=3.0, **OPTIONS["warm"])
    return parser


def main() -> None:
    """Measure what the command line asks for."""
    parser = arguments()
    given = parser.parse_args()
    names: list[str] = []
    if given.command == "suite":
        names = [name for name in given.only.split(",") if name] or list(WORKLOADS)
        if unknown := [name for name in names if name not in WORKLOADS]:
            parser.error(f"unknown workload {', '.join(unknown)}: there are {', '.join(WORKLOADS)}")
    try:
        with _server(given, parser) as (target, pids):
            for name in names:
                report(name, plan_of(name, target, secs=given.secs, warm=given.warm), pids)
            if given.command in MODES:
                if given.command == "consume" and given.address is None:
                    fill(target, given.topic, given.queues, given.fill)
                options = {name: getattr(given, name) for name in MODES[given.command][1]}
                report(given.command, Plan(mode=given.command, target=target, **options), pids)
    except (LoadError, RefusedError, MaxQError, OSError) as error:
        sys.exit(f"{parser.prog}: {error}")


@contextlib.contextmanager
def _server(given: argparse.Namespace, parser: argparse.ArgumentParser) -> Iterator[tuple[Target, Sequence[int]]]:
    """The broker under load and its processes; one of our own if no address is given."""
    if given.address is None:
        if given.pid:
            parser.error("--pid goes with --address: the processes of a server of our own are known")
        with StandaloneProcess(dict(given.set)) as server:
            yield Target.at(server.broker_address), [server.pid]
        return
    if given.set:
        parser.error("--set is for a server of our own; a running one is set with `maxq admin`")
    try:
        target, pids = Target.at(given.address), [int(pid) for pid in given.pid.split(",") if pid]
    except ValueError as error:
        parser.error(f"--address or --pid: {error}")
    yield target, pids


def fill(target: Target, topic: str, queues: int, mebibytes: int) -> None:
    """Send until the topic has so many messages of 1 KiB."""
    while sum(target.max_offset(topic, queue) for queue in range(queues)) < mebibytes << 10:
        plan = Plan(
            mode="send", target=target, topic=topic, queues=queues, batch=32, conns=4, inflight=8, secs=1, warm=0
        )
        measure(plan, [])


def report(name: str, plan: Plan, pids: Sequence[int]) -> None:
    """Measure, and print the result; a warning if the generator itself may have been what limits."""
    result = measure(plan, pids)
    print(json.dumps({"workload": name, "maxq": __version__} | result), flush=True)
    generator = result["generator"]
    if generator["cores"] > _GENERATOR_CORES_MAX * generator["processes"]:
        print(f"warning: the generator itself used {generator['cores']} cores: try --processes", file=sys.stderr)


if __name__ == "__main__":
    main()
