"""What a server prints when clients can connect, for people and for programs.

The first line says which server it is; every other line is one fact, two blanks, its name, a colon, its value:

    maxq standalone is ready: broker-a (0.03 s)
      name server: 127.0.0.1:9876
      broker: 127.0.0.1:10911
      store: maxq-store
"""

from collections.abc import Mapping
from typing import Final

_IS_READY: Final = " is ready"
_INDENT: Final = "  "


def ready_text(command: str, name: str, seconds: float, facts: Mapping[str, str]) -> str:
    """Return the lines of the server `maxq command`, which was ready `seconds` after its start; `name` may be empty."""
    who = f": {name}" if name else ""
    first = f"maxq {command}{_IS_READY}{who} ({seconds:.2f} s)"
    return "\n".join([first, *(f"{_INDENT}{fact}: {value}" for fact, value in facts.items())])
