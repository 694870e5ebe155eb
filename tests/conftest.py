"""Who runs what when several processes share the tests (pytest-xdist)."""

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

pytest_plugins = ["tests.second_try"]

SPARK_FOLDER = "tests/pipeline/"


class OneSparkScheduling(LoadFileScheduling):
    """A file is one process's, and so is the whole folder of Spark tests: a session costs 10 s of CPU and 1 GiB."""

    def _split_scope(self, nodeid: str) -> str:
        return SPARK_FOLDER if nodeid.startswith(SPARK_FOLDER) else super()._split_scope(nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """Of --dist loadfile."""
    return OneSparkScheduling(config, log) if config.getvalue("dist") == "loadfile" else None
