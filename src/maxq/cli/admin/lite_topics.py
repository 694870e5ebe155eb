"""Commands of mqadmin 5.5 for lite topics, which RocketMQ 5.5's brokers have."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import typer

from maxq.cli.admin.command import BrokerAddr, addresses, command
from maxq.cli.admin.fan_out import Outcomes, ask_each
from maxq.cli.help_pages import CommandApp
from maxq.cli.terminal.report import Report
from maxq.cli.terminal.times import format_time
from maxq.client.admin.admin import Admin

app = CommandApp()

Parent = Annotated[str, typer.Option("-p", "--parentTopic", help="Parent topic.")]
Group = Annotated[str, typer.Option("-g", "--group", help="Consumer group.")]
Found = dict[str, Any]


async def _of_topic(
    admin: Admin, topic: str, ask: Callable[[str], Awaitable[Any]]
) -> tuple[Outcomes[Any], dict[str, str]]:
    """Ask the brokers of a topic; returns the answers by address, and address → broker name."""
    route = await admin.topics.route(topic)
    names = {data.master_address: data.broker_name for data in route.broker_datas if data.master_address}
    return await ask_each(names, ask), names


@command(app, "getBrokerLiteInfo")
async def get_broker_lite_info(
    admin: Admin,
    broker: BrokerAddr = None,
    cluster: Annotated[str | None, typer.Option("-c", "--cluster", help="All brokers of a cluster.")] = None,
    detail: Annotated[bool, typer.Option("-d", "--showDetail", help="With parent topics and groups.")] = False,
) -> Report:
    """Lite topics and subscriptions of brokers, in numbers."""
    columns = {
        "address": "#Broker", "storeType": "#Store Type", "maxLmqNum": "#Max LMQ", "currentLmqNum": "#Current LMQ",
        "liteSubscriptionCount": "#SubscriptionCount", "orderInfoCount": "#OrderInfoCount",
        "cqTableSize": "#CQTableSize", "offsetTableSize": "#OffsetTableSize", "eventMapSize": "#eventMapSize",
    }  # fmt: skip
    found: Outcomes[Found] = await ask_each(await addresses(admin, broker, cluster), admin.lite_topics.broker_info)
    rows = [(address, *(info.get(name, "") for name in list(columns)[1:])) for address, info in found.answers.items()]
    notes = [
        f"{kind}: {info.get(name)}"
        for info in found.answers.values()
        for kind, name in (("Topic Meta", "topicMeta"), ("Group Meta", "groupMeta"))
        if detail
    ]
    return Report(columns, rows, value=found.answers, notes=notes, failures=found.failures)


@command(app, "getParentTopicInfo")
async def get_parent_topic_info(admin: Admin, parent: Parent) -> Report:
    """A parent topic on each broker: lifetime, lite topics, groups."""
    found, names = await _of_topic(admin, parent, lambda address: admin.lite_topics.parent_topic(address, parent))
    columns = {"brokerName": "#Broker Name", "ttl": "#TTL", "liteTopicCount": "#Lite Count", "lmqNum": "#LMQ NUM"}
    keys = ("ttl", "liteTopicCount", "lmqNum", "groups")
    rows = [(names[address], *(info.get(key, "") for key in keys)) for address, info in found.answers.items()]
    text_head = f"Parent Topic Info: [{parent}]"
    return Report(columns | {"groups": "#GROUPS"}, rows, value=found.answers, notes=["", text_head],
                  failures=found.failures)  # fmt: skip


@command(app, "getLiteTopicInfo")
async def get_lite_topic_info(
    admin: Admin,
    parent: Parent,
    lite: Annotated[str, typer.Option("-l", "--liteTopic", help="Lite topic.")],
    show_clients: Annotated[bool, typer.Option("-s", "--showClientId", help="With its subscribers.")] = False,
) -> Report:
    """Offsets and subscribers of a lite topic."""
    found, names = await _of_topic(admin, parent, lambda address: admin.lite_topics.lite_topic(address, parent, lite))
    columns = {
        "brokerName": "#Broker Name", "minOffset": "#MinOffset", "maxOffset": "#MaxOffset",
        "lastUpdate": "#LastUpdate", "sharding": "#Sharding", "subClientCount": "#SubClientCount",
    }  # fmt: skip
    rows, notes = [], [f"Lite Topic Info: [{parent}] [{lite}] [%LMQ%${parent}${lite}]"]
    for address, info in found.answers.items():
        at, subscribers = info.get("topicOffset") or {}, info.get("subscriber") or []
        offsets = (at.get("minOffset", ""), at.get("maxOffset", ""), format_time(at.get("lastUpdateTimestamp", 0)))
        rows.append((names[address], *offsets, bool(info.get("shardingToBroker")), len(subscribers)))
        if show_clients:
            notes += [f"{one.get('clientId')}@{one.get('group')}" for one in subscribers]
    return Report(columns, rows, value=found.answers, notes=["", *notes], failures=found.failures)


@command(app, "getLiteClientInfo")
async def get_lite_client_info(
    admin: Admin,
    parent: Parent,
    group: Group,
    client_id: Annotated[str, typer.Option("-c", "--clientId", help="Client id.")],
    detail: Annotated[bool, typer.Option("-s", "--showDetail", help="With its lite topics.")] = False,
) -> Report:
    """A client's subscriptions below a parent topic."""
    found, names = await _of_topic(
        admin, parent, lambda address: admin.lite_topics.client(address, parent, group, client_id)
    )
    columns = {"brokerName": "#Broker", "liteTopicCount": "#LiteTopicCount", "lastAccessTime": "#LastAccessTime"}
    rows, notes = [], [f"Lite Client Info: [{parent}] [{group}] [{client_id}]"]
    for address, info in found.answers.items():
        times = (format_time(info.get("lastAccessTime", 0)), format_time(info.get("lastConsumeTime", 0)))
        rows.append((names[address], info.get("liteTopicCount", ""), *times))
        if detail:
            notes.append(f"Lite Topics: {info.get('liteTopicSet')}")
    columns |= {"lastConsumeTime": "#LastConsumeTime"}
    return Report(columns, rows, value=found.answers, notes=["", *notes], failures=found.failures)


@command(app, "getLiteGroupInfo")
async def get_lite_group_info(
    admin: Admin,
    parent: Parent,
    group: Group,
    lite: Annotated[str | None, typer.Option("-l", "--liteTopic", help="Only this lite topic.")] = None,
    top: Annotated[int, typer.Option("-k", "--topK", min=1, help="Show this many, those furthest behind first.")] = 20,
) -> Report:
    """How far behind a group is in the lite topics of a parent."""
    found, names = await _of_topic(
        admin, parent, lambda address: admin.lite_topics.group(address, group, lite, top_k=top)
    )
    total = sum(info.get("totalLagCount", 0) for info in found.answers.values())
    times = [info.get("earliestUnconsumedTimestamp", 0) for info in found.answers.values()]
    notes = ["", f"Lite Group Info: [{group}] [{parent}]", f"Total Lag Count: {total}"]
    notes.append(f"Min Unconsumed Timestamp: {format_time(min((at for at in times if at > 0), default=0))}")
    if lite is not None:
        columns = {"brokerName": "#Broker Name", "brokerOffset": "#BrokerOffset", "consumeOffset": "#ConsumeOffset"}
        columns |= {"lagCount": "#LagCount", "lastUpdate": "#LastUpdate"}
        rows: list[tuple[Any, ...]] = []
        for address, info in found.answers.items():
            at = info.get("liteTopicOffsetWrapper") or {}
            broker_offset, own = at.get("brokerOffset", 0), at.get("consumerOffset", 0)
            last = format_time(at.get("lastTimestamp", 0))
            rows.append((names[address], broker_offset, own, broker_offset - own, last))
        return Report(columns, rows, value=found.answers, notes=notes, failures=found.failures)
    behind = [one for info in found.answers.values() for one in info.get("lagCountTopK") or []]
    behind.sort(key=lambda one: -int(one.get("lagCount", 0)))
    columns = {"number": "#NO", "liteTopic": "#Lite Topic", "lagCount": "#Lag Count", "since": "#UnconsumedTimestamp"}
    rows = [
        (number, one.get("liteTopic"), one.get("lagCount"), format_time(one.get("earliestUnconsumedTimestamp", 0)))
        for number, one in enumerate(behind[:top], 1)
    ]
    return Report(columns, rows, value=found.answers, notes=notes, failures=found.failures)


@command(app, "triggerLiteDispatch")
async def trigger_lite_dispatch(
    admin: Admin,
    parent: Parent,
    group: Group,
    client_id: Annotated[str | None, typer.Option("-c", "--clientId", help="Only this client.")] = None,
    broker: Annotated[str | None, typer.Option("-b", "--brokerName", help="Only this broker.")] = None,
) -> Report:
    """Have brokers look again for messages that a group's clients have not been told of."""
    route = await admin.topics.route(parent)
    names = {
        data.master_address: data.broker_name
        for data in route.broker_datas
        if data.master_address and broker in (None, data.broker_name)
    }
    done = await ask_each(names, lambda address: admin.lite_topics.trigger_dispatch(address, group, client_id))
    return done.report(lambda address: f"{names[address]} dispatched", group=group, parentTopic=parent)
