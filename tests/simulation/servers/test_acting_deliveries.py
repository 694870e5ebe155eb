"""A slave that stands in for its master cannot deliver what waits; its master is back and delivers it before the slave
knows, and goes again."""

import pytest

from maxq.protocol.message import message_const as const
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.store_results import PutMessageResult, PutMessageStatus
from maxq.testing.simulation import SimWorld, run_simulation
from tests.simulation.waiting.delay_story import DelayNode
from tests.unit.broker.timer.timer_world import TOPIC, small_wheel


class Acting(DelayNode):
    """Attributes:
    is_back: what the slave cannot deliver comes with its master's log, at that very moment.
    refusal: why it cannot.
    """

    is_back = True
    refusal = PutMessageStatus.SERVICE_NOT_AVAILABLE

    async def _put(self, message: MessageExtBrokerInner) -> PutMessageResult:
        if not self.is_back:
            return await super()._put(message)
        if message.body.decode() not in self.bodies():
            self.store.put_message(message)
        return PutMessageResult(self.refusal, remark="this broker is a slave")


@pytest.mark.parametrize("waits", [const.PROPERTY_DELAY_TIME_LEVEL, const.PROPERTY_TIMER_DELAY_MS])
@pytest.mark.parametrize("refusal", [PutMessageStatus.SERVICE_NOT_AVAILABLE, PutMessageStatus.MESSAGE_ILLEGAL])
def test_what_the_master_has_delivered_meanwhile_is_not_delivered_by_who_acts_again(
    waits: str, refusal: PutMessageStatus
) -> None:
    async def story(world: SimWorld) -> None:
        node = Acting(world, message_delay_level="1s 1s", timer_precision_ms=100)
        node.is_local, node.refusal = False, refusal
        await node.open()
        properties = {
            waits: "1" if waits == const.PROPERTY_DELAY_TIME_LEVEL else "1000",
            const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX: "K1",
        }
        message = MessageExtBrokerInner(
            TOPIC, 0, b"once", properties, born_timestamp=node.clock.wall_ms(), born_host=b"\x7f\0\0\1\0\0\x12\x34"
        )
        assert node.put(message) is not None
        await node.sleep_ms(1_300)
        assert node.bodies() == ["once"]
        node.service.stop()
        node.schedule.stop()
        await node.sleep_ms(500)
        node.is_back = False
        node.service.start()
        node.schedule.start()
        await node.sleep_ms(10_000)
        assert node.bodies() == ["once"]
        await node.close()

    with small_wheel():
        run_simulation(story, seed=1, time_limit_s=3600, step_limit=10_000_000)
