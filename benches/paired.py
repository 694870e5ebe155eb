"""Processor time a message of two source trees, measured in pairs of short bursts, on a machine that is not quiet.

    python -m benches.paired /path/to/old/tree .          # 12 pairs of 2 s for each workload
    python -m benches.paired --pairs 24 --only sync_1 /path/to/old/tree .

Each tree must have its compiled modules (`make setup`). Both servers live at once; bursts of load alternate between
them, and the order within a pair changes from pair to pair. On a machine whose speed changes by a third from one
half-minute to the next, the ratio within a pair is still the trees': the median of the pairs is the result, and the
quartiles say how far it can be trusted. Prints one JSON object a workload: `cpu_us` are medians of µs a message.
"""

import argparse
import contextlib
import json
import statistics
import tempfile
from pathlib import Path

from benches.load.measure import measure
from benches.load.request import Target
from benches.load.workloads import plan_of
from benches.trees import server_of

WORKLOADS = ("send_1k", "send_batch32", "consume", "sync_1")
_WARM_SECONDS = 0.5


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(prog="benches.paired", description="Compare two trees in pairs of bursts.")
    parser.add_argument("old", type=Path, help="root of the tree to compare with")
    parser.add_argument("new", type=Path, help="root of the tree that is judged")
    parser.add_argument("--pairs", type=int, default=12, help="pairs of bursts a workload")
    parser.add_argument("--secs", type=float, default=2.0, help="measured seconds of a burst")
    parser.add_argument("--only", choices=WORKLOADS, action="append", help="this workload; may be repeated")
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        servers = []
        for tree in (given.old, given.new):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="maxq-paired-")))
            pid, address = stack.enter_context(server_of(tree.resolve(), folder))
            servers.append((pid, Target.at(address)))
        for workload in given.only or WORKLOADS:
            print(json.dumps(compare(workload, servers, given.pairs, given.secs)), flush=True)


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
    ratios = sorted(new / old for old, new in zip(*found, strict=True))
    quarters = statistics.quantiles(ratios, n=4) if pairs > 1 else ratios * 3
    return {
        "workload": workload,
        "pairs": pairs,
        "cpu_us": [round(statistics.median(values), 2) for values in found],
        "new_to_old": [round(quarter, 3) for quarter in quarters],
    }


if __name__ == "__main__":
    main()
