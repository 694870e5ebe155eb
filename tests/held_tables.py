"""What the objects of this process hold: how many there are of each class, and how long their tables are."""

import gc
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any, Final

_TABLES: Final = (dict, list, set, deque, bytearray)
_OWN: Final = "maxq."
_OF_TESTS: Final = "maxq.testing."


def held() -> Counter[str]:
    """Objects of MaxQ's classes by class, and the entries of their attributes by class and attribute, those of tables
    in tables included."""
    gc.unfreeze()  # tests/conftest.py sets aside what is older than the file
    gc.collect()
    found: Counter[str] = Counter()
    for one in gc.get_objects():
        kind = type(one)
        module = kind.__module__
        if not isinstance(module, str) or not module.startswith(_OWN) or module.startswith(_OF_TESTS):
            continue
        name = f"{module}.{kind.__qualname__}"
        found[name] += 1
        for attribute, value in _attributes(one, kind):
            found[f"{name}.{attribute}"] += _entries(value)
    return found


def _attributes(one: object, kind: type) -> Iterator[tuple[str, Any]]:
    own = getattr(one, "__dict__", None)
    if isinstance(own, dict):
        yield from ((name, value) for name, value in list(own.items()) if isinstance(value, _TABLES))
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            value = getattr(one, name, None)
            if isinstance(value, _TABLES):
                yield name, value


def _entries(table: Any) -> int:
    inner = table.values() if isinstance(table, dict) else table if not isinstance(table, bytearray) else ()
    return len(table) + sum(len(value) for value in list(inner) if isinstance(value, _TABLES))
