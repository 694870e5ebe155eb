"""Links of the pages lead to files of the repository, and to headings that these have."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = subprocess.run(
    ["git", "ls-files", "*.md", ":!changes", ":!tests"], cwd=ROOT, capture_output=True, text=True, check=False
).stdout.split()
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def anchors(page: Path) -> list[str]:
    """The names of a page's headings in their order, as Markdown's readers make them."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", title.replace("`", "").lower()).replace(" ", "-") for title in titles]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    source = ROOT / page
    for link in _LINK.findall(_CODE.sub("", source.read_text())):
        address, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", address):
            continue
        target = source if not address else (source.parent / address)
        assert target.exists(), f"{page}: {link}"
        if page.startswith("docs/") and target.suffix == ".md":
            assert target.resolve().is_relative_to(ROOT / "docs"), f"{page}: {link} is not on the site"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{page}: {link}"


def test_there_are_pages() -> None:
    assert {"README.md", "CONTRIBUTING.md", "SUPPORT.md", "docs/howto/python-client.md"} <= set(PAGES)
