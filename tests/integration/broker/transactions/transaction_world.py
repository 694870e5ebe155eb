"""A producer of transactions by hand: half messages, their ends, and the questions the broker asks."""

import asyncio
from dataclasses import dataclass, field

from maxq.codes import RequestCode
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.send import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
    SendMessageResponseHeader,
)
from maxq.protocol.message.message import MessageExt, decode_message_id, decode_record
from tests.integration.broker.harness import RunningBroker

HALF, OP, DISCARDED = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
#: Rounds of checks so short that a test need not wait.
QUICK = {"transactionTimeOut": 1, "transactionCheckInterval": 20, "transactionOpBatchInterval": 10}
#: No check ever comes.
CALM = {"transactionCheckInterval": 3_600_000}


@dataclass
class Half:
    """Where a half message is, as its producer was told."""

    queue_offset: int
    physical_offset: int
    transaction_id: str
    queue_id: int


def half_of(reply: RemotingCommand) -> Half:
    """What a broker answered to a half message."""
    assert reply.code == 0, reply.remark
    header = SendMessageResponseHeader.decode(reply.ext)
    _, physical_offset = decode_message_id(header.msg_id)
    return Half(header.queue_offset, physical_offset, header.transaction_id or "", header.queue_id)


@dataclass
class Question:
    """A CHECK_TRANSACTION_STATE."""

    header: CheckTransactionStateRequestHeader
    ext: dict[str, str]
    message: MessageExt


@dataclass
class TransactionClient:
    """One producer of group `group` on the broker's raw client."""

    broker: RunningBroker
    group: str = "PG"
    questions: "asyncio.Queue[Question]" = field(default_factory=asyncio.Queue)

    async def come_online(self) -> None:
        self.broker.client.register(RequestCode.CHECK_TRANSACTION_STATE, self._on_check)
        reply = await self.broker.heartbeat("", {}, producer=self.group)
        assert reply.code == 0

    async def _on_check(self, connection: object, request: RemotingCommand) -> None:
        header = CheckTransactionStateRequestHeader.decode(request.ext)
        self.questions.put_nowait(Question(header, dict(request.ext), decode_record(request.body_bytes)))

    async def question(self) -> Question:
        async with asyncio.timeout(30):
            return await self.questions.get()

    async def prepare(self, topic: str, body: bytes = b"x", *, queue_id: int = 0, **properties: str) -> Half:
        properties = {"TRAN_MSG": "true", "PGROUP": self.group, **properties}
        reply = await self.broker.send(topic, body, queue_id=queue_id, sys_flag=4, group=self.group, **properties)
        return half_of(reply)

    def end_request(self, half: Half, how: int, *, from_check: bool = False, group: str = "") -> RemotingCommand:
        header = EndTransactionRequestHeader(
            producer_group=group or self.group,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.physical_offset,
            commit_or_rollback=how,
            msg_id=half.transaction_id,
            from_transaction_check=from_check,
            transaction_id=half.transaction_id,
        )
        return RemotingCommand(RequestCode.END_TRANSACTION, header.encode())

    async def end(self, half: Half, how: int, **more: object) -> RemotingCommand:
        return await self.broker.invoke(self.end_request(half, how, **more))  # type: ignore[arg-type]

    async def end_oneway(self, half: Half, how: int, **more: object) -> None:
        request = self.end_request(half, how, **more)  # type: ignore[arg-type]
        await self.broker.client.invoke_oneway(self.broker.address, request)

    async def answer(self, question: Question, how: int) -> RemotingCommand:
        header = question.header
        half = Half(header.tran_state_table_offset, header.commit_log_offset, header.transaction_id or "", 0)
        return await self.end(half, how, from_check=True)

    async def messages(self, topic: str, queue_id: int = 0) -> list[MessageExt]:
        if self.broker.controller.store.max_offset(topic, queue_id) == 0:
            return []
        return await self.broker.pull_messages(topic, queue_id=queue_id)

    async def bodies(self, topic: str, queue_id: int = 0) -> list[bytes]:
        return [message.body for message in await self.messages(topic, queue_id)]
