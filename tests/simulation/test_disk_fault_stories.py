"""Stories of stores, timers, ledgers, brokers and their slaves on a disk of which every call can fail, or whose
dispatch is late, every seed that failed once, and the planted bugs that they notice."""

import pytest

from tests.simulation.mutations import first_noticed, likely_seeds, short_form
from tests.simulation.told import check, marks, seeds

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = {
    "timer": 6, "compaction": 20, "store-faults": 16, "ext-faults": 8, "transaction-faults": 4, "ledger-faults": 20,
    "staged-faults": 2, "pop-faults": 2, "ha-faults": 3, "cluster-faults": 2, "dledger-cluster-faults": 1,
    "full-tmpfs": 4, "store-late": 4, "ha-late": 4, "promise-pair-late": 1, "dledger-cluster-late": 1,
}  # fmt: skip
CASES = [(kind, seed) for kind, count in SEEDS.items() for seed in seeds(count, kind)]


@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_nothing_is_lost_or_comes_twice_whatever_call_fails(kind: str, seed: int) -> None:
    check(seed, kind)


@pytest.mark.parametrize("name", short_form())
def test_planted_bug_is_noticed(name: str) -> None:
    assert first_noticed(name, likely_seeds(name)) >= 0


def test_calls_of_many_kinds_failed() -> None:
    seen = marks(range(SEEDS["store-faults"]), "store-faults")
    kinds = {mark.split()[1] for mark in seen if mark.startswith("failed: ")}
    assert len(kinds & {"allocate", "create", "delete", "flush", "list", "open", "put", "read", "replace"}) >= 3
