"""The command line as a user calls it: processes, their output and exit codes."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Outcome:
    """What one command printed and how it ended."""

    code: int
    out: str
    err: str


def maxq(*arguments: str, text: str = "", namesrv: str = "", cwd: Path | None = None) -> Outcome:
    """Run `maxq …` to its end; `namesrv` goes into NAMESRV_ADDR."""
    environment = dict(os.environ, NAMESRV_ADDR=namesrv) if namesrv else dict(os.environ)
    done = subprocess.run(
        [sys.executable, "-m", "maxq", *arguments],
        input=text.encode(),
        capture_output=True,
        env=environment,
        cwd=cwd,
        timeout=60,
    )
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())
