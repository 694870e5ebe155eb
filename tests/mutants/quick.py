"""What pytest does without while mutants run: a test that fails has done its work.

Hypothesis draws the same examples each time and does not look for the smallest one that fails; the garbage collector
leaves alone what was there before the test.
"""

import gc

from hypothesis import Phase, settings

settings.register_profile(
    "mutants", settings(), phases=[Phase.explicit, Phase.generate], derandomize=True, database=None, deadline=None
)
settings.load_profile("mutants")


def pytest_collection_finish() -> None:
    """Tests are imported: what they hold is looked through no more."""
    gc.freeze()
