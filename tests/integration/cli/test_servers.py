"""standalone, namesrv and broker as processes: ready, settings, signals, refusals, workers."""

import asyncio
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from benches.load.request import Target

import maxq as maxq_package
from maxq.errors import StoreRefusedError
from maxq.runtime.files.system import SystemClock, SystemDisk, SystemRng
from maxq.runtime.own_address import own_address
from maxq.standalone import AddressRefusedError, PortInUseError, StandaloneServer
from maxq.testing.server_process import ServerProcess, StandaloneProcess, facts_of
from tests.integration.cli.harness import maxq
from tests.interop.processes.servers import free_port_base


def wait_until(condition: Callable[[], object], what: str, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)


@contextmanager
def running(*arguments: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A `maxq` process, killed at the end if the test has not ended it."""
    with open(log, "wb") as out:
        process = subprocess.Popen([sys.executable, "-m", "maxq", *arguments], stdout=out, stderr=out)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def test_the_port_of_grpc_clients_is_opened_unless_another_program_has_it(tmp_path: Path) -> None:
    """8081 is RocketMQ's; a server for which nobody has chosen a port starts without it if it is taken."""
    with socket.socket() as other:
        with suppress(OSError):  # another program has it already
            other.bind(("127.0.0.1", 8081))
            other.listen()
        ready, log = tmp_path / "ready", tmp_path / "log"
        ports = ("--namesrv-port", "0", "--broker-port", "0")
        arguments = ("standalone", "--store", str(tmp_path / "store"), *ports, "--ready-file", str(ready))
        with running(*arguments, log=log) as process:
            wait_until(lambda: ready.exists() or process.poll() is not None, "ready")
            assert ready.exists(), log.read_text()
            assert facts_of(log.read_text())["gRPC"] == "none: port 8081 is taken; --grpc-port chooses another one"
        chosen = ("standalone", "--store", str(tmp_path / "other"), *ports, "--grpc-port", "0", "--ready-file")
        with running(*chosen, str(tmp_path / "ready2"), log=log) as process:
            wait_until(lambda: (tmp_path / "ready2").exists() or process.poll() is not None, "ready")
            host, _, port = facts_of(log.read_text())["gRPC"].rpartition(":")
            socket.create_connection((host, int(port)), 5).close()


@pytest.mark.parametrize("workers", [None, 2])
def test_a_service_manager_is_told_when_clients_can_connect_and_when_the_server_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int | None
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        settings = [f"storePathRootDir={tmp_path / 'store'}", f"listenPort={free_port_base()}", "haListenPort=0"]
        options = [part for setting in settings for part in ("--set", setting)]
        if workers:
            options = [*options[:-2], "--workers", str(workers)]
        with running("broker", *options, log=tmp_path / "log") as process:
            assert manager.recv(100) == b"READY=1", (tmp_path / "log").read_text()
            assert (tmp_path / "log").read_text().count('{"event": "ready"') == (workers or 1)
            process.terminate()
            assert manager.recv(100) == b"STOPPING=1"
            assert process.wait(60) == 0
            manager.setblocking(False)
            with pytest.raises(BlockingIOError):  # workers say nothing of their own
                manager.recv(100)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_standalone_says_when_it_is_ready_and_ends_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    ready = tmp_path / "ready"
    options = ["--store", str(tmp_path / "store"), "--namesrv-port", "0", "--broker-port", "0"]
    log = tmp_path / "log"
    with running("standalone", *options, "--ready-file", str(ready), log=log) as process:
        wait_until(ready.exists, "ready file")
        assert (tmp_path / "store" / "abort").exists()
        process.send_signal(number)
        assert process.wait(30) == 0, log.read_text()
    assert not ready.exists() and not (tmp_path / "store" / "abort").exists()
    ready_line, ended = map(json.loads, log.read_text().splitlines())
    assert list(ready_line) == ["event", "server", "name", "seconds", "nameServer", "broker", "gRPC", "store"]
    assert (ready_line["event"], ready_line["server"], ready_line["name"]) == ("ready", "standalone", "broker-a")
    assert 0 < ready_line["seconds"] < 60 and ready_line["store"] == str(tmp_path / "store")
    assert ended == {"event": "ended", "server": "standalone", "reason": number.name}


def test_set_takes_any_broker_property_and_warns_of_unknown_ones(tmp_path: Path) -> None:
    with StandaloneProcess({"fileReservedTime": "33", "fileReservdTime": "1"}) as server:
        assert Target.at(server.broker_address).settings()["fileReservedTime"] == "33"
        assert "unknown setting fileReservdTime; did you mean fileReservedTime?" in server.log.read_text()


def test_names_and_places_that_are_set_are_used_and_told(tmp_path: Path) -> None:
    port = free_port_base()
    changes = {"brokerName": "other", "listenPort": str(port), "storePathRootDir": str(tmp_path / "elsewhere")}
    with StandaloneProcess(changes) as server:
        assert server.facts["name"] == "other"
        assert (server.facts["broker"], server.facts["store"]) == (f"127.0.0.1:{port}", f"{tmp_path}/elsewhere")
        assert (tmp_path / "elsewhere" / "abort").exists()
        sent = maxq("produce", "T", text="hello\n", namesrv=server.namesrv_address)
        assert sent.code == 0, sent.err


def test_standalone_reads_a_settings_file_and_options_come_before_it(tmp_path: Path) -> None:
    conf, log, port = tmp_path / "broker.conf", tmp_path / "log", free_port_base()
    conf.write_text(
        f"brokerName=filed\nlistenPort={port}\nstorePathRootDir={tmp_path}/not-here\nnamesrvAddr=192.0.2.1:9876\n"
        "flushDiskType=SYNC_FLUSH\n"
    )
    options = ["-c", str(conf), "--store", str(tmp_path / "here"), "--namesrv-port", "0"]
    ready = tmp_path / "ready"
    with running("standalone", *options, "--ready-file", str(ready), log=log):
        wait_until(ready.exists, "ready file")
        facts = json.loads(log.read_text().splitlines()[-1])
        seen = maxq("admin", "getBrokerConfig", "-b", facts["broker"], namesrv=facts["nameServer"])
    assert (facts["name"], facts["broker"]) == ("filed", f"127.0.0.1:{port}")
    assert facts["store"] == str(tmp_path / "here") and not (tmp_path / "not-here").exists()
    assert "SYNC_FLUSH" in seen.out and str(port + 1) in seen.out, "the replication port lies beside the broker's"
    assert "namesrvAddr is not used" in log.read_text()
    conf.write_text("flushDiskType=SOMETIMES\n")
    wrong = maxq("standalone", *options)
    assert wrong.code == 2 and f"file {conf}: flushDiskType='SOMETIMES'" in wrong.err


def test_messages_outlive_a_restart_of_standalone(tmp_path: Path) -> None:
    server = StandaloneProcess(folder=tmp_path)
    for number in range(2):
        with server:
            sent = maxq("produce", "T", text=f"run {number}\n", namesrv=server.namesrv_address)
            assert sent.code == 0, sent.err
    with server:
        got = maxq("consume", "T", "--group", "G", "--max", "2", namesrv=server.namesrv_address)
    assert sorted(got.out.splitlines()) == ["run 0", "run 1"]


def test_busy_port_is_named(tmp_path: Path, server: StandaloneProcess) -> None:
    port = Target.at(server.broker_address).port
    options = ["--store", str(tmp_path), "--namesrv-port", "0", "--broker-port", str(port)]
    done = maxq("standalone", *options)
    assert done.code == 1 and f"port {port} of 127.0.0.1 (broker) is in use" in done.err.splitlines()[-1]


@pytest.mark.parametrize("ports", [(0, 0), (free_port_base(), 0)])
@pytest.mark.parametrize("host", ["192.0.2.1", "no such host"])
def test_an_address_of_another_machine_is_refused(tmp_path: Path, host: str, ports: tuple[int, int]) -> None:
    with pytest.raises(AddressRefusedError, match=f"'{host}' is no address of this machine; give one that is"):
        maxq_package.Standalone(tmp_path, host, *ports).start()


@pytest.mark.parametrize(
    ("host", "settings"),
    [("0.0.0.0", {}), ("127.0.0.1", {"bindAddress": "0.0.0.0"})],
    ids=["host", "bindAddress"],
)
def test_who_listens_everywhere_gives_clients_an_address_that_others_reach(host: str, settings: dict[str, str]) -> None:
    with maxq_package.Standalone(host=host, settings=settings) as mq:
        for told in (mq.namesrv_address, mq.broker_address):
            assert told.rpartition(":")[0] == own_address()
        for address in (mq.namesrv_address, "127.0.0.1:" + mq.namesrv_address.rpartition(":")[2]):
            sent = maxq("produce", "T", text="hello\n", namesrv=address)
            assert sent.code == 0, sent.err
            assert mq.broker_address in maxq("admin", "clusterList", "--csv", namesrv=address).out


def test_every_ipv6_address_as_host_is_refused_because_clients_cannot_connect_to_it(tmp_path: Path) -> None:
    done = maxq("standalone", "--host", "::", "--store", str(tmp_path / "store"))
    assert done.code == 2 and "the host :: is every IPv6 address" in done.err
    assert "give the one that they can reach" in done.err
    assert not (tmp_path / "store").exists()


def test_a_host_that_is_given_is_told_to_clients_whatever_is_listened_on() -> None:
    with maxq_package.Standalone(host="localhost", settings={"bindAddress": "127.0.0.1"}) as mq:
        assert mq.namesrv_address.startswith("127.0.0.1:")
    own = own_address()
    with maxq_package.Standalone(host=own, settings={"bindAddress": "0.0.0.0"}) as mq:
        assert mq.broker_address.startswith(f"{own}:") and mq.namesrv_address.startswith(f"{own}:")


def test_a_file_in_the_place_of_the_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreRefusedError, match="a file is in the place of the folder"):
        maxq_package.Standalone(tmp_path / "file").start()
    for command in ("check", "messages"):
        done = maxq("store", command, str(tmp_path / "file"))
        assert done.code == 2 and "is a file: give the store's root directory" in done.err


def test_a_ready_file_that_cannot_be_made_is_refused_before_the_start(tmp_path: Path) -> None:
    ready = tmp_path / "nowhere" / "ready"
    done = maxq("standalone", "--store", str(tmp_path / "store"), "--broker-port", "0", "--ready-file", str(ready))
    assert (done.code, done.out) == (2, "")
    assert done.err == f"maxq: the ready file {ready} cannot be made: {ready.parent} is no folder\n"
    assert not (tmp_path / "store").exists()


def test_a_store_without_a_name_is_refused(tmp_path: Path) -> None:
    for words in (["standalone", "--store", "", "--broker-port", "0"], ["store", "check", ""]):
        done = maxq(*words, cwd=tmp_path)
        assert done.code == 2 and "'' names no folder; '.' is the current one" in done.err
    assert not list(tmp_path.iterdir())


def test_second_broker_on_a_store_is_refused(tmp_path: Path, server: StandaloneProcess) -> None:
    done = maxq("standalone", "--store", str(server.store), "--namesrv-port", "0", "--broker-port", "0")
    assert done.code == 1 and str(server.store) in done.err.splitlines()[-1]


def test_bad_settings_name_file_key_value_and_bound(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("listenPort=70000\n")
    done = maxq("broker", "-c", str(conf))
    assert done.code == 2
    assert done.err == f"maxq: file {conf}: listenPort='70000' is not allowed: it must be an integer from 0 to 65535\n"


def test_printed_settings_are_a_settings_file(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=printed\nflushDiskType=SYNC_FLUSH\n")
    printed = maxq("broker", "-c", str(conf), "-p")
    assert printed.code == 0
    assert {"brokerName=printed", "flushDiskType=SYNC_FLUSH"} <= set(printed.out.splitlines())
    again = tmp_path / "again.conf"
    again.write_text(printed.out)
    assert maxq("broker", "-c", str(again), "-p").out.replace(str(again), str(conf)) == printed.out


def test_name_server_and_broker_as_two_processes(tmp_path: Path) -> None:
    conf = tmp_path / "namesrv.conf"
    conf.write_text(f"bindAddress=127.0.0.1\nkvConfigPath={tmp_path / 'kv.json'}\n")
    port, broker_port = free_port_base(), free_port_base()
    ready = [tmp_path / "namesrv.ready", tmp_path / "broker.ready"]
    broker_conf = tmp_path / "broker.conf"
    broker_conf.write_text(
        f"brokerName=alone\nbrokerIP1=127.0.0.1\nlistenPort={broker_port}\nstorePathRootDir={tmp_path / 'store'}\n"
    )
    namesrv = ["namesrv", "-p", str(port), "-c", str(conf), "--ready-file", str(ready[0])]
    broker = ["broker", "-c", str(broker_conf), "-n", f"127.0.0.1:{port}", "--ready-file", str(ready[1])]
    with running(*namesrv, log=tmp_path / "n.log"):
        wait_until(ready[0].exists, "name server is ready")
        with running(*broker, log=tmp_path / "b.log"):
            wait_until(ready[1].exists, (tmp_path / "b.log").read_text())
            found = maxq("admin", "clusterList", "-n", f"127.0.0.1:{port}")
            assert "alone" in found.out, found.err


def test_what_was_changed_of_a_name_server_without_a_settings_file_is_there_when_it_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "namesrv").mkdir()
    # as a Java name server leaves it
    (tmp_path / "namesrv/namesrv.properties").write_text("bindAddress=192.0.2.1\nlistenPort=1\nproductEnvName=center\n")
    command = ["namesrv", "-p", str(free_port_base())]
    address, changed = f"127.0.0.1:{command[-1]}", ("-k", "scanNotActiveBrokerInterval", "-v", "4321")
    for start in range(2):
        ready, log = tmp_path / f"{start}.ready", tmp_path / f"{start}.log"
        with running(*command, "--ready-file", str(ready), log=log):
            wait_until(ready.exists, log.read_text())
            if start == 0:
                assert maxq("admin", "updateNamesrvConfig", *changed, namesrv=address).code == 0
            shown = maxq("admin", "getNamesrvConfig", namesrv=address).out
    assert re.search(r"scanNotActiveBrokerInterval\s+=\s+4321", shown)
    assert facts_of(log.read_text())["settings"] == str(tmp_path / "namesrv/namesrv.properties")


def test_a_server_that_is_ended_for_what_it_touched_says_where_it_was(tmp_path: Path) -> None:
    ready, log = tmp_path / "ready", tmp_path / "log"
    with running("namesrv", "-p", "0", "--ready-file", str(ready), log=log) as process:
        wait_until(ready.exists, log.read_text())
        process.send_signal(signal.SIGBUS)
        assert process.wait(30) == -signal.SIGBUS
    said = log.read_text()
    assert "Bus error" in said and "servers.py" in said


def test_a_port_that_the_system_chose_is_the_one_that_is_told(tmp_path: Path) -> None:
    ready, log = tmp_path / "ready", tmp_path / "log"
    settings = ["brokerIP1=127.0.0.1", "listenPort=0", f"storePathRootDir={tmp_path / 'store'}"]
    options = [word for setting in settings for word in ("--set", setting)]
    with running("broker", *options, "--ready-file", str(ready), log=log):
        wait_until(ready.exists, log.read_text())
        port = facts_of(log.read_text())["port"]
        socket.create_connection(("127.0.0.1", port), 10).close()


@pytest.mark.parametrize(
    ("settings", "known"),
    [
        ({}, {"role": "ASYNC_MASTER", "sends": "wait for no slave"}),
        (
            {
                "enableDLegerCommitLog": "true",
                "dLegerGroup": "g",
                "dLegerSelfId": "n0",
                "dLegerPeers": "n0-127.0.0.1:{}",
            },
            {"role": "member n0 of DLedger group g", "members": "n0-127.0.0.1:{}"},
        ),
        (
            {"bindAddress": "0.0.0.0"},
            {"listensOn": "0.0.0.0 WITHOUT access control: anyone who can reach it may do everything"},
        ),
    ],
)
def test_what_a_broker_says_when_it_is_ready_is_a_line_that_programs_read(
    tmp_path: Path, settings: dict[str, str], known: dict[str, str]
) -> None:
    free = free_port_base()
    own = {"brokerName": "b", "brokerIP1": "127.0.0.1", "listenPort": "0", "storePathRootDir": str(tmp_path / "store")}
    given = own | settings
    options = [f"--set={name}={value.format(free)}" for name, value in given.items()]
    with ServerProcess("b", tmp_path, ["broker", *options]) as server:
        assert (server.facts["server"], server.facts["name"]) == ("broker", "b")
        assert server.facts["store"] == str(tmp_path / "store") and server.facts["port"] > 0
        for fact, value in known.items():
            assert server.facts[fact] == value.format(free)


def test_a_name_server_at_a_terminal_says_it_in_short_lines_for_people(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    ours, its = pty.openpty()
    command = [sys.executable, "-m", "maxq", "namesrv", "-p", "0", "--ready-file", str(ready)]
    environment = {**os.environ, "HOME": str(tmp_path)}  # where no earlier one has left its settings
    process = subprocess.Popen(command, stdout=its, stderr=its, cwd=tmp_path, start_new_session=True, env=environment)
    os.close(its)
    said = b""
    try:
        wait_until(ready.exists, "name server is ready")
        process.terminate()
        with suppress(OSError):  # Linux's way to say that nobody has the terminal's other end
            while piece := os.read(ours, 4096):
                said += piece
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    first, port, listens, remedy, ended = said.decode().splitlines()
    assert re.fullmatch(r"maxq namesrv is ready \(\d+\.\d\d s\)", first)
    assert int(port.removeprefix("  port: ")) > 0, "port 0 takes a free one, and says which"
    assert listens.startswith("  listens on: 127.0.0.1 only") and remedy.startswith(
        "  to reach it from other machines: "
    )
    assert ended == "maxq: the server has ended: SIGTERM"
    assert max(map(len, said.decode().splitlines())) <= 100


def _events(log: Path) -> list[dict[str, Any]]:
    """What servers have said in whole lines."""
    lines = log.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]


def test_workers_are_derived_watched_and_started_again(tmp_path: Path) -> None:
    with maxq_package.Standalone() as mq:
        port = free_port_base(20)
        conf = tmp_path / "broker.conf"
        conf.write_text(
            f"brokerName=w\nbrokerIP1=127.0.0.1\nlistenPort={port}\nstorePathRootDir={tmp_path / 'store'}\n"
        )
        log, ready = tmp_path / "log", tmp_path / "ready"
        command = ["broker", "-c", str(conf), "-n", mq.namesrv_address, "--workers", "2", "--ready-file", str(ready)]
        with running(*command, log=log) as process:
            wait_until(ready.exists, "both workers are ready")
            found = maxq("admin", "clusterList", "--csv", namesrv=mq.namesrv_address).out
            assert "w-0" in found and "w-1" in found and f"127.0.0.1:{port + 10}" in found
            planned = {"event": "worker", "server": "broker", "worker": 1, "name": "w-1"}
            (told,) = (event for event in _events(log) if planned.items() <= event.items())
            assert told["message"].startswith(f"port {port + 10}, store {tmp_path / 'store' / 'worker-1'}, log ")
            os.kill(_pid_of_worker(process.pid, "w-1"), signal.SIGKILL)
            wait_until(lambda: "was killed by signal 9" in log.read_text(), "the death is told")
            again = {"event": "ready", "server": "broker", "name": "w-1"}
            wait_until(lambda: sum(again.items() <= event.items() for event in _events(log)) == 2, "w-1 is ready again")
            process.terminate()
            assert process.wait(30) == 0, log.read_text()


def test_workers_of_a_killed_supervisor_end_cleanly(tmp_path: Path) -> None:
    with maxq_package.Standalone() as mq:
        port = free_port_base(20)
        log, ready = tmp_path / "log", tmp_path / "ready"
        command = [
            "broker", "-n", mq.namesrv_address, "--workers", "2", "--ready-file", str(ready), "--set", "brokerName=w",
            "--set", f"listenPort={port}", "--set", "brokerIP1=127.0.0.1", "--set", f"storePathRootDir={tmp_path}/s",
            "--set", 'initAuthenticationUser={"username":"root","password":"not for ps"}',
        ]  # fmt: skip
        with running(*command, log=log) as process:
            wait_until(ready.exists, "both workers are ready")
            workers = [_pid_of_worker(process.pid, name) for name in ("w-0", "w-1")]
            for pid in workers:
                for shown in ("cmdline", "environ"):
                    assert b"not for ps" not in Path(f"/proc/{pid}/{shown}").read_bytes()
            assert maxq("produce", "T", text="kept\n" * 20, namesrv=mq.namesrv_address).code == 0
            process.kill()
            process.wait()
            try:
                wait_until(lambda: not any(_is_alive(pid) for pid in workers), f"workers end: {log.read_text()}")
            finally:
                for pid in filter(_is_alive, workers):
                    os.kill(pid, signal.SIGKILL)
        for number in range(2):
            store = tmp_path / "s" / f"worker-{number}"
            assert (store / "commitlog").exists() and not (store / "abort").exists(), log.read_text()


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


#: `maxq` on a disk that takes no flush any more once a file says so.
_ON_A_DYING_DISK = """
import os, sys
from maxq.cli.app import run
from maxq.runtime.files.system import SystemMappedRegion
trigger, kind = sys.argv[1], sys.argv[2]
real = SystemMappedRegion.flush
def flush(self, start, end):
    if os.path.exists(trigger) and kind in os.readlink(f"/proc/self/fd/{self._fd}"):
        raise OSError(5, "Input/output error")
    real(self, start, end)
SystemMappedRegion.flush = flush
sys.exit(run(sys.argv[3:]))
"""


@pytest.mark.parametrize(
    ("kind", "service"), [("commitlog", "store: commit log flush"), ("consumequeue", "store: consume queue flush")]
)
def test_server_whose_disk_fails_ends_with_one_line_and_a_code(tmp_path: Path, kind: str, service: str) -> None:
    trigger, ready, log = tmp_path / "trigger", tmp_path / "ready", tmp_path / "log"
    command = [
        sys.executable, "-c", _ON_A_DYING_DISK, str(trigger), kind, "standalone", "--store", str(tmp_path / "store"),
        "--namesrv-port", "0", "--broker-port", "0", "--ready-file", str(ready),
        "--set", "flushCommitLogThoroughInterval=50", "--set", "flushConsumeQueueThoroughInterval=1000",
        "--set", "flushIntervalConsumeQueue=50", "--set", "flushIntervalCommitLog=50",
    ]  # fmt: skip
    with open(log, "wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        wait_until(ready.exists, "ready file")
        namesrv = facts_of(log.read_text())["nameServer"]
        trigger.touch()
        maxq("produce", "T", text="x\n", namesrv=namesrv)
        assert process.wait(30) == 1, log.read_text()
    finally:
        process.kill()
        process.wait()
    last = log.read_text().splitlines()[-1]
    assert last.startswith(f"maxq: {service} failed, the server has ended: flushing "), log.read_text()
    assert "[Errno 5] Input/output error" in last and "repair the disk and start again" in last
    assert not ready.exists() and (tmp_path / "store" / "abort").exists()


def _pid_of_worker(parent: int, name: str) -> int:
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        if f"brokerName={name}" in Path(f"/proc/{child}/cmdline").read_text():
            return int(child)
    raise AssertionError(f"no worker {name}")


def test_standalone_embeds_and_cleans_up() -> None:
    with maxq_package.Standalone(settings={"brokerName": "embedded"}) as mq:
        folder = mq.store
        found = maxq("admin", "clusterList", namesrv=mq.namesrv_address)
        assert "embedded" in found.out, found.err
        assert folder.exists()
    assert not folder.exists()


def test_embedded_standalone_says_which_port_is_in_use() -> None:
    with maxq_package.Standalone() as mq:
        port = int(mq.namesrv_address.rpartition(":")[2])
        with pytest.raises(PortInUseError, match=f"port {port} of 127.0.0.1 \\(name server\\) is in use"):
            maxq_package.Standalone(namesrv_port=port).start()


def test_an_ipv6_address_is_served_stored_and_shown(tmp_path: Path) -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    with maxq_package.Standalone(tmp_path, host="::1") as mq:
        assert mq.namesrv_address.startswith("[::1]:") and mq.broker_address.startswith("[::1]:")
        address, names = mq.broker_address, mq.namesrv_address
        assert maxq("produce", "T", "--key", "k", text="six\n", namesrv=names).code == 0
        got = maxq("consume", "T", "--group", "G", "--max", "1", "--json", namesrv=names).out
        found = maxq("admin", "queryMsgByKey", "-t", "T", "-k", "k", "--json", namesrv=names).out
    for shown in (json.loads(got), *json.loads(found)):
        assert shown["storeHost"] == address and shown["bornHost"].startswith("[::1]:") and len(shown["msgId"]) == 56
    (stored,) = maxq("store", "messages", str(tmp_path), "--json").out.splitlines()
    assert json.loads(stored)["storeHost"] == address and json.loads(stored)["sysFlag"] & 0x30 == 0x30
    assert maxq("store", "check", str(tmp_path)).code == 0


@pytest.mark.parametrize("whose", ["name server", "broker", "replication"])
async def test_a_port_that_was_taken_after_it_had_been_chosen_is_chosen_anew(tmp_path: Path, whose: str) -> None:
    server = StandaloneServer(tmp_path, disk=SystemDisk(), clock=SystemClock(), rng=SystemRng())
    address = server.namesrv_address if whose == "name server" else server.broker_address
    port = int(address.rpartition(":")[2]) + (whose == "replication")
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        await server.start()
        try:
            assert address not in (server.namesrv_address, server.broker_address)
            found = await asyncio.to_thread(maxq, "admin", "clusterList", namesrv=server.namesrv_address)
            assert server.broker_address in found.out, found.err
        finally:
            await server.shutdown()


def test_two_standalones_live_side_by_side() -> None:
    with maxq_package.Standalone() as one, maxq_package.Standalone() as two:
        assert one.namesrv_address != two.namesrv_address
        for mq in (one, two):
            assert maxq("produce", "T", text="x\n", namesrv=mq.namesrv_address).code == 0
