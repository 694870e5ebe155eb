"""A seed tells one story, whatever ran before it in the process and whatever the process is."""

import os
import subprocess
import sys

import pytest

from tests.simulation.campaign import KINDS
from tests.simulation.repeats import digest

JOBS = [f"{kind}-3" for kind in KINDS]


@pytest.mark.usefixtures("quiet")
def test_every_kind_is_the_same_in_another_order_and_in_another_process() -> None:
    command = [sys.executable, "-m", "tests.simulation.repeats", *reversed(JOBS)]
    environment = {**os.environ, "PYTHONHASHSEED": "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as other:
        first = {job: digest(job) for job in JOBS}
        assert other.stdout is not None
        elsewhere = dict(line.split() for line in other.stdout)
    assert other.returncode == 0
    assert elsewhere == first
