"""The examples of docs/client.md do what they say."""

import re
from pathlib import Path

import pytest

MANUAL = Path(__file__).parents[3] / "docs" / "client.md"
EXAMPLES = re.findall(r"^## ([^\n]+)\n.*?```python\n(.*?)```", MANUAL.read_text(), re.DOTALL | re.MULTILINE)


def test_every_section_has_an_example() -> None:
    assert [title for title, _ in EXAMPLES] == [
        "Send",
        "Send in a transaction",
        "Errors, and when to try again",
        "Consume",
        "Receive and acknowledge",
        "Read at will",
        "What each client promises",
        "Ask",
        "In an event loop",
        "Hooks, threads, flow control",
    ]


@pytest.mark.parametrize(("title", "code"), EXAMPLES, ids=[title for title, _ in EXAMPLES])
def test_examples_run(title: str, code: str, namesrv: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "127.0.0.1:9876" in code
    exec(compile(code.replace("127.0.0.1:9876", namesrv), f"{MANUAL.name}: {title}", "exec"), {})
