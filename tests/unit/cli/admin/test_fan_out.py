"""Many servers asked, some of them failing; questions before much is lost; progress."""

import asyncio
import inspect
import io
import sys
from typing import Annotated, cast

import pytest
import typer

from maxq.cli.admin import command as command_module
from maxq.cli.admin.command import command
from maxq.cli.admin.fan_out import ask_each
from maxq.cli.admin.groups import update_sub_group
from maxq.cli.admin.topics import update_topic
from maxq.cli.terminal.confirm import confirm
from maxq.cli.terminal.progress import progress_bar, progress_in_bytes, tracked
from maxq.cli.terminal.report import Report
from maxq.client.admin.admin import Admin
from maxq.errors import BrokerError, ConfigError, RemotingTimeoutError
from maxq.protocol.body.route import BrokerData


async def answer(address: str) -> int:
    if address.startswith("bad"):
        raise BrokerError(16, "not allowed", address=address)
    if address.startswith("slow"):
        raise RemotingTimeoutError("no answer", timeout_ms=3)
    return len(address)


async def test_those_that_fail_do_not_hide_those_that_answer() -> None:
    found = await ask_each(["a:1", "bad:1", "bb:1", "slow:1", "a:1"], answer)
    assert found.answers == {"a:1": 3, "bb:1": 4}
    assert found.failures == {"bad:1": "not allowed (code 16 from bad:1)", "slow:1": "no answer"}


async def test_the_only_one_that_fails_is_an_error() -> None:
    with pytest.raises(BrokerError):
        await ask_each(["bad:1"], answer)


async def test_all_are_asked_at_the_same_time() -> None:
    together = asyncio.Barrier(3)

    async def wait(address: str) -> None:
        await together.wait()

    assert len((await ask_each("abc", wait)).answers) == 3


async def test_what_was_done_is_said_for_each_and_failures_are_in_the_json() -> None:
    report = (await ask_each(["a:1", "bad:1"], answer)).report(lambda address: f"done on {address}", topic="T")
    assert report.text == "done on a:1\n"
    assert report.objects() == {
        "brokers": ["a:1"], "topic": "T", "failures": {"bad:1": "not allowed (code 16 from bad:1)"},
    }  # fmt: skip


class FakeAdmin:
    """Connects to nothing."""

    def __init__(self, *_: object) -> None:
        pass

    async def __aenter__(self) -> "FakeAdmin":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


def callback(app: typer.Typer):  # type: ignore[no-untyped-def]
    (entry,) = app.registered_commands
    assert entry.callback is not None
    return entry.callback


def given(run, **values: object) -> dict[str, object]:  # type: ignore[no-untyped-def]
    """What a command's function is called with when these options are given and no others."""
    return {name: option.default for name, option in inspect.signature(run).parameters.items()} | values


def test_a_partial_failure_is_printed_and_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command_module, "Admin", FakeAdmin)
    app = typer.Typer()

    @command(app, "both")
    async def both(admin: Admin) -> Report:
        """Asks two."""
        return (await ask_each(["a:1", "bad:1"], answer)).report(lambda address: f"done on {address}")

    with pytest.raises(typer.Exit) as ended:
        run = callback(app)
        run(**given(run))
    assert ended.value.exit_code == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("done on a:1\n", "maxq: bad:1: not allowed (code 16 from bad:1)\n")


class Refusing(FakeAdmin):
    """Two brokers, and neither takes the topic."""

    async def masters_of_cluster(self, cluster: str) -> list[str]:
        return ["bad:1", "bad:2"]

    async def of_cluster(self, cluster: str) -> list[BrokerData]:
        return [BrokerData(cluster, name, {0: f"{name}:1"}) for name in ("bad", "worse")]

    async def create(self, address: str, config: object) -> None:
        await answer(address)

    topics = groups = brokers = property(lambda self: self)


async def test_what_no_broker_took_is_not_shown_as_made() -> None:
    admin = cast(Admin, Refusing())
    for report in (await update_topic(admin, topic="T", cluster="C"), await update_sub_group(admin, "G", cluster="C")):
        assert report.text == "" and list(report.failures) == ["bad:1", "bad:2"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("typed", "goes_on"), [("y\n", True), ("Yes\n", True), ("\n", False), ("no\n", False), ("", False)]
)
def test_a_person_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: str, goes_on: bool
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    if goes_on:
        confirm("Delete it?", yes=False)
    else:
        with pytest.raises(typer.Exit):
            confirm("Delete it?", yes=False)
    assert ("nothing was changed" in capsys.readouterr().err) is not goes_on


def test_where_nobody_can_be_asked_yes_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(ConfigError, match=r"Delete it[?] Nobody can be asked here: give --yes"):
        confirm("Delete it?", yes=False)
    confirm("Delete it?", yes=True)


def test_the_question_names_what_it_is_about(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, bool]] = []
    monkeypatch.setattr(command_module, "Admin", FakeAdmin)
    monkeypatch.setattr(command_module, "confirm", lambda question, *, yes: asked.append((question, yes)))
    app = typer.Typer()

    @command(app, "drop", asks="Delete topic {topic}?")
    async def drop(admin: Admin, topic: Annotated[str, typer.Option()]) -> Report:
        """Deletes."""
        return Report({}, [], text="")

    run = callback(app)
    run(**given(run, topic="T", yes=True))
    assert asked == [("Delete topic T?", True)]


def test_a_bar_tells_in_words_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", shown := Terminal())
    for total in (1000, None):
        with progress_bar("sending", total) as tell:
            tell(500, "5 messages")
        assert "sending" in shown.getvalue() and "5 messages" in shown.getvalue()


def test_work_that_is_told_in_bytes_has_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (quiet := io.StringIO(), shown := Terminal()):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress_in_bytes() as tell:
            tell("checking the log", 1_000_000, 4_000_000)
            tell("building queues and index", 0, 4_000_000)
    assert quiet.getvalue() == ""
    assert "checking the log" in shown.getvalue() and "1.0/4.0 MB" in shown.getvalue()
    assert "building queues and index" in shown.getvalue()


def test_progress_is_shown_only_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet, shown = io.StringIO(), Terminal()
    monkeypatch.setattr(sys, "stderr", quiet)
    assert list(tracked([1, 2, 3], "Counting")) == [1, 2, 3]
    monkeypatch.setattr(sys, "stderr", shown)
    assert list(tracked([1, 2, 3], "Counting")) == [1, 2, 3]
    assert quiet.getvalue() == "" and "Counting" in shown.getvalue()
