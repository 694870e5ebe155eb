"""Standalone servers of other source trees, for benches that compare two trees."""

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

_START_SECONDS = 600.0  # under valgrind a start takes a minute
#: "broker": "host:port" in JSON, or broker: host:port, or as older trees print it.
_BROKER: Final = re.compile(r'broker(?:": "| broker-a |: )([^\s,"]+)')


@contextlib.contextmanager
def server_of(tree: Path, folder: Path, under: Sequence[str] = ()) -> Iterator[tuple[int, str]]:
    """Run `maxq standalone` of the source tree `tree` on a store below `folder`.

    Args:
        tree: root of a tree that has its compiled modules.
        folder: a folder for store, log and ready file; a store that is there already is used again.
        under: a command that runs the server, such as valgrind with its options.

    Yields:
        The process id, and host:port of the broker.

    Raises:
        SystemExit: the server did not start, or does not say where it listens.
    """
    ready, log = folder / "ready", folder / "log"
    server = [sys.executable, "-m", "maxq", "standalone", "--store", str(folder / "store"), "--ready-file", str(ready)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*under, *server, "--namesrv-port", "0", "--broker-port", "0"],
            stdout=output, stderr=subprocess.STDOUT, cwd=folder,
            env={**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONHASHSEED": "0"},
        )  # fmt: skip
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"the server of {tree} did not start (exit code {process.poll()}): {log.read_text()[-1000:]}")
            time.sleep(0.002)
        found = _BROKER.search(log.read_text())
        if found is None:
            sys.exit(f"the server of {tree} does not say where its broker listens: {log.read_text()[-1000:]}")
        yield process.pid, found[1]
    finally:
        process.terminate()
        process.wait(_START_SECONDS)
