"""Sources that are written by a program, in the form in which `make fmt` would leave them."""

import subprocess
from pathlib import Path

from ruff import find_ruff_bin


def ruff_formatted(text: str, path: Path) -> str:
    """Return `text` with its imports sorted, formatted as the file at `path`.

    Raises:
        AssertionError: it is no Python.
    """
    # Its own program: `python -m ruff` starts a Python first, four times the processor time.
    for command in (["check", "--select", "I", "--fix-only", "-q"], ["format", "-q"]):
        ruff = [find_ruff_bin(), *command, "--stdin-filename", str(path), "-"]
        run = subprocess.run(ruff, input=text, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stdout + run.stderr + text
        text = run.stdout
    return text
