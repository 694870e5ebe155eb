"""One row per setting: the field, its text form, its bounds, and whether a running broker may change it.

A settings class is a frozen dataclass whose fields are made by `setting`. Other settings of RocketMQ, which have no
effect here, are rows of `accepted_settings.tsv`: they are accepted in files, checked for their type and listed, but are
not attributes. Everything that reads settings reads the rows of both: the properties loader, the command line,
GET_BROKER_CONFIG, live updates, the manual.

Names on the wire and in files are RocketMQ's; attributes are the same in snake case. Where that way back does not
give the same name, the row states it (`wire=`).
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeVar

from maxq.errors import ConfigError
from maxq.lazy_dataclass import dataclass

Value = bool | int | float | str

LONG_LOW = -(2**63)
LONG_HIGH = 2**63 - 1

_ROW = "maxq.setting"
_ACCEPTED_SETTINGS = Path(__file__).with_name("accepted_settings.tsv")

#: The largest value of a number that states no bound of its own, by its unit. Nothing that a server waits for or keeps
#: is sensibly longer, and sums of these stay far below what clocks, timers and files take.
MOST_BY_UNIT: Final = {
    "": 2**31 - 1,
    "ms": 24 * 3_600_000,
    "s": 24 * 3_600,
    "h": 10_000_000,
    "bytes": 2**40,
    "pages": 2**20,
    "%": 100,
}
HOUR_MS: Final = 3_600_000
MONTH_MS: Final = 31 * 24 * HOUR_MS
YEAR_MS: Final = 366 * 24 * HOUR_MS
#: What Java's files contain to say "never"; the usual bound of a day would be too small there.
MOST_OF_JAVA: Final = 2**31 - 1

T = TypeVar("T", bool, int, float, str)


class Form(NamedTuple):
    """The form of a text setting: a pattern for the whole value, and a description of it."""

    pattern: str
    words: str


def setting(
    default: T,
    doc: str,
    *,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    live: bool = False,
    wire: str = "",
    choices: Sequence[str] = (),
    form: Form | None = None,
    secret: bool = False,
    unsupported: str = "",
) -> T:
    """Declare a setting that MaxQ acts on.

    Args:
        default: also fixes the type: bool, int, float or str.
        doc: one sentence for the manual.
        unit: of the number: ms, s, h, bytes, pages, %, …
        low, high: bounds, both included. A number states its low; one without a high has that of its unit
            (MOST_BY_UNIT).
        live: a running server may change it (UPDATE_BROKER_CONFIG); whoever uses it re-reads it each time.
        wire: RocketMQ's name, if it is not the attribute in camel case.
        choices: the only texts allowed.
        form: what the text must look like, where there is no list of choices.
        secret: shown as *** wherever settings are printed.
        unsupported: reason why only the default is accepted.
    """
    if high is None and type(default) in (int, float):
        high = MOST_BY_UNIT[unit]
    row = _Row(default, doc, unit, low, high, live, wire, tuple(choices), form, secret, unsupported)
    made: T = field(default=default, metadata={_ROW: row})
    return made


class _Row(NamedTuple):
    default: Any
    doc: str
    unit: str
    low: float | None
    high: float | None
    live: bool
    wire: str
    choices: tuple[str, ...]
    form: Form | None
    secret: bool
    unsupported: str


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting together with its class. `name` is RocketMQ's, `attribute` that of the class; a setting that is
    accepted and has no effect has no attribute."""

    owner: str  # the class, such as BrokerConfig
    attribute: str
    name: str
    kind: type
    default: Value
    doc: str  # for an accepted setting without effect: the reason
    unit: str = ""
    low: float | None = None
    high: float | None = None
    live: bool = False
    choices: tuple[str, ...] = ()
    form: Form | None = None
    secret: bool = False
    unsupported: str = ""

    @property
    def acted(self) -> bool:
        """Whether it has an effect; else it is accepted only."""
        return bool(self.attribute)

    def value_in(self, config: "SettingsTable") -> Value:
        """Return its value in a settings object of its class."""
        value: Value = getattr(config, self.attribute) if self.acted else config.accepted.get(self.name, self.default)
        return value

    def parse(self, text: str, source: str) -> Value:
        """Return the value for which `text` stands.

        Args:
            text: as in a properties file; blanks around it do not count.
            source: where it came from, for the message: "file broker.conf", "--set", "UPDATE_BROKER_CONFIG".

        Raises:
            ConfigError: names source, setting, text and what would be allowed.
        """
        text = text.strip()
        value: Value
        if self.kind is bool:
            lowered = text.lower()
            if lowered not in ("true", "false"):
                raise self._refuse(text, source)
            value = lowered == "true"
        elif self.kind is int:
            if not _INTEGER.fullmatch(text):
                raise self._refuse(text, source)
            value = int(text)
        elif self.kind is float:
            if not _DECIMAL.fullmatch(text):
                raise self._refuse(text, source)
            value = float(text)
        else:
            value = text
        self.check(value, source)
        return value

    def check(self, value: Value, source: str) -> None:
        """Check a value of the right type against bounds, choices and form; raises ConfigError as `parse` does."""
        if self.unsupported and value != self.default:
            raise ConfigError(
                f"{source}: {self.name}={self.format(value)} is not supported: {self.unsupported}; "
                f"remove it or set {self.format(self.default) or 'it empty'}"
            )
        if isinstance(value, str):
            fits = (not self.choices or value in self.choices) and (
                self.form is None or re.fullmatch(self.form.pattern, value) is not None
            )
        else:
            low, high = self.bounds
            fits = isinstance(value, bool) or low <= value <= high
        if not fits:
            raise self._refuse(self.format(value), source)

    def format(self, value: Value) -> str:
        """Return the text form that `parse` reads back, with Java's spelling of true and false."""
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value)

    @property
    def bounds(self) -> tuple[float, float]:
        """Return the smallest and the largest number allowed."""
        low = LONG_LOW if self.low is None else self.low
        high = LONG_HIGH if self.high is None else self.high
        return low, high

    @property
    def allowed(self) -> str:
        """Return in words which values the setting accepts, for errors and the manual."""
        if self.unsupported:
            return f"only {self.format(self.default) or 'empty'}: {self.unsupported}"
        if self.choices:
            names = [choice or "empty" for choice in self.choices]
            return f"only {names[0]}" if len(names) == 1 else "one of " + ", ".join(names)
        if self.form is not None:
            return self.form.words
        if self.kind is bool:
            return "true or false"
        if self.kind is str:
            return "any text"
        number = "an integer" if self.kind is int else "a number"
        unit = f" {self.unit}" if self.unit else ""
        if self.low is not None and self.high is not None:
            return f"{number} from {self.low} to {self.high}{unit}"
        return f"{number}{' in' + unit if unit else ''}"

    def _refuse(self, text: str, source: str) -> ConfigError:
        shown = "***" if self.secret else repr(text)
        return ConfigError(f"{source}: {self.name}={shown} is not allowed: it must be {self.allowed}")


_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_DECIMAL = re.compile(r"[+-]?([0-9]{1,20}(\.[0-9]{0,20})?|\.[0-9]{1,20})([eE][+-]?[0-9]{1,3})?")


def wire_name(attribute: str) -> str:
    """Convert to camel case: flush_interval_commit_log → flushIntervalCommitLog."""
    first, *rest = attribute.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


@dataclasses.dataclass(frozen=True, init=False, eq=False, repr=False)
class SettingsTable:
    """Base of the settings classes: the methods that dataclasses would compile for hundreds of fields at every start.
    Values are given by name; missing ones have their default."""

    #: Values of settings that are accepted and have no effect, by RocketMQ's name, if they are not the default.
    accepted: Mapping[str, Value] = field(default_factory=dict)

    def __init__(self, **values: Any) -> None:
        rows = self.__dataclass_fields__
        if unknown := values.keys() - rows.keys():
            raise TypeError(f"{type(self).__name__} has no setting {', '.join(sorted(unknown))}")
        own = vars(self)
        own.update((name, row.default) for name, row in rows.items())
        own["accepted"] = {}
        own.update(values)

    def with_values(self, values: Mapping[Setting, Value]) -> Self:
        """Return a copy with other values of these settings of its class."""
        accepted = {**self.accepted, **{row.name: value for row, value in values.items() if not row.acted}}
        defaults = {row.name: row.default for row in values}
        kept = {name: value for name, value in accepted.items() if defaults.get(name) != value}
        return replace(self, accepted=kept, **{row.attribute: value for row, value in values.items() if row.acted})

    def accepted_value(self, name: str) -> Value:
        """Return the value of a setting that is accepted and has no effect; raises KeyError if there is none of this
        name."""
        return next(row for row in settings_of(type(self)) if row.name == name).value_in(self)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        given = {**vars(self), "accepted": tuple(sorted(self.accepted.items()))}
        return hash(tuple(given.values()))

    def __repr__(self) -> str:
        """Show only the values that differ from the default, and no secret."""
        given = (
            f"{row.attribute or row.name}={'***' if row.secret else repr(value)}"
            for row in settings_of(type(self))
            if (value := row.value_in(self)) != row.default
        )
        return f"{type(self).__name__}({', '.join(given)})"


_rows_of_class: dict[type, tuple[Setting, ...]] = {}


def settings_of(config: type) -> tuple[Setting, ...]:
    """Return the settings of a class in the order in which they are written there, and then those that are only
    accepted."""
    known = _rows_of_class.get(config)
    if known is not None:
        return known
    rows = []
    for item in fields(config):
        row: _Row | None = item.metadata.get(_ROW)
        if row is None:  # a setting that is accepted and has no effect
            continue
        rows.append(
            Setting(
                owner=config.__name__,
                attribute=item.name,
                name=row.wire or wire_name(item.name),
                kind=type(row.default),
                default=row.default,
                doc=row.doc,
                unit=row.unit,
                low=row.low,
                high=row.high,
                live=row.live,
                choices=row.choices,
                form=row.form,
                secret=row.secret,
                unsupported=row.unsupported,
            )
        )
    _rows_of_class[config] = (*rows, *_accepted_settings().get(config.__name__, ()))
    return _rows_of_class[config]


@cache
def _accepted_settings() -> dict[str, list[Setting]]:
    """Return the rows of accepted_settings.tsv by class."""
    kinds: dict[str, type] = {kind.__name__: kind for kind in (bool, int, float, str)}
    lines = _ACCEPTED_SETTINGS.read_text().splitlines()
    found: dict[str, list[Setting]] = {}
    for line in [line for line in lines if not line.startswith("#")][1:]:
        owner, name, kind, text, refused, why = line.split("\t")
        default = text == "true" if kind == "bool" else kinds[kind](text)
        row = Setting(owner, "", name, kinds[kind], default, why, unsupported=why if refused else "")
        found.setdefault(owner, []).append(row)
    return found
