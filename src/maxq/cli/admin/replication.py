"""Replication commands of mqadmin."""

from typing import Any

import typer

from maxq.cli.admin.command import BrokerAddr, ClusterName, addresses, command
from maxq.cli.report import Report
from maxq.cli.times import format_time
from maxq.client.admin.admin import Admin
from maxq.protocol.body.ha_runtime_info import HARuntimeInfo

app = typer.Typer(rich_markup_mode=None)

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
    found = {target: await admin.brokers.ha_status(target) for target in await addresses(admin, broker, cluster)}
    rows = [row for target, info in found.items() for row in _rows(target, info)]
    text = "".join(_text(target, info) for target, info in found.items())
    return Report(_COLUMNS, rows, value={target: info.to_json() for target, info in found.items()}, text=text)


def _rows(broker: str, info: HARuntimeInfo) -> list[tuple[Any, ...]]:
    """One row a slave; a master without slaves, and a slave itself, have one."""
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
    """What mqadmin prints."""
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
