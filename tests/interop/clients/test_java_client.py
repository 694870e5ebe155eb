"""RocketMQ's Java client 5.5.0, unmodified, against every mixture of servers."""

import json
import time
from typing import Any

import pytest

from tests.interop.conftest import Deployment
from tests.interop.processes.java_driver import JavaDriver
from tests.interop.processes.servers import wait_until

pytestmark = pytest.mark.interop
COUNT = 40
JOIN_SECONDS = 60  # two rebalances of a Java client, and a busy machine


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(int(row["body"].split("|")[1]) for row in rows)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_every_acknowledged_message_arrives_with_all_its_fields(
    deployment: Deployment, driver: JavaDriver, mode: str
) -> None:
    topic = f"T_{mode}"
    sent = driver.send(deployment.namesrv, topic, COUNT, mode, tag="TagA")
    assert [row["status"] for row in sent] == ["SEND_OK"] * COUNT
    received = driver.consume(deployment.namesrv, topic, COUNT)
    assert numbers(received) == list(range(COUNT))
    places = {row["msgId"]: (row["queueId"], row["queueOffset"], row["offsetMsgId"]) for row in sent}
    for row in received:
        number = int(row["body"].split("|")[1])
        assert places[row["msgId"]] == (row["queueId"], row["queueOffset"], row["offsetMsgId"])
        assert (row["tags"], row["keys"], row["flag"]) == ("TagA", f"{topic}-key-{number}", number % 7)
        assert row["properties"]["number"] == str(number)
        assert row["storeHost"] == deployment.broker.address
        assert row["bornHost"].startswith("127.0.0.1:")


def test_oneway_messages_arrive(deployment: Deployment, driver: JavaDriver) -> None:
    driver.send(deployment.namesrv, "T_oneway", COUNT, "oneway")
    assert numbers(driver.consume(deployment.namesrv, "T_oneway", COUNT)) == list(range(COUNT))


def test_a_batch_takes_consecutive_places_of_one_queue(deployment: Deployment, driver: JavaDriver) -> None:
    driver.mqadmin(
        "updateTopic", "-n", deployment.namesrv, "-c", "DefaultCluster", "-t", "T_batch", "-r", "2", "-w", "2"
    )
    (sent,) = driver.send(deployment.namesrv, "T_batch", COUNT, "batch", size=300)
    received = driver.consume(deployment.namesrv, "T_batch", COUNT)
    assert numbers(received) == list(range(COUNT))
    assert {row["queueId"] for row in received} == {sent["queueId"]}
    assert sorted(row["queueOffset"] for row in received) == list(
        range(sent["queueOffset"], sent["queueOffset"] + COUNT)
    )
    assert sent["msgId"].split(",") == [row["msgId"] for row in sorted(received, key=lambda row: row["queueOffset"])]


def test_large_bodies_are_compressed_and_come_back_whole(deployment: Deployment, driver: JavaDriver) -> None:
    driver.send(deployment.namesrv, "T_large", 3, size=100_000)
    received = driver.consume(deployment.namesrv, "T_large", 3)
    assert [len(row["body"]) for row in received] == [100_000] * 3


def test_orderly_consumer_sees_each_queue_in_order(deployment: Deployment, driver: JavaDriver) -> None:
    driver.send(deployment.namesrv, "T_orderly", COUNT, "orderly")
    received = driver.consume(deployment.namesrv, "T_orderly", COUNT, orderly=True)
    assert numbers(received) == list(range(COUNT))
    for queue in {row["queueId"] for row in received}:
        in_queue = [int(row["body"].split("|")[1]) for row in received if row["queueId"] == queue]
        assert in_queue == sorted(in_queue)


def test_tag_expression_filters(deployment: Deployment, driver: JavaDriver) -> None:
    for tag in ("TagA", "TagB", "TagC"):
        driver.send(deployment.namesrv, "T_tags", 5, tag=tag, text=tag)
    received = driver.consume(deployment.namesrv, "T_tags", 10, expression="TagA || TagC")
    assert sorted(row["tags"] for row in received) == ["TagA"] * 5 + ["TagC"] * 5


def test_broadcasting_gives_every_member_everything(deployment: Deployment, driver: JavaDriver) -> None:
    driver.send(deployment.namesrv, "T_broadcast", COUNT)
    options = {
        "namesrv": deployment.namesrv,
        "topic": "T_broadcast",
        "group": "CG_broadcast",
        "expression": "*",
        "broadcast": True,
    }
    with driver.client("consumer", **options) as one, driver.client("consumer", **options) as two:
        for name in (one, two):
            assert numbers(driver.call("received", name=name, count=COUNT, seconds=60)) == list(range(COUNT))


def test_two_members_share_the_queues_and_a_restarted_one_goes_on(deployment: Deployment, driver: JavaDriver) -> None:
    options = {"namesrv": deployment.namesrv, "topic": "T_shared", "group": "CG_shared", "expression": "*"}
    driver.send(deployment.namesrv, "T_shared", COUNT)
    with driver.client("consumer", **options) as one, driver.client("consumer", **options) as two:
        # Both have joined once each has got some of what is sent: the broker tells members of each other.
        parts: list[set[int]] = [set(), set()]
        end = time.monotonic() + JOIN_SECONDS
        round_number = 0
        while not all(parts) and time.monotonic() < end:
            round_number += 1
            driver.send(deployment.namesrv, "T_shared", 8, text=f"round-{round_number}")
            for part, name in zip(parts, (one, two), strict=True):
                rows = driver.call("received", name=name, count=1, seconds=1)
                part.update(row["queueId"] for row in rows if row["body"].startswith(f"round-{round_number}"))
        assert all(parts), parts
        total = COUNT + 8 * round_number

        def seen() -> set[str]:
            rows = [row for name in (one, two) for row in driver.call("received", name=name, count=0, seconds=0)]
            return {row["msgId"] for row in rows}

        wait_until(lambda: len(seen()) == total, JOIN_SECONDS, "both together have got everything")
    driver.send(deployment.namesrv, "T_shared", 5, text="late")
    with driver.client("consumer", **options) as again:
        rows = driver.call("received", name=again, count=5, seconds=60)
    assert sorted(row["body"] for row in rows) == [f"late|{number}|" for number in range(5)]


@pytest.mark.parametrize("assign", [True, False], ids=["assign", "subscribe"])
def test_lite_pull_polls_seeks_and_commits(deployment: Deployment, driver: JavaDriver, assign: bool) -> None:
    topic = f"T_pull_{assign}"
    driver.send(deployment.namesrv, topic, COUNT, "orderly")
    options = {
        "namesrv": deployment.namesrv,
        "topic": topic,
        "group": f"CG_{topic}",
        "expression": "*",
        "assign": assign,
    }
    with driver.client("pull", **options) as consumer:
        rows = driver.call("poll", name=consumer, count=COUNT, seconds=60)
        assert numbers(rows) == list(range(COUNT))
        in_queue = sum(row["queueId"] == 0 for row in rows)
        assert driver.call("commit", name=consumer, topic=topic, queueId=0) == in_queue
        driver.call("seek", name=consumer, topic=topic, queueId=0, offset=in_queue - 2)
        again = driver.call("poll", name=consumer, count=2, seconds=60)
        assert [(row["queueId"], row["queueOffset"]) for row in again] == [(0, in_queue - 2), (0, in_queue - 1)]


def test_vip_channel_reaches_the_same_broker(deployment: Deployment, driver: JavaDriver) -> None:
    sent = driver.send(deployment.namesrv, "T_vip", 5, vip=True)
    assert [row["status"] for row in sent] == ["SEND_OK"] * 5
    assert len(driver.consume(deployment.namesrv, "T_vip", 5, vip=True)) == 5


def test_tls_on_the_same_port(deployment: Deployment, driver: JavaDriver) -> None:
    sent = driver.send(deployment.namesrv, "T_tls", 5, tls=True)
    assert [row["status"] for row in sent] == ["SEND_OK"] * 5
    assert len(driver.consume(deployment.namesrv, "T_tls", 5, tls=True)) == 5


def test_messages_and_offsets_outlive_a_broker_restart(deployment: Deployment, driver: JavaDriver) -> None:
    namesrv = deployment.namesrv
    driver.send(namesrv, "T_restart", COUNT)
    options = {"namesrv": namesrv, "topic": "T_restart", "group": "CG_T_restart", "expression": "*"}
    with driver.client("consumer", **options) as consumer:
        assert len(driver.call("received", name=consumer, count=COUNT, seconds=60)) == COUNT

        def is_committed() -> bool:  # what its listener has just got when it is closed would come again
            said = driver.mqadmin("consumerProgress", "-g", "CG_T_restart", "-n", namesrv)
            return "Consume Diff Total: 0" in said

        wait_until(is_committed, 60, "the group's offsets are committed")
    deployment.broker.stop()
    deployment.start_broker()
    driver.send(deployment.namesrv, "T_restart", 5, text="after")
    received = driver.consume(deployment.namesrv, "T_restart", 5)
    assert sorted(row["body"] for row in received) == [f"after|{number}|" for number in range(5)]
    route = json.loads(
        driver.mqadmin("topicRoute", "-n", deployment.namesrv, "-t", "T_restart").replace('0:"', '"0":"')
    )
    assert route["brokerDatas"][0]["brokerAddrs"] == {"0": deployment.broker.address}
