"""MaxQ's client library passes its own integration tests on Java's servers, except those that restart the server."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from maxq.api import async_admin
from maxq.errors import MaxQError
from tests.interop.conftest import Deployment

ROOT = Path(__file__).parents[3]
TESTS = "tests/integration/client"


async def _is_registered(namesrv: str) -> bool:
    try:
        async with async_admin(namesrv) as admin:
            return "TBW102" in await admin.topics.names()
    except MaxQError:
        return False


def _wait_for_registration(namesrv: str) -> None:
    """A Java broker says that it is up before the name server knows it."""

    async def wait() -> None:
        async with asyncio.timeout(60):
            while not await _is_registered(namesrv):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.1)

    asyncio.run(wait())


@pytest.mark.interop
def test_our_client_passes_its_tests(deployment: Deployment) -> None:
    if deployment.mixture == "ours":
        pytest.skip("they run by themselves in tests/integration")
    _wait_for_registration(deployment.namesrv)
    command = [sys.executable, "-m", "pytest", TESTS, "-q", "-x", "-p", "no:cacheprovider"]
    command += ["--deselect", f"{TESTS}/test_restart.py"]
    ran = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "MAXQ_TEST_NAMESRV": deployment.namesrv}, capture_output=True, text=True,
        timeout=240, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-6000:]
