"""`maxq completion`: what may come next on a command line, for bash, zsh, fish and `maxq shell`.

Commands come from tables, without an import; options from the command's own module. Names of topics, consumer groups,
clusters and brokers come from the name server of the command line (-n, --context, NAMESRV_ADDR, the context in use),
within a second; without an answer there are no suggestions.
"""

import asyncio
import itertools
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import typer

from maxq.cli import app as root
from maxq.cli.connection_variables import scoped_variables
from maxq.cli.help_pages import CommandApp
from maxq.cli.lazy import LazyGroup

app = CommandApp()

_LOOKUP_SECONDS = 1.0
_CONNECTION = {
    "-n": "namesrv", "--namesrvAddr": "namesrv", "--context": "context", "--access-key": "access_key",
    "--secret-key": "secret_key", "--tls": "tls",
}  # fmt: skip
_VALUES = {
    "topic": "topics", "trace_topic": "topics", "parent": "topics", "group": "groups", "source": "groups",
    "target": "groups", "cluster": "clusters", "only": "clusters", "broker": "brokers", "context": "contexts",
    "context_name": "contexts",
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
FISH = """\
function __maxq_complete
    set -l words (commandline --tokenize --cut-at-cursor --current-process)
    set -l current (commandline --cut-at-cursor --current-token)
    set -l found (maxq completion --complete fish -- $words[2..-1] "$current" 2>/dev/null)
    if set -q found[1]
        printf '%s\\n' $found
    else
        __fish_complete_path "$current"
    end
end
complete --command maxq --erase
complete --command maxq --no-files --arguments '(__maxq_complete)'
"""
_SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


class Suggestion(NamedTuple):
    """A word that completes the line, and its description."""

    word: str
    help: str = ""


@app.command()
def completion(
    shell: Annotated[str, typer.Argument(help="bash, zsh or fish.")] = "bash",
    complete: Annotated[str | None, typer.Option("--complete", hidden=True)] = None,
    words: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
) -> None:
    """Print the script that makes a shell complete maxq's commands and options.

    For bash: `source <(maxq completion bash)` in ~/.bashrc; for zsh: `source <(maxq completion zsh)` in ~/.zshrc, after
    compinit; for fish: `maxq completion fish > ~/.config/fish/completions/maxq.fish`, once.
    """
    if complete is None:
        if shell not in _SCRIPTS:
            raise typer.BadParameter(f"{shell!r} is not known: it must be bash, zsh or fish")
        sys.stdout.write(_SCRIPTS[shell])
        return
    *before, incomplete = [shell, *(words or [])]
    for word, explained in suggestions(before, incomplete):
        if complete == "zsh":
            sys.stdout.write(f"{word.replace(':', chr(92) + ':')}:{explained}\n")
        elif complete == "fish":
            sys.stdout.write(f"{word}\t{' '.join(explained.split())}\n")
        else:
            sys.stdout.write(f"{word}\n")


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
    if kind == "contexts":
        return map(Suggestion, _contexts())
    return map(Suggestion, _known(kind, _connection(words))) if kind else []


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


def _connection(words: Sequence[str]) -> dict[str, str]:
    """Return the options of the connection that stand on the line."""
    return {_CONNECTION[option]: value for option, value in itertools.pairwise(words) if option in _CONNECTION}


def _contexts() -> list[str]:
    from maxq.cli.contexts import load_contexts

    try:
        return sorted(load_contexts().profiles)
    except Exception:  # a shell that completes a word cannot show an error
        return []


def _known(kind: str, options: Mapping[str, str]) -> list[str]:
    from maxq.cli.connection import found_connection, use_connection

    try:
        with scoped_variables():
            namesrv = use_connection(found_connection(**options))
            return asyncio.run(asyncio.wait_for(_ask(kind, namesrv), _LOOKUP_SECONDS))
    except Exception:  # a shell that completes a word cannot show an error
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
