"""Offset commands of mqadmin."""

from collections.abc import Mapping
from typing import Annotated

import typer

from maxq.cli.admin.command import Topic, command
from maxq.cli.admin.values import is_true
from maxq.cli.help_pages import CommandApp
from maxq.cli.terminal.report import Report, done_report
from maxq.cli.terminal.times import format_time, parse_time
from maxq.client.admin.admin import Admin
from maxq.client.admin.offsets import LATEST
from maxq.errors import ConfigError
from maxq.protocol.message.message_queue import MessageQueue
from maxq.runtime.files.system import SystemClock

app = CommandApp()

Group = Annotated[str, typer.Option("-g", "--group", help="Consumer group.")]
Force = Annotated[str, typer.Option("-f", "--force", metavar="true|false", help="Also backwards.")]
Cluster = Annotated[
    str | None, typer.Option("-c", "--cluster", "--clusterName", help="Only the brokers of this cluster.")
]
_TO_THE_END = "-1"
_COLUMNS = {"brokerName": "#brokerName", "queueId": "#queueId", "offset": "#offset"}


def _offset_rows(offsets: Mapping[MessageQueue, int]) -> list[tuple[str, int, int]]:
    return [(queue.broker_name, queue.queue_id, offset) for queue, offset in sorted(offsets.items())]


def _a_time(text: str) -> str:
    """Return the text if it is a time; raise an error of the option otherwise. Used as a callback."""
    if text != _TO_THE_END:
        parse_time(text, SystemClock())
    return text


@command(app, "resetOffsetByTime", asks="Move group {group} on topic {topic} to {timestamp}?")
async def reset_offset_by_time(
    admin: Admin,
    group: Group,
    topic: Topic,
    timestamp: Annotated[
        str, typer.Option("-s", "--timestamp", callback=_a_time, help="now, milliseconds, or a time.")
    ],
    force: Force = "true",
    broker: Annotated[str | None, typer.Option("-b", "--broker", help="Broker, host:port or name, with -q.")] = None,
    queue: Annotated[int | None, typer.Option("-q", "--queue", min=0, help="Only this queue, with -b.")] = None,
    offset: Annotated[int | None, typer.Option("-o", "--offset", min=0, help="Instead of -s, with -b and -q.")] = None,
    cluster: Cluster = None,
) -> Report:
    """Set a consumer group to a time; with -b and -q in one queue only, with -o too to that offset."""
    clock = SystemClock()
    wall_ms = LATEST if timestamp == _TO_THE_END else parse_time(timestamp, clock)
    if broker is not None and queue is not None:
        return await _reset_queue(admin, group, await admin.offsets.queue_at(topic, broker, queue), wall_ms, offset)
    if broker is not None or queue is not None or offset is not None:
        raise ConfigError("-b/--broker and -q/--queue go together: they name one queue; -o/--offset needs them")
    offsets = await admin.offsets.reset_by_time(group, topic, wall_ms, force=is_true("-f", force), cluster=cluster)
    head = (
        f"start reset consumer offset by specified, group[{group}], topic[{topic}], force[{force}], "
        f"timestamp(string)[{format_time(wall_ms) or timestamp}], timestamp(long)[{wall_ms}]"
    )
    return Report(_COLUMNS, _offset_rows(offsets), notes=["", head])


async def _reset_queue(admin: Admin, group: str, queue: MessageQueue, wall_ms: int, offset: int | None) -> Report:
    if offset is None:
        offsets = admin.offsets
        offset = await offsets.max(queue) if wall_ms == LATEST else await offsets.search(queue, wall_ms)
    now_at = await admin.offsets.reset_queue(group, queue, offset)
    sentence = f"reset consumer offset to {now_at}"
    return done_report(sentence, brokerName=queue.broker_name, queueId=queue.queue_id, offset=now_at)


@command(app, "skipAccumulatedMessage", asks="Let group {group} skip all waiting messages of topic {topic}?")
async def skip_accumulated_message(
    admin: Admin, group: Group, topic: Topic, force: Force = "true", cluster: Cluster = None
) -> Report:
    """Set a consumer group to the end of every queue."""
    offsets = await admin.offsets.reset_by_time(group, topic, LATEST, force=is_true("-f", force), cluster=cluster)
    return Report(_COLUMNS, _offset_rows(offsets))


@command(app, "cloneGroupOffset", asks="Put group {target} on topic {topic} where {source} is?")
async def clone_group_offset(
    admin: Admin,
    source: Annotated[str, typer.Option("-s", "--srcGroup", help="The group whose offsets are copied.")],
    target: Annotated[str, typer.Option("-d", "--destGroup", help="The group that gets them.")],
    topic: Topic,
    offline: Annotated[str | None, typer.Option("-o", "--offline", help="Ignored, as in mqadmin.")] = None,
) -> Report:
    """Copy the offsets of a consumer group to another one."""
    offsets = await admin.offsets.clone(source, target, topic)
    note = f"clone group offset success. srcGroup[{source}], destGroup=[{target}], topic[{topic}]"
    return Report(_COLUMNS, _offset_rows(offsets), notes=["", note])
