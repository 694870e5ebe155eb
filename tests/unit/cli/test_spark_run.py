"""The progress bar of commands on Spark: on the terminal, and what is printed meanwhile is left alone."""

import io
from types import SimpleNamespace

import pytest

from maxq.cli.pipeline_common import print_result
from maxq.cli.spark_run import progress_bar


class NoTracker:
    """A session in which nothing runs."""

    sparkContext = SimpleNamespace(
        statusTracker=lambda: SimpleNamespace(getActiveStageIds=list, getStageInfo=lambda stage: None)
    )


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_results_go_to_standard_output_while_there_is_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    out, error = io.StringIO(), Terminal()
    for name, stream in (("stdout", out), ("stderr", error)):
        monkeypatch.setattr(f"sys.{name}", stream)
    monkeypatch.setenv("TERM", "xterm")
    line = "a,b," + "x" * 200
    with progress_bar(NoTracker(), "my query", quiet=False):
        print(line)
    assert out.getvalue() == f"{line}\n", "whole, and nowhere else"
    assert "my query" in error.getvalue() and "xxx" not in error.getvalue()


def test_a_result_has_a_line_for_each_member(capsys: pytest.CaptureFixture[str]) -> None:
    result = {"messages": 3, "removed": [], "ranges": {"T/broker-a/0": [[0, 1], [5, 5]]}}
    print_result(result, as_json=False)
    assert [line.split(": ") for line in capsys.readouterr().out.splitlines()] == [
        [f"{'messages':<32}", "3"],
        [f"{'removed':<32}", "none"],
        [f"{'ranges T/broker-a/0':<32}", "0-1, 5-5"],
    ]
    print_result(result, as_json=True)
    assert '"ranges": {"T/broker-a/0": [[0, 1], [5, 5]]}' in capsys.readouterr().out
