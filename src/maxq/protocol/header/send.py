"""Headers of sending, sending back, transactions and recall.

Source:
    remoting/protocol/header/SendMessageRequestHeader(V2).java and neighbours.
"""

from collections.abc import Mapping
from typing import ClassVar, Final

from maxq.codes import RequestCode
from maxq.protocol.frame.header_fields import CommandHeader, Long, header

#: Letters of the short form (requests 310, 320, 325) → names of the fields.
V2_LETTERS: Final[Mapping[str, str]] = {
    "a": "producerGroup", "b": "topic", "c": "defaultTopic", "d": "defaultTopicQueueNums", "e": "queueId",
    "f": "sysFlag", "g": "bornTimestamp", "h": "flag", "i": "properties", "j": "reconsumeTimes", "k": "unitMode",
    "l": "maxReconsumeTimes", "m": "batch", "n": "bname",
}  # fmt: skip
_LETTER_OF: Final = {name: letter for letter, name in V2_LETTERS.items()}
_V2_CODES: Final = frozenset(
    (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)
)


@header
class SendMessageRequestHeader(CommandHeader):
    """Fields of every send: of 10 and 324 with full names, of 310, 320 and 325 with letters.

    Whether the body is a batch is decided by `batch`, not by the code.
    """

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    sys_flag: int
    born_timestamp: Long
    flag: int
    properties: str | None = None
    reconsume_times: int | None = None
    unit_mode: bool | None = None
    batch: bool | None = None
    max_reconsume_times: int | None = None
    bname: str | None = None

    @classmethod
    def decode_v2(cls, ext: Mapping[str, str]) -> "SendMessageRequestHeader":
        """Decode the short form. A field whose one-letter name is absent is read from its full name, as some clients
        send it."""
        full = dict(ext)
        for letter, name in V2_LETTERS.items():
            if letter in ext:
                full[name] = ext[letter]
        return cls.decode(full)

    @classmethod
    def decode_for(cls, code: int, ext: Mapping[str, str]) -> "SendMessageRequestHeader":
        """Decode the form that request code `code` uses. Raises MissingFieldError."""
        return cls.decode_v2(ext) if code in _V2_CODES else cls.decode(ext)

    def encode_v2(self) -> dict[str, str]:
        """Returns the fields with the letters of the short form."""
        return {_LETTER_OF[name]: value for name, value in self.encode().items()}


@header
class SendMessageResponseHeader(CommandHeader):
    """Fields of the answer to any send.

    `msg_id` is the offset message id, or several with commas. Clients trace where `trace_on` is true.
    """

    WIRE: ClassVar[Mapping[str, str]] = {"msg_region": "MSG_REGION", "trace_on": "TRACE_ON"}

    msg_id: str
    queue_id: int
    queue_offset: Long
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    msg_region: str | None = None
    trace_on: bool | None = None


@header
class ConsumerSendMsgBackRequestHeader(CommandHeader):
    """Fields of CONSUMER_SEND_MSG_BACK (36). `offset` is the physical offset."""

    offset: Long
    group: str
    delay_level: int
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: int | None = None


@header
class EndTransactionRequestHeader(CommandHeader):
    """Fields of END_TRANSACTION (37)."""

    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: int
    msg_id: str
    topic: str | None = None
    from_transaction_check: bool = False
    transaction_id: str | None = None


@header
class CheckTransactionStateRequestHeader(CommandHeader):
    """Fields of CHECK_TRANSACTION_STATE (39), which a broker sends to a producer."""

    tran_state_table_offset: Long
    commit_log_offset: Long
    topic: str | None = None
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


@header
class RecallMessageRequestHeader(CommandHeader):
    """Fields of RECALL_MESSAGE (370)."""

    topic: str
    recall_handle: str
    producer_group: str | None = None


@header
class RecallMessageResponseHeader(CommandHeader):
    """Fields of the answer to RECALL_MESSAGE (370)."""

    msg_id: str


@header
class ReplyMessageRequestHeader(CommandHeader):
    """Fields of PUSH_REPLY_MESSAGE_TO_CLIENT (326), which a broker sends to the client that asked."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    sys_flag: int
    born_timestamp: Long
    flag: int
    born_host: str
    store_host: str
    store_timestamp: Long
    properties: str | None = None
    reconsume_times: int | None = None
    unit_mode: bool = False
