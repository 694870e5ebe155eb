"""Name server commands of mqadmin."""

from typing import Annotated

import typer

from maxq.cli.admin.command import command
from maxq.cli.report import Report, done_report
from maxq.client.admin.admin import Admin

app = typer.Typer(rich_markup_mode=None)

Namespace = Annotated[str, typer.Option("-s", "--namespace")]
Key = Annotated[str, typer.Option("-k", "--key")]
Value = Annotated[str, typer.Option("-v", "--value")]
BrokerName = Annotated[str, typer.Option("-b", "--brokerName", help="Broker name.")]


@command(app, "getNamesrvConfig")
async def get_namesrv_config(admin: Admin) -> Report:
    """Settings of the name servers."""
    found = await admin.name_servers.config()
    rows = [(address, key, value) for address, config in found.items() for key, value in config.items()]
    text = "".join(
        f"============{address}============\n" + "".join(f"{key:<50}=  {value}\n" for key, value in config.items())
        for address, config in found.items()
    )
    return Report({"address": "#Address", "key": "#Key", "value": "#Value"}, rows, value=found, text=text)


@command(app, "updateNamesrvConfig")
async def update_namesrv_config(admin: Admin, key: Key, value: Value) -> Report:
    """Change a setting of the name servers."""
    await admin.name_servers.update_config({key: value})
    servers = admin.name_servers.addresses
    return done_report(f"update name server config success!{servers}\n{key} : {value}", nameServers=servers)


@command(app, "updateKvConfig")
async def update_kv_config(admin: Admin, namespace: Namespace, key: Key, value: Value) -> Report:
    """Set a value in the name servers' key-value table."""
    await admin.name_servers.put_kv(namespace, key, value)
    return done_report("create or update kv config to namespace success.", namespace=namespace, key=key, value=value)


@command(app, "deleteKvConfig")
async def delete_kv_config(admin: Admin, namespace: Namespace, key: Key) -> Report:
    """Remove a value from the name servers' key-value table."""
    await admin.name_servers.delete_kv(namespace, key)
    return done_report("delete kv config from namespace success.", namespace=namespace, key=key)


def _changed(verb: str, broker: str, counts: dict[str, int]) -> Report:
    lines = [
        f"{verb} write perm of broker[{broker}] in name server[{address}] OK, {count}"
        for address, count in counts.items()
    ]
    columns = {"nameServer": "#Name Server", "topics": "#Topics"}
    return Report(columns, list(counts.items()), text="\n".join(lines) + "\n")


@command(app, "wipeWritePerm")
async def wipe_write_perm(admin: Admin, broker: BrokerName) -> Report:
    """Take a broker out of service for producers."""
    return _changed("wipe", broker, await admin.name_servers.wipe_write_perm(broker))


@command(app, "addWritePerm")
async def add_write_perm(admin: Admin, broker: BrokerName) -> Report:
    """Put a broker back into service for producers."""
    return _changed("add", broker, await admin.name_servers.add_write_perm(broker))
