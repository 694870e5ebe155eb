"""The manual page of all admin commands, made from the commands themselves.

python -m maxq.cli.manual > docs/reference/admin-commands.md
"""

import sys
from typing import Any

from maxq.cli.admin import ENTRIES, group
from maxq.cli.examples import examples_of

_HEAD = """\
# Every admin command

Do not edit this page. It is made from the commands: `python -m maxq.cli.manual > docs/reference/admin-commands.md`

[The command line](command-line.md) tells what the commands have in common. An option marked `!` is needed.
Every command has these options:
"""


def manual() -> str:
    """Return the manual page of all commands, as Markdown."""
    commands: dict[str, Any] = {name: group.get_command(None, name) for name in ENTRIES}
    shared = set.intersection(*({option.name for option in command.params} for command in commands.values()))
    first = next(iter(commands.values()))
    head = "\n".join([_HEAD, *_table([option for option in first.params if option.name in shared])])
    sections = (_section(name, commands[name], shared) for name in sorted(commands, key=str.lower))
    return head + "\n" + "".join(sections)


def _section(name: str, command: Any, shared: set[str]) -> str:
    own = [option for option in command.params if option.name not in shared and not option.hidden]
    examples = [f"    {line}" for line in examples_of(f"maxq admin {name}")]
    lines = [f"\n## {name}\n", _sentence(command.help), *(["", *_table(own)] if own else []), "", *examples]
    return "\n".join(lines) + "\n"


def _table(options: list[Any]) -> list[str]:
    return ["| option | what | default |", "|---|---|---|", *map(_row, options)]


def _row(option: Any) -> str:
    is_argument = option.param_type_name == "argument"
    names = option.name.upper() if is_argument else "/".join(option.opts)
    kind = "" if is_argument or option.is_flag else f" {option.metavar or option.type.name.upper()}"
    default = "" if option.default in (None, False, "") else f"`{option.default}`"
    cells = (f"`{names}{kind}`{'!' if option.required else ''}", _sentence(option.help or ""), default)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _sentence(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    sys.stdout.write(manual())
