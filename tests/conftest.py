"""The form of a run, short or long, and what Python's cycle collector looks at."""

import gc

import pytest

from tests import short_form

#: Objects that come before garbage is looked for (Python's own number is 700), and rounds before a larger one.
_COLLECT_AT = (5_000, 10, 10)


def _set_heap_aside() -> None:
    """Let the collector look no more at what is there: a hundred thousand imported functions and collected tests, over
    which it would spend a tenth of the processor time of all tests."""
    gc.collect()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    """Choose the form before tests are imported, which ask for it."""
    short_form.choose(config.option.markexpr)


def pytest_collection_finish() -> None:
    """Set aside what was imported and collected."""
    gc.set_threshold(*_COLLECT_AT)
    _set_heap_aside()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Set aside, at the end of a file, what its tests left; some of them make the collector look at all again."""
    if nextitem is None or nextitem.path != item.path:
        _set_heap_aside()
