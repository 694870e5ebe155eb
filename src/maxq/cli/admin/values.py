"""Checks of option values that typer's types do not express."""

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, Final

import typer

from maxq.codes import MQVersion
from maxq.errors import ConfigError

_INT64_HIGH: Final = 2**63 - 1
_MAY_BE_EMPTY: Final = "value"  # name of the option that may be empty: the value of a setting


def is_true(option: str, text: str) -> bool:
    """Parse an option of mqadmin with a true or false behind it."""
    if text.strip().lower() not in ("true", "false"):
        raise ConfigError(f"{option} {text!r} is not allowed: it must be true or false")
    return text.strip().lower() == "true"


def known_charset(text: str) -> str:
    """Return the charset, if Python knows it. Used as a callback."""
    try:
        b"x".decode(text, "replace")
    except (LookupError, ValueError):
        raise typer.BadParameter(f"charset {text!r} is not known: give one such as UTF-8 or GBK") from None
    return text


def refuse_unusable(parameters: Iterable[inspect.Parameter], values: Mapping[str, Any]) -> None:
    """Refuse what no command can use: an empty text, as a script's unset variable gives (`-b "$BROKER"` would mean
    every broker), and numbers that no server can read.

    Raises:
        typer.BadParameter: names option, value and remedy.
    """
    for parameter in parameters:
        value = values[parameter.name]
        if value == "" and parameter.default != "" and parameter.name != _MAY_BE_EMPTY:
            remedy = "give it a value" if parameter.default is parameter.empty else "give it a value or leave it out"
            raise typer.BadParameter(f"{_flag(parameter)} is empty: {remedy}")
        if isinstance(value, int) and abs(value) > _INT64_HIGH:
            raise typer.BadParameter(f"{_flag(parameter)} {value} is too large: servers read up to {_INT64_HIGH}")


def _flag(parameter: inspect.Parameter) -> str:
    """Return how the option is written. Typer keeps the first name of an annotation's option where a default would
    be."""
    for note in getattr(parameter.annotation, "__metadata__", ()):
        if isinstance(note, typer.models.OptionInfo):
            return "/".join(name for name in (note.default, *(note.param_decls or ())) if name)
    return parameter.name.upper()


# --- releases ---

_NAMES = {int(version): version.name for version in MQVersion}


def version_name(ordinal: int) -> str:
    """Return RocketMQ's name of a release; its number if the release has no name here because nothing depends on it."""
    return _NAMES.get(ordinal, f"ordinal {ordinal}")
