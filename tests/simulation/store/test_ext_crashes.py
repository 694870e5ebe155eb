"""Crash stories with ConsumeQueueExt, and every seed that ever failed."""

import pytest

from tests.simulation.told import check, marks, seeds

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = 20


@pytest.mark.parametrize("seed", seeds(SEEDS, "ext"))
def test_no_message_gets_another_ones_extension(seed: int) -> None:
    check(seed, "ext")


def test_extensions_were_read_after_crashes() -> None:
    wanted = {"extension read", "ending: kill", "ending: moment", "compared with a rebuild"}
    assert wanted - set(marks(range(SEEDS), "ext")) == set()
