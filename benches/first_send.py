"""Processor time of a program that imports `maxq.api` and sends one message, from the start of Python to the result.

    python -m benches.first_send                        # this tree
    python -m benches.first_send /path/to/old/tree .    # two trees, in alternation

Each tree must have its compiled modules. Bytecode is written first, as an installation has it. Prints a JSON line a
tree: the least and the median of the runs, in seconds; beside it what Python and asyncio take without MaxQ.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from maxq.testing.server_process import StandaloneProcess

_END = "import time; print(time.process_time())"
_SEND = """
import sys
from maxq.api import Message, Producer
with Producer("first", sys.argv[1]) as producer:
    producer.send(Message("first", b"x"))
    import time; print(time.process_time())
"""


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(prog="benches.first_send", description="Measure the first send.")
    parser.add_argument("trees", nargs="*", type=Path, default=[Path()], help="roots of source trees")
    parser.add_argument("--runs", type=int, default=15, help="programs of each tree")
    given = parser.parse_args()
    found: dict[str, list[float]] = defaultdict(list)
    with StandaloneProcess() as server:
        for _ in range(given.runs + 1):
            found["asyncio"].append(_run(Path(), "import asyncio\n" + _END, ""))
            for tree in given.trees:
                found[str(tree)].append(_run(tree.resolve(), _SEND, server.namesrv_address))
    for name, (_, *seconds) in found.items():  # the first one may have written bytecode
        print(json.dumps({"tree": name, "least": min(seconds), "median": round(statistics.median(seconds), 3)}))


def _run(tree: Path, code: str, address: str) -> float:
    """The processor time of one program, in seconds."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = str(tree / "src")
    command = [sys.executable, "-c", code, address]
    return round(float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout), 3)


if __name__ == "__main__":
    main()
