"""Commands that make pages: what can not be done is said before Spark starts."""

from pathlib import Path
from typing import NoReturn

import pytest

from maxq.cli.app import run
from maxq.cli.pipeline import audit as pipeline_audit
from maxq.cli.pipeline import stats as pipeline_stats
from maxq.cli.pipeline import trace as pipeline_trace


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def starts(*_: object, **__: object) -> NoReturn:
        raise AssertionError("Spark was started")

    for module in (pipeline_audit, pipeline_stats, pipeline_trace):
        monkeypatch.setattr(module, "spark_run", starts)


@pytest.mark.parametrize("command", ["audit", "stats", "trace"])
def test_a_page_that_can_not_be_written_is_told_before_the_work(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["pipeline", command, *([str(tmp_path)] if command == "audit" else [])]
    assert run([*arguments, "--html", str(tmp_path / "none" / "page.html")]) == 2
    assert f"the folder {tmp_path / 'none'} is not there" in capsys.readouterr().err
    assert run([*arguments, "--html", str(tmp_path)]) == 2
    assert f"{tmp_path} is a folder" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["stats", "trace"])
def test_options_are_judged_before_the_work(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", command, "-o", "nameless"]) == 2
    assert "--option 'nameless' is not KEY=VALUE" in capsys.readouterr().err
    assert run(["pipeline", command, "-b", "yesterday"]) == 2
    assert "'yesterday' is no time" in capsys.readouterr().err
