"""Sends whose properties, flags and times are chosen by somebody who wants dispatch, or the next start, to fail."""

import random

import pytest

from maxq.codes import RequestCode as Code
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.send import SendMessageRequestHeader
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import Message, encode_batch
from maxq.protocol.message.message_properties import encode_properties
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import RunningBroker, messages_of, until

NAMES = sorted(
    value
    for name, value in vars(const).items()
    if name.startswith("PROPERTY_") and isinstance(value, str) and value.isprintable()
)
VALUES = [
    "", "0", "-1", "1", "9" * 18, "9" * 30, "9" * 5000, "-" + "9" * 30, "9223372036854775807", "2147483648", "+5",
    "5_0", "0x10", "1.5", " 5 ", "NaN", "\u0663", "\u00b2", "true", "T", "a,b,c", "%LMQ%x", "../../x", "{}",
    "|".join("1" * 8),
]  # fmt: skip
FLAGS = [0, 0, 0, 4, 8, 12, 0x40, 0x80, 0x8C, 0xC0, 0xCC, 0x30, 0x737, -1, 0x7FFFFFFF]
SENDS = (
    Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, Code.SEND_REPLY_MESSAGE,
    Code.SEND_REPLY_MESSAGE_V2,
)  # fmt: skip
KINDS: dict[str, dict[str, str]] = {"T": {}, "B": {"+queue.type": "BatchCQ"}, "K": {"+cleanup.policy": "COMPACTION"}}


def hostile_send(rng: random.Random) -> RemotingCommand:
    """One request."""

    def properties(least: int) -> dict[str, str]:
        return {name: rng.choice(VALUES) for name in rng.sample(NAMES, rng.randint(least, 5))}

    topic, code, batch = rng.choice([*KINDS, "%RETRY%G", "rmq_sys_wheel_timer"]), rng.choice(SENDS), rng.random() < 0.3
    body = encode_batch([Message(topic, b"x", properties(0)) for _ in range(3)]) if batch else rng.randbytes(9)
    header = SendMessageRequestHeader(
        "PG", topic, "TBW102", 4, rng.choice([0, 0, -1]), rng.choice(FLAGS), rng.choice([0, -1, 2**62]),
        rng.choice([0, -1, 2**31 - 1]), encode_properties(properties(1)), rng.choice([0, -5, 3, 2**31 - 1]), False,
        batch,
    )  # fmt: skip
    is_short = code not in (Code.SEND_MESSAGE, Code.SEND_REPLY_MESSAGE)
    return RemotingCommand(code, header.encode_v2() if is_short else header.encode(), body)


@pytest.mark.parametrize(
    "settings",
    [{"enableLmq": "true", "enableMultiDispatch": "true"}, {"enableConsumeQueueExt": "true"}],
    ids=["lmq", "ext"],
)
async def test_no_message_keeps_others_from_their_readers(start_broker: Start, settings: dict[str, str]) -> None:
    broker = await start_broker(**settings)
    broker.create_topic("Sane", queues=1)
    for topic, attributes in KINDS.items():
        broker.create_topic(topic, queues=1, attributes=attributes)
    rng = random.Random(1)
    for offset in range(8):
        for _ in range(25):
            await broker.invoke(hostile_send(rng))
        assert (await broker.send("Sane", b"fine")).code == 0

        async def is_readable(at: int = offset) -> bool:
            answer = await broker.pull("Sane", at)
            return answer.code == 0 and [message.body for message in messages_of(answer)] == [b"fine"]

        await until(is_readable)
    await broker.stop()
    again = RunningBroker(broker.folder, settings)
    await again.start()
    try:
        assert len(await again.pull_messages("Sane")) == 8
    finally:
        await again.stop()
