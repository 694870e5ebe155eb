"""Stories of pop consumption: brokers die, hand over and stand on failing disks while messages are popped."""

import pytest

from tests.simulation.told import always, cases, check, marks

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = range(5)
SHORT = (0, 1)
TWINS = range(200)
SHORT_TWINS = range(60)


@pytest.mark.parametrize("seed", cases("pop", SHORT, SEEDS, newest=1))
def test_nothing_acknowledged_comes_again_and_nothing_else_is_lost(seed: int) -> None:
    check(seed, "pop")


@pytest.mark.slow
def test_every_kind_of_request_and_death_happened() -> None:
    wanted = {
        "acknowledged in time", "acknowledged by an earlier receipt", "changes of invisible time", "given again",
        "change of master", "within flush",
    }  # fmt: skip
    assert wanted - set(marks(always("pop", SEEDS), "pop")) == set()


@pytest.mark.parametrize("seed", cases("pop-twins", SHORT_TWINS, TWINS))
def test_a_message_that_two_hold_is_one(seed: int) -> None:
    check(seed, "pop-twins")


@pytest.mark.slow
def test_every_kind_of_meeting_happened() -> None:
    wanted = {
        "messages that two hold", "change of a time at the master", "change of a time at the slave", "an end in order",
        "a kill", "ack at the slave",
    }  # fmt: skip
    assert wanted - set(marks(always("pop-twins", TWINS), "pop-twins")) == set()
