"""One Spark session for the whole folder (tests/conftest.py gives the folder to one process), and a server."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import maxq
from maxq.pipeline import register
from maxq.pipeline.session import local_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two cores, the formats registered."""
    session = local_session("tests", master="local[2]", java_options="-XX:TieredStopAtLevel=1")
    register(session)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def standalone() -> Iterator[maxq.Standalone]:
    """A name server and a broker for the tests of one file."""
    with maxq.Standalone() as server:
        yield server
