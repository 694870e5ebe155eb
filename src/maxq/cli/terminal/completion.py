"""`maxq completion`: what may come next on a command line, for bash, for zsh and for `maxq shell`.

Commands come from tables, without an import; options from the command's own module. Topics, consumer groups, clusters
and brokers are asked of the name server (-n on the line, or NAMESRV_ADDR), for a second at most; where none answers
there are no suggestions.
"""

import asyncio
import itertools
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import typer

from maxq.cli import app as root
from maxq.cli.lazy import LazyGroup

app = typer.Typer(rich_markup_mode=None)

_LOOKUP_SECONDS = 1.0
_NAMESRV = ("-n", "--namesrvAddr")
_VALUES = {
    "topic": "topics", "trace_topic": "topics", "parent": "topics", "group": "groups", "source": "groups",
    "target": "groups", "cluster": "clusters", "only": "clusters", "broker": "brokers",
}  # fmt: skip

BASH = """\
_maxq() {
    local IFS=$'\\n'
    COMPREPLY=($(maxq completion --complete bash -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
COMP_WORDBREAKS=${COMP_WORDBREAKS//:/}
complete -o bashdefault -o default -F _maxq maxq
"""
ZSH = """\
#compdef maxq
_maxq() {
    local -a found
    found=("${(@f)$(maxq completion --complete zsh -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "$found" ]]; then
        _describe 'maxq' found
    else
        _files
    fi
}
compdef _maxq maxq
"""
_SCRIPTS = {"bash": BASH, "zsh": ZSH}


class Suggestion(NamedTuple):
    """A word that completes the line, and its description."""

    word: str
    help: str = ""


@app.command()
def completion(
    shell: Annotated[str, typer.Argument(help="bash or zsh.")] = "bash",
    complete: Annotated[str | None, typer.Option("--complete", hidden=True)] = None,
    words: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
) -> None:
    """Print the script that makes a shell complete maxq's commands and options.

    For bash: `source <(maxq completion bash)` in ~/.bashrc; for zsh: `source <(maxq completion zsh)` in ~/.zshrc, after
    compinit.
    """
    if complete is None:
        if shell not in _SCRIPTS:
            raise typer.BadParameter(f"{shell!r} is not known: it must be bash or zsh")
        sys.stdout.write(_SCRIPTS[shell])
        return
    *before, incomplete = [shell, *(words or [])]
    for word, explained in suggestions(before, incomplete):
        escaped = word.replace(":", "\\:")
        sys.stdout.write(f"{escaped}:{explained}\n" if complete == "zsh" else f"{word}\n")


def suggestions(before: Sequence[str], incomplete: str) -> list[Suggestion]:
    """Return the words that may take the place of `incomplete`, behind the words `before`."""
    found: Any = root.group
    entries: Mapping[str, str] | None = {name: entry.summary for name, entry in root.COMMANDS.items()}
    rest = list(before)
    while rest and entries is not None:
        name = rest.pop(0)
        found = found.get_command(None, name)
        if found is None:
            return []
        entries = _members(found)
    if entries is not None:
        return _starting(incomplete, (Suggestion(name, summary) for name, summary in entries.items()))
    return _starting(incomplete, _of_command(found, rest, incomplete))


def _members(found: Any) -> Mapping[str, str] | None:
    """Return the commands of a group; None if it is a command."""
    if isinstance(found, LazyGroup):
        return found.summaries()
    if hasattr(found, "commands"):
        return {name: member.get_short_help_str() for name, member in found.commands.items()}
    return None


def _of_command(command: Any, words: Sequence[str], incomplete: str) -> Iterable[Suggestion]:
    options = {name: option for option in command.params for name in getattr(option, "opts", ()) if name[:1] == "-"}
    last = options.get(words[-1]) if words else None
    if last is not None and not getattr(last, "is_flag", False) and not incomplete.startswith("-"):
        return _values(last, words)
    argument = _next_argument(command, options, words)
    if argument is not None and not incomplete.startswith("-"):
        return _values(argument, words)
    given = {options[word].name for word in words if word in options}
    return (
        Suggestion(name, option.help or "")
        for name, option in sorted(options.items())
        if option.name not in given and (incomplete.startswith("--") or not name.startswith("--"))
    )


def _values(param: Any, words: Sequence[str]) -> Iterable[Suggestion]:
    """Yield values that the name server knows; none for a path, which the shell completes itself."""
    kind = _VALUES.get(param.name or "")
    return map(Suggestion, _known(kind, _name_servers(words))) if kind else []


def _next_argument(command: Any, options: Mapping[str, Any], words: Iterable[str]) -> Any | None:
    """Return the first argument that `words` do not fill."""
    left, is_value = [], False
    for word in words:
        if is_value:
            is_value = False
        elif word in options:
            is_value = not getattr(options[word], "is_flag", False)
        elif not word.startswith("-"):
            left.append(word)
    for param in command.params:
        if param.param_type_name == "argument":
            if param.nargs < 0 or len(left) < param.nargs:
                return param
            del left[: param.nargs]
    return None


def _name_servers(words: Sequence[str]) -> str:
    for option, value in itertools.pairwise(words):
        if option in _NAMESRV:
            return value
    return os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")


def _known(kind: str, namesrv: str) -> list[str]:
    try:
        return asyncio.run(asyncio.wait_for(_ask(kind, namesrv), _LOOKUP_SECONDS))
    except Exception:  # a shell that completes has nobody to tell
        return []


async def _ask(kind: str, namesrv: str) -> list[str]:
    from maxq.client.admin.admin import Admin
    from maxq.client.client_config import ClientConfig
    from maxq.machine import system_environment

    async with Admin(ClientConfig(namesrv_addr=namesrv), system_environment(namesrv)) as admin:
        if kind == "topics":
            return await admin.topics.names()
        if kind == "groups":
            return await admin.groups.names()
        info = await admin.cluster_info()
        if kind == "clusters":
            return sorted(info.cluster_addr_table)
        return sorted(address for data in info.broker_addr_table.values() for address in data.broker_addrs.values())


def _starting(incomplete: str, found: Iterable[Suggestion]) -> list[Suggestion]:
    return [suggestion for suggestion in found if suggestion.word.startswith(incomplete)]
