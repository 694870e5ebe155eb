"""Stories of pop consumption: brokers die, hand over and stand on failing disks while messages are popped."""

import pytest

from tests.simulation.told import check, marks, seeds

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = 5
TWINS = 200


@pytest.mark.parametrize("seed", seeds(SEEDS, "pop"))
def test_nothing_acknowledged_comes_again_and_nothing_else_is_lost(seed: int) -> None:
    check(seed, "pop")


def test_every_kind_of_request_and_death_happened() -> None:
    wanted = {"acknowledged in time", "changes of invisible time", "given again", "change of master", "within flush"}
    assert wanted - set(marks(seeds(SEEDS, "pop"), "pop")) == set()


@pytest.mark.parametrize("seed", seeds(TWINS, "pop-twins"))
def test_a_message_that_two_hold_is_one(seed: int) -> None:
    check(seed, "pop-twins")


def test_every_kind_of_meeting_happened() -> None:
    wanted = {
        "messages that two hold", "change of a time at the master", "change of a time at the slave", "an end in order",
        "a kill", "ack at the slave",
    }  # fmt: skip
    assert wanted - set(marks(seeds(TWINS, "pop-twins"), "pop-twins")) == set()
