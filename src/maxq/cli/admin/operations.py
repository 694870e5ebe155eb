"""Commands that only MaxQ has: why-slow, purgeTopic."""

from typing import Annotated, Any

import typer

from maxq.cli.admin.command import BrokerAddr, ClusterName, Topic, addresses, command
from maxq.cli.admin.fan_out import Outcomes, ask_each
from maxq.cli.help_pages import CommandApp
from maxq.cli.options import server_address
from maxq.cli.terminal.confirm import Yes, confirm
from maxq.cli.terminal.report import Report
from maxq.cli.terminal.times import format_time, parse_time
from maxq.client.admin.admin import Admin
from maxq.machine import system_environment

app = CommandApp()

_STAGES = {"stage": "#Stage", "share": "#Share", "p50Us": "#p50 us", "p99Us": "#p99 us", "maxUs": "#Max us"}
_PURGED = {
    "broker": "#Broker",
    "queueId": "#QID",
    "minOffset": "#Min Offset",
    "newMinOffset": "#New Min Offset",
    "maxOffset": "#Max Offset",
    "messages": "#Messages",
}


@command(app, "why-slow", repeats=True)
async def why_slow(
    admin: Admin,
    broker: Annotated[
        str, typer.Argument(metavar="BROKER", callback=server_address, help="Its address, host or host:port.")
    ],
) -> Report:
    """Where the time of recent sends went on a MaxQ broker, by stage, what it refused and why, and what held it.

    One arrival of sends in 128 is followed. flush and replicate are waited for side by side, so the shares can add
    up to more than 100%."""
    found = await admin.operations.why_slow(broker)
    rows = [
        (stage["stage"], f"{stage['share']:.0%}", stage["p50Us"], stage["p99Us"], stage["maxUs"])
        for stage in [*found["stages"], found["total"]]
    ]
    return Report(_STAGES, rows, value=found, notes=_notes(found))


def _notes(found: dict[str, Any]) -> list[str]:
    if not found["samples"]:
        notes = ["no sends were followed yet"]
    else:
        since = format_time(found["fromMs"])
        notes = [
            f"{found['samples']} arrivals with {found['messages']} messages since {since}, one in {found['oneIn']}"
        ]
        worst = found["slowest"][0]
        stages = {name.removesuffix("Us"): value for name, value in worst.items() if name.endswith("Us")}
        stages.pop("total")
        longest = max(stages, key=lambda name: stages[name])
        notes.append(
            f"slowest: {worst['totalUs'] / 1000:.2f} ms at {format_time(worst['wallMs'])}, "
            f"{stages[longest] / 1000:.2f} ms of it {longest}"
        )
    notes += [
        f"held all others up [{hold['cause']}]: {hold['count']} times above 50 ms, longest {hold['longestMs']:.0f} ms"
        for hold in found.get("holds", [])
    ]
    notes += [f"refused [{cause}]: {count}" for cause, count in sorted(found["refused"].items())]
    return notes


@command(app, "purgeTopic")
async def purge_topic(
    admin: Admin,
    topic: Topic,
    broker: BrokerAddr = None,
    cluster: ClusterName = None,
    queue_id: Annotated[int | None, typer.Option("-q", "--queueId", min=0, help="One queue; all without it.")] = None,
    before: Annotated[str | None, typer.Option("--before", metavar="TIME", help="Messages stored before then.")] = None,
    before_offset: Annotated[
        int | None, typer.Option("--beforeOffset", min=0, help="Messages with a smaller queue offset.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dryRun", help="Only say what would be hidden.")] = False,
    yes: Yes = False,
) -> Report:
    """Hide the messages of a topic: all that there are, or those before a time or an offset.

    Readers go on behind them at once; log files that hold nothing else are deleted. Consumers that have not read them
    never will. Only on MaxQ brokers."""
    before_ms = None if before is None else parse_time(before, system_environment("").clock)
    targets = await addresses(admin, broker, cluster)

    async def purge(address: str, dry: bool) -> dict[str, Any]:
        return await admin.operations.purge_topic(
            address, topic, queue_id=queue_id, before_ms=before_ms, before_offset=before_offset, dry_run=dry
        )

    done = await ask_each(targets, lambda address: purge(address, True))
    if not dry_run and done.answers:
        count = sum(answer["messages"] for answer in done.answers.values())
        confirm(f"Hide {count} messages of topic {topic} on {len(done.answers)} brokers for good?", yes=yes)
        hidden = await ask_each(done.answers, lambda address: purge(address, False))
        done = Outcomes(hidden.answers, {**done.failures, **hidden.failures})
    rows = [
        (address, row["queueId"], row["minOffset"], row["newMinOffset"], row["maxOffset"], row["messages"])
        for address, answer in done.answers.items()
        for row in answer["queues"]
    ]
    notes = [
        f"group {row['group']} has not read {row['unread']} of them"
        for answer in done.answers.values()
        for row in answer["groups"]
        if row["unread"]
    ]
    return Report(_PURGED, rows, value={"brokers": dict(done.answers)}, notes=notes, failures=done.failures)
