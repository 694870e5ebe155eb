"""Export commands of mqadmin: settings and figures of a cluster as JSON files, for moving and for comparing."""

from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from maxq.cli.admin.command import BrokerAddr, ClusterName, addresses, command
from maxq.cli.admin.fan_out import ask_each
from maxq.cli.admin.values import is_true, version_name
from maxq.cli.help_pages import CommandApp
from maxq.cli.terminal.report import Report, done_report
from maxq.client.admin.admin import Admin
from maxq.codes import MQVersion
from maxq.errors import BrokerError, ClientError, ConfigError, RemotingError
from maxq.protocol.body.broker_stats import BrokerStatsData
from maxq.protocol.body.subscription import SubscriptionGroupConfig
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.namespace import DLQ_PREFIX, RETRY_PREFIX, is_system_group, is_system_topic
from maxq.runtime.files.durable_files import DurableFiles
from maxq.runtime.files.system import SystemClock

app = CommandApp()

DEFAULT_FOLDER = Path("/tmp/rocketmq/export")
Folder = Annotated[Path, typer.Option("-f", "--filePath", help="Folder for the file; it is made if it is not there.")]
Cluster = Annotated[str, typer.Option("-c", "--clusterName", help="Cluster.")]

#: Groups of RocketMQ's own (MixAll.PREDEFINE_GROUP_SET).
_PREDEFINED_GROUPS = frozenset(
    {
        "DEFAULT_PRODUCER", "DEFAULT_CONSUMER", "TOOLS_CONSUMER", "SCHEDULE_CONSUMER", "FILTERSRV_CONSUMER",
        "MONITOR_CONSUMER", "CLIENT_INNER_PRODUCER", "SELF_TEST_P_GROUP", "SELF_TEST_C_GROUP", "ONS_HTTP_PROXY_GROUP",
        "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_ONSAPI_PULL",
    }
)  # fmt: skip
_BROKER_SETTINGS = (
    "brokerClusterName", "brokerId", "brokerName", "brokerRole", "fileReservedTime", "filterServerNums",
    "flushDiskType", "maxMessageSize", "messageDelayLevel", "msgTraceTopicName", "slaveReadEnable", "traceOn",
    "traceTopicEnable", "useTLS", "autoCreateTopicEnable", "autoCreateSubscriptionGroup",
)  # fmt: skip


def _write(folder: Path, name: str, value: Any) -> Path:
    """Write a value as JSON, completely or not at all.

    Raises:
        ConfigError: it cannot be written.
    """
    path = folder / name
    try:
        DurableFiles().replace(path, orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS))
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}; say where with -f/--filePath") from None
    return path


def _exported(path: Path, failures: dict[str, str] | None = None, **facts: Any) -> Report:
    done = done_report(f"export {path} success", file=str(path), **facts)
    return Report(done.columns, done.rows, value=done.value, text=done.text, failures=failures or {})


# --- metadata ---


async def _user_topics(admin: Admin, address: str, special: bool) -> dict[str, TopicConfig]:
    """Return a broker's topics without its own; `special`: with retry and dead-letter topics."""
    own = set(await admin.topics.system_names(address))
    table = (await admin.topics.all_configs(address)).topic_config_table
    return {
        name: config
        for name, config in table.items()
        if name not in own
        and not is_system_topic(name)
        and (special or not name.startswith((RETRY_PREFIX, DLQ_PREFIX)))
        and 0 <= config.perm <= 7
    }


async def _user_groups(admin: Admin, address: str) -> dict[str, SubscriptionGroupConfig]:
    table = (await admin.groups.all_configs(address)).subscription_group_table
    return {
        name: config for name, config in table.items() if not is_system_group(name) and name not in _PREDEFINED_GROUPS
    }


@command(app, "exportMetadata")
async def export_metadata(
    admin: Admin,
    broker: BrokerAddr = None,
    cluster: ClusterName = None,
    folder: Folder = DEFAULT_FOLDER,
    topics: Annotated[bool, typer.Option("-t", "--topic", help="Only topics.")] = False,
    groups: Annotated[bool, typer.Option("-g", "--subscriptionGroup", help="Only consumer groups.")] = False,
    special: Annotated[bool, typer.Option("-s", "--specialTopic", help="Retry and dead-letter topics, too.")] = False,
) -> Report:
    """Topics and consumer groups of one broker, or of a cluster with their queues added up, as a JSON file."""
    targets = await addresses(admin, broker, cluster)
    if topics and groups:
        raise ConfigError("-t/--topic and -g/--subscriptionGroup exclude each other; without either both are exported")

    async def both(address: str) -> tuple[dict[str, TopicConfig], dict[str, SubscriptionGroupConfig]]:
        of_topics = {} if groups else await _user_topics(admin, address, special)
        return of_topics, {} if topics else await _user_groups(admin, address)

    found = await ask_each(targets, both)
    all_topics: dict[str, TopicConfig] = {}
    all_groups: dict[str, SubscriptionGroupConfig] = {}
    for some_topics, some_groups in found.answers.values():
        for name, config in some_topics.items():
            if (before := all_topics.get(name)) is not None:
                config.read_queue_nums += before.read_queue_nums
                config.write_queue_nums += before.write_queue_nums
            all_topics[name] = config
        for name, group in some_groups.items():
            if (known := all_groups.get(name)) is not None:
                group.retry_queue_nums += known.retry_queue_nums
            all_groups[name] = group
    value: dict[str, Any] = {}
    if not groups:
        value["topicConfigTable"] = {name: config.to_json() for name, config in sorted(all_topics.items())}
    if not topics:
        value["subscriptionGroupTable"] = {name: config.to_json() for name, config in sorted(all_groups.items())}
    value["exportTime"] = SystemClock().wall_ms()
    file = "topic.json" if topics else "subscriptionGroup.json" if groups else "metadata.json"
    path = _write(folder, file, value)
    return _exported(path, found.failures, topics=len(all_topics), subscriptionGroups=len(all_groups))


@command(app, "exportConfigs")
async def export_configs(admin: Admin, cluster: Cluster, folder: Folder = DEFAULT_FOLDER) -> Report:
    """The settings of a cluster's masters that matter to clients, as a JSON file."""
    brokers = await admin.brokers.of_cluster(cluster)
    masters = {data.master_address: data for data in brokers if data.master_address}
    found = await ask_each(masters, admin.brokers.config)
    configs = {
        masters[address].broker_name: {name: config[name] for name in _BROKER_SETTINGS if name in config}
        for address, config in found.answers.items()
    }
    slaves = sum(len(data.broker_addrs) - (data.master_address is not None) for data in brokers)
    scale = {
        "namesrvSize": len(admin.name_servers.addresses), "masterBrokerSize": len(masters), "slaveBrokerSize": slaves,
    }  # fmt: skip
    path = _write(folder, "configs.json", {"brokerConfigs": configs, "clusterScale": scale})
    return _exported(path, found.failures, brokers=len(configs))


# --- figures ---


@command(app, "exportMetrics")
async def export_metrics(admin: Admin, cluster: Cluster, folder: Folder = DEFAULT_FOLDER) -> Report:
    """Rates, counts and sizes of a cluster's masters, as a JSON file."""
    brokers = await admin.brokers.of_cluster(cluster)
    names = {data.master_address: data.broker_name for data in brokers if data.master_address}
    found = await ask_each(names, lambda address: _evaluated(admin, address))
    evaluated = {names[address]: answer for address, answer in found.answers.items()}
    quotas = [answer["runtimeQuota"] for answer in evaluated.values()]
    total = {
        "totalTps": {_total(name): sum(quota["tps"][name] for quota in quotas) for name in _TPS},
        "totalOneDayNum": {_total(name): sum(quota["oneDayNum"][name] for quota in quotas) for name in _ONE_DAY},
    }
    path = _write(folder, "metrics.json", {"evaluateReport": evaluated, "totalData": total})
    return _exported(path, found.failures, brokers=len(evaluated))


_TPS = ("normalInTps", "normalOutTps", "transInTps", "scheduleInTps")
_ONE_DAY = ("normalOneDayInNum", "normalOneDayOutNum", "transOneDayInNum", "scheduleOneDayInNum")
_HALF_TOPIC, _SCHEDULE_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"


def _total(name: str) -> str:
    return f"total{name[0].upper()}{name[1:]}"


async def _evaluated(admin: Admin, address: str) -> dict[str, Any]:
    state, config = await admin.brokers.runtime_info(address), await admin.brokers.config(address)
    groups = await _user_groups(admin, address)
    clients = set()
    for group in groups:
        try:
            members = (await admin.groups.connections(group)).connection_set
        except (BrokerError, ClientError, RemotingError):  # no such consumer is connected
            continue
        clients |= {f"{member.language}%{version_name(member.version)}" for member in members}
    return {
        "runtimeEnv": {
            "cpuNum": config.get("clientCallbackExecutorThreads"),
            "totalMemKBytes": state.get("totalMemKBytes"),
        },
        "runtimeQuota": {
            **await _quota(admin, address, state),
            "topicSize": len(await _user_topics(admin, address, special=False)),
            "groupSize": len(groups),
        },
        "runtimeVersion": {"rocketmqVersion": version_name(MQVersion.V5_5_0), "clientInfo": sorted(clients)},
    }


async def _quota(admin: Admin, address: str, state: dict[str, str]) -> dict[str, Any]:
    halves = await _put_stats(admin, address, _HALF_TOPIC)
    scheduled = await _put_stats(admin, address, _SCHEDULE_TOPIC)

    def rate(name: str) -> float:
        return float((state.get(name, "").split() or ["0"])[0])

    def yesterday(kind: str) -> int:
        return int(state.get(f"msg{kind}TotalTodayMorning", 0)) - int(state.get(f"msg{kind}TotalYesterdayMorning", 0))

    tps = (rate("putTps"), rate("getTransferredTps"), halves.stats_minute.tps, scheduled.stats_minute.tps)
    one_day = (yesterday("Put"), yesterday("Get"), sum_of_a_day(halves), sum_of_a_day(scheduled))
    return {
        "diskRatio": {name: state.get(name) for name in ("commitLogDiskRatio", "consumeQueueDiskRatio")},
        "tps": dict(zip(_TPS, tps, strict=True)),
        "oneDayNum": dict(zip(_ONE_DAY, one_day, strict=True)),
        "messageAverageSize": state.get("putMessageAverageSize"),
    }


async def _put_stats(admin: Admin, address: str, topic: str) -> BrokerStatsData:
    try:
        return await admin.brokers.stats(address, "TOPIC_PUT_NUMS", topic)
    except BrokerError:  # nothing has been counted under this key yet
        return BrokerStatsData()


def sum_of_a_day(stats: BrokerStatsData) -> int:
    """Return the count of the longest period for which there is one, at most a day."""
    return stats.stats_day.sum or stats.stats_hour.sum or stats.stats_minute.sum


# --- pop ---


@command(app, "exportPopRecord")
async def export_pop_record(
    admin: Admin,
    broker: BrokerAddr = None,
    cluster: ClusterName = None,
    dry_run: Annotated[str, typer.Option("-d", "--dryRun", metavar="true|false", help="Only say on which.")] = "false",
) -> Report:
    """Have brokers move pop's records out of RocksDB into the revive topics; with `-d true` only say which."""
    is_dry = is_true("-d", dry_run)
    targets = await addresses(admin, broker, cluster, masters=False)

    async def export(address: str) -> str:
        name = (await admin.brokers.config(address)).get("brokerName", "")
        if not is_dry:
            await admin.brokers.export_pop_records(address)
        return name

    done = await ask_each(targets, export)
    said = str(is_dry).lower()
    text = "".join(
        f"Export broker records, brokerName={name}, brokerAddr={address}, dryRun={said}\n"
        for address, name in done.answers.items()
    )
    columns = {"broker": "#Broker", "brokerName": "#Broker Name", "dryRun": "#Dry Run"}
    rows = [(address, name, is_dry) for address, name in done.answers.items()]
    return Report(columns, rows, text=text, failures=done.failures)


# --- RocksDB, in which Java's brokers may keep settings and queues (MaxQ keeps files) ---

_TYPES = ("topics", "subscriptionGroups", "consumerOffsets")
_DEFAULT_CHECK_MS = 30 * 24 * 3_600_000
_IN_PROGRESS = (0, 1)  # CheckRocksdbCqWriteResult: CHECK_OK, CHECK_NOT_OK come later; 2 in progress, 3 failed
_CHECK_ERROR = 3
ConfigTypes = Annotated[
    str | None, typer.Option("-t", "--configType", help=f"Of {', '.join(_TYPES)}, separated by ';'; without it all.")
]
JsonEnable = Annotated[str, typer.Option("-j", "--jsonEnable", metavar="true|false")]


def _refuse_local(path: Path) -> None:
    """Refuse a local path. Raises ConfigError."""
    raise ConfigError(
        f"{path} cannot be read here: it is a RocksDB folder of a Java broker, and MaxQ comes without RocksDB. Have "
        "the Java broker write JSON beside it: rocksDBConfigToJson with -b or -c"
    )


@command(app, "rocksDBConfigToJson")
async def rocks_db_config_to_json(
    admin: Admin,
    types: ConfigTypes = None,
    path: Annotated[Path | None, typer.Option("-p", "--configPath", help="A folder; refused, see the manual.")] = None,
    file: Annotated[Path | None, typer.Option("-e", "--exportFile", help="With -p.")] = None,
    json_enable: JsonEnable = "true",
    cluster: Annotated[str | None, typer.Option("-c", "--cluster", help="All masters of a cluster.")] = None,
    broker: BrokerAddr = None,
) -> Report:
    """Have brokers that keep settings in RocksDB write them as JSON files beside it."""
    if path is not None:
        _refuse_local(path)
    wanted = [part.strip() for part in (types or ";".join(_TYPES)).split(";") if part.strip()]
    unknown = [name for name in wanted if name not in _TYPES]
    if unknown:
        raise ConfigError(f"-t {unknown[0]!r} is not allowed: it must be of {', '.join(_TYPES)}")
    targets = await addresses(admin, broker, cluster)
    done = await ask_each(targets, lambda address: admin.brokers.export_rocksdb_config(address, wanted))
    return done.report(lambda address: f"{address} export done.", configTypes=wanted)


@command(app, "exportMetadataInRocksDB")
async def export_metadata_in_rocks_db(
    admin: Admin,
    path: Annotated[Path, typer.Option("-p", "--path", help="RocksDB folder of a Java broker.")],
    kind: Annotated[str, typer.Option("-t", "--configType", help="topics or subscriptionGroups.")],
    json_enable: JsonEnable = "true",
) -> Report:
    """Refused: it reads RocksDB folders, which only Java's brokers write; exportMetadata asks any broker."""
    if kind not in _TYPES[:2]:
        raise ConfigError(f"-t {kind!r} is not allowed: it must be topics or subscriptionGroups")
    _refuse_local(path)
    raise AssertionError("refused above")


@command(app, "checkRocksdbCqWriteProgress")
async def check_rocksdb_cq_write_progress(
    admin: Admin,
    cluster: Annotated[str, typer.Option("-c", "--cluster", help="Cluster.")],
    topic: Annotated[str, typer.Option("-t", "--topic", help="Only this topic.")] = "",
    since: Annotated[
        int | None, typer.Option("-cf", "--checkFrom", help="Stored since, ms; without it 30 days ago.")
    ] = None,
) -> Report:
    """Have brokers that write queues twice compare files and RocksDB; they say the result in their logs."""
    start_ms = since if since is not None else SystemClock().wall_ms() - _DEFAULT_CHECK_MS
    masters = {
        data.master_address: data.broker_name for data in await admin.brokers.of_cluster(cluster) if data.master_address
    }
    found = await ask_each(
        masters, lambda address: admin.brokers.check_rocksdb_cq_write_progress(address, topic, start_ms)
    )
    lines = []
    for address, result in found.answers.items():
        name, said = masters[address], result.get("checkResult")
        if result.get("checkStatus") == _CHECK_ERROR:
            found.failures[address] = f"{name} check error: {said}"
        else:
            lines.append(f"{name} check doing, please wait and get the result from log...\n")
    return Report({"broker": "#Broker"}, [(address,) for address in found.answers], value=found.answers,
                  text="".join(lines), failures=found.failures)  # fmt: skip
