"""What the success of each request promises is written down for all of them, and a slave changes no table."""

import pytest

from maxq.broker.identity.authority import PROMISES
from maxq.broker.processors.assembly import UnsupportedProcessor
from maxq.codes import RequestCode, ResponseCode
from maxq.protocol.body.subscription import SubscriptionGroupConfig
from maxq.protocol.frame.remoting_command import RemotingCommand
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import RunningBroker


async def test_every_request_that_a_broker_serves_has_its_promise(broker: RunningBroker) -> None:
    served = broker.controller.server.codes()
    refused = set(UnsupportedProcessor().routes())
    assert PROMISES.keys() == served - refused


@pytest.mark.parametrize(
    ("code", "ext", "body"),
    [
        (RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "New", "defaultTopic": "TBW102", "readQueueNums": "2",
         "writeQueueNums": "2", "perm": "6", "topicFilterType": "SINGLE_TAG", "order": "false"}, b""),
        (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}, b""),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, SubscriptionGroupConfig("G").encode()),
        (RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "G"}, b""),
    ],
)  # fmt: skip
async def test_a_slave_changes_no_table(start_broker: Start, code: int, ext: dict[str, str], body: bytes) -> None:
    slave = await start_broker(brokerRole="SLAVE", brokerId=1)
    slave.create_topic("T")
    reply = await slave.invoke(RemotingCommand(code, ext, body))
    assert reply.code == ResponseCode.SLAVE_NOT_AVAILABLE and "master" in (reply.remark or "")
    assert slave.controller.topics.contains_topic("T") and not slave.controller.topics.contains_topic("New")
