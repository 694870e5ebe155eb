"""One Spark session for the folder without `processes`, in one process (tests/side_by_side.py), and a server."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import maxq
from maxq.pipeline import register
from maxq.pipeline.session import local_session
from tests.pipeline.spark_cluster import INTERPRETED, QUICK_START
from tests.watched_processes import file_of_holds, no_process_held_its_loop

#: Of the young generation; the heap is 1 GiB and more.
FEW_COLLECTIONS = "-Xmn128m"

__all__ = ["file_of_holds", "no_process_held_its_loop"]


@pytest.fixture(scope="session", autouse=True)
def quick_java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """For every driver and executor that is started here, the tutorial's and the cluster's, too: none lives long."""
    folder = tmp_path_factory.mktemp("spark-conf")
    options = {"driver": f"{QUICK_START} {FEW_COLLECTIONS}", "executor": QUICK_START}
    lines = [f"spark.{process}.defaultJavaOptions {java}\n" for process, java in options.items()]
    (folder / "spark-defaults.conf").write_text("".join(lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_CONF_DIR", str(folder))
        yield


@pytest.fixture(scope="session")
def spark(quick_java: None) -> Iterator[SparkSession]:
    """Two cores, the formats registered.

    Its queries are interpreted. Those of most sessions that tests start as processes of their own are compiled, as a
    user's are.
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
