"""The load generator (`python -m benches.load`) measures a running server, and one of its own."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from benches.load.request import Target

from maxq.testing.server_process import StandaloneProcess

ROOT = Path(__file__).parents[2]
SHORT = ["--secs", "0.4", "--warm", "0.1"]


@pytest.fixture(scope="module")
def server() -> Iterator[StandaloneProcess]:
    with StandaloneProcess(settings={"maxHashSlotNum": "1000", "maxIndexNum": "4000"}) as running:
        yield running


def load(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benches.load", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def bench(server: StandaloneProcess, *arguments: str) -> dict[str, object]:
    done = load(*arguments, "--address", server.broker_address, "--pid", str(server.pid), *SHORT)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert isinstance(result, dict) and result["errors"] == 0, result
    return result


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--ser", "rocketmq"],
        ["--batch", "8"],
        ["--conns", "1", "--inflight", "1", "--size", "100"],
        ["--rate", "500"],
        ["--processes", "2"],
    ],
    ids=["json", "binary", "batch", "one-by-one", "open-loop", "processes"],
)
def test_send_counts_acknowledged_messages(server: StandaloneProcess, options: list[str]) -> None:
    before = sum(Target.at(server.broker_address).max_offset("bench", queue) for queue in range(8)) if options else 0
    result = bench(server, "send", *options)
    after = sum(Target.at(server.broker_address).max_offset("bench", queue) for queue in range(8))
    assert 0 < result["sent_per_s"] * 0.4 <= (after - before) * 1.05  # type: ignore[operator]
    assert result["send_us"]["p50"] > 0  # type: ignore[index]
    assert {"server_cpu_us_per_msg", "server_rss_anon_mb", "generator", "machine", "settings"} <= result.keys()


def near(name: str, wanted: float, server: StandaloneProcess, *arguments: str) -> dict[str, object]:
    """Of five results at most, one whose rate is as wanted: what a stall put off, an open loop makes up for."""
    rates = []
    for _ in range(5):
        result = bench(server, *arguments, "--rate", str(wanted))
        if result[name] == pytest.approx(wanted, rel=0.2):
            return result
        rates.append(result[name])
    raise AssertionError(f"wanted {wanted} a second, got {rates}")


def test_open_loop_keeps_its_rate(server: StandaloneProcess) -> None:
    assert "generator_late_us" in near("sent_per_s", 500, server, "send")


def test_consume_reads_what_is_there(server: StandaloneProcess) -> None:
    bench(server, "send")
    assert bench(server, "consume")["received_per_s"] > 100  # type: ignore[operator]


def test_both_measures_end_to_end(server: StandaloneProcess) -> None:
    result = near("received_per_s", 400, server, "both")
    assert 0 < result["e2e_us"]["p50"] < 10_000_000  # type: ignore[index]


def test_suite_starts_a_server_of_its_own() -> None:
    done = load("suite", "--only", "sync_1,consume", "--set", "brokerName=own", *SHORT)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["workload"] for row in rows] == ["sync_1", "consume"]
    assert rows[0]["settings"]["brokerName"] == "own"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["suite", "--only", "nothing"], "unknown workload nothing: there are send_1k"),
        (["send", "--address", "here"], "is not host:port"),
        (["send", "--ser", "xml"], "choose from"),
        (["send", "--conns", "0"], "--conns: 0 is not from 1 to 900"),
        (["send", "--pid", "1"], "--pid goes with --address"),
    ],
)
def test_wrong_options_are_named_with_exit_code_2(arguments: list[str], words: str) -> None:
    done = load(*arguments)
    assert done.returncode == 2 and words in done.stderr.splitlines()[-1]
