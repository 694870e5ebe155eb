"""No send fails while a majority of a DLedger group and one name server live: a few stories, and every seed that failed
once."""

import pytest

from tests.simulation.campaign import tell
from tests.simulation.told import cases

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.mark.parametrize("seed", cases("failover", (0,), range(3)))
def test_no_send_fails_while_a_majority_lives(seed: int) -> None:
    outcome = tell(seed, "failover")
    assert not outcome.failure, outcome.failure
