"""Is a seed the same story each time it is told?

Two processes give objects other addresses and strings other hashes, and what ran before leaves its traces in tables of
the process. A story that depends on one of them cannot be told again when it has failed. `digest` says in one number
what happened: which callback ran at what virtual time, and what the story noted.

    python -m tests.simulation.repeats store-3 pop-7002          # prints the digest of each
    PYTHONHASHSEED=1 python -m tests.simulation.repeats --steps 0 pop-7002 store-3     # all of each story: the same
"""

import argparse
import hashlib
from collections.abc import Callable
from typing import Any, Final
from unittest.mock import patch

from maxq.testing.sim_loop import SimLoop
from tests.simulation.campaign import be_quiet, tell

#: Steps of a story that `digest` covers: enough for all parts of whole servers to have begun.
STEPS: Final = 15_000


class _EnoughSeenError(Exception):
    """The story is told so far."""


def digest(job: str, steps: int = STEPS) -> str:
    """Tell a story, or the first `steps` steps of its loop (0: all of it). `job`: kind and seed, as in "pop-7002"."""
    kind, _, seed = job.rpartition("-")
    seen = hashlib.sha256()
    left = steps or -1
    run_handle = SimLoop._run_handle

    def note(loop: SimLoop, handle: Any) -> None:
        nonlocal left
        if left:
            left -= 1
            seen.update(f"{loop.time():.9f} {_name(handle._callback)}\n".encode())
        elif not loop.is_over:
            loop._ready.appendleft(handle)  # a task whose wake-up is lost can never be ended
            raise _EnoughSeenError
        run_handle(loop, handle)

    with patch.object(SimLoop, "_run_handle", note):
        outcome = tell(int(seed), kind)
    said = outcome.failure if "_EnoughSeenError" not in outcome.failure else ""
    seen.update(f"{said}\n{sorted(outcome.marks)}".encode())
    return seen.hexdigest()[:16]


def _name(callback: Callable[..., object]) -> str:
    """Without an address."""
    get_coro = getattr(getattr(callback, "__self__", None), "get_coro", None)
    named = callback if get_coro is None else get_coro()
    return str(getattr(named, "__qualname__", type(named).__name__))


def main() -> None:
    parser = argparse.ArgumentParser(description="Prints what happened in stories, in one number each.")
    parser.add_argument("jobs", nargs="+", help="kind and seed, as in pop-7002")
    parser.add_argument("--steps", type=int, default=STEPS, help="of the loop; 0: all")
    options = parser.parse_args()
    be_quiet()
    for job in options.jobs:
        print(job, digest(job, options.steps), flush=True)


if __name__ == "__main__":
    main()
