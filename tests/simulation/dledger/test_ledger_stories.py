"""Forty stories of a DLedger member's files, and every seed that ever failed."""

import pytest

from tests.simulation.told import check, marks, seeds

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = 40


@pytest.mark.parametrize("seed", seeds(SEEDS, "ledger"))
def test_what_a_member_said_is_durable_is_there_or_it_knows_what_it_lost(seed: int) -> None:
    check(seed, "ledger")


def test_every_kind_of_crash_was_told() -> None:
    wanted = {
        "truncate", "emptied", "ending: kill", "ending: power", "ending: shutdown", "remembered",
        "flipped: data", "flipped: index", "flipped: checkpoint", "flipped: currterm", "lost, and it knows",
        "power lost in: flush data", "power lost in: replace checkpoint", "power lost in: replace currterm",
        "truncation below committed refused", "retain", "deleted", "deleted on a full disk",
        "power lost in: delete data",
    }  # fmt: skip
    assert wanted - set(marks(range(SEEDS), "ledger")) == set()
