"""Messages that a consumer gives back: the retry topic, the dead-letter topic, and sends to the retry topic."""

from dataclasses import replace

import pytest

from maxq.broker.processors.send.send_back import next_delay_ms
from maxq.codes import RequestCode, ResponseCode
from maxq.protocol.body.subscription import GroupRetryPolicy, SubscriptionGroupConfig
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.send import ConsumerSendMsgBackRequestHeader
from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.message_queue import MessageQueue
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import RunningBroker, until

LEVELS = "1s 1s 1s 1s 1s 2s 1h"
SCHEDULE = "SCHEDULE_TOPIC_XXXX"


async def _give_back(
    broker: RunningBroker, message: MessageExt, *, level: int = 0, most: int | None = None, version: int = 399
) -> RemotingCommand:
    header = ConsumerSendMsgBackRequestHeader(
        message.physical_offset, "G", level, message.msg_id, message.topic, False, most
    )
    request = RemotingCommand(RequestCode.CONSUMER_SEND_MSG_BACK, header.encode())
    request.version = version
    return await broker.invoke(request)


async def _sent(broker: RunningBroker, body: bytes = b"x", **properties: str) -> MessageExt:
    broker.create_topic("T")
    await broker.send("T", body, **properties)
    return await _arrived(broker, "T")


async def _arrived(broker: RunningBroker, topic: str, offset: int = 0) -> MessageExt:
    await until(lambda: broker.controller.store.max_offset(topic, 0) > offset)
    ((physical_offset, _, _),) = broker.controller.store.queue_units(topic, 0, offset, 1)
    record = broker.controller.store.look_message_by_offset(physical_offset)
    assert record is not None
    return record


async def test_message_comes_back_with_its_topic_its_id_and_one_more_try(start_broker: Start) -> None:
    broker = await start_broker(messageDelayLevel=LEVELS)
    sent = await _sent(broker, TAGS="A", KEYS="k", color="red")
    reply = await _give_back(broker, sent)
    assert (reply.code, reply.remark) == (0, None)
    back = await _arrived(broker, "%RETRY%G")
    assert (back.body, back.reconsume_times, back.born_timestamp, back.born_host) == (
        b"x", 1, sent.born_timestamp, sent.born_host,
    )  # fmt: skip
    assert back.properties.items() >= {
        "TAGS": "A", "KEYS": "k", "color": "red", "RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": sent.offset_msg_id,
        "DELAY": "3", "REAL_TOPIC": "%RETRY%G", "WAIT": "false",
    }.items()  # fmt: skip
    assert back.uniq_key == sent.uniq_key
    assert (await _give_back(broker, back)).code == 0
    again = await _arrived(broker, "%RETRY%G", 1)
    assert (again.reconsume_times, again.properties["DELAY"]) == (2, "4")
    assert (again.properties["RETRY_TOPIC"], again.properties["ORIGIN_MESSAGE_ID"]) == ("T", sent.offset_msg_id)


@pytest.mark.parametrize("level", [0, -1])
async def test_a_message_is_given_back_under_its_own_id(start_broker: Start, level: int) -> None:
    """After a change of master that lost the end of the log, another message of the same size lies in its place."""
    broker = await start_broker(messageDelayLevel=LEVELS)
    sent = await _sent(broker, UNIQ_KEY="A" * 32)
    for other in ("B" * 32, sent.offset_msg_id[:-1] + "F"):
        reply = await _give_back(broker, replace(sent, properties={"UNIQ_KEY": other}), level=level)
        assert (reply.code, "another message" in (reply.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
    assert broker.controller.store.max_offset(SCHEDULE, 2) == broker.controller.store.max_offset("%DLQ%G", 0) == 0
    for known in ("A" * 32, sent.offset_msg_id, "", "something else"):
        reply = await _give_back(broker, replace(sent, properties={"UNIQ_KEY": known}), level=level)
        assert reply.code == 0, (known, reply.remark)


async def test_level_of_the_consumer_counts(start_broker: Start) -> None:
    broker = await start_broker(messageDelayLevel=LEVELS)
    assert (await _give_back(broker, await _sent(broker), level=7)).code == 0
    assert broker.controller.store.max_offset(SCHEDULE, 6) == 1


@pytest.mark.parametrize(
    ("level", "most", "version", "is_dead"),
    [(-1, None, 399, True), (0, 0, 399, True), (0, 1, 399, False), (0, 0, 120, False), (0, None, 399, False)],
)
async def test_dead_letter_after_so_many_tries_or_when_the_consumer_says_so(
    start_broker: Start, level: int, most: int | None, version: int, is_dead: bool
) -> None:
    broker = await start_broker(messageDelayLevel=LEVELS)
    sent = await _sent(broker)
    assert (await _give_back(broker, sent, level=level, most=most, version=version)).code == 0
    store = broker.controller.store
    assert (store.max_offset("%DLQ%G", 0), store.max_offset(SCHEDULE, 2)) == ((1, 0) if is_dead else (0, 1))


async def test_dead_letter_is_readable_from_the_first_one(broker: RunningBroker) -> None:
    sent = await _sent(broker)
    assert (await _give_back(broker, sent, level=-1)).code == 0
    config = broker.controller.topics.select_topic_config("%DLQ%G")
    assert config is not None
    assert (config.perm, config.read_queue_nums, config.write_queue_nums) == (6, 1, 1)
    (dead,) = await broker.pull_messages("%DLQ%G", group="admin")
    assert (dead.properties["RETRY_TOPIC"], dead.properties["ORIGIN_MESSAGE_ID"]) == ("T", sent.offset_msg_id)
    assert (dead.reconsume_times, dead.properties["DELAY"]) == (1, "0")
    stats = broker.controller.stats
    for name, key in (
        ("SNDBCK_PUT_NUMS", "T@G"), ("DLQ_PUT_NUMS", "T@G"), ("SNDBCK2DLQ_TIMES", "None@T@G@SEND_BACK_TO_DLQ"),
    ):  # fmt: skip
        item = stats.view(name, key)
        assert item is not None and item.value == 1


async def test_order_flag_of_the_retry_topic_stays(broker: RunningBroker) -> None:
    broker.create_topic("%RETRY%G", queues=1, order=True)
    assert (await _give_back(broker, await _sent(broker))).code == 0
    config = broker.controller.topics.select_topic_config("%RETRY%G")
    assert config is not None and config.order


async def test_copy_is_durable_when_the_consumer_is_told(start_broker: Start) -> None:
    broker = await start_broker(flushDiskType="SYNC_FLUSH")
    sent = await _sent(broker)
    assert (await _give_back(broker, sent)).code == 0
    store = broker.controller.store
    assert store.flushed_offset == store.max_physical_offset
    assert store.max_offset(SCHEDULE, 2) == 1


async def test_group_without_second_tries_gets_none(broker: RunningBroker) -> None:
    broker.controller.groups.update_subscription_group_config(SubscriptionGroupConfig("G", retry_queue_nums=0))
    assert (await _give_back(broker, await _sent(broker))).code == 0
    assert broker.controller.topics.select_topic_config("%RETRY%G") is None


async def test_every_refusal_of_a_message_that_comes_back(start_broker: Start) -> None:
    broker = await start_broker(autoCreateSubscriptionGroup="false")
    sent = await _sent(broker)
    reply = await _give_back(broker, sent)
    assert reply.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    broker.controller.groups.update_subscription_group_config(SubscriptionGroupConfig("G"))
    reply = await _give_back(broker, replace(sent, physical_offset=sent.physical_offset + 1))
    assert (reply.code, reply.remark) == (1, f"look message by offset failed, {sent.physical_offset + 1}")
    broker.create_topic("%RETRY%G", queues=1, perm=4)
    reply = await _give_back(broker, sent)
    assert reply.code == ResponseCode.NO_PERMISSION and "perm is 4" in (reply.remark or "")
    broker.settings.broker = replace(broker.settings.broker, broker_permission=4)
    reply = await _give_back(broker, sent)
    assert reply.code == ResponseCode.NO_PERMISSION and "brokerPermission is 4" in (reply.remark or "")


@pytest.mark.parametrize(
    ("policy", "times", "delay_ms"),
    [
        (GroupRetryPolicy(), 0, None),
        (GroupRetryPolicy("EXPONENTIAL"), 3, None),
        (GroupRetryPolicy("EXPONENTIAL", None, {}), 0, 5_000),
        (GroupRetryPolicy("EXPONENTIAL", None, {"initial": 1000, "max": 60_000, "multiplier": 3}), 3, 27_000),
        (GroupRetryPolicy("EXPONENTIAL", None, {"initial": 1000, "max": 60_000, "multiplier": 3}), 40, 60_000),
        (GroupRetryPolicy("CUSTOMIZED", {"next": [1, 2, 3, 4]}), 0, 3),
        (GroupRetryPolicy("CUSTOMIZED", {"next": [1, 2, 3, 4]}), 9, 4),
        (GroupRetryPolicy("CUSTOMIZED", {"next": []}), 0, None),
        (GroupRetryPolicy("CUSTOMIZED", {"next": ["soon"]}), 0, None),
        (GroupRetryPolicy("EXPONENTIAL", None, {"initial": [1]}), 0, None),
    ],
)
def test_delay_of_a_policy(policy: GroupRetryPolicy, times: int, delay_ms: int | None) -> None:
    assert next_delay_ms(policy, times) == delay_ms


async def test_policy_of_the_group_spaces_the_tries(start_broker: Start) -> None:
    broker = await start_broker()  # 1s 5s 10s 30s 1m …
    policy = GroupRetryPolicy("EXPONENTIAL", None, {"initial": 20_000, "max": 3_600_000, "multiplier": 2})
    broker.controller.groups.update_subscription_group_config(SubscriptionGroupConfig("G", group_retry_policy=policy))
    assert (await _give_back(broker, await _sent(broker))).code == 0
    assert broker.controller.store.max_offset(SCHEDULE, 3) == 1  # 30s: the first level that is not shorter


# ---- sends to a retry topic -----------------------------------------------------------------------------------------


def _to_retry(broker: RunningBroker, times: int, *, most: int | None = None, level: str = "1") -> RemotingCommand:
    request = broker.send_request("%RETRY%G", b"x", RETRY_TOPIC="T", DELAY=level)
    request.ext["j"] = str(times)
    if most is not None:
        request.ext["l"] = str(most)
    request.version = 399
    return request


async def test_send_to_the_retry_topic_waits_for_its_level(start_broker: Start) -> None:
    broker = await start_broker(messageDelayLevel=LEVELS)
    assert (await broker.invoke(_to_retry(broker, 2))).code == 0
    back = await _arrived(broker, "%RETRY%G")
    assert (back.reconsume_times, back.properties["RETRY_TOPIC"]) == (2, "T")


@pytest.mark.parametrize(
    ("times", "most", "is_dead"), [(16, None, False), (17, None, True), (3, 3, False), (4, 3, True)]
)
async def test_send_to_the_retry_topic_after_too_many_tries_is_a_dead_letter(
    broker: RunningBroker, times: int, most: int | None, is_dead: bool
) -> None:
    assert (await broker.invoke(_to_retry(broker, times, most=most))).code == 0
    store = broker.controller.store
    assert (store.max_offset("%DLQ%G", 0), store.max_offset(SCHEDULE, 0)) == ((1, 0) if is_dead else (0, 1))
    counted = broker.controller.stats.view("DLQ_PUT_NUMS", "T@G")
    assert (0 if counted is None else counted.value) == is_dead
    if is_dead:
        (dead,) = await broker.pull_messages("%DLQ%G", group="admin")
        assert dead.properties["DELAY"] == "-1"


async def test_what_an_orderly_group_gives_up_is_a_dead_letter_at_once(broker: RunningBroker) -> None:
    queue = MessageQueue("T", "broker-a", 0)
    assert broker.controller.locks.try_lock_batch("G", [queue], "client-1") == {queue}
    assert (await broker.invoke(_to_retry(broker, 1))).code == 0
    assert broker.controller.store.max_offset("%DLQ%G", 0) == 1


async def test_send_to_the_retry_topic_of_an_unknown_group_is_refused(start_broker: Start) -> None:
    broker = await start_broker(autoCreateSubscriptionGroup="false")
    reply = await broker.invoke(_to_retry(broker, 1))
    assert reply.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
