"""Slots of Python's classes, for the modules that run compiled and uncompiled.

Compiled they take the functions of the same names in slots.pxd, which read a slot where it lies: a fifth of what an
attribute costs. Nothing is checked then: the owner must be of exactly the class that the place was asked of.
"""

from typing import Any, Final

_NAMES: Final[list[str]] = []  # names of the slots that were asked for; the place of a slot is its index here


def slot_place(kind: type, name: str) -> int:
    """Return where objects of this class have a slot. Raises TypeError if it is not a slot."""
    if type(getattr(kind, name)).__name__ != "member_descriptor":
        raise TypeError(f"{name!r} of {kind!r} is no slot")
    _NAMES.append(name)
    return len(_NAMES) - 1


def slot_value(owner: object, place: int) -> Any:
    """Return what is in a slot; None if it is empty."""
    return getattr(owner, _NAMES[place], None)
