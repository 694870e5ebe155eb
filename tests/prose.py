"""How the pages read: proselint, and words that this project writes otherwise, over every page that people read.

    python -m tests.prose [PAGE …]        # prints page:line, what it is, and what to write

Code, addresses of links and tags are left out. Pages, checks and words are in pyproject.toml, `[tool.prose]`. Texts of
help and settings are on the generated pages, docs/reference/command-line.md, admin-commands.md and settings.md.
"""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from proselint.checks import __register__
from proselint.registry import CheckRegistry
from proselint.tools import LintFile

ROOT: Final = Path(__file__).parents[1]
SETTINGS: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["prose"]
WORDS: Final = {re.compile(word, re.MULTILINE): remedy for word, remedy in SETTINGS["words"].items()}
_CODE: Final = re.compile(r"^```.*?^```|^ {4}.*?$|`[^`\n]*`|\]\([^)\s]*\)|<[^>\n]+>", re.DOTALL | re.MULTILINE)

CheckRegistry().register_many(__register__)


def pages() -> list[str]:
    """The pages that are read, as paths below the repository."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *SETTINGS["pages"]]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [page for page in found.stdout.split() if (ROOT / page).is_file()]


def prose(text: str) -> str:
    """The text with a letter's sign for each piece of code, so that lines and sentences stay what they are."""
    return _CODE.sub(lambda code: re.sub(r"[^\n]", "_", code[0]), text)


def findings(text: str) -> Iterator[tuple[int, str]]:
    """What is found in a page, as line and remark."""
    read = prose(text)
    for number, line in enumerate(read.splitlines(), 1):
        for word, remedy in WORDS.items():
            for found in word.finditer(line):
                yield number, f"{found[0].strip()!r}: {remedy}"
    for result in LintFile("page", read).lint({"max_errors": 1000, "checks": SETTINGS["checks"]}):
        yield result.pos[0], f"{result.check_result.message} ({result.check_result.check_path})"


def main() -> int:
    """Print what is found; returns 1 if there is anything."""
    found = [
        f"{page}:{line}: {remark}"
        for page in sys.argv[1:] or pages()
        for line, remark in sorted(findings((ROOT / page).read_text()))
    ]
    print(*found, sep="\n", end="\n" if found else "")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
