"""docs/reference: client-settings.md from client_config.py, response-codes.md from codes.py, python-api.md from
`maxq.api` and `maxq.aio`."""

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import maxq.aio
import maxq.api
from maxq import codes
from maxq.client import client_config
from tests.unit.client.setting_types import Setting, classes

REFERENCE: Final = Path(__file__).parents[2] / "docs/reference"
_MADE: Final = "Do not edit this page. It is made from `{}` by `python -m tests.manual_pages`.\n"
_CODE: Final = re.compile(r"^    ([A-Z_]+) = (-?\d+)  # ([^|\n]*) \| (.*)$", re.MULTILINE)


def response_codes() -> str:
    """Return the page of all response codes."""
    source = inspect.getsource(codes.ResponseCode)
    lines = [
        "# Response codes",
        "",
        _MADE.format("src/maxq/codes.py"),
        "A server answers each request with a code.",
        "Unless the code is 0, the answer has a remark with the measured value, the limit, and what to do.",
        "`maxq.errors.BrokerError` has both, as `code` and `remark`.",
        "Refusals with a cause in brackets are explained in [Why a request was refused](refusals.md).",
        "",
        "| Code | Name | Meaning | What to do |",
        "|---:|---|---|---|",
    ]  # fmt: skip
    lines += [
        f"| {value} | `{name}` | {meaning} | {remedy} |" for name, value, meaning, remedy in _CODE.findall(source)
    ]
    return "\n".join(lines) + "\n"


def client_settings() -> str:
    """Return the page of the clients' settings."""
    found = classes(Path(client_config.__file__).read_text())
    lines = [
        "# Client settings",
        "",
        _MADE.format("src/maxq/client/client_config.py"),
        "Settings are given by keyword: `Producer(\"group\", \"127.0.0.1:9876\", send_msg_timeout=5000)`.",
        "The names are those of RocketMQ's Java client, in snake case.",
        "A class also has the settings of the class that it builds on.",
    ]  # fmt: skip
    for name, (base, fields) in found.items():
        doc = (inspect.getdoc(getattr(client_config, name)) or "").splitlines()[0]
        lines += ["", f"## {name}", "", doc + (f" Builds on {base}." if base else ""), ""]
        lines += ["| Setting | Type | Default | Meaning |", "|---|---|---|---|", *map(_setting, fields)]
    return "\n".join(lines) + "\n"


def _setting(field: Setting) -> str:
    cells = (f"`{field.name}`", f"`{field.annotation}`", f"`{field.default}`", field.comment or "–")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def python_api() -> str:
    """Return the page that mkdocstrings fills with signatures and docstrings."""
    lines = [
        "# Python API",
        "",
        _MADE.format("maxq.api"),
        "`maxq.api` has the blocking clients, and `maxq.aio` those for asyncio by the same names.",
        "[Use the Python client](../howto/python-client.md) shows how they are used, and",
        "[Client settings](client-settings.md) lists their settings.",
    ]
    for title, module in (("Blocking clients and values", maxq.api), ("Clients for asyncio", maxq.aio)):
        names = [name for name in sorted(module.__all__) if inspect.isclass(getattr(module, name))]
        if module is maxq.aio:
            names = [name for name in names if getattr(maxq.api, name, None) is not getattr(maxq.aio, name)]
        lines += ["", f"## {title}", ""]
        lines += [line for name in names for line in (f"::: {module.__name__}.{name}", "")]
    return "\n".join(lines).rstrip() + "\n"


PAGES: Final[dict[Path, Callable[[], str]]] = {
    REFERENCE / "response-codes.md": response_codes,
    REFERENCE / "client-settings.md": client_settings,
    REFERENCE / "python-api.md": python_api,
}
