"""Stories of groups in which slaves stand in for their master, and every seed that ever failed."""

import pytest

from tests.simulation.told import cases, check

#: `make sim` tells many.
SEEDS = (1,)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("seed", cases("acting", SEEDS, newest=0))
def test_a_group_keeps_its_promises_whoever_stands_in(seed: int) -> None:
    check(seed, "acting")
