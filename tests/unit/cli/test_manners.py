"""What the command line does for people who guess."""

import pytest
import typer

from maxq import __version__
from maxq.cli.app import run
from maxq.cli.options import name_servers


@pytest.mark.parametrize("words", [["--version"], ["-V"], ["version"]])
def test_the_version_is_told_to_whoever_asks(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 0
    assert capsys.readouterr().out == f"maxq {__version__}\n"


def test_help_explains_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "timer"]) == run(["timer", "--help"]) == 0
    first, second = capsys.readouterr().out.split("Usage:")[1:]
    assert first.strip() == second.strip() and "maxq timer" in first
    assert run(["help"]) == 0 and "standalone" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "meant"),
    [(["prodcue", "T"], "produce"), (["Consume"], "consume"), (["admin", "clusterlist"], "clusterList")],
)
def test_a_command_that_is_not_there_brings_the_nearest(
    words: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    said = capsys.readouterr()
    assert said.out == "" and f"did you mean {meant}?" in said.err and said.err.count("\n") == 1


def test_name_servers_without_a_port_have_the_usual_one() -> None:
    assert name_servers("localhost") == "localhost:9876"
    assert name_servers("ns1; ns2:9877;http://ns3;[::1]") == "ns1:9876;ns2:9877;ns3:9876;[::1]:9876"
    for wrong in (";", "ns:port"):
        with pytest.raises(typer.BadParameter):
            name_servers(wrong)
