"""The manual page of all settings, made from their rows.

python -m maxq.config.manual > docs/reference/settings.md
"""

from collections.abc import Iterator

from maxq.config.auth_config import AuthConfig
from maxq.config.broker_config import BrokerConfig
from maxq.config.message_store_config import MessageStoreConfig
from maxq.config.namesrv_config import NamesrvConfig
from maxq.config.netty_client_config import NettyClientConfig
from maxq.config.netty_server_config import NettyServerConfig
from maxq.config.proxy_config import ClusterProxyConfig, ProxyConfig
from maxq.config.setting import Setting, settings_of

_INTRODUCTION = """\
# Settings

Do not edit this page. It is made from the tables in `src/maxq/config`:
`python -m maxq.config.manual > docs/reference/settings.md`

Names, types and defaults are those of Apache RocketMQ 5.5.0, so an existing `broker.conf` or `namesrv.conf` loads as it
is.
Files are Java properties in UTF-8: one `name=value` a line, and `#` begins a comment.
A value that is out of bounds stops the start. The error names the file, the setting, the value and the bound.
An unknown name is a warning, which suggests the nearest name that exists.
`maxq broker -p` prints all settings.

**Live** settings can change while the server runs (`maxq admin updateBrokerConfig`, `updateNamesrvConfig`). The server
writes them back to the file, together with the numbers and switches that are accepted for compatibility.
A request with any other setting is refused with its name and changes nothing. So no request from the network can set a
path, a command or an address (CVE-2023-33246, CVE-2023-37582).

**Accepted for compatibility** means that the setting loads, is listed, is checked for its type, and has no effect.
A value other than the default is a warning at the start. Where ignoring a value would be dangerous, the value is
refused.
The table of these settings is `src/maxq/config/accepted_settings.tsv`.
"""

_CLASSES: tuple[tuple[type, str], ...] = (
    (BrokerConfig, "Broker"),
    (MessageStoreConfig, "Store"),
    (NettyServerConfig, "Connections from others"),
    (NettyClientConfig, "Connections to others"),
    (ProxyConfig, "gRPC clients"),
    (ClusterProxyConfig, "A proxy by itself"),
    (NamesrvConfig, "Name server"),
    (AuthConfig, "Access control"),
)


def render() -> str:
    """Return the whole manual page, in Markdown."""
    return "\n".join([_INTRODUCTION, *(line for config, title in _CLASSES for line in _section(config, title))])


def _section(config: type, title: str) -> Iterator[str]:
    rows = settings_of(config)
    acted = [row for row in rows if row.acted]
    yield f"## {title} (`{config.__name__}`)\n"
    if acted:
        yield "| setting | default | allowed | live | what |"
        yield "|---|---|---|---|---|"
        yield from map(_row, acted)
        yield ""
    refused = [row for row in rows if row.unsupported and not row.acted]
    if refused:
        yield "Only the default is accepted:\n"
        yield from (f"* `{row.name}` = {_value(row)}: {row.unsupported}" for row in refused)
        yield ""
    silent: dict[str, list[Setting]] = {}
    for row in rows:
        if not row.acted and not row.unsupported:
            silent.setdefault(row.doc, []).append(row)
    if silent:
        yield "Accepted for compatibility:\n"
        for why, members in silent.items():
            yield ", ".join(f"`{row.name}` {_value(row)}" for row in members) + f" ({why}).\n"


def _row(row: Setting) -> str:
    cells = (f"`{row.name}`", _value(row), _allowed(row), "yes" if row.live else "", row.doc)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _value(row: Setting) -> str:
    text = row.format(row.default)
    return f"`{text}`" if text else "empty"


def _allowed(row: Setting) -> str:
    if len(row.choices) > 1 and not row.unsupported:
        names = [f"`{choice}`" if choice else "empty" for choice in row.choices]
        return " or ".join(names) if len(names) == 2 else "one of " + ", ".join(names)
    return row.allowed.replace("an integer", "integer").replace("a number", "number")


if __name__ == "__main__":
    print(render(), end="")
