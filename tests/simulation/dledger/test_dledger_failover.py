"""No send fails while a majority of a DLedger group and one name server live: a few stories, and every seed that failed
once."""

import pytest

from tests.simulation.campaign import regressions, tell

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.mark.parametrize("seed", sorted({*range(3), *regressions("failover")}))
def test_no_send_fails_while_a_majority_lives(seed: int) -> None:
    outcome = tell(seed, "failover")
    assert not outcome.failure, outcome.failure
