"""produce, consume and tail against a running server."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import trustme

from maxq.standalone import Standalone
from maxq.testing.server_process import StandaloneProcess
from tests.integration.cli.harness import at_a_terminal, maxq
from tests.json_output import check_output


def lines(count: int) -> str:
    return "".join(f"line {number}\n" for number in range(count))


def test_produced_lines_are_consumed(namesrv: str) -> None:
    sent = maxq("produce", "Lines", "--key", "k", "--tag", "t", text=lines(500) + "\n\n", namesrv=namesrv)
    assert sent.code == 0 and sent.err.startswith("500 messages sent to Lines")
    got = maxq("consume", "Lines", "--group", "G_lines", "--max", "500", namesrv=namesrv)
    assert got.code == 0, got.err
    assert sorted(got.out.splitlines()) == sorted(lines(500).splitlines())


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["produce", "a b"], "the topic name 'a b' has characters other than"),
        (["produce", "x" * 128], "the topic name has 128 characters, more than 127"),
        (["produce", ""], "the topic name is empty; give 1 to 127 characters"),
        (["consume", "T", "--group", "a b"], "the group name 'a b' has characters other than"),
        (["admin", "updateTopic", "-c", "DefaultCluster", "-t", "a b"], "the topic name 'a b' has characters other"),
        (["admin", "updateSubGroup", "-c", "DefaultCluster", "-g", "a b"], "the group name 'a b' has characters"),
    ],
)
def test_a_name_that_nobody_may_use_is_a_wrong_command_line(namesrv: str, words: list[str], why: str) -> None:
    done = maxq(*words, text="line\n", namesrv=namesrv)
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert why in done.err and ("choose a" in done.err or "give 1" in done.err)


def test_max_commits_exactly_what_was_printed(namesrv: str) -> None:
    maxq("produce", "Exact", text=lines(100), namesrv=namesrv)
    seen: list[str] = []
    for _ in range(4):
        got = maxq("consume", "Exact", "--group", "G_exact", "--max", "25", namesrv=namesrv)
        assert len(got.out.splitlines()) == 25, got.err
        seen += got.out.splitlines()
    assert sorted(seen) == sorted(lines(100).splitlines())


def test_readers_that_pop_share_a_topic_and_acknowledge_what_they_print(namesrv: str) -> None:
    maxq("produce", "Popped", text=lines(40), namesrv=namesrv)
    seen: list[str] = []
    for more in (("--max", "25", "--invisible", "1"), ("--max", "15"), ("--idle", "0.3")):
        got = maxq("consume", "Popped", "-g", "G_popped", "--pop", *more, namesrv=namesrv)
        assert got.code == 0, got.err
        seen += got.out.splitlines()
    assert sorted(seen) == sorted(lines(40).splitlines())
    got = maxq("consume", "Popped", "-g", "G", "--pop", "--from", "2026-01-01", namesrv=namesrv)
    assert got.code == 2 and "earliest or latest" in got.err


def test_the_queues_of_a_static_topic_are_popped_where_they_are(namesrv: str) -> None:
    made = maxq("admin", "updateStaticTopic", "-t", "StaticPop", "-qn", "4", "-c", "DefaultCluster", namesrv=namesrv)
    assert made.code == 0, made.err
    assert maxq("produce", "StaticPop", text=lines(30), namesrv=namesrv).code == 0
    got = maxq("consume", "StaticPop", "-g", "G_static", "--pop", "--max", "30", namesrv=namesrv)
    assert sorted(got.out.splitlines()) == sorted(lines(30).splitlines()), got.err


def test_json_lines_carry_whole_messages_both_ways(namesrv: str) -> None:
    messages = [
        {"body": "text é", "tags": "T1", "keys": ["k1", "k2"], "flag": 7, "properties": {"p": "q"}},
        {"bodyBase64": "/wA="},
    ]
    text = "".join(json.dumps(message) + "\n" for message in messages)
    assert maxq("produce", "Json", "--json", text=text, namesrv=namesrv).code == 0
    got = maxq("consume", "Json", "--group", "G_json", "--max", "2", "--json", namesrv=namesrv)
    first, second = sorted((json.loads(line) for line in got.out.splitlines()), key=lambda found: "body" not in found)
    assert (first["body"], first["tags"], first["keys"], first["flag"]) == ("text é", "T1", "k1 k2", 7)
    assert first["properties"]["p"] == "q"
    assert second["bodyBase64"] == "/wA="


def test_a_message_may_take_as_long_as_the_command_says() -> None:
    """Whoever sends over a slow line waits longer than three seconds, and a script that must go on less."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        failed = maxq("produce", "Slow", "--timeout", "0.3", text="line\n", namesrv=address)
    assert failed.code == 1 and failed.err.endswith("; no message acknowledged\n")
    assert "failed for 300 ms" in failed.err and "or raise --timeout" in failed.err


@pytest.mark.parametrize(
    "words",
    [
        ["produce", "T", "--timeout", "inf"],
        ["produce", "T", "--timeout", "nan"],
        ["consume", "T", "-g", "G", "--idle", "nan"],
        ["consume", "T", "-g", "G", "--pop", "--invisible", "inf"],
        ["admin", "clusterList", "-i", "inf"],
    ],
)
def test_what_no_clock_can_count_is_a_wrong_command_line(words: list[str]) -> None:
    done = maxq(*words, text="line\n", namesrv="127.0.0.1:1")
    assert (done.code, len(done.err.splitlines())) == (2, 1), done.err


@pytest.mark.parametrize("host", ["broker..example.com", "ü" * 100])
def test_a_host_that_no_machine_can_have_is_said_to_be_none(host: str) -> None:
    for words in (["produce", "T"], ["admin", "clusterList"], ["consume", "T", "-g", "G"]):
        done = maxq(*words, text="line\n", namesrv=f"{host}:9876")
        assert (done.code, len(done.err.splitlines())) == (1, 1), done.err
        assert "the host is no name that a machine can have" in done.err
    address = ["-b", f"{host}:10911", "-n", "127.0.0.1:1"]
    done = maxq("admin", "brokerStatus", *address)
    assert done.code == 1 and "the host is no name that a machine can have" in done.err


def test_an_argument_that_is_no_text_is_a_wrong_command_line(namesrv: str) -> None:
    done = maxq("admin", "updateNamesrvConfig", "-k", "a\udcff", "-v", "b", namesrv=namesrv)
    assert (done.code, len(done.err.splitlines())) == (2, 1), done.err
    assert "has bytes that are no UTF-8" in done.err


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory(namesrv: str) -> None:
    done = maxq("produce", "Endless", "--file", "/dev/zero", namesrv=namesrv)
    assert done.code == 2 and "the line that begins at byte 0 of the input has more than 64 MiB" in done.err


def test_messages_before_a_bad_line_are_sent_and_counted(namesrv: str) -> None:
    text = '{"body": "a"}\n{"body": "b"}\n[1]\n{"body": "c"}\n'
    failed = maxq("produce", "Half", "--json", text=text, namesrv=namesrv)
    assert failed.code == 2
    assert failed.err == "maxq: line 3 is not a JSON object; 2 messages before it sent\n"
    got = maxq("consume", "Half", "--group", "G_half", "--max", "2", namesrv=namesrv)
    assert sorted(got.out.splitlines()) == ["a", "b"]


def test_a_send_that_fails_half_way_says_how_many_were_acknowledged(namesrv: str) -> None:
    failed = maxq("produce", "HalfSent", text=lines(3) + "x" * 4_194_305 + "\n" + lines(3), namesrv=namesrv)
    assert failed.code == 1
    said = "maxq: the body of a message of topic HalfSent has 4194305 bytes, more than max_message_size 4194304; send "
    assert failed.err.startswith(said)
    acknowledged = re.search(r"; (\d) messages acknowledged\n\Z", failed.err)
    assert acknowledged is not None, failed.err
    got = maxq("consume", "HalfSent", "--group", "G_half", "--max", acknowledged[1], namesrv=namesrv)
    assert set(lines(3).splitlines()) <= set(got.out.splitlines()) and len(got.out.splitlines()) == int(acknowledged[1])
    refused = maxq("produce", "Half!", text="x\n", namesrv=namesrv)
    assert refused.code == 2 and refused.err.endswith("; no message acknowledged\n")


def test_an_interrupted_send_says_how_many_were_acknowledged(namesrv: str) -> None:
    maxq("produce", "Interrupted", text="makes the topic\n", namesrv=namesrv)
    command = [sys.executable, "-m", "maxq", "produce", "Interrupted", "--in-flight", "100", "-n", namesrv]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdin is not None
        running.stdin.write(lines(5_000).encode())
        running.stdin.flush()
        got = maxq("consume", "Interrupted", "--group", "G_interrupted", "--max", "5001", namesrv=namesrv)
        assert len(got.out.splitlines()) == 5_001, got.err
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=30)
        told = re.fullmatch(rb"maxq: interrupted; (\d+) messages acknowledged\n", err)
        assert running.returncode == 130 and told is not None, err
        assert 4_900 <= int(told[1]) <= 5_000  # all were stored, the answers to the last may have been under way


def test_what_consume_prints_can_be_produced_again(namesrv: str) -> None:
    maxq("produce", "Copy", "--json", text='{"body": "b", "tags": "T", "properties": {"x": "y"}}\n', namesrv=namesrv)
    printed = maxq("consume", "Copy", "--group", "G_copy", "--max", "1", "--json", namesrv=namesrv).out
    assert maxq("produce", "Copied", "--json", text=printed, namesrv=namesrv).code == 0
    copied = json.loads(maxq("consume", "Copied", "--group", "G_copy", "--max", "1", "--json", namesrv=namesrv).out)
    assert (copied["body"], copied["tags"], copied["properties"]["x"]) == ("b", "T", "y")
    assert copied["uniqKey"] != json.loads(printed)["uniqKey"]


def test_latest_and_a_time_leave_out_what_was_there_before(namesrv: str) -> None:
    maxq("produce", "Old", text=lines(10), namesrv=namesrv)
    for start in ("latest", "now"):
        got = maxq("consume", "Old", "--group", f"G_{start}", "--from", start, "--idle", "0.6", namesrv=namesrv)
        assert (got.code, got.out) == (0, ""), got.err


def test_tag_filters(namesrv: str) -> None:
    for tag in ("a", "b"):
        maxq("produce", "Tags", "--tag", tag, text=f"with {tag}\n", namesrv=namesrv)
    got = maxq("consume", "Tags", "--group", "G_tags", "--tag", "b", "--max", "1", namesrv=namesrv)
    assert got.out == "with b\n"


def test_tail_prints_what_comes_from_now_on(namesrv: str) -> None:
    maxq("produce", "Tail", text="before\n", namesrv=namesrv)
    command = [sys.executable, "-m", "maxq", "tail", "Tail", "--max", "1", "-n", namesrv]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ) as running:
        assert running.stderr is not None and running.stdout is not None
        assert b"waiting for messages of Tail" in running.stderr.readline()
        maxq("produce", "Tail", text="after\n", namesrv=namesrv)
        assert running.stdout.readline() == b"after\n"
        assert running.wait(20) == 0


def test_tail_prints_json_as_its_schema_says(namesrv: str) -> None:
    maxq("produce", "TailJson", text="before\n", namesrv=namesrv)
    command = [sys.executable, "-m", "maxq", "tail", "TailJson", "--max", "1", "--json", "-n", namesrv]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ) as running:
        assert running.stderr is not None and running.stdout is not None
        assert b"waiting for messages of TailJson" in running.stderr.readline()
        maxq("produce", "TailJson", "--tag", "t", text="after\n", namesrv=namesrv)
        value = json.loads(running.stdout.readline())
        check_output("tail", value)
        assert (value["body"], value["tags"], running.wait(20)) == ("after", "t", 0)


def test_a_file_that_is_sent_shows_how_much_of_it_was_acknowledged(namesrv: str, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text(lines(2500))
    code, shown = at_a_terminal(["produce", "Bar", "--file", str(file)], "", namesrv)
    assert code == 0 and "sending" in shown and "2,000 messages" in shown and "2500 messages sent to Bar" in shown


def test_commands_speak_tls_and_check_who_answers(tmp_path: Path) -> None:
    authority, folder = trustme.CA(), tmp_path / "tls"
    folder.mkdir()
    issued, trust = authority.issue_cert("127.0.0.1"), folder / "authority.pem"
    issued.private_key_pem.write_to_path(folder / "key.pem")
    issued.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    authority.cert_pem.write_to_path(trust)
    settings = {
        "tls.test.mode.enable": "false", "tls.server.mode": "enforcing", "tls.server.keyPath": str(folder / "key.pem"),
        "tls.server.certPath": str(folder / "cert.pem"), "useTLS": "true", "tls.client.trustCertPath": str(trust),
        "maxHashSlotNum": "1000", "maxIndexNum": "4000",
    }  # fmt: skip
    with StandaloneProcess(settings=settings) as server:
        namesrv = server.namesrv_address
        sent = maxq("produce", "Secure", "--tls", str(trust), text=lines(3), namesrv=namesrv)
        assert sent.code == 0, sent.err
        got = maxq("consume", "Secure", "-g", "G", "--max", "3", "--tls", "insecure", namesrv=namesrv)
        assert sorted(got.out.splitlines()) == sorted(lines(3).splitlines()), got.err
        refused = maxq("admin", "clusterList", "--tls", "verify", namesrv=namesrv)
        assert (refused.code, refused.out) == (1, "")
        (said,) = refused.err.splitlines()  # once, and without doubts whether the server runs
        assert "the server's certificate is refused by TLS" in said and "--tls FILE" in said
        assert "does that server run" not in said and "see whether" not in said
        missing = maxq("admin", "clusterList", "--tls", "nowhere.pem", namesrv=namesrv)
        assert missing.code == 2 and "trusted certificates nowhere.pem cannot be used" in missing.err


def test_a_group_that_the_user_may_not_read_ends_the_command_with_the_reason() -> None:
    root = json.dumps({"username": "root", "password": "root-secret"})
    inner = json.dumps({"accessKey": "root", "secretKey": "root-secret"})
    settings = {
        "authenticationEnabled": "true", "authorizationEnabled": "true", "initAuthenticationUser": root,
        "innerClientAuthenticationCredentials": inner,
    }  # fmt: skip
    by_root = ("--access-key", "root", "--secret-key", "root-secret")
    by_alice = ("--access-key", "alice", "--secret-key", "alice-secret")
    with Standalone(settings=settings) as server:
        address = server.namesrv_address
        for words in (
            ("createUser", "-u", "alice", "-p", "alice-secret"),
            ("createAcl", "-s", "User:alice", "-r", "Topic:Orders,Group:mine", "-a", "Pub,Sub", "-d", "Allow"),
        ):
            assert maxq("admin", *words, "-b", server.broker_address, *by_root).code == 0, words
        assert maxq("produce", "Orders", *by_root, text="line\n", namesrv=address).code == 0
        for more in ((), ("--pop",)):
            refused = maxq("consume", "Orders", "--group", "other", "--idle", "30", *more, *by_alice, namesrv=address)
            assert refused.code == 1, more
            (said,) = refused.err.splitlines()
            assert "alice" in said and "other" in said
        assert maxq("consume", "Orders", "--group", "mine", "--max", "1", *by_alice, namesrv=address).out == "line\n"
