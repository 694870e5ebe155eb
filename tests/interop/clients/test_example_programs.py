"""The Java and the Go program in examples/ do what their pages show, with the commands that stand there.

They are copied before they are built, so nothing is left in the tree.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from maxq.testing.server_process import StandaloneProcess

EXAMPLES = Path(__file__).parents[3] / "examples"
#: Language → the programs that it needs.
NEEDS = {"java": ("java", "mvn"), "go": ("go",)}
#: Fetches the client, so that a machine without a network is told from a program that does not work.
FETCH = {"java": "mvn -q -B dependency:resolve", "go": "go mod download"}
SECONDS = 300  # for each command, downloads included

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def server() -> Iterator[StandaloneProcess]:
    with StandaloneProcess() as running:
        yield running


def _blocks(page: str) -> list[list[str]]:
    """The indented blocks of a page, each as its lines."""
    found = re.findall(r"(?:^ {4}.*\n)+", page, re.MULTILINE)
    return [[line[4:] for line in block.splitlines()] for block in found]


@pytest.mark.parametrize("language", NEEDS)
def test_a_program_prints_what_its_page_shows(language: str, server: StandaloneProcess, tmp_path: Path) -> None:
    for program in NEEDS[language]:
        if not shutil.which(program):
            pytest.skip(f"interop: no {program} on PATH")
    folder = tmp_path / language
    shutil.copytree(EXAMPLES / language, folder, ignore=shutil.ignore_patterns("target"))
    start, commands, shown = _blocks((folder / "README.md").read_text())
    assert start == ["maxq standalone"]
    environment = dict(
        os.environ,
        NAMESRV_ADDR=server.namesrv_address,
        JAVA_TOOL_OPTIONS=f"-Drocketmq.client.logRoot={tmp_path}/logs",
    )

    def run(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS
        )

    fetched = run(FETCH[language])
    if fetched.returncode:
        pytest.skip(f"interop: {FETCH[language]} failed, is there a network?\n{fetched.stdout}{fetched.stderr}"[:2000])
    for command in commands:
        done = run(command)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    assert done.stdout.splitlines() == shown
