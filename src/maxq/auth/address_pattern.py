"""Addresses that a white list of ACL 1.0 names.

    (empty)                nobody                 192.168.1.{1,2}     these ends
    * or *.*.*.*           everybody              192.168.1.1-90      a range
    10.0.0.1,10.0.0.2      these                  192.168.*.*         any number there

IPv6 the same way: `fe80::{a,b}`, `1:2:3:4:5:6:7:1-200`, `2::ac5:78:1-200:*`.

Source:
    acl/plain/RemoteAddressStrategyFactory.java, acl/common/AclUtils.java.
"""

import ipaddress
from collections.abc import Callable
from typing import Final

from maxq.errors import ConfigError

#: Does this address match?
AddressPattern = Callable[[str], bool]

_EVERYBODY: Final = ("*", "*.*.*.*", "*:*:*:*:*:*:*:*")


def address_pattern(text: str) -> AddressPattern:
    """Return the test for addresses that a pattern text describes.

    Raises:
        ConfigError: it means none.
    """
    text = text.strip()
    if not text:
        return lambda address: False
    if text in _EVERYBODY:
        return lambda address: True
    if text.endswith("}"):
        head, brace, ends = text[:-1].partition("{")
        if not brace or not head.endswith((".", ":")):
            raise _bad(text)
        return _one_of(text, [head + end.strip() for end in ends.split(",")])
    if "," in text:
        return _one_of(text, [part.strip() for part in text.split(",")])
    if "*" in text or "-" in text:
        return _ranges(text)
    return _one_of(text, [text])


def _one_of(text: str, addresses: list[str]) -> AddressPattern:
    wanted = set()
    for address in addresses:
        plain = _normal(address)
        if plain is None:
            raise _bad(text)
        wanted.add(plain)
    return lambda address: _normal(address) in wanted


def _ranges(text: str) -> AddressPattern:
    is_v6 = ":" in text
    limits = [_limits(part.strip(), is_v6, text) for part in _parts(text, is_v6)]
    if len(limits) != (8 if is_v6 else 4):
        raise _bad(text)

    def matches(address: str) -> bool:
        plain = _normal(address)
        if plain is None or (":" in plain) != is_v6:
            return False
        numbers = [int(part, 16 if is_v6 else 10) for part in plain.split(":" if is_v6 else ".")]
        return all(low <= number <= high for number, (low, high) in zip(numbers, limits, strict=True))

    return matches


def _parts(text: str, is_v6: bool) -> list[str]:
    """Returns the eight parts of an IPv6 address; `::` stands for as many zeros as are missing."""
    if not is_v6:
        return text.split(".")
    left, gap, right = text.partition("::")
    before, after = [part for part in left.split(":") if part], [part for part in right.split(":") if part]
    return [*before, *(["0"] * (8 - len(before) - len(after)) if gap else []), *after]


def _limits(part: str, is_v6: bool, text: str) -> tuple[int, int]:
    if part == "*":
        return (0, 0xFFFF if is_v6 else 255)
    low, dash, high = part.partition("-")
    digits = "0123456789abcdefABCDEF" if is_v6 else "0123456789"
    for number in (low, high if dash else low):
        if not number or len(number) > 4 or any(letter not in digits for letter in number):
            raise _bad(text)
    base, top = (16, 0xFFFF) if is_v6 else (10, 255)
    first, last = int(low, base), int(high if dash else low, base)
    if first > last or last > top:
        raise _bad(text)
    return (first, last)


def _normal(address: str) -> str | None:
    """Returns the canonical spelling of an address; None if the text is not an address."""
    try:
        return ipaddress.ip_address(address.strip("[]")).exploded
    except ValueError:
        return None


def _bad(text: str) -> ConfigError:
    return ConfigError(
        f"{text!r:.100} is no address pattern; it is an address, a list a,b, 192.168.1.{{1,2}}, 192.168.1.1-90 or "
        "192.168.*.*"
    )
