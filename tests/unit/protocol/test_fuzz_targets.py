"""The short form of fuzz/run.py: every parser, some damaged inputs, one seed."""

import random
import time
from pathlib import Path

import pytest
from fuzz.run import Finding, check, check_growth, fuzz, main
from fuzz.targets import TARGETS, Target

from maxq.errors import RemoteProtocolError
from tests.short_form import times


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_any_bytes_give_a_value_or_the_targets_own_error(target: Target) -> None:
    assert fuzz(target, random.Random(7), seconds=600, inputs=times(300)) == times(300)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_parsers_keep_nothing_of_their_input(target: Target) -> None:
    check_growth(target, random.Random(7), times(300))


def accept(data: bytes) -> None:
    pass


def test_a_crash_a_hang_and_a_refused_seed_are_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def crash(data: bytes) -> None:
        if data != b"seed":
            raise KeyError(data)

    def hang(data: bytes) -> None:
        started = time.process_time()
        while time.process_time() - started < 0.01:
            pass

    def refuse(data: bytes) -> None:
        raise RemoteProtocolError("never")

    with pytest.raises(Finding, match="KeyError"):
        fuzz(Target("crash", crash, (RemoteProtocolError,), lambda: [b"seed"]), random.Random(1), seconds=10)
    assert (tmp_path / "fuzz-crash.bin").exists()
    monkeypatch.setattr("fuzz.run.SLOW_SECONDS", 0.005)
    with pytest.raises(Finding, match="took"):
        check(Target("hang", hang, (), lambda: [b"seed"]), b"x")
    with pytest.raises(Finding, match="well-formed"):
        fuzz(Target("refuse", refuse, (RemoteProtocolError,), lambda: [b"seed"]), random.Random(1), seconds=10)


def test_memory_that_grows_is_a_finding() -> None:
    kept: list[bytes] = []
    target = Target("grow", lambda data: kept.append(bytes(20_000)), (), lambda: [b"seed"])
    with pytest.raises(Finding, match="memory grows"):
        check_growth(target, random.Random(1))


def test_the_command_runs_one_input_or_many(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--target", "message-id", "--input", b"0A00000100002A9F0000000000000400".hex()]) == 0
    assert "message-id: accepted" in capsys.readouterr().out
    assert main(["--seconds", "0.1", "--seed", "5", "--target", "batch"]) == 0
    assert capsys.readouterr().out.startswith("seed 5\nbatch: ")
