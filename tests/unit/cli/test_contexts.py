"""`maxq context`: named connections, which of several places counts, and what becomes of a bad file."""

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maxq.cli.app import run
from maxq.cli.contexts import Profile, changed_contexts, load_contexts

PAGE = Path(__file__).parents[3] / "docs/reference/command-line.md"
PROD = ["--namesrv", "10.0.0.1;10.0.0.2:9999", "--tls", "verify", "--access-key", "alice", "--secret-key", "s3cret"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("NAMESRV_ADDR", "MAXQ_CONTEXT", "MAXQ_TLS", "MAXQ_ACCESS_KEY", "MAXQ_SECRET_KEY", "ROCKETMQ_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("MAXQ_SECURITY_TOKEN", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def file(home: Path) -> Path:
    return home / "maxq" / "contexts.toml"


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """What `maxq context show --json` prints, without the sources."""

    def show(*options: str) -> dict[str, Any]:
        capsys.readouterr()
        assert run(["context", "show", "--json", *options]) == 0, capsys.readouterr().err
        return {name: found["value"] for name, found in json.loads(capsys.readouterr().out).items()}

    return show


def refusal(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert run(words) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1, said
    return said.err


def write(file: Path, text: str, mode: int = 0o600) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    file.chmod(mode)


def test_a_context_is_added_listed_used_shown_and_removed(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["context", "add", "prod", *PROD]) == 0
    assert run(["context", "add", "local", "-n", "localhost", "--use"]) == 0
    assert file.stat().st_mode & 0o777 == 0o600
    capsys.readouterr()
    assert run(["context", "list", "--json"]) == 0
    listed = capsys.readouterr().out
    assert json.loads(listed) == [
        {"name": "local", "current": True, "namesrv": "localhost:9876", "tls": "", "accessKey": ""},
        {
            "name": "prod", "current": False, "namesrv": "10.0.0.1:9876;10.0.0.2:9999", "tls": "verify",
            "accessKey": "alice",
        },
    ]  # fmt: skip
    assert run(["context", "use", "prod"]) == run(["context", "show"]) == run(["context", "show", "prod"]) == 0
    said = capsys.readouterr().out
    assert "10.0.0.1:9876;10.0.0.2:9999" in said and "context prod (in use)" in said
    assert "s3cret" not in listed + said
    assert run(["context", "remove", "prod"]) == 0
    assert set(load_contexts().profiles) == {"local"} and load_contexts().current == ""
    assert "s3cret" not in file.read_text()


def test_each_place_comes_before_the_next(
    monkeypatch: pytest.MonkeyPatch, shown: Callable[..., dict[str, Any]]
) -> None:
    assert shown() == {"namesrv": "127.0.0.1:9876", "tls": "off"}
    for name in ("used", "named", "chosen"):
        own = ["--tls", "verify", "--access-key", name, "--secret-key", "s"]
        run(["context", "add", name, "--namesrv", name, *own])
    run(["context", "use", "used"])
    assert shown() == {"namesrv": "used:9876", "tls": "verify", "accessKey": "used", "secretKey": "***"}
    monkeypatch.setenv("MAXQ_CONTEXT", "named")
    assert shown()["namesrv"] == "named:9876" and shown()["accessKey"] == "named"
    monkeypatch.setenv("NAMESRV_ADDR", "env")
    monkeypatch.setenv("MAXQ_TLS", "insecure")
    monkeypatch.setenv("MAXQ_ACCESS_KEY", "env")
    monkeypatch.setenv("MAXQ_SECRET_KEY", "s")
    assert shown() == {"namesrv": "env:9876", "tls": "insecure", "accessKey": "env", "secretKey": "***"}
    assert shown("--context", "chosen") == {
        "namesrv": "chosen:9876", "tls": "verify", "accessKey": "chosen", "secretKey": "***",
    }  # fmt: skip
    options = ["-n", "opt", "--tls", "off", "--access-key", "opt", "--secret-key", "s"]
    assert shown("--context", "chosen", *options) == {
        "namesrv": "opt:9876", "tls": "off", "accessKey": "opt", "secretKey": "***",
    }  # fmt: skip


def test_what_says_it_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    run(["context", "add", "prod", *PROD, "--use"])
    monkeypatch.setenv("MAXQ_TLS", "insecure")
    capsys.readouterr()
    assert run(["context", "show", "-n", "h", "--json"]) == 0
    sources = {name: found["source"] for name, found in json.loads(capsys.readouterr().out).items()}
    prod = "context prod (in use)"
    assert sources == {"namesrv": "-n", "tls": "MAXQ_TLS", "accessKey": prod, "secretKey": prod}


def test_a_context_of_the_command_line_stands_for_the_whole_connection(
    monkeypatch: pytest.MonkeyPatch, shown: Callable[..., dict[str, Any]]
) -> None:
    run(["context", "add", "plain", "-n", "plain"])
    monkeypatch.setenv("NAMESRV_ADDR", "env")
    monkeypatch.setenv("MAXQ_TLS", "verify")
    monkeypatch.setenv("MAXQ_ACCESS_KEY", "env")
    monkeypatch.setenv("MAXQ_SECRET_KEY", "s")
    assert shown("--context", "plain") == {"namesrv": "plain:9876", "tls": "off"}


def test_key_and_secret_of_two_places_are_not_mixed(
    monkeypatch: pytest.MonkeyPatch, shown: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    run(["context", "add", "prod", *PROD, "--use"])
    monkeypatch.setenv("MAXQ_ACCESS_KEY", "env")
    assert "together or not at all" in refusal(["context", "show"], capsys)
    assert "together or not at all" in refusal(["context", "show", "--access-key", "bob"], capsys)
    monkeypatch.setenv("MAXQ_SECRET_KEY", "s")
    assert shown("--access-key", "bob")["accessKey"] == "bob", "its secret is in the environment"


@pytest.mark.parametrize(
    "words",
    [
        ["-n", "a\nb"],
        ["-n", "a b:9876"],
        ["-n", "a", "--tls", "{folder}/b\nc.pem"],
        ["-n", "a", "--tls", "{folder}/\udcff.pem"],
        ["-n", "a", "--access-key", "a\tb", "--secret-key", "s"],
    ],
)
def test_what_could_not_be_read_again_is_not_written(
    words: list[str], home: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command reads the file: a bad one makes all of them useless, `context remove` among them."""
    for name in ("b\nc.pem", "\udcff.pem"):
        (home / name).write_text("")
    assert run(["context", "add", "good", "-n", "good"]) == 0
    before = file.read_text()
    refusal(["context", "add", "bad", *(word.format(folder=home) for word in words)], capsys)
    assert file.read_text() == before
    assert set(load_contexts().profiles) == {"good"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_is_refused(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(file, '[contexts.a]\nnamesrv = "a:9876"\n', 0o644)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert set(load_contexts().profiles) == {"a"}, "root may write everything anyway"
    os.chown(file, 54321, -1)
    assert "belongs to another user" in refusal(["context", "list"], capsys)
    os.chown(file, 12345, -1)
    assert set(load_contexts().profiles) == {"a"}


def test_a_link_to_the_file_stays_a_link(home: Path, file: Path) -> None:
    """Those who keep such files in a repository of their own link to them."""
    kept = home / "dotfiles" / "contexts.toml"
    kept.parent.mkdir()
    file.parent.mkdir()
    file.symlink_to(kept)
    for name in ("first", "second"):
        assert run(["context", "add", name, "-n", name]) == 0
        assert file.is_symlink() and kept.stat().st_mode & 0o777 == 0o600
    assert set(load_contexts().profiles) == {"first", "second"}


def test_commands_connect_as_the_context_says(capsys: pytest.CaptureFixture[str]) -> None:
    run(["context", "add", "gone", "-n", "127.0.0.1:1", "--use"])
    capsys.readouterr()
    for words in (["admin", "topicList"], ["produce", "T", "--file", os.devnull, "--context", "gone"], ["dlq", "list"]):
        code = run(words)
        said = capsys.readouterr().err
        assert code == 0 or "connect to <127.0.0.1:1> failed" in said, (words, said)
    assert run(["admin", "topicList"]) == 1


def test_a_line_in_the_shell_has_its_own_connection(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["context", "add", "prod", *PROD])
    run(["context", "add", "local", "-n", "localhost", "--use"])
    capsys.readouterr()
    lines = [
        "context show --json",
        "context show --json --context prod",
        "context show --json --access-key bob --secret-key s -n other",
        "context show --json",
    ]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines)))
    assert run(["shell"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["namesrv"]["value"] for one in found] == [
        "localhost:9876", "10.0.0.1:9876;10.0.0.2:9999", "other:9876", "localhost:9876",
    ]  # fmt: skip
    assert found[0] == found[3] and "accessKey" not in found[0]
    assert "MAXQ_ACCESS_KEY" not in os.environ and "MAXQ_TLS" not in os.environ


def test_the_connection_of_the_shell_is_that_of_its_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["context", "add", "prod", "-n", "prod"])
    run(["context", "add", "used", "-n", "used", "--tls", "verify", "--use"])
    monkeypatch.setenv("NAMESRV_ADDR", "env")
    capsys.readouterr()
    for options, namesrv, tls in (
        (["--context", "prod"], "prod:9876", "off"),
        (["-n", "opt"], "opt:9876", "verify"),
        ([], "env:9876", "verify"),
    ):
        monkeypatch.setattr("sys.stdin", io.StringIO("context show --json\n"))
        assert run(["shell", *options]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["namesrv"]["value"], found["tls"]["value"]) == (namesrv, tls), options


def test_a_process_that_changes_the_file_waits_for_another_one(file: Path) -> None:
    words = [sys.executable, "-m", "maxq", "context", "add", "theirs", "-n", "h"]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
    with changed_contexts() as contexts:
        process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL)
        while not _waits_for_a_lock(process.pid):
            assert process.poll() is None, "it changed the file meanwhile"
        contexts.profiles["ours"] = Profile("h:1")
    assert process.wait(60) == 0
    assert set(load_contexts().profiles) == {"ours", "theirs"}
    assert file.parent.stat().st_mode & 0o77 == 0


def _waits_for_a_lock(pid: int) -> bool:
    locks = Path("/proc/locks").read_text().splitlines()
    return any("->" in line and str(pid) in line.split() for line in locks)


def test_a_folder_that_cannot_be_made_is_named(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "file").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "file"))
    assert f"the folder {home}/file/maxq cannot be made: " in refusal(["context", "add", "x", "-n", "h"], capsys)


def test_a_secret_may_come_from_standard_input(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('with "quotes" \\ and ü\r\nmore\n'))
    words = ["context", "add", "prod", "-n", "h", "--access-key", "alice", "--secret-key", "-"]
    assert run(words) == 0
    assert load_contexts().profiles["prod"].secret_key == 'with "quotes" \\ and ü'


def test_a_context_is_not_overwritten_by_chance(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["context", "add", "prod", *PROD])
    assert f"context prod is in file {file} already: --replace" in refusal(
        ["context", "add", "prod", "-n", "h"], capsys
    )
    assert load_contexts().profiles["prod"].access_key == "alice"
    assert run(["context", "add", "prod", "-n", "h", "--replace"]) == 0
    assert load_contexts().profiles["prod"].access_key == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["add", "a b", "-n", "h"], "'a b' is no name for a context"),
        (["add", "../x", "-n", "h"], "'../x' is no name for a context"),
        (["add", "x", "-n", "h:port"], "an address is host:port, not 'h:port'"),
        (["add", "x", "-n", "h", "--tls", "no.pem"], "--tls no.pem: there is no such file; give verify"),
        (["add", "x", "-n", "h", "--access-key", "a"], "given together or not at all"),
        (["add", "x", "-n", "h", "--access-key", "a", "--secret-key", "b\x1b[0m"], "must be a text of one line"),
        (["use", "nobody"], "has no context 'nobody'; it has none; maxq context add makes one"),
        (["use"], "name a context, or give --none"),
        (["show", "nobody"], "has no context 'nobody'"),
        (["show", "--context", ""], "--context is empty"),
        (["remove", "nobody"], "has no context 'nobody'"),
    ],
)
def test_a_wrong_command_changes_nothing(
    words: list[str], said: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refusal(["context", *words], capsys)
    assert not file.exists()


def test_a_context_that_is_not_there_is_named_with_file_and_remedy(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(["context", "add", "prod", *PROD, "--use"])
    said = refusal(["admin", "topicList", "--context", "prd"], capsys)
    assert f"--context: file {file} has no context 'prd'; did you mean prod?" in said
    monkeypatch.setenv("MAXQ_CONTEXT", "staging")
    said = refusal(["admin", "topicList"], capsys)
    assert f"MAXQ_CONTEXT: file {file} has no context 'staging'; there are prod; maxq context add makes one" in said


_ONE = '[contexts.x]\nnamesrv = "h"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("contexts = [", "is not TOML: "),
        ("[" * 100_000, "is not TOML: "),
        ("contexts = 3", "contexts must be tables, each [contexts.NAME]"),
        ("[contexts]\nx = 3", "context 'x': it must be a table"),
        ("[contexts.x]", "context 'x': namesrv is missing"),
        ('[contexts."a b"]\nnamesrv = "h"', "context 'a b': this is no name for a context"),
        (_ONE + "tls = true", "context 'x': tls must be a text of one line, in quotes"),
        (_ONE + 'secret_key = "s\\nt"\naccess_key = "a"', "context 'x': secret_key must be a text of one line"),
        (_ONE + 'access_key = "a"', "context 'x': access_key and secret_key are given together"),
        (_ONE + 'secretkey = "s"', "context 'x': 'secretkey' is unknown; did you mean secret_key?"),
        (_ONE + 'colour = "red"', "context 'x': 'colour' is unknown; known are namesrv, tls, "),
        ('currant = "x"\n' + _ONE, "'currant' is unknown; did you mean current?"),
        ("current = 3", "current must be the name of a context"),
        ('current = "y"\n' + _ONE, "maxq context use: file"),
        ('current = "x"\n[contexts.x]\nnamesrv = "h:port"', "context x (in use): an address is host:port"),
    ],
)
def test_a_file_with_nonsense_is_refused_with_place_and_remedy(
    text: str, said: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(file, text)
    err = refusal(["admin", "topicList"], capsys)
    assert said in err and str(file) in err and "s\\nt" not in err


def test_a_file_that_is_no_text_is_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.parent.mkdir()
    file.write_bytes(b"current = '\xff'")
    file.chmod(0o600)
    assert f"file {file} is not TOML: " in refusal(["admin", "topicList"], capsys)
    file.write_bytes(b"#" * (1 << 20) + b"#")
    assert "larger than 1 MiB" in refusal(["admin", "topicList"], capsys)
    file.unlink()
    os.mkfifo(file)
    assert f"{file} is no ordinary file" in refusal(["admin", "topicList"], capsys)
    file.unlink()
    file.mkdir()
    assert f"{file} is no ordinary file" in refusal(["admin", "topicList"], capsys)


def test_others_may_neither_change_the_file_nor_read_its_secrets(
    file: Path, capsys: pytest.CaptureFixture[str], shown: Callable[..., dict[str, Any]]
) -> None:
    write(file, 'current = "x"\n' + _ONE, 0o644)
    assert shown()["namesrv"] == "h:9876", "without secrets they may read it"
    file.chmod(0o660)
    assert f"others can write it: chmod 600 {file}" in refusal(["admin", "topicList"], capsys)
    write(file, _ONE + 'access_key = "a"\nsecret_key = "s"\n', 0o640)
    assert f"holds secrets, and others can read it: chmod 600 {file}" in refusal(["context", "list"], capsys)


def test_a_relative_folder_of_settings_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shown: Callable[..., dict[str, Any]]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    run(["context", "add", "x", "-n", "h", "--use"])
    assert (tmp_path / ".config" / "maxq" / "contexts.toml").is_file()
    assert shown()["namesrv"] == "h:9876"


def test_the_file_of_the_manual_is_one(file: Path, shown: Callable[..., dict[str, Any]]) -> None:
    found = re.search(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    write(file, found[1])
    assert shown()["namesrv"] == "10.0.0.1:9876;10.0.0.2:9876" and shown()["accessKey"] == "alice"
    before = file.read_text()
    run(["context", "use", "prod"])
    assert [line for line in file.read_text().splitlines() if not line.startswith("#")] == before.splitlines()
