"""What `--help` shows: commands and options in groups, and examples that can be typed."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from maxq.cli.admin import ENTRIES
from maxq.cli.app import COMMANDS, group, run
from maxq.cli.examples import examples_of


def _below(words: tuple[str, ...], command: Any) -> Iterator[tuple[str, ...]]:
    yield words
    for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
        yield from _below((*words, name), command.get_command(None, name))


PATHS = list(_below(("maxq",), group))


def page(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert run([*words, "--help"]) == 0
    return capsys.readouterr().out


def sections(text: str) -> dict[str, list[str]]:
    """Heading → first words of the lines below it."""
    found = re.findall(r"^(\w[^\n]*):\n((?:  .*\n?)+)", text, re.MULTILINE)
    return {title: re.findall(r"^  (\S+)", lines, re.MULTILINE) for title, lines in found}


def test_commands_stand_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    found = sections(page(capsys=capsys))
    assert list(found) == ["Options", "Servers", "Messages", "Administration", "Stores", "Spark", "Shell", "Examples"]
    assert found["Servers"] == ["standalone", "namesrv", "broker", "proxy", "dledger"]
    listed = [name for title in list(found)[1:-1] for name in found[title]]
    assert listed == list(COMMANDS)


def test_mqadmins_commands_stand_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    found = sections(page("admin", capsys=capsys))
    assert {"Topics", "Offsets", "Messages", "Name servers", "Users and policies"} <= set(found)
    assert found["Offsets"] == ["resetOffsetByTime", "skipAccumulatedMessage", "cloneGroupOffset"]
    assert {name for names in found.values() for name in names} >= set(ENTRIES)


@pytest.mark.parametrize(
    ("words", "groups"),
    [
        (["admin", "topicStatus"], ["Options", "Connection", "Output", "Examples"]),
        (["produce"], ["Arguments", "Options", "Connection", "Output", "Examples"]),
        (["pipeline", "trace"], ["Options", "Connection", "Output", "Spark", "Examples"]),
        (["store", "check"], ["Arguments", "Options", "Output", "Examples"]),
        (["shell"], ["Options", "Connection", "Examples"]),
    ],
)
def test_options_stand_in_groups(words: list[str], groups: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    found = sections(page(*words, capsys=capsys))
    assert list(found) == groups
    if "Connection" in found:
        shown = re.findall(r"--[\w-]+", page(*words, capsys=capsys).partition("Connection:")[2])
        assert set(shown) >= {"--namesrvAddr", "--context", "--access-key", "--secret-key", "--tls"}


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_a_page_ends_with_examples_that_can_be_typed(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir("/")
    text = page(*path[1:], capsys=capsys)
    assert max(map(len, text.splitlines())) <= 80
    shown = text.partition("\nExamples:\n")[2]
    assert shown and "--install-completion" not in text
    lines = [line.strip() for line in shown.replace("\\\n", "").splitlines()]
    commands = [words for line in lines for words in _commands(line)]
    assert any(_is_of(words, path) for words in commands), "one of them shows this command"
    for words in commands:
        _parse(words)


def _commands(line: str) -> Iterator[list[str]]:
    """The words of each command of ours in a line for a shell."""
    line = line.removeprefix("source <(").removesuffix(")") if line.startswith("source ") else line
    for part in re.split(r" \| | > ", line):
        words = shlex.split(part)
        if words[:1] == ["maxq"]:
            yield words[1:]


def _is_of(words: list[str], path: tuple[str, ...]) -> bool:
    rest = iter(words)
    return all(word in rest for word in path[1:])  # in this order; `dledger` has options in between


def _parse(words: list[str]) -> None:
    """Parse a command line as `run` would, with every callback, and do nothing."""
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    command: Any = group
    context: Any = None
    name = "maxq"
    while True:
        try:
            context = command.make_context(name, list(words), parent=context)
        except typer.Exit as ended:  # --help
            assert ended.exit_code == 0
            return
        if not hasattr(command, "list_commands"):
            return
        words = [*context._protected_args, *context.args]
        if not words:
            assert command.invoke_without_command, f"{name} needs a command"
            return
        name, command, words = command.resolve_command(context, words)


def test_there_are_no_examples_of_other_things() -> None:
    assert examples_of("maxq nothing") == examples_of("maxq admin nothing") == ()
