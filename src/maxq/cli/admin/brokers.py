"""Broker and cluster commands of mqadmin."""

from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Annotated, Any

import orjson
import typer

from maxq.cli.admin.command import BrokerAddr, ClusterName, addresses, command
from maxq.cli.admin.fan_out import ask_each, settings_report
from maxq.cli.admin.values import is_true
from maxq.cli.help_pages import CommandApp
from maxq.cli.options import other_server_address, server_address
from maxq.cli.terminal.progress import tracked
from maxq.cli.terminal.report import Report, done_report, json_value, json_values, pairs_report
from maxq.cli.terminal.times import format_time
from maxq.client.admin.admin import Admin
from maxq.errors import BrokerError, ClientError, ConfigError
from maxq.protocol.body.broker_stats import BrokerStatsData
from maxq.protocol.body.offsets import ConsumeStatsList, OffsetWrapper
from maxq.protocol.message.message_queue import MessageQueue

app = CommandApp()

_CLUSTER_COLUMNS = {
    "cluster": "#Cluster Name",
    "brokerName": "#Broker Name",
    "brokerId": "#BID",
    "address": "#Addr",
    "version": "#Version",
    "inTps": "#InTPS(LOAD)",
    "outTps": "#OutTPS(LOAD)",
    "timer": "#Timer(Progress)",
    "pageCacheWait": "#PCWait(ms)",
    "hour": "#Hour",
    "space": "#SPACE",
    "activated": "#ACTIVATED",
}
_MORE_COLUMNS = {
    "cluster": "#Cluster Name",
    "brokerName": "#Broker Name",
    "inTotalYesterday": "#InTotalYest",
    "outTotalYesterday": "#OutTotalYest",
    "inTotalToday": "#InTotalToday",
    "outTotalToday": "#OutTotalToday",
}
_HOUR_MS = 3_600_000
#: Settings whose values are names, whatever they look like.
_NAMES = frozenset({"brokerName", "brokerClusterName", "dLegerGroup", "dLegerSelfId"})


@command(app, "clusterList", repeats=True)
async def cluster_list(
    admin: Admin,
    more: Annotated[bool, typer.Option("-m", "--moreStats", help="Totals of yesterday and today.")] = False,
    only: Annotated[str | None, typer.Option("-c", "--clusterName", help="Only this cluster.")] = None,
) -> Report:
    """All clusters and brokers."""
    info = await admin.cluster_info()
    clusters = sorted(info.cluster_addr_table)
    if only is not None and only not in clusters:
        raise ClientError(f"cluster [{only}] not exist; there are {', '.join(clusters)}")
    places = [
        (cluster, name, number, address)
        for cluster in clusters
        if only in (None, cluster)
        for name in sorted(info.cluster_addr_table[cluster])
        if name in info.broker_addr_table
        for number, address in sorted(info.broker_addr_table[name].broker_addrs.items())
    ]
    found = await ask_each([place[3] for place in places], admin.brokers.runtime_info)
    for _, name, number, address in places:
        other = found.answers.get(address, {}).get("brokerNameAlsoAt")
        if other:
            found.failures[address] = (
                f"the broker at {other} is called {name} with id {number}, too: messages go to one or the other. Stop "
                "one of the two, and give it another brokerName or brokerId"
            )
    states = [(place, state) for place in places if (state := found.answers.get(place[3])) is not None]
    if more:
        rows = [_totals(cluster, name, state) for (cluster, name, _, _), state in states]
        return Report(_MORE_COLUMNS, rows, failures=found.failures)
    objects = [_state(*place, state) for place, state in states]
    return Report(_CLUSTER_COLUMNS, [_row(one) for one in objects], value=objects, failures=found.failures)


def _state(cluster: str, name: str, number: int, address: str, state: dict[str, str]) -> dict[str, Any]:
    """Return the values that `--json` prints for a broker."""

    def first(key: str) -> float:
        return float((state.get(key, "").split() or ["0"])[0])

    def count(key: str) -> int:
        return int(state.get(key, "0") or 0)

    earliest, now = int(state.get("earliestMessageTimeStamp", "-1")), count("currentTimeMillis")
    return {
        "cluster": cluster,
        "brokerName": name,
        "brokerId": number,
        "address": address,
        "version": state.get("brokerVersionDesc", ""),
        "inTps": first("putTps"),
        "inQueueSize": count("sendThreadPoolQueueSize"),
        "inQueueWaitMs": count("sendThreadPoolQueueHeadWaitTimeMills"),
        "outTps": first("getTransferredTps"),
        "outQueueSize": count("pullThreadPoolQueueSize"),
        "outQueueWaitMs": count("pullThreadPoolQueueHeadWaitTimeMills"),
        "timerReadBehind": count("timerReadBehind"),
        "timerOffsetBehind": count("timerOffsetBehind"),
        "pageCacheWait": count("pageCacheLockTimeMills"),
        "hour": (now - earliest) / _HOUR_MS if earliest > 0 and now > earliest else 0.0,
        "space": json_value(state.get("commitLogDiskRatio", "")),
        "activated": json_value(state.get("brokerActive", "true")),
    }


def _row(state: dict[str, Any]) -> tuple[Any, ...]:
    """Returns the values in the form of mqadmin's columns."""
    put = f"{state['inTps']:.2f}({state['inQueueSize']},{state['inQueueWaitMs']}ms)"
    out = f"{state['outTps']:.2f}({state['outQueueSize']},{state['outQueueWaitMs']}ms)"
    timer = f"{state['timerReadBehind']}-{state['timerOffsetBehind']}"
    shown = {**state, "inTps": put, "outTps": out, "timer": timer}
    return tuple(shown[column] for column in _CLUSTER_COLUMNS)


def _totals(cluster: str, name: str, state: dict[str, str]) -> tuple[Any, ...]:
    def number(key: str) -> int:
        return int(state.get(key, "0") or 0)

    put_yesterday = number("msgPutTotalTodayMorning") - number("msgPutTotalYesterdayMorning")
    get_yesterday = number("msgGetTotalTodayMorning") - number("msgGetTotalYesterdayMorning")
    put_today = number("msgPutTotalTodayNow") - number("msgPutTotalTodayMorning")
    get_today = number("msgGetTotalTodayNow") - number("msgGetTotalTodayMorning")
    return cluster, name, put_yesterday, get_yesterday, put_today, get_today


@command(app, "brokerStatus")
async def broker_status(admin: Admin, broker: BrokerAddr = None, cluster: ClusterName = None) -> Report:
    """State and statistics of brokers."""
    targets = await addresses(admin, broker, cluster, masters=False)
    if broker is not None:
        info = dict(sorted((await admin.brokers.runtime_info(broker)).items()))
        return pairs_report(info, json_values(info))
    asked = await ask_each(targets, admin.brokers.runtime_info)
    found = {target: dict(sorted(state.items())) for target, state in asked.answers.items()}
    rows = [(target, key, value) for target, state in found.items() for key, value in state.items()]
    text = "".join(f"{target:<24}{key:<32}: {value}\n" for target, key, value in rows)
    columns = {"address": "#Address", "key": "#Key", "value": "#Value"}
    value = {target: json_values(state) for target, state in found.items()}
    return Report(columns, rows, value=value, text=text, failures=asked.failures)


@command(app, "getBrokerConfig")
async def get_broker_config(admin: Admin, broker: BrokerAddr = None, cluster: ClusterName = None) -> Report:
    """All settings of brokers."""
    if (broker is None) == (cluster is None):
        raise ConfigError("one of -b/--brokerAddr and -c/--clusterName is needed")
    heads = {broker: broker} if broker else await _heads(admin, cluster or "")
    found = await ask_each(heads, admin.brokers.config)
    report = settings_report(found, heads=heads, texts=_NAMES)
    return replace(report, value=report.value[broker]) if broker else report


async def _heads(admin: Admin, cluster: str) -> dict[str, str]:
    """Return mqadmin's head line of each broker of a cluster, by address."""
    heads: dict[str, str] = {}
    for data in await admin.brokers.of_cluster(cluster):
        master = data.master_address
        for number, address in sorted(data.broker_addrs.items()):
            heads[address] = f"Master: {address}" if number == 0 else f"My Master: {master}=====Slave: {address}"
    return heads


@command(app, "updateBrokerConfig")
async def update_broker_config(
    admin: Admin,
    key: Annotated[str, typer.Option("-k", "--key", help="Property, by RocketMQ's name.")],
    value: Annotated[str, typer.Option("-v", "--value")],
    broker: BrokerAddr = None,
    cluster: ClusterName = None,
    everywhere: Annotated[
        str, typer.Option("-a", "--updateAllBroker", metavar="true|false", help="With -c: slaves too.")
    ] = "false",
) -> Report:
    """Change a setting of running brokers."""
    targets = await addresses(admin, broker, cluster, masters=not is_true("-a", everywhere))
    done = await ask_each(targets, lambda target: admin.brokers.update_config(target, {key: value}))
    notes = {target: remark for target, remark in done.answers.items() if remark}

    def sentence(target: str) -> str:
        note = f"\n{target}: {notes[target]}" if target in notes else ""
        return f"update broker config success, {target}{note}"

    return done.report(sentence, key=key, value=value, notes=notes)


@command(app, "brokerConsumeStats")
async def broker_consume_stats(
    admin: Admin,
    broker: Annotated[
        str, typer.Option("-b", "--brokerAddr", callback=server_address, help="Broker, host or host:port.")
    ],
    timeout_ms: Annotated[int, typer.Option("-t", "--timeoutMillis", min=1)] = 50_000,
    level: Annotated[int, typer.Option("-l", "--level", min=0, help="Only queues that far behind.")] = 0,
    order: Annotated[str, typer.Option("-o", "--order", metavar="true|false")] = "false",
) -> Report:
    """Progress of all groups on a broker."""
    is_order = is_true("-o", order)
    found = await admin.brokers.consume_stats(broker, is_order=is_order, timeout_ms=timeout_ms)
    rows = []
    for group, queue, at in _progress(found):
        diff = at.broker_offset - at.consumer_offset
        if diff >= level:
            place = (queue.topic, group, queue.broker_name, queue.queue_id)
            rows.append((*place, at.broker_offset, at.consumer_offset, diff, format_time(at.last_timestamp)))
    columns = {"topic": "#Topic", "group": "#Group", "brokerName": "#Broker Name", "queueId": "#QID"}
    columns |= {"brokerOffset": "#Broker Offset", "consumerOffset": "#Consumer Offset", "diff": "#Diff"}
    return Report(columns | {"lastTime": "#LastTime"}, rows, notes=["", f"Diff Total: {found.total_diff}"])


def _progress(found: ConsumeStatsList) -> Iterator[tuple[str, MessageQueue, OffsetWrapper]]:
    """Yield every queue of every group, in the order of the groups of each table and the queues of each entry."""
    for table in found.consume_stats_list:
        for group, all_stats in sorted(table.items()):
            for stats in all_stats:
                for queue, at in sorted(stats.offset_table.items()):
                    yield group, queue, at


_STATS_COLUMNS = {
    "topic": "#Topic",
    "consumerGroup": "#Consumer Group",
    "accumulation": "#Accumulation",
    "inTps": "#InTPS",
    "outTps": "#OutTPS",
    "inMessages24h": "#InMsg24Hour",
    "outMessages24h": "#OutMsg24Hour",
}


@command(app, "statsAll")
async def stats_all(
    admin: Admin,
    active: Annotated[bool, typer.Option("-a", "--activeTopic", help="Only topics with messages today.")] = False,
    only: Annotated[str | None, typer.Option("-t", "--topic", help="Only this topic.")] = None,
) -> Report:
    """Rates and backlog of topics and groups."""
    rows: list[tuple[Any, ...]] = []
    for topic in tracked(await admin.topics.names(), "Asking brokers"):
        if topic.startswith(("%RETRY%", "%DLQ%")) or only not in (None, topic):
            continue
        masters = [data.master_address for data in (await admin.topics.route(topic)).broker_datas]
        brokers = [address for address in masters if address]
        in_tps, in_day = await _rates(admin, brokers, "TOPIC_PUT_NUMS", topic)
        if active and not in_day:
            continue
        for group in await admin.topics.consumed_by(topic):
            out_tps, out_day = await _rates(admin, brokers, "GROUP_GET_NUMS", f"{topic}@{group}")
            rows.append((topic, group, await _backlog(admin, group, topic), in_tps, out_tps, in_day, out_day))
        if not rows or rows[-1][0] != topic:
            rows.append((topic, "", 0, in_tps, None, in_day, None))
    columns = list(_STATS_COLUMNS)
    objects = [dict(zip(columns, row, strict=True)) for row in rows]
    shown = [row if row[-1] is not None else (*row[:-1], "NO_CONSUMER") for row in rows]
    return Report(_STATS_COLUMNS, shown, value=objects)


async def _backlog(admin: Admin, group: str, topic: str) -> int:
    try:
        return max((await admin.groups.consume_stats(group, topic)).total_diff, 0)
    except (BrokerError, ClientError):
        return 0


async def _rates(admin: Admin, brokers: list[str], name: str, key: str) -> tuple[float, int]:
    """Return the messages a second in the last minute, and the messages of the last day, over all brokers."""
    tps, day = 0.0, 0
    for address in brokers:
        try:
            found: BrokerStatsData = await admin.brokers.stats(address, name, key)
        except BrokerError:  # nothing counted under this key yet
            continue
        tps += found.stats_minute.tps
        day += found.stats_day.sum or found.stats_hour.sum or found.stats_minute.sum
    return tps, day


async def _on_each(
    admin: Admin, broker: str | None, cluster: str | None, do: Callable[[str], Coroutine[Any, Any, None]]
) -> Report:
    targets = (
        await addresses(admin, broker, cluster)
        if broker or cluster
        else [data.master_address for data in (await admin.cluster_info()).broker_addr_table.values()]
    )
    found = await ask_each([target for target in targets if target is not None], do)
    text = "success\n" if not found.failures else ""
    return Report({"broker": "#Broker"}, [(address,) for address in found.answers],
                  value={"done": not found.failures, "brokers": list(found.answers)}, text=text,
                  failures=found.failures)  # fmt: skip


@command(app, "cleanExpiredCQ")
async def clean_expired_cq(admin: Admin, broker: BrokerAddr = None, cluster: ClusterName = None) -> Report:
    """Delete queue files whose messages are gone; without -b or -c on all brokers."""
    return await _on_each(admin, broker, cluster, admin.brokers.clean_expired_consume_queue)


@command(app, "cleanUnusedTopic", asks="Delete the queues of deleted topics on {where}?")
async def clean_unused_topic(admin: Admin, broker: BrokerAddr = None, cluster: ClusterName = None) -> Report:
    """Delete queues of topics that are gone; without -b or -c on all brokers."""
    return await _on_each(admin, broker, cluster, admin.brokers.clean_unused_topic)


@command(
    app,
    "deleteExpiredCommitLog",
    asks="Delete log files older than fileReservedTime on {where}?",
)
async def delete_expired_commit_log(admin: Admin, broker: BrokerAddr = None, cluster: ClusterName = None) -> Report:
    """Delete log files whose time of retention is over; without -b or -c on all brokers."""
    return await _on_each(admin, broker, cluster, admin.brokers.delete_expired_commit_log)


_ENGINES = {"R": "ROCKSDB_TIMELINE", "F": "FILE_TIME_WHEEL"}


@command(app, "switchTimerEngine")
async def switch_timer_engine(
    admin: Admin,
    engine: Annotated[str, typer.Option("-e", "--engineType", help="R: RocksDB timeline, F: time wheel in files.")],
    broker: BrokerAddr = None,
    cluster: ClusterName = None,
) -> Report:
    """Which of its two engines a broker's timer uses; MaxQ's has the wheel only."""
    if engine not in _ENGINES:
        raise ConfigError(f"-e {engine!r} is not allowed: it must be R or F")
    targets = await addresses(admin, broker, cluster)
    done = await ask_each(targets, lambda address: admin.brokers.switch_timer_engine(address, engine))
    name = _ENGINES[engine]
    return done.report(lambda address: f"switchTimerEngine to {name} success, {address}", engine=name)


# --- RocketMQ's broker container: several brokers in one process (MaxQ has --workers instead) ---

Container = Annotated[
    str, typer.Option("-c", "--brokerContainerAddr", callback=other_server_address, help="The container, host:port.")
]


@command(app, "addBroker")
async def add_broker(
    admin: Admin,
    container: Container,
    path: Annotated[str, typer.Option("-b", "--brokerConfigPath", help="Settings file, on the container's machine.")],
) -> Report:
    """Start a broker in a broker container."""
    await admin.brokers.add_to_container(container, path)
    return done_report(f"add broker to {container} success", container=container, configPath=path)


@command(app, "removeBroker", asks="Stop broker {identity} of the container {container}?")
async def remove_broker(
    admin: Admin,
    container: Container,
    identity: Annotated[str, typer.Option("-b", "--brokerIdentity", help="cluster:brokerName:id")],
) -> Report:
    """Stop a broker of a broker container."""
    cluster, _, rest = identity.partition(":")
    name, _, number = rest.rpartition(":")
    if not cluster or not name or not number.isdecimal():
        raise ConfigError(f"-b {identity!r} is not allowed: it must be cluster:brokerName:id, the id a number")
    await admin.brokers.remove_from_container(container, cluster, name, int(number))
    return done_report(f"remove broker from {container} success", container=container, broker=identity)


# --- cold reads: what consumer groups may read that is no longer in memory ---

Group = Annotated[str, typer.Option("-g", "--consumerGroup", help="Consumer group.")]
_COLD_READ_COLUMNS = {"address": "#Address", "key": "#Key", "value": "#Value"}


@command(app, "getColdDataFlowCtrInfo")
async def get_cold_data_flow_ctr_info(admin: Admin, broker: BrokerAddr = None, cluster: ClusterName = None) -> Report:
    """Thresholds of cold reads on brokers, and what counts against them."""
    found = await ask_each(await addresses(admin, broker, cluster, masters=False), admin.brokers.cold_data_flow_control)
    lines: list[str] = []
    for address, info in found.answers.items():
        if info is None:
            lines.append(f"Broker[{address}] has no cold ctr table !")
        else:
            lines.append(f" ============{address}============")
            lines.append(orjson.dumps(info, option=orjson.OPT_INDENT_2).decode())
    rows = [(address, key, value) for address, info in found.answers.items() for key, value in (info or {}).items()]
    return Report(_COLD_READ_COLUMNS, rows, value=found.answers, text="\n".join(lines) + "\n", failures=found.failures)


@command(app, "updateColdDataFlowCtrGroupConfig", summary="Set how much a consumer group may read cold.")
async def update_cold_data_flow_ctr_group_config(
    admin: Admin,
    group: Group,
    threshold: Annotated[int, typer.Option("-v", "--threshold", min=0, help="Bytes a second.")],
    broker: BrokerAddr = None,
    cluster: ClusterName = None,
) -> Report:
    """Set how many bytes a second a consumer group may read that are no longer in memory."""
    done = await ask_each(
        await addresses(admin, broker, cluster),
        lambda address: admin.brokers.update_cold_data_flow_control(address, group, threshold),
    )
    return done.report(
        lambda address: f"updateColdDataFlowCtrGroupConfig success, {address}", group=group, threshold=threshold
    )


@command(app, "removeColdDataFlowCtrGroupConfig")
async def remove_cold_data_flow_ctr_group_config(
    admin: Admin, group: Group, broker: BrokerAddr = None, cluster: ClusterName = None
) -> Report:
    """Give a consumer group the common threshold of cold reads again."""
    done = await ask_each(
        await addresses(admin, broker, cluster),
        lambda address: admin.brokers.remove_cold_data_flow_control(address, group),
    )
    return done.report(lambda address: f"remove broker cold read threshold success, {address}", group=group)


@command(app, "setCommitLogReadAheadMode")
async def set_commit_log_read_ahead_mode(
    admin: Admin,
    mode: Annotated[
        int, typer.Option("-m", "--commitLogReadAheadMode", min=0, max=1, help="0: read ahead; 1: reads are random.")
    ],
    broker: BrokerAddr = None,
    cluster: ClusterName = None,
) -> Report:
    """Whether the kernel reads ahead in the log."""
    done = await ask_each(
        await addresses(admin, broker, cluster, masters=False),
        lambda address: admin.brokers.set_commit_log_read_ahead_mode(address, mode),
    )
    text = "".join(
        f" ============{address}============\ncommitLog set readAhead mode rstStr{answer}\n"
        for address, answer in done.answers.items()
    )
    rows = [(address, "mode", answer) for address, answer in done.answers.items()]
    return Report(_COLD_READ_COLUMNS, rows, value=done.answers, text=text, failures=done.failures)
