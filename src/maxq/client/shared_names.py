"""The names that `maxq.api` and `maxq.aio` have in common, besides the clients: messages, results, enums, listeners."""

from maxq.client.instance.request_reply import create_reply_message
from maxq.client.message_selector import MessageSelector
from maxq.client.producer.transaction_producer import LocalTransactionState, TransactionListener, TransactionSendResult
from maxq.client.results.consume_result import ConsumeContext, ConsumeResult
from maxq.client.results.send_result import SendResult, SendStatus
from maxq.protocol.enums import ConsumeFromWhere, MessageModel
from maxq.protocol.message.message import Message, MessageExt
from maxq.protocol.message.message_queue import MessageQueue

__all__ = [
    "ConsumeContext",
    "ConsumeFromWhere",
    "ConsumeResult",
    "LocalTransactionState",
    "Message",
    "MessageExt",
    "MessageModel",
    "MessageQueue",
    "MessageSelector",
    "SendResult",
    "SendStatus",
    "TransactionListener",
    "TransactionSendResult",
    "create_reply_message",
]
