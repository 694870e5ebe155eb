"""One Spark session for the folder without `processes`, in one process (tests/side_by_side.py), and a server."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import maxq
from maxq.pipeline import register
from maxq.pipeline.session import local_session
from tests.pipeline.spark_cluster import QUICK_START
from tests.watched_processes import file_of_holds, no_process_held_its_loop

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}

__all__ = ["file_of_holds", "no_process_held_its_loop"]


@pytest.fixture(scope="session", autouse=True)
def quick_java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """For every driver and executor that is started here, the tutorial's and the cluster's, too: none lives long."""
    folder = tmp_path_factory.mktemp("spark-conf")
    lines = [f"spark.{process}.defaultJavaOptions {QUICK_START}\n" for process in ("driver", "executor")]
    (folder / "spark-defaults.conf").write_text("".join(lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_CONF_DIR", str(folder))
        yield


@pytest.fixture(scope="session")
def spark(quick_java: None) -> Iterator[SparkSession]:
    """Two cores, the formats registered.

    Each query is interpreted: to make and compile Java for it takes longer than to run it on a few rows. Sessions that
    tests start as processes of their own compile theirs, as a user's does.
    """
    session = local_session("tests", master="local[2]", settings=INTERPRETED)
    register(session)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def standalone() -> Iterator[maxq.Standalone]:
    """A name server and a broker for the tests of one file."""
    with maxq.Standalone() as server:
        yield server
