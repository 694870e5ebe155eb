"""Which clients are connected, and requests passed on to one of them."""

import pytest

from maxq.codes import LanguageCode
from maxq.errors import RemotingTimeoutError
from maxq.protocol.frame.remoting_command import RemotingCommand
from tests.unit.broker.broker_world import BrokerWorld, FakeConnection, parsed


async def online() -> tuple[BrokerWorld, FakeConnection]:
    world, fake = BrokerWorld(), FakeConnection("10.0.0.9:40000")
    world.add_topic("T")
    await world.heartbeat(fake, "c1", producers=("P",), language=LanguageCode.CPP)
    fake.sent.clear()
    world.notifier.close()
    return world, fake


async def test_connections_are_shown_with_address_language_and_version() -> None:
    world, _ = await online()
    row = {"clientAddr": "10.0.0.9:40000", "clientId": "c1", "language": "CPP", "version": 513}
    consumers = parsed(await world.call(203, {"consumerGroup": "G"}))
    assert consumers["connectionSet"] == [row]
    assert consumers["consumeType"] == "CONSUME_PASSIVELY"
    assert consumers["messageModel"] == "CLUSTERING"
    assert consumers["consumeFromWhere"] == "CONSUME_FROM_LAST_OFFSET"
    assert consumers["subscriptionTable"]["T"]["subString"] == "*"
    assert parsed(await world.call(204, {"producerGroup": "P"})) == {"connectionSet": [row]}
    producers = parsed(await world.call(328))["data"]["P"]
    assert producers == [
        {
            "clientId": "c1", "language": "CPP", "lastUpdateTimestamp": world.clock.wall_ms(),
            "remoteIP": "10.0.0.9:40000", "version": 513,
        }
    ]  # fmt: skip


async def test_groups_that_are_offline_have_their_codes() -> None:
    world = BrokerWorld()
    consumer = await world.call(203, {"consumerGroup": "G"})
    assert (consumer.code, consumer.remark) == (206, "the consumer group[G] not online")
    producer = await world.call(204, {"producerGroup": "P"})
    assert (producer.code, producer.remark) == (1, "the producer group[P] not exist")
    assert parsed(await world.call(328)) == {"data": {}}


async def test_who_consumes_a_topic_is_who_subscribes_or_once_did() -> None:
    world, _ = await online()
    world.offsets.commit_offset("c:1", "Once", "T", 0, 1)
    world.offsets.commit_offset("c:1", "G", "T", 0, 1)
    assert parsed(await world.call(300, {"topic": "T"})) == {"groupList": ["G", "Once"]}
    topics = parsed(await world.call(343, {"group": "Once"}))
    assert topics == {"brokerAddr": "127.0.0.2:20911", "topicList": ["T"]}


async def test_a_subscription_is_shown_or_absent() -> None:
    world, _ = await online()
    shown = parsed(await world.call(345, {"group": "G", "topic": "T"}))
    assert (shown["group"], shown["topic"], shown["subscriptionData"]["subString"]) == ("G", "T", "*")
    assert parsed(await world.call(345, {"group": "G", "topic": "U"})) == {"group": "G", "topic": "U"}


ASK = {"consumerGroup": "G", "clientId": "c1", "jstackEnable": "false"}


async def test_running_info_is_asked_of_the_client_and_passed_back() -> None:
    world, fake = await online()
    fake.answers = [RemotingCommand(0, body=b"{}", remark="not set any response code", flag=1)]
    answer = await world.call(307, ASK)
    assert (answer.code, answer.remark, answer.body_bytes) == (0, None, b"{}")
    assert fake.sent[0].ext == ASK


@pytest.mark.parametrize(
    ("client_answer", "code", "remark"),
    [
        (RemotingTimeoutError("wait response"), 207, "consumer <G> <c1> Timeout: wait response"),
        (None, 1, "invoke consumer <G> <c1> Exception"),
        (RemotingCommand(3, remark="no such request", flag=1), 3, "no such request"),
    ],
)
async def test_a_client_that_does_not_answer_is_told_apart(
    client_answer: RemotingCommand | Exception | None, code: int, remark: str
) -> None:
    world, fake = await online()
    fake.answers = [] if client_answer is None else [client_answer]
    answer = await world.call(307, ASK)
    assert answer.code == code
    assert remark in (answer.remark or "")


async def test_unknown_and_old_clients_are_not_asked() -> None:
    world, _ = await online()
    unknown = await world.call(307, {**ASK, "clientId": "c9"})
    assert (unknown.code, unknown.remark) == (1, "The Consumer <G> <c9> not online")
    old = {"clientID": "old", "consumerDataSet": [{"groupName": "G", "subscriptionDataSet": []}]}
    await world.call(34, None, old, version=61, fake=FakeConnection("b:1"))
    assert "too low" in ((await world.call(307, {**ASK, "clientId": "old"})).remark or "")


MESSAGE_ID = "7F000002000051AF0000000000000222"


async def test_a_message_to_consume_directly_comes_from_the_store() -> None:
    world, fake = await online()
    world.store.messages[0x222] = b"the message"
    fake.answers = [RemotingCommand(0, body=b'{"consumeResult":"CR_SUCCESS"}', flag=1)]
    ext = {"consumerGroup": "G", "clientId": "c1", "msgId": MESSAGE_ID, "topic": "T"}
    assert (await world.call(309, ext)).code == 0
    told = fake.sent[0]
    assert told.body_bytes == b"the message"
    assert (told.ext["brokerName"], told.ext["topicSysFlag"], told.ext["groupSysFlag"]) == ("broker-w", "0", "0")


async def test_a_message_that_is_gone_or_whose_id_is_none_is_named() -> None:
    world, fake = await online()
    ext = {"consumerGroup": "G", "clientId": "c1", "msgId": MESSAGE_ID}
    gone = await world.call(309, ext)
    assert gone.code == 1
    assert "can not find message by the offset, 546" in (gone.remark or "")
    assert (await world.call(309, {**ext, "msgId": "no id"})).code == 1
    fake.answers = [RemotingCommand(0, flag=1)]
    del ext["msgId"]
    assert (await world.call(309, ext, b"brought along")).code == 0
    assert fake.sent[0].body_bytes == b"brought along"
