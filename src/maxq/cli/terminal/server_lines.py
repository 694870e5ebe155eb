"""The lines that servers print on standard output: text at a terminal, and elsewhere one JSON object a line.

At a terminal the first line says which server is ready; every other line is one fact:

    maxq standalone is ready: broker-a (0.03 s)
      name server: 127.0.0.1:9876
      broker: 127.0.0.1:10911
      store: maxq-store

Elsewhere, as in a file, a pipe or a service manager's journal, each is an event:

    {"event": "ready", "server": "standalone", "name": "broker-a", "seconds": 0.03, "nameServer": "127.0.0.1:9876", …}
    {"event": "ended", "server": "standalone", "reason": "SIGTERM"}
"""

import json
import sys
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from maxq.cli.terminal.ends import drop_unread_output

_INDENT: Final = "  "


class Ready(NamedTuple):
    """A server that clients can connect to.

    Attributes:
        command: name of the command, without `maxq`.
        name: name of the broker or member; may be empty.
        seconds: time from its start to being ready.
        facts: further lines to print: name in words, such as "name server", and value.
    """

    command: str
    name: str
    seconds: float
    facts: Mapping[str, str]

    def say(self) -> None:
        """Tell whoever started the server that it is ready: text at a terminal, one JSON line elsewhere."""
        who = f": {self.name}" if self.name else ""
        first = f"maxq {self.command} is ready{who} ({self.seconds:.2f} s)"
        text = "\n".join([first, *(f"{_INDENT}{fact}: {value}" for fact, value in self.facts.items())])
        facts = {_member(fact): int(value) if fact == "port" else value for fact, value in self.facts.items()}
        own = {"server": self.command, "name": self.name, "seconds": round(self.seconds, 2)}
        say("ready", text, **own, **facts)


def say(event: str, text: str, **facts: Any) -> None:
    """Print `text` at a terminal, and elsewhere the event with its facts. If standard output is closed, the server
    continues."""
    try:
        is_terminal = sys.stdout.isatty()
        print(text if is_terminal else json.dumps({"event": event, **facts}), flush=True)  # ASCII, whatever the locale
    except OSError:
        drop_unread_output()


def _member(fact: str) -> str:
    """Return the name of a JSON member for a fact: nameServer for "name server"."""
    first, *others = fact.split()
    return first + "".join(word.capitalize() for word in others)
