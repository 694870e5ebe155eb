"""SQL92 filters: RocketMQ's Java client and ours, against both brokers."""

import asyncio
from typing import Any

import pytest

from maxq.api import (
    ConsumeFromWhere,
    MessageExt,
    MessageSelector,
    async_lite_pull_consumer,
    async_push_consumer,
)
from tests.interop.conftest import Deployment
from tests.interop.processes.java_driver import DriverError, JavaDriver

pytestmark = pytest.mark.interop
COUNT = 40
SQL = "number BETWEEN 10 AND 19 AND number <> 13 OR TAGS = 'TagX' AND number IS NOT NULL"
WANTED = sorted([*(n for n in range(10, 20) if n != 13), 0, 1])


@pytest.fixture(scope="module")
def filtering(deployment: Deployment, driver: JavaDriver) -> Deployment:
    """With filters on; topic T_sql holds messages whose property `number` is 0 … 39, and two with tag TagX."""
    address = deployment.broker.address
    said = driver.mqadmin("updateBrokerConfig", "-b", address, "-k", "enablePropertyFilter", "-v", "true")
    assert "success" in said
    driver.send(deployment.namesrv, "T_sql", COUNT)
    driver.send(deployment.namesrv, "T_sql", 2, tag="TagX")
    return deployment


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(int(row["properties"]["number"]) for row in rows)


def test_java_push_consumer_gets_what_its_expression_says(filtering: Deployment, driver: JavaDriver) -> None:
    assert numbers(driver.consume(filtering.namesrv, "T_sql", len(WANTED), sql=SQL)) == WANTED


def test_java_push_consumer_is_woken_by_a_message_that_matches(filtering: Deployment, driver: JavaDriver) -> None:
    with driver.client(
        "consumer", namesrv=filtering.namesrv, topic="T_sql", group="CG_sql_wake", sql="number = 7 AND TAGS = 'Late'"
    ) as consumer:
        driver.send(filtering.namesrv, "T_sql", 10, tag="Late")
        assert numbers(driver.call("received", name=consumer, count=1, seconds=60)) == [7]


def test_java_lite_pull_consumer_gets_what_its_expression_says(filtering: Deployment, driver: JavaDriver) -> None:
    with driver.client(
        "pull", namesrv=filtering.namesrv, topic="T_sql", group="CG_sql_pull", sql=SQL, assign=False
    ) as consumer:
        assert numbers(driver.call("poll", name=consumer, count=len(WANTED), seconds=60)) == WANTED


def test_java_push_consumer_with_a_wrong_expression_does_not_start(filtering: Deployment, driver: JavaDriver) -> None:
    with (
        pytest.raises(DriverError, match=r"CODE: 23"),
        driver.client("consumer", namesrv=filtering.namesrv, topic="T_sql", group="CG_sql_wrong", sql="number >"),
    ):
        pass


def ours(messages: list[MessageExt]) -> list[int]:
    return sorted(int(message.properties["number"]) for message in messages)


async def test_our_push_consumer_gets_what_its_expression_says(filtering: Deployment, driver: JavaDriver) -> None:
    got: list[MessageExt] = []
    full = asyncio.Event()

    def listen(messages: list[MessageExt], _: object) -> None:
        got.extend(messages)
        if len(got) >= len(WANTED):
            full.set()

    consumer = async_push_consumer(
        "CG_ours_sql", filtering.namesrv, listen, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    consumer.subscribe("T_sql", MessageSelector.by_sql(SQL))
    async with consumer, asyncio.timeout(60):
        await full.wait()
    assert ours(got) == WANTED


async def test_our_lite_pull_consumer_gets_what_its_expression_says(filtering: Deployment, driver: JavaDriver) -> None:
    consumer = async_lite_pull_consumer(
        "CG_ours_sql_pull", filtering.namesrv, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    await consumer.subscribe("T_sql", MessageSelector.by_sql(SQL))
    got: list[MessageExt] = []
    async with consumer, asyncio.timeout(60):
        while len(got) < len(WANTED):
            got += await consumer.poll(10_000)
    assert ours(got) == WANTED
