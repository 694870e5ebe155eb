"""The Chinese pages of the manual say what the English ones of the same name say: each has the same headings, lists and
tables in the same order, the same code but for its comments, the same words in code and the same links."""

import re
from pathlib import Path

import pytest

from tests.unit.repository.test_links import anchors

DOCS = Path(__file__).parents[3] / "docs"
CHINESE = DOCS / "zh"
PAGES = sorted(str(page.relative_to(CHINESE)) for page in CHINESE.rglob("*.md") if page != CHINESE / "README.md")
_COMMENT = re.compile(r"(?:^|\s{2,})# .*$")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def _outline(text: str) -> list[str]:
    """What each line is; lines of code themselves, without comments. A paragraph or an item is one, however long."""
    kinds: list[str] = []
    fenced = False
    code = " " * 4  # that begins a line of code; deeper below an item
    for line in text.splitlines():
        if line and not line.startswith(" "):
            code = " " * (8 if re.match(r"\* |\d+\. ", line) else 4)
        fenced ^= line.startswith("```")
        if fenced or line.startswith((code, "```")):
            kinds.append(_COMMENT.sub("", line))
        elif line.startswith("#"):
            kinds.append(line.split()[0])
        elif line.startswith("|"):
            kinds.append(f"row of {line.count('|')}")
        elif item := re.match(r"\* |\d+\. ", line):
            kinds.append(item[0])
        elif not line:
            kinds.append("")
        elif not kinds or kinds[-1] == "":
            kinds.append("text")
    return kinds


def _code_words(page: Path) -> list[str]:
    prose = "".join(line for line in _FENCED.sub("", page.read_text()).splitlines(True) if not line.startswith("    "))
    return sorted(set(re.findall(r"`([^`\n]+)`", prose)))


def _links(page: Path) -> list[tuple[str, int | str]]:
    """Where the links lead: an English page's path, and which of its headings."""
    found: list[tuple[str, int | str]] = []
    for link in _LINK.findall(_FENCED.sub("", page.read_text())):
        address, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", address):
            found.append((address, anchor))
            continue
        target = (page.parent / address).resolve() if address else page
        name = str(target.relative_to(DOCS.parent)).replace("docs/zh/", "docs/")
        found.append((name, anchors(target).index(anchor) if anchor else ""))
    return sorted(found, key=str)


def test_there_are_chinese_pages() -> None:
    assert {"howto/install.md", "howto/migrate-from-java.md"} <= set(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_the_outline_and_the_code_of_the_english_one(page: str) -> None:
    assert _outline((CHINESE / page).read_text()) == _outline((DOCS / page).read_text())


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_the_same_commands_and_settings(page: str) -> None:
    assert _code_words(CHINESE / page) == _code_words(DOCS / page)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_links_to_the_same_places(page: str) -> None:
    assert _links(CHINESE / page) == _links(DOCS / page)


@pytest.mark.parametrize("page", ["README.md", *PAGES])
def test_a_page_links_to_chinese_pages_where_there_are_any(page: str) -> None:
    source = CHINESE / page
    for link in _LINK.findall(_FENCED.sub("", source.read_text())):
        target = (source.parent / link.partition("#")[0]).resolve()
        if page != "README.md" and target.is_file() and target.is_relative_to(DOCS):
            assert str(target.relative_to(DOCS)) not in PAGES, f"{link}: there is a Chinese page"


def test_the_first_page_leads_to_every_other() -> None:
    assert {link for link in _LINK.findall((CHINESE / "README.md").read_text()) if not link.startswith("..")} == set(
        PAGES
    )
