"""Stories of whole DLedger brokers, name server and clients, and every seed that ever failed."""

import pytest

from tests.simulation.campaign import tell
from tests.simulation.told import cases

pytestmark = pytest.mark.usefixtures("quiet")

#: Short ones, with every kind of fault among them; `make sim` tells many.
SEEDS = (6, 101, 103)


@pytest.mark.parametrize("seed", cases("dledger-cluster", SEEDS[:1], SEEDS, newest=0))
def test_what_was_acknowledged_is_on_every_member_and_was_consumed(seed: int) -> None:
    outcome = tell(seed, "dledger-cluster")
    assert not outcome.failure, outcome.failure
    assert outcome.marks["answer: SEND_OK"] > 100
