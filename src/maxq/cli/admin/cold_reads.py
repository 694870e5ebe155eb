"""Commands of mqadmin for cold reads: what consumer groups may read that is no longer in memory."""

from typing import Annotated

import orjson
import typer

from maxq.cli.admin.command import BrokerAddr, ClusterName, addresses, command
from maxq.cli.admin.fan_out import ask_each
from maxq.cli.terminal.report import Report
from maxq.client.admin.admin import Admin

app = typer.Typer(rich_markup_mode=None)

Group = Annotated[str, typer.Option("-g", "--consumerGroup", help="Consumer group.")]
_COLUMNS = {"address": "#Address", "key": "#Key", "value": "#Value"}


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
    return Report(_COLUMNS, rows, value=found.answers, text="\n".join(lines) + "\n", failures=found.failures)


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
    return Report(_COLUMNS, rows, value=done.answers, text=text, failures=done.failures)
