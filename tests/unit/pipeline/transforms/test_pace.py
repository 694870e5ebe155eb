"""How fast messages are to go out again."""

import pytest

from maxq.errors import ConfigError
from maxq.pipeline.transforms.pace import Pace


@pytest.mark.parametrize("pace", [{"rate": 1, "speed": 1}, {"rate": 0}, {"speed": -1}])
def test_a_pace_that_means_nothing_is_refused(pace: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        Pace(**pace)


def test_tasks_share_a_rate() -> None:
    assert Pace(rate=1).sink_options(4) == {"rowsPerSecond": "0.25"}
    assert Pace(speed=2).sink_options(4) == {}
