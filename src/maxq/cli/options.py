"""Small things that several commands read from their options."""

from collections.abc import Iterable

from maxq.errors import ConfigError


def split_assignments(pairs: Iterable[str], *, option: str = "--set") -> dict[str, str]:
    """`key=value` texts, as --set and others take them, as a mapping.

    Raises:
        ConfigError: one has no '=' or no key.
    """
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{option} {pair!r} is not KEY=VALUE")
        found[key.strip()] = value.strip()
    return found
