"""Java's consumers join and leave a group while Java's producer sends: nothing is lost.

How much comes twice when queues change hands is Java's consumers' own: a new member begins where the old one has
committed, which it does when it gives a queue up, and every five seconds. So it is printed, beside the same with Java's
broker, and not judged.
"""

from collections import Counter
from pathlib import Path

import pytest

from tests.interop.conftest import Deployment
from tests.interop.processes.java_driver import JavaDriver
from tests.interop.processes.servers import wait_until

pytestmark = pytest.mark.interop

TOPIC, GROUP = "Rebalanced", "CG_rebalanced"
JOINS = 4
ENOUGH = 30  # messages that a new member gets before it leaves again
PATIENCE = 90


@pytest.mark.parametrize("mixture", ["ours", "all-java"])
def test_members_come_and_go_while_messages_arrive(
    mixture: str, driver: JavaDriver, jars: Path, tmp_path: Path
) -> None:
    deployment = Deployment(mixture, tmp_path, jars)
    received: Counter[str] = Counter()
    try:
        namesrv = deployment.start().namesrv
        driver.send(namesrv, TOPIC, 1)  # makes the topic
        consumer = {"namesrv": namesrv, "topic": TOPIC, "group": GROUP, "expression": "*"}
        with (
            driver.client("consumer", **consumer) as stays,
            driver.client("producer", group="PG_rebalanced", namesrv=namesrv) as producer,
        ):
            driver.call("steadyStart", name=producer, topic=TOPIC, threads=2, intervalMs=10)
            for _ in range(JOINS):
                with driver.client("consumer", **consumer) as guest:
                    driver.call("received", name=guest, count=ENOUGH, seconds=PATIENCE)
                    rows = driver.call("close", name=guest)
                assert len(rows) >= ENOUGH, f"{guest} got {len(rows)} messages"
                received.update(row["body"] for row in rows)
            sent = driver.call("steadyStop", name=producer)
            acknowledged = set(sent["acknowledged"])

            def all_are_here() -> bool:
                rows = driver.call("received", name=stays, count=0, seconds=0)
                return acknowledged <= received.keys() | {row["body"] for row in rows}

            wait_until(all_are_here, PATIENCE, "every acknowledged message is received")
            received.update(row["body"] for row in driver.call("close", name=stays))
        twice = sum(received[body] - 1 for body in acknowledged)
        print(f"{mixture}: {len(acknowledged)} messages, {twice} twice, {len(sent['failures'])} sends failed")
        assert sent["failures"] == []
    finally:
        deployment.stop()
