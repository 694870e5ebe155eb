"""The notes of a release: what CHANGELOG.md says of the version, or what it will say, made of the files in changes/.

python -m wheels.notes > dist/release-notes.md
"""

import re
import subprocess
import sys
from pathlib import Path

from maxq import __version__

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Print the notes of the version of the package."""
    print(of_version((ROOT / "CHANGELOG.md").read_text(), __version__) or draft(__version__))


def of_version(changelog: str, version: str) -> str | None:
    """The section of a version, without its heading; None if there is none."""
    found = re.search(rf"^## {re.escape(version)}(?: [^\n]*)?\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    return found and found[1].strip()


def draft(version: str) -> str:
    """What `make changelog` would put into CHANGELOG.md."""
    command = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", version]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return of_version(done.stdout, version) or ""


if __name__ == "__main__":
    main()
