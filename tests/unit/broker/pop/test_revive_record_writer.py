"""What is written to the revive topic, and by whom."""

from types import SimpleNamespace
from typing import Any

import pytest

from maxq.broker.identity.broker_identity import BrokerAddress
from maxq.broker.pop.pop_counts import PopCounts
from maxq.broker.pop.revive_record_writer import ReviveRecordWriter
from maxq.broker.processors.refusal import Refusal
from maxq.broker.processors.send.put_hooks import PutHooks
from maxq.codes import ResponseCode
from maxq.config.settings import BrokerSettings
from maxq.protocol.body.pop import AckMsg, PopCheckPoint
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.store_results import PutMessageResult, PutMessageStatus
from tests.unit.broker.bundles_of import environment, messages
from tests.unit.broker.pop.test_check_point_buffer import Clock

LOG: Any = SimpleNamespace(max_physical_offset=77)
POP_TIME, INVISIBLE = 900, 5_000  # the clock stands at 1000
DAY = 86_400_000
ACK = AckMsg("T", "G", 3, 40, POP_TIME, "broker-a", [42])


def check_point(invisible_ms: int = INVISIBLE) -> PopCheckPoint:
    return PopCheckPoint("T", "G", 3, 40, POP_TIME, invisible_ms, "broker-a", [0, 2], 2)


class World:
    """A writer of a broker, and what it has written."""

    def __init__(self, broker_id: int = 0, **properties: str) -> None:
        self.stored: list[Any] = []
        self.status = PutMessageStatus.PUT_OK
        self.hooks = PutHooks()
        self.counts = PopCounts()
        settings, _ = BrokerSettings.from_properties({"reviveQueueNum": "4", **properties}, source="test")
        own = BrokerAddress("C", "broker-a", broker_id, "10.0.0.1", 10911)
        env = environment(settings, own=own, clock=Clock())
        self.records = ReviveRecordWriter(env, messages(store=LOG, hooks=self.hooks), self._put, self.counts)

    async def _put(self, message: MessageExtBrokerInner) -> PutMessageResult:
        self.stored.append(message)
        return PutMessageResult(self.status)

    def deliver_ms(self) -> int:
        return int(self.stored[-1].properties["TIMER_DELIVER_MS"])


@pytest.mark.parametrize(
    ("broker_id", "status"), [(0, PutMessageStatus.PUT_OK), (1, PutMessageStatus.SERVICE_NOT_AVAILABLE)]
)
async def test_an_ack_that_would_go_to_another_group_than_its_check_point_is_refused(
    broker_id: int, status: PutMessageStatus
) -> None:
    world = World(broker_id, timerWheelEnable="false")
    result = await world.records.put_ack(ACK, 0, 1)
    assert result.status is status
    assert len(world.stored) == (broker_id == 0)
    assert result.remark == (
        ""
        if result.ok
        else "its check point was handed over to the log, which this broker, a slave, does not write; ask the master, "
        "when it is back"
    )


async def test_a_check_point_comes_a_second_before_its_time_and_its_acks_come_then() -> None:
    world = World()
    assert (await world.records.put_check_point(check_point(), 6)).ok
    assert world.deliver_ms() == POP_TIME + INVISIBLE - 1_000
    assert (await world.records.put_ack(ACK, 6, POP_TIME + INVISIBLE)).ok
    assert world.deliver_ms() == POP_TIME + INVISIBLE


async def test_records_are_javas_in_the_queue_that_the_handle_tells() -> None:
    world = World()
    await world.records.put_check_point(check_point(), 6)
    await world.records.put_ack(ACK, 6, POP_TIME + INVISIBLE)
    point, ack = world.stored
    for message in world.stored:
        assert (message.topic, message.queue_id, message.born_timestamp) == ("rmq_sys_REVIVE_LOG_C", 2, 1_000)
        assert message.born_host == bytes([10, 0, 0, 1]) + (10911).to_bytes(4, "big")
    assert (point.properties["TAGS"], ack.properties["TAGS"]) == ("ck", "ack")
    assert point.properties["UNIQ_KEY"] == f"T@3@40@G@{POP_TIME}@broker-a@ck"
    assert ack.properties["UNIQ_KEY"] == f"T@3@42@G@{POP_TIME}@broker-a@ack"
    assert (point.properties["maxqLoggedAt"], "maxqLoggedAt" in ack.properties) == ("77", False)
    assert PopCheckPoint.decode(point.body).key == check_point().key
    assert AckMsg.decode(ack.body, is_batch=False).offsets == [42]


async def test_what_is_hidden_for_longer_than_the_timer_keeps_a_message_comes_when_that_is_over() -> None:
    world = World(timerMaxDelaySec="86400")
    await world.records.put_check_point(check_point(9 * DAY), 0)
    assert world.deliver_ms() == 1_000 + DAY - 2_000
    await world.records.put_ack(ACK, 0, POP_TIME + 9 * DAY)
    assert world.deliver_ms() == 1_000 + DAY - 1_000


async def test_without_the_timer_wheel_records_come_at_once() -> None:
    world = World(timerWheelEnable="false")
    await world.records.put_check_point(check_point(), 0)
    assert "TIMER_DELIVER_MS" not in world.stored[0].properties


@pytest.mark.parametrize(("broker_id", "refused"), [(0, True), (1, False)])
async def test_what_the_timer_of_this_broker_refuses_is_not_stored(broker_id: int, refused: bool) -> None:
    """A slave gives the record to another group, whose timer it meets."""
    world = World(broker_id)

    def refuse(message: MessageExtBrokerInner) -> Refusal | None:
        assert message.properties["TIMER_DELIVER_MS"] == str(POP_TIME + INVISIBLE - 1_000)
        return Refusal(ResponseCode.MESSAGE_ILLEGAL, "no room in the wheel")

    world.hooks.add(refuse)
    result = await world.records.put_check_point(check_point(), 0)
    assert result.ok is not refused
    assert len(world.stored) == (not refused)
    if refused:
        assert (result.status, result.remark) == (PutMessageStatus.MESSAGE_ILLEGAL, "no room in the wheel")


async def test_what_was_written_is_counted_with_what_became_of_it() -> None:
    world = World()
    await world.records.put_check_point(check_point(), 0)
    await world.records.put_ack(ACK, 0, POP_TIME + INVISIBLE)
    world.status = PutMessageStatus.SERVICE_NOT_AVAILABLE
    await world.records.put_ack(ACK, 0, POP_TIME + INVISIBLE)
    await world.records.put_ack(ACK, 0, POP_TIME + INVISIBLE)
    assert world.counts.put == {
        ("G", "T", "CK", "PUT_OK"): 1,
        ("G", "T", "ACK", "PUT_OK"): 1,
        ("G", "T", "ACK", "SERVICE_NOT_AVAILABLE"): 2,
    }
