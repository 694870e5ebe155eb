"""Completion of command lines, and the shell."""

import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from maxq.cli.admin import ENTRIES
from maxq.cli.app import COMMANDS
from maxq.cli.commands.shell import _run, expanded, words_after
from maxq.cli.terminal import completion
from maxq.cli.terminal.completion import suggestions


def words(before: str, incomplete: str) -> list[str]:
    return [found.word for found in suggestions(before.split(), incomplete)]


def test_commands_are_suggested_on_every_level() -> None:
    assert words("", "") == list(COMMANDS)
    assert words("", "st") == ["standalone", "store"]
    assert words("admin", "topic") == ["topicList", "topicRoute", "topicStatus", "topicClusterList"]
    assert set(words("admin", "")) == set(ENTRIES)
    assert "redrive" in words("dlq", "")
    assert words("nonsense", "") == []


def test_options_are_suggested_until_they_are_given() -> None:
    assert {"-t", "-c", "-n"} <= set(words("admin topicStatus", "-"))
    assert "-t" not in words("admin topicStatus -t T", "-") and "-c" in words("admin topicStatus -t T", "-")
    assert words("admin deleteTopic", "--y") == ["--yes"]


def test_values_come_from_the_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, Mapping[str, str]]] = []

    def known(kind: str, options: Mapping[str, str]) -> list[str]:
        asked.append((kind, options))
        return ["Orders", "Other"]

    monkeypatch.setattr(completion, "_known", known)
    assert words("admin topicStatus -n ns:1 -t", "Or") == ["Orders"]
    assert words("admin consumerProgress -g", "x") == []
    assert words("admin clusterRT -a", "") == []  # a number
    assert words("admin topicStatus --context prod --tls off -t", "Or") == ["Orders"]
    assert asked == [("topics", {"namesrv": "ns:1"}), ("groups", {}), ("topics", {"context": "prod", "tls": "off"})]


def test_what_stands_behind_a_command_without_an_option_is_suggested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "_known", lambda kind, options: [f"{kind}-{options['namesrv']}"])
    assert words("consume -n ns:1 --group g", "") == ["topics-ns:1"]
    assert words("admin why-slow -n ns:1", "") == ["brokers-ns:1"]
    assert "--from" in words("consume T", "--") and words("consume T", "t") == []  # there is one topic
    assert words("store check", "") == []  # a path: the shell's own completion
    assert words("store check", "-") != []


def test_no_name_server_is_no_suggestion() -> None:
    assert words("admin topicStatus -n 127.0.0.1:1 -t", "") == []


def test_bash_completes_with_the_script() -> None:
    script = completion.BASH.replace("$(maxq ", f"$({sys.executable} -m maxq ")
    line = 'COMP_WORDS=(maxq admin deleteT); COMP_CWORD=2; _maxq; echo "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", f"{script}\n{line}"], capture_output=True, text=True)
    assert done.stdout.strip() == "deleteTopic", done.stderr


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh")
def test_zsh_takes_the_script() -> None:
    done = subprocess.run(["zsh", "-n", "-c", completion.ZSH], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_zsh_gets_words_with_what_they_are_for() -> None:
    command = [sys.executable, "-m", "maxq", "completion", "--complete", "zsh", "--", "admin", "topicL"]
    assert subprocess.run(command, capture_output=True, text=True).stdout == "topicList:All topics.\n"


def test_fish_gets_words_with_what_they_are_for() -> None:
    command = [sys.executable, "-m", "maxq", "completion", "--complete", "fish", "--", "admin", "topicL"]
    assert subprocess.run(command, capture_output=True, text=True).stdout == "topicList\tAll topics.\n"


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish")
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("maxq admin deleteT", ["deleteTopic\tDelete a topic from brokers and name servers."]),
        ("maxq store ch", ["check\tCompare log, queues, index, checkpoint and settings files."]),
        ("maxq store check some", ["some_folder/", "some_file"]),
        ("maxq admin topicList | maxq ta", ["tail\tPrint what arrives in a topic from now on."]),
        ("maxq ", [f"{name}\t{entry.summary}" for name, entry in COMMANDS.items()]),
    ],
)
def test_fish_completes_with_the_script(line: str, found: list[str], tmp_path: Path) -> None:
    (tmp_path / "some_folder").mkdir()
    (tmp_path / "some_file").touch()
    script = completion.FISH.replace("(maxq ", f"({sys.executable} -m maxq ")
    environment = dict(os.environ, HOME=str(tmp_path), PYTHONPATH=os.pathsep.join(sys.path))
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"{script}\ncomplete --do-complete {line!r}"],
        capture_output=True, text=True, cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert sorted(done.stdout.splitlines()) == sorted(found), done.stderr


def test_mqadmins_commands_need_no_admin_in_the_shell() -> None:
    assert expanded(["topicList", "-c"]) == ["admin", "topicList", "-c"]
    assert expanded(["dlq", "list"]) == ["dlq", "list"]
    assert words_after("", "topicL") == ["topicList"]
    assert words_after("deleteTopic ", "--y") == ["--yes"]
    assert words_after("'unfinished ", "") == []


def test_help_in_the_shell_says_how_mqadmins_commands_are_found_and_how_it_ends(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _run(["help"]) == 0
    shown = capsys.readouterr().out
    assert "standalone" in shown and "`help admin` lists them" in shown and "`exit` or Ctrl-D ends" in shown


def test_a_script_runs_to_its_end_and_ends_with_1_if_a_line_failed() -> None:
    command = [sys.executable, "-m", "maxq", "shell", "-n", "127.0.0.1:1"]
    lines = "topicList  # nobody is there\n\nhelp topicRoute\n'unfinished\nexit\nhelp\n"
    done = subprocess.run(command, input=lines, capture_output=True, text=True)
    assert done.returncode == 1
    assert "connect to <127.0.0.1:1> failed" in done.stderr and "No closing quotation" in done.stderr
    assert "Usage: maxq admin topicRoute" in done.stdout and "standalone" not in done.stdout


def test_lines_at_a_terminal_are_remembered(tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    environment = dict(os.environ, HOME=str(tmp_path), TERM="dumb")
    command = [sys.executable, "-m", "maxq", "shell"]
    process = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=environment)
    os.close(follower)
    os.write(leader, b"help topicRoute\nexit\n")
    shown = b""
    try:
        while chunk := os.read(leader, 4096):
            shown += chunk
    except OSError:  # the other end is closed
        pass
    assert process.wait() == 0
    os.close(leader)
    assert b"Usage: maxq admin topicRoute" in shown
    history = tmp_path / ".maxq_history"
    assert history.read_text().splitlines()[-2:] == ["help topicRoute", "exit"]
    assert history.stat().st_mode & 0o77 == 0
