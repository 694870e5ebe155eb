"""`maxq bench` measures a running server, and one of its own."""

import json

import pytest

from maxq.cli.load.server_process import StandaloneProcess
from tests.integration.cli.harness import maxq

SHORT = ["--secs", "0.4", "--warm", "0.1"]


def bench(server: StandaloneProcess, *arguments: str) -> dict[str, object]:
    target = ["--address", f"127.0.0.1:{server.target.port}", "--pid", str(server.pid)]
    done = maxq("bench", *arguments, *target, *SHORT)
    assert done.code == 0, done.err
    result = json.loads(done.out)
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
    before = sum(server.target.max_offset("bench", queue) for queue in range(8)) if options else 0
    result = bench(server, "send", *options)
    after = sum(server.target.max_offset("bench", queue) for queue in range(8))
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
    done = maxq("bench", "suite", "--only", "sync_1,consume", "--set", "brokerName=own", *SHORT)
    assert done.code == 0, done.err
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert [row["workload"] for row in rows] == ["sync_1", "consume"]
    assert rows[0]["settings"]["brokerName"] == "own"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["suite", "--only", "nothing"], "unknown workload nothing: there are send_1k"),
        (["send", "--address", "here"], "is not host:port"),
        (["send", "--ser", "xml"], "must be json or rocketmq"),
        (["send", "--pid", "1"], "--pid goes with --address"),
    ],
)
def test_wrong_options_give_one_line_and_exit_code_2(arguments: list[str], words: str) -> None:
    done = maxq("bench", *arguments)
    assert done.code == 2 and words in done.err and done.err.count("\n") == 1
