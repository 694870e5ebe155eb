"""docs/reference/requests.md and the table of needs say the same."""

from pathlib import Path

from maxq.auth.manual import render
from maxq.auth.needs import NEEDS
from maxq.codes import RequestCode

PAGE = Path(__file__).parents[3] / "docs/reference/requests.md"


def test_the_page_of_requests_is_current() -> None:
    assert PAGE.read_text() == render(), "run: python -m maxq.auth.manual > docs/reference/requests.md"


def test_every_request_with_a_rule_is_on_the_page_with_its_number() -> None:
    page = PAGE.read_text()
    assert [code for code in NEEDS if f"| {int(code)} | `{RequestCode(code).name}` |" not in page] == []
