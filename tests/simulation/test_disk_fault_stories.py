"""Stories of stores, timers, ledgers, brokers and their slaves on a disk of which every call can fail, or whose
dispatch is late, every seed that failed once, and the planted bugs that they notice."""

import pytest

from tests.short_form import long_form
from tests.simulation.mutations import MUTATIONS, first_noticed, likely_seeds, short_form
from tests.simulation.told import always, check, marks

pytestmark = pytest.mark.usefixtures("quiet")

#: By kind: seeds of the short form, how many there are in the long one, and how many that failed are in the short one.
SEEDS: dict[str, tuple[tuple[int, ...], int, int | None]] = {
    "timer": ((3, 4), 6, 3), "compaction": ((0, 2, 4, 6), 20, None), "store-faults": ((4, 8, 10), 16, 2),
    "ext-faults": ((1, 7), 8, None), "transaction-faults": ((1, 3), 4, None), "ledger-faults": ((0, 2, 4, 6), 20, None),
    "staged-faults": ((0,), 2, None), "pop-faults": ((1,), 2, 1), "ha-faults": ((0,), 3, None),
    "cluster-faults": ((), 2, 0), "dledger-cluster-faults": ((0,), 1, None), "full-tmpfs": ((0,), 4, None),
    "store-late": ((0,), 4, None), "ha-late": ((0,), 4, None), "promise-pair-late": ((0,), 1, None),
    "dledger-cluster-late": ((), 1, 0), "ha-batches-late": ((), 4, 1),
}  # fmt: skip
SHORT = [(kind, seed) for kind, (short, _, newest) in SEEDS.items() for seed in always(kind, short, newest)]
LONG = [(kind, seed) for kind, (_, count, _) in SEEDS.items() for seed in always(kind, range(count))]
#: Of which a story takes a second or more of a processor.
LONG_KINDS = (
    "delay", "delay-settings", "store-faults", "ha-faults", "ha-batches", "pop-faults", "transaction", "timer"
)  # fmt: skip
NOTICED = [name for name in short_form() if MUTATIONS[name].kind not in LONG_KINDS]


@pytest.mark.parametrize(("kind", "seed"), [*SHORT, *long_form(LONG, SHORT)])
def test_nothing_is_lost_or_comes_twice_whatever_call_fails(kind: str, seed: int) -> None:
    check(seed, kind)


@pytest.mark.parametrize("name", [*NOTICED, *long_form(short_form(), NOTICED)])
def test_planted_bug_is_noticed(name: str) -> None:
    assert first_noticed(name, likely_seeds(name)) >= 0


@pytest.mark.slow
def test_calls_of_many_kinds_failed() -> None:
    seen = marks(range(SEEDS["store-faults"][1]), "store-faults")
    kinds = {mark.split()[1] for mark in seen if mark.startswith("failed: ")}
    assert len(kinds & {"allocate", "create", "delete", "flush", "list", "open", "put", "read", "replace"}) >= 3
