"""The manual's site in a real browser: nothing is cut or missing, on a wide and a narrow window, light and dark."""

import re

import pytest

from tests.integration.site import browser

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site() -> None:
    if browser.program() is None:
        pytest.skip(f"no browser: none of {', '.join(browser.PROGRAMS)} on PATH")
    if not browser.pages():
        pytest.skip("no site: `make docs` builds it")


@pytest.mark.parametrize("look", browser.LOOKS)
def test_nothing_is_cut_or_missing(look: str, site: None) -> None:
    assert browser.faults(look) == []


def test_pages_name_their_language() -> None:
    if not browser.pages():
        pytest.skip("no site: `make docs` builds it")
    named = {}
    for page in browser.pages():
        found = re.search(r"<html [^>]*lang=\"?([\w-]+)", (browser.SITE / page.lstrip("/") / "index.html").read_text())
        named[page] = found and found[1]
    assert named == {page: "zh" if page.startswith("/zh/") else "en" for page in named}
