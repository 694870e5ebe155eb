"""MaxQ's client library passes its own integration tests on Java's servers, except those that restart the server."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop.conftest import MIXTURES, Deployment

ROOT = Path(__file__).parents[3]
TESTS = "tests/integration/client"
SECONDS = 900  # a quarter of it where a dozen processes wait for two processors


@pytest.mark.interop
@pytest.mark.parametrize("deployment", [mixture for mixture in MIXTURES if mixture != "ours"], indirect=True)
def test_our_client_passes_its_tests(deployment: Deployment) -> None:
    """On our own servers they run by themselves, in tests/integration."""
    command = [sys.executable, "-m", "pytest", TESTS, "-q", "-x", "-p", "no:cacheprovider"]
    command += ["--deselect", f"{TESTS}/test_restart.py"]
    ran = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "MAXQ_TEST_NAMESRV": deployment.namesrv}, capture_output=True, text=True,
        timeout=SECONDS, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-6000:]
