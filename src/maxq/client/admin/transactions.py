"""Transactions of brokers, ours and Java's: which are open, what became of one, and asking its producer again."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from maxq.client.admin.context import AdminContext
from maxq.client.admin.messages import MessageAdmin
from maxq.errors import ClientError
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import MessageExt, host_text
from maxq.protocol.message.message_queue import MessageQueue
from maxq.protocol.message.transaction_view import (
    DISCARD_TOPIC,
    GROUP,
    HALF_TOPIC,
    OP_TOPIC,
    TransactionView,
    Verdict,
    is_final,
    verdict,
)

_PAGE = 32


@dataclass(frozen=True, slots=True)
class TransactionHistory:
    """The messages that brokers still have of one transaction.

    Attributes:
        forms: its messages, by store time: half messages, copies, what was delivered or given up.
    """

    unique_key: str
    verdict: Verdict
    forms: list[MessageExt]


class TransactionAdmin:
    """Lists and resumes transactions; the attribute `transactions` of an Admin."""

    def __init__(self, context: AdminContext, messages: MessageAdmin) -> None:
        self._context = context
        self._messages = messages

    async def open(self, address: str, *, limit: int = 1_000) -> list[MessageExt]:
        """Return the open transactions of one broker, the oldest first, by their present half messages.

        Args:
            limit: at most so many.
        """
        half, op = MessageQueue(HALF_TOPIC, "", 0), MessageQueue(OP_TOPIC, "", 0)
        view = TransactionView(await self._progress(address, half))
        async for message in self._read(address, op, await self._progress(address, op)):
            view.take_op(message)
        async for message in self._read(address, half, view.low):
            view.take_half(message)
            if len(view.open) >= limit:
                break
        return sorted(view.open.values(), key=lambda message: message.queue_offset)

    async def _progress(self, address: str, queue: MessageQueue) -> int:
        committed = await self._context.api.query_consumer_offset(address, GROUP, queue)
        first = await self._context.api.min_offset(address, queue)
        return max(committed or 0, first, 0)

    async def _read(self, address: str, queue: MessageQueue, offset: int) -> AsyncIterator[MessageExt]:
        end = await self._context.api.max_offset(address, queue)
        while offset < end:
            result = await self._messages.pull(queue, offset, max_nums=_PAGE, address=address)
            for message in result.messages:
                yield message
            if result.next_begin_offset <= offset:
                return
            offset = result.next_begin_offset

    async def history(self, transaction: str) -> TransactionHistory:
        """Find the outcome of a transaction.

        Args:
            transaction: its id, which is the unique key of its message; or an offset message id of a half message.

        Raises:
            ClientError: no half message of it is left.
        """
        half = await self._messages.find(HALF_TOPIC, transaction)
        if half is None:
            raise ClientError(
                f"no message of transaction {transaction} is stored: it was never opened here, or was removed since"
            )
        key = half.uniq_key or ""
        topic = half.properties.get(const.PROPERTY_REAL_TOPIC, "")
        forms = await self._messages.query_by_unique_key(HALF_TOPIC, key)
        forms += [m for m in await self._messages.query_by_unique_key(topic, key) if is_final(m)]
        forms += await self._messages.query_by_unique_key(DISCARD_TOPIC, key, via=HALF_TOPIC)
        forms.sort(key=lambda message: (message.store_timestamp, message.physical_offset))
        address = host_text(half.store_host)
        open_keys = {message.uniq_key or "" for message in await self.open(address)}
        return TransactionHistory(key, verdict(open_keys, forms), forms)

    async def resume(self, transaction: str) -> str:
        """Make the producer of an abandoned transaction be asked again, starting with the first check. The message is
        named by its offset message id.

        Raises:
            ClientError: it was not given up.
            BrokerError: the broker says why not.
        """
        found = await self._messages.query_by_unique_key(DISCARD_TOPIC, transaction, via=HALF_TOPIC)
        if not found:
            raise ClientError(
                f"transaction {transaction} was not given up, so its producer need not be asked again: only one whose "
                "producer was asked too often, or that is too old, can be resumed"
            )
        message = found[-1]
        address = host_text(message.store_host)
        await self._messages.resume_check_half_message(address, DISCARD_TOPIC, message.offset_msg_id)
        return message.offset_msg_id
