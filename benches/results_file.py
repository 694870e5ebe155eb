"""Writes what a bench has measured into a file of benches/results, with what has to be known beside the figures."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benches.load.measure import machine

_ROOT: Final = Path(__file__).parents[1]


def conditions(program: str) -> dict[str, Any]:
    """The command line of this process, the day, the commit of this tree, and the machine.

    The machine's load average is that of the last five minutes, and includes the bench itself.

    Args:
        program: how the bench is called, for example `python benches/acl.py`.
    """
    commit = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True, cwd=_ROOT)
    return {
        "command": " ".join([program, *(word for word in sys.argv[1:] if word)]),
        "day": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": commit.stdout.strip(),
        "machine": machine() | {"load_average": round(os.getloadavg()[1], 1)},
    }


def write_results(file: Path, program: str, figures: Mapping[str, Any]) -> None:
    """Write the conditions and the figures as one JSON object."""
    file.write_text(json.dumps(conditions(program) | dict(figures), indent=1) + "\n")
