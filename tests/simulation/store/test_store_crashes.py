"""Crash stories: fifty, or a few of them, and every seed that ever failed."""

import pytest

from tests.simulation.campaign import tell
from tests.simulation.told import cases, check, marks, told

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = range(50)
#: The last one's power goes while a log file is made, which is rare.
SHORT = (7, 14, 19, 30, 36, 39, 44, 45, 99)


@pytest.mark.parametrize("seed", cases("store", SHORT, SEEDS, newest=4))
def test_nothing_durable_is_lost_whatever_happens(seed: int) -> None:
    check(seed)


def test_one_seed_is_one_story() -> None:
    assert tell(7).marks == told(7, "store").marks


@pytest.mark.slow
def test_every_kind_of_crash_point_was_hit() -> None:
    wanted = {
        "SYNC_FLUSH", "ASYNC_FLUSH", "batch", "deleted a topic", "compared with a rebuild", "damage named at start",
        "ending: kill", "ending: moment", "ending: operation", "ending: recovery", "ending: shutdown",
        "flipped: checkpoint", "flipped: consumequeue", "flipped: index", "flipped: inventory.json",
        "flipped: log, guarded", "flipped: log, not covered",
        "power lost in: create commitlog", "power lost in: flush commitlog", "power lost in: flush consumequeue",
        "power lost in: flush checkpoint", "power lost in: replace config", "power lost in: delete commitlog",
    }  # fmt: skip
    assert wanted - set(marks([*SEEDS, *SHORT])) == set()
