"""The short form of soak_story."""

import pytest

from tests.simulation.servers.soak_story import run_soak

pytestmark = pytest.mark.usefixtures("quiet")


def test_servers_and_clients_hold_what_they_held_before_when_many_have_come_and_gone() -> None:
    assert run_soak(60, rounds=3, seed=1) == {}
