"""Controller commands of mqadmin. They ask a RocketMQ controller: MaxQ's brokers elect their leader by DLedger."""

from typing import Annotated, Any

import typer

from maxq.cli.admin.command import command
from maxq.cli.admin.fan_out import ask_each, settings_report
from maxq.cli.help_pages import CommandApp
from maxq.cli.options import other_server_addresses
from maxq.cli.terminal.report import Report, done_report
from maxq.client.admin.admin import Admin
from maxq.errors import ConfigError

app = CommandApp()

Controller = Annotated[
    str,
    typer.Option(
        "-a",
        "--controllerAddress",
        callback=other_server_addresses,
        help="Controllers, host:port separated by ';'.",
    ),
]
BrokerName = Annotated[str, typer.Option("-bn", "--brokerName", help="Broker name.")]
_COLUMNS = {"key": "#Key", "value": "#Value"}


@command(app, "getControllerMetaData")
async def get_controller_meta_data(admin: Admin, controller: Controller) -> Report:
    """Leader and members of a group of controllers."""
    found = await admin.controllers.metadata(controller.split(";")[0])
    peers = [peer for peer in found.get("peers", "").split(";") if peer]
    lines = [
        f"#ControllerGroup\t{found.get('group', '')}",
        f"#ControllerLeaderId\t{found.get('controllerLeaderId', '')}",
        f"#ControllerLeaderAddress\t{found.get('controllerLeaderAddress', '')}",
        *(f"#Peer:\t{peer}" for peer in peers),
    ]
    return Report(_COLUMNS, list(found.items()), value=found, text="\n" + "\n".join(lines) + "\n")


@command(app, "getControllerConfig")
async def get_controller_config(admin: Admin, controller: Controller) -> Report:
    """Settings of controllers."""
    return settings_report(await ask_each(controller.split(";"), admin.controllers.config))


@command(app, "updateControllerConfig")
async def update_controller_config(
    admin: Admin,
    controller: Controller,
    key: Annotated[str, typer.Option("-k", "--key", help="Property.")],
    value: Annotated[str, typer.Option("-v", "--value")],
) -> Report:
    """Change a setting of controllers."""
    targets = controller.split(";")
    done = await ask_each(targets, lambda address: admin.controllers.update_config(address, {key: value}))
    sentence = f"update controller config success![{', '.join(done.answers)}]\n{key} : {value}\n"
    facts = {"controllers": list(done.answers), "key": key, "value": value}
    return Report(_COLUMNS, list(facts.items()), value=facts, text=sentence, failures=done.failures)


@command(app, "electMaster", asks="Make broker {broker_id} the master of {broker}?")
async def elect_master(
    admin: Admin,
    controller: Controller,
    broker_id: Annotated[int, typer.Option("-b", "--brokerId", help="The id of the new master.")],
    broker: BrokerName,
    cluster: Annotated[str, typer.Option("-c", "--clusterName", help="Cluster.")],
) -> Report:
    """Make another broker of a group its master."""
    found, group = await admin.controllers.elect_master(controller.split(";")[0], cluster, broker, broker_id)
    members: dict[Any, Any] = group.get("brokerAddrs") or {}
    lines = [
        f"#ClusterName\t{cluster}",
        f"#BrokerName\t{broker}",
        f"#BrokerMasterAddr\t{found.get('masterAddress', '')}",
        f"#MasterEpoch\t{found.get('masterEpoch', '')}",
        f"#SyncStateSetEpoch\t{found.get('syncStateSetEpoch', '')}",
        *(f"\t#Broker\t{number}\t{address}" for number, address in members.items()),
    ]
    return Report(
        _COLUMNS, list(found.items()), value={**found, "brokerAddrs": members}, text="\n" + "\n".join(lines) + "\n"
    )


@command(app, "cleanBrokerMetadata", asks="Make the controller forget broker {broker} (ids {ids})?")
async def clean_broker_metadata(
    admin: Admin,
    controller: Controller,
    broker: BrokerName,
    ids: Annotated[
        str | None, typer.Option("-b", "--brokerControllerIdsToClean", help="Ids separated by ';'; without it all.")
    ] = None,
    cluster: Annotated[str | None, typer.Option("-c", "--clusterName", help="Cluster; needed without -l.")] = None,
    living: Annotated[bool, typer.Option("-l", "--cleanLivingBroker", help="Also brokers that are alive.")] = False,
) -> Report:
    """Make the controller forget brokers of a group."""
    if ids is not None and not all(part.strip().isdecimal() for part in ids.split(";")):
        raise ConfigError(f"-b {ids!r} is not allowed: it must be numbers separated by ';'")
    if not living and not cluster:
        raise ConfigError("without -l/--cleanLivingBroker the cluster is needed: -c/--clusterName")
    await admin.controllers.clean_broker_data(controller.split(";")[0], cluster, broker, ids, clean_living=living)
    return done_report(f"clear broker {broker} metadata from controller success!", brokerName=broker, ids=ids)


@command(app, "getSyncStateSet", repeats=True)
async def get_sync_state_set(
    admin: Admin,
    controller: Controller,
    cluster: Annotated[str | None, typer.Option("-c", "--clusterName", help="All broker names of a cluster.")] = None,
    broker: Annotated[str | None, typer.Option("-b", "--brokerName", help="One broker name.")] = None,
) -> Report:
    """Which brokers of a group have everything, as the controller sees it."""
    if (broker is None) == (cluster is None):
        raise ConfigError("one of -b/--brokerName and -c/--clusterName is needed")
    names = [broker] if broker else [data.broker_name for data in await admin.brokers.of_cluster(cluster or "")]
    found = await admin.controllers.sync_state(controller.split(";")[0], names)
    rows, lines = [], []
    for name, info in sorted(found.items()):
        inside, outside = info.get("inSyncReplicas") or [], info.get("notInSyncReplicas") or []
        facts = (info.get("masterBrokerId"), info.get("masterAddress"), info.get("masterEpoch"))
        rows.append((name, *facts, info.get("syncStateSetEpoch"), len(inside)))
        lines += ["", *(f"{head}\t{value}" for head, value in zip(_SYNC.values(), rows[-1], strict=True))]
        lines += [f"\nInSyncReplica:\t{_identity(replica)}" for replica in inside]
        lines += [f"\nNotInSyncReplica:\t{_identity(replica)}" for replica in outside]
    return Report(_SYNC, rows, value=found, text="\n".join(lines) + "\n")


_SYNC = {
    "brokerName": "#brokerName",
    "masterBrokerId": "#MasterBrokerId",
    "masterAddress": "#MasterAddr",
    "masterEpoch": "#MasterEpoch",
    "syncStateSetEpoch": "#SyncStateSetEpoch",
    "syncStateSetNums": "#SyncStateSetNums",
}


def _identity(replica: dict[str, Any]) -> str:
    return "ReplicaIdentity{" + ", ".join(f"{name}={value}" for name, value in replica.items()) + "}"
