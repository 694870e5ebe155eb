"""Files of changes/ are what towncrier makes release notes of: `issue.subject.kind.md`, with text and no headings."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
FILES = sorted(path for path in (ROOT / "changes").iterdir() if path.suffix != ".jinja")
KINDS = [
    kind["directory"] for kind in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]["type"]
]


def test_names_say_what_kind_of_change_it_is() -> None:
    right = re.compile(rf"(\d+|\+)\.[a-z0-9-]+\.({'|'.join(KINDS)})\.md")
    wrong = [path.name for path in FILES if not right.fullmatch(path.name)]
    assert wrong == [], f"name them NUMBER.SUBJECT.KIND.md, and KIND is one of {', '.join(KINDS)}"


def test_each_has_text_that_stands_below_a_heading_of_the_notes() -> None:
    for path in FILES:
        text = path.read_text()
        assert text.strip(), path.name
        assert not re.search("^#", text, re.MULTILINE), f"{path.name} has headings of its own"
