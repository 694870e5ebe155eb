"""Group and connection commands of mqadmin."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from maxq.cli.admin.command import BrokerAddr, ClusterName, Topic, Via, change_each, command
from maxq.cli.admin.topics import read_json_list
from maxq.cli.admin.values import is_true, version_name
from maxq.cli.help_pages import CommandApp
from maxq.cli.options import server_address
from maxq.cli.terminal.progress import tracked
from maxq.cli.terminal.report import Report, aligned_lines, done_report
from maxq.cli.terminal.times import format_time
from maxq.client.admin.admin import Admin
from maxq.errors import BrokerError, ClientError, ConfigError, MaxQError, RemoteProtocolError, RemotingError
from maxq.protocol.body.consumer_info import ConsumerRunningInfo, SetMessageRequestModeRequestBody
from maxq.protocol.body.heartbeat import ConnectionInfo, ConsumerConnection
from maxq.protocol.body.offsets import ConsumeStats
from maxq.protocol.body.subscription import GroupRetryPolicy, SubscriptionGroupConfig, subscription_text
from maxq.protocol.enums import ConsumeType, MessageModel, MessageRequestMode
from maxq.protocol.json.json_body import to_plain
from maxq.protocol.json.json_dialect import java_text
from maxq.protocol.message.message_queue import MessageQueue
from maxq.runtime.files.system import SystemClock

app = CommandApp()

Group = Annotated[str, typer.Option("-g", "--groupName", "--consumerGroup", help="Consumer group.")]


@command(app, "updateSubGroup")
async def update_sub_group(
    admin: Admin,
    group: Group,
    broker: BrokerAddr = None,
    cluster: ClusterName = None,
    consume_enable: Annotated[str, typer.Option("-s", "--consumeEnable", metavar="true|false")] = "true",
    from_min: Annotated[str, typer.Option("-m", "--consumeFromMinEnable", metavar="true|false")] = "false",
    broadcast: Annotated[str, typer.Option("-d", "--consumeBroadcastEnable", metavar="true|false")] = "false",
    orderly: Annotated[str, typer.Option("-o", "--consumeMessageOrderly", metavar="true|false")] = "false",
    retry_queues: Annotated[int, typer.Option("-q", "--retryQueueNums", min=0)] = 1,
    retry_times: Annotated[int, typer.Option("-r", "--retryMaxTimes")] = 16,
    broker_id: Annotated[int, typer.Option("-i", "--brokerId", min=0, help="Where it reads.")] = 0,
    slow_broker: Annotated[
        int, typer.Option("-w", "--whichBrokerWhenConsumeSlowly", min=0, help="Where it reads when far behind.")
    ] = 1,
    notify: Annotated[str, typer.Option("-a", "--notifyConsumerIdsChanged", metavar="true|false")] = "true",
    retry_policy: Annotated[
        str | None, typer.Option("-p", "--groupRetryPolicy", help="JSON, as getConsumerConfig shows it.")
    ] = None,
    attributes: Annotated[str, typer.Option("--attributes", help="+name=value,-name")] = "",
) -> Report:
    """Create or change a consumer group."""
    config = SubscriptionGroupConfig(
        group,
        is_true("-s", consume_enable),
        is_true("-m", from_min),
        is_true("-d", broadcast),
        is_true("-o", orderly),
        retry_queues,
        retry_times,
        broker_id=broker_id,
        which_broker_when_consume_slowly=slow_broker,
        notify_consumer_ids_changed_enable=is_true("-a", notify),
        attributes=dict(part.strip().partition("=")[::2] for part in attributes.split(",") if part.strip()),
    )
    if retry_policy is not None:
        config.group_retry_policy = _retry_policy(retry_policy)
    done = await change_each(admin, broker, cluster, lambda target: admin.groups.create(target, config))
    members = ", ".join(f"{name}={java_text(value)}" for name, value in config.to_json().items())
    lines = [f"create subscription group to {target} success." for target in done.answers]
    if lines:
        lines.append(f"SubscriptionGroupConfig{{{members}}}")
    text = "".join(f"{line}\n" for line in lines)
    value = {"brokers": list(done.answers), "group": config.to_json()}
    return Report({}, [], value=value, text=text, failures=done.failures)


def _retry_policy(text: str) -> GroupRetryPolicy:
    try:
        return GroupRetryPolicy.decode(text.encode())
    except RemoteProtocolError as error:
        raise ConfigError(f"-p {text!r} is no JSON GroupRetryPolicy: {error}") from None


@command(app, "updateSubGroupList")
async def update_sub_group_list(
    admin: Admin,
    file: Annotated[Path, typer.Option("-f", "--filename", help="JSON array of group configurations.")],
    broker: BrokerAddr = None,
    cluster: ClusterName = None,
) -> Report:
    """Create or change the consumer groups of a JSON file."""
    configs = [SubscriptionGroupConfig.from_json(value) for value in read_json_list(file)]
    done = await change_each(admin, broker, cluster, lambda target: admin.groups.create_list(target, configs))
    return done.report(
        lambda target: f"submit batch of group config to {target} success, please check the result later.",
        groups=len(configs),
    )


@command(app, "deleteSubGroup", asks="Delete consumer group {group} on {where}?")
async def delete_sub_group(
    admin: Admin,
    group: Group,
    broker: BrokerAddr = None,
    cluster: ClusterName = None,
    remove_offset: Annotated[str, typer.Option("-r", "--removeOffset", metavar="true|false")] = "false",
) -> Report:
    """Delete a consumer group; with -c its retry and dead-letter topics too, if no broker failed."""
    clean = is_true("-r", remove_offset)
    done = await change_each(
        admin, broker, cluster, lambda target: admin.groups.delete(target, group, clean_offset=clean)
    )
    if cluster is not None and not done.failures:  # a broker that still has the group may need them
        await admin.groups.delete_topics(group, cluster)
    place = "" if cluster is None else f" in cluster [{cluster}]"
    return done.report(lambda target: f"delete subscription group [{group}] from broker [{target}]{place} success.")


@command(app, "getConsumerConfig")
async def get_consumer_config(admin: Admin, group: Group) -> Report:
    """Settings of a consumer group on every broker."""
    rows = []
    value = []
    text = ""
    for name, data in sorted((await admin.cluster_info()).broker_addr_table.items()):
        if data.master_address is None:
            continue
        table = (await admin.groups.all_configs(data.master_address)).subscription_group_table
        if group not in table:
            continue
        found = table[group].to_json()
        value.append({"cluster": data.cluster, "brokerName": name, **found})
        text += f"============================={data.cluster}:{name}=============================\n"
        text += "".join(f"{key:<40}=  {java_text(item)}\n" for key, item in found.items())
        rows += [(data.cluster, name, key, java_text(item)) for key, item in found.items()]
    if not rows:
        raise ClientError(f"no broker has a consumer group {group}")
    columns = {"cluster": "#Cluster", "brokerName": "#Broker Name", "key": "#Key", "value": "#Value"}
    return Report(columns, rows, value=value, text=text)


_PROGRESS_COLUMNS = {
    "topic": "#Topic",
    "brokerName": "#Broker Name",
    "queueId": "#QID",
    "brokerOffset": "#Broker Offset",
    "consumerOffset": "#Consumer Offset",
    "clientIp": "#Client IP",
    "diff": "#Diff",
    "inflight": "#Inflight",
    "lastTime": "#LastTime",
}
_GROUPS_COLUMNS = {
    "group": "#Group",
    "count": "#Count",
    "version": "#Version",
    "type": "#Type",
    "model": "#Model",
    "tps": "#TPS",
    "diffTotal": "#Diff Total",
}


@command(app, "consumerProgress")
async def consumer_progress(
    admin: Admin,
    group: Annotated[str | None, typer.Option("-g", "--groupName", help="One group; without it all of them.")] = None,
    topic: Annotated[str | None, typer.Option("-t", "--topicName", help="Only this topic.")] = None,
    show_ip: Annotated[str, typer.Option("-s", "--showClientIP", metavar="true|false")] = "false",
    via: Via = None,
) -> Report:
    """Where consumer groups are, and how far behind."""
    if group is None:
        return await _all_groups(admin)
    stats = await admin.groups.consume_stats(group, topic, via=via)
    if not stats.offset_table:
        raise ClientError(f"group {group} has committed no offsets" + (f" of topic {topic}" if topic else ""))
    clients = await _clients_by_queue(admin, group) if is_true("-s", show_ip) else {}
    columns = dict(_PROGRESS_COLUMNS)
    if not clients:
        del columns["clientIp"]
    rows = []
    for queue, at in sorted(stats.offset_table.items()):
        client = [clients[queue][0] if queue in clients else "N/A"] if clients else []
        place = (queue.topic, queue.broker_name, queue.queue_id, at.broker_offset, at.consumer_offset)
        behind = (at.broker_offset - at.consumer_offset, at.pull_offset - at.consumer_offset)
        rows.append((*place, *client, *behind, format_time(at.last_timestamp)))
    notes = ["", f"Consume TPS: {stats.consume_tps:.2f}", f"Consume Diff Total: {stats.total_diff}"]
    notes.append(f"Consume Inflight Total: {stats.inflight_total_diff}")
    report = Report(columns, rows, notes=notes)
    if not clients:
        return report
    ids = [clients[queue][1] if queue in clients else "N/A" for queue in sorted(stats.offset_table)]
    value = [{**row, "clientId": client_id} for row, client_id in zip(report.objects(), ids, strict=True)]
    return replace(report, value=value)


async def _clients_by_queue(admin: Admin, group: str) -> dict[MessageQueue, tuple[str, str]]:
    """Return the address and the client id of the member that has each queue."""
    found = {}
    for connection in (await admin.groups.connections(group)).connection_set:
        client_id = connection.client_id or ""
        info = await admin.groups.running_info(group, client_id)
        ip = (connection.client_addr or "").rpartition(":")[0]
        found.update(dict.fromkeys(info.mq_table, (ip, client_id)))
    return found


async def _all_groups(admin: Admin) -> Report:
    rows = []
    for group in tracked(await admin.groups.names(), "Asking brokers"):
        try:
            stats = await admin.groups.consume_stats(group)
        except (BrokerError, ClientError, RemotingError):
            stats = ConsumeStats()
        try:
            members = await admin.groups.connections(group)
        except (BrokerError, ClientError, RemotingError):
            members = ConsumerConnection()
        oldest = min((connection.version for connection in members.connection_set), default=None)
        rows.append(
            (
                group,
                len(members.connection_set),
                "OFFLINE" if oldest is None else version_name(oldest),
                _type_name(members.consume_type),
                _model_name(members.message_model),
                stats.consume_tps,
                stats.total_diff,
            )
        )
    return Report(_GROUPS_COLUMNS, sorted(rows, key=lambda row: -row[6]))


def _type_name(kind: ConsumeType | None) -> str:
    return "" if kind is None else "PULL" if kind is ConsumeType.CONSUME_ACTIVELY else "PUSH"


def _model_name(model: MessageModel | None) -> str:
    return "" if model is None else model.name


_CONNECTION_COLUMNS = {
    "clientId": "#ClientId",
    "clientAddr": "#ClientAddr",
    "language": "#Language",
    "version": "#Version",
}


def _connection_rows(connections: Iterable[ConnectionInfo]) -> list[tuple[str, ...]]:
    return sorted(
        (found.client_id or "", found.client_addr or "", found.language or "", version_name(found.version))
        for found in connections
    )


@command(app, "consumerConnection")
async def consumer_connection(admin: Admin, group: Group, broker: BrokerAddr = None) -> Report:
    """Members and subscriptions of a consumer group."""
    found = await admin.groups.connections(group, broker)
    notes = ["", "Below is subscription:", "#Topic  #SubExpression"]
    notes += [f"{topic}  {data.sub_string}" for topic, data in sorted(found.subscription_table.items())]
    kind, model, start = found.consume_type, found.message_model, found.consume_from_where
    notes += [
        "",
        f"ConsumeType: {kind.name if kind is not None else ''}",
        f"MessageModel: {_model_name(model)}",
        f"ConsumeFromWhere: {start.name if start is not None else ''}",
    ]
    return Report(_CONNECTION_COLUMNS, _connection_rows(found.connection_set), value=to_plain(found), notes=notes)


@command(app, "consumerStatus")
async def consumer_status(
    admin: Admin,
    group: Group,
    client_id: Annotated[str | None, typer.Option("-i", "--clientId", help="One member, in full.")] = None,
    broker: BrokerAddr = None,
    jstack: Annotated[bool, typer.Option("-s", "--jstack", help="With the stacks of the threads.")] = False,
) -> Report:
    """The state that the members of a consumer group report."""
    if client_id is not None:
        info = await admin.groups.running_info(group, client_id, jstack=jstack)
        queues = sorted(info.mq_table.items())
        rows = [
            (queue.topic, queue.broker_name, queue.queue_id, held.commit_offset, held.cached_msg_count, held.locked)
            for queue, held in queues
        ]
        columns = {"topic": "#Topic", "brokerName": "#Broker Name", "queueId": "#QID", "offset": "#Consumer Offset"}
        columns |= {"cached": "#Cached", "locked": "#Locked"}
        notes = [*_rates(info), "", *(f"{name} = {value}" for name, value in sorted(info.properties.items()))]
        if info.jstack:
            notes += ["", info.jstack]
        return Report(columns, rows, value=_member(info), notes=notes)
    members = await admin.groups.connections(group, broker)
    subscriptions: dict[str, dict[str, str]] = {}
    stacks: list[str] = []
    details: list[dict[str, Any]] = []
    member_rows = []
    for number, (name, address, _, version) in enumerate(_connection_rows(members.connection_set), 1):
        info = await admin.groups.running_info(group, name, jstack=jstack)
        subscriptions[name] = {data.topic: subscription_text(data) for data in info.subscription_set}
        details.append({"subscriptions": subscriptions[name]})
        if info.jstack:
            stacks += ["", f"Threads of {name}:", "", info.jstack]
            details[-1]["jstack"] = info.jstack
        member_rows.append((f"{number:03d}", name, address, version, len(info.mq_table)))
    notes = ["Same subscription in the same group of consumer"]
    if differing := compared_subscriptions(subscriptions):
        notes = [
            "WARN: Different subscription in the same group of consumer!!! Members do not get all that they want:",
            *differing,
        ]
    columns = {"index": "#Index", "clientId": "#ClientId", "clientAddr": "#ClientAddr", "version": "#Version"}
    report = Report(columns | {"queues": "#Queues"}, member_rows, notes=["", *notes, *stacks])
    return replace(report, value=[row | more for row, more in zip(report.objects(), details, strict=True)])


def _member(info: ConsumerRunningInfo) -> dict[str, Any]:
    """Return what a member says of itself for --json: the wire body, with its tables of queues as lists."""
    tables = {
        "mqTable": [queue.to_json() | held.to_json() for queue, held in sorted(info.mq_table.items())],
        "mqPopTable": [queue.to_json() | held.to_json() for queue, held in sorted(info.mq_pop_table.items())],
    }
    return {**to_plain(info), **tables}


def _rates(info: ConsumerRunningInfo) -> list[str]:
    """Return the rates and times of each topic as mqadmin prints them: times in ms, rates a second."""
    if not info.status_table:
        return []
    heads = ("#Topic", "#Pull RT", "#Pull TPS", "#Consume RT", "#ConsumeOK TPS", "#ConsumeFailed TPS")
    rows = [
        (topic, rates.pull_rt, rates.pull_tps, rates.consume_rt, rates.consume_ok_tps, rates.consume_failed_tps,
         rates.consume_failed_msgs)
        for topic, rates in sorted(info.status_table.items())
    ]  # fmt: skip
    return ["", *aligned_lines((*heads, "#ConsumeFailedMsgsInHour"), rows)]


def compared_subscriptions(subscriptions: dict[str, dict[str, str]]) -> list[str]:
    """Returns the subscriptions of members (by client id) that subscribe differently; empty if all subscribe alike."""
    topics = sorted({topic for wanted in subscriptions.values() for topic in wanted})
    return [
        f"  {topic}: {name} wants {wanted.get(topic, 'nothing')}"
        for topic in topics
        if len({wanted.get(topic) for wanted in subscriptions.values()}) > 1
        for name, wanted in sorted(subscriptions.items())
    ]


@command(app, "producerConnection")
async def producer_connection(
    admin: Admin, topic: Topic, group: Annotated[str, typer.Option("-g", "--producerGroup", help="Producer group.")]
) -> Report:
    """Members of a producer group."""
    rows = _connection_rows((await admin.groups.producer_connections(group, topic)).connection_set)
    lines = [f"{number:04d}  {'  '.join(row)}" for number, row in enumerate(rows, 1)]
    return Report(_CONNECTION_COLUMNS, rows, text="\n".join(lines) + "\n")


@command(app, "producer")
async def producer(
    admin: Admin,
    broker: Annotated[str, typer.Option("-b", "--broker", callback=server_address, help="Broker, host or host:port.")],
) -> Report:
    """All producers of a broker."""
    table = (await admin.groups.all_producers(broker)).data
    rows = [
        (group, found.client_id, found.remote_ip, found.language, version_name(found.version))
        for group, producers in sorted(table.items())
        for found in producers
    ]
    columns = {"producerGroup": "#ProducerGroup"} | _CONNECTION_COLUMNS
    return Report(columns, rows)


@command(app, "setConsumeMode")
async def set_consume_mode(
    admin: Admin,
    topic: Annotated[str, typer.Option("-t", "--topicName", help="Topic.")],
    group: Group,
    mode: Annotated[str, typer.Option("-m", "--mode", help="PULL or POP.")],
    broker: BrokerAddr = None,
    cluster: ClusterName = None,
    share: Annotated[int, typer.Option("-q", "--popShareQueueNum", min=0)] = 0,
) -> Report:
    """Pull or pop for a topic and group."""
    if mode not in ("PULL", "POP"):
        raise ConfigError(f"-m {mode!r} is not allowed: it must be PULL or POP")
    body = SetMessageRequestModeRequestBody(topic, group, MessageRequestMode[mode], share)
    done = await change_each(admin, broker, cluster, lambda target: admin.groups.set_message_request_mode(target, body))
    made = list(done.answers)
    lines = [f"set consume mode to {target} success." for target in made]
    if made:
        lines.append(f"topic[{topic}] group[{group}] consume mode[{mode}] popShareQueueNum[{share}]")
    return replace(done_report("\n".join(lines), brokers=made, mode=mode), failures=done.failures)


# --- startMonitoring: what is not in order with consumer groups (tools/monitor/MonitorService.java) ---
# mqadmin writes to a log file; here what is found is printed. Messages of OFFSET_MOVED_EVENT are not consumed, for no
# broker sends any by default.

_STUCK_MS = 60_000  # a queue with messages that was not consumed for so long
_FINDING_COLUMNS = {"group": "#Group", "kind": "#What", "topic": "#Topic", "detail": "#Detail"}


@command(app, "startMonitoring", repeats=True)
async def start_monitoring(
    admin: Admin,
    least: Annotated[int, typer.Option("--least", min=1, help="Only backlogs of at least this many messages.")] = 1,
) -> Report:
    """Backlogs, members that subscribe differently, and queues that stand still; `-i 60` looks every minute."""
    rows: list[tuple[Any, ...]] = []
    for group in tracked(await admin.groups.names(), "Looking at groups"):
        rows += await _backlogs(admin, group, least)
        rows += await _members(admin, group)
    return Report(_FINDING_COLUMNS, rows, notes=[f"[MONITOR] {len(rows)} findings"])


async def _backlogs(admin: Admin, group: str, least: int) -> list[tuple[Any, ...]]:
    """Return undone messages by topic, as mqadmin's reportUndoneMsgs does."""
    try:
        stats = await admin.groups.consume_stats(group)
    except MaxQError:  # the group was never online, or its brokers cannot be reached
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
