"""The short form of soak_groups."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.soak.soak_groups import GROUPS, Group, soak


@pytest.mark.parametrize("make", GROUPS)
async def test_a_broker_holds_what_it_held_before_when_others_of_its_group_have_come_and_gone(
    tmp_path: Path, make: Callable[[Path], Group]
) -> None:
    await soak(make, tmp_path, rounds=1, warm_up=1)
