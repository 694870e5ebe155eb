"""What these tests have in common."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from tests.unit.broker.pop.pop_parts import PopParts


@pytest.fixture
def make_parts(tmp_path: Path) -> Callable[..., PopParts]:
    """Make the parts of one broker, with these settings, in a folder of its own."""
    numbers = count()
    return lambda **settings: PopParts(tmp_path / str(next(numbers)), **settings)


@pytest.fixture
def parts(make_parts: Callable[..., PopParts]) -> PopParts:
    """A broker with a topic T of one queue, and a group."""
    made = make_parts()
    made.create()
    return made
