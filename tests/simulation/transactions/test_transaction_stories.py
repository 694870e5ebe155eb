"""Stories of transactions while brokers die, and every seed that ever failed."""

import asyncio

import pytest

from maxq.broker.tables.topic.topic_validator import TRANS_OP_HALF_TOPIC
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.testing.simulation import SimWorld, run_simulation
from tests.simulation.told import check, marks, seeds
from tests.simulation.transactions.transaction_story import Opened, TransactionNode, TransactionStory

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = 6


@pytest.mark.parametrize("seed", seeds(SEEDS, "transaction"))
def test_each_transaction_ends_once_and_as_its_producer_wants(seed: int) -> None:
    check(seed, "transaction")


def test_everything_happened() -> None:
    wanted = {"ending: kill", "ending: operation", "ending: moment", "committed", "answered a check"}
    assert wanted - set(marks(seeds(SEEDS, "transaction"), "transaction")) == set()


def test_the_end_of_a_half_message_that_was_lost_is_not_that_of_the_next_one_with_its_number() -> None:
    """A loss of power took the half message, and left the op message behind it."""
    story = TransactionStory(0)
    bodies: list[bytes] = []

    async def lost_half(world: SimWorld) -> None:
        node = TransactionNode(world, story.settings, story)
        await node.open()
        op = MessageExtBrokerInner(TRANS_OP_HALF_TOPIC, 0, b"0,", {"TAGS": "d"}, born_host=bytes(8))
        assert node.store.put_message(op).ok
        await node.close()

    async def next_half(world: SimWorld) -> None:
        node = TransactionNode(world, story.settings, story)
        await node.open()
        result = node.send("K1", b"mine")
        await node.close()
        node = TransactionNode(world, story.settings, story)
        await node.open()
        node.end(Opened("K1", True, result.queue_offset, result.physical_offset), plainly=False, waits=False)
        await asyncio.sleep(1)
        bodies.extend(message.body for message in node.delivered())
        await node.close()

    for life in (lost_half, next_half):
        run_simulation(life, seed=1, disk=story.disk, clock=story.clock)
        story.disk = story.disk.boot()
    assert bodies == [b"mine"]
