"""`startMonitoring`: every minute, what is not in order with consumer groups, until Ctrl-C.

Source: apache/rocketmq tools/monitor/{MonitorService,DefaultMonitorListener}.java. mqadmin writes to a log file; here
what is found is printed. Messages of OFFSET_MOVED_EVENT are not consumed, for no broker sends any by default.
"""

from typing import Annotated, Any

import typer

from maxq.cli.admin.command import command
from maxq.cli.admin.groups import compared_subscriptions
from maxq.cli.terminal.progress import tracked
from maxq.cli.terminal.report import Report
from maxq.client.admin.admin import Admin
from maxq.errors import MaxQError
from maxq.protocol.body.subscription import subscription_text
from maxq.runtime.files.system import SystemClock

app = typer.Typer(rich_markup_mode=None)

_STUCK_MS = 60_000  # a queue with messages that was not consumed for so long
_COLUMNS = {"group": "#Group", "kind": "#What", "topic": "#Topic", "detail": "#Detail"}


@command(app, "startMonitoring", repeats=True)
async def start_monitoring(
    admin: Admin,
    least: Annotated[int, typer.Option("--least", min=1, help="Backlogs of so many messages.")] = 1,
) -> Report:
    """Backlogs, members that subscribe differently, and queues that stand still; `-i 60` looks every minute."""
    rows: list[tuple[Any, ...]] = []
    for group in tracked(await admin.groups.names(), "Looking at groups"):
        rows += await _backlogs(admin, group, least)
        rows += await _members(admin, group)
    return Report(_COLUMNS, rows, notes=[f"[MONITOR] {len(rows)} findings"])


async def _backlogs(admin: Admin, group: str, least: int) -> list[tuple[Any, ...]]:
    """Undone messages by topic, as mqadmin's reportUndoneMsgs."""
    try:
        stats = await admin.groups.consume_stats(group)
    except MaxQError:  # never online, or its brokers are away
        return []
    behind: dict[str, list[int]] = {}
    for queue, at in stats.offset_table.items():
        behind.setdefault(queue.topic, []).append(max(0, at.broker_offset - at.consumer_offset))
    return [
        (group, "UNDONE", topic, f"undoneMsgsTotal={sum(counts)}, undoneMsgsSingleMQ={max(counts)}")
        for topic, counts in sorted(behind.items())
        if sum(counts) >= least
    ]


async def _members(admin: Admin, group: str) -> list[tuple[Any, ...]]:
    try:
        members = (await admin.groups.connections(group)).connection_set
    except MaxQError:
        return []
    wanted: dict[str, dict[str, str]] = {}
    rows: list[tuple[Any, ...]] = []
    for client_id in sorted(member.client_id or "" for member in members):
        try:
            info = await admin.groups.running_info(group, client_id)
        except MaxQError as error:
            rows.append((group, "SILENT", "", f"{client_id} does not answer: {error}"))
            continue
        wanted[client_id] = {data.topic: subscription_text(data) for data in info.subscription_set}
        now_ms = SystemClock().wall_ms()
        for queue, held in sorted(info.mq_table.items()):
            since_ms = now_ms - held.last_consume_timestamp
            if held.cached_msg_count > 0 and since_ms > _STUCK_MS:
                detail = f"{client_id} holds {held.cached_msg_count} of queue {queue.queue_id} since {since_ms} ms"
                rows.append((group, "STUCK", queue.topic, detail))
    if differing := compared_subscriptions(wanted):
        rows.append((group, "SUBSCRIPTION", "", "; ".join(line.strip() for line in differing)))
    return rows
