"""The pages on upgrades and on master and slave, as an operator follows them: real processes, under a producer."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from maxq.api import Message, async_lite_pull_consumer, async_producer
from maxq.client.producer.producer import Producer
from maxq.client.results.send_result import SendStatus
from tests.integration.client.helpers import FROM_FIRST
from tests.integration.processes.ha_torture_cluster import Cluster

TOPIC = "Planned"
PATIENCE_MS = 20_000


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    made = Cluster(tmp_path)
    await made.start()
    yield made
    await made.end()


class Sender:
    """Sends one message after the other; each must be acknowledged within its time-out."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.acknowledged: list[bytes] = []
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            body = b"%d" % len(self.acknowledged)
            result = await self._producer.send(Message(TOPIC, body), timeout_ms=PATIENCE_MS)
            if result.send_status is SendStatus.SEND_OK:
                self.acknowledged.append(body)

    async def sent_more(self, count: int = 10) -> None:
        """Return when so many more are acknowledged; raises what a send raised."""
        wanted = len(self.acknowledged) + count
        while len(self.acknowledged) < wanted:
            if self._task.done():
                self._task.result()
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def read_all(cluster: Cluster, wanted: set[bytes]) -> Counter[bytes]:
    """Everything a new group gets until it has what is wanted."""
    consumer = async_lite_pull_consumer("readers", cluster.name_server_address, consume_from_where=FROM_FIRST)
    await consumer.subscribe(TOPIC)
    seen: Counter[bytes] = Counter()
    async with asyncio.timeout(PATIENCE_MS / 1000), consumer:
        while not wanted <= seen.keys():
            seen.update(message.body for message in await consumer.poll(500))
    return seen


async def test_a_pair_is_restarted_member_by_member_and_no_send_fails(cluster: Cluster) -> None:
    async with async_producer("planned", cluster.name_server_address, poll_name_server_interval=500) as producer:
        sender = Sender(producer)
        await sender.sent_more()
        for member in (cluster.slave, cluster.master):
            await member.stop()
            await member.start()
            await sender.sent_more()
        await sender.stop()
        seen = await read_all(cluster, set(sender.acknowledged))
    assert set(sender.acknowledged) <= seen.keys()


async def test_a_slave_is_made_the_master_by_hand_and_the_old_master_its_slave(cluster: Cluster) -> None:
    async with async_producer("planned", cluster.name_server_address, poll_name_server_interval=500) as producer:
        sender = Sender(producer)
        await sender.sent_more()
        await cluster.master.stop()
        await cluster.slave.stop()
        cluster.slave.configure({"brokerRole": "SYNC_MASTER", "brokerId": "0", "haMasterAddress": ""})
        cluster.master.configure({"brokerRole": "SLAVE", "brokerId": "1"})
        await cluster.slave.start()
        await cluster.master.start()
        await sender.sent_more()
        await sender.stop()
        seen = await read_all(cluster, set(sender.acknowledged))
    assert set(sender.acknowledged) <= seen.keys()
    await cluster.slave.stop()
    await cluster.master.stop()
    master, slave = cluster.slave.log(), cluster.master.log()
    assert slave.first_difference(master) is None
    assert slave.end == master.end
