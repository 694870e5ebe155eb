"""Topic commands of mqadmin."""

from pathlib import Path
from typing import Annotated

import orjson
import typer

from maxq.cli.admin.command import BrokerAddr, ClusterName, Topic, Via, addresses, change_each, command
from maxq.cli.admin.fan_out import ask_each
from maxq.cli.admin.values import is_true
from maxq.cli.help_pages import CommandApp
from maxq.cli.terminal.progress import tracked
from maxq.cli.terminal.report import Report, done_report
from maxq.cli.terminal.times import format_time
from maxq.client.admin.admin import Admin
from maxq.client.admin.name_servers import NAMESPACE_ORDER_TOPIC_CONFIG
from maxq.client.admin.static_topic_plan import Plan
from maxq.client.consumer.rebalance import AllocateMessageQueueAveragely
from maxq.errors import ConfigError
from maxq.protocol.body.topic_config import TopicConfig

app = CommandApp()

UNIT, HAS_UNIT_SUB = 1, 2  # bits of topicSysFlag
Perm = Annotated[int | None, typer.Option("-p", "--perm", min=0, max=7, help="2 write, 4 read, 6 both.")]


@command(app, "updateTopic")
async def update_topic(
    admin: Admin,
    topic: Topic,
    broker: BrokerAddr = None,
    cluster: ClusterName = None,
    read_queues: Annotated[int, typer.Option("-r", "--readQueueNums", min=1)] = 8,
    write_queues: Annotated[int, typer.Option("-w", "--writeQueueNums", min=1)] = 8,
    perm: Perm = 6,
    order: Annotated[
        str | None,
        typer.Option("-o", "--order", metavar="true|false", help="Is its order guarded? false ends it."),
    ] = None,
    unit: Annotated[str, typer.Option("-u", "--unit", metavar="true|false")] = "false",
    has_unit_sub: Annotated[str, typer.Option("-s", "--hasUnitSub", metavar="true|false")] = "false",
    attributes: Annotated[str, typer.Option("-a", "--attributes", help="+name=value,-name")] = "",
) -> Report:
    """Create or change a topic on one broker (-b) or on the masters of a cluster (-c)."""
    flags = UNIT * is_true("-u", unit) | HAS_UNIT_SUB * is_true("-s", has_unit_sub)
    given = dict(part.strip().partition("=")[::2] for part in attributes.split(",") if part.strip())
    config = TopicConfig(
        topic, read_queues, write_queues, 6 if perm is None else perm, topic_sys_flag=flags, attributes=given
    )
    config.order = order is not None and is_true("-o", order)
    done = await change_each(admin, broker, cluster, lambda target: admin.topics.create(target, config))
    made = list(done.answers)
    lines = [f"create topic to {target} success." for target in made]
    if config.order and made:
        lines.append(await _put_order(admin, topic, cluster, write_queues, made, is_whole=not done.failures))
    elif order and made and await admin.name_servers.get_kv(NAMESPACE_ORDER_TOPIC_CONFIG, topic) is not None:
        # otherwise brokers make it an ordered topic again
        await admin.name_servers.delete_kv(NAMESPACE_ORDER_TOPIC_CONFIG, topic)
        lines.append("delete orderConf. isOrder=false")
    if made:
        lines.append(config.describe())
    value = {"brokers": made, "topic": config.to_json()}
    return Report({}, [], value=value, text="".join(f"{line}\n" for line in lines), failures=done.failures)


async def _put_order(
    admin: Admin, topic: str, cluster: str | None, queues: int, targets: list[str], *, is_whole: bool
) -> str:
    """Write how many queues each broker name has, so that their number stays when one is away. The order of queues on
    other brokers stays, unless the topic was created on all brokers of a cluster (`is_whole`)."""
    info = await admin.cluster_info()
    names = [name for name, data in info.broker_addr_table.items() if set(data.broker_addrs.values()) & set(targets)]
    known = "" if cluster and is_whole else await admin.name_servers.get_kv(NAMESPACE_ORDER_TOPIC_CONFIG, topic)
    numbers = dict(part.partition(":")[::2] for part in (known or "").split(";") if part)
    numbers |= dict.fromkeys(names, str(queues))
    order_conf = ";".join(f"{name}:{number}" for name, number in sorted(numbers.items()))
    await admin.name_servers.put_kv(NAMESPACE_ORDER_TOPIC_CONFIG, topic, order_conf)
    whose = "cluster" if cluster else "broker"
    return f"set {whose} orderConf. isOrder=true, orderConf=[{order_conf}]"


def read_json_list(path: Path) -> list[object]:
    """Read a JSON array from a file.

    Raises:
        ConfigError: the file is not there, not JSON, or no array.
    """
    try:
        found = orjson.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"file {path} can not be read: {error.strerror}") from None
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"file {path} is not JSON: {error}") from None
    if not isinstance(found, list):
        raise ConfigError(f"file {path} must be a JSON array")
    return found


@command(app, "updateTopicList")
async def update_topic_list(
    admin: Admin,
    file: Annotated[Path, typer.Option("-f", "--filename", help="JSON array of topic configurations.")],
    broker: BrokerAddr = None,
    cluster: ClusterName = None,
) -> Report:
    """Create or change the topics of a JSON file."""
    configs = [TopicConfig.from_json(value) for value in read_json_list(file)]
    done = await change_each(admin, broker, cluster, lambda target: admin.topics.create_list(target, configs))
    return done.report(
        lambda target: f"submit batch of topic config to {target} success, please check the result later.",
        topics=len(configs),
    )


@command(app, "updateTopicPerm")
async def update_topic_perm(
    admin: Admin,
    topic: Topic,
    perm: Annotated[int, typer.Option("-p", "--perm", min=0, max=7, help="2 write, 4 read, 6 both.")],
    broker: BrokerAddr = None,
    cluster: ClusterName = None,
) -> Report:
    """Change who may read and write a topic."""

    async def change(target: str) -> int:
        config = await admin.topics.config(target, topic)
        if config.perm != perm:
            changed = TopicConfig(
                topic,
                config.read_queue_nums,
                config.write_queue_nums,
                perm,
                config.topic_filter_type,
                config.topic_sys_flag,
                config.order,
            )
            await admin.topics.create(target, changed)
        return config.perm

    done = await change_each(admin, broker, cluster, change)
    rows = [(target, old, perm) for target, old in done.answers.items()]
    lines = [
        f"update topic perm from {old} to {new} in {target} success."
        if old != new
        else "new perm equals to the old one!"
        for target, old, new in rows
    ]
    columns = {"broker": "#Broker", "oldPerm": "#Old", "newPerm": "#New"}
    return Report(columns, rows, text="".join(f"{line}\n" for line in lines), failures=done.failures)


@command(app, "deleteTopic", asks="Delete topic {topic} with all its messages from {where}?")
async def delete_topic(admin: Admin, topic: Topic, cluster: ClusterName = None, broker: BrokerAddr = None) -> Report:
    """Delete a topic from the brokers of a cluster and, if none of them failed, from the name servers. With -b, delete
    it from one broker alone, which was away when the topic was deleted, and from the name servers if no other has it.
    """
    if cluster is None:
        (target,) = await addresses(admin, broker, cluster)
        others = await admin.topics.delete_alone(target, topic)
        facts = {"topic": topic, "cluster": "", "brokers": [target], "nameServers": not others, "left": ""}
        lines = [f"delete topic [{topic}] from broker [{target}] success."]
        if others:
            lines.append(f"NameServer is left alone: broker {', '.join(others)} has the topic, or does not answer.")
        else:
            lines.append(f"delete topic [{topic}] from NameServer success.")
        text = "".join(f"{line}\n" for line in lines)
        return Report({name: f"#{name}" for name in facts}, [list(facts.values())], value=facts, text=text)
    if broker is not None:
        raise ConfigError("one of -b/--brokerAddr and -c/--clusterName is needed")
    left = await admin.topics.parts_away(topic)
    follows = {
        address: address in data.followers
        for data in await admin.brokers.of_cluster(cluster)
        for address in data.addresses
    }
    done = await ask_each(
        follows, lambda address: admin.topics.delete_in_broker(address, topic, follows_master=follows[address])
    )
    lines = []
    failures = done.failures
    if not failures:  # a broker that still has the topic would register it again
        lines = [f"delete topic [{topic}] from cluster [{cluster}] success."]
        told = await ask_each(
            admin.name_servers.addresses,
            lambda server: admin.topics.delete_in_name_servers(topic, cluster, servers=[server]),
        )
        failures = told.failures
        if told.answers:
            await admin.topics.forget_order(topic)
            lines.append(f"delete topic [{topic}] from NameServer success.")
    if left:
        lines.append(f"But {left}.")
    facts = {
        "topic": topic,
        "cluster": cluster,
        "brokers": list(done.answers),
        "nameServers": not failures,
        "left": left,
    }
    columns = {name: f"#{name}" for name in facts}
    text = "".join(f"{line}\n" for line in lines)
    return Report(columns, [list(facts.values())], value=facts, text=text, failures=failures)


@command(app, "topicList")
async def topic_list(
    admin: Admin,
    with_clusters: Annotated[bool, typer.Option("-c", "--clusterModel", help="With clusters and groups.")] = False,
) -> Report:
    """All topics."""
    topics = await admin.topics.names()
    if not with_clusters:
        text = "".join(f"{topic}\n" for topic in topics)
        return Report({"topic": "#Topic"}, [(topic,) for topic in topics], value=topics, text=text)
    rows = []
    for topic in tracked([topic for topic in topics if not topic.startswith(("%RETRY%", "%DLQ%"))], "Asking brokers"):
        clusters = await admin.topics.clusters(topic)
        groups = await admin.topics.consumed_by(topic) or [""]
        rows += [(cluster, topic, group) for cluster in clusters for group in groups]
    return Report({"cluster": "#Cluster Name", "topic": "#Topic", "consumerGroup": "#Consumer Group"}, rows)


_ROUTE_COLUMNS = {
    "cluster": "#ClusterName",
    "brokerName": "#BrokerName",
    "brokerAddrs": "#BrokerAddrs",
    "readQueueNums": "#ReadQueue",
    "writeQueueNums": "#WriteQueue",
    "perm": "#Perm",
}


@command(app, "topicRoute")
async def topic_route(
    admin: Admin, topic: Topic, as_list: Annotated[bool, typer.Option("-l", "--list", help="As a table.")] = False
) -> Report:
    """The brokers and queues of a topic."""
    route = await admin.topics.route(topic)
    brokers = {data.broker_name: data for data in route.broker_datas}
    rows = []
    for queues in sorted(route.queue_datas, key=lambda data: data.broker_name):
        data = brokers.get(queues.broker_name)
        hosts = data.broker_addrs if data else {}
        shown = ",".join(f"{number}:{address}" for number, address in sorted(hosts.items()))
        cluster = data.cluster if data else ""
        counts = (queues.read_queue_nums, queues.write_queue_nums, queues.perm)
        rows.append((cluster, queues.broker_name, shown, *counts))
    total = f"Total: {len(rows)}  {sum(row[3] for row in rows)}  {sum(row[4] for row in rows)}"
    value = route.to_json()
    pretty = orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode() + "\n"
    return Report(_ROUTE_COLUMNS, rows, value=value, notes=[total], text=None if as_list else pretty)


@command(app, "topicStatus")
async def topic_status(admin: Admin, topic: Topic, via: Via = None) -> Report:
    """Offsets of a topic's queues."""
    stats = await admin.topics.stats(topic, via=via)
    rows = [
        (queue.broker_name, queue.queue_id, at.min_offset, at.max_offset, format_time(at.last_update_timestamp))
        for queue, at in sorted(stats.offset_table.items())
    ]
    columns = {
        "brokerName": "#Broker Name",
        "queueId": "#QID",
        "minOffset": "#Min Offset",
        "maxOffset": "#Max Offset",
        "lastUpdated": "#Last Updated",
    }
    return Report(columns, rows, notes=["", f"Topic Put TPS: {stats.topic_put_tps}"])


@command(app, "topicClusterList")
async def topic_cluster_list(admin: Admin, topic: Topic) -> Report:
    """The clusters that have a topic."""
    clusters = await admin.topics.clusters(topic)
    text = "".join(f"{cluster}\n" for cluster in clusters)
    return Report({"cluster": "#Cluster Name"}, [(cluster,) for cluster in clusters], value=clusters, text=text)


@command(app, "updateOrderConf")
async def update_order_conf(
    admin: Admin,
    topic: Topic,
    method: Annotated[str, typer.Option("-m", "--method", help="get, put or delete.")],
    order_conf: Annotated[str, typer.Option("-v", "--orderConf", help="brokerName:queues;…")] = "",
) -> Report:
    """Get, put or delete the order configuration of a topic."""
    if method == "put":
        if not order_conf:
            raise ConfigError("-v/--orderConf is needed to put an order configuration")
        await admin.name_servers.put_kv(NAMESPACE_ORDER_TOPIC_CONFIG, topic, order_conf)
    elif method == "delete":
        await admin.name_servers.delete_kv(NAMESPACE_ORDER_TOPIC_CONFIG, topic)
    elif method == "get":
        order_conf = await admin.name_servers.get_kv(NAMESPACE_ORDER_TOPIC_CONFIG, topic) or ""
    else:
        raise ConfigError(f"-m {method!r} is not allowed: it must be get, put or delete")
    verb = {"put": "update"}.get(method, method)
    sentence = f"{verb} orderConf success. topic=[{topic}], orderConf=[{order_conf}]"
    return done_report(sentence, topic=topic, orderConf=order_conf)


@command(app, "allocateMQ")
async def allocate_mq(
    admin: Admin, topic: Topic, ips: Annotated[str, typer.Option("-i", "--ipList", help="Consumers, comma separated.")]
) -> Report:
    """How the queues of a topic would be shared out among consumers."""
    consumers = sorted({ip for ip in ips.split(",") if ip})
    queues = await admin.offsets.queues(topic)
    strategy = AllocateMessageQueueAveragely()
    shares = {ip: strategy.allocate("", ip, queues, consumers) for ip in consumers}
    rows = [(ip, queue.broker_name, queue.queue_id) for ip, mine in shares.items() for queue in mine]
    value = {"result": {ip: [queue.to_json() for queue in mine] for ip, mine in shares.items()}}
    text = orjson.dumps(value).decode() + "\n"
    return Report({"ip": "#IP", "brokerName": "#Broker Name", "queueId": "#QID"}, rows, value=value, text=text)


# --- static topics ---

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
    queues: Annotated[int, typer.Option("-qn", "--totalQueueNum", min=1, max=65_535, help="Global queues.")],
    brokers: Brokers = None,
    clusters: Clusters = None,
    force: Force = "false",
) -> Report:
    """Make a static topic, or give one more queues: they keep their numbers when brokers come and go."""
    names = await _broker_names(admin, brokers, clusters)
    return _static_topic_report(await admin.static_topics.create(topic, queues, names, force=is_true("-fr", force)))


@command(app, "remappingStaticTopic", asks="Move the queues of static topic {topic} to other brokers?")
async def remapping_static_topic(
    admin: Admin, topic: Topic, brokers: Brokers = None, clusters: Clusters = None, force: Force = "false"
) -> Report:
    """Move the queues of a static topic to these brokers; readers and writers follow."""
    names = await _broker_names(admin, brokers, clusters)
    return _static_topic_report(await admin.static_topics.remap(topic, names, force=is_true("-fr", force)))


async def _broker_names(admin: Admin, brokers: str | None, clusters: str | None) -> list[str]:
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


def _static_topic_report(plan: Plan) -> Report:
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
