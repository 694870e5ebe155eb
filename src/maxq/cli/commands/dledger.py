"""`maxq dledger`: a bare DLedger server, the replicated log without a broker; and its client.

maxq dledger --group g --peers "n0-127.0.0.1:20911;n1-…;n2-…" --id n0        serves
maxq dledger --group g --peers "…" append "text"                             asks the group
maxq dledger --group g --peers "…" --id n0 --base-dir DIR bless              of a member that does not run
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path, PurePath
from typing import Annotated, NamedTuple, TypeVar

import typer

from maxq.cli.admin.dledger import COLUMNS, member_rows, transfer
from maxq.cli.commands.dledger_blessing import blessing_of, stopped_member
from maxq.cli.commands.servers import ReadyFileOption, VerboseOption, configure_logging, serve
from maxq.cli.help_pages import CommandApp
from maxq.cli.lazy import NearGroup
from maxq.cli.terminal.ends import ExitCode
from maxq.cli.terminal.report import Report, Style, show
from maxq.cli.terminal.server_lines import Ready
from maxq.client.instance.dledger_client import DLedgerClient
from maxq.errors import ConfigError
from maxq.machine import raise_file_limit, system_host
from maxq.runtime.files.system import SystemClock, SystemDisk, SystemRng

T = TypeVar("T")

app = CommandApp(
    cls=NearGroup, invoke_without_command=True, help="A bare DLedger server, and its client.",
)  # fmt: skip


class _Asked(NamedTuple):
    """The options that stand before a command."""

    group: str
    peers: str
    id: str
    base_dir: Path


_PORT_MEMBERS = "n0-127.0.0.1:20911"
_DATA_FILE_SIZE = 1 << 30


@app.callback()
def serve_or_ask(
    context: typer.Context,
    group: Annotated[str, typer.Option(help="Name of the group.")] = "default",
    peers: Annotated[str, typer.Option(help="All members, id-host:port joined by ';'.")] = _PORT_MEMBERS,
    id_: Annotated[str, typer.Option("--id", help="This member.")] = "n0",
    base_dir: Annotated[Path, typer.Option(help="Its files go to dledger-ID below this folder.", metavar="DIR")] = Path(
        "dledger-store"
    ),
    data_file_size: Annotated[
        int, typer.Option(help="Bytes of a data file, equal on all members.", min=4096)
    ] = _DATA_FILE_SIZE,
    preferred: Annotated[str, typer.Option(help="Members that should lead, joined by ';'.")] = "",
    heart_beat: Annotated[int, typer.Option(help="Milliseconds between heart-beats.", min=10)] = 400,
    peer_addresses: Annotated[
        str,
        typer.Option(help="Who may connect, members and clients: IP addresses and networks joined by ','. Empty: all."),
    ] = "",
    ready_file: ReadyFileOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Serve one member of a bare DLedger group; or, with a command, ask the group."""
    if context.invoked_subcommand is not None:
        context.obj = _Asked(group, peers, id_, base_dir)
        return
    from maxq.config.host import left_to_connections
    from maxq.replication.dledger.bare_server import BareServer
    from maxq.replication.dledger.config import dledger_config

    started = time.monotonic()
    configure_logging(verbose)
    raise_file_limit()
    config = dledger_config(
        group, id_, peers, preferred=preferred, heart_beat_time_interval_ms=heart_beat, shared=(str(data_file_size),)
    )
    server = BareServer(
        config,
        PurePath(base_dir),
        data_file_size,
        disk=SystemDisk(),
        clock=SystemClock(),
        rng=SystemRng(),
        peer_addresses=peer_addresses,
        highest_descriptor=left_to_connections(system_host().open_files),
    )

    def ready() -> Ready:
        facts = {"group": group, "address": config.self_address}
        return Ready("dledger", id_, time.monotonic() - started, facts)

    serve("dledger", server.start, server.shutdown, ready, ready_file, set_failure_listener=server.set_failure_listener)


@app.command()
def append(
    context: typer.Context,
    body: Annotated[str | None, typer.Argument(help="Text of the entry; without it a line of input is one.")] = None,
) -> None:
    """Append entries; print index and position of each when it is committed."""
    group, members = _group(context)
    with asyncio.Runner() as runner:  # the event loop does not run while input is read, so that Ctrl-C ends the read
        client = DLedgerClient(group, members, clock=SystemClock(), rng=SystemRng())
        try:
            for line in (line.rstrip("\n") for line in sys.stdin) if body is None else [body]:
                reply = runner.run(client.append(line.encode()))
                print(f"{reply.index}\t{reply.pos}", flush=True)
        finally:
            runner.run(client.close())


@app.command()
def get(
    context: typer.Context,
    index: Annotated[int, typer.Argument(help="Index of the first entry.", min=0)],
    count: Annotated[int, typer.Option(help="How many at most.", min=1)] = 1,
) -> None:
    """Print committed entries: index, term, position, body."""

    async def work(client: DLedgerClient) -> None:
        for number in range(index, index + count):
            entry = await client.get(number)
            if entry is None:
                if number == index:
                    print(f"no committed entry {index}", file=sys.stderr)
                    raise typer.Exit(ExitCode.FAILED)
                return
            print(f"{entry.index}\t{entry.term}\t{entry.pos}\t{entry.body.decode(errors='backslashreplace')}")

    _ask(context, work)


@app.command()
def status(
    context: typer.Context, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
) -> None:
    """Role, term and indices of every member."""
    group, members = _group(context)
    rows, failures = asyncio.run(member_rows(group, members))
    show(Report(COLUMNS, rows), Style.JSON if as_json else Style.TEXT)
    if failures:
        sys.stdout.flush()  # errors come behind the table, and not at all when its reader has gone
    for member, reason in failures.items():
        print(f"maxq: {member}: {reason}", file=sys.stderr)
    if failures:
        raise typer.Exit(ExitCode.FAILED)


@app.command("transfer")
def transfer_to(
    context: typer.Context, to: Annotated[str, typer.Argument(help="The member that should lead.")]
) -> None:
    """Hand the leadership over; returns when that member leads."""
    group, members = _group(context)
    asyncio.run(transfer(group, members, to))
    print(f"{to} leads group {group}")


@app.command()
def bless(
    context: typer.Context,
    lost: Annotated[str, typer.Option(help="Members whose stores are lost, joined by ','.")] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Declare the member --id, which has lost acknowledged entries and is stopped, complete again. Only for a group in
    which no majority can restore them: it is refused while one could."""
    group, members = _group(context)
    stopped = stopped_member(context.obj.base_dir, context.obj.id)
    with stopped.locked():
        found = blessing_of(stopped, context.obj.id, group, members, frozenset(filter(None, lost.split(","))))
        refusal = found.refusal()
        if refusal:
            raise ConfigError(refusal)
        for line in found.lines():
            print(line)
        if not yes:
            typer.confirm("Is that what you want?", abort=True)
        stopped.bless(found.term)
    print(f"{context.obj.id} counts as complete; start it")


def _group(context: typer.Context) -> tuple[str, dict[str, str]]:
    from maxq.replication.dledger.config import parse_peers

    if context.obj is None:
        raise ConfigError("--group and --peers say which group is asked")
    return context.obj.group, parse_peers(context.obj.peers)


def _ask(context: typer.Context, work: Callable[[DLedgerClient], Awaitable[T]]) -> T:
    group, members = _group(context)

    async def run() -> T:
        client = DLedgerClient(group, members, clock=SystemClock(), rng=SystemRng())
        try:
            return await work(client)
        finally:
            await client.close()

    return asyncio.run(run())
