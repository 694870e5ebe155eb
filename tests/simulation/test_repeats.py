"""A seed tells one story, whatever ran before it in the process and whatever the process is."""

import os
import subprocess
import sys

import pytest

from tests.short_form import times
from tests.simulation.campaign import KINDS
from tests.simulation.repeats import STEPS, digest

JOBS = [f"{kind}-3" for kind in list(KINDS)[: times(len(KINDS))]]


@pytest.mark.usefixtures("quiet")
def test_a_story_is_the_same_in_another_order_and_in_another_process() -> None:
    command = [sys.executable, "-m", "tests.simulation.repeats", "--steps", str(times(STEPS)), *reversed(JOBS)]
    environment = {**os.environ, "PYTHONHASHSEED": "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as other:
        first = {job: digest(job, times(STEPS)) for job in JOBS}
        assert other.stdout is not None
        elsewhere = dict(line.split() for line in other.stdout)
    assert other.returncode == 0
    assert elsewhere == first
