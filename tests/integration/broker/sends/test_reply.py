"""Request and reply: a reply is pushed to the client that asked."""

import pytest

from maxq.codes import RequestCode
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.send import ReplyMessageRequestHeader
from maxq.protocol.message.message_properties import decode_properties
from maxq.remoting.client import RemotingClient
from maxq.remoting.connection import Connection
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import RunningBroker

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"


class Requester:
    """The client that asked: registered as a producer, takes pushed replies."""

    def __init__(self, broker: RunningBroker, answer_code: int = 0) -> None:
        self.broker = broker
        self.answer_code = answer_code
        self.pushed: list[RemotingCommand] = []
        broker.client.register(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self.take)

    def take(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        self.pushed.append(request)
        return request.reply(self.answer_code, "no" if self.answer_code else None)


def reply_to(
    broker: RunningBroker, client_id: str | None, code: int = RequestCode.SEND_REPLY_MESSAGE_V2
) -> RemotingCommand:
    properties = {"MSG_TYPE": "reply", "CORRELATION_ID": "c-1", "TTL": "15000"}
    if client_id is not None:
        properties["REPLY_TO_CLIENT"] = client_id
    request = broker.send_request(REPLY_TOPIC, b"the answer", code=RequestCode.SEND_MESSAGE_V2, **properties)
    if code == RequestCode.SEND_REPLY_MESSAGE:
        request = broker.send_request(REPLY_TOPIC, b"the answer", code=RequestCode.SEND_MESSAGE, **properties)
    request.code = code
    return request


async def test_reply_is_stored_and_pushed(broker: RunningBroker) -> None:
    requester = Requester(broker)
    await broker.heartbeat("", {}, client_id="asker@1")
    for code in (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2):
        answer = await broker.invoke(reply_to(broker, "asker@1", code))
        assert (answer.code, answer.remark) == (0, None)
        assert set(answer.ext) == {"msgId", "queueId", "queueOffset", "MSG_REGION", "TRACE_ON"}
    pushed = requester.pushed[0]
    header = ReplyMessageRequestHeader.decode(pushed.ext)
    assert (pushed.body_bytes, header.topic, header.store_host) == (b"the answer", REPLY_TOPIC, broker.address)
    properties = decode_properties(header.properties)
    assert (properties["CORRELATION_ID"], properties["REPLY_TO_CLIENT"]) == ("c-1", "asker@1")
    assert int(properties["PUSH_REPLY_TIME"]) > 0
    assert [message.body for message in await broker.pull_messages(REPLY_TOPIC)] == [b"the answer"] * 2


async def test_reply_that_cannot_be_pushed_is_1_although_it_is_stored(broker: RunningBroker) -> None:
    answer = await broker.invoke(reply_to(broker, "nobody@1"))
    assert (answer.code, answer.remark) == (1, "push reply message fail, channel of <nobody@1> not found.")
    answer = await broker.invoke(reply_to(broker, None))
    assert (answer.code, answer.remark) == (1, "reply message properties[REPLY_TO_CLIENT] is null")
    assert answer.ext["queueOffset"] == "1"


async def test_client_that_refuses_the_reply_is_named(broker: RunningBroker) -> None:
    Requester(broker, answer_code=1)
    await broker.heartbeat("", {}, client_id="asker@1")
    answer = await broker.invoke(reply_to(broker, "asker@1"))
    assert answer.code == 1
    assert (answer.remark or "").startswith("push reply message to <asker@1>fail.")


async def test_replies_are_not_stored_where_that_is_off(start_broker: Start) -> None:
    broker = await start_broker(storeReplyMessageEnable="false")
    Requester(broker)
    await broker.heartbeat("", {}, client_id="asker@1")
    answer = await broker.invoke(reply_to(broker, "asker@1"))
    assert (answer.code, answer.ext["msgId"], answer.ext["queueOffset"]) == (0, "0", "0")
    assert await broker.pull_messages(REPLY_TOPIC) == []


async def test_client_that_left_gets_nothing(broker: RunningBroker) -> None:
    mine = broker.client
    broker.client = RemotingClient(mine._config, clock=broker._clock, rng=broker._rng)
    await broker.heartbeat("", {}, client_id="asker@1")
    await broker.client.close()
    broker.client = mine
    answer = await broker.invoke(reply_to(broker, "asker@1"))
    assert answer.code == 1


@pytest.mark.parametrize(
    ("sys_flag", "properties"), [(4, {"TRAN_MSG": "true"}), (0, {"TRAN_MSG": "true"}), (8, {}), (12, {})]
)
async def test_a_reply_is_no_part_of_a_transaction(
    broker: RunningBroker, sys_flag: int, properties: dict[str, str]
) -> None:
    Requester(broker)
    await broker.heartbeat("", {}, client_id="asker@1")
    end = broker.controller.store.max_physical_offset
    request = broker.send_request(REPLY_TOPIC, b"x", sys_flag=sys_flag, REPLY_TO_CLIENT="asker@1", **properties)
    request.code = RequestCode.SEND_REPLY_MESSAGE_V2
    answer = await broker.invoke(request)
    assert answer.code == 13 and (answer.remark or "").startswith("a reply cannot be part of a transaction")
    assert broker.controller.store.max_physical_offset == end


async def test_a_reply_above_the_quota_of_its_topic_is_refused_as_a_send_is(broker: RunningBroker) -> None:
    quota = TopicConfig(REPLY_TOPIC, 1, 1, 6, attributes={"+quota.bytes": "50"})
    broker.controller.topics.update_topic_config(quota)
    assert (await broker.send(REPLY_TOPIC, b"x" * 10_000)).code == 0
    answer = await broker.invoke(reply_to(broker, "asker@1"))
    assert answer.code == 2 and "[QUOTA]" in (answer.remark or "")
