"""DLedger groups: who is in which role, how far everybody is; handing the leadership over."""

from typing import Annotated, Any

import typer

from maxq.cli.admin.command import BrokerAddr, ClusterName, addresses, command
from maxq.cli.help_pages import CommandApp
from maxq.cli.terminal.report import Report, done_report
from maxq.client.admin.admin import Admin
from maxq.client.instance.dledger_client import DLedgerClient
from maxq.errors import ConfigError, DLedgerError, MaxQError
from maxq.machine import system_environment

app = CommandApp()

COLUMNS = {
    "group": "#Group",
    "member": "#Member",
    "address": "#Address",
    "role": "#Role",
    "term": "#Term",
    "leader": "#Leader",
    "begin": "#Begin",
    "end": "#End",
    "durable": "#Durable",
    "committed": "#Committed",
    "behind": "#Behind",
}
_FIELDS = ("role", "term", "leaderId", "ledgerBeginIndex", "ledgerEndIndex", "durableIndex", "committedIndex")
_TEXTS = ("role", "leaderId")
_END = 3 + _FIELDS.index("ledgerEndIndex")

To = Annotated[str, typer.Option("--to", metavar="ID", help="The member that should lead.")]


@command(app, "dledgerStatus", repeats=True)
async def dledger_status(admin: Admin, broker: BrokerAddr = None, cluster: ClusterName = None) -> Report:
    """Roles, terms and indices of DLedger groups, asked of every member itself. With -c the groups of a cluster."""
    groups = await _groups(admin, await addresses(admin, broker, cluster, masters=False))
    rows, failures = [], {}
    for group, peers in groups.items():
        found, failed = await member_rows(group, peers)
        rows += found
        failures.update(failed)
    return Report(COLUMNS, rows, failures=failures)


@command(app, "dledgerTransfer", asks="Make {to} the leader of the group of broker {broker}?")
async def dledger_transfer(admin: Admin, broker: BrokerAddr, to: To) -> Report:
    """Hand the leadership of a broker's DLedger group over to a member; returns when it leads. No send that was
    acknowledged is lost, sends meanwhile are refused for some milliseconds."""
    if broker is None:
        raise ConfigError("-b/--brokerAddr is needed: any broker of the group")
    ((group, peers),) = (await _groups(admin, [broker])).items()
    await transfer(group, peers, to)
    return done_report(f"{to} leads group {group}", group=group, leader=to)


async def member_rows(group: str, peers: dict[str, str]) -> tuple[list[tuple[Any, ...]], dict[str, str]]:
    """Return a row for each member that answers, and why the others do not."""
    rows: list[tuple[Any, ...]] = []
    failures: dict[str, str] = {}
    client = _client(group, peers)
    try:
        for member, address in peers.items():
            try:
                reply = await client.metadata(member)
            except MaxQError as error:
                failures[f"{member} {address}"] = str(error)
                continue
            status = reply.status or {"leaderId": reply.leader_id or ""}  # Java's tells only who leads
            rows.append((group, member, address, *(_fact(name, status.get(name, "")) for name in _FIELDS)))
    finally:
        await client.close()
    end = max((row[_END] for row in rows if row[_END] is not None), default=0)
    return [(*row, None if row[_END] is None else end - row[_END]) for row in rows], failures


def _fact(name: str, text: str) -> str | int | None:
    if name in _TEXTS:
        return text
    return int(text) if text else None


async def transfer(group: str, peers: dict[str, str], to: str) -> None:
    """Make the leader hand over to `to`.

    Raises:
        ConfigError: no such member.
        DLedgerError: it did not become leader.
    """
    if to not in peers:
        raise ConfigError(f"--to {to}: group {group} has the members {', '.join(peers)}")
    client = _client(group, peers)
    try:
        await client.transfer(to)
    finally:
        await client.close()


def _client(group: str, peers: dict[str, str]) -> DLedgerClient:
    environment = system_environment()
    return DLedgerClient(group, peers, clock=environment.clock, rng=environment.rng)


async def _groups(admin: Admin, brokers: list[str]) -> dict[str, dict[str, str]]:
    """Return group → members, as the brokers' settings name them.

    Raises:
        DLedgerError: none of them is in a group.
    """
    groups: dict[str, dict[str, str]] = {}
    for broker in brokers:
        settings = await admin.brokers.config(broker)
        if settings.get("enableDLegerCommitLog") == "true":
            members = (part.partition("-") for part in settings["dLegerPeers"].split(";") if part)
            groups[settings["dLegerGroup"]] = {member: address for member, _, address in members}
    if not groups:
        raise DLedgerError(301, f"no DLedger group (enableDLegerCommitLog) at {', '.join(brokers)}")
    return groups
