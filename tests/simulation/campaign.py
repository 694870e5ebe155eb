"""Many crash stories: `python -m tests.simulation.campaign --seeds N --first S`.

A failing seed prints itself, what was broken and the story that led there; exit 1. At the end: how often each kind of
thing happened, for a rule that is never put to the test proves nothing. Put a seed that failed into `regressions.txt`.
"""

import argparse
import logging
import multiprocessing
import sys
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.simulation.crash_story import CrashStory

REGRESSIONS = Path(__file__).with_name("regressions.txt")


@dataclass(slots=True)
class Outcome:
    """Of one seed. `failure` is empty if all rules held."""

    seed: int
    marks: set[str]
    failure: str = ""


def tell(seed: int) -> Outcome:
    """Run one story."""
    story = CrashStory(seed)
    try:
        story.run()
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        lines = [f"seed {seed}: {type(error).__name__} at {Path(place.filename).name}:{place.lineno}", str(error)]
        return Outcome(seed, story.marks, "\n".join([*lines, *("    " + line for line in story.history)]))
    return Outcome(seed, story.marks)


def be_quiet() -> None:
    """Stores that lose their power have much to say."""
    logging.disable(logging.CRITICAL)


def regressions() -> list[int]:
    """Seeds that failed once; they always run."""
    lines = REGRESSIONS.read_text().splitlines()
    return [int(line.split("#")[0]) for line in lines if line.split("#")[0].strip()]


def main() -> int:
    parser = argparse.ArgumentParser(description="Simulated crashes and bit flips of the store.")
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count(), help="processes")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    marks: Counter[str] = Counter()
    failed = []
    with multiprocessing.get_context("spawn").Pool(options.jobs, be_quiet) as pool:
        for done, outcome in enumerate(pool.imap_unordered(tell, seeds, chunksize=5), start=1):
            marks.update(outcome.marks)
            if outcome.failure:
                failed.append(outcome.seed)
                print(outcome.failure, flush=True)
            if done % 100 == 0:
                print(f"{done} of {options.seeds} seeds, {len(failed)} failed", file=sys.stderr, flush=True)
    for mark, count in sorted(marks.items()):
        print(f"{count:7} {mark}")
    print(f"{options.seeds} seeds from {options.first}: {len(failed)} failed {sorted(failed) if failed else ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
