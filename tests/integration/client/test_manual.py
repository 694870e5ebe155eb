"""The examples of the pages on the Python client, Arrow and trace, and of the tutorials, do what they say."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"
CLIENT = DOCS / "howto/python-client.md"
ARROW = DOCS / "howto/arrow.md"
TRACE = DOCS / "howto/trace.md"


def examples(page: Path) -> list[tuple[str, str]]:
    """Section → its first example."""
    return re.findall(r"^## ([^\n]+)\n.*?```python\n(.*?)```", page.read_text(), re.DOTALL | re.MULTILINE)


EXAMPLES = examples(CLIENT)
ALL = EXAMPLES + examples(ARROW) + examples(TRACE)
#: Section → the packages of which its example needs one.
NEEDED = {
    "Values as bodies": ("msgspec", "pydantic"),
    "pyarrow": ("pyarrow",),
    "pandas": ("pandas",),
    "Polars": ("polars",),
    "DuckDB": ("duckdb",),
}


def test_every_section_has_an_example() -> None:
    assert [title for title, _ in EXAMPLES] == [
        "Send",
        "Send in a transaction",
        "Values as bodies",
        "Errors, and when to try again",
        "Consume",
        "Receive and acknowledge",
        "Read at will",
        "Start again",
        "Ask",
        "In an event loop",
        "Hooks",
    ]


def test_tables_are_shown_with_every_library_that_is_promised() -> None:
    assert [title for title, _ in examples(ARROW)] == ["pyarrow", "pandas", "Polars", "DuckDB"]


@pytest.mark.parametrize(("title", "code"), ALL, ids=[title for title, _ in ALL])
def test_examples_run(title: str, code: str, namesrv: str, capsys: pytest.CaptureFixture[str]) -> None:
    needed = NEEDED.get(title)
    if needed and not any(map(find_spec, needed)):
        pytest.skip(f"not installed: {' or '.join(needed)} (pip install {needed[0]})")
    assert "127.0.0.1:9876" in code
    exec(compile(code.replace("127.0.0.1:9876", namesrv), title, "exec"), {})


@pytest.mark.parametrize("name", ["transactions.md", "asyncio-consumer.md"])
def test_a_tutorial_prints_what_it_shows(name: str, namesrv: str, capsys: pytest.CaptureFixture[str]) -> None:
    page = (DOCS / "tutorials" / name).read_text()
    found = re.search(r"```python\n(.*?)```\n\nIt prints[^\n]*:\n\n((?: {4}[^\n]*\n)+)", page, re.DOTALL)
    assert found is not None
    exec(compile(found[1].replace("127.0.0.1:9876", namesrv), name, "exec"), {})
    assert capsys.readouterr().out.split() == found[2].split()
