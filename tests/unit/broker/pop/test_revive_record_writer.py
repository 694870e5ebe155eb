"""What is written to the revive topic, and by whom."""

from typing import Any

import pytest

from maxq.broker.identity.broker_identity import BrokerAddress
from maxq.broker.pop.pop_counts import PopCounts
from maxq.broker.pop.revive_record_writer import ReviveRecordWriter
from maxq.config.settings import BrokerSettings
from maxq.protocol.body.pop import AckMsg
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.store_results import PutMessageResult, PutMessageStatus
from tests.unit.broker.bundles_of import environment, messages
from tests.unit.broker.pop.test_check_point_buffer import Clock


@pytest.mark.parametrize(
    ("broker_id", "status"), [(0, PutMessageStatus.PUT_OK), (1, PutMessageStatus.SERVICE_NOT_AVAILABLE)]
)
async def test_an_ack_that_would_go_to_another_group_than_its_check_point_is_refused(
    broker_id: int, status: PutMessageStatus
) -> None:
    stored: list[Any] = []

    async def put(message: MessageExtBrokerInner) -> PutMessageResult:
        stored.append(message)
        return PutMessageResult(PutMessageStatus.PUT_OK)

    settings, _ = BrokerSettings.from_properties({"timerWheelEnable": "false"}, source="test")
    own = BrokerAddress("C", "broker-a", broker_id, "10.0.0.1")
    records = ReviveRecordWriter(environment(settings, own=own, clock=Clock()), messages(), put, PopCounts())
    result = await records.put_ack(AckMsg("T", "G", 0, 0, 1, "broker-a", [0]), 0, 1)
    assert result.status is status
    assert len(stored) == (broker_id == 0)
