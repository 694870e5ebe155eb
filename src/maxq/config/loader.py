"""From a mapping of texts to settings objects, with words for everything that is not right."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from maxq.config.setting import Setting, Value, settings_of
from maxq.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Loaded:
    """`configs` in the order of the bases given; `warnings` are sentences for the log and the terminal."""

    configs: tuple[Any, ...]
    warnings: tuple[str, ...]


def load(bases: Sequence[Any], mapping: Mapping[str, str], *, source: str) -> Loaded:
    """Make settings objects with the values of `mapping`.

    A name that several classes have (listenPort) goes to each of them. Unknown names, and names that MaxQ takes
    but does not act on, become warnings.

    Args:
        bases: settings objects whose values hold where the mapping says nothing, such as `[BrokerConfig()]`.
        mapping: RocketMQ's property names and texts.
        source: "file broker.conf", "--set", … for errors and warnings.

    Raises:
        ConfigError: names source, setting, value and what is allowed.
    """
    changes: list[dict[Setting, Value]] = [{} for _ in bases]
    warnings = []
    kinds: list[Any] = [type(base) for base in bases]  # mypy takes no class for hashable
    for name, text in mapping.items():
        rows = [(i, row) for i, kind in enumerate(kinds) for row in _rows_by_name(kind).get(name, ())]
        if not rows:
            warnings.append(unknown(name, kinds, source))
            continue
        for i, row in rows:
            changes[i][row] = row.parse(text, source)
        ignored = _ignored([(row, changes[i][row]) for i, row in rows], source)
        if ignored:
            warnings.append(ignored)
    configs = tuple(base.with_values(change) if change else base for base, change in zip(bases, changes, strict=True))
    return Loaded(configs, tuple(warnings))


def unknown(name: str, classes: Iterable[type], source: str) -> str:
    """Return the sentence about a name that no class has, with the most similar one that exists."""
    known = {row.name for config in classes for row in settings_of(config)}
    by_folded = {other.lower(): other for other in known}
    near = difflib.get_close_matches(name.lower(), list(by_folded), n=1, cutoff=0.75)
    hint = f"; did you mean {by_folded[near[0]]}?" if near else ""
    return f"{source}: unknown setting {name}{hint}"


def texts(configs: Iterable[Any], *, secrets: bool = False) -> dict[str, str]:
    """Return all settings by name, sorted, as texts; GET_BROKER_CONFIG and `-p` show them.

    Where several classes have the name, the last one counts, as in Java. Secrets show as *** unless asked for.
    """
    found: dict[str, str] = {}
    for config in configs:
        for row in settings_of(type(config)):
            text = row.format(row.value_in(config))
            found[row.name] = "***" if row.secret and text and not secrets else text
    return dict(sorted(found.items()))


@cache
def _rows_by_name(config: type) -> dict[str, list[Setting]]:
    found: dict[str, list[Setting]] = {}
    for row in settings_of(config):
        found.setdefault(row.name, []).append(row)
    return found


def _ignored(rows: Sequence[tuple[Setting, Value]], source: str) -> str:
    """Return the sentence about a setting without effect that was given another value than its default."""
    if any(row.acted for row, _ in rows):
        return ""
    row, value = rows[0]
    if value == row.default:
        return ""
    return f"{source}: {row.name} is accepted for compatibility, MaxQ does not act on it"
