"""Stories of stores, timers, ledgers, brokers and their slaves on a disk of which every call can fail, or whose
dispatch is late, every seed that failed once, and the planted bugs that they notice."""

from collections import Counter

import pytest

from tests.simulation.campaign import regressions, tell
from tests.simulation.mutations import first_noticed, likely_seeds, short_form

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = {
    "timer": 6, "compaction": 20, "store-faults": 16, "ext-faults": 8, "transaction-faults": 4, "ledger-faults": 20,
    "staged-faults": 2, "pop-faults": 2, "ha-faults": 3, "cluster-faults": 2, "dledger-cluster-faults": 1,
    "full-tmpfs": 4, "store-late": 4, "ha-late": 4, "promise-pair-late": 1, "dledger-cluster-late": 1,
}  # fmt: skip
CASES = [(kind, seed) for kind, count in SEEDS.items() for seed in sorted({*range(count), *regressions(kind)})]

_seen: Counter[str] = Counter()


@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_nothing_is_lost_or_comes_twice_whatever_call_fails(kind: str, seed: int) -> None:
    outcome = tell(seed, kind)
    _seen.update(outcome.marks)
    assert not outcome.failure, outcome.failure


@pytest.mark.parametrize("name", short_form())
def test_planted_bug_is_noticed(name: str) -> None:
    assert first_noticed(name, likely_seeds(name)) >= 0


def test_calls_of_many_kinds_failed() -> None:
    """Runs after the stories above, in one process with them."""
    if not _seen:
        pytest.skip("the stories did not run in this process")
    kinds = {mark.split()[1] for mark in _seen if mark.startswith("failed: ")}
    assert len(kinds & {"allocate", "create", "delete", "flush", "list", "open", "put", "read", "replace"}) >= 3
