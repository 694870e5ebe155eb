"""One standalone server for the tests of this folder; each test has topics and groups of its own.

MAXQ_TEST_NAMESRV=host:port runs the tests against other servers (a Java broker, for example), those that restart a
broker excepted.
"""

import os
from collections.abc import Callable, Iterator

import pytest

from maxq.standalone import Standalone


@pytest.fixture(scope="package")
def namesrv() -> Iterator[str]:
    """Address of a name server with one broker."""
    other = os.environ.get("MAXQ_TEST_NAMESRV")
    if other:
        yield other
        return
    with Standalone() as server:
        yield server.namesrv_address


@pytest.fixture
def name(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """`name("T")` is a topic or group name that no other test uses."""
    test = "".join(c if c.isalnum() else "_" for c in request.node.name)[:60]

    def make(prefix: str) -> str:
        return f"{prefix}_{test}_{os.getpid()}"

    return make
