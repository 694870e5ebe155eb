"""Offset commands of mqadmin."""

from collections.abc import Mapping
from typing import Annotated

import typer

from maxq.cli.admin.command import ClusterName, Topic, command
from maxq.cli.admin.topics import is_true
from maxq.cli.report import Report, done_report
from maxq.cli.times import format_time, parse_time
from maxq.client.admin.admin import Admin
from maxq.client.admin.offsets import LATEST
from maxq.errors import ConfigError
from maxq.protocol.message_queue import MessageQueue
from maxq.runtime.system import SystemClock

app = typer.Typer(rich_markup_mode=None)

Group = Annotated[str, typer.Option("-g", "--group", help="Consumer group.")]
Force = Annotated[str, typer.Option("-f", "--force", metavar="true|false", help="Also backwards.")]
_COLUMNS = {"brokerName": "#brokerName", "queueId": "#queueId", "offset": "#offset"}


def _offset_rows(offsets: Mapping[MessageQueue, int]) -> list[tuple[str, int, int]]:
    return [(queue.broker_name, queue.queue_id, offset) for queue, offset in sorted(offsets.items())]


@command(app, "resetOffsetByTime")
async def reset_offset_by_time(
    admin: Admin,
    group: Group,
    topic: Topic,
    timestamp: Annotated[str, typer.Option("-s", "--timestamp", help="now, milliseconds, or a time.")],
    force: Force = "true",
    broker: Annotated[str | None, typer.Option("-b", "--broker", help="Broker name, with -q and -o.")] = None,
    queue: Annotated[int | None, typer.Option("-q", "--queue", min=0)] = None,
    offset: Annotated[int | None, typer.Option("-o", "--offset", min=0)] = None,
    cluster: ClusterName = None,
) -> Report:
    """Let a consumer group go on at a time; with -b, -q and -o, at an offset of one queue."""
    if broker is not None or queue is not None or offset is not None:
        if broker is None or queue is None or offset is None:
            raise ConfigError("-b/--broker, -q/--queue and -o/--offset go together: they name one place in one queue")
        now_at = await admin.offsets.reset_queue(group, MessageQueue(topic, broker, queue), offset)
        return done_report(f"reset consumer offset to {now_at}", brokerName=broker, queueId=queue, offset=now_at)
    clock = SystemClock()
    wall_ms = LATEST if timestamp == "-1" else parse_time(timestamp, clock)
    offsets = await admin.offsets.reset_by_time(group, topic, wall_ms, force=is_true("-f", force), cluster=cluster)
    head = (
        f"start reset consumer offset by specified, group[{group}], topic[{topic}], force[{force}], "
        f"timestamp(string)[{format_time(wall_ms) or timestamp}], timestamp(long)[{wall_ms}]"
    )
    return Report(_COLUMNS, _offset_rows(offsets), notes=["", head])


@command(app, "skipAccumulatedMessage")
async def skip_accumulated_message(
    admin: Admin, group: Group, topic: Topic, force: Force = "true", cluster: ClusterName = None
) -> Report:
    """Let a consumer group go on at the end of every queue."""
    offsets = await admin.offsets.reset_by_time(group, topic, LATEST, force=is_true("-f", force), cluster=cluster)
    return Report(_COLUMNS, _offset_rows(offsets))


@command(app, "cloneGroupOffset")
async def clone_group_offset(
    admin: Admin,
    source: Annotated[str, typer.Option("-s", "--srcGroup", help="The group that is there.")],
    target: Annotated[str, typer.Option("-d", "--destGroup", help="The group to put there.")],
    topic: Topic,
    offline: Annotated[str | None, typer.Option("-o", "--offline", help="Ignored, as in mqadmin.")] = None,
) -> Report:
    """Put a consumer group where another one is."""
    offsets = await admin.offsets.clone(source, target, topic)
    note = f"clone group offset success. srcGroup[{source}], destGroup=[{target}], topic[{topic}]"
    return Report(_COLUMNS, _offset_rows(offsets), notes=["", note])
