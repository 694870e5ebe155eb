"""The manual: every page is in the site's menu, pages made from the source are fresh."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from maxq.codes import ResponseCode
from tests.manual_pages.pages import PAGES, response_codes

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
SITE = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]


def _menu(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        for target in entry.values():
            yield from _menu(target) if isinstance(target, list) else (target,)


def test_every_page_is_in_the_menu() -> None:
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert sorted(_menu(SITE["nav"])) == sorted(pages)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_made_from_the_source_are_fresh(page: Path) -> None:
    assert page.read_text() == PAGES[page](), "run: python -m tests.manual_pages"


def test_every_response_code_is_explained() -> None:
    page = response_codes()
    assert [code.name for code in ResponseCode if f"| {int(code)} | `{code.name}` |" not in page] == []
