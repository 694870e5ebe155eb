"""What README.md and the pages in docs/ show is what happens: commands, what they print, code, names of options."""

import ast
import asyncio
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from maxq.aio import ConsumeFromWhere, LitePullConsumer
from maxq.api import Message, Producer
from maxq.cli.app import group
from maxq.testing.server_process import StandaloneProcess
from tests.integration.cli.harness import maxq

ROOT = Path(__file__).parents[3]
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
PAGES = [ROOT / "README.md", ROOT / "README.zh.md", *sorted((ROOT / "docs").rglob("*.md"))]
#: The pages whose commands are run one after the other.
TOURS = {
    "README.md": re.findall(r"## Quickstart\n(.*?)\n## ", (ROOT / "README.md").read_text(), re.DOTALL)[0],
    "first-message.md": (ROOT / "docs/tutorials/first-message.md").read_text(),
}
#: Commands of the tour that are not run here: what starts a server or Spark, and what depends on the shell.
_NOT_RUN = ("export ", "maxq standalone", "maxq sql")
_CHANGING = re.compile(r"\b[0-9A-F]{32}\b|[\d:,-]*\d[\d:,.-]*|(?<=  )-(?=\n)")
_COMMAND = re.compile(r"^ {4}(?:\$ )?(?:[^|\n]*\| )?maxq ([^\n]*)$", re.MULTILINE)


def _tour(text: str) -> Iterator[tuple[str, str]]:
    """Each command of the tour and what the page shows behind it."""
    for block in re.findall(r"(?:^ {4}.*\n|^\n(?= {4}[^$ ]))+", text, re.MULTILINE):
        for part in re.split(r"^ {4}\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            yield command, re.sub(r"^ {4}", "", shown, flags=re.MULTILINE).strip("\n")


def _without_numbers(text: str) -> list[str]:
    """Lines in any order: queues and threads take turns as they like."""
    lines = [line.partition("…")[0] for line in text.splitlines()]
    return sorted(re.sub(r"\s+", " ", _CHANGING.sub("#", line + "\n")).strip() for line in lines)


def _run(command: str, namesrv: str, folder: Path) -> str:
    """A command line of the tour: one of ours, with printf, seq or head at its ends."""
    first, *others = (shlex.split(part) for part in command.split(" | "))
    text = ""
    if first[0] == "printf":
        text = first[1].encode().decode("unicode_escape")
        first, *others = others
    elif first[0] == "seq":
        text = "".join(f"{number}\n" for number in range(1, int(first[1]) + 1))
        first, *others = others
    assert first[0] == "maxq", command
    done = maxq(*first[1:], text=text, namesrv=namesrv, cwd=folder)
    assert done.code == 0, done
    printed = done.out + done.err
    assert others in ([], [["head", "-1"]]), command
    return printed.splitlines()[0] if others else printed.strip("\n")


@pytest.mark.parametrize(("page", "count"), [("README.md", 8), ("first-message.md", 10)])
def test_a_tour_of_the_first_steps_is_what_happens(page: str, count: int, tmp_path: Path) -> None:
    steps = list(_tour(TOURS[page]))
    assert len(steps) == count, [command for command, _ in steps]
    with StandaloneProcess(folder=tmp_path / "server") as server:
        (tmp_path / "maxq-store").symlink_to(server.store)
        for command, shown in steps:
            if command.startswith(_NOT_RUN):
                continue
            if command.startswith("maxq store check"):
                server.stop()
            printed = _run(command, server.namesrv_address, tmp_path)
            if "…" in shown:
                assert _without_numbers(printed)[0].startswith(_without_numbers(shown)[0]), command
            else:
                assert _without_numbers(printed) == _without_numbers(shown), command


def test_the_code_of_the_first_page_prints_what_stands_behind_it(capsys: pytest.CaptureFixture[str]) -> None:
    found = re.search(r"```python\n([^`]*)```\n\n((?: {4}.*\n)+)", (ROOT / "README.md").read_text())
    assert found is not None
    exec(compile(found[1], "README.md", "exec"), {})
    assert capsys.readouterr().out.split() == found[2].split()


@pytest.mark.parametrize("page", ["README.md", "README.zh.md"])
def test_the_clients_for_asyncio_and_the_push_consumer_of_the_first_page_work(page: str) -> None:
    code = re.findall(r"```python\n([^`]*)```", (ROOT / page).read_text())[1]
    found: dict[str, Any] = {}
    with StandaloneProcess() as server, Producer("first-page", server.namesrv_address) as producer:
        producer.send(Message("Greetings", b"hello", {"TAGS": "demo"}))
        producer.send(Message("Copies", b"made before it is read"))
        exec(compile(code.replace("127.0.0.1:9876", server.namesrv_address), page, "exec"), found)
        seen: set[bytes] = set()

        async def until_copied() -> None:
            copying = asyncio.create_task(found["copy"](server.namesrv_address))
            reader = LitePullConsumer("copies", server.namesrv_address, consume_from_where=FIRST)
            async with reader:
                await reader.subscribe("Copies")
                async for message in reader:
                    seen.add(message.body)
                    if b"hello" in seen or copying.done():
                        break
            copying.cancel()
            await asyncio.gather(copying, return_exceptions=True)

        asyncio.run(asyncio.wait_for(until_copied(), 60))
        assert b"hello" in seen
        with found["consumer"]:
            producer.send(Message("Greetings", b"again"))


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_the_code_on_every_page_is_python(page: Path) -> None:
    for number, code in enumerate(re.findall(r"```python\n([^`]*)```", page.read_text())):
        compile(code, f"{page.name}, block {number + 1}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def _commands() -> Iterator[Any]:
    for page in PAGES:
        for line in _COMMAND.findall(page.read_text()):
            words = shlex.split(line.replace("…", "x"), comments=True)
            if " is ready" not in line:
                yield pytest.param(words, id=f"{page.name}: {line[:60]}")


@pytest.mark.parametrize("words", [*_commands()])
def test_every_command_on_a_page_exists_and_has_the_options_it_is_shown_with(words: list[str]) -> None:
    for end in ("|", "&", ">"):
        words = words[: words.index(end)] if end in words else words
    command: Any = group
    while hasattr(command, "get_command") and words:
        context = typer.Context(command)
        parsed = command.make_parser(context).parse_args(args=list(words))
        assert not isinstance(parsed, str)
        rest = parsed[1]
        if not rest:
            break
        found = command.get_command(context, rest[0])
        assert found is not None, f"there is no command {rest[0]}"
        command, words = found, rest[1:]
    command.make_parser(typer.Context(command)).parse_args(args=list(words))
