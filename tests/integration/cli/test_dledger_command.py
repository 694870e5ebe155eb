"""`maxq dledger`: three bare servers as processes, and the client's commands."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from maxq.testing.server_process import ServerProcess
from tests.integration.cli.harness import maxq
from tests.interop.processes.servers import free_port_base, wait_until
from tests.json_output import check_output

MEMBERS = ("n0", "n1", "n2")


@pytest.fixture
def group(tmp_path: Path) -> Iterator[tuple[list[str], dict[str, ServerProcess]]]:
    port = free_port_base()
    peers = ";".join(f"{member}-127.0.0.1:{port + number}" for number, member in enumerate(MEMBERS))
    options = ["dledger", "--group", "g", "--peers", peers]
    more = ["--base-dir", str(tmp_path), "--data-file-size", "65536"]
    servers = {member: ServerProcess(member, tmp_path, [*options, "--id", member, *more]) for member in MEMBERS}
    for server in servers.values():
        server.start()
    yield options, servers
    for server in servers.values():
        server.stop()


def test_what_was_appended_is_there_when_the_leader_was_killed(
    group: tuple[list[str], dict[str, ServerProcess]],
) -> None:
    options, servers = group
    index, position = maxq(*options, "append", "first").out.split()
    assert int(position) > 0
    roles: dict[str, str] = {}

    def settled() -> bool:
        """Two members elect a leader before the third one is there, which follows when the leader has reached it."""
        rows = json.loads(maxq(*options, "status", "--json").out)
        check_output("dledger status", rows)
        roles.update((row["member"], row["role"]) for row in rows)
        return sorted(row["role"] for row in rows) == ["FOLLOWER", "FOLLOWER", "LEADER"]

    wait_until(settled, 30, "one leads and two follow")
    assert list(roles) == list(MEMBERS)
    to = next(member for member in MEMBERS if roles[member] == "FOLLOWER")
    assert f"{to} leads group g" in maxq(*options, "transfer", to).out
    servers[to].kill()
    assert len(maxq(*options, "append", text="second\nthird\n").out.splitlines()) == 2
    lines = maxq(*options, "get", index, "--count", "9").out.splitlines()
    assert [line.split("\t")[3] for line in lines if line.split("\t")[3]] == ["first", "second", "third"]
    servers[to].start()


def test_a_member_that_is_no_peer_is_refused(tmp_path: Path) -> None:
    done = maxq("dledger", "--peers", "n0-127.0.0.1:1", "--id", "n7", "--base-dir", str(tmp_path))
    assert done.code == 2
    assert "dLegerSelfId=n7: no member of dLegerPeers=n0-127.0.0.1:1" in done.err
