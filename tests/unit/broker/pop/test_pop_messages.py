"""Messages that another group gave out, and that come due at this one."""

from typing import cast

import pytest

from maxq.broker.pop.pop_messages import read_elsewhere
from maxq.broker.tables.static_topic.other_brokers import OtherBrokers
from maxq.broker.tables.static_topic.pull_answers import STANDS_IN
from maxq.codes import ResponseCode
from maxq.errors import MaxQError
from maxq.protocol.frame.remoting_command import RemotingCommand


class Other:
    """A broker that gives one answer."""

    def __init__(self, code: int, **ext: str) -> None:
        self.answer = RemotingCommand(code, ext, remark="why")

    async def ask(self, name: str, topic: str, code: int, ext: dict[str, str]) -> RemotingCommand:
        return self.answer


@pytest.mark.parametrize(
    "code", [ResponseCode.PULL_OFFSET_MOVED, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.TOPIC_NOT_EXIST]
)
async def test_a_message_is_gone_if_the_master_says_so(code: int) -> None:
    """A slave may not have it yet."""
    assert await read_elsewhere(cast(OtherBrokers, Other(code)), "b", "T", 0, 7) is None
    with pytest.raises(MaxQError, match="does not give it now"):
        await read_elsewhere(cast(OtherBrokers, Other(code, **{STANDS_IN: "true"})), "b", "T", 0, 7)


@pytest.mark.parametrize(
    "code",
    [ResponseCode.PULL_NOT_FOUND, ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_ERROR, ResponseCode.NO_PERMISSION],
)
async def test_a_refusal_says_nothing_of_the_message(code: int) -> None:
    """It was taken for gone, and came to nobody again."""
    with pytest.raises(MaxQError, match=f"b does not give it now: {code:d} why"):
        await read_elsewhere(cast(OtherBrokers, Other(code)), "b", "T", 0, 7)
