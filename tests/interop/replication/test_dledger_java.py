"""DLedger groups of brokers, Java's of both releases and ours, each kind as leader, with kills; Java's clients send and
consume."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.conftest import or_skip
from tests.interop.processes.dledger_group import DLedgerGroup
from tests.interop.processes.java_driver import DriverError, JavaDriver
from tests.interop.processes.peers import OLDER_ROCKETMQ_VERSION, ROCKETMQ_VERSION, rocketmq_jars
from tests.interop.processes.servers import wait_until

pytestmark = pytest.mark.interop
COUNT = 60
KINDS = (("java", "maxq", "maxq"), ("java", "java", "maxq"))
GROUPS = [
    pytest.param(version, kinds, id=f"{version}-{'-'.join(kinds)}")
    for version in (ROCKETMQ_VERSION, OLDER_ROCKETMQ_VERSION)
    for kinds in KINDS
]
SEND_SECONDS = 90
READ_SECONDS = 150  # a reader that finds no master when it starts looks again after 20 s, and after 30 s for a route
LOOK_SECONDS = 30


@pytest.fixture(scope="module")
def group(version: str, kinds: tuple[str, str, str], scratch: Path, driver: JavaDriver) -> Iterator[DLedgerGroup]:
    jars = or_skip(lambda: rocketmq_jars(version))
    running = DLedgerGroup(scratch / "-".join((version, *kinds)), kinds, jars)
    try:
        running.start()
        running.leader()
        yield running
    finally:
        running.stop()


class Story:
    """What was sent to one topic, and what must be read from it."""

    def __init__(self, group: DLedgerGroup, driver: JavaDriver, topic: str) -> None:
        self.group = group
        self.driver = driver
        self.topic = topic
        self.rounds = 0

    def send(self) -> None:
        """COUNT messages more; a producer that has not heard of the new master yet is asked again."""
        end = time.monotonic() + SEND_SECONDS
        while True:
            try:
                self.driver.send(self.group.namesrv, self.topic, COUNT, text=f"r{self.rounds}")
            except DriverError:
                assert time.monotonic() < end, f"{self.topic}: nothing is taken"
                time.sleep(0.5)
                continue
            self.rounds += 1
            return

    def read(self) -> None:
        """Everything that was acknowledged is there, at least once: what was sent again may come again."""
        wanted = {f"r{number}|{one}|" for number in range(self.rounds) for one in range(COUNT)}
        options = {"topic": self.topic, "group": f"CG_{self.topic}_{self.rounds}", "expression": "*"}
        end, count = time.monotonic() + READ_SECONDS, len(wanted)
        with self.driver.client("consumer", namesrv=self.group.namesrv, **options) as consumer:
            while True:
                rows = self.driver.call("received", name=consumer, count=count, seconds=LOOK_SECONDS)
                missing = sorted(wanted - {row["body"] for row in rows})
                if not missing:
                    return
                where = f"{self.topic}, {self.group.kinds}, {self.group.leader()} leads"
                assert time.monotonic() < end, f"{where}: {len(rows)} came, without {len(missing)}: {missing}"
                count = len(rows) + 1


@pytest.mark.parametrize(("version", "kinds"), GROUPS, scope="module")
@pytest.mark.parametrize("kind", ["maxq", "java"])
def test_a_leader_of_either_kind_is_killed_and_nothing_is_lost(
    group: DLedgerGroup, driver: JavaDriver, kind: str
) -> None:
    story = Story(group, driver, f"Killed_{kind}_{'_'.join(group.kinds.values())}")
    leader = group.make_leader(kind)
    story.send()
    group.brokers[leader].kill()
    group.leader(but=leader)
    story.send()
    group.start_member(leader)
    story.send()
    story.read()
    group.equal_logs()


@pytest.mark.parametrize(("version", "kinds"), [(ROCKETMQ_VERSION, KINDS[0])], scope="module")
def test_no_send_of_javas_producer_fails_when_a_leader_of_ours_hands_over(
    group: DLedgerGroup, driver: JavaDriver
) -> None:
    """It asks for the route every 30 s only; the old leader passes on what it sends, to one of ours and to Java's."""
    topic = "Steady"
    first = group.make_leader("maxq")
    second = next(member for member, kind in group.kinds.items() if kind == "maxq" and member != first)
    java = next(member for member, kind in group.kinds.items() if kind == "java")
    driver.send(group.namesrv, topic, 1)
    with driver.client("producer", group=f"PG_{topic}", namesrv=group.namesrv) as producer:
        driver.call("steadyStart", name=producer, topic=topic, threads=3, intervalMs=10)
        for to in (second, java):
            group.hand_over(to)
            before = driver.call("steadyCount", name=producer)
            wait_until(
                lambda before=before: driver.call("steadyCount", name=producer) > before + 100,
                SEND_SECONDS, f"{to} takes what the old leader passes on",
            )  # fmt: skip
        sent = driver.call("steadyStop", name=producer)
    assert sent["failures"] == []
    rows = driver.consume(group.namesrv, topic, len(sent["acknowledged"]) + 1)
    assert set(sent["acknowledged"]) <= {row["body"] for row in rows}


@pytest.mark.parametrize(("version", "kinds"), GROUPS, scope="module")
def test_logs_of_all_members_are_equal_byte_for_byte(group: DLedgerGroup, driver: JavaDriver) -> None:
    story = Story(group, driver, f"Equal_{'_'.join(group.kinds.values())}")
    for kind in ("maxq", "java"):
        group.make_leader(kind)
        story.send()
    story.read()
    log = group.equal_logs()
    assert len({term for _, term, _ in log.entries}) >= 2


@pytest.mark.parametrize(("version", "kinds"), GROUPS, scope="module")
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_each_member_goes_on_as_the_other_kind_with_the_files_it_has(
    how: str, group: DLedgerGroup, driver: JavaDriver
) -> None:
    story = Story(group, driver, f"Exchanged_{how}_{'_'.join(group.kinds.values())}")
    for kind in ("maxq", "java"):
        group.make_leader(kind)
        story.send()
    before = group.equal_logs()
    group.exchange(is_killed=how == "killed")
    story.send()
    if how == "killed":  # Java's queues lack messages for good after a crash; its log has them
        group.make_leader("maxq")
    story.read()
    after = group.equal_logs()
    assert after.entries[: len(before.entries)] == before.entries
    assert after.between(before.start, before.end) == before.between(before.start, before.end)
