"""The places of a message in light queues are the store's to give: no copy of a message and no client brings them."""

import pytest

from maxq.codes import RequestCode
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.message.message import MessageExt, encode_batch
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import RunningBroker
from tests.integration.broker.transactions.transaction_world import COMMIT, ROLLBACK, TransactionClient

PLACES = {"INNER_MULTI_DISPATCH": "%LMQ%x", "INNER_MULTI_QUEUE_OFFSET": "0"}


async def started(start_broker: Start) -> RunningBroker:
    broker = await start_broker(enableMultiDispatch="true", enableLmq="true")
    broker.create_topic("T")
    for number in range(5):
        answer = await broker.send("T", b"m%d" % number, INNER_MULTI_DISPATCH="%LMQ%x")
        assert answer.code == 0, answer.remark
    assert broker.controller.store.max_offset("%LMQ%x", 0) == 5
    return broker


async def assert_nothing_is_lost(broker: RunningBroker, most: int = 6) -> None:
    answer = await broker.send("T", b"last", INNER_MULTI_DISPATCH="%LMQ%x")
    assert answer.code == 0, answer.remark
    found = [message.body for message in await broker.pull_messages("%LMQ%x")]
    assert found[:5] == [b"m0", b"m1", b"m2", b"m3", b"m4"]
    assert found[-1] == b"last"
    assert len(found) <= most


async def test_a_message_that_is_sent_back_keeps_its_light_queue_as_it_is(start_broker: Start) -> None:
    broker = await started(start_broker)
    first = (await broker.pull_messages("T"))[0]
    broker.controller.groups.find_subscription_group_config("G")
    ext = {
        "offset": str(first.physical_offset), "group": "G", "delayLevel": "1", "originMsgId": "", "originTopic": "T",
        "unitMode": "false", "maxReconsumeTimes": "16",
    }  # fmt: skip
    answer = await broker.invoke(RemotingCommand(RequestCode.CONSUMER_SEND_MSG_BACK, ext))
    assert answer.code == 0, answer.remark
    await assert_nothing_is_lost(broker)


@pytest.mark.parametrize("how", ["delayed", "timed", "retry", "half", "plain"])
async def test_a_client_brings_no_places(start_broker: Start, how: str) -> None:
    broker = await started(start_broker)
    more = {"delayed": {"DELAY": "2"}, "timed": {"TIMER_DELAY_SEC": "100"}, "half": {"TRAN_MSG": "true"}}.get(how, {})
    answer = await broker.send("%RETRY%G" if how == "retry" else "T", b"bad", **PLACES, **more)
    assert answer.code == 0, answer.remark
    await assert_nothing_is_lost(broker, 7)


@pytest.mark.parametrize("name", ["%LMQ%x", "T"])
async def test_a_batch_brings_no_places(start_broker: Start, name: str) -> None:
    broker = await started(start_broker)
    properties = {**PLACES, "INNER_MULTI_DISPATCH": name}
    body = encode_batch([MessageExt("T", b"bad", properties=properties), MessageExt("T", b"worse")])
    answer = await broker.send("T", body, batch=True)
    assert answer.code == 0, answer.remark
    await assert_nothing_is_lost(broker)
    assert [message.body for message in await broker.pull_messages("T")][:5] == [b"m0", b"m1", b"m2", b"m3", b"m4"]


@pytest.mark.parametrize("how", [COMMIT, ROLLBACK])
async def test_a_message_of_a_transaction_comes_to_its_light_queue_when_it_is_committed(
    start_broker: Start, how: int
) -> None:
    client = TransactionClient(await started(start_broker))
    half = await client.prepare("T", b"in a transaction", INNER_MULTI_DISPATCH="%LMQ%x")
    assert len(await client.bodies("%LMQ%x")) == 5
    assert (await client.end(half, how)).code == 0
    assert (await client.bodies("%LMQ%x"))[5:] == ([b"in a transaction"] if how == COMMIT else [])
    await assert_nothing_is_lost(client.broker, 7)


async def test_a_transaction_that_names_what_is_no_light_queue_is_refused_when_it_begins(start_broker: Start) -> None:
    broker = await started(start_broker)
    assert (await broker.send("T", b"bad", INNER_MULTI_DISPATCH="T", TRAN_MSG="true")).code == 13


async def test_a_dead_letter_does_not_come_to_its_light_queue_again(start_broker: Start) -> None:
    broker = await started(start_broker)
    first = (await broker.pull_messages("T"))[0]
    broker.controller.groups.find_subscription_group_config("G")
    ext = {
        "offset": str(first.physical_offset), "group": "G", "delayLevel": "-1", "originMsgId": "", "originTopic": "T",
        "unitMode": "false", "maxReconsumeTimes": "16",
    }  # fmt: skip
    assert (await broker.invoke(RemotingCommand(RequestCode.CONSUMER_SEND_MSG_BACK, ext))).code == 0
    assert [message.body for message in await broker.pull_messages("%DLQ%G")] == [b"m0"]
    await assert_nothing_is_lost(broker)
