"""Crash stories with ConsumeQueueExt, and every seed that ever failed."""

import pytest

from tests.simulation.told import cases, check, marks

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = range(20)
SHORT = (7, 14, 19)


@pytest.mark.parametrize("seed", cases("ext", SHORT, SEEDS))
def test_no_message_gets_another_ones_extension(seed: int) -> None:
    check(seed, "ext")


@pytest.mark.slow
def test_extensions_were_read_after_crashes() -> None:
    wanted = {"extension read", "ending: kill", "ending: moment", "compared with a rebuild"}
    assert wanted - set(marks(SEEDS, "ext")) == set()
