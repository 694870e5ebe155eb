"""Who runs what when several processes share the tests (pytest-xdist)."""

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

SPARK_FOLDER = "tests/pipeline/"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark's, which one process runs, first: the files of all others fill the rest of the time, small ones last."""
    items.sort(key=lambda item: not item.nodeid.startswith(SPARK_FOLDER))


class OneSparkScheduling(LoadFileScheduling):
    """A file is one process's, and so is the whole folder of Spark tests: a session costs 10 s of CPU and 1 GiB."""

    def _split_scope(self, nodeid: str) -> str:
        return SPARK_FOLDER if nodeid.startswith(SPARK_FOLDER) else super()._split_scope(nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """Of --dist loadfile."""
    return OneSparkScheduling(config, log) if config.getvalue("dist") == "loadfile" else None
