"""Commands of mqadmin for RocksDB, in which Java's brokers may keep settings and queues. MaxQ keeps files."""

from pathlib import Path
from typing import Annotated

import typer

from maxq.cli.admin.command import BrokerAddr, addresses, command
from maxq.cli.admin.fan_out import ask_each
from maxq.cli.terminal.report import Report
from maxq.client.admin.admin import Admin
from maxq.errors import ConfigError
from maxq.runtime.files.system import SystemClock

app = typer.Typer(rich_markup_mode=None)

_TYPES = ("topics", "subscriptionGroups", "consumerOffsets")
_DEFAULT_CHECK_MS = 30 * 24 * 3_600_000
_IN_PROGRESS = (0, 1)  # CheckRocksdbCqWriteResult: CHECK_OK, CHECK_NOT_OK come later; 2 in progress, 3 failed
_CHECK_ERROR = 3
ConfigTypes = Annotated[
    str | None, typer.Option("-t", "--configType", help=f"Of {', '.join(_TYPES)}, separated by ';'; without it all.")
]
JsonEnable = Annotated[str, typer.Option("-j", "--jsonEnable", metavar="true|false")]


def _refuse_local(path: Path) -> None:
    """Raises ConfigError."""
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
