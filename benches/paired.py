"""Processor time a message of two source trees, measured in pairs of short bursts, on a machine that is not quiet.

    python -m benches.paired /path/to/old/tree .          # 12 pairs of 2 s for each workload
    python -m benches.paired --pairs 24 --only sync_1 /path/to/old/tree .

Each tree must have its compiled modules (`make setup`). Both servers live at once; bursts of load alternate between
them, and the order within a pair changes from pair to pair. On a machine whose speed changes by a third from one
half-minute to the next, the ratio within a pair is still the trees': the median of the pairs is the result, and the
quartiles say how far it can be trusted. Prints one JSON object a workload: `cpu_us` are medians of µs a message.

The workload `start` compares starts, from the command to the ready file, on copies of the store that the bursts before
it have filled in the old tree's server, which was shut down in good order: `cpu_us` are µs of processor time a start,
`wall_new_to_old` are quartiles of the ratio of elapsed times. Both trees' bytecode must be there (`make setup`), and
Python must be allowed to write it (PYTHONDONTWRITEBYTECODE unset): without it a start compiles every module and takes
three times as long.
"""

import argparse
import contextlib
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from benches.load.measure import cpu_seconds_of, measure
from benches.load.request import Target
from benches.load.workloads import plan_of
from benches.trees import server_of

WORKLOADS = ("send_1k", "send_batch32", "consume", "sync_1")
_START = "start"
_WARM_SECONDS = 0.5


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(prog="benches.paired", description="Compare two trees in pairs of bursts.")
    parser.add_argument("old", type=Path, help="root of the tree to compare with")
    parser.add_argument("new", type=Path, help="root of the tree that is judged")
    parser.add_argument("--pairs", type=int, default=12, help="pairs of bursts a workload")
    parser.add_argument("--secs", type=float, default=2.0, help="measured seconds of a burst")
    parser.add_argument("--only", choices=(*WORKLOADS, _START), action="append", help="this workload; may be repeated")
    given = parser.parse_args()
    wanted = given.only or [*WORKLOADS, _START]
    bursts = [workload for workload in wanted if workload != _START] or ["send_1k"]
    with contextlib.ExitStack() as stack:
        trees = [
            (tree.resolve(), Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="maxq-paired-"))))
            for tree in (given.old, given.new)
        ]
        with contextlib.ExitStack() as running:
            servers = []
            for tree, folder in trees:
                pid, address = running.enter_context(server_of(tree, folder))
                servers.append((pid, Target.at(address)))
            for workload in bursts:
                print(json.dumps(compare(workload, servers, given.pairs, given.secs)), flush=True)
        if _START in wanted:
            old, new = (folder / "store" for _, folder in trees)
            shutil.rmtree(new)
            shutil.copytree(old, new)
            print(json.dumps(compare_starts(trees, given.pairs)), flush=True)


def compare(workload: str, servers: list[tuple[int, Target]], pairs: int, secs: float) -> dict[str, object]:
    """Load both servers in alternation.

    Args:
        workload: one of WORKLOADS.
        servers: process id and target of the old and of the new tree's server.
        pairs: number of pairs of bursts.
        secs: measured seconds of a burst.

    Returns:
        Medians of both, and quartiles of new / old over the pairs.
    """
    found: list[list[float]] = [[], []]
    for number in range(pairs):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            pid, target = servers[which]
            result = measure(plan_of(workload, target, secs=secs, warm=_WARM_SECONDS), [pid])
            found[which].append(float(result["server_cpu_us_per_msg"]))
    return {
        "workload": workload,
        "pairs": pairs,
        "cpu_us": [round(statistics.median(values), 2) for values in found],
        "new_to_old": _quartiles(found),
    }


def compare_starts(trees: list[tuple[Path, Path]], pairs: int) -> dict[str, object]:
    """Start both trees' servers in alternation, each on its own copy of a store.

    Args:
        trees: root, and folder of the store (server_of), of the old and of the new tree.
        pairs: number of pairs of starts.

    Returns:
        Medians of both in µs of processor time, and quartiles of new / old over the pairs, of processor and wall time.
    """
    cpu: list[list[float]] = [[], []]
    wall: list[list[float]] = [[], []]
    for number in range(pairs):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            began = time.perf_counter()
            with server_of(*trees[which]) as (pid, _):
                wall[which].append(time.perf_counter() - began)
                cpu[which].append(cpu_seconds_of([pid]) * 1e6)
    return {
        "workload": _START,
        "pairs": pairs,
        "cpu_us": [round(statistics.median(values)) for values in cpu],
        "new_to_old": _quartiles(cpu),
        "wall_new_to_old": _quartiles(wall),
    }


def _quartiles(found: list[list[float]]) -> list[float]:
    """Return the quartiles of new / old over pairs of an old tree's and a new tree's figures."""
    ratios = sorted(new / old for old, new in zip(*found, strict=True))
    quarters = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return [round(quarter, 3) for quarter in quarters]


if __name__ == "__main__":
    main()
