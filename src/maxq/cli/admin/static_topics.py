"""Static topic commands of mqadmin."""

from typing import Annotated

import typer

from maxq.cli.admin.command import Topic, command
from maxq.cli.admin.values import is_true
from maxq.cli.terminal.report import Report
from maxq.client.admin.admin import Admin
from maxq.client.admin.static_topic_plan import Plan
from maxq.errors import ConfigError

app = typer.Typer(rich_markup_mode=None)

Brokers = Annotated[str | None, typer.Option("-b", "--brokers", help="Broker names, separated by commas.")]
Clusters = Annotated[str | None, typer.Option("-c", "--clusters", help="Clusters, separated by commas.")]
Force = Annotated[
    str,
    typer.Option("-fr", "--forceReplace", metavar="true|false", help="Replace what brokers have. For repairs."),
]


@command(app, "updateStaticTopic")
async def update_static_topic(
    admin: Admin,
    topic: Topic,
    queues: Annotated[int, typer.Option("-qn", "--totalQueueNum", min=1, help="Global queues.")],
    brokers: Brokers = None,
    clusters: Clusters = None,
    force: Force = "false",
) -> Report:
    """Make a static topic, or give one more queues: they keep their numbers when brokers come and go."""
    names = await _names(admin, brokers, clusters)
    return _report(await admin.static_topics.create(topic, queues, names, force=is_true("-fr", force)))


@command(app, "remappingStaticTopic", asks="Move the queues of static topic {topic} to other brokers?")
async def remapping_static_topic(
    admin: Admin, topic: Topic, brokers: Brokers = None, clusters: Clusters = None, force: Force = "false"
) -> Report:
    """Move the queues of a static topic to these brokers; readers and writers follow."""
    names = await _names(admin, brokers, clusters)
    return _report(await admin.static_topics.remap(topic, names, force=is_true("-fr", force)))


async def _names(admin: Admin, brokers: str | None, clusters: str | None) -> list[str]:
    if (brokers is None) == (clusters is None):
        raise ConfigError("one of -b/--brokers and -c/--clusters is needed")
    if brokers is not None:
        return [name.strip() for name in brokers.split(",") if name.strip()]
    assert clusters is not None
    info = await admin.cluster_info()
    wanted = [name.strip() for name in clusters.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in info.cluster_addr_table]
    if unknown:
        raise ConfigError(f"no cluster {', '.join(unknown)}; there are {', '.join(sorted(info.cluster_addr_table))}")
    return sorted({broker for name in wanted for broker in info.cluster_addr_table[name]})


def _report(plan: Plan) -> Report:
    rows = [
        (global_id, item.bname, item.queue_id, item.logic_offset, item.gen)
        for name, part in sorted(plan.parts.items())
        for global_id, items in sorted(part.mapping.hosted_queues.items())
        for item in items[-1:]
        if item.bname == name
    ]
    columns = {
        "queue": "#Queue",
        "broker": "#Broker",
        "physicalQueue": "#Physical",
        "logicOffset": "#Begins at",
        "generation": "#Generation",
    }
    return Report(columns, sorted(rows))
