"""Whatever a header and a body say: an answer, no exception inside, and nothing but whole messages in the store."""

import logging
import random

import pytest

from maxq.codes import RequestCode, ResponseCode
from maxq.protocol.frame.remoting_command import RemotingCommand, SerializeType
from maxq.protocol.header.send import V2_LETTERS
from maxq.protocol.message.message import Message, decode_records, encode_batch
from tests.integration.broker.harness import RunningBroker

CODES = [
    RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2, RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE, RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID,
]  # fmt: skip
FIELDS = [
    *V2_LETTERS, *V2_LETTERS.values(), "consumerGroup", "queueOffset", "maxMsgNums", "commitOffset", "subscription",
    "suspendTimeoutMillis", "subVersion", "expressionType", "maxMsgBytes", "key", "maxNum", "beginTimestamp",
    "endTimestamp", "indexType", "_UNIQUE_KEY_QUERY", "offset",
]  # fmt: skip
ODD = [
    "", "0", "1", "-1", "2147483647", "-2147483648", "9223372036854775807", "-9223372036854775808", "1e3", " 1", "true",
    "T", "Fresh", "TBW102", "SCHEDULE_TOPIC_XXXX", "%RETRY%G", "%DLQ%G", "%LMQ%q", "grün", "a\x01b\x02", "\x01\x02\x02",
    "TAGS\x01a||b\x02KEYS\x01x y\x02", "UNIQ_KEY\x01U\x02WAIT\x01false\x02", "DELAY\x01-1\x02", "*", "TagA || ", "||",
    "SQL92", "TAG", "x" * 300, "K", "\U0001f600", "INNER_NUM\x013\x02", "_SYS_MSG_PRIORITY_\x01" + "9" * 40 + "\x02",
]  # fmt: skip


def sound_fields(code: int) -> dict[str, str]:
    """A request that is right, to be spoilt in a few places."""
    full = {
        "producerGroup": "P", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0",
        "sysFlag": "0", "bornTimestamp": "1700000000000", "flag": "0", "properties": "TAGS\x01TagA\x02",
        "batch": "true" if code == RequestCode.SEND_BATCH_MESSAGE else "false", "consumerGroup": "G",
        "queueOffset": "0", "maxMsgNums": "32", "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0",
        "subscription": "*", "key": "k", "maxNum": "10", "beginTimestamp": "0", "endTimestamp": "9223372036854775807",
        "offset": "0",
    }  # fmt: skip
    if code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
        full["sysFlag"] = "4"
    if code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2):
        full |= {letter: full[name] for letter, name in V2_LETTERS.items() if name in full}
    return full


def spoilt(chance: random.Random, code: int) -> RemotingCommand:
    ext = sound_fields(code)
    for _ in range(chance.randrange(4)):
        name = chance.choice(FIELDS)
        if chance.random() < 0.3:
            ext.pop(name, None)
        else:
            ext[name] = chance.choice(ODD)
    batch = encode_batch([Message("T", b"one", {"KEYS": "k"}), Message("T", b"two")])
    body = chance.choice([None, b"x", chance.randbytes(50), batch, batch[:-3], b"\xff" * 30])
    return RemotingCommand(code, ext, body, serialize_type=chance.choice(list(SerializeType)))


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
async def test_any_request_is_answered(
    broker: RunningBroker, code: RequestCode, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic("T")
    broker.settings.update({"longPollingEnable": "false", "shortPollingTimeMills": "1"})
    caplog.set_level(logging.ERROR)
    chance = random.Random(code)
    known = {int(one) for one in ResponseCode}
    for _ in range(250):
        request = spoilt(chance, code)
        answer = await broker.invoke(request)
        assert answer.code in known, request
    assert [record.getMessage() for record in caplog.records if record.name.startswith("maxq.")] == []
    store = broker.controller.store
    if store.max_physical_offset:
        whole = store.commit_log.get(0, store.max_physical_offset)
        assert whole is not None
        assert len(decode_records(whole, check_crc=True)) == sum(tail.put_nums for tail in store.topics.values())
