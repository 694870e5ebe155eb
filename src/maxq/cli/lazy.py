"""Command groups: they know which command a mistyped word was meant to be, and import one when it is called."""

import difflib
import functools
import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import typer
import typer.main
from typer.core import TyperGroup

from maxq.cli.help_pages import write_examples, write_options

_FAR_CUTOFF = 0.8  # difflib's measure of likeness, for suggesting commands of other groups
_NAME_WIDTH = 24  # width of the column of names; a longer name has a line of its own


class Entry(NamedTuple):
    """A member of a group of commands.

    Attributes:
        module: offers `app`, a Typer application, or `group`, a LazyGroup.
        summary: one line for the help.
        command: its name in the module, if the module has several.
        section: the heading below which the help lists it.
    """

    module: str
    summary: str
    command: str | None = None
    section: str = "Commands"


class NearGroup(TyperGroup):
    """A group of commands in which a word that names none is refused with the most similar command."""

    def elsewhere(self) -> Iterable[str]:
        """Return commands of other groups that people may look for here, with the words before them."""
        return ()

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that a word names; a word that names none is refused with the most similar commands."""
        names = self.list_commands(ctx)
        if args and args[0] not in names:
            near = _nearest(args[0], names) or _nearest(args[0], self.elsewhere(), cutoff=_FAR_CUTOFF)
            if near:
                ctx.fail(f"No such command {args[0]!r}; did you mean {' or '.join(near)}?")
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        write_options(self, ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        super().format_epilog(ctx, formatter)
        write_examples(ctx, formatter)


def _nearest(word: str, commands: Iterable[str], **likeness: float) -> list[str]:
    """Return those of `commands` whose last word is most similar to `word`, in any case."""
    known: dict[str, list[str]] = {}
    for command in commands:
        known.setdefault(command.split()[-1].lower(), []).append(command)
    near = difflib.get_close_matches(word.lower(), list(known), n=1, **likeness)
    return known[near[0]] if near else []


@functools.cache
def _single(app: typer.Typer) -> Any:
    """Return the command of a module that has one; made once, for shells and tests, which call it again."""
    return typer.main.get_command(app)


@functools.cache
def _several(app: typer.Typer) -> Mapping[str, Any]:
    """Return the commands of a module that has several, by their names; made once like a single one."""
    return typer.main.get_group(app).commands


class LazyGroup(NearGroup):
    """A group of commands from a table; their modules are imported when they are called, not for the help."""

    def __init__(
        self,
        name: str,
        summary: str,
        entries: Mapping[str, Entry],
        *,
        elsewhere: Callable[[], Iterable[str]] = lambda: (),
        **options: Any,
    ) -> None:
        """`elsewhere` is the result of the method of this name."""
        super().__init__(name=name, help=summary, no_args_is_help=True, rich_markup_mode=None, **options)
        self._entries = entries
        self._elsewhere = elsewhere

    def summaries(self) -> Mapping[str, str]:
        """Return member → one line about it, without importing anything."""
        return {name: entry.summary for name, entry in self._entries.items()}

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self._entries)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = self._entries.get(cmd_name)
        if entry is None:
            return None
        module = importlib.import_module(entry.module)
        if hasattr(module, "group"):
            return module.group
        return _single(module.app) if entry.command is None else _several(module.app)[entry.command]

    def elsewhere(self) -> Iterable[str]:
        return self._elsewhere()

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = min(max(map(len, self._entries)), _NAME_WIDTH)  # the same in all sections
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, entry in self._entries.items():
            sections.setdefault(entry.section, []).append((name.ljust(width), entry.summary))
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows, col_max=width)
