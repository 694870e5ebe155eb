"""One standalone server for all command line tests of a worker."""

from collections.abc import Iterator

import pytest

from maxq.testing.server_process import StandaloneProcess


@pytest.fixture(scope="session")
def server() -> Iterator[StandaloneProcess]:
    """`maxq standalone` on free ports and a temporary store; it must end cleanly."""
    running = StandaloneProcess(settings={"maxHashSlotNum": "1000", "maxIndexNum": "4000"})
    with running:
        yield running
        assert running.stop() == 0, running.log.read_text()


@pytest.fixture(scope="session")
def namesrv(server: StandaloneProcess) -> str:
    return server.namesrv_address
