"""All commands of mqadmin 5.5.0, and of 4.9.8, against our servers and Java's.

What they print is the same, but for what `tests/data/mqadmin/differences.json` lists with the reason.
`java-VERSION.json` beside it is what they print for Java's servers of 5.5.0; MAXQ_RECORD=1 writes it anew.
"""

import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from maxq.api import (
    Admin,
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PushConsumer,
)
from maxq.errors import MaxQError
from tests.interop.conftest import Deployment
from tests.interop.processes import peers
from tests.interop.processes.mqadmin_session import MqAdminSession, comparable, compiled, old_steps, said, steps
from tests.interop.processes.servers import wait_until

pytestmark = pytest.mark.interop

DATA = Path(__file__).parents[2] / "data" / "mqadmin"
SETTINGS = {"traceTopicEnable": "true"}
VERSIONS = ("5.5.0", "4.9.8")  # of mqadmin
PROGRESS_SECONDS = 90
WARM_SECONDS = 120


@pytest.fixture(scope="module", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """Of mqadmin; skipped where it cannot be had."""
    try:
        compiled(request.param)
    except peers.PeerUnavailableError as error:
        pytest.skip(f"interop: {error}")
    return str(request.param)


@pytest.fixture(scope="module", params=["ours", "all-java"])
def servers(request: pytest.FixtureRequest, version: str, jars: Path, scratch: Path) -> Iterator[Deployment]:
    """A name server and a broker with a trace topic; new ones for each version."""
    running = Deployment(request.param, scratch / f"{request.param}-{version}", jars)
    with contextlib.ExitStack() as stack:
        stack.callback(running.stop)
        yield running.start(SETTINGS)


@pytest.fixture(scope="module")
def traffic(servers: Deployment) -> Iterator[dict[str, str]]:
    """A traced message in topic Alpha, and a running member of CG_live and of PG_live."""
    with contextlib.ExitStack() as stack:
        with MqAdminSession("5.5.0", servers.broker.folder / "mqadmin-first", servers.namesrv) as first:
            for topic in ("Alpha", "Live"):
                first.run("updateTopic", "-b", servers.broker.address, "-t", topic, "-r", "4", "-w", "4")
            for group in ("CG_live", "CG_offline"):
                first.run("updateSubGroup", "-b", servers.broker.address, "-g", group)

        def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
            return ConsumeResult.SUCCESS

        consumer = PushConsumer(
            "CG_live", servers.namesrv, listen, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        )
        consumer.subscribe("Live", "tag || other")
        stack.enter_context(consumer)
        with Producer("PG_traced", servers.namesrv, enable_trace=True) as tracing:
            place = MessageQueue("Alpha", "broker-a", 0)
            sent = tracing.send(Message("Alpha", b"first", {"KEYS": "K0", "TAGS": "tag"}), queue=place)
        producer = stack.enter_context(Producer("PG_live", servers.namesrv))
        producer.send(Message("Live", b"x", {"TAGS": "tag"}), queue=MessageQueue("Live", "broker-a", 0))
        progress = stack.enter_context(Admin(servers.namesrv))
        wait_until(lambda: has_progress(progress), PROGRESS_SECONDS, "CG_live has committed on both of its topics")
        yield {"offset_id": sent.offset_msg_id, "unique_key": sent.msg_id, "client_id": consumer.client_id}


def has_progress(admin: Admin) -> bool:
    """Of the message, and of the retry topic, which the broker makes for the member and the member finds later."""
    try:
        offsets = admin.groups.consume_stats("CG_live").offset_table
    except MaxQError:
        return False
    consumed = sum(offset.consumer_offset for offset in offsets.values())
    return consumed == 1 and {queue.topic for queue in offsets} == {"Live", "%RETRY%CG_live"}


def test_mqadmin_prints_the_same_for_our_servers_and_javas(
    servers: Deployment, traffic: dict[str, str], version: str, tmp_path: Path
) -> None:
    found: dict[str, list[str]] = {}
    todo = [*steps(servers.broker.address, tmp_path, **traffic), *old_steps(servers.broker.address)]
    names = {
        servers.broker.address: "BROKER", servers.namesrv: "NAMESRV",
        str(tmp_path): "FOLDER", str(servers.broker.folder): "HOME",
        traffic["client_id"]: "CLIENT", traffic["unique_key"]: "KEY", traffic["offset_id"]: "OFFSETID",
    }  # fmt: skip
    with MqAdminSession(version, tmp_path / "mqadmin", servers.namesrv) as session:
        wait_until(lambda: is_warm(session), WARM_SECONDS, "a JVM that has just started asks within mqadmin's own 5 s")
        for one in todo:
            text = said(session, one, servers.namesrv)
            (tmp_path / "raw.txt").open("a").write(f"=== {one.arguments}\n{text}\n")
            found[one.name] = comparable(text, one.view, names)
    java_data = DATA / f"java-{version}.json"
    if os.environ.get("MAXQ_RECORD") and servers.mixture == "all-java":
        java_data.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    java = json.loads(java_data.read_text())
    expected = json.loads((DATA / "differences.json").read_text()) if servers.mixture == "ours" else {}
    views = {one.name: one.view for one in todo}
    different = {name for name in java if not same(views[name], found[name], java[name])}
    known = {name for name, entry in expected.items() if version in entry["versions"]}
    assert different == known, json.dumps(
        {name: {"java": java.get(name), "here": found.get(name)} for name in different ^ known},
        indent=1,
        ensure_ascii=False,
    )


def is_warm(session: MqAdminSession) -> bool:
    """Is it answered in time? The first command of the script changes something, and what is said later depends on it:
    classes that are still loaded, and connections that are still made, are not what is compared."""
    return "RemotingTimeoutException" not in session.run("clusterList")


def same(view: str, here: list[str], java: list[str]) -> bool:
    """Is everything of Java's here? Servers of ours may know more settings and figures."""
    return set(here) >= set(java) if view == "keys" else set(here) == set(java)


def test_the_steps_are_all_commands_of_mqadmin(tmp_path: Path) -> None:
    """Those that the manual names; no Java is needed."""
    manual = (Path(__file__).parents[3] / "docs/reference/admin-commands.md").read_text()
    named = set(re.findall(r"^## (\w+)", manual, re.MULTILINE))
    done = {one.command for one in steps("b:1", tmp_path, "O", "K", "C")}
    assert len(done) == 96 and done <= named
