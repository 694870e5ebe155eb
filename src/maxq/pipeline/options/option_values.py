"""Parsing of single options: each function takes a text and raises an error that names option, value and what is
allowed."""

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from maxq.errors import ConfigError

_SECONDS: Final = {
    "ms": 0.001, "millisecond": 0.001, "s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60, "h": 3600,
    "hour": 3600, "d": 86400, "day": 86400,
}  # fmt: skip
_DURATION: Final = re.compile(r"\s*(\d+)\s*([a-z]+)\s*")
_SIZE: Final = re.compile(r"\s*(\d+)\s*([kmg]?)(?:i?b)?\s*")
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class OptionValues:
    """The options of one data source, whose names are compared without regard to case.

    Args:
        given: names and texts, as Spark hands them over.
        what: the format, for errors.
    """

    def __init__(self, given: Mapping[str, str], what: str) -> None:
        self._given = {name.lower(): (name, text) for name, text in given.items()}
        self._what = what

    def check_names(self, known: Iterable[str], others: Mapping[str, str] | None = None) -> None:
        """Refuse names that are not in `known`.

        Args:
            others: names that people know from elsewhere, and what there is here in their place.

        Raises:
            ConfigError: names the option, and the nearest one that exists.
        """
        elsewhere = {name.lower(): text for name, text in (others or {}).items()}
        spelled = {name.lower(): name for name in known}
        for folded, (name, _) in self._given.items():
            if folded in spelled:
                continue
            near = difflib.get_close_matches(folded, list(spelled), n=1, cutoff=0.7)
            hint = f"did you mean {spelled[near[0]]}?" if near else f"there are {', '.join(sorted(spelled.values()))}"
            hint = elsewhere.get(folded, hint)
            raise ConfigError(f"{self._what}: unknown option {name}; {hint}")

    def has(self, name: str) -> bool:
        """Return whether the option is given and not blank."""
        return self.text(name) is not None

    def text(self, name: str) -> str | None:
        """Return the text without blanks around it; None if absent or blank."""
        _, text = self._given.get(name.lower(), ("", ""))
        return text.strip() or None

    def required(self, name: str, meaning: str) -> str:
        """Return the text of a mandatory option. Raises ConfigError that says what the option is for."""
        text = self.text(name)
        if text is None:
            raise ConfigError(f"{self._what}: option {name} is missing: {meaning}")
        return text

    def choice(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        """Return one of `allowed`, compared without regard to case."""
        text = self.text(name)
        if text is None:
            return default
        for value in allowed:
            if value.lower() == text.lower():
                return value
        raise self.wrong(name, text, f"one of {', '.join(allowed)}")

    def flag(self, name: str, default: bool) -> bool:
        """Return a boolean option. Raises ConfigError if it is neither true nor false."""
        return self.choice(name, ("true", "false"), "true" if default else "false") == "true"

    def number(self, name: str, *, low: int, high: int = 2**63 - 1) -> int | None:
        """Return an integer from `low` to `high`; None if absent."""
        text = self.text(name)
        if text is None:
            return None
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise self.wrong(name, text, f"an integer from {low} to {high}")
        return value

    def size(self, name: str, *, low: int) -> int | None:
        """Return a number of bytes, given as an integer, or one with k, m or g (kibi-, mebi-, gibibytes); None if
        absent."""
        text = self.text(name)
        if text is None:
            return None
        match = _SIZE.fullmatch(text.lower())
        value = int(match[1]) * _UNITS[match[2]] if match else -1
        if value < low:
            raise self.wrong(name, text, f"a number of bytes of at least {low}, such as 500000, 64m or 1g")
        return value

    def duration_ms(self, name: str, default_ms: int) -> int:
        """Return a time in ms, given as Spark writes it: 500ms, 30s, 15m, 1 hour; a number alone is milliseconds."""
        text = self.text(name)
        if text is None:
            return default_ms
        match = _DURATION.fullmatch(text.lower())
        unit = match[2] if match else ""
        unit = unit if unit in _SECONDS else unit.removesuffix("s")
        if match and unit in _SECONDS:
            return int(int(match[1]) * _SECONDS[unit] * 1000)
        if text.isdigit():
            return int(text)
        raise self.wrong(name, text, "a time such as 500ms, 30s, 15m or 1h")

    def table(self, name: str) -> dict[str, Any] | None:
        """Return an option that is a JSON object; None if it is not set. Raises ConfigError if it is something else."""
        text = self.text(name)
        if text is None:
            return None
        try:
            value = json.loads(text)
        except ValueError as error:
            raise self.wrong(name, text, f"a JSON object ({error})") from None
        if not isinstance(value, dict):
            raise self.wrong(name, text, "a JSON object")
        return value

    def wrong(self, name: str, text: object, allowed: str) -> ConfigError:
        """Return (not raise) the error which says that an option has an invalid value."""
        return ConfigError(f"{self._what}: option {name} is {text!r:.200}; it must be {allowed}")

    def contradiction(self, sentence: str) -> ConfigError:
        """Make the error about options that contradict each other."""
        return ConfigError(f"{self._what}: {sentence}")
