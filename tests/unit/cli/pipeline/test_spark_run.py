"""The progress bar of commands on Spark: on the terminal, and what is printed meanwhile is left alone."""

import io
from types import SimpleNamespace

import pytest

from maxq.cli.app import run
from maxq.cli.pipeline.common import print_result
from maxq.cli.pipeline.spark_run import master_of_spark, progress_bar


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


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--master", "rubbish", "'rubbish' is no master of Spark's: give local[2], spark://host:7077"),
        ("--master", "local[", "'local[' is no master of Spark's"),
        ("--driver-memory", "much", "'much' is no size of memory: give a number with its unit, such as 512m"),
        ("--driver-memory", "1.5g", "'1.5g' is no size of memory"),
    ],
)
def test_what_java_would_refuse_with_a_stack_is_refused_before(
    option: str, value: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["sql", "SELECT 1", option, value]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


@pytest.mark.parametrize("value", ["local", "local[4]", "local[*]", "local[2,4]", "local-cluster[2,1,1024]", "yarn",
                                   "spark://a:7077,b:7077", "k8s://https://h:6443"])  # fmt: skip
def test_masters_that_spark_knows_are_taken(value: str) -> None:
    assert master_of_spark(value) == value
