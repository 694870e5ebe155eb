"""How many processor instructions in user space a broker takes for a message, which a noisy machine does not change.

    python -m benches.instructions                        # this tree
    python -m benches.instructions /path/to/old/tree .    # two trees, one after the other

Each tree must have its compiled modules (`make setup`). The server runs under valgrind's callgrind, twenty to thirty
times as slow as else, and counts only while the load runs. What the server does without load, about a second's worth a
second, is in the figure, so the machine should have nothing else to do. Time in the kernel and waits for memory are not
in it: look at processor time as well. Needs valgrind; prints one JSON object a tree and workload. With --keep FOLDER
the profiles stay there, for callgrind_annotate.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benches.trees import server_of

WORKLOADS = ("send_1k", "send_batch32", "consume", "sync_1")


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(prog="benches.instructions", description="Count instructions a message.")
    parser.add_argument("trees", nargs="*", type=Path, default=[Path()], help="roots of source trees")
    parser.add_argument("--secs", type=float, default=6.0, help="seconds of load that are counted")
    parser.add_argument("--keep", type=Path, help="folder for callgrind's profiles")
    given = parser.parse_args()
    if shutil.which("valgrind") is None:
        sys.exit("benches.instructions: valgrind is not installed")
    for tree in given.trees:
        for workload, profile, messages in profiles(tree.resolve(), given.secs):
            per_message = round(counted(profile) / messages, 1)
            result = {"tree": str(tree), "workload": workload, "instructions_per_message": per_message}
            print(json.dumps(result), flush=True)
            if given.keep is not None:
                given.keep.mkdir(parents=True, exist_ok=True)
                shutil.copy(profile, given.keep / f"{tree.resolve().name}.{workload}")


def counted(profile: Path) -> int:
    """The instructions that a profile of callgrind counts."""
    with profile.open(errors="replace") as lines:
        return max(int(line.split()[1]) for line in lines if line.startswith(("totals:", "summary:")))


def profiles(tree: Path, secs: float) -> Iterator[tuple[str, Path, float]]:
    """Each workload with its profile and the number of its messages."""
    temporary = tempfile.TemporaryDirectory(prefix="maxq-instructions-")
    tool = ["valgrind", "--tool=callgrind", "--instr-atstart=no"]
    with temporary as folder, server_of(
        tree, Path(folder), [*tool, f"--callgrind-out-file={folder}/profile"]
    ) as (process, address):  # fmt: skip
        pid = str(process)
        for workload in WORKLOADS:
            _load(workload, address, 3.0)  # caches, plans and files are there before it counts
            subprocess.run(["callgrind_control", "-i", "on", pid], check=True, capture_output=True)
            messages = _load(workload, address, secs)
            subprocess.run(["callgrind_control", "-i", "off", pid], check=True, capture_output=True)
            subprocess.run(["callgrind_control", "-d", workload, pid], check=True, capture_output=True)
            yield workload, max(Path(folder).glob("profile.*"), key=lambda path: path.stat().st_mtime_ns), messages


def _load(workload: str, address: str, secs: float) -> float:
    """Run a workload without a warm-up; returns how many messages it sent or received."""
    command = [sys.executable, "-m", "benches.load", "suite", "--only", workload, "--secs", str(secs), "--warm", "0"]
    done = subprocess.run([*command, "--address", address], check=True, capture_output=True, text=True)
    result = json.loads(done.stdout.splitlines()[-1])
    return secs * float(result.get("sent_per_s") or result["received_per_s"])


if __name__ == "__main__":
    main()
