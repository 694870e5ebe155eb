"""The check of the pages' style finds what it is for, where it is, and leaves code alone."""

import pytest

from tests.prose import findings, pages


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("One.\n\nA reader shall wait.", 3, "shall"),
        ("It waits for the the answer.", 1, "twice"),
        ("Faster than the original.", 1, "Java RocketMQ"),
        ("A queue is kept\nfor ever.", 2, "archaic"),
        ("It stops. Who reads it knows.", 1, "name them"),
    ],
)
def test_a_word_is_found_on_its_line(text: str, line: int, word: str) -> None:
    ((found, remark),) = findings(text)
    assert found == line and word in remark


@pytest.mark.parametrize(
    "text",
    [
        "Call `shall()` first.",
        "    shall the the original",
        "```python\nshall = ours\n```",
        "See [the page](ours/shall.md).",
        "| 0 | 0 | 0 |",
    ],
)
def test_code_addresses_and_numbers_are_left_alone(text: str) -> None:
    assert [*findings(text)] == []


def test_pages_that_people_read_are_looked_at_and_chinese_ones_are_not() -> None:
    found = pages()
    assert {"README.md", "CONTRIBUTING.md", "docs/reference/settings.md", "examples/go/README.md"} <= set(found)
    assert not [page for page in found if page.startswith("docs/zh/") or page == "README.zh.md"]
