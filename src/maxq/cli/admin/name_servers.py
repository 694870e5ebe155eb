"""Name server commands of mqadmin."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import typer

from maxq.cli.admin.command import command
from maxq.cli.admin.fan_out import Outcomes, ask_each, settings_report
from maxq.cli.help_pages import CommandApp
from maxq.cli.terminal.report import Report
from maxq.client.admin.admin import Admin

app = CommandApp()

Namespace = Annotated[str, typer.Option("-s", "--namespace")]
Key = Annotated[str, typer.Option("-k", "--key")]
Value = Annotated[str, typer.Option("-v", "--value")]
BrokerName = Annotated[str, typer.Option("-b", "--brokerName", help="Broker name.")]


@command(app, "getNamesrvConfig")
async def get_namesrv_config(admin: Admin) -> Report:
    """Settings of the name servers."""
    names = admin.name_servers
    asked = await ask_each(names.addresses, lambda server: names.config(servers=[server]))
    found = {address: config for answer in asked.answers.values() for address, config in answer.items()}
    return settings_report(Outcomes(found, asked.failures))


def _sentence(done: Outcomes[Any], text: str, **facts: Any) -> Report:
    """Report mqadmin's one sentence, if any of the name servers succeeded."""
    servers = list(done.answers)
    rows = [(server, True) for server in servers] + [(server, False) for server in done.failures]
    value = {"done": text, "nameServers": servers, **facts}
    shown = text.replace("$SERVERS", str(servers)) + "\n" if servers else ""
    return Report({"nameServer": "#Name Server", "done": "#Done"}, rows, value=value | {"done": shown.strip()},
                  text=shown, failures=done.failures)  # fmt: skip


@command(app, "updateNamesrvConfig")
async def update_namesrv_config(admin: Admin, key: Key, value: Value) -> Report:
    """Change a setting of the name servers."""
    names = admin.name_servers
    done = await ask_each(names.addresses, lambda server: names.update_config({key: value}, servers=[server]))
    return _sentence(done, f"update name server config success!$SERVERS\n{key} : {value}")


@command(app, "updateKvConfig")
async def update_kv_config(admin: Admin, namespace: Namespace, key: Key, value: Value) -> Report:
    """Set a value in the name servers' key-value table."""
    names = admin.name_servers
    done = await ask_each(names.addresses, lambda server: names.put_kv(namespace, key, value, servers=[server]))
    text = "create or update kv config to namespace success."
    return _sentence(done, text, namespace=namespace, key=key, value=value)


@command(app, "deleteKvConfig")
async def delete_kv_config(admin: Admin, namespace: Namespace, key: Key) -> Report:
    """Remove a value from the name servers' key-value table."""
    names = admin.name_servers
    done = await ask_each(names.addresses, lambda server: names.delete_kv(namespace, key, servers=[server]))
    return _sentence(done, "delete kv config from namespace success.", namespace=namespace, key=key)


async def _changed(admin: Admin, verb: str, broker: str, change: Callable[..., Awaitable[dict[str, int]]]) -> Report:
    done = await ask_each(admin.name_servers.addresses, lambda server: change(broker, servers=[server]))
    counts = {server: count for answer in done.answers.values() for server, count in answer.items()}
    lines = [
        f"{verb} write perm of broker[{broker}] in name server[{address}] OK, {count}"
        for address, count in counts.items()
    ]
    lines += [f"{verb} write perm of broker[{broker}] in name server[{server}] Failed" for server in done.failures]
    columns = {"nameServer": "#Name Server", "topics": "#Topics"}
    return Report(columns, list(counts.items()), text="\n".join(lines) + "\n", failures=done.failures)


@command(app, "wipeWritePerm", asks="Take broker {broker} out of service for producers?")
async def wipe_write_perm(admin: Admin, broker: BrokerName) -> Report:
    """Take a broker out of service for producers."""
    return await _changed(admin, "wipe", broker, admin.name_servers.wipe_write_perm)


@command(app, "addWritePerm")
async def add_write_perm(admin: Admin, broker: BrokerName) -> Report:
    """Put a broker back into service for producers."""
    return await _changed(admin, "add", broker, admin.name_servers.add_write_perm)
