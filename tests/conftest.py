"""Who runs what when several processes share the tests (pytest-xdist), and what Python's cycle collector looks at."""

import gc
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

SPARK_FOLDER = "tests/pipeline/"
_WITHOUT_SESSION = "tests/pipeline/processes/"


def _shares_session(nodeid: str) -> bool:
    return nodeid.startswith(SPARK_FOLDER) and not nodeid.startswith(_WITHOUT_SESSION)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests that share a Spark session, which one process runs, first: the files of all others fill the rest of
    the time, small ones last."""
    items.sort(key=lambda item: not _shares_session(item.nodeid))


class OneSparkScheduling(LoadFileScheduling):
    """A file is one process's, and so are all tests that share a Spark session, which costs 10 s of CPU and 1 GiB."""

    def _split_scope(self, nodeid: str) -> str:
        return SPARK_FOLDER if _shares_session(nodeid) else super()._split_scope(nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """Of --dist loadfile."""
    return OneSparkScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


#: Objects that come before garbage is looked for (Python's own number is 700), and rounds before a larger one.
_COLLECT_AT = (5_000, 10, 10)


def _set_heap_aside() -> None:
    """Let the collector look no more at what is there: a hundred thousand imported functions and collected tests, over
    which it would spend a tenth of the processor time of all tests."""
    gc.collect()
    gc.freeze()


def pytest_collection_finish() -> None:
    """Set aside what was imported and collected."""
    gc.set_threshold(*_COLLECT_AT)
    _set_heap_aside()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Set aside, at the end of a file, what its tests left; some of them make the collector look at all again."""
    if nextitem is None or nextitem.path != item.path:
        _set_heap_aside()
