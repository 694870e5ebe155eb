"""Loaded once by the process that the commands of tests/forked_commands.py are forked from.

The loops of servers are watched, as in tests/watched_server.py: what imports the watched class comes after it.
"""

import gc
import importlib

from maxq.runtime import holds
from tests.watched_server import WatchedHolds

holds.Holds = WatchedHolds  # type: ignore[misc]

from maxq.cli.admin import ENTRIES  # noqa: E402
from maxq.cli.app import COMMANDS  # noqa: E402
from maxq.filter import sql92  # noqa: E402

#: What commands import only when they serve or connect; and pytest, for the tests of its plug-in.
_LATER = (
    "maxq.broker.controller",
    "maxq.namesrv.controller",
    "maxq.standalone",
    "uvloop",
    "encodings.idna",
    "pickle",
    "pytest",
)
_ON_SPARK = ("sql", "pipeline")

_of_commands = [entry.module for name, entry in COMMANDS.items() if name not in _ON_SPARK]
for _name in (*_of_commands, *(entry.module for entry in ENTRIES.values()), *_LATER):
    importlib.import_module(_name)
sql92.load()
gc.collect()
gc.freeze()
