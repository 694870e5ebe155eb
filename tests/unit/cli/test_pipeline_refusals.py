"""Values of `maxq pipeline` that are refused before Spark starts: one line with value and remedy, exit code 2."""

import pytest

from maxq.cli.app import run

NOBODY = "-n 127.0.0.1:1"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("archive run A -t T --every soon", "'soon' is no time between triggers: give numbers with units, such as '10"),
        ("archive run A -t T --every 10s", "'10s' is no time between triggers"),
        ("replay A --to bad!", "messages can not be sent there: the topic name 'bad!' has characters other than"),
        ("replay A --to T=bad!", "the topic name 'bad!'"),
        (f"replay A --to {'x' * 128}", "the topic name has 128 characters, more than 127"),
        ("dlq redrive g --record r --to-topic bad!", "the topic name 'bad!'"),
    ],
)
def test_refused_in_one_line(arguments: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", *arguments.split(), "--master", "local[1]"]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        f"archive run A -t T {NOBODY}",
        f"archive verify A -t T {NOBODY}",
        f"replay A --to T {NOBODY}",
        f"trace {NOBODY}",
        f"stats -t T {NOBODY}",
        f"dlq show g {NOBODY}",
        f"dlq export E -g g {NOBODY}",
        f"dlq redrive g --record r {NOBODY}",
    ],
)
def test_a_name_server_that_is_not_there_is_told_and_not_waited_for(
    arguments: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pipeline", *arguments.split()]) == 1
    error = capsys.readouterr().err
    assert "no name server answers (127.0.0.1:1)" in error and "NAMESRV_ADDR says where" in error
    assert error.count("\n") == 1
