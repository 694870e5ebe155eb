"""How commands explain themselves: options in groups, and examples at the end of each page.

A module of commands makes its application with `CommandApp`; the examples are in `examples.py`, which is imported only
when a page is shown.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import typer
from typer.core import TyperCommand

_Function = TypeVar("_Function", bound=Callable[..., Any])

#: Groups of options, in the order of a page; options without a group are "Options".
CONNECTION: Final = "Connection"
OUTPUT: Final = "Output"
SPARK: Final = "Spark"
_ARGUMENTS: Final = "Arguments"
_OPTIONS: Final = "Options"
_ORDER: Final = (_ARGUMENTS, _OPTIONS, CONNECTION, OUTPUT, SPARK)


def write_options(command: Any, ctx: Any, formatter: Any) -> None:
    """Write arguments and options of a command, each group below its own heading."""
    groups: dict[str, list[tuple[str, str]]] = {title: [] for title in _ORDER}
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if record is not None:
            is_argument = param.param_type_name == "argument"
            groups[_ARGUMENTS if is_argument else param.rich_help_panel or _OPTIONS].append(record)
    for title, records in groups.items():
        if records:
            with formatter.section(title):
                formatter.write_dl(records)


def write_examples(ctx: Any, formatter: Any) -> None:
    """Write the examples of the command whose page this is; nothing if it has none."""
    from maxq.cli.examples import examples_of

    lines = examples_of(ctx.command_path)
    if lines:
        with formatter.section("Examples"):
            formatter.write("".join(f"{'':>{formatter.current_indent}}{line}\n" for line in lines))


class HelpedCommand(TyperCommand):
    """A command whose page has its options in groups and ends with examples."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        write_options(self, ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        super().format_epilog(ctx, formatter)
        write_examples(ctx, formatter)


class CommandApp(typer.Typer):
    """The application of a module: its commands are HelpedCommands."""

    def __init__(self, **options: Any) -> None:
        super().__init__(rich_markup_mode=None, add_completion=False, **options)

    def command(self, name: str | None = None, **options: Any) -> Callable[[_Function], _Function]:
        """Return a decorator that makes a function a command, as typer's own does."""
        return super().command(name, **{"cls": HelpedCommand, **options})
