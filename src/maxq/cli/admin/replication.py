"""Replication commands of mqadmin."""

from typing import Annotated, Any

import typer

from maxq.cli.admin.command import BrokerAddr, ClusterName, addresses, command
from maxq.cli.admin.fan_out import ask_each
from maxq.cli.help_pages import CommandApp
from maxq.cli.options import server_address
from maxq.cli.terminal.report import Report, done_report
from maxq.cli.terminal.times import format_time
from maxq.client.admin.admin import Admin
from maxq.errors import ClientError, ConfigError
from maxq.protocol.body.ha_runtime_info import HARuntimeInfo

app = CommandApp()

_COLUMNS = {
    "broker": "#Broker",
    "role": "#Role",
    "maxOffset": "#CommitLogMaxOffset",
    "peer": "#Peer",
    "ackOffset": "#SlaveAckOffset",
    "diff": "#Diff",
    "transferSpeed": "#TransferSpeed(KB/s)",
    "status": "#Status",
    "transferFromWhere": "#TransferFromWhere",
}


@command(app, "haStatus", repeats=True)
async def ha_status(admin: Admin, broker: BrokerAddr = None, cluster: ClusterName = None) -> Report:
    """Replication as each broker sees it: slaves, bytes they lack, bytes a second. With -c the masters of a cluster."""
    found = await ask_each(await addresses(admin, broker, cluster), admin.brokers.ha_status)
    rows = [row for target, info in found.answers.items() for row in _rows(target, info)]
    text = "".join(_text(target, info) for target, info in found.answers.items())
    value = {target: info.to_json() for target, info in found.answers.items()}
    return Report(_COLUMNS, rows, value=value, text=text, failures=found.failures)


def _rows(broker: str, info: HARuntimeInfo) -> list[tuple[Any, ...]]:
    """Return one row a slave; a master without slaves, and a slave itself, have one."""
    if not info.master:
        client = info.ha_client_runtime_info
        speed = client.transferred_byte_in_second / 1024
        return [(broker, "slave", client.max_offset, client.master_addr, "", "", speed, "", "")]
    end = info.master_commit_log_max_offset
    return [
        (broker, "master", end, slave.addr, slave.slave_ack_offset, slave.diff,
         slave.transferred_byte_in_second / 1024, _status(slave.in_sync), slave.transfer_from_where)
        for slave in info.ha_connection_info
    ] or [(broker, "master", end, "", "", "", "", "", "")]  # fmt: skip


def _status(in_sync: bool) -> str:
    return "OK" if in_sync else "Fall Behind"


def _text(broker: str, info: HARuntimeInfo) -> str:
    """Return the replication state of one broker as mqadmin prints it."""
    if not info.master:
        client = info.ha_client_runtime_info
        return (
            f"\n#MasterAddr\t{client.master_addr or '-'}\n#CommitLogMaxOffset\t{client.max_offset}\n"
            f"#TransferSpeed(KB/s)\t{client.transferred_byte_in_second / 1024:.2f}\n"
            f"#LastReadTime\t{format_time(client.last_read_timestamp)}\n"
            f"#LastWriteTime\t{format_time(client.last_write_timestamp)}\n"
            f"#MasterFlushOffset\t{client.master_flush_offset}\n"
        )
    lines = [
        f"\n#MasterAddr\t{broker}",
        f"#MasterCommitLogMaxOffset\t{info.master_commit_log_max_offset}",
        f"#SlaveNum\t{len(info.ha_connection_info)}",
        f"#InSyncSlaveNum\t{info.in_sync_slave_nums}",
        f"{'#SlaveAddr':<32}  {'#SlaveAckOffset':<16} {'#Diff':>16} {'#TransferSpeed(KB/s)':>16} {'#Status':>16} "
        f"{'#TransferFromWhere':>16}",
    ]
    for slave in info.ha_connection_info:
        speed = slave.transferred_byte_in_second / 1024
        lines.append(
            f"{slave.addr:<32}  {slave.slave_ack_offset:<16} {slave.diff:>16} {speed:>16.2f} "
            f"{_status(slave.in_sync):>16} {slave.transfer_from_where:>16}"
        )
    return "\n".join(lines) + "\n"


@command(app, "resetMasterFlushOffset", asks="Tell slave {broker} that its master has flushed up to {offset}?")
async def reset_master_flush_offset(
    admin: Admin,
    broker: Annotated[
        str, typer.Option("-b", "--brokerAddr", callback=server_address, help="Slave, host or host:port.")
    ],
    offset: Annotated[int, typer.Option("-o", "--offset", min=0, help="Bytes from the start of the log.")],
) -> Report:
    """Tell a slave how far its master has flushed its log."""
    await admin.brokers.reset_master_flush_offset(broker, offset)
    return done_report(f"reset master flush offset to {offset} success", broker=broker, masterFlushOffset=offset)


@command(app, "getBrokerEpoch", repeats=True)
async def get_broker_epoch(
    admin: Admin,
    cluster: ClusterName = None,
    broker: Annotated[str | None, typer.Option("-b", "--brokerName", help="One broker name.")] = None,
) -> Report:
    """Epochs of brokers in RocketMQ's controller mode, which MaxQ's brokers are not in."""
    if (broker is None) == (cluster is None):
        raise ConfigError("one of -b/--brokerName and -c/--clusterName is needed")
    if cluster is not None:
        targets = await admin.brokers.addresses_of_cluster(cluster)
    else:
        group = (await admin.cluster_info()).broker_addr_table.get(broker or "")
        targets = sorted(group.broker_addrs.values()) if group else []
    if not targets:
        raise ClientError(f"the name server knows no broker {broker}")
    found = await ask_each(targets, admin.brokers.epoch_cache)
    lines: list[str] = []
    rows: list[tuple[Any, ...]] = []
    for address, info in found.answers.items():
        who = (info.get("clusterName"), info.get("brokerName"), address, info.get("brokerId"))
        heads = ("#clusterName", "#brokerName", "#brokerAddr", "#brokerId")
        lines += ["", *(f"{head}\t{value}" for head, value in zip(heads, who, strict=True))]
        epochs = [dict(entry) for entry in info.get("epochList") or []]
        if epochs:
            epochs[-1]["endOffset"] = info.get("maxOffset")
        for entry in epochs:
            place = (entry.get("epoch"), entry.get("startOffset"), entry.get("endOffset"))
            lines.append("#Epoch: EpochEntry{{epoch={}, startOffset={}, endOffset={}}}".format(*place))
            rows.append((address, *place))
    columns = {"broker": "#Broker", "epoch": "#Epoch", "startOffset": "#Start", "endOffset": "#End"}
    return Report(columns, rows, value=found.answers, text="\n".join(lines) + "\n", failures=found.failures)
