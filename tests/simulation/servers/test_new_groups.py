"""Stories of groups that begin where their queues end, while messages flow and members come and go."""

import pytest

from tests.short_form import long_form
from tests.simulation.servers.new_group_story import NewGroupStory

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.mark.parametrize("seed", [113, *long_form([0, 1, 2])])
def test_what_comes_after_a_group_has_begun_is_done(seed: int) -> None:
    story = NewGroupStory(seed)
    story.run()
    assert len(story.acknowledged) > 10, "it began late"
