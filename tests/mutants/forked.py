"""A pytest plugin that tries mutants: each in a process of its own, made of this one, which has collected the tests and
run none of them.

A mutant so costs what its tests cost, a tenth of a second and less, and not a start of pytest. First all tests run once
without a mutant, in a process of their own too: they must pass, and it is noted which mutated functions each of them
calls and how long it takes. A mutant's tests are those that call its function, the shortest and those that have noticed
others first, without slow ones; the first failure ends them.

The file that the environment variable MUTANTS names has the mutants, one a line; the outcomes are put into
`MUTANTS`.outcomes as they come, `mutant exit-code` a line, in mutmut's numbers. Hypothesis draws the same examples each
time and does not look for the smallest one that fails.
"""

import contextlib
import gc
import math
import os
import pickle
import resource
import select
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import Phase, settings
from mutmut.mutation import trampoline
from mutmut.utils.format_utils import mangled_name_from_mutant_name

SURVIVED: Final = 0
KILLED: Final = 1
NO_TESTS: Final = 33
TIMED_OUT: Final = 36
#: A mutant may take this many times as long as its tests, and so many seconds more.
TIMES_AS_LONG: Final = 3
SECONDS_MORE: Final = 10
#: A test that takes so much of a processor is left out: what only slow tests would notice counts as survived.
MOST_CPU_SECONDS: Final = 1.0
#: A test that has noticed a mutant comes before one that is quicker, up to so many times for each that it has noticed.
WEIGHT: Final = 4

settings.register_profile(
    "mutants", settings(), phases=[Phase.explicit, Phase.generate], derandomize=True, database=None, deadline=None
)


class Trial(NamedTuple):
    """What a test did without a mutant."""

    seconds: float
    cpu_seconds: float
    calls: frozenset[str]  # mutated functions, by mutmut's names
    failure: str


def first_that_fails(items: Sequence[pytest.Item]) -> int:
    """Run tests up to the first that fails; returns which one that is, -1 if none does."""
    for number, (item, following) in enumerate(zip(items, [*items[1:], None], strict=True)):
        if any(report.failed for report in runtestprotocol(item, nextitem=following, log=False)):
            return number
    return -1


def tried(items: Sequence[pytest.Item]) -> list[Trial]:
    """Run all tests, with mutmut's `stats` for a mutant, which has each mutated function say that it is called."""
    calls: set[str] = set()
    trampoline.record_trampoline_hit = lambda name, caller=None: calls.add(name)
    trampoline.set_mutant_under_test("stats")
    found = []
    for item, following in zip(items, [*items[1:], None], strict=True):
        calls.clear()
        start, began = time.monotonic(), time.process_time()
        reports = runtestprotocol(item, nextitem=following, log=False)
        failure = next((report.longreprtext for report in reports if report.failed), "")
        seconds, cpu_seconds = time.monotonic() - start, time.process_time() - began
        found.append(Trial(seconds, cpu_seconds, frozenset(calls), failure and f"{item.nodeid}: {failure}"))
    return found


@contextlib.contextmanager
def forked(work: Callable[[], Any]) -> Iterator[tuple[int, int]]:
    """Have a process of its own do some work; gives its id and a pipe with what comes out of it, pickled. It and
    whatever it has started are ended at the end."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.setpgid(0, 0)
            quiet = os.open(os.devnull, os.O_RDWR)
            for stream in range(3):
                os.dup2(quiet, stream)
            found = pickle.dumps(work())
            while found:
                found = found[os.write(writer, found) :]
        finally:
            os._exit(0)
    os.close(writer)
    with contextlib.suppress(OSError):  # the child is quicker
        os.setpgid(child, child)
    try:
        yield child, reader
    finally:
        os.close(reader)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)


def outcome_of(mutant: str, items: Sequence[pytest.Item], seconds: float) -> tuple[int, int]:
    """Run the tests of a mutant, which take so long without it.

    Returns:
        What becomes of it, as a number of mutmut; which of the tests notices it, -1 if that is not known.
    """
    limit = SECONDS_MORE + TIMES_AS_LONG * seconds

    def work() -> int:
        most = math.ceil(time.process_time() + limit)
        resource.setrlimit(resource.RLIMIT_CPU, (most, most + 1))
        trampoline.set_mutant_under_test(mutant)
        return first_that_fails(items)

    with forked(work) as (_, reader):
        ready, _, _ = select.select([reader], [], [], limit)
        if not ready:
            return TIMED_OUT, -1
        said = os.read(reader, 1 << 16)
    if not said:  # it died: of its mutant
        return KILLED, -1
    failed: int = pickle.loads(said)
    return SURVIVED if failed < 0 else KILLED, failed


def pytest_collection_finish() -> None:
    """Tests are imported: what they hold is looked through no more."""
    settings.load_profile("mutants")  # last of those that conftest.py files load
    gc.collect()
    gc.freeze()


def pytest_runtestloop(session: pytest.Session) -> bool:
    """Try the mutants instead of running the tests."""
    asked = Path(os.environ["MUTANTS"])
    if session.testsfailed:
        raise session.Interrupted("tests cannot be imported")
    with forked(lambda: tried(session.items)) as (_, reader), os.fdopen(os.dup(reader), "rb") as pipe:
        trials: list[Trial] = pickle.loads(pipe.read())
    if failures := [trial.failure for trial in trials if trial.failure]:
        print("These fail without a mutant:", *failures, sep="\n")
        raise session.Failed
    tests: dict[str, list[int]] = defaultdict(list)
    for number, trial in enumerate(trials):
        for function in trial.calls if trial.cpu_seconds < MOST_CPU_SECONDS else ():
            tests[function].append(number)
    noticed: Counter[int] = Counter()
    with asked.with_suffix(".outcomes").open("w") as outcomes:
        for mutant in asked.read_text().split():
            chosen = tests[mangled_name_from_mutant_name(mutant)]
            chosen.sort(key=lambda number: trials[number].cpu_seconds / (1 + WEIGHT * noticed[number]))
            code, failed = NO_TESTS, -1
            if chosen:
                seconds = sum(trials[number].seconds for number in chosen)
                code, failed = outcome_of(mutant, [session.items[number] for number in chosen], seconds)
            if failed >= 0:
                noticed[chosen[failed]] += 1
            print(mutant, code, file=outcomes, flush=True)
    return True
