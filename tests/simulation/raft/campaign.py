"""Many lives of simulated clusters: `python -m tests.simulation.raft.campaign --seeds n --first s`.

Three kinds: groups of our members only (ours), groups of three with one or two that follow Java's rules (mixed,
the folder java), and ours over the shipped file store on simulated disks (stored).
With `--mutations` instead: each planted bug of mutations.py must be noticed within `--within` seeds. Exit 1 if a seed
fails (it prints its story; put it into regressions.txt), or if a bug is not noticed.
"""

import argparse
import logging
import multiprocessing
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.simulation.raft.mutations import MUTATIONS, planted
from tests.simulation.raft.story import MixedStory, RaftStory, StoredStory

KINDS: Final = {"ours": RaftStory, "mixed": MixedStory, "stored": StoredStory}


class Outcome(NamedTuple):
    """Of one seed. `failure` is empty if all rules held."""

    kind: str
    seed: int
    failure: str
    marks: frozenset[str]
    steps: int


def tell(seed: int, kind: str = "ours") -> Outcome:
    """Live one life."""
    story = KINDS[kind](seed)
    failure = ""
    try:
        story.run()
    except Exception as error:  # whatever it is, the seed is told
        lines = [f"{kind} seed {seed}: {type(error).__name__}: {error}", *story.history[-80:]]
        failure = "\n    ".join(lines)
    return Outcome(kind, seed, failure, frozenset(story.marks), story.world.steps)


def regressions() -> list[tuple[int, str]]:
    """Seeds that failed once, and their kind."""
    lines = Path(__file__).with_name("regressions.txt").read_text().splitlines()
    words = [line.split("#")[0].split() for line in lines]
    return [(int(seed), kind) for kind, seed in filter(None, words)]


def first_noticed(name: str, seeds: Iterable[int]) -> int:
    """The first of these seeds that notices a planted bug; -1 if none does."""
    with planted(name):
        return next((seed for seed in seeds if tell(seed).failure), -1)


def be_quiet() -> None:
    """Stores that lose their power have much to say."""
    logging.disable(logging.CRITICAL)


def _tell(job: tuple[int, str]) -> Outcome:
    return tell(*job)


def _run_seeds(first: int, count: int, jobs: int, kinds: Sequence[str]) -> int:
    stories = regressions() + [(seed, kind) for seed in range(first, first + count) for kind in kinds]
    failed: list[str] = []
    marks: Counter[str] = Counter()
    steps = 0
    with multiprocessing.get_context("spawn").Pool(jobs, be_quiet) as pool:
        for outcome in pool.imap_unordered(_tell, stories, chunksize=50):
            marks.update(f"{outcome.kind}: {mark}" for mark in outcome.marks)
            steps += outcome.steps
            if outcome.failure:
                failed.append(f"{outcome.kind} {outcome.seed}")
                print(outcome.failure, flush=True)
    for mark, number in sorted(marks.items()):
        print(f"{number:7} {mark}")
    told = f"{count} seeds from {first} ({', '.join(kinds)}), {steps} events"
    print(f"{told}: {len(failed)} failed {sorted(failed) if failed else ''}", flush=True)
    return 1 if failed else 0


def _look_for_mutations(within: int, jobs: int) -> int:
    missed = 0
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        jobs_ = {name: pool.apply_async(first_noticed, (name, range(within))) for name in MUTATIONS}
        for name, job in jobs_.items():
            seed = job.get()
            missed += seed < 0
            print(f"{'not noticed' if seed < 0 else f'seed {seed}':>12}: {name}", flush=True)
    return 1 if missed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Simulated clusters of DLedger cores.")
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count(), help="processes")
    parser.add_argument("--kind", choices=(*KINDS, "all"), default="all")
    parser.add_argument("--mutations", action="store_true", help="plant bugs; each must be noticed")
    parser.add_argument("--within", type=int, default=500, help="seeds in which a planted bug must be noticed")
    options = parser.parse_args()
    if options.mutations:
        return _look_for_mutations(options.within, options.jobs)
    kinds = tuple(KINDS) if options.kind == "all" else (options.kind,)
    return _run_seeds(options.first, options.seeds, options.jobs, kinds)


if __name__ == "__main__":
    sys.exit(main())
